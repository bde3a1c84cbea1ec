//! `--histogram` of delays, system calls and interrupts: each duration is in the row that it
//! belongs to, and quantiles are those of `--json`.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeMap;

use kymo_testkit::{Need, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// A duration as the answers show it.
fn shown(nanos: u64) -> String {
    let n = nanos as f64;
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.1} us", n / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", n / 1e6),
        _ => format!("{:.1} s", n / 1e9),
    }
}

/// The lines of the histogram with this title: quantiles, and numbers by begin of the row.
#[track_caller]
fn histogram(text: &str, title: &str) -> (String, BTreeMap<String, u64>) {
    let start = format!("\n  {title}: ");
    let (_, rest) = text.split_once(&start).unwrap_or_else(|| panic!("{title}: {text}"));
    let mut lines = rest.lines().skip(1);
    let quantiles = lines.next().unwrap().trim().to_owned();
    let rows = lines.take_while(|l| !l.is_empty()).filter(|l| l.contains(" | ")).map(|line| {
        let (span, bar) = line.split_once(" | ").unwrap();
        let count = bar.trim().split(' ').next().unwrap().parse().unwrap();
        assert!(bar.contains('█'), "{line}");
        (span.split(" - ").next().unwrap().trim().to_owned(), count)
    });
    (quantiles, rows.collect())
}

#[track_caller]
fn has_quantiles(line: &str, of: &Value) {
    for name in ["p50", "p99", "max"] {
        let nanos = of[format!("{name}_ns")].as_u64().unwrap();
        assert!(line.contains(&format!("{name} {}", shown(nanos))), "{line}: {of}");
    }
}

#[test]
fn each_duration_is_in_its_row() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("all.data").to_str().unwrap().to_owned();
    let events = "sched:sched_switch,sched:sched_waking,sched:sched_wakeup_new,\
                  raw_syscalls:sys_enter,raw_syscalls:sys_exit,irq:softirq_raise,\
                  irq:softirq_entry,irq:softirq_exit";
    let script = "for i in 1 2 3 4 5; do cat /etc/passwd > /dev/null; sleep 0.01; done";
    let args = ["record", "-q", "-a", "-c", "1", "-m", "4096", "-o", &file, "-e", events, "--"];
    let _ = run(KYMO, [&args[..], &["sh", "-c", script]].concat()).success();
    let text = |args: &[&str]| {
        let out = run(KYMO, [args, &["--histogram", "-i", &file]].concat()).success();
        format!("{}\n\n", out.stdout)
    };
    let json = |args: &[&str]| -> Value {
        let out = run(KYMO, [args, &["--json", "-i", &file]].concat()).success();
        serde_json::from_str(&out.stdout).unwrap()
    };
    // The calls themselves, each with its time.
    let calls = ["syscalls", "report", "--slowest", "100000"];
    let page = json(&calls);
    let call = &page["calls"][0];
    let name = call["syscall"].as_str().unwrap();
    let (quantiles, rows) = histogram(&text(&["syscalls", "report"]), name);
    has_quantiles(&quantiles, call);
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    let own = page["slowest"].as_array().unwrap().iter().filter(|c| c["syscall"] == name);
    for nanos in own.map(|c| c["duration_ns"].as_u64().unwrap()) {
        let begin = if nanos < 16 { 0 } else { 1u64 << nanos.ilog2() };
        *expected.entry(shown(begin)).or_insert(0) += 1;
    }
    assert_eq!(rows, expected, "{name}");
    // Waits for a CPU.
    let total = &json(&["sched", "latency"])["total"]["woken"];
    let (quantiles, rows) = histogram(&text(&["sched", "latency"]), "waits after a wake-up");
    has_quantiles(&quantiles, total);
    assert_eq!(rows.values().sum::<u64>(), total["count"].as_u64().unwrap());
    // Softirqs.
    for (command, what) in [("report", "runtime"), ("latency", "delay")] {
        let page = json(&["kwork", command, "-s", "count"]);
        let row = &page["rows"][0];
        let title = format!("{} on CPU {}", row["name"].as_str().unwrap(), row["cpu"]);
        let (quantiles, rows) = histogram(&text(&["kwork", command, "-s", "count"]), &title);
        has_quantiles(&quantiles, &row[what]);
        assert_eq!(rows.values().sum::<u64>(), row[what]["count"].as_u64().unwrap(), "{row:#}");
    }
}
