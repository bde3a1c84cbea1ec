//! Matrix of capabilities on the kernel of the guest: each is tried on a workload with known
//! numbers. One may be absent only where the kernel lacks what it needs, and then kymo must report
//! that. `cargo xtask vm matrix` runs this on the kernels of several releases and draws a table.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};

use kymo_testkit::{
    Need, Outcome, TracingState, Unprivileged, Workload, lines_with, perf, require, run,
    run_command,
};
use kymo_tracepoint::{counter, emit, tracepoint};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const TRACING: &str = "/sys/kernel/tracing";
/// Calls that the workload makes.
const CALLS: &str = "500";
/// The kernel's function of getppid(2).
const GETPPID: &str =
    if cfg!(target_arch = "aarch64") { "__arm64_sys_getppid" } else { "__do_sys_getppid" };

tracepoint! {
    matrix: step(number: u64, name: &str) {
        fields { number: u64 = number, name: str = name }
        print "step {number} is {name}"
    }
}

/// This test program is started again as one with tracepoints, which makes a given number of steps.
const ROLE: &str = "KYMO_MATRIX_STEPS";

#[test]
fn role() {
    let Some(steps) = std::env::var(ROLE).ok() else { return };
    for number in 0..steps.parse().unwrap() {
        emit!(step(number, if number % 2 == 0 { "even" } else { "odd" }));
        counter!(matrix: steps, by number % 2);
    }
}

/// Feature that a kernel may lack, and the words of the message about it.
struct Feature {
    is_there: fn() -> bool,
    reason: &'static str,
}

struct Capability {
    name: &'static str,
    needs: &'static [&'static Feature],
    works: fn(&Ground),
    /// Without it the command works on a kernel that lacks what is needed, too, or has nothing to
    /// say of it.
    refusal: Option<Refusal>,
}

/// Command to run on a kernel that lacks something, and a word that the message must have.
type Refusal = (fn(&Ground) -> Outcome, &'static str);

/// Workloads on which the capabilities are tried.
struct Ground {
    syscalls: Workload,
    spin: Workload,
    dir: tempfile::TempDir,
}

fn is_event(name: &str) -> bool {
    Path::new(&format!("{TRACING}/events/{name}")).exists()
}

/// The kernel's version and patch level.
fn release() -> (u32, u32) {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = text.split('.').map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap(), numbers.next().unwrap())
}

fn has_tracer(name: &str) -> bool {
    let all = fs::read_to_string(format!("{TRACING}/available_tracers")).unwrap_or_default();
    all.split_whitespace().any(|t| t == name)
}

static CONTENTION: Feature = Feature {
    is_there: || is_event("lock/contention_begin"),
    reason: "the kernel has no tracepoint lock:contention_begin (since Linux 5.19)",
};
static KPROBES: Feature = Feature {
    is_there: || Path::new(TRACING).join("kprobe_events").exists(),
    reason: "the kernel is built without kprobes",
};
static UPROBES: Feature = Feature {
    is_there: || Path::new(TRACING).join("uprobe_events").exists(),
    reason: "the kernel is built without uprobes",
};
static GRAPH: Feature = Feature {
    is_there: || has_tracer("function_graph"),
    reason: "the kernel has no function-graph tracer",
};
static BTF: Feature = Feature {
    is_there: || Path::new("/sys/kernel/btf/vmlinux").exists(),
    reason: "the kernel is built without BTF",
};
static TRAMPOLINES: Feature = Feature {
    is_there: || !cfg!(target_arch = "aarch64") || release() >= (6, 4),
    reason: "the kernel cannot call BPF programs from functions (AArch64, since Linux 6.4)",
};
static SCHEDSTAT: Feature = Feature {
    is_there: || Path::new("/proc/schedstat").exists(),
    reason: "the kernel has no /proc/schedstat",
};
static SNAPSHOT: Feature = Feature {
    is_there: || Path::new(TRACING).join("snapshot").exists(),
    reason: "the kernel has no snapshot buffer",
};
static HIST: Feature = Feature {
    is_there: || is_event("sched/sched_switch/hist"),
    reason: "the kernel has no histogram triggers",
};

const CAPABILITIES: &[Capability] = &[
    Capability {
        name: "list: tracepoints, and formats of all of them",
        needs: &[],
        works: list,
        refusal: None,
    },
    Capability { name: "stat: events counted", needs: &[], works: stat, refusal: None },
    Capability {
        name: "record, report: samples with frame pointers",
        needs: &[],
        works: samples,
        refusal: None,
    },
    Capability {
        name: "record --call-graph dwarf",
        needs: &[],
        works: dwarf_stacks,
        refusal: None,
    },
    Capability {
        name: "record, script: tracepoints, lines as perf's",
        needs: &[],
        works: tracepoints,
        refusal: None,
    },
    Capability {
        name: "trace: system calls with arguments",
        needs: &[],
        works: calls,
        refusal: None,
    },
    Capability {
        name: "trace: what arguments point to, as it was in the call",
        needs: &[],
        works: call_texts,
        refusal: None,
    },
    Capability {
        name: "trace -o: trace.dat as trace-cmd reads it",
        needs: &[],
        works: trace_dat,
        refusal: None,
    },
    Capability {
        name: "trace --tracer function_graph",
        needs: &[&GRAPH],
        works: graph,
        refusal: Some((
            |g| kymo(&["trace", "--tracer", "function_graph", "--", g.syscalls.arg(), "1"]),
            "tracer",
        )),
    },
    Capability {
        name: "session: flight recorder, snapshot by the kernel",
        needs: &[&SNAPSHOT],
        works: session,
        refusal: None,
    },
    Capability {
        name: "event trigger: histograms",
        needs: &[&HIST],
        works: histogram,
        refusal: None,
    },
    Capability {
        name: "probe: functions and returns of the kernel",
        needs: &[&KPROBES],
        works: kernel_probes,
        refusal: Some((|_| kymo(&["probe", "vfs_read"]), "kprobe")),
    },
    Capability {
        name: "probe: functions and returns of programs",
        needs: &[&UPROBES],
        works: program_probes,
        refusal: None,
    },
    Capability {
        name: "tracepoints of programs: trace, record",
        needs: &[],
        works: own_tracepoints,
        refusal: None,
    },
    Capability { name: "counters in programs", needs: &[], works: counters, refusal: None },
    Capability { name: "sched latency, timehist", needs: &[], works: sched, refusal: None },
    Capability {
        name: "sched stats",
        needs: &[&SCHEDSTAT],
        works: sched_stats,
        refusal: Some((|_| kymo(&["sched", "stats", "--", "true"]), "schedstat")),
    },
    Capability {
        name: "lock contention: kernel locks",
        needs: &[&CONTENTION],
        works: locks,
        refusal: Some((
            |g| {
                let data = g.file("l.data");
                kymo(&["lock", "record", "-q", "-o", &data, "--", g.syscalls.arg(), "1"])
            },
            "lock:contention",
        )),
    },
    Capability { name: "kmem stat", needs: &[], works: kmem, refusal: None },
    Capability { name: "kwork report", needs: &[], works: kwork, refusal: None },
    Capability { name: "offcpu report", needs: &[], works: offcpu, refusal: None },
    Capability { name: "why", needs: &[], works: why, refusal: None },
    Capability { name: "syscalls report", needs: &[], works: syscalls, refusal: None },
    Capability { name: "io latency", needs: &[], works: io, refusal: None },
    Capability { name: "profile: wall-clock time", needs: &[], works: profile, refusal: None },
    Capability { name: "count: in the kernel", needs: &[], works: count, refusal: None },
    Capability {
        name: "count --no-bpf: in user space",
        needs: &[],
        works: count_without,
        refusal: None,
    },
    Capability {
        name: "run: tracepoints without BTF",
        needs: &[],
        works: run_tracepoint,
        refusal: None,
    },
    Capability {
        name: "run: kprobes and kretprobes",
        needs: &[&KPROBES],
        works: run_kprobe,
        refusal: None,
    },
    Capability { name: "run: uprobes", needs: &[&UPROBES], works: run_uprobe, refusal: None },
    Capability {
        name: "run: fentry and fexit, types from BTF",
        needs: &[&BTF, &TRAMPOLINES],
        works: run_fentry,
        refusal: Some((|_| kymo(&["run", "-e", "fentry:vfs_read { exit(); }"]), "kernel")),
    },
    Capability {
        name: "without BTF: count, run; fentry refused",
        needs: &[],
        works: without_btf,
        refusal: None,
    },
    Capability {
        name: "perf_event_paranoid = 4: refused with the setting",
        needs: &[],
        works: paranoid,
        refusal: None,
    },
    Capability {
        name: "tracefs below debugfs only",
        needs: &[],
        works: debugfs_only,
        refusal: None,
    },
    Capability {
        name: "a user without privileges: own programs",
        needs: &[],
        works: unprivileged,
        refusal: None,
    },
];

impl Ground {
    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn capabilities_of_this_kernel() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Perf, Need::TraceCmd]) {
        return;
    }
    let _state = TracingState::take();
    let dir = tempfile::tempdir().unwrap();
    let ground = Ground { syscalls: Workload::syscalls(), spin: Workload::spin(), dir };
    let mut failed = Vec::new();
    let mut lines = String::new();
    for capability in CAPABILITIES {
        let begin = std::time::Instant::now();
        let reason = capability.needs.iter().find(|f| !(f.is_there)()).map(|f| f.reason);
        let tried = catch_unwind(AssertUnwindSafe(|| match (reason, &capability.refusal) {
            (None, _) => (capability.works)(&ground),
            (Some(_), Some((try_it, word))) => {
                let said = try_it(&ground).failure().stderr;
                assert!(said.contains(word), "no word of {word}: {said}");
            }
            (Some(_), None) => {}
        }));
        let found = match (&tried, reason) {
            (Ok(()), None) => "yes".to_owned(),
            (Ok(()), Some(reason)) => reason.to_owned(),
            (Err(_), _) => {
                failed.push(capability.name);
                "it fails: this is a defect".to_owned()
            }
        };
        // Not what the harness captures: who waits sees how far it is.
        let seconds = begin.elapsed().as_secs_f32();
        writeln!(std::io::stderr(), "{seconds:5.1} s {}: {found}", capability.name).unwrap();
        lines.push_str(&format!("{}\t{found}\n", capability.name));
    }
    if let Some(path) = std::env::var_os("KYMO_CAPABILITIES") {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(lines.as_bytes()).unwrap();
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

/// The workload's command behind these arguments.
fn with_calls(ground: &Ground, args: &[&str]) -> Outcome {
    kymo(&[args, &["--", ground.syscalls.arg(), CALLS]].concat()).success()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Each field that the kernel's format names is a field of kymo's list.
fn list(_: &Ground) {
    let listed = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().filter(|l| l.contains("[Tracepoint event]"));
        lines.filter_map(|l| l.split_whitespace().next()).map(str::to_owned).collect()
    };
    let ours = listed(&kymo(&["list", "tracepoint"]).success().stdout);
    let mut theirs = listed(&perf(["list", "tracepoint"]).success().stdout);
    // Nothing but the ring of marks has it before Linux 6.16: it cannot be recorded.
    if !ours.contains("ftrace:print") {
        theirs.remove("ftrace:print");
    }
    assert!(ours.len() > 800, "{}", ours.len());
    assert_eq!(ours.symmetric_difference(&theirs).collect::<Vec<_>>(), Vec::<&String>::new());
    let all = json(&kymo(&["list", "-v", "--json", "tracepoint"]).success().stdout);
    let mut seen = 0;
    for event in all.as_array().unwrap() {
        let name = event["name"].as_str().unwrap();
        let path = format!("{TRACING}/events/{}/format", name.replace(':', "/"));
        let Ok(format) = fs::read_to_string(&path) else { continue };
        let fields = event["fields"].as_array().unwrap_or_else(|| panic!("{name}: {event}"));
        assert_eq!(fields.len(), format.matches("\tfield:").count(), "{name}: {format}");
        seen += 1;
    }
    assert!(seen > 800, "{seen}");
}

fn stat(ground: &Ground) {
    let event = "syscalls:sys_enter_getppid";
    let said = with_calls(ground, &["stat", "-x,", "-e", event]).stderr;
    assert!(said.starts_with(&format!("{CALLS},,{event},")), "{said}");
    let clock = kymo(&["stat", "-x,", "-e", "task-clock,page-faults", "--", "true"]).success();
    assert_eq!(lines_with(&clock.stderr, "<not").len(), 0, "{}", clock.stderr);
}

fn samples(ground: &Ground) {
    let data = ground.file("s.data");
    let spin = [ground.spin.arg(), "20"];
    let args = ["record", "-q", "-e", "cpu-clock", "-g", "-F", "500", "-o", &data, "--"];
    let _ = kymo(&[&args[..], &spin].concat()).success();
    let text = kymo(&["report", "-i", &data, "--no-children", "-g", "none"]).success().stdout;
    let name = ground.spin.program().file_name().unwrap().to_str().unwrap().to_owned();
    assert!(text.lines().any(|l| l.contains(&name) && l.contains("[.]")), "{text}");
}

fn dwarf_stacks(ground: &Ground) {
    let data = ground.file("d.data");
    let spin = [ground.spin.arg(), "20"];
    let args = ["record", "-q", "-e", "cpu-clock", "--call-graph", "dwarf", "-F", "200", "-o"];
    let _ = kymo(&[&args[..], &[&data, "--"], &spin].concat()).success();
    let text = kymo(&["script", "-i", &data, "-F", "comm,ip,sym"]).success().stdout;
    assert!(text.contains("main"), "{text}");
}

fn tracepoints(ground: &Ground) {
    let data = ground.file("t.data");
    let events = "sched:sched_switch,sched:sched_wakeup,sched:sched_process_fork,raw_syscalls:*,\
                  irq:softirq_entry,task:*,workqueue:*";
    let work = "for i in 1 2 3; do ls -l /proc | wc -l; sleep 0.01; done";
    let _ = kymo(&["record", "-q", "-o", &data, "-e", events, "--", "sh", "-c", work]).success();
    let fields = "comm,pid,tid,cpu,time,event,trace";
    let ours = kymo(&["script", "-F", fields, "-i", &data]).success().stdout;
    let theirs = perf(["script", "-F", fields, "-i", &data]).success().stdout;
    let ours: Vec<&str> = ours.lines().map(str::trim_end).collect();
    let theirs: Vec<&str> = theirs.lines().map(str::trim_end).collect();
    assert!(ours.len() > 100, "{ours:#?}");
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
}

fn calls(ground: &Ground) {
    let said = with_calls(ground, &["trace"]);
    let number = lines_with(&said.stdout, "getppid()").len();
    assert_eq!(number.to_string(), CALLS, "{}{}", said.stdout, said.stderr);
}

/// Paths and what was written, of calls that do not wait: programs in the kernel have read them.
fn call_texts(_: &Ground) {
    let script = "cd /proc; for i in 1 2 3; do echo number $i >/dev/null; done; exec cat self/comm";
    let said = kymo(&["trace", "--", "sh", "-c", script]).success();
    let text = &said.stdout;
    for i in 1..=3 {
        let lines = lines_with(text, &format!("\"number {i}\\n\", 9)"));
        assert_eq!(lines.len(), 1, "number {i}: {text}{}", said.stderr);
    }
    assert_eq!(lines_with(text, "chdir(\"/proc\")").len(), 1, "{text}");
    let comm = lines_with(text, "\"self/comm\"");
    assert!(comm.iter().any(|line| line.contains("openat(")), "{text}");
    assert!(comm.iter().any(|line| line.contains("execve(")), "{text}");
}

fn trace_dat(ground: &Ground) {
    let dat = ground.file("x.dat");
    let _ = with_calls(ground, &["trace", "-o", &dat, "-e", "syscalls:sys_enter_getppid"]);
    let number = |text: &str| lines_with(text, "sys_enter_getppid").len().to_string();
    let theirs = run("trace-cmd", ["report", "-i", &dat]).success().stdout;
    assert_eq!(number(&theirs), CALLS, "{theirs}");
    assert_eq!(number(&kymo(&["script", "-i", &dat]).success().stdout), CALLS);
}

fn graph(ground: &Ground) {
    let args = ["trace", "--tracer", "function_graph", "-l", GETPPID];
    let text = with_calls(ground, &args).stdout;
    assert_eq!(lines_with(&text, &format!("{GETPPID}()")).len().to_string(), CALLS, "{text}");
}

fn session(ground: &Ground) {
    let (name, dat) = ("guest-matrix", ground.file("f.dat"));
    let _ = kymo(&["session", "create", name, "-e", "syscalls:sys_enter_getppid"]).success();
    let _ = kymo(&["session", "start", name]).success();
    let _ = run(ground.syscalls.program(), [CALLS]).success();
    let taken = kymo(&["session", "snapshot", name, "-o", &dat]);
    let _ = kymo(&["session", "destroy", name]).success();
    let said = taken.success().stderr;
    assert!(said.contains("taken by the kernel"), "{said}");
    let text = kymo(&["script", "-i", &dat]).success().stdout;
    assert_eq!(lines_with(&text, "sys_enter_getppid").len().to_string(), CALLS, "{said}");
}

fn histogram(ground: &Ground) {
    let trigger = |verb: &[&str]| kymo(&[&["event", "trigger"], verb].concat());
    let event = "syscalls:sys_enter_getppid";
    let _ = trigger(&[event, "hist:keys=common_pid.execname"]).success();
    let _ = run(ground.syscalls.program(), [CALLS]).success();
    let path = format!("{TRACING}/events/{}/hist", event.replace(':', "/"));
    let text = fs::read_to_string(path).unwrap();
    let _ = trigger(&[event, "!hist:keys=common_pid.execname"]).success();
    assert!(text.contains(&format!("hitcount:        {CALLS}")), "{text}");
}

/// Records probes while a command runs, removes them, and gives the lines of the events.
fn probed(ground: &Ground, probes: &[&[&str]], command: &[&str]) -> String {
    let data = ground.file("p.data");
    for probe in probes {
        let _ = kymo(&[&["probe", "-q"], *probe].concat()).success();
    }
    let args = ["record", "-q", "-e", "probe*:*", "-o", &data, "--"];
    let recorded = kymo(&[&args[..], command].concat());
    let text = kymo(&["script", "-i", &data]);
    let _ = kymo(&["probe", "-q", "--del", "*:*"]).success();
    let _ = recorded.success();
    text.success().stdout
}

fn kernel_probes(ground: &Ground) {
    let entry = [GETPPID, "name=$comm", "top=+0($stack):x64"];
    let back = [&format!("{GETPPID}%return"), "ret=$retval:s32"];
    let text = probed(ground, &[&entry, &back], &[ground.syscalls.arg(), CALLS]);
    let entries = lines_with(&text, "name=\"syscalls\"");
    assert_eq!(entries.len().to_string(), CALLS, "{text}");
    assert_eq!(lines_with(&text, " ret=").len().to_string(), CALLS, "{text}");
}

fn program_probes(ground: &Ground) {
    let program = ground.spin.arg();
    let functions = kymo(&["probe", "-x", program, "-F"]).success().stdout;
    assert!(functions.lines().any(|l| l == "main"), "{functions}");
    let (entry, back) = (["-x", program, "main"], ["-x", program, "main%return"]);
    let text = probed(ground, &[&entry, &back], &[program, "1"]);
    assert_eq!(text.lines().filter(|l| l.contains("main")).count(), 2, "{text}");
}

/// Records with the command's `record`, and gives what `report` says in JSON.
fn answer(ground: &Ground, command: &str, report: &str, work: &[&str]) -> Value {
    let data = ground.file("a.data");
    let record = [command, "record", "-q", "-o", &data, "--"];
    let _ = kymo(&[&record[..], work].concat()).success();
    json(&kymo(&[command, report, "--json", "-i", &data]).success().stdout)
}

/// A thing that sleeps this often, by another process.
const SLEEPS: [&str; 3] = ["sh", "-c", "for i in 1 2 3 4 5; do sleep 0.02; done"];

fn sched(ground: &Ground) {
    let page = answer(ground, "sched", "latency", &SLEEPS);
    assert!(page.to_string().contains("\"sleep\""), "{page}");
    let data = ground.file("a.data");
    let ours = kymo(&["sched", "timehist", "-i", &data]).success().stdout;
    assert!(ours.lines().any(|l| l.contains("sleep[")), "{ours}");
}

fn sched_stats(ground: &Ground) {
    let text = with_calls(ground, &["sched", "stats", "--json"]).stdout;
    assert!(json(&text)["measured"][0]["cpus"].as_array().unwrap().len() == 2, "{text}");
}

fn locks(ground: &Ground) {
    // Whether anybody waits is chance; the events must be read.
    let page = answer(ground, "lock", "contention", &[ground.syscalls.arg(), CALLS]);
    assert!(page.is_object(), "{page}");
}

fn kmem(ground: &Ground) {
    let page = answer(ground, "kmem", "stat", &["ls", "-l", "/proc"]);
    assert!(page.to_string().len() > 100, "{page}");
}

fn kwork(ground: &Ground) {
    let page = answer(ground, "kwork", "report", &SLEEPS);
    assert!(page.to_string().to_lowercase().contains("timer"), "{page}");
}

fn offcpu(ground: &Ground) {
    let data = ground.file("a.data");
    let record = ["offcpu", "record", "-q", "-o", &data, "--"];
    let _ = kymo(&[&record[..], &SLEEPS].concat()).success();
    let text = kymo(&["offcpu", "report", "-i", &data, "--comm", "sleep"]).success().stdout;
    assert!(text.contains("sleep"), "{text}");
}

fn why(ground: &Ground) {
    let data = ground.file("a.data");
    let text = kymo(&["why", "-i", &data, "--comm", "sh"]);
    assert!(text.stdout.contains("sh"), "{}{}", text.stdout, text.stderr);
}

fn syscalls(ground: &Ground) {
    let data = ground.file("a.data");
    let record = ["syscalls", "record", "-q", "-o", &data];
    let _ = with_calls(ground, &record);
    let text = kymo(&["syscalls", "report", "-i", &data, "--comm", "syscalls"]).success().stdout;
    let line = lines_with(&text, "getppid");
    assert!(line.first().is_some_and(|l| l.contains(CALLS)), "{text}");
}

/// A disk, by drivers that kernels have one or the other of.
fn disk() -> &'static str {
    let load = |module: &str, parameters: &str| {
        let _ = run("/init", ["load", module, parameters]);
    };
    if !Path::new("/dev/sda").exists() {
        load("scsi_debug", "dev_size_mb=8");
        load("sd_mod", "");
    }
    if !Path::new("/dev/sda").exists() {
        load("null_blk", "gb=1 nr_devices=1");
    }
    let there = ["sda", "nullb0"].into_iter().find(|d| Path::new("/dev").join(d).exists());
    there.expect("neither scsi_debug nor null_blk")
}

fn io(ground: &Ground) {
    let (disk, data) = (disk(), ground.file("a.data"));
    let from = format!("if=/dev/{disk}");
    let dd = ["dd", &from, "of=/dev/null", "bs=4096", "count=32", "iflag=direct"];
    let _ = kymo(&[&["io", "record", "-q", "-o", &data, "--"], &dd[..]].concat()).success();
    let text = kymo(&["io", "latency", "-i", &data]).success().stdout;
    assert!(text.contains(disk) && text.contains("32"), "{text}");
}

fn profile(_: &Ground) {
    let text = kymo(&["profile", "--", "sleep", "0.2"]).success();
    let text = format!("{}{}", text.stdout, text.stderr);
    assert!(text.contains("asleep") || text.contains("sleeping"), "{text}");
}

fn counted(ground: &Ground, flags: &[&str]) {
    let event = ["count", "--json", "-e", "syscalls:sys_enter_getppid", "--by", "comm"];
    let o = with_calls(ground, &[&event, flags].concat());
    let page = json(&o.stdout);
    assert_eq!(page["rows"][0]["count"].to_string(), CALLS, "{page} {}", o.stderr);
}

fn count(ground: &Ground) {
    counted(ground, &[]);
}

fn count_without(ground: &Ground) {
    counted(ground, &["--no-bpf"]);
}

/// Runs a program while the workload runs, and gives its maps.
fn maps(text: &str, command: &str) -> String {
    let o = kymo(&["run", "-e", text, "-c", command]).success();
    format!("{}{}", o.stdout, o.stderr)
}

fn getppids(ground: &Ground) -> String {
    format!("{} {CALLS}", ground.syscalls.arg())
}

fn run_tracepoint(ground: &Ground) {
    let text = "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @[comm] = count(); }";
    let said = maps(text, &getppids(ground));
    assert!(said.contains(&format!("@[syscalls]: {CALLS}\n")), "{said}");
}

fn run_kprobe(ground: &Ground) {
    entries_and_returns(ground, "kprobe", "kretprobe");
}

fn entries_and_returns(ground: &Ground, entry: &str, back: &str) {
    let text = format!(
        "{entry}:{GETPPID} /pid == cpid/ {{ @a = count(); }} \
         {back}:{GETPPID} /pid == cpid/ {{ @b[retval > 0] = count(); }}"
    );
    let said = maps(&text, &getppids(ground));
    let right = said.contains(&format!("@a: {CALLS}\n")) && said.contains(&format!("]: {CALLS}\n"));
    assert!(right, "{said}");
}

fn run_uprobe(ground: &Ground) {
    let program = ground.spin.arg();
    let text = format!("uprobe:{program}:main {{ @ = count(); }}");
    let said = maps(&text, &format!("{program} 1"));
    assert!(said.contains("@: 1\n"), "{said}");
}

fn run_fentry(ground: &Ground) {
    entries_and_returns(ground, "fentry", "fexit");
}

/// As on a kernel that is built without BTF, as far as programs see it.
fn without_btf(ground: &Ground) {
    let btf = "/sys/kernel/btf";
    let covered = Path::new(btf).exists();
    if covered {
        let _ = run("mount", ["-t", "tmpfs", "tmpfs", btf]).success();
    }
    let tried = catch_unwind(AssertUnwindSafe(|| {
        count(ground);
        run_tracepoint(ground);
        if (KPROBES.is_there)() {
            run_kprobe(ground);
        }
        let said = kymo(&["run", "-e", "fentry:vfs_read { exit(); }"]).failure().stderr;
        assert!(said.contains("BTF"), "{said}");
    }));
    if covered {
        let _ = run("umount", [btf]).success();
    }
    tried.unwrap();
}

/// A command that starts this program again, for its steps.
fn stepping(ground: &Ground, program: &str, args: &[&str]) -> Outcome {
    let mut command = Command::new(program);
    let me = std::env::current_exe().unwrap();
    command.args(args).arg(me).args(["--exact", "role"]).stdin(Stdio::null());
    command.env("KYMO_UST_DIR", ground.dir.path()).env(ROLE, CALLS);
    run_command(command).success()
}

fn own_tracepoints(ground: &Ground) {
    let text = stepping(ground, KYMO, &["trace", "-u", "matrix:step", "--"]).stdout;
    assert_eq!(lines_with(&text, " is even").len(), 250, "{text}");
    assert_eq!(lines_with(&text, " is odd").len(), 250, "{text}");
    let dat = ground.file("u.dat");
    let _ = stepping(ground, KYMO, &["trace", "-u", "matrix:step", "-o", &dat, "--"]);
    let text = kymo(&["script", "-i", &dat]).success().stdout;
    assert_eq!(lines_with(&text, " is even").len(), 250, "{text}");
}

fn counters(ground: &Ground) {
    let said = stepping(ground, KYMO, &["count", "-u", "--json", "--"]).stdout;
    // Behind what the program itself has printed.
    let page = json(&said[said.find("\n{").unwrap_or_default()..]);
    let text = page.to_string();
    assert!(text.contains("steps") && text.matches("250").count() == 2, "{page}");
}

fn paranoid(_: &Ground) {
    let path = "/proc/sys/kernel/perf_event_paranoid";
    let before = fs::read_to_string(path).unwrap();
    fs::write(path, "4").unwrap();
    let nobody = Unprivileged::new(Path::new(KYMO));
    let refused = nobody.run(["stat", "-e", "page-faults:k", "true"]);
    fs::write(path, before.trim()).unwrap();
    let said = refused.failure().stderr;
    assert!(said.contains("perf_event_paranoid") && said.contains('4'), "{said}");
}

/// The directory is found where older kernels have it, and kymo does not need the other.
fn debugfs_only(ground: &Ground) {
    let _ = run("umount", [TRACING]).success();
    let tried = catch_unwind(AssertUnwindSafe(|| stat(ground)));
    let mounted = Path::new(TRACING).join("events").exists();
    if !mounted {
        let _ = run("mount", ["-t", "tracefs", "tracefs", TRACING]).success();
    }
    tried.unwrap();
}

fn unprivileged(_: &Ground) {
    let nobody = Unprivileged::new(Path::new(KYMO));
    let o = nobody.run(["stat", "-e", "task-clock", "true"]);
    let said = format!("{}{}", o.stdout, o.stderr);
    // Debian's kernels refuse this from level 3 on, with the setting.
    assert!(o.status == 0 || said.contains("perf_event_paranoid"), "{said}");
}
