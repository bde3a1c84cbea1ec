//! `kymo syscalls` of recordings of this machine: against perf trace -s of the same recording,
//! counts of strace, and a program whose calls are known; of LTTng's traces; halves and losses.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod kernel_ctf;

use std::collections::BTreeMap;

use kernel_ctf::{CtfClass, CtfEvent, CtfWriter};
use kymo_testkit::{
    Need, Outcome, TracingState, newest_peers, page_with_ledger, peer, perf, require, run,
};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

fn report(path: &str, more: &[&str]) -> Value {
    let args = [&["syscalls", "report", "--json", "-i", path], more].concat();
    let out = kymo(&args);
    page_with_ledger(&out.stdout, &out.stderr)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value}"))
}

/// Rows of one thread's table in `perf trace -s`, and in `report --summary-mode thread`: calls,
/// errors, total, min, avg, max, stddev.
fn rows(text: &str, thread: &str, columns: &[usize]) -> BTreeMap<String, Vec<String>> {
    let lines = text.lines().skip_while(|l| !l.trim_start().starts_with(thread)).skip(1);
    let table = lines.take_while(|l| l.is_empty() || l.starts_with("   "));
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let _: u64 = words.get(1)?.parse().ok()?;
        let cells: Option<Vec<&str>> = columns.iter().map(|c| words.get(*c).copied()).collect();
        Some((words[0].to_owned(), cells?.into_iter().map(str::to_owned).collect()))
    };
    table.filter_map(row).collect()
}

const PERF_COLUMNS: [usize; 7] = [1, 2, 3, 4, 5, 6, 7];
const KYMO_COLUMNS: [usize; 7] = [1, 2, 3, 4, 5, 8, 9];

#[track_caller]
fn table_is_perfs(path: &str, comm: &str, perf: &dyn Fn(&[&str]) -> Outcome) {
    let said = perf(&["trace", "-s", "-i", path]);
    let said = said.stdout + &said.stderr;
    let ours = kymo(&["syscalls", "report", "--summary-mode", "thread", "-i", path]).stdout;
    let thread = ours.lines().find(|l| l.starts_with(&format!(" {comm} (")));
    let thread = thread.unwrap_or_else(|| panic!("{ours}")).split(',').next().unwrap().trim();
    let mut expected = rows(&said, thread, &PERF_COLUMNS);
    let mut rows = rows(&ours, thread, &KYMO_COLUMNS);
    // perf counts the end of a call whose begin is not in the recording, as one of no time.
    for rows in [&mut expected, &mut rows] {
        let _ = rows.remove("execve");
        let _ = rows.remove("ioctl");
        let _ = rows.remove("poll");
        let _ = rows.remove("read");
        let _ = rows.remove("vfork");
    }
    assert!(rows.len() > 10, "{ours}");
    assert_eq!(rows, expected, "{said}");
}

#[test]
fn numbers_are_those_of_perf_of_the_same_recording() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Perf]) {
        return;
    }
    let state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (data, big) = (path("a.data"), format!("of={}", path("big")));
    // Of a command's process kymo leaves out what the recorder did in it before; perf does not.
    let line = format!("dd if=/dev/zero {big} bs=4k count=37 conv=fsync; true");
    let dd = ["--", "sh", "-c", &line];
    let record = ["syscalls", "record", "-q", "-m", "8M", "-o", &data];
    let _ = kymo(&[&record, &dd[..]].concat()).success();
    table_is_perfs(&data, "dd", &|args| perf(args));
    // The recorder waits for what it records, and leaves itself out.
    let own = path("own.data");
    let mut recorder = std::process::Command::new(env!("CARGO_BIN_EXE_kymo"));
    recorder.args(["syscalls", "record", "-q", "-o", &own, "--", "sleep", "0.2"]);
    let mut recorder = recorder.spawn().unwrap();
    assert!(recorder.wait().unwrap().success());
    let page = report(&own, &["--tid", &recorder.id().to_string()]);
    assert_eq!(list(&page["calls"]).len(), 0, "{page}");
    assert_ne!(list(&report(&own, &["--comm", "sleep"])["calls"]).len(), 0);
    if newest_peers().is_some() {
        let newest = peer("perf");
        table_is_perfs(&data, "dd", &|args| newest.run(args));
    }
    // perf trace's own recording has no switches.
    let theirs = path("p.data");
    let _ = perf([&["trace", "record", "-o", &theirs], &dd[..]].concat());
    table_is_perfs(&theirs, "dd", &|args| perf(args));
    let none = kymo(&["syscalls", "report", "-i", &theirs]).stdout;
    assert!(none.contains("there are no sched_switch events"), "{none}");
    // What the program itself says it did.
    let dat = path("b.dat");
    let _ = kymo(&[&["syscalls", "record", "-q", "-o", &dat], &dd[..]].concat()).success();
    for path in [&data, &dat] {
        let page = report(path, &["--comm", "dd", "--slowest", "500"]);
        let count = |name: &str| {
            let row = list(&page["calls"]).iter().find(|r| r["syscall"] == name);
            number(&row.unwrap_or_else(|| panic!("{page}"))["count"])
        };
        assert_eq!(count("fsync"), 1);
        let slow = list(&page["slowest"]).iter();
        let blocks =
            slow.filter(|s| s["syscall"] == "write" && s["ret"] == 4096 && s["cpu"].is_u64());
        assert_eq!(blocks.count(), 37);
        let fsync = list(&page["slowest"]).iter().find(|s| s["syscall"] == "fsync").unwrap();
        assert_eq!(fsync["arguments"], "fd=1");
        // One table is the sum of the threads', and the parts of a call are within it.
        let of_threads = list(&page["threads"]).iter().flat_map(|t| list(&t["calls"]));
        let sum: u64 = of_threads.map(|c| number(&c["total_ns"])).sum();
        let total: u64 = list(&page["calls"]).iter().map(|c| number(&c["total_ns"])).sum();
        assert_eq!(sum, total);
        for call in list(&page["calls"]) {
            let parts = number(&call["blocked_ns"]) + number(&call["runnable_ns"]);
            assert!(parts <= number(&call["total_ns"]), "{call}");
        }
    }
    assert_eq!(state.left_behind(), None);
}

#[test]
fn counts_are_those_of_strace() {
    let needs = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Perf, Need::Tool("strace")];
    if !require(&needs) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (data, counts) = (path("a.data"), path("counts"));
    // Under a name that no other program has: all of the machine is recorded.
    let find = path("kymo_find");
    let _ = run("cp", ["/usr/bin/find", &find]).success();
    let program = [&find, "/etc", "-maxdepth", "1", "-newer", "/etc/passwd"];
    let _ = run("strace", [&["-c", "-o", &counts], &program[..]].concat()).success();
    let record = ["syscalls", "record", "-q", "-m", "8M", "-o", &data, "--"];
    let _ = kymo(&[&record, &program[..]].concat()).success();
    let page = report(&data, &["--comm", "kymo_find"]);
    let ours: BTreeMap<&str, (u64, u64)> = list(&page["calls"])
        .iter()
        .map(|c| (c["syscall"].as_str().unwrap(), (number(&c["count"]), number(&c["errors"]))))
        .collect();
    let text = std::fs::read_to_string(&counts).unwrap();
    let mut compared = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (count, errors) = match words[..] {
            [_, _, _, count, _] => (count, 0),
            [_, _, _, count, errors, _] => (count, errors.parse().unwrap_or(0)),
            _ => continue,
        };
        let (Ok(count), Some(name)) = (count.parse::<u64>(), words.last()) else { continue };
        // The command before it is there; where the stack and the heap lie.
        if ["execve", "total", "brk", "rt_sigaction"].contains(name) {
            continue;
        }
        compared += 1;
        assert_eq!(ours.get(name), Some(&(count, errors)), "{name} {text}");
    }
    assert!(compared > 10, "{text}");
}

const CLASSES: [CtfClass; 6] = [
    CtfClass { name: "syscall_entry_read", fields: &[("uint32_t", "fd"), ("uint64_t", "count")] },
    CtfClass { name: "syscall_exit_read", fields: &[("uint64_t", "ret"), ("uint64_t", "buf")] },
    CtfClass { name: "syscall_entry_futex", fields: &[("uint64_t", "uaddr")] },
    CtfClass { name: "syscall_exit_futex", fields: &[("uint64_t", "ret")] },
    CtfClass {
        name: "sched_switch",
        fields: &[
            ("text", "prev_comm"),
            ("int32_t", "prev_tid"),
            ("uint64_t", "prev_state"),
            ("text", "next_comm"),
            ("int32_t", "next_tid"),
        ],
    },
    CtfClass { name: "sched_waking", fields: &[("text", "comm"), ("int32_t", "tid")] },
];

fn event(time: u64, cpu: u32, class: usize, values: &[u64]) -> CtfEvent {
    CtfEvent { time, cpu, class, values: values.to_vec() }
}

#[test]
fn calls_of_lttng_are_divided_by_their_waits_and_halves_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kernel");
    const EINTR: u64 = -4i64 as u64;
    let events = [
        event(90, 1, 4, &[0, 0, 0, 9, 9]),
        event(100, 0, 4, &[0, 0, 0, 7, 7]),
        event(105, 0, 1, &[3, 0]),
        event(110, 0, 0, &[3, 512]),
        event(130, 0, 1, &[512, 0]),
        event(200, 0, 2, &[0xabc]),
        event(210, 0, 4, &[7, 7, 1, 0, 0]),
        event(300, 1, 5, &[7, 7]),
        event(340, 0, 4, &[0, 0, 0, 7, 7]),
        event(350, 0, 3, &[EINTR]),
        event(400, 0, 2, &[0xabc]),
        event(410, 0, 0, &[4, 1]),
    ];
    CtfWriter { classes: &CLASSES, events: &events, packet: 4, without: &|_, _| false }
        .write(&path);
    let path = path.to_str().unwrap();
    let page = report(path, &[]);
    let names = ["open_at_end", "entries_only", "exits_only", "uncertain"];
    assert_eq!(names.map(|name| number(&page["halves"][name])), [1, 1, 1, 0], "{page}");
    let row = |name: &str| {
        let row = list(&page["calls"]).iter().find(|r| r["syscall"] == name).unwrap();
        let names = ["count", "errors", "total_ns", "blocked_ns", "runnable_ns"];
        names.map(|n| number(&row[n]))
    };
    assert_eq!((row("futex"), row("read")), ([1, 1, 150, 90, 40], [1, 0, 20, 0, 0]));
    let slow = &page["slowest"][0];
    assert_eq!((&slow["tid"], &slow["errno"]), (&7.into(), &"EINTR".into()), "{slow}");
    assert_eq!(slow["arguments"], "uaddr=2748");
    let block = &slow["blocked"][0];
    assert_eq!((&block["cause"], &block["duration_ns"]), (&"futex".into(), &90.into()));
    assert_eq!((&block["woken_by"]["tid"], &page["slowest"][1]["ret"]), (&9.into(), &512.into()));
    // Conditions.
    assert_eq!(list(&report(path, &["--calls", "read"])["calls"]).len(), 1);
    assert_eq!(list(&report(path, &["--failed"])["slowest"]).len(), 1);
    assert!(list(&report(path, &["--cpu", "1"])["calls"]).is_empty());
    assert_eq!(list(&report(path, &["--time", ",0.000000200"])["calls"]).len(), 1);
    let errors = kymo(&["syscalls", "report", "--errno-summary", "-i", path]).stdout;
    assert!(errors.contains("EINTR: 1"), "{errors}");
    // Each packet taken out in turn: what is counted is true, or is marked.
    for lost in 0..3 {
        let there = directory.path().join(format!("lossy-{lost}"));
        let without = |cpu: u32, packet: usize| cpu == 0 && packet == lost;
        CtfWriter { classes: &CLASSES, events: &events, packet: 4, without: &without }
            .write(&there);
        let lossy = report(there.to_str().unwrap(), &[]);
        for call in list(&lossy["calls"]).iter().filter(|c| number(&c["count"]) > 0) {
            let name = &call["syscall"];
            let truth = list(&page["calls"]).iter().find(|c| c["syscall"] == *name).unwrap();
            let numbers = ["total_ns", "blocked_ns", "runnable_ns"];
            assert_eq!(numbers.map(|n| &call[n]), numbers.map(|n| &truth[n]), "{lost} {lossy}");
        }
        assert!(!list(&lossy["ledger"]).is_empty(), "{lossy}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let there = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/perf-data/x86_64/fp.data");
    let none = kymo(&["syscalls", "report", "-i", there, "--strict"]).expect_status(3);
    assert!(none.stdout.contains("there are no events of system calls"), "{}", none.stdout);
    let wrong = kymo(&["syscalls", "report", "--summary-mode", "all"]).expect_status(2);
    assert!(wrong.stderr.contains("there are total and thread"), "{}", wrong.stderr);
}
