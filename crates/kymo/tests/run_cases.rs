//! Programs of bpftrace's language, each beside bpftrace 0.27: exit status and output are the same,
//! in user space (`--no-bpf`), too.
//!
//! Not among them, as both cannot be right or bpftrace differs from its own documents: `%x` of 64
//! bits (bpftrace prints 32), `%.2s` (it prints all), `print(@, top)` (any entries of equal
//! order).
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use kymo_testkit::{Need, peer, require, run};

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
            rings.stderr.contains(" known to programs in the kernel only")
                || (rings.status, sorted(&rings.stdout)) == (ours.status, sorted(&ours.stdout)),
            "{name}: {program}\n{}\n{}\n{}",
            ours.stdout,
            rings.stdout,
            rings.stderr
        );
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
