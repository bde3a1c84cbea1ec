//! `kymo trace -i`: the system calls of recordings, beside `perf trace -i` and the calls that a
//! program is known to make; delays, and CPUs of calls.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use std::collections::BTreeMap;

use kymo_testkit::{Need, Outcome, TracingState, Workload, peer, perf, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

#[track_caller]
fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

fn objects(args: &[&str]) -> Vec<Value> {
    let out = kymo(&[&["trace", "--json"], args].concat()).success();
    out.stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// Thread, name and result of the calls that perf trace shows.
fn perf_calls(text: &str) -> Vec<(u64, String, String)> {
    let call = |line: &str| {
        let (_, rest) = line.split_once("): ")?;
        let (task, call) = rest.trim_start().split_once(' ')?;
        let tid = task.rsplit('/').next()?.parse().ok()?;
        // Of calls that others came between there are two lines.
        let call = call.trim_start().trim_start_matches("... [continued]: ");
        let (name, _) = call.split_once('(')?;
        let (_, result) = call.rsplit_once(" = ")?;
        Some((tid, name.to_owned(), result.trim().to_owned()))
    };
    text.lines().filter_map(call).collect()
}

#[test]
fn calls_of_a_recording_are_those_that_perf_trace_shows() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.data").display().to_string();
    let work = ["--", "sh", "-c", "cat /etc/hostname >/dev/null; cat /nonexistent 2>/dev/null"];
    let _ = perf([&["trace", "record", "-o", &path], &work[..]].concat());
    let theirs = peer("perf").run(["trace", "-i", &path]).success();
    let mut theirs = perf_calls(&[theirs.stdout, theirs.stderr].concat());
    // The one that was under way when the recording began is nobody's call here, and calls that
    // do not return have another sign.
    theirs.retain(|(_, name, _)| !["execve", "exit_group"].contains(&name.as_str()));
    let ours = objects(&["-i", &path]);
    let called = |name: &str| {
        let of = theirs.iter().filter(|(_, own, _)| own == name);
        of.map(|(tid, _, result)| (*tid, result.clone())).collect::<Vec<_>>()
    };
    for name in ["openat", "read", "brk", "close", "newfstatat"] {
        let of = ours.iter().filter(|call| call["syscall"] == name && call["ret"].is_i64());
        let own: Vec<(u64, i64)> =
            of.map(|c| (c["tid"].as_u64().unwrap(), c["ret"].as_i64().unwrap())).collect();
        let known = called(name);
        assert_eq!(own.len(), known.len(), "{name}: {own:?} {known:?}");
        for ((tid, result), (their_tid, their_result)) in own.iter().zip(&known) {
            assert_eq!(tid, their_tid, "{name}");
            let number = their_result.split(' ').next().unwrap();
            let number = match number.strip_prefix("0x") {
                Some(hex) => i64::from_str_radix(hex, 16).ok(),
                None => number.parse().ok(),
            };
            let failed = *result < 0 && their_result.starts_with("-1");
            assert!(failed || number == Some(*result), "{name}: {result} {their_result}");
        }
        assert!(!own.is_empty(), "{name}");
    }
    // The same as lines, chosen ones, and as a table.
    let text = kymo(&["trace", "-i", &path, "-e", "openat", "--failure"]).success();
    assert!(text.stdout.lines().count() > 0);
    for line in text.stdout.lines() {
        assert!(line.contains("] openat(AT_FDCWD, 0x"), "{line}");
        assert!(line.contains("= -1 ENOENT (No such file or directory) <"), "{line}");
    }
    assert!(text.stderr.contains("strings are shown as addresses: the recording"), "{text:?}");
    let table = kymo(&["trace", "-s", "-i", &path]).success().stdout;
    let row = table.lines().find(|l| l.starts_with("openat ")).unwrap();
    let returned = ours.iter().filter(|c| c["syscall"] == "openat" && c["ret"].is_i64()).count();
    assert_eq!(row.split_whitespace().nth(1).unwrap(), returned.to_string(), "{table}");
}

#[test]
fn calls_are_shown_of_each_format_and_by_events_of_single_calls() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let _state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let work = Workload::syscalls();
    let command = ["--", work.arg(), "50"];
    let raw = "raw_syscalls:sys_enter,raw_syscalls:sys_exit";
    let single = "syscalls:sys_enter_getppid,syscalls:sys_exit_getppid";
    for (name, recorder, events) in [
        ("raw.data", ["record", "-q"], raw),
        ("raw.dat", ["trace", "-q"], raw),
        ("single.data", ["record", "-q"], single),
        ("single.dat", ["trace", "-q"], single),
    ] {
        let file = path(name);
        let args = [&recorder[..], &["-o", &file, "-e", events], &command].concat();
        let _ = kymo(&args).success();
        let calls = objects(&["-i", &file, "-e", "getppid"]);
        assert_eq!(calls.len(), 50, "{name}");
        assert!(calls.iter().all(|c| c["ret"].as_u64().is_some_and(|pid| pid > 1)), "{name}");
        let timed: Vec<f64> = calls.iter().map(|c| c["time"].as_f64().unwrap()).collect();
        assert!(timed.is_sorted(), "{name}");
    }
    let none = path("none.data");
    let _ = kymo(&[&["record", "-q", "-e", "cpu-clock", "-o", &none], &command[..]].concat());
    let out = kymo(&["trace", "-i", &none]).success();
    assert!(out.stdout.is_empty() && out.stderr.contains("there are no system calls"), "{out:?}");
    let refused = kymo(&["trace", "-i", &none, "-e", "sched:sched_switch"]).failure();
    assert!(refused.stderr.contains("kymo script"), "{refused:?}");
}

#[test]
fn a_delay_leaves_out_what_comes_before() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let _state = TracingState::take();
    // The shell continues when its clock says so, however slow the machine is.
    let script =
        "mkdir /nonexistent/early 2>/dev/null; sleep 2; rmdir /nonexistent/late 2>/dev/null";
    let count = |calls: &[Value]| {
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        calls.iter().for_each(|c| {
            *names.entry(c["syscall"].as_str().unwrap().to_owned()).or_default() += 1;
        });
        let of = |name: &str| names.get(name).copied().unwrap_or(0);
        (of("mkdir"), of("rmdir"))
    };
    let args = ["-e", "mkdir,rmdir", "--", "sh", "-c", script];
    let all = kymo(&[&["trace", "--json"], &args[..]].concat());
    let all: Vec<Value> = all.stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(count(&all), (1, 1));
    let late = kymo(&[&["trace", "--json", "--delay", "1200", "--show-cpu"], &args[..]].concat());
    let late: Vec<Value> = late.stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(count(&late), (0, 1), "{late:?}");
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    assert!(late.iter().all(|c| c["cpu"].as_u64().is_some_and(|cpu| cpu < cpus)), "{late:?}");
    assert!(all.iter().all(|c| c["cpu"].is_null()));
    // Events of the ring, too, shown and recorded.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("late.dat").display().to_string();
    let event = "syscalls:sys_enter_mkdir,syscalls:sys_enter_rmdir";
    let shown = kymo(&["trace", "-D", "1200", "-e", event, "--", "sh", "-c", script]).stdout;
    let _ =
        kymo(&["trace", "-q", "-D", "1200", "-o", &file, "-e", event, "--", "sh", "-c", script]);
    for text in [shown, kymo(&["script", "-i", &file]).success().stdout] {
        let of = |name: &str| text.lines().filter(|l| l.contains(name)).count();
        assert_eq!((of("sys_enter_mkdir"), of("sys_enter_rmdir")), (0, 1), "{text}");
    }
}

/// Counts of cycles, events or ticks are no times: what needs times says so.
#[test]
fn clocks_that_do_not_count_nanoseconds_are_refused() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("counts.dat").to_str().unwrap().to_owned();
    let events = "raw_syscalls:*,sched:sched_switch";
    for (clock, unit) in [("counter", "events"), ("uptime", "timer ticks")] {
        let record = ["trace", "-f", "--clock", clock, "-e", events, "-o", &file, "--", "true"];
        let _ = kymo(&record).success();
        let answers = [
            "syscalls report",
            "trace",
            "why --comm true",
            "profile",
            "sched latency",
            "sched timehist",
            "offcpu report",
            "lock report",
            "kwork report",
            "kmem stat",
            "io latency",
        ];
        for answer in answers {
            let words: Vec<&str> = answer.split(' ').chain(["-i", &file]).collect();
            let out = kymo(&words).failure();
            let fact = format!("its clock {clock} counts {unit}");
            assert!(out.stderr.contains(&fact), "{answer}: {}", out.stderr);
        }
        // Plain counts, without a decimal point.
        let text = kymo(&["script", "-i", &file]).success().stdout;
        let line = text.lines().find(|l| l.contains("sched_switch:")).unwrap();
        let time = line.split("sched_switch:").next().unwrap().split(']').nth(1).unwrap();
        assert!(time.trim().trim_end_matches(':').parse::<u64>().is_ok(), "{line}");
    }
}
