//! Use without privileges: users can count and profile their own programs, and get a message with
//! the setting that forbids the rest. A missing limit costs only what needs it.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::Path;

use kymo_testkit::{Need, Unprivileged, require};

fn kymo() -> Unprivileged {
    Unprivileged::new(Path::new(env!("CARGO_BIN_EXE_kymo")))
}

/// The setting in force, or `None` where it would not stop these users.
fn paranoid() -> Option<i32> {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    let level = text.trim().parse::<i32>().unwrap();
    (level >= 2).then_some(level)
}

/// Words that tell a user which setting stands in the way and how it is set.
#[track_caller]
fn names_the_setting(stderr: &str) {
    let level = paranoid().unwrap_or_default();
    assert!(stderr.contains("perf_event_paranoid"), "{stderr}");
    assert!(stderr.contains(&level.to_string()), "{stderr}");
}

#[test]
fn ones_own_command_can_be_counted() {
    if !require(&[Need::Root, Need::PerfEvents]) {
        return;
    }
    let outcome = kymo().run(["stat", "-e", "task-clock", "true"]).success();
    let shown = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(shown.contains("task-clock"), "{shown}");
    assert!(!shown.contains("<not"), "{shown}");
}

/// A count of the wrong side would be a wrong number.
#[test]
fn the_kernels_side_asked_for_by_name_is_refused() {
    if !require(&[Need::Root, Need::PerfEvents]) || paranoid().is_none() {
        return;
    }
    let place = kymo();
    for args in [
        vec!["stat", "-e", "page-faults:k", "true"],
        vec!["record", "-e", "cpu-clock:k", "-o", "k.data", "true"],
    ] {
        names_the_setting(&place.run(args).failure().stderr);
    }
    assert!(!place.dir().join("k.data").exists(), "a refused recording left a file");
}

#[test]
fn what_only_user_space_shows_is_noted() {
    if !require(&[Need::Root, Need::PerfEvents]) || paranoid().is_none() {
        return;
    }
    let place = kymo();
    let events = ["-e", "task-clock,context-switches", "true"];
    let said = place.run([&["stat", "--strict"], &events[..]].concat()).expect_status(3).stderr;
    assert!(said.contains("user-only: 2 of 2 events"), "{said}");
    assert!(said.contains("context-switches:u cannot be seen"), "{said}");
    names_the_setting(&said);
    // Asked for, it is all there is to ask.
    let said = place.run(["stat", "--strict", "-e", "task-clock:u", "true"]).success().stderr;
    assert!(!said.contains("user-only"), "{said}");
}

#[test]
fn somebody_elses_process_is_refused_as_such() {
    if !require(&[Need::Root, Need::PerfEvents]) {
        return;
    }
    let place = kymo();
    for args in [
        vec!["stat", "-p", "1", "-e", "task-clock:u", "true"],
        vec!["record", "-p", "1", "-e", "cpu-clock:u", "-o", "one.data", "true"],
    ] {
        let said = place.run(args).failure().stderr;
        assert!(said.contains("task 1 is not yours"), "{said}");
    }
}

#[test]
fn ones_own_command_can_be_recorded() {
    if !require(&[Need::Root, Need::PerfEvents]) {
        return;
    }
    let place = kymo();
    let load = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let _ = place.run(["record", "-o", "own.data", "--", "sh", "-c", load]).success();
    let report = place.run(["report", "-i", "own.data"]).success().stdout;
    assert!(report.lines().any(|l| !l.starts_with('#') && l.contains("sh")), "{report}");
}

#[test]
fn the_whole_machine_is_refused_with_the_setting() {
    if !require(&[Need::Root, Need::PerfEvents]) || paranoid().is_none() {
        return;
    }
    let place = kymo();
    for args in [
        vec!["stat", "-a", "-e", "task-clock", "true"],
        vec!["record", "-a", "-o", "all.data", "true"],
    ] {
        names_the_setting(&place.run(args).failure().stderr);
    }
    assert!(!place.dir().join("all.data").exists(), "a refused recording left a file");
}

#[test]
fn tracepoints_are_refused_with_the_reason() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let outcome = kymo().run(["stat", "-e", "sched:sched_switch", "true"]).failure();
    assert!(
        outcome.stderr.contains("sched:sched_switch") || outcome.stderr.contains("tracing"),
        "{}",
        outcome.stderr
    );
    assert!(
        ["permission", "Permission", "root"].iter().any(|w| outcome.stderr.contains(w)),
        "{}",
        outcome.stderr
    );
}

#[test]
fn listing_needs_no_privilege() {
    if !require(&[Need::Root]) {
        return;
    }
    let list = kymo().run(["list", "sw"]).success().stdout;
    assert!(list.contains("cpu-clock"), "{list}");
}

#[test]
fn too_few_file_descriptors_are_named() {
    if !require(&[Need::Root, Need::PerfEvents]) {
        return;
    }
    let events = vec!["task-clock"; 64].join(",");
    let outcome = kymo().run_limited("-n 20", ["stat", "-e", &events, "true"]).failure();
    let named = ["open files", "file descriptors", "ulimit -n"];
    assert!(named.iter().any(|w| outcome.stderr.contains(w)), "{}", outcome.stderr);
}

/// A file that cannot be opened for lack of descriptors is not reported as missing.
#[test]
fn too_few_descriptors_for_tracefs_are_not_taken_for_no_tracefs() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let script = "ulimit -n 10; exec \"$0\" record -a -e sched:sched_switch,page-faults \
                  -o /nowhere/x.data -- true";
    let out = kymo_testkit::run("bash", ["-c", script, env!("CARGO_BIN_EXE_kymo")]).failure();
    assert!(out.stderr.contains("ulimit -"), "{}", out.stderr);
    assert!(!out.stderr.contains("not mounted"), "{}", out.stderr);
}

#[test]
fn little_locked_memory_costs_ring_size_and_not_the_recording() {
    if !require(&[Need::Root, Need::PerfEvents]) {
        return;
    }
    let place = kymo();
    let args = ["record", "-m", "16384", "-o", "small.data", "--", "true"];
    let outcome = place.run_limited("-l 64", args);
    let named = ["perf_event_mlock_kb", "ulimit -l", "mlock", "locked memory"];
    assert!(named.iter().any(|w| outcome.stderr.contains(w)), "{outcome:?}");
    // Either a smaller ring that it reported, or a refusal; never a silent success.
    assert!(outcome.status == 0 || outcome.status < 101, "{outcome:?}");
    assert_eq!(outcome.status == 0, place.dir().join("small.data").exists(), "{outcome:?}");
}

#[test]
fn a_directory_one_may_not_write_to_is_named() {
    if !require(&[Need::Root, Need::PerfEvents]) {
        return;
    }
    let outcome = kymo().run(["record", "-o", "/proc/no.data", "--", "true"]).failure();
    assert!(outcome.stderr.contains("/proc/no.data"), "{}", outcome.stderr);
}
