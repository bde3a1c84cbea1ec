//! `kymo trace` with what samples hold: stacks of calls and page faults beside perf's, events
//! that switch, tables by thread and cgroup.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use kymo_testkit::{Need, Outcome, TestCgroup, TracingState, Workload, peer, perf, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// Asks thrice from within two functions, and touches four pages.
const CALLER: &str = r#"
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline)) int leaf(void) { int pid = getppid(); __asm__ volatile(""); return pid; }
__attribute__((noinline)) int outer(void) { int pid = leaf(); __asm__ volatile(""); return pid; }
int main(void) {
    int sum = 0;
    for (int i = 0; i < 3; i++) sum += outer();
    char *p = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 4; i++) p[i << 12] = 1;
    return sum < 0;
}
"#;

const NEEDS: [Need; 5] = [Need::Root, Need::Perf, Need::PerfEvents, Need::Tracefs, Need::Gcc];

#[track_caller]
fn trace(args: &[&str]) -> Outcome {
    run(KYMO, [&["trace"], args].concat()).success()
}

/// Functions of each call's stack, innermost first, without those that are inlined: perf writes
/// `NAME (BINARY)`, kymo the address before that and how far it is from the function's begin.
fn stacks(text: &str, call: &str) -> Vec<Vec<String>> {
    let mut stacks = Vec::new();
    let mut is_wanted = false;
    for line in text.lines() {
        let is_frame = line.starts_with(['\t', ' ']) && line.ends_with(')') && !line.contains(": ");
        if !is_frame {
            is_wanted = line.contains(call);
            if is_wanted {
                stacks.push(Vec::new());
            }
        } else if is_wanted && !line.ends_with("(inlined)") {
            let before = line.rsplit_once(" (").unwrap().0.trim();
            let name = before.rsplit_once(' ').map_or(before, |(_, name)| name);
            let name = name.split("+0x").next().unwrap();
            stacks.last_mut().unwrap().push(name.to_owned());
        }
    }
    stacks
}

fn text_of(outcome: Outcome) -> String {
    let outcome = outcome.success();
    [outcome.stdout, outcome.stderr].concat()
}

#[test]
fn calls_have_the_stacks_that_perf_trace_shows() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let work = Workload::compile("caller", CALLER);
    let command = ["-e", "getppid", "--", work.arg()];
    // The C library keeps no frame pointers: the first caller is missed with them.
    for (mode, least) in [(&["--call-graph", "fp"][..], 1), (&["--call-graph", "dwarf"], 3)] {
        let ours = trace(&[mode, &command].concat()).stdout;
        let ours = stacks(&ours, "getppid(");
        assert_eq!(ours.len(), 3, "{ours:?}");
        let called = |name: &str| ours[0].iter().any(|f| f == name);
        assert!(called("main") && called("outer") && (least < 3 || called("leaf")), "{ours:?}");
        let args = [&["trace"], mode, &command].concat();
        for theirs in [perf(&args), peer("perf").run(&args)] {
            let theirs = text_of(theirs);
            let theirs = stacks(&theirs, "getppid(");
            assert_eq!(theirs.len(), 3, "{theirs:?}");
            for (ours, theirs) in ours.iter().zip(&theirs) {
                // perf calls the innermost one inlined, and unwinds the C library's start
                // differently far.
                let own = |stack: &[String]| -> Vec<String> {
                    let known = ["leaf", "outer", "main"];
                    stack.iter().filter(|f| known.contains(&f.as_str())).cloned().collect()
                };
                assert_eq!(own(ours), own(theirs), "{mode:?}");
            }
        }
    }
    let kernel = trace(&[&["--kernel-syscall-graph"], &command[..]].concat()).stdout;
    for stack in stacks(&kernel, "getppid(") {
        assert!(stack.iter().any(|f| f == "do_syscall_64"), "{stack:?}");
    }
    let few = trace(&[&["--max-stack", "2"], &command[..]].concat()).stdout;
    for stack in stacks(&few, "getppid(") {
        assert_eq!(stack.len(), 2, "{few}");
        assert_eq!(stack[1], "leaf", "{few}");
    }
    let none = trace(&[&["--min-stack", "120"], &command[..]].concat()).stdout;
    assert_eq!(none, "");
    let all = trace(&[&["--min-stack", "3"], &command[..]].concat()).stdout;
    assert_eq!(stacks(&all, "getppid(").len(), 3, "{all}");
    let objects = trace(&[&["--json", "--call-graph", "fp"], &command[..]].concat()).stdout;
    for line in objects.lines() {
        let call: Value = serde_json::from_str(line).unwrap();
        let names = call["callchain"].as_array().unwrap().iter().map(|f| f["sym"].as_str());
        assert!(names.clone().any(|name| name == Some("outer")), "{line}");
    }
    assert_eq!(objects.lines().count(), 3);
    let refused = run(KYMO, ["trace", "--call-graph", "lbr", "--", "true"]).failure();
    assert!(refused.stderr.contains("lbr"), "{refused:?}");
}

#[test]
fn texts_of_arguments_stay_with_stacks() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let out = trace(&["--call-graph", "fp", "-e", "openat", "--", "cat", "/etc/hostname"]);
    let calls: Vec<&str> = out.stdout.lines().filter(|l| l.starts_with("openat(")).collect();
    assert!(calls.len() > 1, "{out:?}");
    // Where another program watches all calls by perf events, too, what is read comes too late to
    // be certain, and it is said.
    if out.stderr.contains("strings are shown as addresses") {
        assert!(calls.iter().any(|call| call.contains(", 0x")), "{out:?}");
        return;
    }
    let opened = calls.iter().find(|call| call.contains("/etc/hostname")).unwrap();
    assert!(opened.starts_with("openat(AT_FDCWD, \"/etc/hostname\", O_RDONLY) = "), "{out:?}");
}

#[test]
fn stacks_and_page_faults_of_a_recording_are_perfs() {
    if !require(&NEEDS) {
        return;
    }
    let work = Workload::compile("caller", CALLER);
    let path = work.file("faults.data");
    let events = "raw_syscalls:sys_enter,raw_syscalls:sys_exit,minor-faults,major-faults";
    let record = ["record", "-q", "-g", "-d", "-c", "1", "-o", &path, "-e", events, "--"];
    let _ = perf([&record[..], &[work.arg()]].concat()).success();
    let theirs = text_of(perf(["trace", "-i", &path]));
    let ours = trace(&["-i", &path]).stdout;
    let known = stacks(&theirs, "getppid(");
    assert_eq!(stacks(&ours, "getppid("), known);
    assert!(known.iter().all(|stack| stack.contains(&"outer".to_owned())), "{known:?}");
    // Of the kernel's faults perf looks for the address among the kernel's.
    let faults = |text: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| Some(line.split_once("fault [")?.1.to_owned()));
        let fault = lines.map(|line| line.split(" (").next().unwrap().to_owned());
        fault.filter(|line| !line.contains("=> 0x")).collect()
    };
    let (ours, theirs) = (faults(&ours), faults(&theirs));
    let touched = |all: &[String]| all.iter().filter(|f| f.starts_with("main+")).count();
    assert!(touched(&theirs) >= 4, "{theirs:?}");
    let in_files = |all: &[String]| -> Vec<String> {
        all.iter()
            .filter(|f| f.contains("=> /usr/lib") || f.contains("=> //anon"))
            .cloned()
            .collect()
    };
    let known: Vec<String> = in_files(&theirs);
    let ours_in_files = in_files(&ours);
    for fault in &known {
        assert!(ours_in_files.contains(fault), "{fault} of {ours:?}");
    }
}

#[test]
fn page_faults_come_live_alone_or_with_calls() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let work = Workload::compile("caller", CALLER);
    let out = trace(&["--pf", "all", "--no-syscalls", "--json", "--", work.arg()]).stdout;
    let all: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(all.iter().all(|fault| fault["fault"].is_string()), "{out}");
    let in_main = |fault: &&Value| fault["code"].as_str().unwrap().starts_with("main+0x");
    let touched: Vec<u64> = all
        .iter()
        .filter(in_main)
        .filter_map(|f| f["address"].as_str().unwrap().strip_prefix("//anon@0x"))
        .map(|hex| u64::from_str_radix(hex, 16).unwrap())
        .collect();
    assert_eq!(touched.len(), 4, "{out}");
    assert!(touched.windows(2).all(|w| w[1] == w[0] + 4096), "{touched:x?}");
    // Nothing of this program comes from a disk behind the first pages.
    let text = trace(&["-F", "min", "-e", "getppid", "--", work.arg()]).stdout;
    let calls = text.lines().filter(|l| l.starts_with("getppid() = ")).count();
    let faults = text.lines().filter(|l| l.starts_with("minfault [main+0x")).count();
    assert_eq!((calls, faults), (3, 4), "{text}");
    let refused = run(KYMO, ["trace", "--no-syscalls", "--", "true"]).failure();
    assert!(refused.stderr.contains("--pf"), "{refused:?}");
}

#[test]
fn events_switch_the_lines_on_and_off() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let work = Workload::compile("caller", CALLER);
    let (on, off) = ("syscalls:sys_enter_getppid", "syscalls:sys_exit_mmap");
    let switch = ["--switch-on", on, "--switch-off", off];
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(|l| l.split(['(', ' ']).next().unwrap().to_owned()).collect()
    };
    // The first call had begun when it switched on, if the kernel reports `raw_syscalls` first,
    // which is not guaranteed; between it and the end of the mapping are the other two, and that
    // mapping.
    let live = trace(&[&switch[..], &["--", work.arg()]].concat()).stdout;
    let mut shown = lines(&live);
    let last = shown.pop_if(|call| call == "mmap");
    assert!((2..=3).contains(&shown.len()) && shown.iter().all(|c| c == "getppid"), "{live}");
    assert!(last.is_some() || shown.len() == 3, "{live}");
    let path = work.file("switched.data");
    let events = format!("raw_syscalls:sys_enter,raw_syscalls:sys_exit,{on},{off}");
    let record = ["record", "-q", "-o", &path, "-e", &events, "--", work.arg()];
    let _ = run(KYMO, record).success();
    let shown = [&["--show-on-off-events", "-i", &path], &switch[..]].concat();
    let out = run(KYMO, [&["trace"], &shown[..]].concat()).success().stdout;
    assert!(out.lines().next().unwrap().contains(&format!("{on}:")), "{out}");
    assert!(out.lines().last().unwrap().contains(&format!("{off}: 0x")), "{out}");
    let missing = ["trace", "-i", &path, "--switch-on", "sched:sched_switch"];
    let refused = run(KYMO, missing).failure();
    assert!(refused.stderr.contains("sched:sched_switch"), "{refused:?}");
}

/// Calls of a table's row.
fn calls_of(table: &str, call: &str) -> u64 {
    let row = table.lines().find(|l| l.starts_with(&format!("{call} "))).unwrap_or_default();
    row.split_whitespace().nth(1).map_or(0, |n| n.parse().unwrap())
}

#[test]
fn tables_are_of_threads_and_of_cgroups() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let work = Workload::syscalls();
    let script = format!("{0} 30; {0} 70", work.arg());
    let table = |mode: &[&str]| {
        let args = [&["-s", "-e", "getppid"], mode, &["--", "sh", "-c", &script]].concat();
        trace(&args).stdout
    };
    let total = table(&["--summary-mode", "total"]);
    assert_eq!(calls_of(&total, "getppid"), 101, "{total}");
    let by_thread = table(&["--summary-mode", "thread"]);
    let tables: Vec<&str> = by_thread.split("syscall  ").collect();
    let calls: Vec<u64> = tables[1..].iter().map(|table| calls_of(table, "getppid")).collect();
    // The shell asks for its parent once.
    assert_eq!(calls, [70, 30, 1], "{by_thread}");
    assert!(by_thread.starts_with("syscalls ("), "{by_thread}");
    let rows = ["-s", "--max-summary", "2", "--", work.arg(), "10"];
    let few = trace(&rows).stdout;
    let lines: Vec<&str> = few.lines().take(6).collect();
    assert!(lines[4].starts_with("… ") && lines[4].ends_with(" more"), "{few}");
    assert!(lines[5].starts_with("total "), "{few}");
    let timed = trace(&["-s", "--sched", "--summary-mode", "thread", "--", work.arg(), "300000"]);
    let ran = timed.stdout.lines().find_map(|l| l.strip_prefix("on a CPU for ")).unwrap();
    assert!(ran.strip_suffix(" ms").unwrap().parse::<f64>().unwrap() > 1.0, "{timed:?}");
    let refused = run(KYMO, ["trace", "--summary-mode", "thread", "--", "true"]).failure();
    assert!(refused.stderr.contains("take -s or -S"), "{refused:?}");

    let Some(group) = TestCgroup::new("tables") else { return };
    let script = format!(
        "{0} 20; cd $(awk '$3 == \"cgroup2\" {{ print $2; exit }}' /proc/self/mounts) && echo $$ > \
         {1}/cgroup.procs && {0} 40",
        work.arg(),
        group.name()
    );
    let chosen = ["-s", "-e", "getppid", "--cgroup", group.name(), "--summary-mode", "cgroup"];
    let out = trace(&[&chosen[..], &["--", "sh", "-c", &script]].concat()).stdout;
    assert!(out.starts_with(&format!("/{}, 40 calls\n", group.name())), "{out}");
    assert_eq!(calls_of(&out, "getppid"), 40, "{out}");
}
