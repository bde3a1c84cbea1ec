//! Recordings that trace-cmd makes in the guest, where it has the function
//! tracers: `kymo script` shows what `trace-cmd report` shows, event by event.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeMap;

use kymo_testkit::{Need, require, run};
use tempfile::TempDir;

/// Events that trace-cmd of Debian 12 prints otherwise than the kernel: enumerators that it does
/// not know, a `struct page` it cannot place, and the flags of a timer, of which it shows all.
const OTHERWISE: &[&str] = &["mm_page_", "hrtimer_init:", "hrtimer_start:", "timer_start:"];

/// Name and number of the task of a line.
fn task(line: &str) -> Option<(&str, &str)> {
    line.split_once(" [")?.0.split_whitespace().next_back()?.rsplit_once('-')
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Records with trace-cmd and compares; gives kymo's lines.
#[track_caller]
fn compare(record: &[&str]) -> Vec<String> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("trace.dat");
    let path = path.to_str().unwrap();
    let _ = run("trace-cmd", [&["record", "-q", "-o", path], record].concat()).success();
    let ours = run(env!("CARGO_BIN_EXE_kymo"), ["script", path]).success().stdout;
    let theirs = run("trace-cmd", ["report", path]).success().stdout;
    // trace-cmd shows the last name of a task for all its events, kymo the name of that time.
    let last: BTreeMap<&str, &str> = ours.lines().filter_map(task).map(|(c, t)| (t, c)).collect();
    let renamed = |line: &str| {
        let (comm, tid) = task(line)?;
        let text = line.replacen(&format!("{comm}-{tid}"), &format!("{}-{tid}", last[tid]), 1);
        Some(words(&text))
    };
    for (a, b) in ours.lines().zip(theirs.lines()) {
        // Both name the task, the CPU, the time and the event alike.
        let start = |line: &str| line.split_once(": ").map(|(s, _)| s.to_owned());
        let expected = OTHERWISE.iter().any(|o| b.contains(o));
        let unnamed = b.contains("<...>-");
        let heads = [start(a).as_deref().and_then(renamed), start(b).as_deref().map(words)];
        let same_head = start(a) == start(b) || heads[0] == heads[1];
        let same = a == b || unnamed || renamed(a).is_some_and(|a| a == words(b));
        assert!(same || (expected && same_head), "\n{a}\n{b}");
    }
    assert_eq!(ours.lines().count(), theirs.lines().count(), "{record:?}\n{ours}\n{theirs}");
    ours.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn the_function_tracer() {
    if !require(&[Need::Root, Need::Tracefs, Need::TraceCmd]) {
        return;
    }
    let lines = compare(&["-p", "function", "-l", "vfs_*", "cat", "/proc/self/status"]);
    assert!(
        lines.iter().any(|l| l.ends_with("function:             vfs_read <-- ksys_read")),
        "{lines:#?}"
    );
}

#[test]
fn the_function_graph_tracer_with_leaves_and_nesting() {
    if !require(&[Need::Root, Need::Tracefs, Need::TraceCmd]) {
        return;
    }
    let functions = ["-l", "vfs_*", "-l", "ksys_read"];
    let command = ["-e", "sched:sched_switch", "cat", "/proc/self/status"];
    let lines = compare(&[&["-p", "function_graph"], &functions[..], &command].concat());
    for part in ["|  ksys_read() {", "|    vfs_read();", "|  }", "sched_switch:         prev_comm="]
    {
        assert!(lines.iter().any(|l| l.contains(part)), "{part}: {lines:#?}");
    }
}

#[test]
fn several_instances_and_many_events() {
    if !require(&[Need::Root, Need::Tracefs, Need::TraceCmd]) {
        return;
    }
    let events = ["-e", "sched", "-e", "irq", "-e", "timer", "-e", "raw_syscalls", "-e", "kmem"];
    let instance = ["-B", "one", "-e", "signal", "-e", "syscalls"];
    let command = ["sh", "-c", "ls / >/dev/null; cat /proc/self/status >/dev/null"];
    let lines = compare(&[&events[..], &instance, &command].concat());
    assert!(lines.len() > 1000, "{}", lines.len());
    assert!(
        lines.iter().any(|l| l.starts_with("one: "))
            && lines.iter().any(|l| l.starts_with("     "))
    );
}
