//! `cargo xtask test`: everything CI checks, cheapest first, with the runner's
//! summary as the last line.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::steps::Steps;
use crate::{cargo, python, vm};

/// Counts of a test runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Counts {
    pub(crate) fn plus(self, more: Counts) -> Counts {
        Counts {
            passed: self.passed + more.passed,
            failed: self.failed + more.failed,
            skipped: self.skipped + more.skipped,
        }
    }
}

pub(crate) fn run() -> anyhow::Result<()> {
    summarized(all)
}

/// Tests that need neither root nor peers nor much time: for every commit.
pub(crate) fn quick() -> anyhow::Result<()> {
    summarized(first_ring)
}

/// Runs steps, says where the time went, what was skipped, and what the tests counted.
fn summarized(
    tests: impl FnOnce(&mut Steps) -> anyhow::Result<(Counts, Vec<String>)>,
) -> anyhow::Result<()> {
    let mut steps = Steps::new();
    let result = tests(&mut steps);
    println!("\nwhere the time went:\n{}", steps.table());
    let (counts, skips) = result?;
    if !skips.is_empty() {
        println!("skipped because this machine lacks something:");
        skips.iter().for_each(|line| println!("  {line}"));
        println!();
    }
    let Counts { passed, failed, skipped } = counts;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed > 0 {
        bail!("{failed} tests failed");
    }
    Ok(())
}

/// Formatting and the project's rules: what costs nothing.
fn rules(steps: &mut Steps) -> anyhow::Result<()> {
    steps.step("format check", || cargo::run(&["fmt", "--all", "--check"]))?;
    steps.step("tidy", crate::tidy::run)
}

/// Warnings.
fn clippy() -> anyhow::Result<()> {
    cargo::run(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

/// The checks, the unit tests of all crates, and the corpus.
fn first_ring(steps: &mut Steps) -> anyhow::Result<(Counts, Vec<String>)> {
    rules(steps)?;
    steps.step("clippy", clippy)?;
    let skip_log = skip_log()?;
    let nextest = cargo::has("cargo", &["nextest", "--version"]);
    let runner: &[&str] = if nextest { &["nextest", "run"] } else { &["test"] };
    let run = |args: &[&str]| {
        let mut tests = cargo::command(runner);
        tests.args(args).arg("--no-fail-fast").env("KYMO_SKIP_LOG", &skip_log);
        // The other tests do not wait for what this machine should have.
        counted({
            tests.env_remove("CI");
            tests
        })
    };
    let units = steps.step("unit tests", || run(&["--workspace", "--lib", "--bins"]))?;
    let corpus = steps.step("corpus", || run(&["-p", "kymo", "--test", "corpus"]))?;
    let log = std::fs::read_to_string(&skip_log).unwrap_or_default();
    Ok(sort_out(units.plus(corpus), &log))
}

/// Configuration of perf for tests: it keeps no copies of the binaries it meets. Those would stay
/// in the user's `~/.debug`, and perf 6.1 aborts at times (`util/build-id.c`) when several
/// processes put them there concurrently.
fn perf_config() -> anyhow::Result<PathBuf> {
    let path = crate::root().join("target/perfconfig");
    std::fs::write(&path, "[record]\n\tbuild-id = no-cache\n").context("target/perfconfig")?;
    Ok(path)
}

/// The file that skipped tests enter themselves in, empty.
fn skip_log() -> anyhow::Result<PathBuf> {
    let directory = crate::root().join("target");
    std::fs::create_dir_all(&directory).context("target")?;
    let path = directory.join("skipped-tests");
    // Left over from the last run, if at all.
    let _ = std::fs::remove_file(&path);
    Ok(path)
}

fn all(steps: &mut Steps) -> anyhow::Result<(Counts, Vec<String>)> {
    steps.step("setup", || crate::setup::run(crate::setup::Mode::Install))?;
    rules(steps)?;
    let nextest = cargo::has("cargo", &["nextest", "--version"]);
    let release = ("release program", || crate::release::run(None));
    let ((), (built, without_python)) = steps.beside(release, |steps| {
        steps.step("clippy", clippy)?;
        steps.step("book", crate::book::run)?;
        steps.step("packages of the crates", crate::crates::run)?;
        let without = steps.step("wheel for Python", || python::run(python::Profile::Dev))?;
        let docs = steps
            .step("doc tests", || counted(cargo::command(&["test", "--doc", "--workspace"])))?;
        let models = steps.step("loom models of the ring", || {
            let mut loom = cargo::command(&["test", "-p", "kymo-ring", "--lib", "loom"]);
            loom.env("RUSTFLAGS", "--cfg loom").env("LOOM_MAX_PREEMPTIONS", "3");
            counted(loom)
        })?;
        let watched =
            steps.step("the ring under AddressSanitizer", || counted(sanitized(nextest)))?;
        Ok((docs.plus(models).plus(watched), without))
    })?;

    steps.step("library for programs in C", crate::c_library::try_as_documented)?;
    let skip_log = skip_log()?;
    let mut tests = cargo::command(if nextest {
        &["nextest", "run", "--workspace", "--no-fail-fast"]
    } else {
        &["test", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"]
    });
    tests.env("KYMO_SKIP_LOG", &skip_log).env("PERF_CONFIG", perf_config()?);
    steps.step("kernel with debugging information", || {
        vm::fetch_for_tests();
        Ok(())
    })?;
    steps.step("newest peers", || {
        crate::peers::fetch_for_tests();
        Ok(())
    })?;
    let tests = steps.step("unit and integration tests", || counted(tests))?;
    steps.step("hostile", || crate::hostile::main(&["--seed", "1", "--rounds", "1500"]))?;
    // Three seconds each find what a change has broken; an hour in all is for a release.
    steps.step("fuzz", || crate::fuzz::main(&["--seconds", "3"]))?;
    steps.step("torture", || crate::torture::main(&["--seed", "1"]))?;
    let guest =
        steps.step("tests in the guest", || vm::suite::run(&vm::suite::Selection::all()))?;
    let other = steps.step("what works on another kernel", vm::matrix::other_kernel)?;
    let log = std::fs::read_to_string(&skip_log).unwrap_or_default();
    let (counts, mut skips) = sort_out(built.plus(tests), &log);
    // In the guest, they were tried again in one of their own.
    let in_guest = without_unexplained(guest.counts, guest.flaky, |_| false);
    let in_guest = sort_out(in_guest, &guest.skips.join("\n"));
    skips.extend(in_guest.1.iter().map(|line| format!("in the guest: {line}")));
    skips.extend(other.skips);
    skips.extend(without_python.iter().map(|why| format!("SKIPPED: the wheel for Python: {why}")));
    Ok((counts.plus(in_guest.0).plus(other.counts), skips))
}

/// The ring's tests with every access to memory watched, which miri would do as well where it can
/// be had. The toolchain brings the sanitizer; only its switch is not a stable one. A target directory
/// of its own keeps the others' builds as they are.
fn sanitized(nextest: bool) -> Command {
    let directory = crate::target().join("sanitized").display().to_string();
    let mut tests = cargo::command(if nextest {
        &["nextest", "run", "-p", "kymo-ring", "--no-fail-fast"]
    } else {
        // The others have a process each.
        &["test", "-p", "kymo-ring", "--test", "plain"]
    });
    tests.args(["--target-dir", &directory]);
    tests.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    // Tests leak their rings, which threads use to the end.
    tests.env("ASAN_OPTIONS", "detect_leaks=0");
    tests
}

/// A test that skips itself returns early and counts as passed for the runner; so
/// does one that is left for the guest, which counts there. Their lines in the log
/// tell.
fn sort_out(counts: Counts, log: &str) -> (Counts, Vec<String>) {
    let mut lines: Vec<String> = log.lines().map(str::to_owned).collect();
    lines.sort();
    lines.dedup();
    let (left, skips): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|line| line.starts_with(kymo_testkit::LEFT_FOR_THE_GUEST));
    let not_run = (left.len() + skips.len()) as u64;
    let counts = Counts {
        passed: counts.passed.saturating_sub(not_run),
        skipped: counts.skipped + skips.len() as u64,
        ..counts
    };
    (counts, skips)
}

/// Runs a test command, shows its output as it comes and adds up its counts. A
/// command that fails without a failed test (it did not compile) is an error.
fn counted(mut command: Command) -> anyhow::Result<Counts> {
    let text = format!("{command:?}").replace('"', "");
    // Both runners and both streams into one pipe, in the order they were written.
    let (reader, writer) = std::io::pipe().context("pipe")?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone().context("pipe")?)
        .stderr(writer)
        .env("CARGO_TERM_COLOR", "never");
    let mut child = command.spawn().with_context(|| format!("cannot run `{text}`"))?;
    // The command holds the write end; without this the loop would never end.
    drop(command);
    let mut counts = Counts::default();
    let mut flaky = BTreeSet::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.context("reading the test output")?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        flaky.extend(parse_flaky(&line));
        if let Some(found) = parse_counts(&line) {
            counts.passed += found.passed;
            counts.failed += found.failed;
            counts.skipped += found.skipped;
        }
    }
    let status = child.wait().with_context(|| format!("waiting for `{text}`"))?;
    if !status.success() && counts.failed == 0 {
        bail!("`{text}` failed: {status}");
    }
    Ok(without_unexplained(counts, flaky, tried_alone))
}

/// Number of runs without others that a test has to pass if it failed once beside them.
const TIMES_ALONE: &str = "10";

/// Whether a test passes ten of ten runs with nothing beside it: then it failed because of the
/// load, and is named, but does not fail the run.
fn tried_alone(test: &str) -> bool {
    let Some((binary, name)) = test.split_once(' ') else { return false };
    println!("\n{test} failed once, and is run {TIMES_ALONE} times alone:");
    let filter = format!("binary_id(={binary}) & test(={name})");
    let mut alone = cargo::command(&["nextest", "run", "--workspace", "-E", &filter]);
    alone.args(["--retries", "0", "--test-threads", "1", "--stress-count", TIMES_ALONE]);
    if let Ok(path) = perf_config() {
        alone.env("PERF_CONFIG", path);
    }
    cargo::run_command(alone).is_ok()
}

/// Counts tests that failed once without an explanation, and fail again alone, as failed, and names
/// them. If there are more than three, none is run again.
fn without_unexplained(
    counts: Counts,
    flaky: impl IntoIterator<Item = String>,
    passes_alone: impl Fn(&str) -> bool,
) -> Counts {
    let unknown: Vec<String> = flaky.into_iter().filter(|test| !is_explained(test)).collect();
    let (load, defects): (Vec<_>, Vec<_>) = match unknown.len() {
        0..=3 => unknown.into_iter().partition(|test| passes_alone(test)),
        _ => (Vec::new(), unknown),
    };
    if !load.is_empty() {
        println!(
            "failed once beside others, and passed {TIMES_ALONE} of {TIMES_ALONE} runs alone:"
        );
        load.iter().for_each(|test| println!("  {test}"));
    }
    if !defects.is_empty() {
        println!("failed once, and that no peer nor clock explains ({EXPLAINED_FILE}):");
        defects.iter().for_each(|test| println!("  {test}"));
    }
    let number = defects.len() as u64;
    let passed = counts.passed.saturating_sub(number);
    Counts { passed, failed: counts.failed + number, ..counts }
}

const EXPLAINED_FILE: &str = "xtask/src/flaky_tests.txt";

/// Whether the list says why the test may fail once: `BINARY [TEST] # reason`.
fn is_explained(test: &str) -> bool {
    let lines = include_str!("flaky_tests.txt").lines();
    lines.filter_map(|line| line.split_once('#')).any(|(known, _)| {
        let known = known.trim();
        !known.is_empty()
            && (test == known || test.strip_prefix(known).is_some_and(|rest| rest.starts_with(' ')))
    })
}

/// The test in a line of nextest's that says it passed when tried again
/// (`FLAKY 2/3 [   0.5s] (12/19) kymo::lock numbers_are_those_of_perf`).
fn parse_flaky(line: &str) -> Option<String> {
    let rest = line.trim_start().strip_prefix("FLAKY ")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [.., binary, test] = words[..] else { return None };
    Some(format!("{binary} {test}"))
}

/// The counts in a summary line of nextest (`Summary [ 1.0s] 9 tests run: 8 passed,
/// 1 failed, 0 skipped`) or of the built-in runner (`test result: ok. 8 passed; 0
/// failed; 1 ignored; …`).
pub(crate) fn parse_counts(line: &str) -> Option<Counts> {
    // nextest shows the output of a failed test indented, its counts among it.
    let list = match line.strip_prefix("test result: ") {
        Some(rest) => rest.split_once(". ")?.1,
        None => line.trim_start().strip_prefix("Summary [")?.split_once("run: ")?.1,
    };
    let mut counts = Counts::default();
    for part in list.split([',', ';']) {
        let mut words = part.split_whitespace();
        let (Some(number), Some(word)) = (words.next(), words.next()) else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        match word {
            "passed" => counts.passed += number,
            "failed" | "timed" | "exec" => counts.failed += number,
            "skipped" | "ignored" => counts.skipped += number,
            _ => {}
        }
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::{Counts, is_explained, parse_counts, parse_flaky, sort_out, without_unexplained};

    #[test]
    fn a_test_that_failed_once_needs_a_reason() {
        let line = "   FLAKY 2/3 [   0.542s] (12/19) kymo::lock numbers_are_those_of_perf";
        let test = parse_flaky(line).unwrap();
        assert_eq!(test, "kymo::lock numbers_are_those_of_perf");
        assert!(is_explained(&test));
        assert!(!is_explained("kymo::locked x") && !is_explained("kymo-files::bin/x y"));
        let all = Counts { passed: 5, failed: 1, skipped: 0 };
        let odd = "guest_run odd".to_owned();
        let counts = without_unexplained(all, [test, odd.clone()], |_| false);
        assert_eq!(counts, Counts { passed: 4, failed: 2, skipped: 0 });
        let load = |test: &str| test == "guest_run odd";
        assert_eq!(without_unexplained(all, [odd], load), all);
        let many = ["a b", "a c", "a d", "a e"].map(str::to_owned);
        let counts = without_unexplained(all, many, |_| true);
        assert_eq!(counts, Counts { passed: 1, failed: 5, skipped: 0 });
        assert_eq!(parse_flaky("        PASS [   0.1s] kymo::lock FLAKY"), None);
    }

    #[test]
    fn what_did_not_run_did_not_pass() {
        let counts = Counts { passed: 9, failed: 1, skipped: 1 };
        let log = "SKIPPED: a: needs b\nLEFT FOR THE GUEST: c\nLEFT FOR THE GUEST: d\n\
                   SKIPPED: a: needs b\n";
        let (counts, skips) = sort_out(counts, log);
        assert_eq!(counts, Counts { passed: 6, failed: 1, skipped: 2 });
        assert_eq!(skips, ["SKIPPED: a: needs b"]);
    }

    #[test]
    fn summaries_of_both_runners_are_understood() {
        let check = |line: &str, passed, failed, skipped| {
            assert_eq!(parse_counts(line), Some(Counts { passed, failed, skipped }), "{line}");
        };
        check("     Summary [   0.372s] 6 tests run: 6 passed, 0 skipped", 6, 0, 0);
        check("Summary [ 1.1s] 9/12 tests run: 5 passed (1 slow), 4 failed, 3 skipped", 5, 4, 3);
        check("Summary [ 1.1s] 3 tests run: 1 passed, 1 failed, 1 timed out, 0 skipped", 1, 2, 0);
        check("Summary [ 1.1s] 9 tests run: 9 passed (1 flaky), 0 skipped", 9, 0, 0);
        check(
            "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out",
            2,
            0,
            1,
        );
        check("test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured", 2, 3, 0);
        assert_eq!(parse_counts("test need::tests::ok ... ok"), None);
        assert_eq!(parse_counts("    test result: FAILED. 0 passed; 1 failed; 0 ignored"), None);
    }
}
