//! `kymo report` of groups of events next to `perf report` on the same recordings.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use std::fs::File;
use std::process::Command;

use kymo_testkit::{Need, Workload, peer, perf, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const SOURCE: &str = include_str!("programs/calls.c");
const NEEDS: [Need; 3] = [Need::Perf, Need::PerfEvents, Need::Gcc];

/// The lines of a report that say something, without the ledger and perf's tips.
fn lines(text: &str) -> Vec<String> {
    let is_ledger = |l: &str| l.starts_with("# Trust") || l.starts_with("# Note:");
    let shown = text.lines().take_while(|l| !is_ledger(l)).filter(|l| !l.contains("(Tip:"));
    let trimmed = shown.map(|l| l.trim_end().to_string());
    trimmed.filter(|l| !l.is_empty() && l != "#").collect()
}

fn ours(file: &str, options: &[&str]) -> Vec<String> {
    let args = [&["report", "--stdio", "-i", file], options].concat();
    lines(&run(KYMO, args).success().stdout)
}

/// Both perfs show the same, and so do we, line by line.
#[track_caller]
fn same(file: &str, options: &[&str]) {
    let args = [&["report", "--stdio", "-i", file], options].concat();
    let ours = ours(file, options);
    for theirs in [perf(&args).success().stdout, peer("perf").run(&args).success().stdout] {
        let theirs = lines(&theirs);
        assert!(!theirs.is_empty(), "{options:?}: perf shows nothing: {theirs:#?}");
        for (i, (a, b)) in theirs.iter().zip(&ours).enumerate() {
            assert_eq!(b, a, "{options:?}: line {i} of {}", theirs.len());
        }
        assert_eq!(ours.len(), theirs.len(), "{options:?}");
    }
}

fn record(name: &str, how: &[&str]) -> (Workload, String) {
    let w = Workload::compile(name, SOURCE);
    let (file, program) = (w.file("perf.data"), w.program().display().to_string());
    // Programs alone: names of the kernel are looked up by each in its own way.
    let args = [&["record", "-q", "-F", "2000", "-o", &file], how, &[&program]].concat();
    let _ = perf(args).success();
    (w, file)
}

#[test]
fn events_of_a_group_stand_beside_each_other() {
    if !require(&NEEDS) {
        return;
    }
    let events = "{cpu-clock:u,page-faults:u,task-clock:u}";
    let (_w, file) = record("groups_recorded", &["-e", events]);
    for options in [
        &[][..],
        &["-n", "--show-total-period"],
        &["-t", ","],
        &["-t", ",", "-n"],
        &["-s", "dso"],
        &["-s", "sym,time", "--time-quantum", "50ms"],
        &["-F", "overhead,sample,overhead_us,period,sym"],
        &["--percent-limit", "1"],
        &["--dsos", "groups_recorded", "--percentage", "relative"],
        &["--group-sort-idx", "1"],
        &["--group-sort-idx", "2", "--percent-limit", "0.2"],
        &["--group-sort-idx", "7"],
        &["--hierarchy", "-q"],
        &["--no-group", "-n", "-q"],
    ] {
        same(&file, options);
    }
    // Both perfs have it so without being asked.
    assert_eq!(ours(&file, &["--group"]), ours(&file, &[]));
    let title = "of events 'anon group { cpu-clock:u, page-faults:u, task-clock:u }'";
    assert!(ours(&file, &[]).iter().any(|l| l.ends_with(title)));
}

#[test]
fn callers_of_a_group_have_the_numbers_of_each_event() {
    if !require(&NEEDS) {
        return;
    }
    let events = "{cpu-clock:u,page-faults:u}";
    let (_w, file) = record("groups_callers", &["-g", "-e", events]);
    // Callers within the dynamic linker are named in different ways.
    // One binary alone would be no column, which perf does not sort by then.
    let own = ["--dsos", "groups_callers,libc.so.6", "--no-inline"];
    same(&file, &[&own[..], &["--no-children", "-g", "none"]].concat());
    same(&file, &[&own[..], &["--no-children", "-g", "folded"]].concat());
    let limited = [&own[..], &["--children", "-g", "none", "--percent-limit", "0.5"]].concat();
    same(&file, &limited);
}

#[test]
fn all_events_are_a_group_where_that_is_asked_for() {
    if !require(&NEEDS) {
        return;
    }
    let (_w, file) = record("groups_forced", &["-e", "cpu-clock:u,page-faults:u"]);
    same(&file, &["--group"]);
    same(&file, &["--group", "-n", "-s", "sym"]);
    assert!(ours(&file, &[]).iter().any(|l| l.ends_with("of event 'page-faults:u'")));
    assert!(ours(&file, &["--group"]).iter().any(|l| l.ends_with("'cpu-clock:u, page-faults:u'")));
}

#[test]
fn samples_of_a_leader_count_for_each_event_of_its_group() {
    if !require(&NEEDS) {
        return;
    }
    for inherit in [&[][..], &["--no-inherit"]] {
        let how = [inherit, &["-e", "{cpu-clock:u,page-faults:u}:S"]].concat();
        let (_w, file) = record("groups_read", &how);
        same(&file, &["-n", "--show-total-period"]);
        same(&file, &["-s", "sym", "--group-sort-idx", "1"]);
        same(&file, &["--no-group", "-q", "-n"]);
    }
}

/// Three threads that compute.
const THREADS: &str = r"
#include <pthread.h>
static void *work(void *unused) {
    volatile unsigned long sum = 0;
    for (unsigned long i = 0; i < 60000000; i++) sum += i;
    return unused;
}
int main(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    return 0;
}
";

/// The counts of a group are each thread's own: as the newest perf, we record and read threads.
#[test]
fn samples_of_a_leader_are_of_all_threads() {
    if !require(&[Need::NewestPeers, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("groups_threads", THREADS);
    let group = ["-F", "2000", "-e", "{cpu-clock:u,task-clock:u}:S"];
    let newest = peer("perf");
    for recorder in ["kymo", "perf"] {
        let file = w.file(recorder);
        let args = [&["record", "-q", "-o", &file], &group[..], &["--", w.arg()]].concat();
        let _ = if recorder == "kymo" { run(KYMO, args) } else { newest.run(&args) }.success();
        let options = ["-s", "pid", "-n", "--show-total-period"];
        let args = [&["report", "--stdio", "-i", &file], &options[..]].concat();
        let theirs = lines(&newest.run(&args).success().stdout);
        let ours = ours(&file, &options);
        let rows = |lines: &[String]| -> Vec<String> {
            lines.iter().filter(|line| !line.starts_with('#')).cloned().collect()
        };
        assert_eq!(rows(&ours), rows(&theirs), "{recorder}");
        let busy = rows(&ours).iter().filter(|row| row.contains("groups_threads")).count();
        assert!(busy >= 3, "{recorder}: {ours:?}");
    }
}

/// Events of a pipe are known only when its samples come: the counts are the same.
#[test]
fn samples_of_a_leader_in_a_pipe_count_as_in_a_file() {
    if !require(&[Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("groups_pipe", SOURCE);
    let file = w.file("pipe.data");
    let group = ["-e", "{cpu-clock:u,page-faults:u}:S"];
    let words = [&["record", "-q", "-o", "-"], &group[..], &["--", w.arg()]].concat();
    let mut command = Command::new(KYMO);
    command.args(words).stdout(File::create(&file).unwrap());
    assert!(command.status().unwrap().success());
    let piped = |words: &[&str]| {
        let shell = ["-c", "cat \"$0\" | \"$@\"", &file, KYMO];
        run("sh", [&shell[..], words].concat()).success().stdout
    };
    for options in [&["-n", "--show-total-period"][..], &["--event", "page-faults:u"]] {
        let from_pipe = lines(&piped(&[&["report", "--stdio", "-i", "-"], options].concat()));
        assert_eq!(from_pipe, ours(&file, options), "{options:?}");
    }
    let query = "SELECT event, count(*), sum(period) FROM perf_sample GROUP BY 1 ORDER BY 1";
    let of_file = run(KYMO, ["sql", "--csv", &file, query]).success().stdout;
    assert_eq!(piped(&["sql", "--csv", "-", query]), of_file);
    assert!(of_file.contains("cpu-clock:u,") && of_file.contains("page-faults:u,"), "{of_file}");
    assert_eq!(piped(&["script", "-i", "-"]), run(KYMO, ["script", &file]).success().stdout);
}

#[test]
fn json_has_the_numbers_of_the_text() {
    if !require(&NEEDS) {
        return;
    }
    let (_w, file) = record("groups_json", &["-e", "{cpu-clock:u,page-faults:u}"]);
    let json = |more: &[&str]| -> Value {
        let args = [&["report", "--json", "-i", &file, "-s", "sym"], more].concat();
        serde_json::from_str(&run(KYMO, args).success().stdout).unwrap()
    };
    let together = json(&["--group"]);
    let events = together["events"].as_array().unwrap();
    assert_eq!(events.len(), 1);
    let text = ours(&file, &["-s", "sym", "-n", "--show-total-period", "-q"]);
    let entries = events[0]["entries"].as_array().unwrap();
    assert_eq!(entries.len(), text.len());
    for (entry, line) in entries.iter().zip(&text) {
        let group = entry["group"].as_array().unwrap();
        let names: Vec<&str> = group.iter().map(|g| g["event"].as_str().unwrap()).collect();
        assert_eq!(names, ["cpu-clock:u", "page-faults:u"]);
        let mut words = line.split_whitespace();
        for member in group {
            let percent = format!("{:.2}%", member["percent"].as_f64().unwrap());
            assert_eq!(words.next(), Some(percent.as_str()), "{line}");
        }
        for what in ["samples", "period"] {
            for member in group {
                let number = member[what].to_string();
                assert_eq!(words.next(), Some(number.as_str()), "{line}");
            }
        }
    }
    // Without the option nothing changes for who reads it.
    let apart = json(&[]);
    let names: Vec<&Value> =
        apart["events"].as_array().unwrap().iter().map(|e| &e["event"]).collect();
    assert_eq!(names, ["cpu-clock:u", "page-faults:u"]);
}
