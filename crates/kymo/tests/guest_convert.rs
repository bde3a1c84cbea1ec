//! `kymo convert` of what only the guest's kernel can record: function graphs, function
//! traces, and the stacks of programs in a trace.dat.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use kymo_testkit::{Need, Outcome, TracingState, Workload, require, run};
use tempfile::TempDir;

/// Serves a read from a pipe or file in the guest's kernel.
const SERVER: &str = "vfs_read";

fn begin() -> Option<TracingState> {
    require(&[Need::Root, Need::Tracefs, Need::TraceCmd]).then(TracingState::take)
}

fn kymo(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), args)
}

fn folded(args: &[&str]) -> BTreeMap<String, u64> {
    let out = kymo(&[&["convert", "-f", "folded", "--no-marks"], args].concat()).success().stdout;
    let line = |l: &str| {
        let (stack, weight) = l.rsplit_once(' ').unwrap();
        (stack.to_owned(), weight.parse().unwrap())
    };
    out.lines().map(line).collect()
}

#[test]
fn a_function_graph_is_time_in_functions() {
    let Some(_state) = begin() else { return };
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("t.dat").display().to_string();
    let tracer = ["record", "-q", "-o", &data, "-p", "function_graph", "-g", SERVER, "-F"];
    let _ = run("trace-cmd", [&tracer[..], &["cat", "/proc/meminfo"]].concat()).success();
    let stacks = folded(&[&data]);
    // Durations of the outermost functions, as trace-cmd prints them, in nanoseconds.
    let report = run("trace-cmd", ["report", "-i", &data]).success().stdout;
    // The kernel may state less time for a function than for those that it calls (45 us of 7.7 ms in
    // a busy guest): its own is none then, and the sum is larger by the difference.
    let (mut whole, mut called) = (0, Vec::new());
    let mut leaves: BTreeMap<String, u64> = BTreeMap::new();
    for line in report.lines() {
        let Some((front, function)) = line.split_once("|  ") else { continue };
        let duration = front.split_once(" us").and_then(|(n, _)| {
            let micros: f64 = n.split_whitespace().last()?.parse().ok()?;
            Some((micros * 1000.0).round() as u64)
        });
        let Some(duration) = duration else {
            called.push(0);
            continue;
        };
        if function.trim() == "}" {
            whole += called.pop().map_or(0, |inner: u64| inner.saturating_sub(duration));
        }
        match called.last_mut() {
            Some(inner) => *inner += duration,
            None => whole += duration,
        }
        if let Some(name) = function.trim().strip_suffix("();") {
            *leaves.entry(name.to_owned()).or_default() += duration;
        }
    }
    assert!(whole > 0 && leaves.len() > 3, "{report}");
    assert_eq!(stacks.values().sum::<u64>(), whole, "{stacks:#?}\n{report}");
    // The kernel also records what runs right before or behind, which may take long.
    let within = stacks.iter().filter(|(s, _)| s.split(';').nth(1) == Some(SERVER));
    assert!(within.map(|(_, t)| t).sum::<u64>() > 0, "{stacks:#?}");
    // A function that never calls another has all of its time itself.
    let calls = |name: &str| report.contains(&format!("  {name}() {{"));
    for (name, time) in leaves.iter().filter(|(name, _)| !calls(name)) {
        let own = stacks.iter().filter(|(s, _)| s.rsplit(';').next() == Some(name));
        assert_eq!(own.map(|(_, t)| t).sum::<u64>(), *time, "{name}");
    }
    let path = dir.path().join("a.svg").display().to_string();
    let _ = kymo(&["convert", &data, "-o", &path]).success();
    assert!(std::fs::read_to_string(&path).unwrap().contains("t.dat: functions"));
}

#[test]
fn traced_functions_stand_below_their_callers() {
    let Some(_state) = begin() else { return };
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("t.dat").display().to_string();
    let work = Workload::syscalls();
    let server = "__do_sys_getppid";
    let tracer = ["record", "-q", "-o", &data, "-p", "function", "-l", server, "-F"];
    let _ = run("trace-cmd", [&tracer[..], &[work.arg(), "50"]].concat()).success();
    let stacks = folded(&["--split", "none", &data]);
    assert_eq!(stacks.values().sum::<u64>(), 50, "{stacks:#?}");
    assert_eq!(stacks.get(&format!("do_syscall_64;{server}")), Some(&50), "{stacks:#?}");
}

#[test]
fn stacks_of_programs_are_below_those_of_the_kernel() {
    let Some(_state) = begin() else { return };
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("t.dat").display().to_string();
    let args =
        ["record", "-q", "-o", &data, "-e", "sys_enter_openat", "-T", "-O", "userstacktrace"];
    let command = ["--proc-map", "-F", "cat", "/proc/self/stat"];
    let _ = run("trace-cmd", [&args[..], &command[..]].concat()).success();
    let converted = kymo(&["convert", "-f", "folded", "--no-marks", &data]).success();
    let report = run("trace-cmd", ["report", "-N", "-i", &data]).success().stdout;
    let events = report.lines().filter(|l| l.contains(": sys_enter_openat:")).count();
    let own = report.lines().filter(|l| l.contains(": user_stack:")).count();
    assert!(events > 1 && own > 1, "{report}");
    let reported =
        format!("{events} of {events} events have a stack of the kernel, {own} one of the program");
    assert!(converted.stderr.contains(&reported), "{reported}: {}", converted.stderr);
    let line = converted.stdout.lines().find(|l| l.contains("[libc.so.6]"));
    let line = line.unwrap_or_else(|| panic!("{}\n{report}", converted.stdout));
    let frames: Vec<&str> = line.rsplit_once(' ').unwrap().0.split(';').collect();
    let program = frames.iter().rposition(|f| f.starts_with('[')).unwrap();
    let kernel = frames.iter().position(|f| *f == "do_syscall_64").unwrap();
    assert!(program < kernel, "{line}");
    assert!(converted.stderr.contains("kymo record -g -e EVENT names them"));
}
