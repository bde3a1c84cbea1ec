//! The crate `kymo-live`: a program that subscribes sees the events that a recording of the same
//! run has, those of programs in full number, those of a probe, and gets losses reported.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::ops::ControlFlow;

use kymo_live::{LiveValue, Subscription};
use kymo_testkit::{Need, Workload, require, run};
use kymo_tracepoint::{emit, tracepoint};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// System call of the workload (`getppid`).
const CALL: i64 = 110;

fn begin() -> bool {
    require(&[Need::Root, Need::Tracefs])
}

tracepoint! {
    live_test: step(number: u64, name: &str) {
        fields { number: u64 = number, name: str = name, half: f64 = number as f64 / 2.0 }
        print "step {number} is {name}"
    }
}

const ROLE: &str = "KYMO_TEST_LIVE_STEPS";

/// The program: a given number of steps, as soon as a reader listens.
#[test]
fn role() {
    let Some(steps) = std::env::var(ROLE).ok() else { return };
    while !step::enabled() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    for number in 0..steps.parse().unwrap() {
        emit!(step(number, "a step"));
    }
}

#[test]
fn its_events_are_those_of_a_recording_of_the_same_run() {
    if !begin() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (work, file) = (Workload::syscalls(), dir.path().join("perf.data"));
    let file = file.to_str().unwrap();
    // kymo records the command while it is watched itself.
    let event = "raw_syscalls:sys_enter";
    let mut live = Vec::new();
    let summary = Subscription::new()
        .event(event)
        .filter(format!("id == {CALL} && comm == \"syscalls\""))
        .command([KYMO, "record", "-q", "-e", event, "-o", file, "--", work.arg(), "300"])
        .run(|event| {
            assert_eq!(
                (event.name(), event.value("nosuchfield")),
                ("raw_syscalls:sys_enter", None)
            );
            assert!(event.time().is_some() && event.cpu().is_some());
            let args = match event.value("args") {
                Some(LiveValue::Compound(args)) => args,
                other => panic!("args: {other:?}"),
            };
            live.push((event.pid(), event.tid(), event.comm().into_owned(), args));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((summary.events, summary.lost, summary.exit_status), (300, 0, Some(0)));
    let filter = format!("id == {CALL}");
    let o = run(KYMO, ["script", "-i", file, "--json", "--filter", &filter]).success();
    let recorded: Vec<_> = o
        .stdout
        .lines()
        .map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            let number = |name: &str| event[name].as_u64().map(|n| n as u32);
            let args = event["fields"]["args"].to_string();
            (number("pid"), number("tid"), event["comm"].as_str().unwrap().to_owned(), args)
        })
        .collect();
    assert_eq!(recorded.len(), 300);
    assert_eq!(live, recorded);
}

#[test]
fn functions_are_named_as_the_blogs_module_names_them() {
    if !begin() {
        return;
    }
    let mut named = 0;
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let summary = Subscription::new()
        .event("timer:hrtimer_expire_entry")
        .command(["sleep", "0.3"])
        .system_wide()
        .run(|event| {
            let function = event.function("function").unwrap();
            let known = format!(" {function}");
            assert!(symbols.lines().any(|line| line.split('\t').next().unwrap().ends_with(&known)));
            named += 1;
            if named == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    let summary = summary.unwrap();
    assert!(summary.events == named && named > 0, "{summary:?}");
}

#[test]
fn events_of_programs_are_typed_and_complete() {
    if !require(&[]) {
        return;
    }
    let program = std::env::current_exe().unwrap();
    let mut next = 0;
    let words = ["env".into(), format!("{ROLE}=700").into(), program.into_os_string()];
    let words = words.into_iter().chain(["--exact", "role"].map(Into::into));
    let summary = Subscription::new()
        .program_event("live_test:*")
        .command(words)
        .run(|event| {
            assert_eq!(event.name(), "live_test:step");
            assert_eq!(event.value("number"), Some(LiveValue::Unsigned(next)));
            assert_eq!(event.text("name").as_deref(), Some("a step"));
            assert_eq!(event.value("half"), Some(LiveValue::Float(next as f64 / 2.0)));
            next += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((summary.events, next, summary.lost), (700, 700, 0), "{summary:?}");
}

#[test]
fn what_a_small_ring_loses_is_reported() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let mut events = 0;
    let summary = Subscription::new()
        .event("syscalls:sys_enter_getppid")
        .ring_pages(1)
        .command([work.arg(), "50000"])
        .run(|_| {
            // The first keeps the reader from the ring for a while.
            if events == 0 {
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            events += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(summary.events, events);
    // Beside the events the ring has the end of the task.
    assert!([50000, 50001].contains(&(summary.events + summary.lost)), "{summary:?}");
    assert!(summary.lost > 0 && summary.notes.iter().any(|n| n.code == "lost"), "{summary:?}");
}

#[test]
fn a_probe_is_there_for_the_run() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let mut seen = Vec::new();
    let summary = Subscription::new()
        .probe(format!("{} main", work.arg()))
        .command([work.arg(), "5"])
        .run(|event| {
            seen.push(event.name().to_owned());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(summary.events, 1, "{seen:?}");
    let group = seen[0].split(':').next().unwrap();
    let path = format!("/sys/kernel/tracing/events/{group}");
    assert!(!std::path::Path::new(&path).join(&seen[0][group.len() + 1..]).exists(), "{path}");
}

#[test]
fn mistakes_are_named() {
    if !begin() {
        return;
    }
    let fails = |subscription: Subscription| {
        subscription.command(["true"]).run(|_| ControlFlow::Continue(())).unwrap_err().to_string()
    };
    assert_eq!(fails(Subscription::new()), "no event is requested");
    assert!(fails(Subscription::new().event("sched:nosuchevent")).contains("nosuchevent"));
    let wrong = Subscription::new().event("sched:sched_switch").filter("next_pid >");
    assert!(!fails(wrong).is_empty());
}
