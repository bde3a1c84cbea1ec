//! Answers about recordings in which events were lost on purpose, at many places: what is not
//! marked as uncertain is what the whole recording says, or is said to be unknown.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use kymo_files::perfdata::{PerfData, RecordOrder};
use kymo_model::{Attr, RecordKind, Sample, SampleType};
use kymo_testkit::{Need, NoIdleCpus, require, run};
use serde_json::{Map, Value};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 3] = [Need::Root, Need::Tracefs, Need::PerfEvents];
/// Places where events are lost.
const PLACES: usize = 24;

/// A sample in the file.
struct SamplePosition {
    offset: u64,
    size: usize,
    time: u64,
    tid: (u32, u32),
    id: u64,
    cpu: u32,
    attr: Attr,
}

/// The samples of a recording, by CPU and time.
fn places(file: &Path) -> BTreeMap<u32, Vec<SamplePosition>> {
    let mut data = PerfData::open(file).unwrap();
    let mut all: BTreeMap<u32, Vec<SamplePosition>> = BTreeMap::new();
    let _ = data
        .for_each(RecordOrder::File, &mut |entry| {
            if entry.raw.kind == RecordKind::SAMPLE {
                let attr = entry.desc().unwrap().attr.clone();
                let sample = Sample::parse(&entry.raw, &attr).unwrap();
                let place = SamplePosition {
                    offset: entry.offset,
                    size: entry.raw.body.len() + 8,
                    time: sample.time.unwrap(),
                    tid: sample.tid.unwrap(),
                    id: sample.id.unwrap(),
                    cpu: sample.cpu.unwrap(),
                    attr,
                };
                all.entry(place.cpu).or_default().push(place);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    all.values_mut().for_each(|list| list.sort_by_key(|p| p.time));
    all
}

/// Leaves of each CPU the samples from the first to the last call of futex of the process that calls
/// it most: on a busy machine the others are too many for a loss to fall among the locks.
fn among_locks(places: &mut BTreeMap<u32, Vec<SamplePosition>>) {
    let id = "/sys/kernel/tracing/events/syscalls/sys_enter_futex/id";
    let id: u64 = std::fs::read_to_string(id).unwrap().trim().parse().unwrap();
    let mut times: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for sample in places.values().flatten().filter(|sample| sample.attr.config == id) {
        times.entry(sample.tid.0).or_default().push(sample.time);
    }
    let of_process = times.into_values().max_by_key(Vec::len).unwrap();
    assert!(of_process.len() > 100, "{}", of_process.len());
    let (first, last) = (of_process.iter().min().unwrap(), of_process.iter().max().unwrap());
    places.values_mut().for_each(|list| list.retain(|s| (first..=last).contains(&&s.time)));
    places.retain(|_, list| !list.is_empty());
}

/// The kernel's record of one lost event, as large as the event was: what stands behind comes
/// from the time of the next event on the CPU.
fn lost(place: &SamplePosition, time: u64) -> Vec<u8> {
    let mut trailer: Vec<u64> = Vec::new();
    let tid = u64::from(place.tid.0) | u64::from(place.tid.1) << 32;
    for (flag, word) in [
        (SampleType::TID, tid),
        (SampleType::TIME, time),
        (SampleType::ID, place.id),
        (SampleType::STREAM_ID, place.id),
        (SampleType::CPU, place.cpu.into()),
        (SampleType::IDENTIFIER, place.id),
    ] {
        if place.attr.sample_type.contains(flag) {
            trailer.push(word);
        }
    }
    let mut words = vec![place.id, 1];
    words.resize((place.size - 8) / 8 - trailer.len(), 0);
    words.extend(trailer);
    let mut bytes = RecordKind::LOST.0.to_ne_bytes().to_vec();
    bytes.extend(0u16.to_ne_bytes());
    bytes.extend((place.size as u16).to_ne_bytes());
    words.iter().for_each(|w| bytes.extend(w.to_ne_bytes()));
    assert_eq!(bytes.len(), place.size);
    bytes
}

/// Values that identify a row.
type Key = Vec<String>;

/// Rows of an answer by what identifies them, without those that are marked.
fn rows(file: &Path, args: &[&str], key: &[&str]) -> BTreeMap<Key, Map<String, Value>> {
    let out = run(KYMO, [args, &["--json", "-i", file.to_str().unwrap()]].concat());
    assert!(out.status == 0, "{args:?}: {out:?}");
    let mut all = BTreeMap::new();
    let mut take = |row: Value| {
        let Value::Object(row) = row else { panic!("{row}") };
        if row.get("uncertain") == Some(&Value::Bool(true)) {
            return;
        }
        if key.iter().all(|k| row.contains_key(*k)) {
            let key = key.iter().map(|k| row[*k].to_string()).collect();
            all.insert(key, row);
        }
    };
    match args[1] {
        "report" => {
            let whole: Value = serde_json::from_str(&out.stdout).unwrap();
            whole["slowest"].as_array().unwrap().iter().cloned().for_each(take);
        }
        _ => out.stdout.lines().for_each(|l| take(serde_json::from_str(l).unwrap())),
    }
    all
}

/// Commands that show each thing that they count, and what identifies one.
const ANSWERS: [(&[&str], &[&str]); 4] = [
    (&["sched", "timehist"], &["type", "time_ns", "cpu", "tid"]),
    (&["kwork", "timehist"], &["kind", "name", "id", "cpu", "start_ns"]),
    (&["io", "timehist"], &["device", "sector", "op", "completed_ns"]),
    (&["syscalls", "report", "--slowest", "100000"], &["start_ns", "tid"]),
];

/// Removes the names of other tasks: a task that executed another program meanwhile has its old
/// name if that event was lost.
fn without_names(value: &Value) -> Value {
    let mut value = value.clone();
    for wait in value.as_array_mut().into_iter().flatten() {
        if let Some(by) = wait.get_mut("woken_by").and_then(Value::as_object_mut) {
            let _ = by.remove("comm");
        }
    }
    value
}

fn record(file: &Path, directory: &Path) {
    let events = [
        "sched:sched_switch",
        "sched:sched_waking",
        "sched:sched_wakeup_new",
        "sched:sched_migrate_task",
        "sched:sched_process_fork",
        "irq:irq_handler_entry",
        "irq:irq_handler_exit",
        "irq:softirq_raise",
        "irq:softirq_entry",
        "irq:softirq_exit",
        "workqueue:workqueue_activate_work",
        "workqueue:workqueue_execute_start",
        "workqueue:workqueue_execute_end",
        "block:block_rq_insert",
        "block:block_rq_issue",
        "block:block_rq_complete",
        "raw_syscalls:sys_enter",
        "raw_syscalls:sys_exit",
    ];
    let script = format!(
        "cd {}; for i in 1 2 3; do dd if=/dev/zero of=f bs=64k count=16 oflag=direct; cat f | wc -c; \
         done; sleep 0.05",
        directory.display()
    );
    let flags = ["record", "-q", "-a", "-c", "1", "-m", "4096", "-o", file.to_str().unwrap()];
    let events = ["-e", &events.join(",")];
    let _ = run(KYMO, [&flags[..], &events, &["--", "sh", "-c", &script]].concat()).success();
}

#[test]
fn what_is_not_marked_is_true() {
    if !require(&NEEDS) {
        return;
    }
    // Some kernels leave out events that happen in the idle task.
    let busy = NoIdleCpus::keep();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = directory.path().join("whole.data");
    record(&file, directory.path());
    drop(busy);
    let whole = std::fs::read(&file).unwrap();
    let places = places(&file);
    let truth: Vec<_> = ANSWERS.iter().map(|(args, key)| rows(&file, args, key)).collect();
    for (rows, (args, _)) in truth.iter().zip(ANSWERS) {
        assert!(rows.len() > 20, "{args:?}: {}", rows.len());
    }
    let cut = directory.path().join("cut.data");
    let mut marked = [0; ANSWERS.len()];
    for number in 0..PLACES {
        // Of one CPU or of all, few events or many, from the beginning to the end.
        let mut bytes = whole.clone();
        let many = [1, 2, 5, 20, 100, 400][number % 6];
        for list in places.values().skip(number % 3 / 2) {
            let first = list.len() * number / PLACES;
            let last = (first + many).min(list.len() - 1);
            for place in &list[first..last] {
                let at = place.offset as usize;
                bytes[at..at + place.size].copy_from_slice(&lost(place, list[last].time));
            }
        }
        std::fs::write(&cut, &bytes).unwrap();
        for (at, (args, key)) in ANSWERS.iter().enumerate() {
            let shown = rows(&cut, args, key);
            marked[at] += usize::from(shown.len() < truth[at].len());
            for (key, row) in &shown {
                let Some(full) = truth[at].get(key) else {
                    panic!("{args:?}, place {number}, {many} events lost: {row:?} is not there");
                };
                for (name, value) in row {
                    assert!(
                        value.is_null() || without_names(value) == without_names(&full[name]),
                        "{args:?}, place {number}: {name} of {row:?}: {full:?}"
                    );
                }
            }
        }
    }
    // Something was lost that was in them.
    assert!(marked.iter().all(|n| *n > 0), "{marked:?}");
}

/// Programs that allocate, and threads that wait for a lock.
const LOCKS: &str = "
import threading, time
lock = threading.Lock()
def work():
    for n in range(40):
        with lock:
            time.sleep(0.0005)
threads = [threading.Thread(target=work) for n in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
";

fn record_sums(file: &Path) {
    let events = [
        "sched:sched_switch",
        "sched:sched_waking",
        "sched:sched_wakeup_new",
        "sched:sched_process_fork",
        "kmem:kmalloc",
        "kmem:kfree",
        "kmem:kmem_cache_alloc",
        "kmem:kmem_cache_free",
        "kmem:mm_page_alloc",
        "kmem:mm_page_free",
        "syscalls:sys_enter_futex",
        "syscalls:sys_exit_futex",
    ];
    let flags = ["record", "-q", "-a", "-c", "1", "-m", "8192", "-o", file.to_str().unwrap()];
    let rest = ["-e", &events.join(","), "--", "python3", "-c", LOCKS];
    let _ = run(KYMO, [&flags[..], &rest].concat()).success();
}

/// Answers that add up, where rows are, and what identifies one.
const SUMS: [(&[&str], &[&str], &[&str]); 5] = [
    (&["sched", "latency", "-p"], &["tasks"], &["comm", "tid"]),
    (&["lock", "contention", "--futex"], &["futexes"], &["pid", "address"]),
    (&["kmem", "stat", "--slab", "--caller"], &["slab_callers"], &["callsite"]),
    (&["kmem", "stat", "--slab", "--alloc"], &["slab_addresses"], &["ptr"]),
    (&["kmem", "stat", "--page", "--caller"], &["page_callers"], &["callsite", "order", "gfp"]),
];

/// Numbers by their names, and what is uncertain of them taken off.
fn certain(row: &Map<String, Value>) -> BTreeMap<String, i64> {
    let mut all = BTreeMap::new();
    let mut take = |prefix: &str, members: &Map<String, Value>| {
        for (name, value) in members {
            // A percentile is no sum: without short waits it is longer.
            let is_percentile = ["p50", "p90", "p95", "p99"].iter().any(|p| name.starts_with(p));
            if let Some(n) = value.as_i64().filter(|_| !is_percentile) {
                let _ = all.insert(format!("{prefix}{name}"), n);
            }
        }
    };
    take("", row);
    for (name, value) in row {
        if let Value::Object(members) = value {
            take(&format!("{name}."), members);
        }
    }
    // What is marked, or no sum: a wait that began later is the longest of fewer.
    for (sum, uncertain) in
        [("live", "live_uncertain"), ("live_bytes", "live_uncertain_bytes"), ("kept", "kept")]
    {
        let doubt = all.get(uncertain).copied().unwrap_or(0);
        if let Some(sum) = all.get_mut(sum) {
            *sum -= doubt;
        }
    }
    if all.get("live_uncertain").is_some_and(|n| *n > 0) {
        let _ = all.remove("live_bytes");
    }
    const NO_SUMS: [&str; 6] = ["average", "p50", "p99", "max", "uncertain", "unknown"];
    const NAMES: [&str; 7] = ["tid", "pid", "tasks", "offset", "order", "gfp", "runtime_ns"];
    all.retain(|name, _| {
        !NO_SUMS.iter().any(|part| name.contains(part)) && !NAMES.contains(&name.as_str())
    });
    all
}

/// Rows of sums by what identifies them; the totals are one more.
fn sums(file: &Path, number: usize) -> BTreeMap<Key, BTreeMap<String, i64>> {
    let (args, path, key) = SUMS[number];
    let out = run(KYMO, [args, &["--json", "-i", file.to_str().unwrap()]].concat());
    assert!(out.status == 0, "{args:?}: {out:?}");
    let page: Value = serde_json::from_str(&out.stdout).unwrap();
    let mut all = BTreeMap::new();
    let list = path.iter().fold(&page, |page, name| &page[*name]);
    for row in list.as_array().unwrap() {
        let row = row.as_object().unwrap();
        let key: Key = key.iter().map(|k| row[*k].to_string()).collect();
        // Several rows may have one key: names of those that executed another program.
        for (name, n) in certain(row) {
            *all.entry(key.clone()).or_insert_with(BTreeMap::new).entry(name).or_insert(0) += n;
        }
    }
    if path.len() > 1 {
        let _ = all.insert(vec!["total".to_owned()], certain(page[path[0]].as_object().unwrap()));
    }
    all
}

/// Sums of the certain values never exceed the whole.
#[test]
fn no_sum_is_more_than_the_truth() {
    if !require(&NEEDS) {
        return;
    }
    let busy = NoIdleCpus::keep();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = directory.path().join("whole.data");
    record_sums(&file);
    drop(busy);
    let whole = std::fs::read(&file).unwrap();
    let mut places = places(&file);
    among_locks(&mut places);
    let truth: Vec<_> = (0..SUMS.len()).map(|n| sums(&file, n)).collect();
    for (rows, (args, ..)) in truth.iter().zip(SUMS) {
        assert!(rows.len() > 1, "{args:?}: {}", rows.len());
    }
    let cut = directory.path().join("cut.data");
    let mut less = [0; SUMS.len()];
    for number in 0..PLACES {
        // The places between are for answers that have lost nothing so far.
        let (is_more, place) = (number >= PLACES / 2, (2 * number + 1) % (PLACES + 1));
        if is_more && less.iter().all(|n| *n > 0) {
            break;
        }
        let mut bytes = whole.clone();
        let few = [20, 1000, 5, 4000, 100, 400][number % 6];
        for list in places.values().skip(number % 3 / 2) {
            // Together all of it.
            let many = if is_more { list.len() / (PLACES / 2) + 1 } else { few };
            let first = list.len() * place / PLACES;
            let last = (first + many).min(list.len() - 1);
            for place in &list[first..last] {
                let at = place.offset as usize;
                bytes[at..at + place.size].copy_from_slice(&lost(place, list[last].time));
            }
        }
        std::fs::write(&cut, &bytes).unwrap();
        for (at, (args, ..)) in SUMS.iter().enumerate() {
            let shown = sums(&cut, at);
            less[at] += usize::from(shown != truth[at]);
            for (key, row) in &shown {
                // Who lost its name, or the call that named its process, is another row.
                let Some(full) = truth[at].get(key) else { continue };
                for (name, n) in row {
                    let most = full.get(name).copied().unwrap_or(0);
                    // What has no partner is not known to be without one.
                    let is_half = name.starts_with("unmatched") || name.starts_with("reused");
                    assert!(
                        *n <= most || is_half,
                        "{args:?}, place {number}: {name} of {key:?} is {n}, \
                         at most {most}: {row:?}"
                    );
                }
            }
        }
    }
    assert!(less.iter().all(|n| *n > 0), "{less:?}");
}
