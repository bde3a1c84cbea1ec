//! `kymo convert` of recordings without samples: the stacks of a trace.dat are those
//! that `trace-cmd report` prints behind its events; those of a CTF trace are in it
//! as babeltrace2 shows them.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

mod exports;

use std::collections::BTreeMap;
use std::path::Path;

use exports::{Folded, firefox, folded, pprof, same, speedscope};
use kymo_testkit::{Need, Outcome, TracingState, require, run};
use tempfile::TempDir;

fn kymo(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), args)
}

/// Converts the output of `trace-cmd report` to folded stacks. A stack belongs to the last event of
/// the task on that CPU that has none yet.
fn fold(report: &str) -> Folded {
    let mut all: Vec<(String, String, Vec<String>)> = Vec::new();
    let mut stack_of: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    let mut open = None;
    for line in report.lines().filter(|l| !l.starts_with("cpus=")) {
        if let Some(frame) = line.strip_prefix("=> ") {
            let at: usize = open.unwrap();
            all[at].2.push(frame.split(' ').next().unwrap().to_owned());
            continue;
        }
        let (front, rest) = line.split_once(" [").unwrap();
        let (cpu, rest) = rest.split_once("] ").unwrap();
        let comm = front.trim().rsplit_once('-').unwrap().0;
        let event = rest.split_once(": ").unwrap().1.split(':').next().unwrap();
        let waiting = stack_of.entry((front.trim().to_owned(), cpu.to_owned())).or_default();
        if event == "kernel_stack" {
            open = waiting.pop();
            continue;
        }
        waiting.push(all.len());
        all.push((comm.to_owned(), event.to_owned(), Vec::new()));
    }
    let mut folded = Folded::new();
    for (comm, event, mut frames) in all {
        frames.push(comm);
        frames.reverse();
        frames.push(event);
        *folded.entry(frames.join(";")).or_default() += 1;
    }
    folded
}

/// Without the systems of events, which trace-cmd does not print, and marks.
fn bare(folded: Folded) -> Folded {
    let mut bare = Folded::new();
    for (stack, weight) in folded {
        let (outer, event) = stack.rsplit_once(';').unwrap();
        let event = event.rsplit_once(':').map_or(event, |e| e.1);
        let stack = format!("{};{event}", outer.replace("_[k]", ""));
        *bare.entry(stack).or_default() += weight;
    }
    bare
}

#[test]
fn the_stacks_of_a_trace_dat_are_those_that_trace_cmd_prints() {
    if !require(&[Need::Root, Need::Tracefs, Need::TraceCmd]) {
        return;
    }
    let _state = TracingState::take();
    let dir = TempDir::new().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let data = file("t.dat");
    let events = "syscalls:sys_enter_openat,kmem:kmalloc,sched:sched_process_exec";
    let args = ["trace", "-q", "-T", "-o", &data, "-e", events, "--", "ls", "-R", "/etc/init.d"];
    let _ = kymo(&args).success();
    let report = run("trace-cmd", ["report", "-i", &data]).success().stdout;
    let theirs = fold(&report);
    let args = ["convert", "-f", "folded", &data];
    let converted = kymo(&args).success();
    let events: u64 = theirs.values().sum();
    let told = format!("stacks: {events} of {events} events have a stack of the kernel\n");
    assert!(converted.stderr.contains(&told), "{}", converted.stderr);
    same(&bare(folded(&converted.stdout)), &theirs);

    let out = |name: &str| {
        let path = file(name);
        let _ = kymo(&["convert", &data, "-o", &path]).success();
        std::fs::read(path).unwrap()
    };
    let profile = pprof::Profile::read(&out("a.pb.gz"));
    assert_eq!(profile.types[1], ("events".into(), "count".into()));
    same(&bare(profile.folded(1)), &theirs);
    let threads = speedscope::read(&out("a.speedscope.json"));
    let all = |profiles: Vec<Folded>| {
        profiles.into_iter().flatten().fold(Folded::new(), |mut all, (k, v)| {
            *all.entry(k).or_default() += v;
            all
        })
    };
    same(&bare(all(threads)), &theirs);
    same(&bare(firefox::read(&out("a.json"))), &theirs);
    let svg = String::from_utf8(out("a.svg")).unwrap();
    assert!(svg.contains("t.dat: events") && svg.contains("kmem:kmalloc"), "{svg}");

    // What weighs may be a field: the bytes that were asked for, by who asked for them.
    let bytes = kymo(&["convert", "-f", "folded", &data, "--weight", "kmalloc.bytes_req"]);
    let bytes = bytes.success();
    let listed = |l: &str| l.split_once(" bytes_req=")?.1.split(' ').next()?.parse::<u64>().ok();
    let asked: u64 = report.lines().filter_map(listed).sum();
    assert!(asked > 0);
    assert_eq!(folded(&bytes.stdout).values().sum::<u64>(), asked);
    assert!(bytes.stderr.contains("have no field bytes_req and are left out"), "{}", bytes.stderr);
}

/// A recording with one stack only: an event without one stands below its task.
const RING: &str = "tests/fixtures/trace-dat/x86_64/ring.dat";

#[test]
fn events_without_a_stack_stand_below_their_task_and_can_be_chosen() {
    let converted =
        |args: &[&str]| kymo(&[&["convert", "-f", "folded", RING], args].concat()).success().stdout;
    let all = folded(&converted(&[]));
    assert_eq!(all.values().sum::<u64>(), 585);
    // Seven functions of the kernel, as trace-cmd shows them.
    let deep: Vec<&String> = all.keys().filter(|k| k.contains("_[k]")).collect();
    assert_eq!(deep.len(), 1, "{deep:#?}");
    assert!(deep[0].ends_with("_[k];sched:sched_process_exec"), "{deep:?}");
    assert_eq!(deep[0].matches("_[k]").count(), 7, "{deep:?}");
    let counts = kymo(&["report", "-i", RING, "--sort", "event", "--json"]).success().stdout;
    let mut by_event = BTreeMap::new();
    for (stack, n) in &all {
        *by_event.entry(stack.rsplit(';').next().unwrap()).or_insert(0) += n;
    }
    let counts: serde_json::Value = serde_json::from_str(&counts).unwrap();
    for entry in counts["entries"].as_array().unwrap() {
        let name = entry["event"].as_str().unwrap();
        if name != "ftrace:kernel_stack" {
            assert_eq!(by_event.get(name), entry["events"].as_u64().as_ref(), "{name}");
        }
    }
    let own = folded(&converted(&["-c", "sleep", "-e", "sys_enter,raw_syscalls:sys_exit"]));
    let names: Vec<&str> = own.keys().map(String::as_str).collect();
    assert_eq!(names, ["sleep;raw_syscalls:sys_enter", "sleep;raw_syscalls:sys_exit"]);
    // The first half of the time ends where the second begins.
    let [first, second] = ["0%-50%", "50%-100%"].map(|t| folded(&converted(&["--time", t])));
    assert_eq!([first, second].iter().flat_map(Folded::values).sum::<u64>(), 585);
    let refused = |args: &[&str], why: &str| {
        let said = kymo(&[&["convert", "-f", "folded", RING], args].concat()).failure().stderr;
        assert!(said.contains(why), "{args:?}: {said}");
    };
    refused(&["-e", "nonsense"], "-e nonsense: the recording has no such event");
    refused(&["--weight", "nonsense"], "no event of the recording has a field nonsense");
    refused(&["--weight", "a b"], "not `period`, `samples`, `on`, `off`, `wall`, or a field");
    refused(&["-d", "libc.so.6"], "--dsos needs a perf.data");
}

const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 64; align = 8; signed = false; base = 16; } := addr_t;
trace {
    major = 1; minor = 8; byte_order = le;
    packet.header := struct { uint32_t magic; uint32_t stream_id; };
};
env { hostname = "elsewhere"; domain = "kernel"; kernel_release = "1.2.3"; };
clock { name = mono; freq = 1000000000; };
typealias integer { size = 64; align = 8; map = clock.mono.value; } := stamp_t;
stream {
    id = 0;
    packet.context := struct { uint32_t cpu_id; };
    event.header := struct { uint32_t id; stamp_t timestamp; };
    event.context := struct {
        uint32_t _tid;
        string _procname;
        uint32_t __callstack_kernel_length;
        addr_t _callstack_kernel[__callstack_kernel_length];
        uint32_t __callstack_user_length;
        addr_t _callstack_user[__callstack_user_length];
    };
};
event {
    name = "kmem_alloc"; id = 0; stream_id = 0;
    fields := struct { uint64_t _bytes; };
};
event { name = "nothing"; id = 1; stream_id = 0; fields := struct { uint32_t _x; }; };
"#;

/// Writes a trace as LTTng's tracer of the kernel does with its contexts.
fn write_trace(dir: &Path) {
    std::fs::write(dir.join("metadata"), METADATA).unwrap();
    let mut bytes = Vec::new();
    for n in [0xc1fc_1fc1_u32, 0, 0] {
        bytes.extend(n.to_le_bytes());
    }
    let mut event = |id: u32, time: u64, kernel: &[u64], user: &[u64], body: &[u8]| {
        bytes.extend(id.to_le_bytes());
        bytes.extend(time.to_le_bytes());
        bytes.extend(77_u32.to_le_bytes());
        bytes.extend(b"worker\0");
        for stack in [kernel, user] {
            // The tracer's own mark of the end.
            bytes.extend((stack.len() as u32 + 1).to_le_bytes());
            stack.iter().chain(&[u64::MAX]).for_each(|a| bytes.extend(a.to_le_bytes()));
        }
        bytes.extend(body);
    };
    let (inner, outer) = (0xffff_ffff_8100_1010, 0xffff_ffff_8100_2020);
    event(0, 1000, &[inner, outer], &[0x40_1000, 0x40_2000], &300_u64.to_le_bytes());
    event(0, 2000, &[inner, outer], &[0x40_1000, 0x40_2000], &200_u64.to_le_bytes());
    event(0, 3000, &[outer], &[], &7_u64.to_le_bytes());
    event(1, 4000, &[], &[], &1_u32.to_le_bytes());
    std::fs::write(dir.join("stream"), bytes).unwrap();
}

#[test]
fn the_callstacks_of_a_ctf_trace_are_stacks() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let dir = TempDir::new().unwrap();
    write_trace(dir.path());
    let path = dir.path().display().to_string();
    // It is what it is meant to be.
    let shown = run("babeltrace2", [&path]).success().stdout;
    let stack = "callstack_kernel = [ [0] = 0xFFFFFFFF81001010, [1] = 0xFFFFFFFF81002020";
    assert_eq!(shown.lines().filter(|l| l.contains(stack)).count(), 2, "{shown}");
    let names = TempDir::new().unwrap();
    let kallsyms = names.path().join("kallsyms").display().to_string();
    let symbols = "ffffffff81001000 T inner\nffffffff81002000 T outer\nffffffff81003000 T _etext\n";
    std::fs::write(&kallsyms, symbols).unwrap();
    let convert = |args: &[&str]| kymo(&[&["convert", "-f", "folded", &path], args].concat());
    let named = convert(&["--kallsyms", &kallsyms]).success();
    let expected: Folded = [
        ("worker;[unknown];[unknown];outer_[k];inner_[k];kmem_alloc", 2),
        ("worker;outer_[k];kmem_alloc", 1),
        ("worker;nothing", 1),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), v))
    .collect();
    assert_eq!(folded(&named.stdout), expected);
    let told = "3 of 4 events have a stack of the kernel, 2 one of the program";
    assert!(named.stderr.contains(told), "{}", named.stderr);
    let bytes = convert(&["--kallsyms", &kallsyms, "--weight", "bytes"]).success();
    assert_eq!(folded(&bytes.stdout).values().copied().collect::<Vec<_>>(), [500, 7]);
    assert!(bytes.stderr.contains("1 event has no field bytes"), "{}", bytes.stderr);
    // Names of another kernel than the trace's would be wrong: there are none.
    let nameless = convert(&["--strict"]).expect_status(3);
    assert!(folded(&nameless.stdout).keys().all(|k| !k.contains("_[k];_")), "{}", nameless.stdout);
    assert!(nameless.stdout.contains("worker;[kernel.kallsyms]_[k];kmem_alloc 1"));
    assert!(nameless.stderr.contains("2 addresses of the kernel have no name"));
    assert!(nameless.stderr.contains("--kallsyms FILE names its symbols"), "{}", nameless.stderr);
}
