//! `kymo sched stats` on recordings that perf 7.2 made in a guest: each number is perf's.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeMap;

use kymo_testkit::{Need, page_with_ledger, peer, require, run, run_command};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const FILES: [&str; 2] =
    ["tests/fixtures/sched-stats/perf-7.2-a.data", "tests/fixtures/sched-stats/perf-7.2-b.data"];

/// Numbers of a row, by CPU, domain and counter, as they are printed.
type Rows = BTreeMap<(String, String), Vec<String>>;

fn rows(text: &str) -> Rows {
    let mut all = Rows::new();
    let mut part = String::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("CPU: ") {
            // The mean of all CPUs has a name of its own, and the domain's CPUs are not all listed.
            let title = title.replace("<ALL CPUS SUMMARY>", "all");
            let title = title.replace(" (mean of 2)", "").replace(" (mean of 2 and 2)", "");
            part = title;
        } else if let Some((name, numbers)) = line.split_once(" : ") {
            let is_number = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
            let numbers = numbers.split(|c| !is_number(c)).filter(|n| !n.is_empty());
            let numbers: Vec<String> = numbers.map(str::to_owned).collect();
            if !numbers.is_empty() {
                all.insert((part.clone(), name.trim().to_owned()), numbers);
            }
        }
    }
    all
}

#[track_caller]
fn both(args: &[&str]) -> (Rows, Rows) {
    let args = [&["sched", "stats"], args].concat();
    let mut theirs = peer("perf").command();
    let _ = theirs.args(&args);
    let theirs = rows(&run_command(theirs).success().stdout);
    (rows(&run(KYMO, &args).success().stdout), theirs)
}

#[test]
fn numbers_are_those_of_perf() {
    if !require(&[Need::NewestPeers]) {
        return;
    }
    for file in FILES {
        let (ours, theirs) = both(&["report", "-i", file]);
        // The time; nine counters and 48 of a domain, 6 of them derived, of two CPUs and the mean.
        assert_eq!(theirs.len(), 1 + 3 * (9 + 42), "{file}");
        assert_eq!(ours, theirs, "{file}");
    }
}

#[test]
fn differences_are_those_of_perf() {
    if !require(&[Need::NewestPeers]) {
        return;
    }
    let (ours, theirs) = both(&["diff", FILES[0], FILES[1]]);
    assert_eq!(theirs.len(), 1 + 9 + 42);
    assert_eq!(ours, theirs);
}

#[test]
fn json_and_the_selection_of_cpus_have_the_same_numbers() {
    let report = |args: &[&str]| {
        let all = [&["sched", "stats", "report", "-i", FILES[0]], args].concat();
        run(KYMO, all).success().stdout
    };
    let json = run(KYMO, ["sched", "stats", "report", "-i", FILES[0], "--json"]).success();
    let json = page_with_ledger(&json.stdout, &json.stderr);
    let measured = &json["measured"][0];
    assert_eq!((&measured["version"], &measured["jiffies"]), (&15.into(), &469.into()));
    let cpu = &measured["cpus"][1];
    assert_eq!((&cpu["cpu"], &cpu["sched_count"]), (&1.into(), &2179.into()));
    assert_eq!(cpu["domains"][0]["cpus"], "0-1");
    assert_eq!(cpu["domains"][0]["busy_lb_imbalance"], 676);
    assert_eq!(json["ledger"], serde_json::json!([]));
    let one = report(&["-C", "1"]);
    assert!(one.contains("\nCPU: 1\n") && !one.contains("\nCPU: 0\n"), "{one}");
    assert!(one.starts_with("Tasks ran 835.8 ms on 1 CPU and waited 3.8 s"), "{one}");
}

#[test]
fn other_files_are_refused_and_such_files_have_no_samples() {
    let bad = run(KYMO, ["sched", "stats", "report", "-i", "Cargo.toml"]);
    assert_eq!(bad.status, 1, "{}", bad.stderr);
    for command in [&["report"][..], &["script"], &["sched", "latency"], &["evlist"]] {
        let out = run(KYMO, [command, &["-i", FILES[0]]].concat());
        assert!(out.status <= 1, "{command:?}: {}", out.stderr);
        assert!(!out.stderr.contains("panicked"), "{command:?}: {}", out.stderr);
    }
}
