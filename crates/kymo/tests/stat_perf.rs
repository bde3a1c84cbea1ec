//! `kymo stat` beside `perf stat` for the same command: the same lines, columns,
//! names and, where the command always does the same, the same counts.

use kymo_testkit::{Need, Outcome, perf, require, run, run_command};

/// Runs kymo in the locale that `perf` is run in: a command reads locale files
/// of its own in others, and is counted doing it.
fn kymo(args: &[&str]) -> Outcome {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(args).env("LC_ALL", "C");
    run_command(command)
}

/// Both tools' lines on stderr for the same arguments, kymo's without the ledger.
fn both(args: &[&str]) -> (Vec<String>, Vec<String>) {
    let args: Vec<&str> = ["stat"].iter().chain(args).copied().collect();
    let lines = |outcome: Outcome| -> Vec<String> {
        outcome
            .stderr
            .lines()
            .take_while(|l| !["Trust:", "Note:"].contains(l))
            .filter(|l| !l.is_empty())
            .map(str::to_owned)
            .collect()
    };
    (lines(kymo(&args)), lines(perf(&args)))
}

fn ready() -> bool {
    require(&[Need::Root, Need::PerfEvents, Need::Perf])
}

/// A line with every number made `0`, so that only the layout is left.
fn shape(line: &str) -> String {
    let mut out = String::new();
    for c in line.chars() {
        let c = if c.is_ascii_digit() { '0' } else { c };
        if !(c == '0' && out.ends_with('0')) {
            out.push(c);
        }
    }
    out.replace("0.0", "0").replace("K/sec", "/sec").replace("M/sec", "/sec")
}

#[track_caller]
fn same_shape(args: &[&str]) {
    let (ours, theirs) = both(args);
    let shapes = |lines: &[String]| lines.iter().map(|l| shape(l)).collect::<Vec<_>>();
    assert!(!theirs.is_empty(), "perf printed nothing for {args:?}");
    assert_eq!(shapes(&ours), shapes(&theirs), "{args:?}\n{ours:#?}\n{theirs:#?}");
}

#[test]
fn csv_lines_have_perfs_columns() {
    if !ready() {
        return;
    }
    let clock = "task-clock,page-faults,cycles";
    same_shape(&["-x,", "true"]);
    same_shape(&["-x;", "-e", "{task-clock:u,page-faults:u},cs", "true"]);
    same_shape(&["-x,", "-r", "2", "-e", clock, "true"]);
    same_shape(&["-x,", "-a", "-A", "-e", clock, "sleep", "0.02"]);
    same_shape(&["-x,", "-a", "--per-core", "-e", clock, "sleep", "0.02"]);
    same_shape(&["-x,", "-a", "--per-socket", "-e", clock, "sleep", "0.02"]);
    same_shape(&["-x,", "-a", "-I", "40", "-e", "cpu-clock", "sleep", "0.06"]);
}

#[test]
fn json_lines_have_perfs_keys() {
    if !ready() {
        return;
    }
    let clock = "task-clock,page-faults,cycles";
    same_shape(&["-j", "true"]);
    same_shape(&["-j", "-r", "2", "-e", clock, "true"]);
    same_shape(&["-j", "-a", "-A", "-e", clock, "sleep", "0.02"]);
    same_shape(&["-j", "-a", "--per-core", "-e", clock, "sleep", "0.02"]);
    same_shape(&["-j", "-a", "--per-socket", "-e", clock, "sleep", "0.02"]);
    same_shape(&["-j", "-a", "-I", "40", "-e", "cpu-clock", "sleep", "0.06"]);
}

#[test]
fn a_command_that_does_the_same_gives_the_same_counts() {
    if !ready() || !require(&[Need::Tracefs]) {
        return;
    }
    let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=2000", "status=none"];
    let events = "syscalls:sys_enter_read,syscalls:sys_enter_write";
    let mut args = vec!["-x,", "-e", events];
    args.extend(dd);
    let (ours, theirs) = both(&args);
    let counts = |lines: &[String]| -> Vec<(String, String)> {
        lines
            .iter()
            .map(|l| {
                let mut fields = l.split(',');
                let count = fields.next().unwrap_or_default().to_owned();
                (count, fields.nth(1).unwrap_or_default().to_owned())
            })
            .collect()
    };
    assert_eq!(counts(&ours), counts(&theirs));
    assert_eq!(counts(&ours).len(), 2, "{ours:?}");

    let mut args = vec!["-x,", "-e", events, "--filter", "count==1"];
    args.extend(dd);
    let (ours, theirs) = both(&args);
    assert_eq!(counts(&ours), counts(&theirs));
    assert_eq!(counts(&ours)[0].0, "2000");
}

#[test]
fn how_the_command_ended_is_passed_on() {
    if !ready() {
        return;
    }
    let quiet = ["stat", "-e", "task-clock", "--"];
    let status = |command: &[&str]| kymo(&[&quiet[..], command].concat()).status;
    assert_eq!(status(&["true"]), 0);
    assert_eq!(status(&["sh", "-c", "exit 5"]), 5);
    assert_eq!(status(&["sh", "-c", "kill -9 $$"]), 137);
    assert_eq!(status(&["no-such-program-here"]), 127);
}

#[test]
fn an_interrupt_prints_what_was_counted() {
    if !ready() {
        return;
    }
    let script = format!(
        "{} stat -e task-clock -- sleep 30 & sleep 0.3; kill -TERM $!; wait $!",
        env!("CARGO_BIN_EXE_kymo")
    );
    let outcome = run("sh", ["-c", script.as_str()]);
    assert_eq!(outcome.status, 143, "{outcome:?}");
    assert_eq!(outcome.stderr.matches("task-clock").count(), 1, "{outcome:?}");
    assert!(outcome.stderr.contains("seconds time elapsed"), "{outcome:?}");
}
