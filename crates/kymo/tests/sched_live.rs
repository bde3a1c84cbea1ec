//! `kymo sched latency` and `timehist` with `--live`: the scheduler's events out of perf rings
//! give the numbers that a recording of the same run gives, and what the rings lost is counted.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use kymo_testkit::{Need, Outcome, page_with_ledger, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 4] = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc];

/// Three children, each of which passes a byte to and fro with its parent, `argv[1]` times.
/// Their names begin with `argv[2]`: other tests run meanwhile.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
  if (argc != 3) return 1;
  int rounds = atoi(argv[1]);
  for (int n = 0; n < 3; n++) {
    int to[2], from[2];
    char byte = 0;
    if (pipe(to) || pipe(from)) return 1;
    pid_t child = fork();
    if (child == 0) {
      char name[16];
      snprintf(name, sizeof name, "%s%d", argv[2], n);
      prctl(PR_SET_NAME, name);
      for (int i = 0; i < rounds; i++)
        if (read(to[0], &byte, 1) != 1 || write(from[1], &byte, 1) != 1) return 1;
      return 0;
    }
    for (int i = 0; i < rounds; i++)
      if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1) return 1;
    waitpid(child, 0, 0);
  }
  return 7;
}
"#;

struct PingPrograms {
    directory: tempfile::TempDir,
}

impl PingPrograms {
    fn make() -> PingPrograms {
        let made = PingPrograms { directory: tempfile::tempdir().unwrap() };
        std::fs::write(made.path("ping.c"), PROGRAM).unwrap();
        let built = Command::new("gcc")
            .args(["-O1", "-o", &made.path("ping"), &made.path("ping.c")])
            .status()
            .unwrap();
        assert!(built.success());
        made
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }
}

fn live(args: &[&str]) -> Outcome {
    run(KYMO, [&["sched", "latency", "--live"], args].concat())
}

fn page(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// A result and its ledger.
fn both(out: &Outcome) -> Value {
    page_with_ledger(&out.stdout, &out.stderr)
}

/// Returns the counts of each child, by its thread: switches, delays, migrations. Whether a delay
/// starts with a wake-up or with the switch before may differ by nanoseconds.
fn children(page: &Value, name: &str) -> BTreeMap<u64, [u64; 3]> {
    let rows = page["tasks"].as_array().unwrap().iter();
    let own = rows.filter(|r| r["comm"].as_str().unwrap().starts_with(name));
    own.map(|r| {
        let counts = [&r["switches"], &r["delay"]["count"], &r["migrations"]];
        (r["tid"].as_u64().unwrap(), counts.map(|n| n.as_u64().unwrap()))
    })
    .collect()
}

/// The facts of notes of one kind.
fn facts<'p>(page: &'p Value, kind: &str) -> Vec<&'p str> {
    let notes = page["ledger"].as_array().unwrap().iter();
    notes.filter(|n| n["kind"] == kind).map(|n| n["fact"].as_str().unwrap()).collect()
}

#[test]
fn the_live_table_is_that_of_a_recording_of_the_same_run() {
    if !require(&NEEDS) {
        return;
    }
    let programs = PingPrograms::make();
    let (data, ping) = (programs.path("perf.data"), programs.path("ping"));
    let name = format!("t{}-", std::process::id());
    let record =
        [KYMO, "sched", "record", "-q", "-m", "16M", "-o", &data, "--", &ping, "500", &name];
    let o = live(&[&["-p", "--json", "-a", "-m", "16M", "--"], &record[..]].concat());
    // The command's status is that of the command that it waits for.
    assert_eq!(o.status, 7, "{}", o.stderr);
    let watched = page_with_ledger(&o.stdout, &o.stderr);
    let recorded = both(&run(KYMO, ["sched", "latency", "-p", "--json", "-i", &data]).success());
    assert_eq!((facts(&watched, "lost"), facts(&recorded, "lost")), (vec![], vec![]));
    let of_run = children(&watched, &name);
    assert_eq!(of_run, children(&recorded, &name));
    assert_eq!(of_run.len(), 3, "{of_run:?}");
    assert!(of_run.values().all(|c| c[0] >= 100 && c[1] >= 100), "{of_run:?}");
    // Names of tasks that were there before, and what it took.
    assert!(watched["tasks"].as_array().unwrap().iter().all(|r| r["comm"] != ""));
    let [used] = facts(&watched, "overhead")[..] else { panic!("{watched:#}") };
    assert!(used.starts_with("kymo itself used ") && used.contains("% of one CPU: "), "{used}");
    assert_eq!(facts(&recorded, "overhead"), Vec::<&str>::new());
}

#[test]
fn what_rings_lose_is_counted() {
    if !require(&NEEDS) {
        return;
    }
    let programs = PingPrograms::make();
    let (data, ping) = (programs.path("perf.data"), programs.path("ping"));
    let record = [KYMO, "sched", "record", "-m", "64M", "-o", &data, "--", &ping, "20000", "lose"];
    // A ring of one page has room for some forty events, and for a while it is not read.
    let watching = Command::new(KYMO)
        .args(["sched", "latency", "--live", "--json", "--strict", "-m", "1", "--"])
        .args(record)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let signal = |name: &str| {
        let id = watching.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    };
    std::thread::sleep(Duration::from_millis(500));
    signal("-STOP");
    std::thread::sleep(Duration::from_millis(500));
    signal("-CONT");
    let o = watching.wait_with_output().unwrap();
    let (text, said) = (String::from_utf8(o.stdout).unwrap(), String::from_utf8(o.stderr).unwrap());
    assert_eq!(o.status.code(), Some(3), "{said}");
    let watched = page_with_ledger(&text, &said);
    let [fact] = facts(&watched, "lost")[..] else { panic!("{watched:#}") };
    let number = |text: &str| text.split(' ').next().unwrap().parse::<u64>().unwrap();
    let (lost, kept) = (number(fact), number(fact.rsplit_once(", ").unwrap().1));
    // What the recording has happened within what was watched.
    let (_, said) = said.split_once(" MB ").unwrap();
    let all = number(said.split_once('(').unwrap().1);
    assert!(lost > 0 && kept < all, "{fact}; {all} recorded");
    assert!(lost + kept >= all, "{fact}; {all} recorded");
    assert!(
        facts(&both(&run(KYMO, ["sched", "latency", "--json", "-i", &data])), "lost").is_empty()
    );
}

#[test]
fn it_ends_when_the_time_is_over_and_refuses_what_is_no_live_run() {
    if !require(&NEEDS) {
        return;
    }
    let o = live(&["--timeout", "200"]).success();
    assert!(
        o.stdout.contains(" tasks ran for ") && o.stdout.contains("overhead: "),
        "{}",
        o.stdout
    );
    assert!(!o.stdout.contains("kymo script -i"), "{}", o.stdout);
    assert_eq!(live(&["--", "/nonexistent/program"]).status, 127);
    for wrong in [&["-i", "perf.data"][..], &["--time", "1,2"]] {
        assert!(live(wrong).failure().stderr.contains("cannot be used with"));
    }
    // A time alone says that it is about what happens now.
    let o = run(KYMO, ["sched", "latency", "--timeout", "200"]).success();
    assert!(o.stdout.contains("overhead: "), "{}", o.stdout);
}

/// Returns the runs of each child in their order, by the state at their end.
fn runs(lines: &str, name: &str) -> BTreeMap<u64, String> {
    let mut runs: BTreeMap<u64, String> = BTreeMap::new();
    for line in lines.lines().map(page) {
        let comm = line["comm"].as_str().unwrap_or_default();
        if line["type"] == "switch" && comm.starts_with(name) {
            let of_task = runs.entry(line["tid"].as_u64().unwrap()).or_default();
            of_task.push_str(line["state"].as_str().unwrap());
        }
    }
    runs
}

#[test]
fn live_lines_are_those_of_a_recording_of_the_same_run() {
    if !require(&NEEDS) {
        return;
    }
    let programs = PingPrograms::make();
    let (data, ping) = (programs.path("perf.data"), programs.path("ping"));
    let name = format!("l{}-", std::process::id());
    let record =
        [KYMO, "sched", "record", "-q", "-m", "16M", "-o", &data, "--", &ping, "300", &name];
    let watch = ["sched", "timehist", "--live", "-g", "--json", "-m", "16M", "--"];
    let watched = run(KYMO, [&watch[..], &record].concat()).expect_status(7).stdout;
    let recorded = run(KYMO, ["sched", "timehist", "--json", "-i", &data]).success().stdout;
    let of_run = runs(&watched, &name);
    assert_eq!(of_run, runs(&recorded, &name));
    assert!(of_run.len() == 3 && of_run.values().all(|r| r.len() >= 100), "{of_run:#?}");
    // Call chains come with the events, and their functions have names.
    let pipe_read = |l: &str| {
        let line = page(l);
        let own = line["comm"].as_str().unwrap_or_default().starts_with(&name);
        let stack = line["stack"].as_array().cloned().unwrap_or_default();
        own && stack.iter().any(|f| f.as_str().unwrap().contains("pipe_read"))
    };
    assert!(watched.lines().filter(|l| pipe_read(l)).count() >= 100, "{watched}");
    assert!(!recorded.contains("pipe_read"));
}

#[test]
fn lines_come_while_events_happen() {
    if !require(&NEEDS) {
        return;
    }
    let mut watching = Command::new(KYMO)
        .args(["sched", "timehist", "--live", "--json", "--", "sleep", "60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut lines = BufReader::new(watching.stdout.take().unwrap());
    lines.read_line(&mut first).unwrap();
    assert_eq!(page(&first)["type"], "switch");
    assert_eq!(watching.try_wait().unwrap(), None);
    // A signal ends it, and the command with it.
    let id = watching.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(rest.lines().all(|line| page(line)["type"] != "ledger"));
    assert_eq!(watching.wait().unwrap().code(), Some(0));
}
