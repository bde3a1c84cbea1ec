//! `kymo sched latency --live`: the scheduler's events out of perf rings give the numbers that
//! a recording of the same run gives, and what the rings lost is counted.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use kymo_testkit::{Need, Outcome, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 4] = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc];

/// Three children, each of which passes a byte to and fro with its parent, `argv[1]` times.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 100;
  for (int n = 0; n < 3; n++) {
    int to[2], from[2];
    char byte = 0;
    if (pipe(to) || pipe(from)) return 1;
    pid_t child = fork();
    if (child == 0) {
      char name[] = {'p', 'i', 'n', 'g', (char)('0' + n), 0};
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

/// What is counted of each child, by its thread.
fn children(page: &Value) -> BTreeMap<u64, [u64; 6]> {
    let rows = page["tasks"].as_array().unwrap().iter();
    let own = rows.filter(|r| r["comm"].as_str().unwrap().starts_with("ping"));
    let own = own.filter(|r| r["comm"] != "ping");
    let counts = |r: &Value| {
        ["delay", "woken", "preempted", "new"].map(|kind| r[kind]["count"].as_u64().unwrap())
    };
    own.map(|r| {
        let [delays, woken, preempted, new] = counts(r);
        let switches = r["switches"].as_u64().unwrap();
        let migrations = r["migrations"].as_u64().unwrap();
        (r["tid"].as_u64().unwrap(), [switches, delays, woken, preempted, new, migrations])
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
    let record = [KYMO, "sched", "record", "-q", "-m", "16M", "-o", &data, "--", &ping, "500"];
    let o = live(&[&["-p", "--json", "-a", "-m", "16M", "--"], &record[..]].concat());
    // The command's status is that of the command that it waits for.
    assert_eq!(o.status, 7, "{}", o.stderr);
    let watched = page(&o.stdout);
    let recorded =
        page(&run(KYMO, ["sched", "latency", "-p", "--json", "-i", &data]).success().stdout);
    assert_eq!((facts(&watched, "lost"), facts(&recorded, "lost")), (vec![], vec![]));
    let of_run = children(&watched);
    assert_eq!(of_run, children(&recorded));
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
    let record = [KYMO, "sched", "record", "-m", "64M", "-o", &data, "--", &ping, "20000"];
    // A ring of one page has room for some forty events, and for a while nobody reads it.
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
    let watched = page(&text);
    let [fact] = facts(&watched, "lost")[..] else { panic!("{watched:#}") };
    let number = |text: &str| text.split(' ').next().unwrap().parse::<u64>().unwrap();
    let (lost, kept) = (number(fact), number(fact.rsplit_once(", ").unwrap().1));
    // What the recording has happened within what was watched.
    let (_, said) = said.split_once(" MB ").unwrap();
    let all = number(said.split_once('(').unwrap().1);
    assert!(lost > 0 && kept < all, "{fact}; {all} recorded");
    assert!(lost + kept >= all, "{fact}; {all} recorded");
    assert!(
        facts(&page(&run(KYMO, ["sched", "latency", "--json", "-i", &data]).stdout), "lost")
            .is_empty()
    );
}

#[test]
fn it_ends_when_the_time_is_over_and_refuses_what_is_no_live_run() {
    if !require(&NEEDS) {
        return;
    }
    let o = live(&["--timeout", "200"]).success();
    assert!(o.stdout.contains("  TOTAL:  ") && o.stdout.contains("overhead: "), "{}", o.stdout);
    assert!(!o.stdout.contains("kymo script -i"), "{}", o.stdout);
    assert_eq!(live(&["--", "/nonexistent/program"]).status, 127);
    for wrong in [&["-i", "perf.data"][..], &["--time", "1,2"]] {
        assert!(live(wrong).failure().stderr.contains("cannot be used with"));
    }
    let o = run(KYMO, ["sched", "latency", "--timeout", "200"]).failure();
    assert!(o.stderr.contains("--live"), "{}", o.stderr);
}
