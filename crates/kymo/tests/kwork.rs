//! `kymo kwork` of recordings of this machine: against models of the events that `kymo script`
//! shows, one of kymo's rules and two of perf's, and what perf kwork says against those; the same
//! of LTTng's kernel traces; halves without partner, nested interrupts, and losses.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod kernel_ctf;

use std::collections::{BTreeMap, HashMap};

use kernel_ctf::{CtfClass, CtfEvent, CtfWriter};
use kymo_testkit::{Need, Outcome, TracingState, newest_peers, peer, perf, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// Load that makes interrupts of a disk, softirqs and work items.
const LOAD: &str =
    "for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=big bs=1M count=2 conv=fsync; done; rm big";

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&kymo(args).stdout).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Raise,
    Entry,
    Exit,
}

/// An event as `kymo script` shows it.
struct Event {
    kind: &'static str,
    phase: Phase,
    id: u64,
    time: u64,
    cpu: u64,
    tid: u64,
}

fn events(path: &str) -> Vec<Event> {
    use Phase::{Entry, Exit, Raise};
    const EVENTS: [(&str, &str, Phase, &str); 8] = [
        ("irq:irq_handler_entry", "irq", Entry, "irq"),
        ("irq:irq_handler_exit", "irq", Exit, "irq"),
        ("irq:softirq_raise", "softirq", Raise, "vec"),
        ("irq:softirq_entry", "softirq", Entry, "vec"),
        ("irq:softirq_exit", "softirq", Exit, "vec"),
        ("workqueue:workqueue_activate_work", "workqueue", Raise, "work"),
        ("workqueue:workqueue_execute_start", "workqueue", Entry, "work"),
        ("workqueue:workqueue_execute_end", "workqueue", Exit, "work"),
    ];
    let text = kymo(&["script", "-i", path, "--json", "--ns"]).success().stdout;
    let event = |line: &str| {
        let e: Value = serde_json::from_str(line).unwrap();
        let (_, kind, phase, field) = EVENTS.iter().find(|(name, ..)| e["event"] == *name)?;
        let value = &e["fields"][field];
        let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        let id = value.as_u64().unwrap_or_else(|| hex(value.as_str().unwrap()));
        let (seconds, nanos) = e["time"].to_string().split_once('.').map(|(a, b)| {
            (a.parse::<u64>().unwrap(), format!("{b:0<9}").parse::<u64>().unwrap())
        })?;
        let time = seconds * 1_000_000_000 + nanos;
        // An interrupt of a task that has ended is of -1.
        let (cpu, tid) = (number(&e["cpu"]), e["tid"].as_i64().unwrap() as u64);
        Some(Event { kind, phase: *phase, id, time, cpu, tid })
    };
    text.lines().filter_map(event).collect()
}

/// Times of one piece of work on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Eq, Ord)]
struct Times {
    count: u64,
    total: u64,
    max: u64,
}

impl Times {
    fn add(&mut self, nanos: u64) {
        self.count += 1;
        self.total += nanos;
        self.max = self.max.max(nanos);
    }
}

/// Kind, CPU, number.
type Key = (&'static str, u64, u64);

#[derive(Clone, Copy, PartialEq)]
enum Rules {
    /// Delays count from the first raise; work items are known by themselves and their workers,
    /// wherever they are asked for, begin and end.
    Kymo,
    /// Everything is on one CPU; raises and begins without partner wait for any later one.
    Perf61,
    /// Everything is on one CPU; a raise or begin takes the place of the one before.
    Perf72,
}

/// Run times and delays by the rules.
fn model(events: &[Event], rules: Rules) -> [BTreeMap<Key, Times>; 2] {
    let mut runs: BTreeMap<Key, Times> = BTreeMap::new();
    let mut delays: BTreeMap<Key, Times> = BTreeMap::new();
    let mut raised: HashMap<Key, Vec<u64>> = HashMap::new();
    let mut open: HashMap<Key, Vec<(u64, u64)>> = HashMap::new();
    for e in events {
        let here = (e.kind, e.cpu, e.id);
        let is_free = rules == Rules::Kymo && e.kind == "workqueue";
        let anywhere = if is_free { (e.kind, u64::MAX, e.id) } else { here };
        let worker = if is_free { (e.kind, e.tid, e.id) } else { here };
        match e.phase {
            Phase::Raise => {
                let waiting = raised.entry(anywhere).or_default();
                match (rules, waiting.is_empty()) {
                    (Rules::Kymo, false) => {}
                    (Rules::Perf72, _) => *waiting = vec![e.time],
                    _ => waiting.push(e.time),
                }
            }
            Phase::Entry => {
                if let Some(time) = raised.get_mut(&anywhere).and_then(Vec::pop) {
                    delays.entry(here).or_default().add(e.time - time);
                }
                let begun = open.entry(worker).or_default();
                if rules != Rules::Perf61 {
                    begun.clear();
                }
                begun.push((e.time, e.cpu));
            }
            Phase::Exit => {
                if let Some((time, cpu)) = open.get_mut(&worker).and_then(Vec::pop) {
                    runs.entry((e.kind, cpu, e.id)).or_default().add(e.time - time);
                }
            }
        }
    }
    [runs, delays]
}

/// Rows of `--json` by kind, CPU and number.
fn rows(page: &Value, stats: &str) -> BTreeMap<Key, Times> {
    let kinds = ["irq", "softirq", "workqueue"];
    let row = |row: &Value| {
        let kind = kinds.into_iter().find(|kind| row["kind"] == *kind).unwrap();
        let s = &row[stats];
        let count = number(&s["count"]);
        let times = Times { count, total: number(&s["total_ns"]), max: s["max_ns"].as_u64()? };
        Some(((kind, number(&row["cpu"]), number(&row["id"])), times))
    };
    page["rows"].as_array().unwrap().iter().filter_map(row).collect()
}

/// The numbers are those of the events.
#[track_caller]
fn rows_are_the_models(path: &str) -> Vec<Event> {
    let events = events(path);
    let [runs, delays] = model(&events, Rules::Kymo);
    let page = json(&["kwork", "report", "--per-work", "--json", "-i", path]);
    assert_eq!(rows(&page, "runtime"), runs);
    assert_eq!(rows(&page, "delay"), delays);
    assert!(runs.len() > 5 && delays.len() > 3, "{runs:?}");
    // One row for each function has the same in all.
    let merged = json(&["kwork", "report", "--json", "-i", path]);
    let sum = |page: &Value, stats: &str| -> u64 {
        let rows = page["rows"].as_array().unwrap().iter();
        rows.map(|row| number(&row[stats]["total_ns"])).sum()
    };
    for stats in ["runtime", "delay"] {
        assert_eq!(sum(&merged, stats), sum(&page, stats));
    }
    assert!(merged["rows"].as_array().unwrap().len() <= page["rows"].as_array().unwrap().len());
    // Lines are the intervals of the table.
    let lines = kymo(&["kwork", "timehist", "--json", "-i", path]).stdout;
    let mut of_lines: [BTreeMap<(String, u64, u64), Times>; 2] = Default::default();
    for line in lines.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()) {
        if line["type"] != "kwork" {
            continue;
        }
        let key =
            (line["kind"].as_str().unwrap().to_owned(), number(&line["cpu"]), number(&line["id"]));
        of_lines[0].entry(key.clone()).or_default().add(number(&line["runtime_ns"]));
        if let Some(delay) = line["delay_ns"].as_u64() {
            of_lines[1].entry(key).or_default().add(delay);
        }
    }
    let text = |map: BTreeMap<Key, Times>| -> BTreeMap<(String, u64, u64), Times> {
        map.into_iter()
            .map(|((kind, cpu, id), times)| ((kind.to_owned(), cpu, id), times))
            .collect()
    };
    assert_eq!(of_lines[0], text(runs));
    // A delay whose interval does not end in the recording has no line.
    for (key, times) in text(delays) {
        let lines = of_lines[1].get(&key).copied().unwrap_or_default();
        assert!(lines.count <= times.count && lines.count + 1 >= times.count, "{key:?}");
    }
    events
}

/// Rows of perf's tables without their names, of which perf cuts some: CPU, total or mean time,
/// number, longest.
fn perf_rows(text: &str) -> Vec<(u64, String, u64, String)> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, cpu, first, count, max, ..] = cells[..] else { return None };
        let millis = |cell: &str| Some(cell.strip_suffix("ms")?.trim().to_owned());
        Some((cpu.parse().ok()?, millis(first)?, count.parse().ok()?, millis(max)?))
    };
    let mut rows: Vec<_> = text.lines().filter_map(row).collect();
    rows.sort();
    rows
}

/// Asserts that perf's output equals that of the model of perf's rules.
#[track_caller]
fn model_is_perfs(path: &str, perf: &dyn Fn(&[&str]) -> String, events: &[Event], rules: Rules) {
    let millis = |nanos: f64| format!("{:.3}", nanos / 1e6);
    let [runs, delays] = model(events, rules);
    for (command, times) in [("report", runs), ("latency", delays)] {
        let said = perf(&["kwork", "-k", "irq,softirq,workqueue", command, "-i", path]);
        let row = |((_, cpu, _), times): (&Key, &Times)| {
            let total = times.total as f64;
            let first = if command == "report" { total } else { total / times.count as f64 };
            (*cpu, millis(first), times.count, millis(times.max as f64))
        };
        let mut expected: Vec<_> = times.iter().map(row).collect();
        expected.sort();
        assert_eq!(perf_rows(&said), expected, "{command} {said}");
    }
}

#[test]
fn numbers_of_live_recordings_are_those_of_the_events_as_are_perfs() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Perf]) {
        return;
    }
    let state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let load = LOAD.replace("big", &path("big"));
    // Of everybody, as perf does it: it is short, and its directory is removed.
    let workload = ["--", "sh", "-c", &load];
    let (data, dat) = (path("a.data"), path("b.dat"));
    let _ = kymo(&[&["kwork", "record", "-q", "-m", "4M", "-o", &data], &workload[..]].concat())
        .success();
    let kinds = ["kwork", "-k", "irq,softirq,workqueue,sched", "record", "-q", "-o", &dat];
    let _ = kymo(&[&kinds, &workload[..]].concat()).success();
    let events = rows_are_the_models(&data);
    let _ = rows_are_the_models(&dat);
    model_is_perfs(&data, &|args| perf(args).stdout, &events, Rules::Perf61);
    if newest_peers().is_some() {
        let newest = peer("perf");
        model_is_perfs(&data, &|args| newest.run(args).stdout, &events, Rules::Perf72);
        // Run times are perf's row by row, with their names.
        let said = newest.run(["kwork", "report", "-i", &data]).stdout;
        let as_perf = directory.path().join("perf");
        std::os::unix::fs::symlink(KYMO, &as_perf).unwrap();
        let ours = run(&as_perf, ["kwork", "report", "--per-work", "-i", &data]).stdout;
        let names = |text: &str| {
            let row = |l: &str| {
                let cells: Vec<&str> = l.split('|').map(str::trim).collect();
                (cells.len() == 8 && cells[1].parse::<u64>().is_ok()).then(|| cells[0].to_owned())
            };
            let mut names: Vec<String> = text.lines().filter_map(row).collect();
            names.sort();
            names.dedup();
            names
        };
        assert_eq!(names(&ours), names(&said));
    }
    // The CPUs' time is attributed completely.
    let top = json(&["kwork", "top", "--json", "-i", &dat]);
    let sum = |name: &str| -> u64 {
        top["tasks"].as_array().unwrap().iter().map(|task| number(&task[name])).sum()
    };
    let total = &top["total"];
    let held = number(&total["irq_ns"]) + number(&total["softirq_ns"]);
    assert_eq!(sum("runtime_ns") + sum("held_up_ns"), number(&total["total_ns"]));
    // What runs when the recording ends is of a task whose time is not known.
    assert!(sum("held_up_ns") <= held && held > 0, "{top}");
    let none = kymo(&["kwork", "top", "-i", &data]).stdout;
    assert!(none.contains("there are no sched_switch events"), "{none}");
    assert_eq!(state.left_behind(), None);
}

const CLASSES: [CtfClass; 9] = [
    CtfClass { name: "irq_handler_entry", fields: &[("int32_t", "irq"), ("text", "name")] },
    CtfClass { name: "irq_handler_exit", fields: &[("int32_t", "irq"), ("int32_t", "ret")] },
    CtfClass { name: "irq_softirq_raise", fields: &[("uint32_t", "vec")] },
    CtfClass { name: "irq_softirq_entry", fields: &[("uint32_t", "vec")] },
    CtfClass { name: "irq_softirq_exit", fields: &[("uint32_t", "vec")] },
    CtfClass { name: "workqueue_activate_work", fields: &[("uint64_t", "work")] },
    CtfClass {
        name: "workqueue_execute_start",
        fields: &[("uint64_t", "work"), ("uint64_t", "function")],
    },
    CtfClass { name: "workqueue_execute_end", fields: &[("uint64_t", "work")] },
    CtfClass {
        name: "sched_switch",
        fields: &[
            ("text", "prev_comm"),
            ("int32_t", "prev_tid"),
            ("text", "next_comm"),
            ("int32_t", "next_tid"),
        ],
    },
];

const IRQ_ENTRY: usize = 0;
const IRQ_EXIT: usize = 1;
const RAISE: usize = 2;
const ENTRY: usize = 3;
const EXIT: usize = 4;
const ACTIVATE: usize = 5;
const START: usize = 6;
const END: usize = 7;
const SWITCH: usize = 8;

fn event(time: u64, cpu: u32, class: usize, values: &[u64]) -> CtfEvent {
    CtfEvent { time, cpu, class, values: values.to_vec() }
}

#[test]
fn halves_without_partner_are_counted_and_nested_interrupts_hold_up_softirqs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kernel");
    let events = [
        event(100, 0, EXIT, &[9]),
        event(110, 0, SWITCH, &[0, 0, 7, 7]),
        event(120, 0, RAISE, &[1]),
        event(130, 0, RAISE, &[1]),
        event(140, 0, ENTRY, &[1]),
        event(150, 0, IRQ_ENTRY, &[36, 36]),
        event(160, 0, IRQ_EXIT, &[36, 1]),
        event(200, 0, EXIT, &[1]),
        event(210, 0, ENTRY, &[9]),
        event(220, 0, ENTRY, &[9]),
        event(250, 0, EXIT, &[9]),
        event(300, 0, SWITCH, &[7, 7, 0, 0]),
        event(310, 0, ACTIVATE, &[0xabc]),
        // On another CPU than it is asked for.
        event(330, 1, START, &[0xabc, 0xf00]),
        event(390, 1, END, &[0xabc]),
        event(395, 1, RAISE, &[3]),
        event(396, 1, IRQ_ENTRY, &[5, 5]),
    ];
    CtfWriter { classes: &CLASSES, events: &events, packet: 4, without: &|_, _| false }
        .write(&path);
    let path = path.to_str().unwrap();
    let page = json(&["kwork", "report", "--per-work", "--json", "-i", path]);
    let halves = &page["halves"];
    let names = ["raises_only", "entries_only", "exits_only", "unraised", "repeated_raises"];
    assert_eq!(names.map(|name| number(&halves[name])), [1, 2, 1, 2, 1]);
    let times = |count, total, max| Times { count, total, max };
    let runs = rows(&page, "runtime");
    let expected = [
        (("irq", 0, 36), times(1, 10, 10)),
        (("softirq", 0, 1), times(1, 60, 60)),
        (("softirq", 0, 9), times(1, 30, 30)),
        (("workqueue", 1, 0xabc), times(1, 60, 60)),
    ];
    assert_eq!(runs, BTreeMap::from(expected));
    let expected =
        [(("softirq", 0, 1), times(1, 20, 20)), (("workqueue", 1, 0xabc), times(1, 20, 20))];
    assert_eq!(rows(&page, "delay"), BTreeMap::from(expected));
    let name = |kind: &str, id: u64| {
        let rows = page["rows"].as_array().unwrap();
        rows.iter().find(|r| r["kind"] == kind && r["id"] == id).unwrap()["name"].clone()
    };
    assert_eq!((name("irq", 36), name("softirq", 9)), ("t36:36".into(), "(s)RCU:9".into()));
    // Task 7 ran for 190 ns, of which softirqs took 60 and 30; the interrupt is in the first.
    let top = json(&["kwork", "top", "--json", "-i", path]);
    let task = &top["tasks"][0];
    assert_eq!((number(&task["tid"]), number(&task["runtime_ns"])), (7, 100));
    assert_eq!(number(&task["held_up_ns"]), 90);
    let total = &top["total"];
    assert_eq!(["total_ns", "irq_ns", "softirq_ns"].map(|n| number(&total[n])), [190, 0, 90]);
    // A kind alone, and a name.
    let one = json(&["kwork", "-k", "workqueue", "report", "--json", "-i", path]);
    assert_eq!(one["rows"].as_array().unwrap().len(), 1);
    let one = json(&["kwork", "report", "-n", "RCU", "--json", "-i", path]);
    assert_eq!(one["rows"].as_array().unwrap().len(), 1);
    // Packets of CPU 0 taken out in turn: an interval is that of all events, or marked.
    let complete: BTreeMap<u64, Value> = intervals(path);
    let (mut wrong, mut right) = (0, 0);
    for lost in 1..3 {
        let there = directory.path().join(format!("lossy-{lost}"));
        let without = |cpu: u32, packet: usize| cpu == 0 && packet == lost;
        CtfWriter { classes: &CLASSES, events: &events, packet: 3, without: &without }
            .write(&there);
        for (end, line) in intervals(there.to_str().unwrap()) {
            let truth = &complete[&end];
            let same = |name: &str| line[name] == truth[name] || line[name].is_null();
            match same("runtime_ns") && same("delay_ns") {
                true => right += 1,
                false if line["uncertain"] == true => wrong += 1,
                false => panic!("packet {lost}\n{line}\n{truth}"),
            }
        }
    }
    assert!(right > 2, "{right} {wrong}");
}

/// Lines by their ends.
fn intervals(path: &str) -> BTreeMap<u64, Value> {
    let text = kymo(&["kwork", "timehist", "--json", "-i", path]).stdout;
    let lines = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    lines.filter(|l| l["type"] == "kwork").map(|l| (number(&l["end_ns"]), l)).collect()
}

#[test]
fn what_is_missing_is_said() {
    let there = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/perf-data/x86_64/fp.data");
    let none = kymo(&["kwork", "report", "-i", there, "--strict"]).expect_status(3);
    assert!(none.stdout.contains("there are no events of interrupts"), "{}", none.stdout);
    assert!(none.stdout.contains("kymo kwork record"), "{}", none.stdout);
    let bad = kymo(&["kwork", "latency", "-s", "color", "-i", there]).failure();
    assert!(bad.stderr.contains("unknown key \"color\""), "{}", bad.stderr);
    let bad = kymo(&["kwork", "-k", "tasklet", "report", "-i", there]).failure();
    assert!(bad.stderr.contains("unknown kind \"tasklet\""), "{}", bad.stderr);
}
