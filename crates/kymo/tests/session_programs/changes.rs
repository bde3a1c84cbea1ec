//! Rules and channels that change while programs run, several sessions, several commands at a time.

use std::process::{Child, Command};

use kymo_testkit::{Need, require};

use crate::stage::{Stage, babeltrace, number, range, text};

#[test]
fn rules_and_channels_change_while_programs_run() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let stage = Stage::new();
    let mut program = stage.program();
    stage.ok(&["create", "r", "-u", "work:*", "--level", "info"]);
    stage.ok(&["start", "r"]);
    program.ask("go 2");
    program.ask("idle 5");
    // A filter comes, changes and goes; every change takes effect immediately.
    stage.ok(&["enable", "r", "-u", "work:step", "--filter", "number > 5 && half != 4"]);
    program.ask("go 10");
    stage.ok(&["enable", "r", "-u", "work:step", "--filter", "number == 13"]);
    program.ask("go 3");
    stage.ok(&["disable", "r", "-u", "work:step"]);
    program.ask("go 5");
    stage.ok(&["enable", "r", "-u", "work:step"]);
    program.ask("go 2");
    let shown = stage.state("r");
    let rules = &shown["programs"]["channels"][0]["rules"];
    assert_eq!(rules[0]["events"], "work:step");
    assert_eq!(rules[1]["level"], "info");
    let warned = stage.ok(&["enable", "r", "-u", "work:idle", "--filter", "colour == 7"]);
    assert!(warned.contains("work:idle stays off: it has no field colour"), "{warned}");
    program.ask("idle 5");
    let shown = stage.state("r");
    let unfit = &shown["programs"]["programs"][0]["unfit"];
    assert_eq!(unfit[0]["field"], "colour");
    stage.ok(&["snapshot", "r", "-o", "out"]);
    let mut steps = stage.steps("out");
    steps.sort_unstable();
    assert_eq!(steps, [0, 1, 6, 7, 10, 11, 13, 20, 21]);
    let lines = babeltrace(&stage.path("out"));
    assert_eq!(lines.len(), 9, "no idle: {lines:?}");

    // Another channel has rings of its own; both are read as one.
    let args = ["enable", "r", "-u", "work:*", "--channel", "big", "--buffer-size", "8M"];
    stage.ok(&args);
    program.ask("go 1");
    program.ask("idle 1");
    let said = stage.ok(&["snapshot", "r", "-o", "both"]);
    assert!(said.contains("of 1 program"), "{said}");
    let lines = babeltrace(&stage.path("both"));
    assert_eq!(lines.iter().filter(|l| l.contains("work:step")).count(), 2);
    assert_eq!(lines.iter().filter(|l| l.contains("work:idle")).count(), 1);
    let args = ["enable", "r", "-u", "work:*", "--channel", "big", "--buffer-size", "1M"];
    assert!(stage.refused(&args).contains("another ring already"));
    let args = ["disable", "r", "-u", "work:*", "--channel", "none"];
    assert!(stage.refused(&args).contains("no channel none"));
    let args = ["enable", "r", "-u", "work:*", "--filter", "number >"];
    assert!(stage.refused(&args).contains('^'));
    stage.ok(&["destroy", "r"]);
    program.end();
    assert_eq!(stage.left(), [""; 0]);
}

#[test]
fn sessions_are_independent_and_eight_fill_a_program() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let stage = Stage::new();
    let mut program = stage.program();
    for i in 0..9 {
        let filter = format!("number == {i}");
        let name = format!("s{i}");
        stage.ok(&[
            "create",
            &name,
            "-u",
            "work:step",
            "--filter",
            &filter,
            "--buffer-size",
            "64K",
        ]);
        let said = stage.ok(&["start", &name]);
        assert_eq!(said.contains("records for eight channels already"), i == 8, "{said}");
    }
    program.ask("go 20");
    let show = stage.ok(&["show", "s8"]);
    assert!(show.contains("its eight slots are taken"), "{show}");
    for i in 0..8_u64 {
        let (name, out) = (format!("s{i}"), format!("out{i}"));
        stage.ok(&["snapshot", &name, "-o", &out]);
        assert_eq!(stage.steps(&out), [i]);
    }
    // A slot becomes free: the next command takes it.
    stage.ok(&["destroy", "s3"]);
    stage.ok(&["snapshot", "s8", "-o", "empty"]);
    program.ask("go 1");
    stage.ok(&["disable", "s8", "-u", "work:step"]);
    stage.ok(&["enable", "s8", "-u", "work:step"]);
    program.ask("go 2");
    stage.ok(&["snapshot", "s8", "-o", "eight"]);
    assert_eq!(stage.steps("eight"), [21, 22]);
    let all: Vec<String> = (0..9).filter(|i| *i != 3).map(|i| format!("s{i}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    stage.ok(&[&["destroy"][..], &all].concat());
    program.end();
    assert_eq!(stage.left(), [""; 0]);
}

#[test]
fn many_commands_at_once_take_every_event_once() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let stage = Stage::new();
    // All events fit: when the commands take them is up to the machine.
    let create = ["create", "many", "-u", "work:step", "--mode", "discard", "--buffer-size", "8M"];
    stage.ok(&create);
    stage.ok(&["start", "many"]);
    let mut program = stage.program();
    let total: u64 = 40_000;
    program.say(&format!("go {total}"));
    let commands: Vec<Child> = (0..6)
        .map(|i| {
            let mut command = stage.command(env!("CARGO_BIN_EXE_kymo"));
            command.args(["session", "snapshot", "many", "-q", "-o", &format!("part{i}")]);
            command.spawn().unwrap()
        })
        .collect();
    for mut command in commands {
        assert!(command.wait().unwrap().success());
    }
    program.hear("done");
    stage.ok(&["snapshot", "many", "-o", "part6"]);
    let mut steps = Vec::new();
    for i in 0..7 {
        let part = format!("part{i}");
        if stage.path(&part).join("ust/uid-0").exists() || i == 6 {
            let lines = Command::new("babeltrace2").arg(stage.path(&part)).output().unwrap();
            steps.extend(text(&lines.stdout).lines().map(number));
        }
    }
    steps.sort_unstable();
    assert_eq!(steps, range(0, total));
    stage.ok(&["destroy", "many"]);
}
