//! `kymo convert --to chrome` and `--to perfetto`: their spans add up to the numbers of
//! `kymo offcpu report`, and their samples are those of `kymo convert -f folded`.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod kernel_ctf;

use std::collections::BTreeMap;

use kernel_ctf::{CtfClass, CtfEvent, CtfWriter};
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

/// A trace.dat has thread ids alone, and so have threads that switches name; samples have both.
#[test]
fn threads_whose_process_is_not_known_are_said() {
    let dat = format!("{}/tests/fixtures/trace-dat/x86_64/ring.dat", env!("CARGO_MANIFEST_DIR"));
    let recordings = [(dat, true), (fixture("sched.data"), true), (fixture("fp.data"), false)];
    for (recording, is_said) in recordings {
        let made = run(KYMO, ["convert", "--to", "chrome", &recording]);
        assert_eq!(made.stderr.contains("not known: each is shown"), is_said, "{}", made.stderr);
    }
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
    let reported = run(KYMO, ["offcpu", "report", "--json", "-i", &recording]).stdout;
    let reported: Value = serde_json::from_str(&reported).unwrap();
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
    let mut reported_waits: BTreeMap<u64, i64> = BTreeMap::new();
    let mut reported_runs: BTreeMap<u64, u64> = BTreeMap::new();
    for task in reported["tasks"].as_array().unwrap() {
        let of = |key: &str| task[key].as_u64().unwrap();
        *reported_waits.entry(of("tid")).or_default() +=
            (of("waiting_ns") + of("blocked_ns")) as i64;
        *reported_runs.entry(of("tid")).or_default() += of("running_ns");
    }
    for (tid, nanos) in reported_waits {
        assert_eq!(waits.get(&tid).copied().unwrap_or(0), nanos, "thread {tid}");
        compared += u32::from(nanos > 0);
    }
    assert!(compared > 3, "{compared}");
    // Runs that the recording does not end are drawn, and not counted there.
    for (tid, nanos) in reported_runs {
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
    let mut reported: BTreeMap<String, u64> = BTreeMap::new();
    for line in run(KYMO, args).stdout.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let (_comm, stack) = stack.split_once(';').unwrap_or((stack, ""));
        *reported.entry(stack.to_owned()).or_default() += count.parse::<u64>().unwrap();
    }
    assert!(reported.values().sum::<u64>() > 100, "{reported:?}");
    assert_eq!(stacks, reported);
}

/// Fields of a message: numbers, and bytes of what is within.
#[derive(Debug)]
enum Field<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut n, mut shift) = (0, 0);
    loop {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        n |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return n;
        }
        shift += 7;
    }
}

/// A decoder of protocol buffers that knows their wire format alone.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            2 => {
                let size = varint(&mut bytes) as usize;
                let (own, rest) = bytes.split_at(size);
                bytes = rest;
                Field::Bytes(own)
            }
            wire => panic!("wire type {wire}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn messages(bytes: &[u8], number: u64) -> Vec<&[u8]> {
    let own = fields(bytes).into_iter().filter(|f| f.0 == number);
    own.filter_map(|f| if let Field::Bytes(b) = f.1 { Some(b) } else { None }).collect()
}

/// A number; one that is zero is left out.
fn number(bytes: &[u8], number: u64) -> u64 {
    let found = fields(bytes).into_iter().find(|f| f.0 == number);
    found.map_or(0, |f| if let Field::Number(n) = f.1 { n } else { panic!("{number}") })
}

fn text(bytes: &[u8], number: u64) -> String {
    String::from_utf8(messages(bytes, number)[0].to_vec()).unwrap()
}

#[test]
fn perfetto_has_the_same_runs_wakeups_and_stacks() {
    let directory = tempfile::tempdir().unwrap();
    let made = |recording: &str, name: &str| {
        let file = directory.path().join(name);
        let path = file.to_str().unwrap();
        let made = run(KYMO, ["convert", recording, "-o", path]);
        assert_eq!(made.status, 0, "{}", made.stderr);
        std::fs::read(file).unwrap()
    };
    let recording = fixture("sched.data");
    let trace = made(&recording, "a.perfetto-trace");
    let chrome = convert(&recording);
    // Who runs from one switch to the next, by thread.
    let mut runs: BTreeMap<u64, u64> = BTreeMap::new();
    let mut now: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut woken = 0;
    let mut names = BTreeMap::new();
    for packet in messages(&trace, 1) {
        for tree in messages(packet, 2) {
            for thread in messages(tree, 2) {
                names.insert(number(thread, 1), text(thread, 2));
            }
        }
        for bundle in messages(packet, 1) {
            let cpu = number(bundle, 1);
            for event in messages(bundle, 2) {
                let time = number(event, 1);
                woken += messages(event, 20).len();
                for switch in messages(event, 4) {
                    if let Some((tid, since)) = now.insert(cpu, (number(switch, 6), time)) {
                        assert_eq!(tid, number(switch, 2), "at {time}");
                        *runs.entry(tid).or_default() += time - since;
                    }
                }
            }
        }
    }
    runs.remove(&0);
    let mut reported: BTreeMap<u64, u64> = BTreeMap::new();
    let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
    for e in chrome["traceEvents"].as_array().unwrap() {
        if e["cat"] == "sched" {
            let tid = e["args"]["tid"].as_u64().unwrap();
            *reported.entry(tid).or_default() += nanos(&e["dur"]);
            let end = nanos(&e["ts"]) + nanos(&e["dur"]);
            ends.entry(tid).and_modify(|t| *t = end.max(*t)).or_insert(end);
        } else if e["name"] == "thread_name" && e["pid"] != i32::MAX {
            let name = e["args"]["name"].as_str().unwrap();
            assert_eq!(names.get(&e["tid"].as_u64().unwrap()).map(String::as_str), Some(name));
        }
    }
    // Who runs at the end is not switched away. Whom the last event switches to has no run.
    for (tid, since) in now.values().filter(|(tid, _)| *tid != 0) {
        if let Some(end) = ends.get(tid).filter(|end| *end > since) {
            *runs.entry(*tid).or_default() += end - since;
        }
    }
    assert!(reported.len() > 3, "{reported:?}");
    for (tid, nanos) in &reported {
        // Times of the other file are doubles.
        assert!(runs[tid].abs_diff(*nanos) < 2000, "thread {tid}: {} {nanos}", runs[tid]);
    }
    assert!(woken > 10, "{woken}");
    // Stacks.
    let recording = fixture("fp.data");
    let trace = made(&recording, "b.pftrace");
    let mut strings = BTreeMap::new();
    let mut frames = BTreeMap::new();
    let mut stacks = BTreeMap::new();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut weight = 0;
    for packet in messages(&trace, 1) {
        for interned in messages(packet, 12) {
            messages(interned, 5).iter().for_each(|s| _ = strings.insert(number(s, 1), text(s, 2)));
            messages(interned, 6)
                .iter()
                .for_each(|f| _ = frames.insert(number(f, 1), number(f, 2)));
            for stack in messages(interned, 7) {
                let ids = fields(stack).into_iter().filter(|f| f.0 == 2);
                let ids = ids.map(|f| if let Field::Number(n) = f.1 { n } else { panic!() });
                let names: Vec<&str> = ids.map(|id| strings[&frames[&id]].as_str()).collect();
                stacks.insert(number(stack, 1), names.join(";"));
            }
        }
        for sample in messages(packet, 135) {
            *counts.entry(stacks[&number(sample, 6)].clone()).or_default() += 1;
            assert_eq!(number(sample, 10), 1);
            weight += number(sample, 11);
        }
    }
    let mut reported: BTreeMap<String, u64> = BTreeMap::new();
    let args = ["convert", "-f", "folded", "--weight", "samples", "--no-marks", &recording];
    for line in run(KYMO, args).stdout.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let (_comm, stack) = stack.split_once(';').unwrap();
        *reported.entry(stack.to_owned()).or_default() += count.parse::<u64>().unwrap();
    }
    assert_eq!(counts, reported);
    let reported = run(KYMO, ["convert", "-f", "folded", "--no-marks", &recording]).stdout;
    let reported = reported.lines().map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    assert_eq!(weight, reported.sum::<u64>());
}

/// Thread, name, begin and end.
type Slice = (u64, String, u64, u64);

#[test]
fn perfetto_has_the_spans_of_programs() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("spans.pftrace");
    let recording =
        format!("{}/tests/fixtures/ctf/x86_64/kymo-session", env!("CARGO_MANIFEST_DIR"));
    let _ = run(KYMO, ["convert", &recording, "-o", file.to_str().unwrap()]).success();
    let trace = std::fs::read(file).unwrap();
    // Slices by thread: the name of each, and when it began and ended.
    let mut tracks: BTreeMap<u64, u64> = BTreeMap::new();
    let mut open: BTreeMap<u64, (String, u64)> = BTreeMap::new();
    let mut shown: Vec<Slice> = Vec::new();
    for packet in messages(&trace, 1) {
        for track in messages(packet, 60) {
            let tid = match messages(track, 4).first() {
                Some(thread) => number(thread, 2),
                None => tracks[&number(track, 5)],
            };
            assert!(tracks.insert(number(track, 1), tid).is_none(), "two tracks of one number");
        }
        for event in messages(packet, 11) {
            let (track, time) = (number(event, 11), number(packet, 8));
            match number(event, 9) {
                1 if text(event, 22) == "program" => {
                    // No other one is open on its track.
                    assert!(open.insert(track, (text(event, 23), time)).is_none());
                }
                2 => {
                    let ended = open.remove(&track);
                    shown.extend(ended.map(|(name, from)| (tracks[&track], name, from, time)));
                }
                _ => {}
            }
        }
    }
    let mut reported = Vec::new();
    let mut begun: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for line in run(KYMO, ["script", "-i", &recording, "--json"]).stdout.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let name = line["event"].as_str().unwrap();
        let Some(id) = line["fields"]["id"].as_u64() else { continue };
        let tid = line["tid"].as_u64().unwrap();
        // Nine digits behind the point.
        let time = (line["time"].as_f64().unwrap() * 1e9).round() as u64;
        match name {
            "request:begin" => _ = begun.insert((tid, id), time),
            "request:end" => {
                let from = begun.remove(&(tid, id)).unwrap();
                reported.push((tid, "request".to_owned(), from, time));
            }
            _ => {}
        }
    }
    shown.retain(|s| s.1 == "request");
    shown.sort();
    reported.sort();
    assert!(reported.len() > 5, "{reported:?}");
    // Seconds are doubles in the lines.
    let near = |(a, b): (&Slice, &Slice)| {
        a.0 == b.0 && a.2.abs_diff(b.2) < 1000 && a.3.abs_diff(b.3) < 1000
    };
    assert!(
        shown.len() == reported.len() && shown.iter().zip(&reported).all(near),
        "{shown:?} {reported:?}"
    );
}

/// The wall clock's time as perf reads it of the recording: seconds since 1970, and of the
/// clock of its times at that moment.
#[test]
fn perfetto_has_the_wall_clock() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("clock.pftrace");
    let _ = run(KYMO, ["convert", &fixture("kymo.data"), "-o", file.to_str().unwrap()]).success();
    let trace = std::fs::read(file).unwrap();
    let snapshots = messages(&trace, 1).into_iter().flat_map(|packet| messages(packet, 6));
    let clocks: Vec<BTreeMap<u64, u64>> = snapshots
        .map(|s| messages(s, 1).iter().map(|c| (number(c, 1), number(c, 2))).collect())
        .collect();
    assert_eq!(clocks.len(), 1);
    // `# reference time: … = 1795374818.494812 (TOD) = 3792.466725969 (monotonic)`
    let (wall, monotonic) = (1_795_374_818_494_812_000, 3_792_466_725_969);
    let offset = clocks[0][&1] - clocks[0][&6];
    // perf shows microseconds of the former.
    assert!(offset.abs_diff(wall - monotonic) < 1000, "{clocks:?}");
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

const TASK: [(&str, &str); 2] = [("text", "comm"), ("int32_t", "tid")];
const CLASSES: [CtfClass; 4] = [
    CtfClass {
        name: "sched_switch",
        fields: &[
            ("text", "prev_comm"),
            ("int32_t", "prev_tid"),
            ("uint64_t", "prev_state"),
            ("text", "next_comm"),
            ("int32_t", "next_tid"),
        ],
    },
    CtfClass { name: "sched_waking", fields: &TASK },
    CtfClass { name: "sched_wakeup", fields: &TASK },
    CtfClass { name: "sched_wakeup_new", fields: &TASK },
];

/// A switch or wake-up: time in microseconds, field of its kind in an event of ftrace, tasks, state.
type Change = (u64, u64, u64, u64, u64);

const SWITCH: u64 = 4;
const WAKEUP: u64 = 17;
const WAKING: u64 = 20;
const WAKEUP_NEW: u64 = 114;

/// Some kernels do not report switches from idle tasks. What is in the recording is in the export,
/// each event as what it is, and what is missing is said as by the answers.
#[test]
fn switches_without_those_before_them_are_exported() {
    let directory = tempfile::tempdir().unwrap();
    let changes: [Change; 10] = [
        (0, SWITCH, 0, 1, 0),
        (100, WAKING, 2, 0, 0),
        (110, WAKEUP, 2, 0, 0),
        (200, SWITCH, 1, 0, 1),
        // From the idle task to the second one is missing.
        (300, SWITCH, 2, 3, 2),
        (350, WAKEUP_NEW, 4, 0, 0),
        // A second wake-up of a task that runs ends no wait.
        (360, WAKEUP, 3, 0, 0),
        (400, SWITCH, 3, 0, 1),
        (500, SWITCH, 4, 0, 16),
        (600, SWITCH, 1, 0, 0),
    ];
    let event = |(time, kind, one, other, state): &Change| {
        let kinds = [SWITCH, WAKING, WAKEUP, WAKEUP_NEW];
        let class = kinds.iter().position(|k| k == kind).unwrap();
        let values = match class {
            0 => vec![*one, *one, *state, *other, *other],
            _ => vec![*one, *one],
        };
        CtfEvent { time: 1_000_000_000 + time * 1000, cpu: 0, class, values }
    };
    let events: Vec<CtfEvent> = changes.iter().map(event).collect();
    let path = directory.path().join("kernel");
    CtfWriter { classes: &CLASSES, events: &events, packet: 100, without: &|_, _| false }
        .write(&path);
    let (path, file) = (path.to_str().unwrap(), directory.path().join("missing.pftrace"));
    let _ = run(KYMO, ["convert", path, "-o", file.to_str().unwrap()]).success();
    let trace = std::fs::read(file).unwrap();
    let mut exported: Vec<Change> = Vec::new();
    for bundle in messages(&trace, 1).into_iter().flat_map(|packet| messages(packet, 1)) {
        for event in messages(bundle, 2) {
            let time = (number(event, 1) - 1_000_000_000) / 1000;
            for s in messages(event, SWITCH) {
                exported.push((time, SWITCH, number(s, 2), number(s, 6), number(s, 4)));
            }
            for kind in [WAKING, WAKEUP, WAKEUP_NEW] {
                for wakeup in messages(event, kind) {
                    exported.push((time, kind, number(wakeup, 2), 0, 0));
                }
            }
        }
    }
    assert_eq!(exported, changes);
    // In the other format ends of runs without a start are instants on their CPU.
    let chrome = run(KYMO, ["convert", "--to", "chrome", "--strict", path]).expect_status(3);
    let page: Value = serde_json::from_str(&chrome.stdout).unwrap();
    let ends: Vec<(u64, String)> = page["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|e| e["ph"] == "i")
        .map(|e| (nanos(&e["ts"]) / 1000 - 1_000_000, e["name"].as_str().unwrap().to_owned()))
        .filter(|(_, name)| name.ends_with("(start not recorded)"))
        .collect();
    let end = |time, name: &str| (time, format!("{name} (start not recorded)"));
    assert_eq!(ends, [end(300, "t2"), end(500, "t4"), end(600, "t1")]);
    let said = "3 switches from idle tasks are missing";
    assert!(chrome.stderr.contains(said), "{}", chrome.stderr);
    let latency = run(KYMO, ["sched", "latency", "-i", path]).success();
    assert!(latency.stdout.contains(said), "{latency:?}");
}
