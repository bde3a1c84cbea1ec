//! From creating to destroying: what is written, what is lost and reported, what is left.

use std::process::Command;
use std::time::Duration;

use kymo_testkit::{Need, require};

use crate::stage::{Stage, names, pin, range, text, told};

#[test]
fn a_session_reaches_programs_that_run_and_that_come_until_it_is_destroyed() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let stage = Stage::new();
    let mut early = stage.program();
    stage.ok(&["create", "life", "-u", "work:step"]);
    early.ask("go 10");
    stage.ok(&["start", "life"]);
    early.ask("go 100");
    let mut late = stage.program();
    late.ask("go 5");
    late.ask("idle 5");
    let shown = stage.ok(&["show", "life"]);
    let line = format!("(pid {}, user ", early.pid());
    let line = shown.lines().find(|l| l.contains(&line)).unwrap_or_else(|| panic!("{shown}"));
    assert!(line.contains("recording, 1 event on; 100 written, 0 discarded"), "{shown}");
    let said = stage.ok(&["snapshot", "life", "-o", "one"]);
    assert!(said.contains("bytes of events of 2 programs"), "{said}");
    assert_eq!(stage.steps("one").len(), 105);
    assert!(stage.refused(&["snapshot", "life", "-o", "one"]).contains("not empty"));

    // The next begins where that ended; a program that ended is in it, once.
    late.ask("go 7");
    late.end();
    early.ask("go 3");
    stage.ok(&["snapshot", "life", "-o", "two"]);
    let mut two = stage.steps("two");
    two.sort_unstable();
    assert_eq!(two, [range(5, 12), range(110, 113)].concat());

    // Stopped: nothing new, in no program; started: again.
    early.ask("go 1");
    stage.ok(&["stop", "life"]);
    early.ask("go 20");
    let mut between = stage.program();
    between.ask("go 20");
    assert!(stage.ok(&["list"]).contains("life: stopped, of programs work:step"));
    stage.ok(&["start", "life"]);
    early.ask("go 1");
    between.ask("go 1");
    stage.ok(&["rotate", "life", "-o", "three"]);
    let three = names(stage.top.path()).into_iter().find(|n| n.starts_with("three.")).unwrap();
    let mut three = stage.steps(&three);
    three.sort_unstable();
    assert_eq!(three, [20, 113, 134]);

    stage.ok(&["destroy", "life"]);
    early.ask("go 10");
    let programs = [early.pid(), between.pid()].map(|p| p.to_string());
    for name in stage.left() {
        assert!(programs.iter().any(|p| name.starts_with(&format!("{p}-"))), "{name} is left");
    }
    assert!(stage.refused(&["show", "life"]).contains("there is no session life"));
    early.end();
    between.end();
    assert_eq!(stage.left(), [""; 0], "nothing is left behind");
}

#[test]
fn a_flight_recorder_keeps_the_last_events_and_counts_the_others() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let stage = Stage::new();
    stage.ok(&["create", "box", "-u", "work:step", "--buffer-size", "64K"]);
    stage.ok(&["start", "box"]);
    let mut program = stage.program();
    // One CPU, so that there is one order.
    pin(program.pid());
    program.ask("go 50000");
    let mut begin = 0;
    for (snapshot, until) in [("one", 50_000), ("two", 50_100), ("three", 99_999)] {
        if until > 50_000 {
            program.ask(&format!("go {}", until - begin));
        }
        let said = stage.ok(&["snapshot", "box", "-o", snapshot]);
        let steps = stage.steps(snapshot);
        let first = steps[0];
        assert_eq!(steps, range(first, until), "{snapshot}");
        let lost = told(&said, " events (");
        assert_eq!(lost, first - begin, "{said}");
        begin = until;
    }
    let written = &stage.state("box")["programs"]["programs"][0]["written"];
    assert_eq!(written, 99_999);
    stage.ok(&["destroy", "box"]);
}

#[test]
fn what_a_full_ring_discards_is_reported() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let stage = Stage::new();
    let create = ["create", "d", "-u", "work", "--mode", "discard", "--buffer-size", "64K"];
    stage.ok(&create);
    stage.ok(&["start", "d"]);
    let mut program = stage.program();
    pin(program.pid());
    program.ask("go 30000");
    let output = stage.session(&["snapshot", "d", "-o", "one", "--strict"]);
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    let lost = told(&said, " events discarded: rings were full");
    let lines = Command::new("babeltrace2").arg(stage.path("one")).output().unwrap();
    let kept = text(&lines.stdout).lines().count() as u64;
    assert!(lost > 20_000 && kept + lost == 30_000, "{kept}: {said}");
    // Room again, and the losses are reported once.
    program.ask("go 100");
    let said = stage.ok(&["snapshot", "d", "-o", "two", "--strict"]);
    assert!(!said.contains("discarded"), "{said}");
    assert_eq!(stage.steps("two"), range(30_000, 30_100));
}

#[test]
fn programs_that_were_killed_are_in_the_snapshot_and_then_gone() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let stage = Stage::new();
    stage.ok(&["create", "dead", "-u", "work:*"]);
    stage.ok(&["start", "dead"]);
    for (i, how) in ["-KILL", "-SEGV", "abort"].into_iter().enumerate() {
        let mut program = stage.program();
        program.ask(&format!("go {}", 10 + i));
        match how {
            "abort" => program.say("abort"),
            signal => {
                let pid = program.pid().to_string();
                assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
                // Rust's handler lets the first pass that is no fault of the program's own, and two
                // that come before it runs are one.
                while program.child.try_wait().unwrap().is_none() {
                    std::thread::sleep(Duration::from_millis(5));
                    let _ = Command::new("kill").args([signal, &pid]).output().unwrap();
                }
            }
        }
        assert!(!program.child.wait().unwrap().success());
    }
    let list = stage.ok(&["list"]);
    assert!(list.contains("3 programs (3 ended), 33 events written"), "{list}");
    stage.ok(&["snapshot", "dead", "-o", "all"]);
    assert_eq!(stage.steps("all").len(), 33);
    assert_eq!(
        stage.left(),
        ["dead.channel0", "dead.channel0"],
        "the channel configurations alone"
    );
    assert!(stage.ok(&["snapshot", "dead", "-o", "none"]).contains("no events of programs"));
    // Recovering takes what the session would have taken.
    let mut program = stage.program();
    program.ask("go 3");
    stage.ok(&["snapshot", "dead", "-o", "alive"]);
    program.ask("go 4");
    drop(program);
    stage.ok(&["recover", "-o", "recovered"]);
    assert_eq!(stage.steps("recovered"), range(3, 7));
    assert_eq!(stage.steps("alive"), range(0, 3));
}
