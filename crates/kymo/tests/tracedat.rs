//! trace.dat files: `kymo script` shows what `trace-cmd report` shows, of files
//! that trace-cmd wrote and of those that kymo writes; report and list agree.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use kymo_files::tracedat::{BufferSpec, Compression, Format, TraceDat, TraceDatWriter, TraceFacts};
use kymo_testkit::{Need, Outcome, require, run};
use serde_json::Value;
use tempfile::TempDir;

const RING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/trace-dat/x86_64/ring.dat");

fn kymo(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), args)
}

/// `-N`: the plugins word the events of some systems as older kernels did.
fn trace_cmd(args: &[&str]) -> String {
    run("trace-cmd", args).success().stdout
}

/// The lines that differ, first of kymo's then of trace-cmd's. A stack is one
/// line; a name that trace-cmd does not know is no difference.
fn differences(ours: &str, theirs: &str) -> Vec<(String, String)> {
    let events = |text: &str| -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for line in text.lines() {
            match lines.last_mut() {
                Some(last) if line.trim_start().starts_with("=>") => last.push_str(line),
                _ => lines.push(line.to_owned()),
            }
        }
        lines
    };
    let (ours, theirs) = (events(ours), events(theirs));
    assert_eq!(ours.len(), theirs.len(), "number of lines");
    let same = |(a, b): &(String, String)| {
        let unnamed = b.split_once("<...>-").map(|(start, rest)| {
            // The name stands to the right in its column.
            a.ends_with(&format!("-{rest}"))
                && start.trim() == a.get(..start.trim_end().len()).unwrap_or("").trim()
        });
        // Its fork states that 2332 began as `sh`; it executed `sleep` later, and trace-cmd shows
        // the last name for all its events.
        a == b || unnamed == Some(true) || a.replace("   sh-2332", "sleep-2332") == *b
    };
    ours.into_iter().zip(theirs).filter(|pair| !same(pair)).collect()
}

/// Writes the recording in all forms that this trace-cmd can write.
fn forms(dir: &TempDir) -> Vec<PathBuf> {
    let mut all = vec![PathBuf::from(RING)];
    for (name, args) in [
        ("v6.dat", &["--file-version", "6"][..]),
        ("v7.dat", &["--file-version", "7", "--compression", "none"]),
    ] {
        let to = dir.path().join(name);
        let path = to.to_str().unwrap();
        trace_cmd(&[&["convert", "-i", RING, "-o", path], args].concat());
        all.push(to);
    }
    all
}

#[test]
fn text_is_trace_cmds_event_by_event() {
    if !require(&[Need::TraceCmd]) {
        return;
    }
    let dir = TempDir::new().unwrap();
    for path in forms(&dir) {
        let path = path.to_str().unwrap();
        let ours = kymo(&["script", path]).success();
        let theirs = trace_cmd(&["report", "-N", path]);
        let differ = differences(&ours.stdout, &theirs);
        // The print format that trace-cmd uses for stacks knows eight entries
        // and no addresses; its own way, without -N, is the same as kymo's.
        assert_eq!(differ.len(), 1, "{path}: {differ:#?}");
        assert!(differ[0].0.contains("kernel_stack:"), "{differ:?}");
        let whole = trace_cmd(&["report", path]);
        let stack = |text: &str| -> Vec<String> {
            text.lines().filter(|l| l.starts_with("=>")).map(str::to_owned).collect()
        };
        assert_eq!(stack(&ours.stdout), stack(&whole));
        assert_eq!(stack(&whole).len(), 7);
        // Names are known of more tasks: events tell them.
        assert!(theirs.contains("<...>-2331"), "the file has not all names");
        let line = "           <...>-2331  [000] 15808.933926: sys_enter:            NR 3 (3, 17, 1, 2, 3, 0)";
        assert_eq!(ours.stdout.lines().nth(2), Some(line));
        assert!(ours.stdout.contains("             cat-2331  [000] 15808.934"), "{path}");
        // Up to the switch in the middle of its exec.
        let early = ours.stdout.lines().filter(|line| line.contains(" sh-2332 ")).count();
        assert_eq!(early, 12, "{path}");
    }
}

#[test]
fn flags_and_nanoseconds_are_trace_cmds() {
    if !require(&[Need::TraceCmd]) {
        return;
    }
    for flag in ["-l", "-t"] {
        let ours = kymo(&["script", flag, RING]).success().stdout;
        let theirs = trace_cmd(&["report", "-N", flag, RING]);
        // trace-cmd writes N where the kernel's own text has n: the task is to be rescheduled, but
        // preemption is not marked so.
        let differ =
            differences(&ours.replace("dn", "dN").replace(".n", ".N"), &theirs.replace(".n", ".N"));
        let differ: Vec<_> = differ.iter().filter(|d| !d.0.contains("kernel_stack:")).collect();
        assert!(differ.is_empty(), "{flag}: {differ:#?}");
    }
}

#[test]
fn losses_are_marked_where_they_happened_and_noted() {
    let out = kymo(&["script", RING]).success();
    let text: Vec<&str> = out.stdout.lines().take(2).collect();
    assert_eq!(text, ["cpus=2", "ring: CPU:0 [EVENTS DROPPED]"]);
    assert!(out.stderr.contains("lost: events lost in 1 place, number unknown"));
    let _ = kymo(&["script", "--strict", RING]).expect_status(3);
    let json = kymo(&["script", "--json", RING]).success().stdout;
    let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(first, serde_json::json!({"cpu": 0, "lost": null, "instance": "ring"}));
}

#[test]
fn json_has_what_the_text_has() {
    let out = kymo(&["script", "--json", "--event", "sched_switch", RING]).success().stdout;
    let events: Vec<Value> =
        out.lines().skip(1).map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(events.len(), 10);
    let first = &events[0];
    assert_eq!(first["event"], "sched:sched_switch");
    assert_eq!((&first["cpu"], &first["tid"]), (&0.into(), &2331.into()));
    assert_eq!(first["instance"], "ring");
    assert_eq!(first["fields"]["prev_comm"], "cat");
    assert_eq!(first["fields"]["next_pid"], 2328);
    assert_eq!(first["flags"], "d..2.");

    // Which process a thread is of is known from the event on that has it.
    let all = kymo(&["script", "--json", RING]).success().stdout;
    let all: Vec<Value> = all.lines().skip(1).map(|l| serde_json::from_str(l).unwrap()).collect();
    let mut leaders = std::collections::BTreeSet::from([0]);
    for event in all.iter().filter(|e| e.get("lost").is_none()) {
        let tid = event["tid"].as_u64().unwrap();
        let field = |name: &str| event["fields"][name].as_u64().unwrap();
        match event["event"].as_str().unwrap() {
            // None of them is a thread of another process.
            "task:task_newtask" => {
                assert_eq!(field("clone_flags") & 0x10000, 0, "{event}");
                _ = leaders.insert(field("pid"));
            }
            "sched:sched_process_exec" => _ = leaders.insert(tid),
            _ => {}
        }
        let known = leaders.contains(&tid).then_some(tid);
        assert_eq!(event.get("pid").and_then(Value::as_u64), known, "{event}");
    }
    assert!(leaders.len() > 1);
}

/// Fields hold functions as numbers; their names are those that trace-cmd prints.
#[test]
fn json_has_the_names_of_functions() {
    if !require(&[Need::TraceCmd]) {
        return;
    }
    let theirs = trace_cmd(&["report", "-N", RING]);
    let json = kymo(&["script", "--json", RING]).success().stdout;
    let events = json.lines().skip(1).map(|l| serde_json::from_str::<Value>(l).unwrap());
    let mut messages = 0;
    for event in events {
        let Some(message) = event.get("message").and_then(Value::as_str) else { continue };
        // Of a stack each function is a line, and with `-N` it has no address.
        let parts = message.lines().filter(|part| *part != "<stack trace >");
        for part in parts {
            let part =
                if part.starts_with("=> ") { part.split(" (").next().unwrap() } else { part };
            assert!(theirs.lines().any(|line| line.trim_end().ends_with(part)), "{event}");
        }
        messages += 1;
    }
    assert!(messages > 0, "{json}");
}

#[test]
fn filters_leave_what_they_say() {
    let all = kymo(&["script", RING]).success().stdout;
    let lines = |args: &[&str]| -> Vec<String> {
        let out = kymo(&[&["script", RING], args].concat()).success().stdout;
        let events = |l: &&str| !l.starts_with("cpus=") && !l.contains("EVENTS DROPPED");
        out.lines().filter(events).map(str::to_owned).collect()
    };
    let of = |what: &str| all.lines().filter(|l| l.contains(what)).count();
    assert_eq!(lines(&["--cpu", "1"]).len(), of("[001]") + 7, "and seven lines of a stack");
    assert_eq!(lines(&["--pid", "2328"]).len(), of("-2328 "));
    assert_eq!(lines(&["--event", "sys_exit"]).len(), of(": sys_exit: "));
    assert_eq!(lines(&["--event", "raw_syscalls:sys_exit"]).len(), of(": sys_exit: "));
    assert_eq!(lines(&["--event", "*_openat"]).len(), of("_openat: "));
    assert_eq!(lines(&["--comm", "rustc"]).len(), of(" rustc-"));
    let within = lines(&["--time", "15808.934,15808.9342"]);
    assert!(
        within.len() > 10
            && within.iter().all(|l| l.contains(" 15808.9340")
                || l.contains(" 15808.9341")
                || l.contains(" 15808.934200"))
    );
    assert_eq!(
        lines(&["--time", "0%-50%"]).len() + lines(&["--time", "50%-100%"]).len(),
        lines(&[]).len()
    );
}

/// The recording once more, as kymo writes it.
fn rewritten(dir: &TempDir, version: u32, compression: Compression) -> PathBuf {
    let plain = dir.path().join("plain.dat");
    let path = plain.to_str().unwrap();
    trace_cmd(&["convert", "-i", RING, "-o", path, "--file-version", "7", "--compression", "none"]);
    let data = TraceDat::open(&plain).unwrap();
    let facts = TraceFacts {
        endian: data.endian(),
        long_size: data.long_size(),
        page_size: data.page_size(),
        machine: data.machine().clone(),
        options: data.options().clone(),
    };
    let spec = |b: &kymo_files::tracedat::Buffer| BufferSpec {
        name: b.name.clone(),
        clock: b.clock.clone(),
        page_size: b.page_size,
        cpus: b.cpus.iter().map(|c| c.cpu).collect(),
    };
    let specs: Vec<BufferSpec> = data.buffers().iter().map(spec).collect();
    let to = dir.path().join(format!("{version}-{}.dat", compression.name()));
    let format = Format { version, compression };
    let runs =
        data.buffers().iter().enumerate().flat_map(|(i, b)| b.cpus.iter().map(move |c| (i, *c)));
    let mut writer = TraceDatWriter::create(&to, format, &facts, specs).unwrap();
    let mut pages = File::open(&plain).unwrap();
    for (i, c) in runs {
        writer.add_cpu_data(i, c.cpu, &mut pages, c.offset, c.size).unwrap();
    }
    writer.finish().unwrap();
    to
}

#[test]
fn what_kymo_writes_trace_cmd_reads() {
    if !require(&[Need::TraceCmd]) {
        return;
    }
    let dir = TempDir::new().unwrap();
    let expected = trace_cmd(&["report", "-N", RING]);
    for (version, compression) in
        [(6, Compression::None), (7, Compression::None), (7, Compression::Zstd)]
    {
        let path = rewritten(&dir, version, compression);
        let path = path.to_str().unwrap();
        assert_eq!(trace_cmd(&["report", "-N", path]), expected, "{path}");
        let ours = kymo(&["script", path]).success();
        assert_eq!(ours.stdout, kymo(&["script", RING]).success().stdout, "{path}");
    }
    // Debian's trace-cmd knows no zlib.
    let path = rewritten(&dir, 7, Compression::Zlib);
    let ours = kymo(&["script", path.to_str().unwrap()]).success();
    assert_eq!(ours.stdout, kymo(&["script", RING]).success().stdout);
}

#[test]
fn report_counts_what_script_shows() {
    let text = kymo(&["script", RING]).success().stdout;
    let mut counts = BTreeMap::<String, u64>::new();
    for line in text.lines().filter(|l| l.contains("] 15808.")) {
        let event = line.split_once("] ").unwrap().1.split_whitespace().nth(1).unwrap();
        *counts.entry(event.trim_end_matches(':').to_owned()).or_default() += 1;
    }
    // A stack belongs to the event before it.
    assert_eq!(counts.remove("kernel_stack"), Some(1));
    let json = kymo(&["report", "--json", "--sort", "event", RING]).success().stdout;
    let page: Value = serde_json::from_str(&json).unwrap();
    let found: BTreeMap<String, u64> = page["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| {
            let name = e["event"].as_str().unwrap().split_once(':').unwrap().1;
            (name.to_owned(), e["events"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(found, counts);
    assert_eq!(page["events"], 585);
    let exec = page["entries"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["event"] == "sched:sched_process_exec");
    let stack = &exec.unwrap()["stacks"][0]["stack"];
    assert_eq!(
        (&stack[2], &stack[6]),
        (&"bprm_execve".into(), &"entry_SYSCALL_64_after_hwframe".into())
    );
}

#[test]
fn report_groups_by_fields_and_names_what_is_missing() {
    let report = |sort: &str| kymo(&["report", "-g", "none", "--sort", sort, RING]);
    let out = report("event,sched_switch.next_comm").success().stdout;
    let row =
        |of: &str| out.lines().find(|l| l.contains(of)).unwrap_or_else(|| panic!("{of}:\n{out}"));
    assert!(row("sys_enter_openat").ends_with("N/A"), "{out}");
    let switches: Vec<_> = out.lines().filter(|l| l.contains("sched:sched_switch")).collect();
    assert!(switches.len() > 2 && switches.iter().all(|l| !l.ends_with("N/A")), "{out}");
    let none = report("nonsense").failure().stderr;
    assert!(none.contains("no event has a field `nonsense`"), "{none}");
    let none = report("sched_switch.nonsense").failure().stderr;
    assert!(none.contains("it has prev_comm, prev_pid, prev_prio"), "{none}");
    let page = kymo(&["report", "--sort", "stack,comm", RING]).success().stdout;
    assert!(page.contains("__traceiter_sched_process_exec < bprm_execve"), "{page}");
    let stderr = kymo(&["report", "--children", RING]).failure().stderr;
    assert!(stderr.contains("--children is for perf.data"), "{stderr}");
}

#[test]
fn list_names_what_is_in_the_file() {
    let out = kymo(&["list", RING]).success().stdout;
    let line = out.lines().find(|l| l.contains("raw_syscalls:sys_enter")).unwrap();
    assert!(line.ends_with("       218 events"), "{line}");
    assert!(out.contains("more events that did not happen"), "{out}");
    let json = kymo(&["list", "--json", "-i", RING, "sched:*"]).success().stdout;
    let all: Vec<Value> = serde_json::from_str(&json).unwrap();
    let switch = all.iter().find(|e| e["name"] == "sched:sched_switch").unwrap();
    assert_eq!((&switch["events"], &switch["id"]), (&10.into(), &372.into()));
    assert_eq!(switch["fields"][4]["name"], "prev_comm");
}

#[test]
fn a_cut_file_is_shown_as_far_as_it_goes_and_fails() {
    let dir = TempDir::new().unwrap();
    let whole = std::fs::read(RING).unwrap();
    let path = dir.path().join("cut.dat");
    let show = |n: usize| {
        std::fs::write(&path, &whole[..n]).unwrap();
        kymo(&["script", path.to_str().unwrap()])
    };
    // The last thing in the file are the strings, which nothing needs.
    assert_eq!(show(whole.len() - 1).success().stdout, kymo(&["script", RING]).success().stdout);
    for n in [11, 15, 40, 200, 1000, whole.len() / 2] {
        let out = show(n).failure();
        assert!(out.stderr.contains("at offset"), "{n}: {}", out.stderr);
    }
    let not = show(5).failure().stderr;
    assert!(not.contains("is not a perf.data file"), "{not}");
}

#[test]
fn flags_of_perf_data_are_refused() {
    for flag in [&["-F", "comm"][..], &["-D"], &["--show-mmap-events"], &["--reltime"]] {
        let out = kymo(&[&["script", RING], flag].concat()).failure();
        assert!(out.stderr.contains("is for perf.data"), "{}", out.stderr);
    }
    assert!(Path::new(RING).exists());
}
