//! `kymo offcpu` of a program that measures its own waits: what kymo counts for each function
//! that waits is what the program measured, by frame pointers, by unwinding and of a trace.dat;
//! and times of a task add up.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

#[allow(dead_code, reason = "the model of delays is for the tests of sched")]
mod sched_model;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use kymo_testkit::{
    Need, NoIdleCpus, Outcome, QuotaCgroup, TracingState, page_with_ledger, perf, require, run,
};
use sched_model::{CtfTrace, SchedRecord};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wait_programs/waits.c");
const FIXTURE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/perf-data/x86_64/sched.data");
const NEEDS: [Need; 5] = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Perf, Need::Gcc];

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

fn compile(directory: &Path, name: &str, flags: &[&str]) -> String {
    let program = directory.join(name).to_str().unwrap().to_owned();
    let all = [flags, &["-O1", "-g", "-o", &program, PROGRAM]].concat();
    assert!(Command::new("gcc").args(all).status().unwrap().success());
    program
}

/// Waits as measured by the program, by kind.
fn measured(said: &str) -> BTreeMap<String, u64> {
    let line = |l: &str| l.split_once(' ').map(|(k, n)| (k.to_owned(), n.parse().unwrap()));
    let all: BTreeMap<String, u64> = said.lines().filter_map(line).collect();
    assert_eq!(all.len(), 6, "{said}");
    all
}

fn report(path: &str, comm: &str) -> Value {
    let args = ["offcpu", "report", "--json", "--comm", comm, "-i", path];
    serde_json::from_str(&kymo(&args).success().stdout).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// Running, waiting and blocked is the time from the first to the last moment, of each task.
#[track_caller]
fn times_add_up(page: &Value) {
    assert!(!array(&page["tasks"]).is_empty());
    for task in array(&page["tasks"]) {
        let of = |name: &str| number(&task[name]);
        let sum = of("running_ns") + of("waiting_ns") + of("blocked_ns") + of("uncertain_ns");
        assert!(sum.abs_diff(of("wall_ns")) * 100 <= of("wall_ns"), "{task}");
        assert_eq!(sum.abs_diff(of("wall_ns")), of("missing_ns"));
    }
    let waits = |state: &str| -> u64 {
        let causes = array(&page["causes"]).iter().filter(|c| c["state"] == state);
        causes.map(|c| number(&c["total_ns"])).sum()
    };
    assert_eq!(waits("blocked"), number(&page["total"]["blocked_ns"]));
    assert_eq!(waits("waiting"), number(&page["total"]["waiting_ns"]));
    let cells: u64 = array(&page["stacks"]).iter().map(|s| number(&s["total_ns"])).sum();
    assert_eq!(cells, waits("blocked") + waits("waiting"));
}

/// The time off CPU in each function that waits is what the program measured around its call, but
/// for what it ran there: that is less than all the time it ran (and a thousandth for the rates of
/// the two clocks). Where the kernel left out a switch from its idle task, as some do at times, the
/// end of a wait and the run after it are reported as uncertain.
#[track_caller]
fn functions_waited(page: &Value, measured: &BTreeMap<String, u64>) {
    let total = &page["total"];
    let running = number(&total["running_ns"]) + number(&total["uncertain_ns"]);
    for (kind, wall) in measured {
        let function = format!("wait_{kind}");
        let in_it = |s: &&Value| array(&s["stack"]).iter().any(|f| *f == *function);
        let cells: Vec<&Value> = array(&page["stacks"]).iter().filter(in_it).collect();
        let off: u64 = cells.iter().map(|s| number(&s["total_ns"])).sum();
        assert!(off <= wall + wall / 1000, "{kind}: {off} of {wall}");
        assert!(off + running + wall / 1000 >= *wall, "{kind}: {off} of {wall}, ran {running}");
        // A child that ends before it is waited for is no wait.
        let least = wall / 2;
        let of_kind = |s: &&&Value| s["cause"] == **kind;
        let blocked: u64 = cells.iter().filter(of_kind).map(|s| number(&s["total_ns"])).sum();
        assert!(blocked > 0 && (blocked >= least || running + off > least), "{kind}: {blocked}");
        let causes: Vec<&Value> = cells.iter().map(|s| &s["cause"]).collect();
        let known =
            |c: &&Value| [kind.as_str(), "woken", "preempted"].contains(&c.as_str().unwrap());
        assert!(causes.iter().all(known), "{kind}: {causes:?}");
    }
}

/// Asserts the wakers: each wait was ended by the function that wrote.
#[track_caller]
fn wakers_are_who_wrote(page: &Value) {
    let cells = array(&page["stacks"]);
    let waker = |cause: &str, function: &str| {
        let has = |s: &&Value| {
            let stack = s["waker"]["stack"].as_array();
            s["cause"] == cause && stack.is_some_and(|s| s.iter().any(|f| *f == *function))
        };
        cells.iter().filter(has).map(|s| number(&s["count"])).sum::<u64>()
    };
    assert!(waker("pipe", "vfs_write") >= 6, "{cells:#?}");
    assert!(waker("socket", "vfs_write") >= 6);
    assert!(waker("child", "do_exit") >= 6);
    let timers = |s: &&Value| s["cause"] == "sleep" && s["waker"]["context"] != "task";
    assert!(cells.iter().any(|s| timers(&s)));
}

#[test]
fn waits_are_those_that_the_program_measured() {
    if !require(&NEEDS) {
        return;
    }
    let state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let framed = compile(directory.path(), "waitframe", &["-fno-omit-frame-pointer"]);
    let bare = compile(directory.path(), "waitbare", &["-fomit-frame-pointer"]);
    // By frame pointers.
    let data = path("fp.data");
    let said = kymo(&["offcpu", "record", "-q", "-o", &data, "--", &framed]).success().stdout;
    let page = report(&data, "waitframe");
    times_add_up(&page);
    functions_waited(&page, &measured(&said));
    wakers_are_who_wrote(&page);
    // Unwound: the stacks reach the start of the program.
    let data = path("dwarf.data");
    let how = ["--call-graph", "dwarf,4096"];
    let record = [&["offcpu", "record", "-q", "-o", &data], &how[..], &["--", &bare]].concat();
    let said = kymo(&record).success().stdout;
    let page = report(&data, "waitbare");
    times_add_up(&page);
    functions_waited(&page, &measured(&said));
    let in_pipe = |s: &&Value| array(&s["stack"]).iter().any(|f| f == "wait_pipe");
    let from_main = |s: &Value| array(&s["stack"]).iter().any(|f| f == "main");
    assert!(array(&page["stacks"]).iter().filter(in_pipe).all(from_main));
    // Through the ftrace ring, with the kernel's stacks: causes are found from them.
    let dat = path("ring.dat");
    let said = kymo(&["offcpu", "record", "-q", "-o", &dat, "--", &framed]).success().stdout;
    let page = report(&dat, "waitframe");
    times_add_up(&page);
    let causes: BTreeMap<&str, u64> = array(&page["causes"])
        .iter()
        .map(|c| (c["cause"].as_str().unwrap(), number(&c["total_ns"])))
        .collect();
    let of = |name: &str| number(&page["total"][name]);
    let other = of("running_ns") + of("waiting_ns") + of("uncertain_ns");
    for (kind, wall) in measured(&said) {
        // Children sleep, and are waited for beside what is measured.
        if ["futex", "pipe", "socket", "poll"].contains(&kind.as_str()) {
            let blocked = causes[kind.as_str()];
            assert!(blocked <= wall + wall / 1000, "{kind}: {blocked} of {wall}");
            assert!(blocked + other + wall / 1000 >= wall, "{kind}: {blocked} of {wall}");
        }
    }
    wakers_are_who_wrote(&page);
    // What perf records is read as well.
    let data = path("perf.data");
    let events = "sched:sched_switch,sched:sched_waking,sched:sched_wakeup_new";
    // Its pass for build-ids (without -B) crashes at times when processes end meanwhile.
    let record =
        ["record", "-q", "-a", "-g", "-B", "-c", "1", "-e", events, "-o", &data, "--", &framed];
    let said = perf(record).success().stdout;
    let page = report(&data, "waitframe");
    times_add_up(&page);
    functions_waited(&page, &measured(&said));
    assert_eq!(state.left_behind(), None);
}

#[test]
fn text_has_the_answer_the_causes_and_the_stacks() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "waittext", &["-fno-omit-frame-pointer"]);
    let data = directory.path().join("a.data").to_str().unwrap().to_owned();
    let _ = kymo(&["offcpu", "record", "-q", "-o", &data, "--", &program]).success();
    let args = ["offcpu", "report", "--comm", "waittext", "-i", &data, "--tasks"];
    let text = kymo(&args).success().stdout;
    let first = text.lines().find(|l| !l.is_empty()).unwrap();
    assert!(first.contains(" tasks were off CPU for ") && first.contains(" of it "), "{first}");
    for line in ["  running", "  blocked: futex", "  blocked: pipe", "  sleeping", "  together"] {
        assert!(text.lines().any(|l| l.starts_with(line)), "{line}:\n{text}");
    }
    assert!(text.contains("--blocked: futex") && text.contains("  waittext:"), "{text}");
    // From the caller on, and from the function that waits on.
    let order = |text: &str| {
        let tree = text.split_once("--blocked: futex").unwrap().1.to_owned();
        (tree.find("wait_futex").unwrap(), tree.find("futex_wait").unwrap())
    };
    let (user, kernel) = order(&text);
    assert!(user < kernel, "{text}");
    let inverted = kymo(&[&args[..], &["-G"]].concat()).success().stdout;
    let tree = inverted.split_once("--blocked: futex").unwrap().1;
    assert!(tree.find("__futex_wait").unwrap() < tree.find("wait_futex\n").unwrap());
    assert!(text.contains("Waiters and wakers") && text.contains("woken by "), "{text}");
    let next = text.lines().find(|l| l.contains("kymo script -i")).unwrap();
    let shown: Vec<&str> = next.split_once("kymo ").unwrap().1.split(' ').collect();
    assert!(kymo(&shown).success().stdout.contains("sched_switch"), "{next}");
    // A part of the time has a part of the waits, and adds up as well.
    let whole = report(&data, "waittext");
    let args = ["offcpu", "report", "--json", "--comm", "waittext", "-i", &data];
    let halves = ["0%-50%", "50%-100%"].map(|half| -> Value {
        let text = kymo(&[&args[..], &["--time", half]].concat()).success().stdout;
        serde_json::from_str(&text).unwrap()
    });
    let off = |page: &Value, name: &str| number(&page["total"][name]);
    for name in ["running_ns", "blocked_ns", "waiting_ns"] {
        let sum = off(&halves[0], name) + off(&halves[1], name);
        assert!(sum.abs_diff(off(&whole, name)) < 1000, "{name}: {sum} {}", whole["total"]);
    }
    assert!(off(&halves[0], "blocked_ns") > 0 && off(&halves[1], "blocked_ns") > 0);
}

/// Events of the recording that is kept.
fn records() -> Vec<SchedRecord> {
    let text = kymo(&["script", "-i", FIXTURE, "--json"]).success().stdout;
    text.lines().filter_map(|l| SchedRecord::parse(&serde_json::from_str(l).unwrap())).collect()
}

#[test]
fn without_stacks_and_with_losses_it_is_said() {
    let page = |path: &str| -> Value {
        let out = kymo(&["offcpu", "report", "--json", "-i", path]);
        page_with_ledger(&out.stdout, &out.stderr)
    };
    let kept = page(FIXTURE);
    let fact = |page: &Value, kind: &str| {
        array(&page["ledger"]).iter().any(|n| n["kind"] == kind && n["doubt"] == true)
    };
    assert!(fact(&kept, "stacks"), "{}", kept["ledger"]);
    times_add_up(&kept);
    let causes: Vec<&Value> = array(&kept["causes"]).iter().map(|c| &c["cause"]).collect();
    // The states show stopped tasks and idle workers; the others are unknown.
    let told = ["preempted", "woken", "new", "idle-worker", "stopped", "blocked"];
    assert!(causes.iter().all(|c| told.contains(&c.as_str().unwrap())), "{causes:?}");
    // The same events of LTTng, complete and with a packet lost.
    let directory = tempfile::tempdir().unwrap();
    let records = records();
    let complete = |_: u32, _: usize| false;
    let lost = |cpu: u32, packet: usize| cpu == 1 && packet == 6;
    let trace = |name: &str, without: &dyn Fn(u32, usize) -> bool| {
        let path = directory.path().join(name).join("kernel");
        CtfTrace { records: &records, packet: 12, stacks: false, without }.write(&path);
        page(path.to_str().unwrap())
    };
    let whole = trace("whole", &complete);
    assert_eq!(whole["causes"], kept["causes"]);
    assert_eq!(whole["total"], kept["total"]);
    let holed = trace("holed", &lost);
    let uncertain: u64 = array(&holed["causes"]).iter().map(|c| number(&c["uncertain"])).sum();
    assert!(uncertain > 0 && number(&holed["total"]["uncertain_ns"]) > 0 && fact(&holed, "lost"));
    let total = |page: &Value| number(&page["total"]["blocked_ns"]);
    assert!(total(&holed) < total(&whole));
    let args = ["offcpu", "report", "-i", FIXTURE, "--strict"];
    assert!(kymo(&args).expect_status(3).stdout.contains("no sched_switch event has a stack"));
    let none = FIXTURE.replace("sched.data", "fp.data");
    let none = kymo(&["offcpu", "report", "-i", &none, "--strict"]).expect_status(3);
    assert!(none.stdout.contains("kymo offcpu record"), "{}", none.stdout);
}

/// Number and time of the waits of each thread by the records of switches, as perf prints them,
/// in nanoseconds, and those of preemptions.
fn recorded_waits(text: &str) -> BTreeMap<u64, [u64; 4]> {
    let (mut left, mut all) = (BTreeMap::new(), BTreeMap::<u64, [u64; 4]>::new());
    let mut ended = std::collections::BTreeSet::new();
    for line in text.lines().filter(|l| l.contains("PERF_RECORD_")) {
        // A task that has exited is switched, too, until it is gone.
        let task = |kind: &str| -> Option<u64> {
            line.split_once(kind)?.1.split_once(')')?.0.split_once(':')?.1.parse().ok()
        };
        if let Some(tid) = task("PERF_RECORD_EXIT(") {
            left.remove(&tid);
            ended.insert(tid);
        } else if let Some(tid) = task("PERF_RECORD_FORK(") {
            ended.remove(&tid);
        }
        if !line.contains("PERF_RECORD_SWITCH") {
            continue;
        }
        let (head, switch) = line.split_once("PERF_RECORD_SWITCH").unwrap();
        let words: Vec<&str> = head.split_whitespace().collect();
        let [.., tid, time] = words[..] else { panic!("{line}") };
        // The last switch of an ended task has -1.
        let Some(tid) = tid.parse::<u64>().ok().filter(|tid| !ended.contains(tid)) else {
            continue;
        };
        let time: u64 = time.trim_end_matches(':').replace('.', "").parse().unwrap();
        if switch.contains("OUT") {
            left.insert(tid, (time, switch.contains("preempt")));
        } else if let Some((from, preempted)) = left.remove(&tid) {
            let row = all.entry(tid).or_default();
            let at = if preempted { 2 } else { 0 };
            row[at] += 1;
            row[at + 1] += time - from;
        }
    }
    all
}

/// Records of switches that `perf record --switch-events` makes: what they state is counted, what
/// they do not is reported.
#[test]
fn switch_records_without_events_are_counted() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let command = "sleep 0.03; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.02";
    let record = |file: &str, more: &[&str]| {
        let args = [&["record", "-q", "--switch-events", "-o", file], more, &["sh", "-c", command]];
        let _ = perf(args.concat()).success();
        let shown = ["--show-switch-events", "--show-task-events", "-F", "tid,time"];
        let text = perf([&["script", "--ns", "-i", file], &shown[..]].concat());
        recorded_waits(&text.success().stdout)
    };
    let page = |file: &str| -> Value {
        let out = kymo(&["offcpu", "report", "--json", "-i", file]).success();
        page_with_ledger(&out.stdout, &out.stderr)
    };
    let cause = |page: &Value, cause: &str| {
        let rows = array(&page["causes"]).iter().filter(|row| row["cause"] == cause);
        rows.fold((0, 0), |(n, t), row| (n + number(&row["count"]), t + number(&row["total_ns"])))
    };
    for more in [&["-e", "cpu-clock"][..], &["-e", "cpu-clock", "-a"]] {
        let file = path("records.data");
        let expected = record(&file, more);
        let page = page(&file);
        times_add_up(&page);
        let sum = |n: usize| expected.iter().filter(|(t, _)| **t != 0).map(|(_, r)| r[n]).sum();
        // A wait that a child begins with is of its own kind, and what misses a record of none.
        let uncertain: u64 = array(&page["causes"]).iter().map(|c| number(&c["uncertain"])).sum();
        for (name, at) in [("blocked", 0), ("preempted", 2)] {
            let (ours, theirs) = (cause(&page, name), (sum(at), sum(at + 1)));
            let is_less = ours.0 <= theirs.0 && ours.1 <= theirs.1;
            let is_near = is_less && theirs.0 - ours.0 <= uncertain;
            assert!(is_near, "{more:?} {name}: {ours:?} for {theirs:?}: {page:#}");
            assert!(uncertain > 0 || ours == theirs, "{more:?} {name}: {ours:?} for {theirs:?}");
        }
        let slept = array(&page["tasks"]).iter().filter(|row| row["comm"] == "sleep");
        let slept: u64 = slept.map(|row| number(&row["blocked_ns"])).sum();
        assert!(slept >= 50_000_000, "{page:#}");
        let facts = array(&page["ledger"]).iter().map(|n| n["fact"].as_str().unwrap());
        let facts = facts.collect::<Vec<_>>().join("; ");
        assert!(facts.contains("switch records have no stacks"), "{facts}");
        assert!(facts.contains("no events of wake-ups"), "{facts}");
    }
    let cut = kymo(&["offcpu", "report", "--time", "10%-50%", "-i", &path("records.data")]);
    assert!(cut.failure().stderr.contains("switch records"));
    // Beside events of the same switches, which say more, the events count: as often.
    let both = path("both.data");
    let expected = record(&both, &["-e", "sched:sched_switch", "-a"]);
    let page = page(&both);
    let facts = page["ledger"].to_string();
    assert!(!facts.contains("switch records have no stacks"), "{facts}");
    for row in array(&page["tasks"]).iter().filter(|row| row["comm"] == "sleep") {
        // Both take the time of the same switch, one after the other.
        let [_, blocked, _, preempted] = expected[&number(&row["tid"])];
        let ours = number(&row["blocked_ns"]) + number(&row["waiting_ns"]);
        assert!(ours + ours / 4 > blocked + preempted, "{blocked} {preempted}: {row}");
    }
}

/// Events of a command's tasks alone state when a task left its CPU, not when it came back: the
/// records have the times, the events the stacks.
#[test]
fn of_records_and_events_of_some_tasks_the_records_have_the_times() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let command = "sleep 0.03; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.02";
    let (stacked, some) = (path("stacked.data"), path("some.data"));
    let of_sleep = ["--filter", "prev_comm == \"sleep\""];
    for (file, more) in [(&stacked, &["-g"][..]), (&some, &[&of_sleep[..], &["-a"]].concat())] {
        let args = ["record", "-q", "--switch-events", "-o", file, "-e", "sched:sched_switch"];
        let _ = perf([&args[..], more, &["sh", "-c", command]].concat()).success();
        let shown = ["--show-switch-events", "--show-task-events", "-F", "tid,time"];
        let text = perf([&["script", "--ns", "-i", file], &shown[..]].concat()).success();
        let mut expected = recorded_waits(&text.stdout);
        expected.remove(&0);
        let out = kymo(&["offcpu", "report", "--json", "-i", file]).success();
        let page = page_with_ledger(&out.stdout, &out.stderr);
        times_add_up(&page);
        let mut slept = 0;
        for row in array(&page["tasks"]).iter().filter(|row| number(&row["uncertain_ns"]) == 0) {
            let of_task = expected.get(&number(&row["tid"])).copied().unwrap_or_default();
            let [_, blocked, _, preempted] = of_task;
            // A new task waits for its first run, which no record begins.
            let waiting = number(&row["waiting_ns"]);
            assert_eq!(number(&row["blocked_ns"]), blocked, "{row}");
            assert!(waiting >= preempted, "{preempted}: {row}");
            slept += if row["comm"] == "sleep" { blocked } else { 0 };
        }
        assert!(slept >= 50_000_000, "{page:#}");
        let facts = page["ledger"].to_string();
        assert!(facts.contains("sched_switch are of some tasks only"), "{facts}");
    }
    // The stack of the event right before the record has the cause.
    let out = kymo(&["offcpu", "report", "--json", "-i", &stacked]).success();
    let page: Value = serde_json::from_str(&out.stdout).unwrap();
    let sleeps = array(&page["causes"]).iter().filter(|row| row["cause"] == "sleep");
    let slept: u64 = sleeps.map(|row| number(&row["total_ns"])).sum();
    assert!(slept >= 50_000_000, "{page:#}");
    // A part of the recording is of the events, whose missing runs are uncertain.
    let cut = ["offcpu", "report", "--json", "--time", "10%-90%", "-i", &stacked];
    let page: Value = serde_json::from_str(&kymo(&cut).stdout).unwrap();
    assert!(number(&page["total"]["uncertain_ns"]) > 0, "{page:#}");
}

#[test]
fn of_switches_of_some_tasks_what_is_not_uncertain_is_true() {
    let directory = tempfile::tempdir().unwrap();
    let text = kymo(&["script", "-i", FIXTURE, "--json"]).success().stdout;
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let rows = |name: &str, wants: &dyn Fn(&Value) -> bool| -> BTreeMap<u64, [u64; 4]> {
        let wanted = lines.iter().filter(|l| wants(l));
        let records: Vec<SchedRecord> = wanted.filter_map(SchedRecord::parse).collect();
        let path = directory.path().join(name).join("kernel");
        CtfTrace { records: &records, packet: 1000, stacks: false, without: &|_, _| false }
            .write(&path);
        let args = ["offcpu", "report", "--json", "-i", path.to_str().unwrap()];
        let page: Value = serde_json::from_str(&kymo(&args).stdout).unwrap();
        let mut rows: BTreeMap<u64, [u64; 4]> = BTreeMap::new();
        for task in array(&page["tasks"]) {
            let row = rows.entry(number(&task["tid"])).or_default();
            let keys = ["running_ns", "waiting_ns", "blocked_ns", "uncertain_ns"];
            row.iter_mut().zip(keys).for_each(|(sum, key)| *sum += number(&task[key]));
        }
        rows
    };
    let is_switch = |l: &Value| l["event"].as_str().unwrap().ends_with("sched_switch");
    let prev = |l: &Value| l["fields"]["prev_pid"].as_u64().unwrap_or_default();
    let whole = rows("whole", &|_| true);
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    lines.iter().filter(|l| is_switch(l)).for_each(|l| *counts.entry(prev(l)).or_default() += 1);
    let mut tids: Vec<u64> = counts.keys().copied().filter(|tid| *tid > 0).collect();
    tids.sort_by_key(|tid| std::cmp::Reverse(counts[tid]));
    assert!(tids.len() > 3, "{counts:?}");
    let mut uncertain = 0;
    // As perf events of one task record: only switches away from it, and all wake-ups.
    for chosen in tids.iter().take(4) {
        let name = format!("only{chosen}");
        for (tid, part) in rows(&name, &|l| !is_switch(l) || prev(l) == *chosen) {
            let all = whole.get(&tid).unwrap();
            for (part, all) in part.iter().zip(all).take(3) {
                assert!(part <= all, "switches of {chosen}, thread {tid}: {part} {all}");
            }
            uncertain += part[3];
        }
    }
    assert!(uncertain > 0, "most begins of runs were not seen");
}

/// A wait for a CPU is mostly the end of one for something else; where it is what most time went
/// to, the longest one is shown.
#[test]
fn the_longest_wait_for_a_cpu_is_that_of_the_table() {
    for tid in ["15", "8872"] {
        let page = kymo(&["offcpu", "report", "-i", FIXTURE, "--tid", tid]).success().stdout;
        let line = |what: &str| page.lines().find(|line| line.contains(what)).unwrap();
        let row = line("waiting for a CPU: after wake-up   ");
        let most = row.split_whitespace().rfind(|word| !word.contains(':')).unwrap();
        let longest = line("longest wait: ").trim();
        let said = format!("longest wait: {most} ms");
        assert!(longest.starts_with(&said) && longest.ends_with("after wake-up"), "{page}");
    }
}

/// Locks of files, queues of System V and POSIX, inherited priorities, and vfork: each thread waits
/// 30 ms for one of them.
#[test]
fn locks_and_queues_of_programs_are_causes_of_their_own() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let code = PROGRAM.replace("waits.c", "queues.c");
    let program = directory.path().join("queues").to_str().unwrap().to_owned();
    let flags = ["-O1", "-g", "-fno-omit-frame-pointer", "-pthread", "-o", &program, &code];
    assert!(Command::new("gcc").args(flags).status().unwrap().success());
    let file = directory.path().join("queues.data").to_str().unwrap().to_owned();
    let place = directory.path().to_str().unwrap();
    let recorded = kymo(&["offcpu", "record", "-q", "-o", &file, "--", &program, place]);
    if recorded.status == 77 {
        // A kernel without one of them.
        return;
    }
    let _ = recorded.success();
    let waits = [
        ("q-flock", "file-lock"),
        ("q-ofd", "file-lock"),
        ("q-fcntl", "file-lock"),
        ("q-sem", "sysv-sem"),
        ("q-msg", "sysv-msg"),
        ("q-mqueue", "mqueue"),
        ("q-inherits", "futex"),
        ("q-vfork", "vfork"),
    ];
    for (comm, cause) in waits {
        let page = report(&file, comm);
        let of_cause = array(&page["causes"]).iter().find(|c| c["cause"] == cause);
        let total = of_cause.map_or(0, |c| number(&c["total_ns"]));
        assert!(total >= 25_000_000, "{comm}: {:#}", page["causes"]);
    }
}

/// A thread that is woken within `epoll_wait`, finds nothing and sleeps again has slept twice: each
/// is a wait, as the kernel's switches have it, and the system call is one.
#[test]
fn each_sleep_within_a_call_is_a_wait_and_the_call_is_one() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let code = PROGRAM.replace("waits.c", "spurious.c");
    let program = directory.path().join("spurious").to_str().unwrap().to_owned();
    let flags = ["-O1", "-g", "-pthread", "-o", &program, &code];
    assert!(Command::new("gcc").args(flags).status().unwrap().success());
    let file = directory.path().join("spurious.data").to_str().unwrap().to_owned();
    let _ = kymo(&["offcpu", "record", "-q", "-o", &file, "--", &program]).success();
    let page = report(&file, "spurious-wait");
    let polls = array(&page["causes"]).iter().find(|c| c["cause"] == "poll").unwrap();
    // Five wake-ups without an event, and the last one.
    assert_eq!(number(&polls["count"]), 6, "{:#}", page["causes"]);
    // Preempted, it does not sleep.
    let switches = perf(["script", "-i", &file]).success().stdout;
    let is_sleep =
        |line: &str| line.contains("prev_comm=spurious-wait ") && line.contains("prev_state=S ");
    assert_eq!(switches.lines().filter(|line| is_sleep(line)).count(), 6);
    let traced = kymo(&["trace", "-s", "--", &program]).success();
    let text = traced.stdout + &traced.stderr;
    let row = text.lines().find(|line| line.starts_with("epoll_wait ")).unwrap();
    assert_eq!(row.split_whitespace().nth(1), Some("1"), "{text}");
}

/// Count and nanoseconds of the waits of a cause.
fn of_cause(page: &Value, cause: &str) -> (u64, u64) {
    let row = array(&page["causes"]).iter().find(|row| row["cause"] == cause);
    row.map_or((0, 0), |row| (number(&row["count"]), number(&row["total_ns"])))
}

/// Throttled waits are those that the kernel counts. A task without a quota that is preempted
/// at its return from a system call, after it closed a file, has a stack alike.
#[test]
fn throttled_waits_are_those_of_a_quota() {
    if !require(&NEEDS) {
        return;
    }
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let group = symbols.contains(" throttle_cfs_rq_work").then(|| {
        let millis = std::time::Duration::from_millis;
        QuotaCgroup::new("quota", millis(10), millis(100))
    });
    let Some(group) = group.flatten() else { return };
    // Some kernels leave out switches from the idle task: waits that end with one are uncertain.
    let _busy = NoIdleCpus::keep();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (file, without) = (path("quota.data"), path("without.data"));
    let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let command = format!("echo $$ > {}; {spin}", group.procs());
    let _ = kymo(&["offcpu", "record", "-q", "-o", &file, "--", "sh", "-c", &command]).success();
    let (times, nanos) = group.throttled();
    assert!(times >= 4, "{times}");
    let (count, total) = of_cause(&report(&file, "sh"), "throttled");
    assert!(count <= times && count + 2 >= times, "{count} of {times}");
    // Other tasks may have the CPU when the next period begins.
    assert!(total >= nanos / 10 * 8, "{total} of {nanos}");

    let forks = "seq 300 | xargs -n 1 true";
    let _ = kymo(&["offcpu", "record", "-q", "-o", &without, "--", "sh", "-c", forks]).success();
    let page = report(&without, "xargs");
    assert_eq!(of_cause(&page, "throttled"), (0, 0), "{page}");
    assert!(of_cause(&page, "preempted").0 > 0, "{page}");
}
