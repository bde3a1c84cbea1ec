//! kymo in the guest, whose kernel can do what the host's cannot, beside the peers.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeSet;

use kymo_testkit::{Need, TracingState, Workload, lines_with, load_module, perf, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const TRACING: &str = "/sys/kernel/tracing";
const NEEDS: [Need; 4] = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Perf];

/// Some forks, sleeps and opens.
const WORK: &str = "for i in 1 2 3; do ls -l /proc | wc -l; sleep 0.01; done";

#[test]
fn the_guest_has_what_the_host_lacks() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let tracers = std::fs::read_to_string(format!("{TRACING}/available_tracers")).unwrap();
    let tracers: Vec<&str> = tracers.split_whitespace().collect();
    assert!(tracers.contains(&"function") && tracers.contains(&"function_graph"), "{tracers:?}");
    for file in ["kprobe_events", "uprobe_events", "synthetic_events", "snapshot"] {
        assert!(std::fs::exists(format!("{TRACING}/{file}")).unwrap(), "{file}");
    }
    let hist = format!("{TRACING}/events/sched/sched_switch/hist");
    assert!(std::fs::exists(&hist).unwrap(), "{hist}");
}

/// The function-graph tracer, as the kernel's own files offer it, sees the workload's
/// system calls, each with the function that serves it.
#[test]
fn the_function_graph_tracer_works() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    let write = |file: &str, text: &str| {
        std::fs::write(format!("{TRACING}/{file}"), text).unwrap_or_else(|e| panic!("{file}: {e}"));
    };
    // Without it every function of the kernel is patched, which takes long here.
    write("set_ftrace_filter", "__do_sys_getppid");
    write("set_graph_function", "__do_sys_getppid");
    write("current_tracer", "function_graph");
    let _ = run(w.program(), ["100"]).success();
    let text = std::fs::read_to_string(format!("{TRACING}/trace")).unwrap();
    write("current_tracer", "nop");
    write("set_graph_function", "");
    write("set_ftrace_filter", "");
    let calls = text.lines().filter(|l| l.contains("__do_sys_getppid() {")).count();
    let leaves = text.lines().filter(|l| l.contains("__do_sys_getppid();")).count();
    let head: String = text.lines().take(40).map(|l| format!("{l}\n")).collect();
    assert_eq!(calls + leaves, 100, "{head}");
}

/// The tracepoints that a program lists: the words with a colon at the line's start.
fn listed(text: &str) -> BTreeSet<String> {
    let names = text.lines().filter(|l| l.contains("[Tracepoint event]"));
    names.filter_map(|l| l.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn list_names_the_same_tracepoints_as_perf_also_those_of_a_new_module() {
    if !require(&NEEDS) {
        return;
    }
    let both = || {
        let ours = listed(&run(KYMO, ["list", "tracepoint"]).success().stdout);
        let mut theirs = listed(&perf(["list", "tracepoint"]).success().stdout);
        // This kernel cannot record it: only the ring of marks has it before Linux 6.16.
        assert!(theirs.remove("ftrace:print") && !ours.contains("ftrace:print"));
        let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| {
            a.difference(b).cloned().collect::<Vec<_>>()
        };
        assert_eq!((only(&ours, &theirs), only(&theirs, &ours)), (vec![], vec![]));
        ours
    };
    let before = both();
    assert!(before.len() > 1000, "{} tracepoints", before.len());
    assert!(!before.contains("nbd:nbd_header_sent"));
    load_module("nbd", "nbds_max=1");
    let after = both();
    assert!(after.contains("nbd:nbd_header_sent"));
    assert!(before.is_subset(&after));
}

/// Both print the same lines of a recording.
#[track_caller]
fn same_script(data: &str, what: &str) -> Vec<String> {
    let fields = "comm,pid,tid,cpu,time,event,trace";
    let ours = run(KYMO, ["script", "-F", fields, "-i", data]).success().stdout;
    let theirs = perf(["script", "-F", fields, "-i", data]).success().stdout;
    for (i, (ours, theirs)) in ours.lines().zip(theirs.lines()).enumerate() {
        assert_eq!(ours.trim_end(), theirs.trim_end(), "{what}: line {}", i + 1);
    }
    assert_eq!(ours.lines().count(), theirs.lines().count(), "{what}");
    ours.lines().map(str::to_owned).collect()
}

#[test]
fn recordings_read_the_same_with_perf_in_both_directions() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("x.data").to_str().unwrap().to_owned();
    let events = "sched:sched_switch,sched:sched_process_fork,raw_syscalls:*";
    let args = ["record", "-q", "-o", &data, "-e", events, "--", "sh", "-c", WORK];
    for program in [KYMO, "perf"] {
        let _ = run(program, args).success();
        let lines = same_script(&data, program);
        for event in ["sched:sched_switch:", "sched:sched_process_fork:", "raw_syscalls:sys_exit:"]
        {
            let found = lines.iter().filter(|l| l.contains(event)).count();
            assert!(found >= 3, "{program}: {found} of {event}");
        }
    }
}

/// A kprobe made by hand: kymo finds it, counts every hit, and renders its arguments.
#[test]
fn a_kprobe_is_an_event_like_any_other() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    let probes = format!("{TRACING}/kprobe_events");
    let probe = "p:kymo_guest/getppid __do_sys_getppid top=+0($stack):x64 name=$comm";
    std::fs::write(&probes, probe).unwrap();
    let listed = run(KYMO, ["list", "kymo_guest:*"]).success().stdout;
    let event = "kymo_guest:getppid";
    let data = w.file("x.data");
    let args = ["record", "-q", "-o", &data, "-e", event, "--", w.arg(), "500"];
    let recorded = run(KYMO, args);
    let counted = run(KYMO, ["stat", "-x,", "-e", event, "--", w.arg(), "500"]).success().stderr;
    let lines = same_script(&data, "kprobe");
    // Opened to be truncated, the file drops every probe.
    std::fs::write(&probes, "").unwrap();
    let _ = recorded.success();
    assert_eq!(lines_with(&listed, event).len(), 1, "{listed}");
    assert_eq!(lines.iter().filter(|l| l.contains(event)).count(), 500);
    assert!(
        lines.iter().all(|l| l.contains(" top=0xffffffff") && l.contains("name=\"syscalls\"")),
        "{}",
        lines.join("\n")
    );
    assert!(counted.starts_with("500,,kymo_guest:getppid,"), "{counted}");
}

/// Commands of a disk that the module makes up, recorded while dd reads it.
#[test]
fn events_of_a_module_are_recorded() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    load_module("scsi_debug", "dev_size_mb=8");
    load_module("sd_mod", "");
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("x.data").to_str().unwrap().to_owned();
    let event = "scsi:scsi_dispatch_cmd_start";
    let dd = ["dd", "if=/dev/sda", "of=/dev/null", "bs=4096", "count=32", "iflag=direct"];
    let args = [&["record", "-q", "-a", "-o", &data, "-e", event, "--"], dd.as_slice()].concat();
    let _ = run(KYMO, args).success();
    let text = run(KYMO, ["script", "-i", &data]).success().stdout;
    let reads: Vec<&str> = lines_with(&text, "READ");
    assert_eq!(reads.len(), 32, "{text}");
}
