//! `kymo report --latency`: shares of the time that passed, beside those of perf on the same
//! recording, and by the switches that `script` shows.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use std::collections::{BTreeMap, BTreeSet};

use kymo_testkit::{Need, Workload, peer, require, run, run_command};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const SOURCE: &str = include_str!("programs/phases.c");

/// Rows, and the headings of the columns, without spaces that only align them.
fn rows(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|l| !l.starts_with("# Total") && !l.trim().is_empty());
    let plain = lines.filter(|l| !l.starts_with('#') || l.contains("Overhead"));
    plain.map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn latencies_are_perfs_and_those_of_the_switches() {
    if !require(&[Need::PerfEvents, Need::Gcc, Need::NewestPeers]) {
        return;
    }
    let w = Workload::compile("phases", SOURCE);
    let file = w.file("perf.data");
    let record = ["record", "--latency", "-q", "-e", "cpu-clock", "-F", "2000", "-o", &file];
    let _ = run(KYMO, [&record[..], &["--", w.arg()]].concat()).success();
    for more in [
        &["--latency", "-s", "parallelism"][..],
        &["--latency", "-s", "comm,sym"],
        &["--latency", "--parallelism", "2", "-s", "sym"],
        &["--latency", "--parallelism", "1", "-s", "parallelism,sym"],
        &["-s", "overhead,parallelism,sym"],
        &["-F", "latency,overhead,parallelism,sym"],
    ] {
        let args = [&["report", "--stdio", "-i", &file], more].concat();
        let ours = run(KYMO, &args).success().stdout;
        let mut theirs = peer("perf").command();
        theirs.args(&args);
        let theirs = run_command(theirs).success().stdout;
        assert!(rows(&ours).len() > 1, "{more:?}: {ours}");
        let (ours, theirs) = (rows(&ours), rows(&theirs));
        let missing: Vec<_> = theirs.difference(&ours).collect();
        let extra: Vec<_> = ours.difference(&theirs).collect();
        assert!(missing.is_empty() && extra.is_empty(), "{more:?}: {missing:#?} {extra:#?}");
    }
    // Who runs, by the lines of `script`.
    let shown = ["--show-switch-events", "--show-task-events"];
    let lines = run(KYMO, [&["script", "-F", "tid,event", "-i", &file], &shown[..]].concat());
    let mut runs: BTreeMap<u64, bool> = BTreeMap::new();
    let mut samples: BTreeMap<u64, u64> = BTreeMap::new();
    for line in lines.success().stdout.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let tid: u64 = words[0].parse().unwrap();
        match words[1] {
            exit if exit.starts_with("PERF_RECORD_EXIT(") => {
                let ended = exit.split([':', ')']).nth(1).unwrap();
                runs.remove(&ended.parse().unwrap());
            }
            other if other.starts_with("PERF_RECORD_") && other != "PERF_RECORD_SWITCH" => {}
            "PERF_RECORD_SWITCH" => _ = runs.insert(tid, words[2] == "IN"),
            _ => {
                runs.entry(tid).or_insert(true);
                let running = runs.values().filter(|r| **r).count() as u64;
                *samples.entry(running.max(1)).or_default() += 1;
            }
        }
    }
    let args = ["report", "--json", "--latency", "-s", "parallelism", "-i", &file];
    let page: Value = serde_json::from_str(&run(KYMO, args).success().stdout).unwrap();
    let entries = page["events"][0]["entries"].as_array().unwrap();
    let number = |e: &Value, name: &str| e[name].as_u64().unwrap();
    let ours: BTreeMap<u64, u64> =
        entries.iter().map(|e| (number(e, "parallelism"), number(e, "samples"))).collect();
    assert_eq!(ours, samples);
    assert!(ours.contains_key(&1), "{ours:?}");
    for e in entries {
        assert_eq!(number(e, "latency"), number(e, "period") / number(e, "parallelism"));
    }
    let all: f64 = entries.iter().map(|e| e["latency_percent"].as_f64().unwrap()).sum();
    assert!((all - 100.0).abs() < 1e-6, "{page:#}");
}

#[test]
fn without_switches_it_is_refused() {
    if !require(&[Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("phases", SOURCE);
    let file = w.file("perf.data");
    let record = ["record", "-q", "-e", "cpu-clock", "-o", &file, "--", w.arg()];
    let _ = run(KYMO, record).success();
    for flags in [&["--latency"][..], &["-s", "parallelism"], &["--parallelism", "1-3"]] {
        let refused = run(KYMO, [&["report", "-i", &file], flags].concat());
        assert_eq!(refused.status, 1);
        let advice = "record it with `kymo record --latency`";
        assert!(refused.stderr.contains(advice), "{}", refused.stderr);
    }
    let refused = run(KYMO, ["report", "-i", &file, "--parallelism", "0-2"]);
    assert_eq!(refused.status, 2);
    assert!(refused.stderr.contains("nor a range of them"), "{}", refused.stderr);
}
