//! `kymo why` of programs that measure their own chains of waits: the path goes through all links
//! to the work at the end, changes hands between the times that the program read before and after
//! each wake-up, and blames no other task.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

#[allow(dead_code, reason = "the model of delays is for the tests of sched")]
mod sched_model;

use std::path::Path;
use std::process::Command;

use kymo_testkit::{Need, Outcome, TracingState, page_with_ledger, require, run};
use sched_model::{CtfTrace, SchedRecord};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wait_programs/chains.c");
const FIXTURE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/perf-data/x86_64/sched.data");
const NEEDS: [Need; 4] = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc];
/// Chains that the program makes.
const CHAINS: usize = 108;
/// The clock of the kernel's events and the program's may differ by this much.
const TOLERANCE: u64 = 1000;

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

fn compile(directory: &Path) -> String {
    let program = directory.join("chains").to_str().unwrap().to_owned();
    let flags = ["-O1", "-g", "-fno-omit-frame-pointer", "-pthread", "-o", &program, PROGRAM];
    assert!(Command::new("gcc").args(flags).status().unwrap().success());
    program
}

/// A thread of a chain with the times that it read.
struct Link {
    tid: u64,
    wait: (u64, u64),
    wake: (u64, u64),
}

/// A chain as the program reports it.
struct Chain {
    kind: String,
    leaf: String,
    busy: u64,
    links: Vec<Link>,
}

fn chains(said: &str) -> Vec<Chain> {
    let mut chains: Vec<Chain> = Vec::new();
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["chain", kind, leaf, _, busy] = words[..] {
            let (kind, leaf) = (kind.to_owned(), leaf.to_owned());
            chains.push(Chain { kind, leaf, busy: busy.parse().unwrap(), links: Vec::new() });
        } else {
            let n: Vec<u64> = words.iter().map(|w| w.parse().unwrap()).collect();
            let link = Link { tid: n[0], wait: (n[1], n[2]), wake: (n[3], n[4]) };
            chains.last_mut().unwrap().links.push(link);
        }
    }
    assert_eq!(chains.len(), CHAINS, "{said}");
    chains
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// Nanoseconds as --time takes them.
fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

fn why(path: &str, tid: u64, (from, to): (u64, u64)) -> Value {
    let (tid, time) = (tid.to_string(), format!("{},{}", seconds(from), seconds(to)));
    let args = ["why", "--json", "-i", path, "--tid", &tid, "--time", &time];
    serde_json::from_str(&kymo(&args).success().stdout).unwrap()
}

/// Segments cover the path without gaps, and none counts twice.
#[track_caller]
fn covers(path: &Value, (from, to): (u64, u64)) {
    let mut at = from;
    for segment in array(&path["segments"]) {
        assert_eq!(number(&segment["start_ns"]), at, "{segment}");
        at = number(&segment["end_ns"]);
        assert_eq!(at - number(&segment["start_ns"]), number(&segment["duration_ns"]));
    }
    assert_eq!(at, to);
}

fn within(time: u64, (from, to): (u64, u64)) -> bool {
    (from - TOLERANCE..=to + TOLERANCE).contains(&time)
}

/// The path of the first thread's wait is the chain.
#[track_caller]
fn is_found(page: &Value, chain: &Chain) {
    let [path] = array(&page["paths"]) else { panic!("{page}") };
    let span = chain.links[0].wait;
    covers(path, span);
    let name = format!("{} {} {}", chain.kind, chain.leaf, chain.links.len() - 1);
    let segments = array(&path["segments"]);
    let of = |tid: u64| segments.iter().filter(move |s| s["task"]["tid"] == tid);
    // No other task: neither the busy one beside them, nor the one that keeps CPUs from being idle.
    assert_eq!(of(chain.busy).count(), 0, "{name}: {path:#}");
    for segment in segments {
        let tid = number(&segment["task"]["tid"]);
        let comm = segment["task"]["comm"].as_str().unwrap();
        let helps = comm.starts_with("kworker") && (chain.kind == "tty" || chain.leaf == "disk")
            || comm.starts_with("ksoftirqd") && chain.kind == "tcp"
            || chain.leaf == "disk" && !["chains", "innocent", "spinner"].contains(&comm);
        assert!(helps || chain.links.iter().any(|l| l.tid == tid), "{name}: {segment:#}");
    }
    // Each link works until it wakes the one before, and is to blame for that time alone.
    for (number_of, link) in chain.links.iter().enumerate().skip(1) {
        let last = of(link.tid).next_back().unwrap_or_else(|| panic!("{name}: {path:#}"));
        let end = number(&last["end_ns"]);
        assert!(
            within(end, link.wake),
            "{name}: link {number_of}, {end}, {:?}: {path:#}",
            link.wake
        );
        let depth = number(&last["depth"]);
        assert!(depth as usize >= number_of, "{name}: {last:#}");
        if number_of + 1 < chain.links.len() {
            // All are asleep when the last one works, and it is until the next one wakes it.
            let (asleep, woken) =
                (chain.links.last().unwrap().wait.0, chain.links[number_of + 1].wake.0);
            let starts = of(link.tid).map(|s| number(&s["start_ns"]));
            let after = starts.filter(|at| *at >= asleep).min().unwrap();
            assert!(after + TOLERANCE >= woken, "{name}: {path:#}");
        }
    }
    let leaf = chain.links.last().unwrap();
    let own: u64 = of(leaf.tid)
        .map(|s| number(&s["end_ns"]).saturating_sub(leaf.wait.0.max(number(&s["start_ns"]))))
        .sum();
    let (least, most) = (leaf.wake.0 - leaf.wait.1, leaf.wake.1 - leaf.wait.0);
    assert!(own + TOLERANCE >= least && own <= most + TOLERANCE, "{name}: {own} {least} {most}");
    let has = |kind: &str| of(leaf.tid).any(|s| s["kind"] == kind);
    match chain.leaf.as_str() {
        "timer" => assert!(has("sleep"), "{name}: {path:#}"),
        "disk" => {
            assert!(segments.iter().any(|s| s["ended_by"] != Value::Null), "{name}: {path:#}")
        }
        _ => assert!(has("running"), "{name}: {path:#}"),
    }
}

#[test]
fn chains_of_waits_are_found_to_their_ends() {
    if !require(&NEEDS) {
        return;
    }
    let state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let program = compile(directory.path());
    let file = path("written");
    // Of a trace.dat a third: each path takes a look at the whole recording.
    for (recording, step) in [("chains.data", 1), ("chains.dat", 3)] {
        let recording = path(recording);
        let record = ["why", "record", "-q", "-o", &recording, "--", &program, &file];
        let said = kymo(&record).success().stdout;
        for chain in chains(&said).iter().step_by(step) {
            let first = &chain.links[0];
            is_found(&why(&recording, first.tid, first.wait), chain);
        }
    }
    assert_eq!(state.left_behind(), None);
}

#[test]
fn spans_of_events_are_explained() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (program, data) = (compile(directory.path()), path("spans.data"));
    let events = "syscalls:sys_enter_fsync,syscalls:sys_exit_fsync";
    let record = ["why", "record", "-q", "-e", events, "-o", &data, "--", &program];
    let said = kymo(&[&record[..], &[&path("written")]].concat()).success().stdout;
    let chains = chains(&said);
    let leaves: Vec<&Link> =
        chains.iter().filter(|c| c.leaf == "disk").map(|c| c.links.last().unwrap()).collect();
    let span = "syscalls:sys_enter_fsync -> syscalls:sys_exit_fsync";
    let args = ["why", "-i", &data, "--span", span, "--slowest", "3"];
    let page: Value =
        serde_json::from_str(&kymo(&[&args[..], &["--json"]].concat()).success().stdout).unwrap();
    // All that were synchronized on the machine meanwhile, those of the program among them.
    assert!(number(&page["spans"]["count"]) >= leaves.len() as u64, "{}", page["spans"]);
    let paths = array(&page["paths"]);
    assert_eq!(paths.len(), 3);
    let long = |p: &Value| number(&p["end_ns"]) - number(&p["start_ns"]);
    assert!(paths.is_sorted_by_key(|p| std::cmp::Reverse(long(p))));
    assert_eq!(long(&paths[0]), number(&page["spans"]["max_ns"]));
    for path in paths {
        let (from, to) = (number(&path["start_ns"]), number(&path["end_ns"]));
        covers(path, (from, to));
        let own = leaves.iter().find(|l| path["task"]["tid"] == l.tid);
        assert!(own.is_none_or(|l| l.wait.0 <= from && to <= l.wait.1), "{path:#}");
    }
    let total: u64 = paths.iter().map(long).sum();
    assert_eq!(number(&page["total_ns"]), total);
    let blamed = array(&page["culprits"]).iter().map(|c| number(&c["total_ns"])).sum::<u64>();
    assert_eq!(blamed, total);
    // By the thread that it is in, which is the key without `by`.
    let by_field = format!("{span} by common_pid");
    let keyed = [&args[..4], &[&by_field, "--json"]].concat();
    let keyed: Value = serde_json::from_str(&kymo(&keyed).success().stdout).unwrap();
    assert_eq!(keyed["spans"]["max_ns"], page["spans"]["max_ns"]);
    let text = kymo(&args).success().stdout;
    let first = text.lines().find(|l| !l.is_empty()).unwrap();
    assert!(first.starts_with(" The slowest 3 of ") && first.contains(" of it, "), "{text}");
    // Its commands are as they can be typed.
    for line in text.lines().filter(|l| l.trim_start().starts_with("kymo script ")) {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        assert!(kymo(&words).success().stdout.contains("sched"), "{line}");
    }
    let next = text.lines().find(|l| l.contains("the slowest span:")).unwrap();
    let words: Vec<&str> = next.split_once("kymo ").unwrap().1.split(' ').collect();
    assert!(kymo(&words).success().stdout.contains(" of it, "), "{next}");
    // The command that was recorded is chosen without a flag.
    let text = kymo(&["why", "-i", &data]).success().stdout;
    assert!(text.starts_with("\n chains:") && text.contains(" The longest parts\n"), "{text}");
}

#[test]
fn what_cannot_be_reported_is_said() {
    let refused = |args: &[&str], why: &str| {
        let out = kymo(&[&["why", "-i", FIXTURE], args].concat()).failure();
        assert!(out.stderr.contains(why), "{}", out.stderr);
    };
    refused(&["--span", "sched:sched_switch"], "no `->`");
    refused(&["--span", "sched:sched_switch -> no:such"], "no:such");
    refused(&["--tid", "1", "--cpu", "0"], "--cpu does not apply to a path");
    refused(&["--comm", "a,b"], "a path is of one task");
    let none = kymo(&["why", "-i", FIXTURE, "--tid", "4000000"]).failure();
    assert!(none.stdout.contains("no such task"), "{}", none.stdout);
    // Without stacks the causes of blocks are unknown.
    let text = kymo(&["sched", "latency", "-p", "--json", "-i", FIXTURE]).success().stdout;
    let tasks: Value = serde_json::from_str(&text).unwrap();
    let tids = array(&tasks["tasks"]).iter().filter_map(|t| t["tid"].as_u64()).take(12);
    let (mut found, mut doubted) = (0, 0);
    for tid in tids {
        let out = kymo(&["why", "--json", "-i", FIXTURE, "--tid", &tid.to_string()]);
        let page = page_with_ledger(&out.stdout, &out.stderr);
        for path in array(&page["paths"]) {
            covers(path, (number(&path["start_ns"]), number(&path["end_ns"])));
            doubted += array(&page["ledger"]).iter().filter(|n| n["kind"] == "stacks").count();
            found += 1;
        }
    }
    assert!(found > 0 && doubted > 0, "{found} {doubted}: {text}");
}

/// Events in the format of LTTng, complete and with a packet lost.
#[test]
fn other_formats_have_the_same_paths_and_losses_are_marked() {
    let text = kymo(&["script", "-i", FIXTURE, "--json"]).success().stdout;
    let parse = |l: &str| SchedRecord::parse(&serde_json::from_str(l).unwrap());
    let records: Vec<SchedRecord> = text.lines().filter_map(parse).collect();
    let directory = tempfile::tempdir().unwrap();
    let trace = |name: &str, without: &dyn Fn(u32, usize) -> bool| {
        let path = directory.path().join(name).join("kernel");
        CtfTrace { records: &records, packet: 12, stacks: false, without }.write(&path);
        path.to_str().unwrap().to_owned()
    };
    let whole = trace("whole", &|_, _| false);
    let holed = trace("holed", &|cpu, packet| cpu == 1 && packet == 6);
    let text = kymo(&["sched", "latency", "-p", "--json", "-i", FIXTURE]).success().stdout;
    let tasks: Value = serde_json::from_str(&text).unwrap();
    let tids: Vec<u64> = array(&tasks["tasks"]).iter().filter_map(|t| t["tid"].as_u64()).collect();
    let page = |path: &str, tid: u64| -> Value {
        let out = kymo(&["why", "--json", "-i", path, "--tid", &tid.to_string()]);
        page_with_ledger(&out.stdout, &out.stderr)
    };
    let segments = |page: &Value| -> Vec<(u64, u64, String, u64)> {
        let all = array(&page["paths"]).iter().flat_map(|p| array(&p["segments"]));
        let key = |s: &Value| {
            let kind = s["kind"].as_str().unwrap().to_owned();
            (number(&s["start_ns"]), number(&s["end_ns"]), kind, number(&s["task"]["tid"]))
        };
        all.map(key).collect()
    };
    let (mut compared, mut marked) = (0, 0);
    for tid in tids.into_iter().filter(|tid| *tid > 0).take(10) {
        let kept = segments(&page(FIXTURE, tid));
        assert_eq!(segments(&page(&whole, tid)), kept, "{tid}");
        compared += kept.len();
        let lossy = page(&holed, tid);
        let uncertain = |s: &&Value| s["uncertain"] == true;
        let all = array(&lossy["paths"]).iter().flat_map(|p| array(&p["segments"]));
        marked += all.filter(uncertain).count();
        let lost = array(&lossy["ledger"]).iter().any(|n| n["kind"] == "lost");
        assert!(lost, "{lossy:#}");
    }
    assert!(compared > 0 && marked > 0, "{compared} {marked}");
}

#[test]
fn lines_of_the_program_are_named() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (program, code) = (directory.path().join("nap"), PROGRAM.replace("chains.c", "nap.c"));
    let flags = ["-O1", "-g", "-fno-omit-frame-pointer", "-o", program.to_str().unwrap(), &code];
    assert!(Command::new("gcc").args(flags).status().unwrap().success());
    let line = |text: &str| {
        let lines = std::fs::read_to_string(&code).unwrap();
        lines.lines().position(|l| l.contains(text)).unwrap() + 1
    };
    let (nap, file) = (line("\"syscall\""), directory.path().join("nap.data"));
    let (program, file) = (program.to_str().unwrap(), file.to_str().unwrap());
    let _ = kymo(&["why", "record", "-q", "-o", file, "--", program]).success();
    let page = kymo(&["why", "--json", "-i", file]).success().stdout;
    let page: Value = serde_json::from_str(&page).unwrap();
    let segments = array(&page["paths"][0]["segments"]);
    let sleeps = segments.iter().find(|s| s["kind"] == "sleep").unwrap_or_else(|| panic!("{page}"));
    assert_eq!(sleeps["line"], format!("{code}:{nap}"), "{sleeps}");
    let text = kymo(&["why", "-i", file]).success().stdout;
    assert!(text.contains(&format!(" < nap (nap.c:{nap}) < main")), "{text}");
}

/// A recording of a program's events alone has no switches: how long its spans took is known.
#[test]
fn spans_without_events_of_the_scheduler_have_their_durations() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sleep.data").to_str().unwrap().to_owned();
    let events = "syscalls:sys_enter_clock_nanosleep,syscalls:sys_exit_clock_nanosleep";
    let _ = kymo(&["record", "-q", "-e", events, "-o", &path, "--", "sleep", "0.02"]).success();
    let span = "syscalls:sys_enter_clock_nanosleep -> syscalls:sys_exit_clock_nanosleep";
    let shown = kymo(&["why", "-i", &path, "--span", span]).stdout;
    let first = shown.lines().find(|line| !line.is_empty()).unwrap();
    let slowest = first.strip_prefix(" 1 span took ").unwrap().split(' ').next().unwrap();
    assert!(slowest.parse::<f64>().unwrap() >= 20.0, "{shown}");
    assert!(first.ends_with("scheduler events do not cover their tasks."), "{shown}");
    let next = shown.lines().find(|l| l.contains("the slowest span:")).unwrap();
    let words: Vec<&str> = next.split_once("kymo ").unwrap().1.split(' ').collect();
    let events = kymo(&words).success().stdout;
    assert_eq!(events.lines().filter(|l| l.contains("clock_nanosleep")).count(), 2, "{events}");
    assert!(shown.contains("there are no sched_switch events"), "{shown}");
    assert!(!shown.contains("malformed"), "{shown}");
}

fn compile_program(directory: &Path, name: &str) -> String {
    let (program, code) = (directory.join(name), PROGRAM.replace("chains", name));
    let program = program.to_str().unwrap().to_owned();
    let flags = ["-O1", "-g", "-fno-omit-frame-pointer", "-pthread", "-o", &program, &code];
    assert!(Command::new("gcc").args(flags).status().unwrap().success());
    program
}

/// A process that ends with the test.
struct Background(std::process::Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The command is a process: neither a wrapper, nor another name, nor another process of its name
/// makes it another one.
#[test]
fn the_command_is_its_process_whatever_it_is_called() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile_program(directory.path(), "renames");
    let mut other = Command::new(&program);
    other.args(["-", "20", "100000"]).stderr(std::process::Stdio::null());
    let other = other.spawn().unwrap();
    let _other = Background(other);
    let script = format!("exec {program} - 50 1");
    let commands: [&[&str]; 5] = [
        &[&program, "-", "50", "1"],
        &["env", &program, "-", "50", "1"],
        &["nice", &program, "-", "50", "1"],
        &[&program, "renamed", "50", "1"],
        &["sh", "-c", &script],
    ];
    let file = directory.path().join("renames.data").to_str().unwrap().to_owned();
    for command in commands {
        let live = kymo(&[&["why", "--json", "--"], command].concat()).success();
        let record = ["offcpu", "record", "-q", "-o", &file, "--"];
        let recorded = kymo(&[&record, command].concat()).success();
        let shown = kymo(&["why", "--json", "-i", &file]).success();
        for (said, answer) in [(&live.stderr, &live.stdout), (&recorded.stderr, &shown.stdout)] {
            let line = said.lines().find_map(|l| l.strip_prefix("pid ")).unwrap();
            let page: Value = serde_json::from_str(answer).unwrap();
            let path = &page["paths"][0];
            assert_eq!(path["task"]["tid"], line.parse::<u64>().unwrap(), "{command:?}: {page:#}");
            let sleeps = array(&path["segments"]).iter().filter(|s| s["kind"] == "sleep");
            let slept: u64 = sleeps.map(|s| number(&s["duration_ns"])).sum();
            assert!(slept >= 50_000_000, "{command:?}: {page:#}");
        }
    }
}

/// A worker does the work of one task after another's: the path stays with who queued the work.
#[test]
fn work_of_kernel_workers_is_that_of_who_queued_it() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile_program(directory.path(), "workers");
    let file = directory.path().join("workers.data").to_str().unwrap().to_owned();
    let sched = "sched:sched_switch,sched:sched_waking,sched:sched_wakeup_new";
    let without = ["record", "-q", "-a", "-g", "-e", sched, "-c", "1", "-k", "mono", "-o", &file];
    let recordings: [(&[&str], bool); 3] = [
        (&["offcpu", "record", "-q", "-o", &file], true),
        (&["why", "record", "-q", "-o", &file], true),
        (&without, false),
    ];
    for (record, has_work) in recordings {
        for _ in 0..2 {
            let _ = kymo(&[record, &["--", &program]].concat()).success();
            let out = kymo(&["why", "--json", "-i", &file]);
            let page = page_with_ledger(&out.stdout, &out.stderr);
            let [path] = array(&page["paths"]) else { panic!("{page:#}") };
            let of = |comm: &str| -> u64 {
                let segments = array(&path["segments"]).iter();
                let own = segments.filter(|s| s["task"]["comm"] == comm);
                own.map(|s| number(&s["duration_ns"])).sum()
            };
            assert!(of("guilty") >= 58_000_000, "{record:?}: {path:#}");
            assert!(of("innocent") < 2_000_000, "{record:?}: {path:#}");
            let texts = array(&page["ledger"]).iter().map(|n| n["fact"].as_str().unwrap());
            let doubts = texts.filter(|t| t.contains("no events of workqueues")).count();
            assert_eq!(doubts == 0, has_work, "{record:?}: {:#}", page["ledger"]);
        }
    }
}
