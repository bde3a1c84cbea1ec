//! Programs of bpftrace's language, each beside bpftrace 0.27: exit status and output are the same,
//! in user space (`--no-bpf`), too.
//!
//! Not among them, as both cannot be right or bpftrace differs from its own documents: `%.2s` (it
//! prints all), `print(@, top)` (any entries of equal order).
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::process::Command;

use kymo_testkit::{Need, peer, require, run, run_command};

/// `name=program`, and behind `|` what else is on the command line.
const CASES: &str = include_str!("run_cases/same.txt");
/// Tests that share the cases.
const PARTS: usize = 4;

/// The lines in order: that of a map's entries is any.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[track_caller]
fn part_is_same(part: usize) {
    if !require(&[Need::Root, Need::NewestPeers]) {
        return;
    }
    for line in CASES.lines().skip(part).step_by(PARTS) {
        let (name, case) = line.split_once('=').unwrap();
        // Programs have the operator, too.
        let split = case.rsplit_once('|').filter(|(program, _)| program.ends_with('}'));
        let (program, more) = split.unwrap_or((case, ""));
        let mut args: Vec<String> = vec!["-e".to_owned(), program.to_owned()];
        let more = shell_words(more);
        // Options come first, parameters of the program last.
        let at = if more.first().is_some_and(|w| w.starts_with('-')) { 0 } else { args.len() };
        args.splice(at..at, more);
        let ours = run(env!("CARGO_BIN_EXE_kymo"), [&["run".to_owned()], &args[..]].concat());
        let theirs = peer("bpftrace").run([&["--no-warnings".to_owned()], &args[..]].concat());
        assert_eq!(
            (ours.status, sorted(&ours.stdout)),
            (theirs.status, sorted(&theirs.stdout)),
            "{name}: {program}\n{}\n{}",
            ours.stderr,
            theirs.stderr
        );
        // In user space as in the kernel, unless it is said that it cannot be.
        let way = ["run".to_owned(), "--no-bpf".to_owned()];
        let rings = run(env!("CARGO_BIN_EXE_kymo"), [&way, &args[..]].concat());
        assert!(
            rings.stderr.contains(" only in BPF programs")
                || (rings.status, sorted(&rings.stdout)) == (ours.status, sorted(&ours.stdout)),
            "{name}: {program}\n{}\n{}\n{}",
            ours.stdout,
            rings.stdout,
            rings.stderr
        );
    }
}

/// Programs whose output differs between releases 0.17 and 0.27: with `release = "0.17"` it is
/// that of the installed one.
const OF_RELEASE_0_17: &[&str] = &[
    "BEGIN { @p = (int32 *)32; @p++; @k[(int64 *)16] = 1; exit(); }",
    "BEGIN { @s = stats(-10); @s = stats(5); @k[1] = stats(3); print(@s); exit(); }",
    "BEGIN { @a[\"x\"] = avg(10); @a[\"y\"] = avg(20); print(@a, 1, 10); print(\"z\"); exit(); }",
    "BEGIN { printf(\"%d %d\\n\", strncmp(\"one\", \"one \", 4), strncmp(\"a\", \"a\", 1)); exit(); }",
    "BEGIN { printf(\"%s\", probe); exit(); } END { printf(\"-%s\\n\", probe); }",
    "BEGIN { @ = count(); clear(@); exit(); }",
    "BEGIN { @ = count(); delete(@); exit(); }",
    "BEGIN { @k[1] = hist(3); @l = lhist(3, 0, 10, 2); @c[1] = count(); @s = sum(2); exit(); }",
];

#[test]
fn the_installed_release_is_followed_on_request() {
    if !require(&[Need::Root, Need::Tool("bpftrace")]) {
        return;
    }
    let mut version = Command::new("bpftrace");
    version.arg("--version");
    if !run_command(version).success().stdout.contains("v0.17.") {
        println!("skipped: the installed bpftrace is another release");
        return;
    }
    for program in OF_RELEASE_0_17 {
        let mut theirs = Command::new("bpftrace");
        theirs.args(["-e", program]);
        let theirs = run_command(theirs).success();
        let ours = format!("config = {{ release = \"0.17\" }} {program}");
        let ours = run(env!("CARGO_BIN_EXE_kymo"), ["run", "-e", &ours]).success();
        let lines = |text: &str| text.lines().filter(|l| !l.is_empty()).count();
        assert_eq!(sorted(&ours.stdout), sorted(&theirs.stdout), "{program}\n{}", ours.stderr);
        assert!(lines(&ours.stdout) > 1, "{program}: {}", ours.stdout);
    }
}

/// Words, of which those with spaces stand in `"`.
fn shell_words(text: &str) -> Vec<String> {
    let quoted = text.split('"').enumerate();
    let words = quoted.flat_map(|(n, part)| match n % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

#[test]
fn first_part() {
    part_is_same(0);
}

#[test]
fn second_part() {
    part_is_same(1);
}

#[test]
fn third_part() {
    part_is_same(2);
}

#[test]
fn fourth_part() {
    part_is_same(3);
}
