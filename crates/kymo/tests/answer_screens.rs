//! First screens of the commands that answer a question: a sentence with a number, a table that
//! fits on a screen, and commands to go on with, which work as they are printed.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use kymo_testkit::{Need, TracingState, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// Makes tasks, waits of several kinds, files and allocations.
const LOAD: &str = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24; do \
    sh -c 'sleep 0.01; dd if=/dev/zero of=big bs=64k count=4 conv=fsync' 2> /dev/null & done; \
    wait; rm -f big";

/// Recording commands, and the commands that report their recordings.
const ANSWERS: [(&[&str], &[&[&str]]); 8] = [
    (&["sched", "record"], &[&["sched", "latency"]]),
    (&["offcpu", "record"], &[&["offcpu", "report"], &["profile"]]),
    (&["why", "record"], &[&["why", "--comm", "dd"]]),
    (&["lock", "record"], &[&["lock", "report"], &["lock", "contention"]]),
    (
        &["kmem", "record"],
        &[&["kmem", "stat"], &["kmem", "stat", "--caller"], &["kmem", "pagealloc"]],
    ),
    (&["kwork", "record"], &[&["kwork", "report"], &["kwork", "latency"], &["kwork", "top"]]),
    (&["io", "record"], &[&["io", "latency"], &["io", "top"]]),
    (&["syscalls", "record"], &[&["syscalls", "report"]]),
];

/// Answers whose first screen is limited.
const LIMITED: [&str; 9] =
    ["profile", "why", "offcpu", "lock", "io", "sched", "syscalls", "kmem", "kwork"];

/// Lines of a result on a terminal of 100 columns, without the ledger, whose length depends on
/// the machine.
fn screen_lines(directory: &Path, command: &str) -> (usize, String) {
    let screen = format!("NO_COLOR=1 script -qec 'stty cols 100 rows 50; {command}' /dev/null");
    let text = String::from_utf8_lossy(&shell(directory, &screen).stdout).replace('\r', "");
    let lines = text.lines().take_while(|line| !matches!(line.trim(), "Trust:" | "Note:"));
    (lines.map(|line| line.chars().count().div_ceil(100).max(1)).sum(), text)
}

/// Commands within a page that read this recording.
fn commands(page: &str, file: &str) -> BTreeSet<String> {
    let of = |line: &str| Some(line.get(line.find("kymo ")?..)?.trim().to_owned());
    page.lines().filter_map(of).filter(|command| command.contains(file)).collect()
}

fn shell(directory: &Path, command: &str) -> std::process::Output {
    let path = Path::new(KYMO).parent().unwrap().to_str().unwrap().to_owned();
    let path = format!("{path}:{}", std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(directory).env("PATH", path);
    // The pager would wait for its user.
    shell.env("KYMO_PAGER", "cat");
    shell.output().unwrap()
}

#[test]
fn first_screens_of_tasks_answer_and_their_commands_work() {
    first_screens(&ANSWERS[..4]);
}

#[test]
fn first_screens_of_memory_and_devices_answer_and_their_commands_work() {
    first_screens(&ANSWERS[4..]);
}

#[track_caller]
fn first_screens(answers: &[(&[&str], &[&[&str]])]) {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let state = TracingState::take();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let here = directory.path();
    let mut tried = BTreeSet::new();
    for (record, answers) in answers {
        let file = format!("{}.data", record[0]);
        let quiet = format!("kymo {} -q -o {file} -- sh -c \"$LOAD\"", record.join(" "));
        let out = shell(here, &format!("export LOAD={LOAD:?}; {quiet}"));
        assert!(out.status.success(), "{quiet}: {}", String::from_utf8_lossy(&out.stderr));
        for answer in *answers {
            let command = format!("kymo {} -i {file}", answer.join(" "));
            let whole = shell(here, &command);
            let page = String::from_utf8(whole.stdout).unwrap();
            assert!(whole.status.success(), "{command}: {page}");
            let sentence = page.lines().find(|l| !l.trim().is_empty()).unwrap();
            let has_number = sentence.contains(|c: char| c.is_ascii_digit());
            let says_what_lacks = sentence.starts_with("Trust:") || page.contains(&file);
            assert!(has_number || says_what_lacks, "{command}: {page}");
            if LIMITED.contains(&answer[0]) {
                let (lines, text) = screen_lines(here, &command);
                assert!(lines <= 40, "{command}: {lines} lines\n{text}");
            }
            // One of those that show events stands for all.
            let (scripts, others): (Vec<_>, Vec<_>) =
                commands(&page, &file).into_iter().partition(|c| c.starts_with("kymo script"));
            for next in scripts.into_iter().take(1).chain(others) {
                let went = shell(here, &next);
                let said = String::from_utf8_lossy(&went.stderr);
                assert!(went.status.success(), "{command} says {next}: {said}");
                assert!(!went.stdout.is_empty(), "{command} says {next}: {said}");
                tried.insert(next);
            }
        }
    }
    assert!(tried.len() >= 4, "{tried:#?}");
    assert_eq!(state.left_behind(), None);
}

/// Rows of tasks are many: a terminal shows the worst.
#[test]
fn a_terminal_shows_the_worst_rows() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let here = directory.path();
    let file = here.join("sched.data").to_str().unwrap().to_owned();
    let record = format!("export LOAD={LOAD:?}; kymo sched record -q -o {file} -- sh -c \"$LOAD\"");
    assert!(shell(here, &record).status.success());
    let all = run(KYMO, ["sched", "latency", "-p", "-i", &file]).success().stdout;
    // A task is `name:number`, or `name:(number)`; three numbers with a point follow.
    let is_row = |line: &&str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        cells.iter().any(|cell| cell.contains(':'))
            && cells.iter().rev().take(4).filter(|cell| cell.parse::<f64>().is_ok()).count() == 4
    };
    let rows = |text: &str| text.lines().filter(is_row).count();
    let command = format!("script -qec 'kymo sched latency -p -i {file}' /dev/null");
    let shown = String::from_utf8(shell(here, &command).stdout).unwrap();
    assert!(rows(&all) > 20 && rows(&shown) == 20, "{shown}");
    assert!(shown.contains(&format!("... and {} more (| less shows all)", rows(&all) - 20)));
}
