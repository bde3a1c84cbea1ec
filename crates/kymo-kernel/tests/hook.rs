//! A closure on a tracepoint of the running kernel: it is called, in the order of
//! time, and nothing is left when it ends, by itself or by a signal.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use kymo_kernel::ftrace::{Hook, TraceDir};
use kymo_kernel::tracefs::Tracefs;
use kymo_testkit::{Need, TracingState, require};

#[test]
fn a_closure_sees_the_execs_of_this_test() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let _state = TracingState::take();
    let mut hook = Hook::attach("sched:sched_process_exec,sched:sched_process_fork")
        .unwrap()
        .for_at_most(Duration::from_secs(20));
    assert_eq!(hook.instance().enabled().unwrap().len(), 2);
    let mut children = Vec::new();
    for _ in 0..20 {
        let mut child = Command::new("true").spawn().unwrap();
        children.push(child.id());
        child.wait().unwrap();
    }
    let (mut last, mut seen) = (0, Vec::new());
    hook.run(|fired| {
        assert!(fired.time >= last, "{} after {last}", fired.time);
        last = fired.time;
        if fired.name() == "sched:sched_process_exec" && children.contains(&fired.tid()) {
            assert!(fired.str("filename").unwrap().ends_with("/true"), "{}", fired.text());
            assert_eq!(fired.int("pid"), Some(i64::from(fired.tid())));
            assert!(fired.text().starts_with("filename="), "{}", fired.text());
            seen.push(fired.tid());
        }
        if seen.len() == children.len() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })
    .unwrap();
    assert_eq!(seen, children);
    assert_eq!(hook.lost(), 0);
}

#[test]
fn a_hook_ends_when_its_time_is_over() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let _state = TracingState::take();
    let hook = Hook::attach("alarmtimer:alarmtimer_fired");
    let mut hook = hook.unwrap().for_at_most(Duration::from_millis(50));
    hook.run(|_| ControlFlow::Continue(())).unwrap();
    assert!(Hook::attach("no:such").is_err());
}

/// Cargo builds examples beside the tests' directory, unless it builds one test only.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    if !path.exists() {
        let cargo = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "kymo-kernel", "--example", name])
            .status();
        assert!(cargo.unwrap().success());
    }
    path
}

#[test]
fn the_example_hooks_what_it_is_reported() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let _state = TracingState::take();
    // Tasklets are rare on today's machines; soft interrupts come by themselves.
    let mut child = Command::new(example("tasklet"))
        .args(["irq:softirq_entry", "vec"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: Vec<String> =
        BufReader::new(child.stdout.take().unwrap()).lines().take(5).map(Result::unwrap).collect();
    let word =
        |l: &str| l.split(": vec=Some(").nth(1).and_then(|v| v.trim_end_matches(')').parse().ok());
    let vectors: Vec<u32> = lines.iter().filter_map(|l| word(l)).collect();
    assert_eq!(vectors.len(), 5, "{lines:?}");
    // The kernel has ten soft interrupts.
    assert!(vectors.iter().all(|v| *v < 10), "{vectors:?}");
    let made = TraceDir::instances(&Tracefs::open().unwrap()).unwrap();
    let mine = format!("kymo-{}-", child.id());
    assert!(made.iter().any(|n| n.starts_with(&mine)), "{made:?}");
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    child.wait().unwrap();
    let left = TraceDir::instances(&Tracefs::open().unwrap()).unwrap();
    assert!(!left.iter().any(|n| n.starts_with(&mine)), "{left:?}");
}
