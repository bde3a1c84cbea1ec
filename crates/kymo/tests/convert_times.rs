//! `kymo convert --weight on|off|wall`: stacks weigh the time that a program itself measured, and
//! on and off the CPU add up to all of it.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::Path;
use std::process::Command;

use kymo_testkit::{Need, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wait_programs/waits.c");
const NEEDS: [Need; 4] = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc];
/// Functions of the program, the frame that ends their waits, and the milliseconds that eight of
/// them take at least: a child may be done before it is waited for.
const CAUSES: [(&str, &str, u64); 6] = [
    ("futex", "[blocked: futex]", 32),
    ("sleep", "[sleeping]", 40),
    ("pipe", "[blocked: pipe]", 0),
    ("socket", "[blocked: socket]", 0),
    ("poll", "[blocked: poll, select or epoll]", 24),
    ("child", "[blocked: child process]", 0),
];

/// Two tests run at a time, and one of them records all processes: each has a name of its own.
fn compile(directory: &Path, name: &str) -> String {
    let program = directory.join(name).to_str().unwrap().to_owned();
    let flags = ["-g", "-O1", "-fno-omit-frame-pointer", "-o", &program, PROGRAM];
    assert!(Command::new("gcc").args(flags).status().unwrap().success());
    program
}

/// Stacks of the program and what they weigh.
fn folded(file: &str, comm: &str, weight: &str) -> Vec<(String, u64)> {
    let args = ["convert", "-f", "folded", "--no-marks", "--comm", comm, "--weight", weight];
    let text = run(KYMO, [&args[..], &["-i", file]].concat()).success().stdout;
    let line = |line: &str| {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), weight.parse().unwrap())
    };
    text.lines().map(line).collect()
}

fn sum(stacks: &[(String, u64)], wanted: impl Fn(&str) -> bool) -> u64 {
    stacks.iter().filter(|(stack, _)| wanted(stack)).map(|(_, weight)| weight).sum()
}

/// Compares a recording with what the program said.
#[track_caller]
fn compare(file: &str, comm: &str, said: &str) {
    let [on, off, wall] = ["on", "off", "wall"].map(|weight| folded(file, comm, weight));
    for (name, cause, least) in CAUSES {
        let measured = said.lines().find_map(|l| l.strip_prefix(&format!("{name} "))).unwrap();
        let measured: u64 = measured.parse().unwrap();
        let function = format!(";wait_{name};");
        let within = sum(&off, |stack| stack.contains(&function));
        let blocked = sum(&off, |stack| stack.contains(&function) && stack.ends_with(cause));
        // What it measured has the time in which it made the call, too.
        assert!(blocked > least * 1_000_000 && blocked <= within, "{name}: {blocked} of {within}");
        assert!(within <= measured, "{name}: {within} of {measured}");
        let other: u64 = CAUSES
            .iter()
            .filter(|(_, other, _)| *other != cause)
            .map(|(_, o, _)| sum(&off, |stack| stack.contains(&function) && stack.ends_with(o)))
            .sum();
        assert_eq!(other, 0, "{name}");
    }
    let [on, off, wall] = [on, off, wall].map(|stacks| sum(&stacks, |_| true));
    assert!(on > 0 && off > 0);
    // Samples share a thread's time out: each share is rounded down.
    assert!((on + off).abs_diff(wall) < 10_000, "{on} + {off} is not {wall}");
}

#[test]
fn times_are_those_that_a_program_measures() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "waits_alone");
    let file = directory.path().join("perf.data");
    let file = file.to_str().unwrap();
    let said = run(KYMO, ["profile", "-o", file, "--", &program]).success().stdout;
    compare(file, "waits_alone", &said);
    // Its threads' accounts are what the profile's page has.
    let wall = folded(file, "waits_alone", "wall");
    assert!(wall.iter().any(|(stack, _)| stack.contains(";main")), "{wall:?}");
    let refused = |args: &[&str], why: &str| {
        let out = run(KYMO, [&["convert", "-i", file, "--weight", "off"], args].concat());
        assert_eq!(out.status, 1);
        assert!(out.stderr.contains(why), "{}", out.stderr);
    };
    refused(&["-f", "folded", "--time", "10%/1"], "those of the whole recording");
    refused(&["-f", "speedscope"], "waits are no samples");
}

#[test]
fn recordings_of_all_cpus_have_them_too() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "waits_all");
    let file = directory.path().join("perf.data");
    let file = file.to_str().unwrap();
    let record = ["offcpu", "record", "-q", "-o", file, "--", &program];
    let said = run(KYMO, record).success().stdout;
    compare(file, "waits_all", &said);
    let running = folded(file, "waits_all", "on");
    assert!(running.iter().all(|(stack, _)| stack.ends_with(";[running]")), "{running:?}");
}

#[test]
fn recordings_without_switches_are_refused() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let file = file.to_str().unwrap();
    let record = ["record", "-q", "-e", "cpu-clock", "-o", file, "--", "true"];
    let _ = run(KYMO, record).success();
    let out = run(KYMO, ["convert", "-f", "folded", "--weight", "wall", "-i", file]);
    assert_eq!(out.status, 1);
    assert!(out.stderr.contains("has no switches of tasks"), "{}", out.stderr);
}
