//! `kymo sched stats` on a kernel that has `/proc/schedstat`: what it says lies between
//! what the file says around it, and the counting is switched off again.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::fs;

use kymo_testkit::{Need, Workload, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const SWITCH: &str = "/proc/sys/kernel/sched_schedstats";

/// Sum over the CPUs of time slices and of run time, as the kernel counts them.
fn totals() -> (u64, u64) {
    let text = fs::read_to_string("/proc/schedstat").unwrap();
    let cpus = text.lines().filter(|l| l.starts_with("cpu"));
    let words = cpus.map(|l| l.split(' ').skip(1).map(|w| w.parse().unwrap()).collect());
    let all: Vec<Vec<u64>> = words.collect();
    (all.iter().map(|w| w[8]).sum(), all.iter().map(|w| w[6]).sum())
}

fn measured(json: &Value) -> (u64, u64) {
    let cpus = json["measured"][0]["cpus"].as_array().unwrap();
    let sum = |name: &str| cpus.iter().map(|c| c[name].as_u64().unwrap()).sum();
    (sum("pcount"), sum("rq_cpu_time"))
}

#[test]
fn counters_of_a_command_are_the_kernels() {
    if !require(&[Need::Root, Need::Gcc]) {
        return;
    }
    let before = fs::read_to_string(SWITCH).unwrap();
    let w = Workload::syscalls();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    let file = file.to_str().unwrap();
    let around = totals();
    let live = ["sched", "stats", "--json", "--", w.arg(), "200000"];
    let live: Value = serde_json::from_str(&run(KYMO, live).success().stdout).unwrap();
    let record = ["sched", "stats", "record", "-o", file, "--", w.arg(), "200000"];
    let said = run(KYMO, record).success().stderr;
    assert!(said.contains("sched stats: wrote"), "{said}");
    let after = totals();
    let report = ["sched", "stats", "report", "--json", "-i", file];
    let report: Value = serde_json::from_str(&run(KYMO, report).success().stdout).unwrap();
    let (live, report) = (measured(&live), measured(&report));
    let most = (after.0 - around.0, after.1 - around.1);
    assert!(live.0 > 0 && live.1 > 1_000_000, "{live:?}");
    assert!(report.0 > 0 && report.1 > 1_000_000, "{report:?}");
    assert!(live.0 + report.0 <= most.0, "{live:?} {report:?} {most:?}");
    assert!(live.1 + report.1 <= most.1, "{live:?} {report:?} {most:?}");
    assert_eq!(fs::read_to_string(SWITCH).unwrap(), before);
    // A file that is no recording stays.
    fs::write(file, "mine").unwrap();
    let refused = run(KYMO, ["sched", "stats", "record", "-o", file, "--", "true"]);
    assert_ne!(refused.status, 0);
    assert_eq!(fs::read_to_string(file).unwrap(), "mine");
}
