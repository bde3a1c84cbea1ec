//! Snapshots that are taken by themselves when programs' events say so.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::{Need, require};

use crate::stage::{Program, Stage, names, text};

const PAUSE: Duration = Duration::from_millis(300);

/// Has a program pass from a step to idling, with a pause, until the watcher has ended. What that
/// said, and how many steps there were.
fn work_until_it_ends(mut watcher: Child, program: &mut Program) -> (String, u64) {
    let (begin, mut steps) = (Instant::now(), 0);
    while watcher.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the condition was not met");
        program.ask("go 1");
        steps += 1;
        std::thread::sleep(PAUSE);
        program.ask("idle 1");
    }
    let output = watcher.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    (said, steps)
}

/// A session of programs that has started.
fn recording() -> Stage {
    let stage = Stage::new();
    stage.ok(&["create", "met", "-u", "work:*"]);
    stage.ok(&["start", "met"]);
    stage
}

/// The command that takes one snapshot when a condition is met.
fn watcher(stage: &Stage, condition: [&str; 2]) -> Child {
    let mut command = stage.command(env!("CARGO_BIN_EXE_kymo"));
    command.args(["session", "snapshot", "met", "-o", "met", "-n", "1"]).args(condition);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The directory that was written, and the numbers of the steps in it.
fn written(stage: &Stage) -> Vec<u64> {
    let name = names(stage.top.path()).into_iter().find(|n| n.starts_with("met."));
    stage.steps(&name.unwrap())
}

#[test]
fn a_snapshot_of_a_latency_between_events_of_programs() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let stage = recording();
    let mut program = stage.program();
    let condition = "ust:work:step if number > 2 -> ust:work:idle > 250ms by tid";
    let watcher = watcher(&stage, ["--on-latency", condition]);
    let (said, steps) = work_until_it_ends(watcher, &mut program);
    // The first ones take as long, and are none by the filter.
    assert!(steps > 3, "{steps}: {said}");
    let (before, rest) = said.split_once(" ms from ").unwrap_or_else(|| panic!("{said}"));
    let ms: f64 = before.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(ms >= PAUSE.as_secs_f64() * 1e3, "{said}");
    let (_, key) = rest.split_once("key ").unwrap_or_else(|| panic!("{said}"));
    let tid = key.split(':').next().unwrap();
    let task = format!("/proc/{}/task/{tid}", program.pid());
    assert!(std::path::Path::new(&task).exists(), "{task} {said}");
    let written = written(&stage);
    assert!(written.contains(&3), "{written:?}");
    // The command has taken its rings along, the session continues.
    program.ask("go 1");
    assert_eq!(stage.state("met")["programs"]["programs"].as_array().map(Vec::len), Some(1));
    stage.ok(&["destroy", "met"]);
    program.end();
    assert_eq!(stage.left(), [""; 0], "nothing is left behind");
}

#[test]
fn a_snapshot_on_an_event_of_a_program() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let stage = recording();
    let mut program = stage.program();
    let watcher = watcher(&stage, ["--on", "ust:work:step if number == 4"]);
    let (said, steps) = work_until_it_ends(watcher, &mut program);
    assert!(steps > 4 && said.contains("event at "), "{steps}: {said}");
    assert!(written(&stage).contains(&4));
}

#[test]
fn conditions_on_programs_that_cannot_be() {
    let stage = recording();
    let refused = |condition| stage.refused(&["snapshot", "met", "--on-latency", condition]);
    let mixed = refused("ust:work:step -> sched:sched_switch > 1ms");
    assert!(mixed.contains("sched:sched_switch is the kernel's"), "{mixed}");
    let filter = refused("ust:work:step if number >> -> ust:work:idle > 1ms");
    assert!(filter.contains("number"), "{filter}");
    let mut program = stage.program();
    let condition = "ust:work:step -> ust:work:idle > 1ms by customer";
    let mut watcher = watcher(&stage, ["--on-latency", condition]);
    let begin = Instant::now();
    while watcher.try_wait().unwrap().is_none() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "it waits for a field that is not there"
        );
        program.ask("go 1");
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = watcher.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("work:step has no number \"customer\"; it has number, half"), "{said}");
}
