//! `kymo convert --to chrome`: its spans add up to the numbers of `kymo offcpu report`, and its
//! samples are those of `kymo convert -f folded`.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeMap;

use kymo_testkit::run;
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/perf-data/x86_64/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn convert(recording: &str) -> Value {
    let made = run(KYMO, ["convert", "--to", "chrome", recording]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    serde_json::from_str(&made.stdout).unwrap()
}

/// Microseconds with three digits behind the point, as nanoseconds.
fn nanos(value: &Value) -> u64 {
    (value.as_f64().unwrap() * 1000.0).round() as u64
}

#[test]
fn spans_add_up_to_the_numbers_of_offcpu() {
    let recording = fixture("sched.data");
    let trace = convert(&recording);
    let events = trace["traceEvents"].as_array().unwrap();
    let told = run(KYMO, ["offcpu", "report", "--json", "-i", &recording]).stdout;
    let told: Value = serde_json::from_str(&told).unwrap();
    let mut waits: BTreeMap<u64, i64> = BTreeMap::new();
    for e in events.iter().filter(|e| e["cat"] == "wait") {
        let name = e["name"].as_str().unwrap();
        if name.contains("uncertain") || name.contains("without an end") {
            continue;
        }
        let time = nanos(&e["ts"]) as i64;
        let signed = if e["ph"] == "b" { -time } else { time };
        *waits.entry(e["tid"].as_u64().unwrap()).or_default() += signed;
    }
    let mut runs: BTreeMap<u64, u64> = BTreeMap::new();
    for e in events.iter().filter(|e| e["cat"] == "sched") {
        *runs.entry(e["args"]["tid"].as_u64().unwrap()).or_default() += nanos(&e["dur"]);
    }
    let mut compared = 0;
    let mut told_waits: BTreeMap<u64, i64> = BTreeMap::new();
    let mut told_runs: BTreeMap<u64, u64> = BTreeMap::new();
    for task in told["tasks"].as_array().unwrap() {
        let of = |key: &str| task[key].as_u64().unwrap();
        *told_waits.entry(of("tid")).or_default() += (of("waiting_ns") + of("blocked_ns")) as i64;
        *told_runs.entry(of("tid")).or_default() += of("running_ns");
    }
    for (tid, nanos) in told_waits {
        assert_eq!(waits.get(&tid).copied().unwrap_or(0), nanos, "thread {tid}");
        compared += u32::from(nanos > 0);
    }
    assert!(compared > 3, "{compared}");
    // Runs that the recording does not end are drawn, and not counted there.
    for (tid, nanos) in told_runs {
        assert!(runs.get(&tid).copied().unwrap_or(0) >= nanos, "thread {tid}");
    }
}

#[test]
fn samples_have_their_stacks() {
    let recording = fixture("fp.data");
    let trace = convert(&recording);
    let frames = trace["stackFrames"].as_object().unwrap();
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for sample in trace["samples"].as_array().unwrap() {
        let mut names = Vec::new();
        let mut at = sample["sf"].as_str();
        while let Some(frame) = at.map(|id| &frames[id]) {
            names.push(frame["name"].as_str().unwrap().to_owned());
            at = frame["parent"].as_str();
        }
        names.reverse();
        *stacks.entry(names.join(";")).or_default() += 1;
    }
    let args = ["convert", "-f", "folded", "--weight", "samples", "--no-marks", &recording];
    let mut told: BTreeMap<String, u64> = BTreeMap::new();
    for line in run(KYMO, args).stdout.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let (_comm, stack) = stack.split_once(';').unwrap_or((stack, ""));
        *told.entry(stack.to_owned()).or_default() += count.parse::<u64>().unwrap();
    }
    assert!(told.values().sum::<u64>() > 100, "{told:?}");
    assert_eq!(stacks, told);
}

#[test]
fn what_a_timeline_cannot_be_of_is_refused() {
    let recording = fixture("sched.data");
    for (flag, why) in [("--pid=1", "all tasks"), ("--weight=samples", "--weight is for stacks")] {
        let refused = run(KYMO, ["convert", "--to", "chrome", flag, &recording]);
        assert_ne!(refused.status, 0);
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
}
