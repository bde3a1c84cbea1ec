//! `kymo data convert`: JSON beside perf's own, CTF as babeltrace2 reads it.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use kymo_testkit::{Need, Outcome, Workload, peer, perf, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 4] = [Need::Root, Need::Perf, Need::PerfEvents, Need::Tracefs];

#[track_caller]
fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

fn record(directory: &tempfile::TempDir, args: &[&str]) -> String {
    let path = directory.path().join("perf.data").display().to_string();
    let work = Workload::syscalls();
    // It sleeps: there are switches.
    let script = format!("{} 300; sleep 0.01", work.arg());
    let command = ["--", "sh", "-c", &script];
    let _ = perf([&["record", "-q", "-o", &path], args, &command].concat()).success();
    path
}

const EVENTS: &str = "sched:sched_switch,syscalls:sys_enter_getppid,syscalls:sys_enter_openat,\
                      cpu-clock";

fn json_of(outcome: Outcome, path: &str) -> Value {
    let _ = outcome.success();
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn json_is_perfs() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = record(&directory, &["-g", "-k", "mono", "-e", EVENTS]);
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (ours, theirs) = (path("ours.json"), path("theirs.json"));
    let args = |to| ["data", "convert", "-i", &data, "--to-json", to];
    let mine = json_of(kymo(&args(&ours)), &ours);
    // perf 7 has the fields of tracepoints, which 6.1 leaves out.
    let newest = peer("perf");
    let known = json_of(newest.run(args(&theirs)), &theirs);
    assert_eq!(mine["linux-perf-json-version"], known["linux-perf-json-version"]);
    assert_eq!(mine["headers"], known["headers"]);
    let samples = |of: &Value| of["samples"].as_array().unwrap().clone();
    let (mine, known) = (samples(&mine), samples(&known));
    assert_eq!(mine.len(), known.len());
    for (own, perf) in mine.iter().zip(&known) {
        for (name, value) in perf.as_object().unwrap() {
            match name.as_str() {
                "callchain" => chains_agree(&own[name], value),
                _ => assert_eq!(number(&own[name]), number(value), "{name}: {own} {perf}"),
            }
        }
        if newest.is_newest() {
            assert_eq!(own.as_object().unwrap().len(), perf.as_object().unwrap().len());
        }
    }
    assert!(mine.iter().any(|s| s["prev_comm"].is_string() && s["prev_prio"].is_string()));
    // What is there stays, unless it is to be replaced.
    let refused = kymo(&args(&ours)).failure();
    assert!(refused.stderr.contains("already exists"), "{refused:?}");
    let _ = kymo(&[&args(&ours)[..], &["--force"]].concat()).success();
    // A part of the time.
    let times: Vec<u64> = mine.iter().map(|s| s["timestamp"].as_u64().unwrap()).collect();
    let middle = times[times.len() / 2];
    let span = format!("{}.{:09},", middle / 1_000_000_000, middle % 1_000_000_000);
    let part = path("part.json");
    let late = json_of(kymo(&[&args(&part)[..], &["--time", &span]].concat()), &part);
    let due = times.iter().filter(|t| **t >= middle).count();
    assert_eq!(late["samples"].as_array().unwrap().len(), due);
}

/// A text that is a number, as its value: libtraceevent prints some as the event's own format
/// does (`0x00080000`).
fn number(value: &Value) -> Value {
    let Some(text) = value.as_str() else { return value.clone() };
    let hex = text.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    hex.or_else(|| text.parse().ok()).map_or_else(|| value.clone(), Value::from)
}

/// Asserts equal addresses, and equal names where both have one. Of several names of one address
/// each may choose another.
#[track_caller]
fn chains_agree(ours: &Value, theirs: &Value) {
    let (ours, theirs) = (ours.as_array().unwrap(), theirs.as_array().unwrap());
    let addresses = |of: &[Value]| of.iter().map(|f| f["ip"].clone()).collect::<Vec<_>>();
    assert_eq!(addresses(ours), addresses(theirs));
    for (own, perf) in ours.iter().zip(theirs) {
        if own["dso"].is_string() && perf["dso"].is_string() {
            assert_eq!(own["dso"], perf["dso"], "{own} {perf}");
        }
        if perf["symbol"].is_string() && perf["dso"] == "[kernel.kallsyms]" {
            assert!(own["symbol"].is_string(), "{own} {perf}");
        }
    }
}

/// Lines of babeltrace2 with times in cycles.
fn babeltrace(path: &str) -> Vec<String> {
    let out = peer("babeltrace2").run(["--clock-cycles", "--no-delta", path]).success();
    assert_eq!(out.stderr, "");
    out.stdout.lines().map(str::to_owned).collect()
}

/// The value of a field in a line, up to the next one.
fn field<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let (_, rest) = line.split_once(&format!(" {name} = "))?;
    let text = rest.strip_prefix('"').and_then(|rest| rest.split('"').next());
    text.or_else(|| rest.split([',', ' ']).next())
}

#[test]
fn a_ctf_trace_has_the_events_that_script_and_perf_show() {
    if !require(&NEEDS) || !require(&[Need::Babeltrace]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = record(&directory, &["-g", "-k", "mono", "-e", EVENTS]);
    let path = |name: &str| directory.path().join(name).display().to_string();
    let convert = |to: &str, more: &[&str]| {
        let args = ["data", "convert", "-i", &data, "--to-ctf", to];
        let _ = kymo(&[&args[..], more].concat()).success();
    };
    let (plain, v2, all) = (path("plain"), path("v2"), path("all"));
    convert(&plain, &[]);
    convert(&all, &["--all"]);
    let lines = babeltrace(&plain);
    // Each event as `script` has it.
    let script = kymo(&["script", "--json", "--no-inline", "-i", &data]).success().stdout;
    let events: Vec<Value> =
        script.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), events.len());
    for (line, event) in lines.iter().zip(&events) {
        let time = line.split(['[', ']']).nth(1).unwrap().trim_start_matches('0').to_owned();
        let stated = event["time"].to_string().replace('.', "");
        assert_eq!(time.trim_end_matches('0'), stated.trim_end_matches('0'), "{line} {event}");
        let name = event["event"].as_str().unwrap();
        let cpu = event["cpu"].as_u64().unwrap_or(0);
        assert!(line.contains(&format!("] {name}: {{ cpu_id = {cpu} }}")), "{line}");
        assert_eq!(field(line, "perf_tid").unwrap(), event["tid"].to_string(), "{line}");
        let chain = event["callchain"].as_array().map_or(0, Vec::len);
        let marks =
            line.matches("0xFFFFFFFFFFFFFE00").count() + line.matches("0xFFFFFFFFFFFFFF80").count();
        let count: usize = field(line, "perf_callchain_size").unwrap().parse().unwrap();
        assert_eq!(count - marks, chain, "{line} {event}");
        for (name, value) in event["fields"].as_object().into_iter().flatten() {
            let shown = field(line, name).unwrap_or_else(|| panic!("{name}: {line}"));
            let shown = match shown.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).unwrap().to_string(),
                None => shown.to_owned(),
            };
            let stated = match value.as_str() {
                Some(text) => match text.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16).unwrap().to_string(),
                    None => text.to_owned(),
                },
                None => value.to_string(),
            };
            assert_eq!(shown, stated, "{name}: {line} {event}");
        }
    }
    // kymo reads it, too, and both versions are the same to readers.
    convert(&v2, &["--ctf", "2"]);
    assert!(std::fs::read(format!("{v2}/metadata")).unwrap().starts_with(b"\x1e{"));
    let script = |path: &str| kymo(&["script", "--ns", path]).success().stdout;
    assert_eq!(script(&v2), script(&plain));
    assert_eq!(script(&plain).lines().count(), events.len());
    if peer("babeltrace2").is_newest() {
        assert_eq!(babeltrace(&v2), lines);
    }
    // With tasks and mappings, the number that perf writes (which has its own for the kernel).
    let whole = babeltrace(&all);
    let of = |lines: &[String], name: &str| {
        lines.iter().filter(|l| l.contains(&format!(" {name}: "))).count()
    };
    for name in ["perf_comm", "perf_exit", "perf_mmap2"] {
        assert!(of(&whole, name) > 0, "{name}");
    }
    let theirs = path("theirs");
    let out = perf(["data", "convert", "-i", &data, "--all", "--to-ctf", &theirs]);
    if out.status == 0 {
        let known = babeltrace(&theirs);
        for name in ["perf_comm", "perf_exit", "perf_fork", "perf_mmap2", "sched:sched_switch"] {
            assert_eq!(of(&whole, name), of(&known, name), "{name}");
        }
    }
    // Times since 1970.
    let real = path("real");
    convert(&real, &["--tod"]);
    let first = peer("babeltrace2").run(["--clock-seconds", &real]).success().stdout;
    let first: f64 = first.split(['[', ']']).nth(1).unwrap().parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!((0.0..3600.0).contains(&(now.as_secs_f64() - first)), "{first}");
}
