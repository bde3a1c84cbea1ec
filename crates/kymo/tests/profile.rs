//! `kymo profile`: the page for a newcomer, however the command ends.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::{Need, Outcome, TestCgroup, Unprivileged, Workload, lines_with, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

#[track_caller]
fn is_a_page(text: &str) {
    for part in ["  Time ", "  Waiting ", "  Faults ", "  Switches ", "  Samples ", "The hot path"]
    {
        assert_eq!(lines_with(text, part).len(), 1, "{part} in {text}");
    }
    let hot = lines_with(text, "  hot  [");
    assert!(hot.len() == 1 && text.contains("self   total  function"), "{text}");
}

#[test]
fn a_busy_program_is_called_busy() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::spin();
    let out = run(KYMO, ["profile", "--", w.arg(), "300"]).success();
    is_a_page(&out.stderr);
    assert!(lines_with(&out.stderr, "  In short  it ").len() == 1, "{}", out.stderr);
    let asleep = run(KYMO, ["profile", "--", "sleep", "0.2"]).success();
    assert!(asleep.stderr.contains("it waits for"), "{}", asleep.stderr);
}

/// One thread is on one CPU, however short it lives.
#[test]
fn a_short_program_is_not_busier_than_one_cpu() {
    if !require(&[Need::Root, Need::PerfEvents]) {
        return;
    }
    for _ in 0..5 {
        let page = run(KYMO, ["profile", "--", "true"]).success().stderr;
        let (before, _) = page.split_once(" CPUs busy on average").unwrap();
        let busy: f64 = before.rsplit('(').next().unwrap().parse().unwrap();
        // Where it waits for a CPU it is hardly busy at all.
        assert!((0.0..1.05).contains(&busy), "{page}");
        // A path is what more than one sample passed through.
        let steps = page.split("The hot path").nth(1).unwrap_or_default();
        let steps = steps.split("Trust:").next().unwrap_or_default();
        assert!(steps.lines().count() < 20, "{page}");
    }
}

#[test]
fn the_commands_end_is_passed_on() {
    if !require(&[Need::Root, Need::PerfEvents]) {
        return;
    }
    let status =
        |command: &[&str]| -> Outcome { run(KYMO, [&["profile", "--"], command].concat()) };
    assert_eq!(status(&["sh", "-c", "exit 7"]).status, 7);
    let missing = status(&["no-such-program-here"]);
    assert_eq!(missing.status, 127, "{missing:?}");
    assert!(missing.stderr.contains("no-such-program-here"), "{missing:?}");
}

#[test]
fn an_interrupt_prints_the_page() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::spin();
    let page = w.file("page.txt");
    let child = Command::new(KYMO)
        .args(["profile", "--", w.arg(), "100000"])
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&page).unwrap())
        .spawn();
    let mut child = child.unwrap();
    // When the program has run for a while.
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let burnt = || -> Option<u64> {
        let of = std::fs::read_to_string(&children).ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", of.trim())).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(11)?.parse().ok()
    };
    let began = Instant::now();
    // In hundredths of a second.
    while burnt().unwrap_or(0) < 30 {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = run("kill", ["-INT", &child.id().to_string()]).success();
    assert!(!child.wait().unwrap().success());
    is_a_page(&std::fs::read_to_string(&page).unwrap());
}

#[test]
fn no_privilege_is_needed_for_ones_own_program() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let place = Unprivileged::new(Path::new(KYMO));
    let w = Workload::spin();
    let program = place.dir().join("spin");
    std::fs::copy(w.program(), &program).unwrap();
    let out = place.run(["profile", "--", program.to_str().unwrap(), "300"]).success();
    is_a_page(&out.stderr);
}

/// Functions that the compiler must leave as they are, each with a frame of its own.
const NESTED: &str = r#"
#include <time.h>
#define NOINLINE __attribute__((noinline))
volatile long sum;
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
NOINLINE long inner(long n) { for (long i = 0; i < n; i++) sum += i; return sum; }
NOINLINE long middle(long n) { return inner(n) + 1; }
NOINLINE long outer(long n) { return middle(n) + 2; }
int main(void) {
    for (double end = now() + 0.3; now() < end;) sum += outer(20000);
    return 0;
}
"#;

#[test]
fn stacks_are_recorded_as_the_program_needs_it() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("nested.c"), NESTED).unwrap();
    for (flag, copies) in [("-fomit-frame-pointer", true), ("-fno-omit-frame-pointer", false)] {
        let program = path("nested");
        // Optimized functions that call nothing have no frame anyway.
        let args = ["-O0", "-g", flag, "-o", &program, &path("nested.c")];
        assert!(Command::new("gcc").args(args).status().unwrap().success());
        let page = run(KYMO, ["profile", "-o", &path("p.data"), "--", &program]).success().stderr;
        let note =
            "nested keeps no frame pointers: stacks are copied (--call-graph dwarf), 1000 times";
        assert_eq!(page.contains(note), copies, "{flag}: {page}");
        // Either way they are complete, but for those that end in a prologue.
        let args =
            ["convert", "-f", "folded", "--no-marks", "-e", "cpu-clock", "-i", &path("p.data")];
        let folded = run(KYMO, args).success().stdout;
        let weight = |of: &str| -> u64 {
            let lines = folded.lines().filter(|l| l.contains(of));
            lines.map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
        };
        let (all, whole) = (weight(";inner"), weight(";main;outer;middle;inner"));
        assert!(all > 10_000_000 && whole * 10 > all * 9, "{flag}: {folded}");
        let asked = ["profile", "--call-graph", "fp", "--", &program];
        let asked = run(KYMO, asked).success().stderr;
        assert!(!asked.contains("stacks are copied"), "{asked}");
        // Where they are broken, that is said, as `report` does, and what helps.
        let broken = asked.contains("user stacks do not lead to the beginning of the program");
        assert_eq!(broken, copies, "{flag}: {asked}");
        let helps = asked.contains("or record with --call-graph dwarf");
        assert_eq!(helps, copies, "{flag}: {asked}");
        std::fs::remove_file(path("p.data")).unwrap();
    }
    // A script is its interpreter.
    let script = path("script");
    std::fs::write(&script, format!("#!{}\n", path("nested"))).unwrap();
    let args = ["-O0", "-g", "-fomit-frame-pointer", "-o", &path("nested"), &path("nested.c")];
    assert!(Command::new("gcc").args(args).status().unwrap().success());
    assert!(Command::new("chmod").args(["755", &script]).status().unwrap().success());
    let page = run(KYMO, ["profile", "--", &script]).success().stderr;
    assert!(page.contains("nested keeps no frame pointers"), "{page}");
}

/// A stack with more frames than the kernel gives is cut: frame pointers are there.
#[test]
fn deep_stacks_are_cut_and_not_broken() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let code = "static volatile long sum;
        __attribute__((noinline)) long down(int depth) {
            if (depth == 0) { for (long i = 0; i < 100000000; i++) sum += i; return sum; }
            return down(depth - 1) + 1;
        }
        int main(void) { return down(1000) == 1; }";
    std::fs::write(path("deep.c"), code).unwrap();
    let program = path("deep");
    let args = ["-O0", "-fno-omit-frame-pointer", "-o", &program, &path("deep.c")];
    assert!(Command::new("gcc").args(args).status().unwrap().success());
    let fp = ["--call-graph", "fp"];
    let profile = run(KYMO, [&["profile"], &fp[..], &["--", &program]].concat()).success().stderr;
    let data = path("deep.data");
    let record = [&["record", "-q", "-e", "cpu-clock", "-o", &data], &fp[..], &["--", &program]];
    let _ = run(KYMO, record.concat()).success();
    let report = run(KYMO, ["report", "--stdio", "-i", &data]).success().stdout;
    for text in [profile, report] {
        assert!(text.contains("call chains cut short"), "{text}");
        assert!(text.contains("raise kernel.perf_event_max_stack"), "{text}");
        assert!(!text.contains("not lead to the beginning"), "{text}");
    }
}

/// Most functions of a Rust program are of the standard library, which keeps frame pointers; its
/// own code does not.
#[test]
fn stacks_of_rust_release_programs_are_complete() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tool("rustc")]) {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (source, program) = (path("words.rs"), path("words"));
    let text = "use std::collections::HashMap;
        #[inline(never)] fn count(words: &mut HashMap<String, u64>, n: u64) {
            *words.entry(format!(\"word {}\", n % 5000)).or_default() += n;
        }
        #[inline(never)] fn fill(words: &mut HashMap<String, u64>) {
            (0..100_000).for_each(|n| count(words, n));
        }
        fn main() {
            let mut words = HashMap::new();
            (0..30).for_each(|_| fill(&mut words));
            println!(\"{}\", words.len());
        }";
    std::fs::write(&source, text).unwrap();
    let rustc = run("rustc", ["-O", "--edition", "2024", "-o", &program, &source]);
    assert_eq!(rustc.status, 0, "{}", rustc.stderr);
    let page = run(KYMO, ["profile", "--json", "--strict", "--", &program]);
    let page: serde_json::Value = serde_json::from_str(&page.stderr).unwrap();
    let notes = page["ledger"].as_array().unwrap().iter();
    let stacks: Vec<&str> = notes
        .filter(|note| ["stacks", "frame-pointers"].contains(&note["kind"].as_str().unwrap()))
        .map(|note| note["fact"].as_str().unwrap())
        .collect();
    let share = stacks.iter().find_map(|fact| fact.split_once("%) of ")?.0.rsplit('(').next());
    assert!(share.unwrap().parse::<f64>().unwrap() >= 95.0, "{stacks:?}");
}

/// An ordinary user: few samples make no shares, and a program of another user in the command is
/// named.
#[test]
fn thin_evidence_of_an_ordinary_user_is_said_first() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tool("su")]) {
        return;
    }
    let place = Unprivileged::new(Path::new(KYMO));
    let short = |command: &[&str]| {
        let page = place.run([&["profile", "--"][..], command].concat()).success().stderr;
        let line = page.lines().find(|l| l.starts_with("  In short  ")).map(str::to_owned);
        (line.unwrap_or_else(|| panic!("{page}")), page)
    };
    let (line, page) = short(&["sleep", "0.2"]);
    let few = ["without a sample: ", "by only one sample: ", "by only "];
    assert!(few.iter().any(|few| line.starts_with(&format!("  In short  {few}"))), "{page}");
    assert!(!line.contains('%') && line.contains("it waits most of the time"), "{page}");
    let (line, page) = short(&["sh", "-c", "su --help > su.txt; sleep 0.2"]);
    assert!(line.contains("/su is not recorded, since it runs as another user: "), "{page}");
    assert!(page.contains("/su runs as another user (set-user-ID): the kernel ends"), "{page}");
    // Nothing is hidden of programs of the user.
    let (line, page) = short(&["sh", "-c", "true; sleep 0.2"]);
    assert!(!line.contains("not recorded") && !page.contains("set-user-ID"), "{page}");
}

/// A name of a page is none of a recording; others cannot read it, as they cannot read that.
#[test]
fn a_page_is_written_by_its_name() {
    use std::os::unix::fs::PermissionsExt as _;
    if !require(&[Need::Root, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let page = directory.path().join("page.html");
    let arguments = ["profile", "--view", "-o", page.to_str().unwrap(), "--", "true"];
    let _ = run(KYMO, arguments).success();
    let text = std::fs::read(&page).unwrap();
    assert!(text.starts_with(b"<!DOCTYPE html>"));
    // The recording is gone: no command can name it.
    assert!(!text.windows(12).any(|bytes| bytes == b"kymo-scratch"));
    assert_eq!(page.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let again = run(KYMO, arguments);
    assert!(again.status == 1 && again.stderr.contains("already exists"), "{}", again.stderr);
}

/// Other commands see in such a recording when the program ran, though only its own switches and
/// those to it are recorded.
#[test]
fn a_recording_shows_other_commands_when_the_program_ran() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let w = Workload::spin();
    let data = w.file("kept.data");
    let _ = run(KYMO, ["profile", "-o", &data, "--", w.arg(), "300"]).success();
    let query = "SELECT round(max(running_ns) / 1e6) FROM offcpu WHERE comm = 'spin'";
    let rows = run(KYMO, ["sql", "--csv", &data, query]).success().stdout;
    let running: f64 = rows.lines().nth(1).unwrap().parse().unwrap();
    let page = run(KYMO, ["profile", "--json", "-i", &data]).success().stdout;
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    let on_cpu = page["on_cpu_ns"].as_f64().unwrap() / 1e6;
    assert!((running / on_cpu - 1.0).abs() < 0.1, "{running} ms of {on_cpu} ms");
    // Switches between other tasks are not recorded: that is said once.
    let view = run(KYMO, ["view", &data, "-o", &w.file("tasks.html")]).success().stderr;
    let own = "the recording is of some tasks: times of others on their CPUs are incomplete";
    assert!(!view.contains("no wake-up"), "{view}");
    assert!(!view.contains("unmatched") || view.contains(own), "{view}");
    // Switches between other tasks are not recorded: that is said once.
    let view = run(KYMO, ["view", &data, "-o", &w.file("page.html")]).success().stderr;
    let own = "the recording is of some tasks: times of others on their CPUs are incomplete";
    assert!(!view.contains("no wake-up"), "{view}");
    assert!(!view.contains("unmatched") || view.contains(own), "{view}");
}

#[test]
fn the_processes_of_a_cgroup_are_profiled() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let Some(group) = TestCgroup::new("profile") else { return };
    let w = Workload::spin();
    let start = || {
        let mut command = Command::new(w.program());
        command.arg("100000").stdout(Stdio::null()).spawn().unwrap()
    };
    let (mut inside, mut outside) = (start(), start());
    group.add(inside.id());
    let args = ["profile", "--cgroup", group.name(), "--timeout", "400"];
    let page = run(KYMO, args);
    let nobody = run(KYMO, ["profile", "--cgroup", "no-such-group", "--timeout", "100"]);
    for child in [&mut inside, &mut outside] {
        let _ = child.kill();
        let _ = child.wait();
    }
    let page = page.success().stdout;
    let thread = |child: &std::process::Child| format!(" {0}/{0} ", child.id());
    assert!(page.contains(&format!("cgroup {}: 1 process\n", group.name())), "{page}");
    assert!(page.contains(&thread(&inside)) || !page.contains("By thread"), "{page}");
    assert!(!page.contains(&thread(&outside)), "{page}");
    assert!(page.contains("The hot path"), "{page}");
    assert!(nobody.failure().stderr.contains("no-such-group"));
}

/// Two halves, one of them in two steps.
const FORKED: &str = r#"
__attribute__((noinline)) long work(long n) { volatile long s = 0; while (n--) s += n; return s; }
__attribute__((noinline)) long within(long n) { return work(n) + 1; }
__attribute__((noinline)) long left(long n) { return within(n) + 1; }
__attribute__((noinline)) long right(long n) { return work(n) + 2; }
int main(void) { return left(200000000) + right(200000000) == 0; }
"#;

#[test]
fn branches_of_the_hot_path_are_distinguished_from_what_they_go_on_with() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("forked", FORKED);
    let page = run(KYMO, ["profile", "--", w.arg()]).success().stderr;
    let path = page.split("The hot path").nth(1).unwrap();
    let place = |name: &str| {
        let line = path.lines().find(|line| line.ends_with(name) && line.contains('%'));
        line.unwrap_or_else(|| panic!("{name}: {page}")).rfind(name).unwrap()
    };
    // The branches of a fork have a mark each, and stand where their callees do.
    assert_eq!(place(" + left"), place(" + right"));
    assert_eq!(place("   within"), place(" + left"));
    assert!(!path.contains("+ within") && !path.contains("+ main"), "{page}");
}
