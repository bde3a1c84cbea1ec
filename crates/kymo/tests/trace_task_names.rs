//! Names of tasks in `kymo trace`: the kernel keeps those of tasks that have ended, whose numbers
//! are given to others.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::Path;

use kymo_kernel::tracefs::Tracefs;
use kymo_testkit::{Need, TracingState, Workload, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// Starts a child with a number that it is given (clone3(2)), which makes a call and is not
/// switched out for a while: 3 if the number was taken meanwhile.
const CHOSEN_NUMBER: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv) {
    pid_t wanted = atoi(argv[1]);
    struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&wanted, .set_tid_size = 1 };
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid < 0) return errno == EEXIST ? 3 : 4;
    if (pid == 0) {
        access("/nonexistent/child", F_OK);
        struct timespec now, begin;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        do clock_gettime(CLOCK_MONOTONIC, &now);
        while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < 300);
        _exit(0);
    }
    return waitpid(pid, 0, 0) == pid ? 0 : 5;
}
"#;

/// Tasks that have ended and whose names the kernel has still.
fn ended() -> Vec<(u32, String)> {
    let text = Tracefs::open().unwrap().saved_cmdlines().unwrap();
    let lines = text.lines().filter_map(|line| line.trim_start().split_once(' '));
    let tasks = lines.filter_map(|(tid, name)| Some((tid.parse::<u32>().ok()?, name.to_owned())));
    tasks.filter(|(tid, _)| !Path::new(&format!("/proc/{tid}")).exists()).collect()
}

#[test]
fn a_task_has_not_the_name_of_one_that_had_its_number_before() {
    if !require(&[Need::Root, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let _state = TracingState::take();
    let work = Workload::compile("chosen_number", CHOSEN_NUMBER);
    for _ in 0..10 {
        // It sleeps, so that it is switched out while it is traced, and its name is kept.
        let _ = run(KYMO, ["trace", "--calls", "access", "--", "sleep", "0.01"]).success();
        let before = ended();
        let Some((tid, _)) = before.iter().rev().find(|(_, name)| name == "sleep") else {
            continue;
        };
        let number = tid.to_string();
        let args = ["trace", "--json", "--calls", "access", "--", work.arg(), &number];
        let out = run(KYMO, args);
        if out.status == 3 {
            continue;
        }
        assert_eq!(out.status, 0, "{out:?}");
        let lines = out.stdout.lines().filter(|line| line.starts_with("{\"comm\":"));
        let calls: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        let own: Vec<&Value> = calls.iter().filter(|call| call["tid"] == *tid).collect();
        assert_eq!(own.len(), 1, "{}", out.stdout);
        assert_eq!(own[0]["comm"], "chosen_number", "{}", out.stdout);
        return;
    }
    panic!("no number could be used again");
}

/// Gives itself two names, with a call under each.
const RENAMED: &str = r#"
#include <sys/prctl.h>
#include <unistd.h>
int main(void) {
    getppid();
    prctl(PR_SET_NAME, "second");
    getppid();
    prctl(PR_SET_NAME, "third");
    getppid();
    return 0;
}
"#;

/// Each event has the name of its time, in a file and while it happens. trace-cmd shows the last
/// one for all: the list of names at the end of a trace.dat has no other.
#[test]
fn an_event_has_the_name_that_its_task_had_then() {
    if !require(&[Need::Root, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::compile("first_name", RENAMED);
    let dat = w.file("x.dat");
    let events = ["-e", "task:task_rename,syscalls:sys_enter_getppid"];
    let command = ["--", w.arg()];
    let _ = run(KYMO, [&["trace", "-o", &dat], &events[..], &command].concat()).success();
    let file = run(KYMO, ["script", "--json", "-i", &dat]).success();
    let live = run(KYMO, [&["trace", "--json"], &events[..], &command].concat()).success();
    let expected = [
        // Before it executed the program it was one of kymo.
        ("task_rename", "kymo"),
        ("sys_enter_getppid", "first_name"),
        // The kernel reports a name before the task has it.
        ("task_rename", "first_name"),
        ("sys_enter_getppid", "second"),
        ("task_rename", "second"),
        ("sys_enter_getppid", "third"),
    ];
    for out in [&file.stdout, &live.stdout] {
        let events = out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let events: Vec<(String, String)> = events
            .filter(|e| e["event"].is_string())
            .map(|e| {
                let name = e["event"].as_str().unwrap();
                let name = name.rsplit(':').next().unwrap().to_owned();
                (name, e["comm"].as_str().unwrap_or_default().to_owned())
            })
            .collect();
        // Events of the kernel's own tasks come between in some kernels.
        let names: Vec<(&str, &str)> =
            events.iter().map(|(event, comm)| (event.as_str(), comm.as_str())).collect();
        assert_eq!(names, expected, "{out}");
    }
    // Without the event, which is there for the names then, and not shown.
    let call = ["-e", "sched:sched_switch,syscalls:sys_enter_getppid"];
    let live = run(KYMO, [&["trace", "--json"], &call[..], &command].concat()).success();
    let events = live.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let events: Vec<Value> = events.filter(|e| e["event"].is_string()).collect();
    let of = |name: &str| -> Vec<String> {
        let calls = events.iter().filter(|e| e["event"].as_str().unwrap().ends_with(name));
        calls.map(|e| e["comm"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(of("sys_enter_getppid"), ["first_name", "second", "third"], "{}", live.stdout);
    assert_eq!(of("task_rename"), [""; 0], "{}", live.stdout);
    // An answer's recording has it.
    let calls = w.file("calls.dat");
    let record = ["syscalls", "record", "-q", "-o", &calls];
    let _ = run(KYMO, [&record[..], &command].concat()).success();
    for name in ["first_name", "second", "third"] {
        let of_name = ["syscalls", "report", "--json", "--comm", name, "-i", &calls];
        let page: Value = serde_json::from_str(&run(KYMO, of_name).success().stdout).unwrap();
        let calls = page["calls"].as_array().unwrap();
        let getppid = calls.iter().find(|c| c["syscall"] == "getppid").unwrap();
        assert_eq!(getppid["count"], 1, "{name}: {page}");
    }
    for (name, count) in [("first_name", 2), ("second", 2), ("third", 1)] {
        let out = run(KYMO, ["script", "--comm", name, "-i", &dat]).success();
        assert_eq!(
            out.stdout.lines().filter(|l| !l.starts_with("cpus=")).count(),
            count,
            "{out:?}"
        );
    }
}

/// A file without such events has no name but the last one; that is said.
#[test]
fn names_that_are_the_last_ones_are_said_to_be() {
    if !require(&[Need::Root, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::compile("last_name", RENAMED);
    let [without, with_changes] = ["k.dat", "c.dat"].map(|n| w.file(n));
    let call = ["-e", "syscalls:sys_enter_getppid"];
    let _ = run(KYMO, [&["trace", "-o", &without], &call[..], &["--", w.arg()]].concat()).success();
    let changes = ["-e", "task:task_rename", "--", w.arg()];
    let _ = run(KYMO, [&["trace", "-o", &with_changes], &call[..], &changes].concat()).success();
    for (file, names, is_noted) in
        [(&without, ["third"; 3], true), (&with_changes, ["last_name", "second", "third"], false)]
    {
        let out = run(KYMO, ["script", "--json", "-i", file]).success();
        let events = out.stdout.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
        let is_call = |e: &Value| e["event"].as_str().is_some_and(|n| n.ends_with("getppid"));
        let comms: Vec<String> =
            events.filter(is_call).map(|e| e["comm"].as_str().unwrap().to_owned()).collect();
        assert_eq!(comms, names, "{}", out.stdout);
        let note = "the name of 1 task is from the end of the recording";
        for form in [&["script", "-i", file][..], &["script", "--json", "-i", file]] {
            let said = run(KYMO, form).success().stderr;
            assert_eq!(said.contains(note), is_noted, "{form:?}: {said}");
        }
        let json = w.file("timeline.json");
        let shown = run(KYMO, ["convert", "--force", "-f", "chrome", "-i", file, "-o", &json]);
        let said = shown.success().stderr;
        assert_eq!(said.contains(note), is_noted, "{said}");
        // It takes nothing from the rest.
        let strict = run(KYMO, ["script", "--strict", "-i", file]);
        assert_eq!(strict.status, 0, "{}", strict.stderr);
    }
}
