//! perf opens what `kymo record` wrote: the same events, counts and names, in
//! each form and after each way a recording can end.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kymo_testkit::{Need, Outcome, Workload, lines_with, perf, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 5] = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Perf, Need::Gcc];
/// `getppid` calls of the recorded program.
const CALLS: &str = "3000";
const EVENT: &str = "syscalls:sys_enter_getppid";

#[track_caller]
fn record(args: &[&str]) -> Outcome {
    run(KYMO, [&["record"], args].concat())
}

/// What perf shows of a recording, which it must take without a word.
#[track_caller]
fn perf_script(path: &str, fields: &str) -> String {
    let out = perf(["script", "-F", fields, "-i", path]).success();
    // What perf says of any recording: fields that other kinds of events have
    // not. Losses
    // are the tests' own doing, with their small rings.
    const KNOWN: [&str; 5] = [
        "not valid for",
        "Warning:",
        "Processed ",
        "Check IO/CPU overload!",
        "data size field is 0",
    ];
    let known = |l: &str| l.is_empty() || KNOWN.iter().any(|k| l.contains(k));
    let complaints: Vec<&str> = out.stderr.lines().filter(|l| !known(l)).collect();
    assert!(complaints.is_empty(), "perf complains about {path}: {complaints:?}");
    out.stdout
}

#[test]
fn perf_counts_every_event_of_every_form() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::syscalls();
    let data = w.file("x.data");
    let forms: [&[&str]; 5] = [&[], &["-z"], &["-z", "-m", "1M"], &["-k", "raw"], &["-B", "-d"]];
    for form in forms {
        let args = [form, &["-q", "-o", &data, "-e", EVENT, "--", w.arg(), CALLS]].concat();
        let _ = record(&args).success();
        let text = perf_script(&data, "comm,pid,tid,cpu,time,event,trace");
        assert_eq!(lines_with(&text, EVENT).len(), 3000, "{form:?}");
        assert!(text.lines().all(|l| l.trim_start().starts_with("syscalls ")), "{form:?}");
    }
}

#[test]
fn the_header_describes_machine_events_and_clock() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::syscalls();
    let data = w.file("x.data");
    let _ = record(&["-q", "-o", &data, "-g", "-e", "cpu-clock", "-F", "99", "--", w.arg(), "1"])
        .success();
    let ours = perf(["report", "--header-only", "-i", &data]).success();
    assert_eq!(ours.stderr, "");
    let theirs = w.file("y.data");
    let _ = perf(["record", "-q", "-o", &theirs, "-e", "cpu-clock", "--", w.arg(), "1"]).success();
    let theirs = perf(["report", "--header-only", "-i", &theirs]).success().stdout;
    for fact in [
        "# hostname :",
        "# os release :",
        "# arch :",
        "# nrcpus online :",
        "# cpudesc :",
        "# cpuid :",
        "# total memory :",
    ] {
        assert_eq!(lines_with(&ours.stdout, fact), lines_with(&theirs, fact));
    }
    let event = lines_with(&ours.stdout, "# event : name = cpu-clock");
    assert!(
        event.len() == 1 && event[0].contains("sample_type = IP|TID|TIME|CALLCHAIN|PERIOD"),
        "{event:?}"
    );
    assert_eq!(lines_with(&ours.stdout, "# clockid: monotonic (1)").len(), 1);
    let cpus = |text: &str| -> Vec<String> {
        lines_with(text, "sibling").iter().map(|l| (*l).to_owned()).collect()
    };
    assert_eq!(cpus(&ours.stdout), cpus(&theirs));
    let ids = perf(["buildid-list", "-i", &data]).success().stdout;
    assert_eq!(lines_with(&ids, "[kernel.kallsyms]").len(), 1, "{ids}");
    assert_eq!(lines_with(&ids, w.arg()).len(), 1, "{ids}");
}

#[test]
fn perf_reads_the_pipe_form() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::syscalls();
    let command = format!(
        "'{KYMO}' record -q -o - -e {EVENT} -- '{}' {CALLS} | perf script -i - -F comm,event,trace",
        w.arg()
    );
    let text = run("sh", ["-c", &command]).success().stdout;
    assert_eq!(lines_with(&text, EVENT).len(), 3000);
}

#[test]
fn call_chains_reach_the_functions_that_burn() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let data = w.file("x.data");
    for graph in ["fp", "dwarf"] {
        let args = [
            "-q",
            "-o",
            &data,
            "-e",
            "cpu-clock:u",
            "-F",
            "500",
            "--call-graph",
            graph,
            "--",
            w.arg(),
            "100",
        ];
        let _ = record(&args).success();
        let text = perf_script(&data, "comm,ip,sym");
        let hot = text.split("\n\n").filter(|s| s.contains(" hot") && s.contains(" main"));
        assert!(hot.count() > 5, "{graph}: {text}");
    }
}

#[test]
fn attaching_tells_what_was_there_before() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let data = w.file("x.data");
    let mut child = Command::new(w.program()).arg("1000000").stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let pid = child.id().to_string();
    let out = record(&["-o", &data, "-e", "cpu-clock", "-p", &pid, "--timeout", "300"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(out.success().stderr.contains("Captured and wrote"));
    let text = perf_script(&data, "comm,pid,ip,sym,dso");
    assert!(lines_with(&text, "hot").iter().any(|l| l.contains("spin")), "{text}");
    // Its end ends the recording.
    let mut child = Command::new(w.program()).arg("20").stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id().to_string();
    let waiter = std::thread::spawn(move || child.wait());
    let _ = record(&["-q", "-o", &data, "-e", "cpu-clock", "-p", &pid]).success();
    waiter.join().unwrap().unwrap();
    let gone = record(&["-o", &data, "-p", &pid]).failure();
    assert!(gone.stderr.contains(&pid), "{}", gone.stderr);
}

#[test]
fn several_files_each_whole() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::syscalls();
    let data = w.file("x.data");
    let args =
        ["-q", "-o", &data, "--switch-output=64K", "-m", "8", "-e", EVENT, "--", w.arg(), "30000"];
    let out = record(&args).success();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(w.dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().contains("x.data.2") {
            files.push(path);
        }
    }
    assert!(files.len() > 1 && !Path::new(&data).exists(), "{files:?} {}", out.stderr);
    for file in &files {
        let text = perf_script(file.to_str().unwrap(), "comm,event");
        assert!(text.lines().count() > 100, "{}", file.display());
    }
}

#[test]
fn overwriting_keeps_the_newest() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::syscalls();
    let data = w.file("x.data");
    let args = [
        "-q",
        "-o",
        &data,
        "--overwrite",
        "-m",
        "4",
        "-e",
        "raw_syscalls:sys_enter",
        "--",
        w.arg(),
        "20000",
    ];
    let _ = record(&args).success();
    let text = perf_script(&data, "comm,event,trace");
    let count = text.lines().count();
    assert!((50..1000).contains(&count), "{count}");
    // exit_group is the last call of all.
    assert!(text.lines().last().unwrap().contains(": NR 231 "), "{text}");
}

#[test]
fn a_size_limit_stops_and_says_so() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::syscalls();
    let data = w.file("x.data");
    let args =
        ["-o", &data, "--max-size", "64K", "-m", "8", "-e", EVENT, "--", w.arg(), "2000000000"];
    let out = record(&args);
    assert!(out.stderr.contains("max-size: stopped"), "{}", out.stderr);
    assert!(!perf_script(&data, "comm,event").is_empty());
}

#[test]
fn a_group_is_read_at_its_leaders_samples() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let data = w.file("x.data");
    let _ = record(&["-q", "-o", &data, "-e", "{cpu-clock,page-faults}:S", "--", w.arg(), "20"])
        .success();
    let out = perf(["report", "--group", "--stdio", "-i", &data]).success();
    assert!(out.stdout.contains("anon group { cpu-clock, page-faults }"), "{}", out.stdout);
    let evlist = perf(["evlist", "-g", "-i", &data]).success().stdout;
    assert!(evlist.starts_with("{cpu-clock,page-faults"), "{evlist}");
}

#[test]
fn filters_belong_to_the_event_before_them() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::syscalls();
    let data = w.file("x.data");
    let args = [
        "-q",
        "-o",
        &data,
        "-e",
        "raw_syscalls:sys_enter",
        "--filter",
        "id == 110",
        "-e",
        "raw_syscalls:sys_exit",
        "--filter",
        "id == 231",
        "--",
        w.arg(),
        "50",
    ];
    let _ = record(&args).success();
    let text = perf_script(&data, "comm,event,trace");
    assert_eq!(
        (lines_with(&text, "sys_enter").len(), lines_with(&text, "sys_exit").len()),
        (50, 0)
    );
    let bad = record(&["-o", &data, "-e", EVENT, "--filter", "bogus > 3", "--", "true"]).failure();
    assert!(bad.stderr.contains("bogus > 3") && bad.stderr.contains(EVENT), "{}", bad.stderr);
}

#[test]
fn a_killed_recorder_leaves_a_readable_file() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let data = w.file("x.data");
    let args = [
        "record",
        "-q",
        "-o",
        &data,
        "-m",
        "2",
        "-F",
        "20000",
        "-e",
        "cpu-clock",
        "--",
        w.arg(),
        "3000",
    ];
    let mut recorder = Command::new(KYMO).args(args).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let out = perf(["script", "-F", "comm,ip,sym", "-i", &data]).success();
    assert!(lines_with(&out.stdout, "hot").len() > 100, "{}", out.stderr);
}

#[test]
fn bad_requests_say_what_is_wrong() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::syscalls();
    let data = w.file("x.data");
    let error = |args: &[&str]| record(args).failure().stderr;
    assert!(error(&["-o", &data, "-e", "nonsense", "--", "true"]).contains("nonsense"));
    let full = error(&["-o", "/dev/full", "-e", "cpu-clock", "--", "true"]);
    assert!(full.contains("/dev/full") && full.contains("No space left"), "{full}");
    assert!(error(&["-o", "/nonexistent/x", "--", "true"]).contains("/nonexistent/x"));
    std::fs::write(&data, "letters").unwrap();
    assert!(error(&["-o", &data, "--", "true"]).contains("not a recording"));
    assert_eq!(std::fs::read(&data).unwrap(), b"letters");
    std::fs::remove_file(&data).unwrap();
    assert_eq!(record(&["-q", "-o", &data, "--", "/nonexistent"]).status, 127);
    assert_eq!(record(&["-q", "-o", &data, "--", "sh", "-c", "exit 7"]).status, 7);
    let strict =
        record(&["--strict", "-o", &data, "-e", EVENT, "-m", "1", "--", w.arg(), "100000"]);
    assert!(strict.status == 3 && strict.stderr.contains("events lost"), "{}", strict.stderr);
}
