//! `kymo count` and `kymo run` in user space, on events out of rings: the same numbers as of
//! programs in the kernel, what is lost on the way, what is refused, and who has no right to
//! programs in the kernel.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use kymo_testkit::{
    Need, Outcome, Unprivileged, Workload, ledger_of, page_with_ledger, require, run, run_command,
};
use serde_json::{Value, json};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

fn begin() -> bool {
    require(&[Need::Root, Need::Tracefs, Need::PerfEvents])
}

fn page_of(o: &Outcome) -> Value {
    page_with_ledger(&o.stdout, &o.stderr)
}

/// The object of `--json`, counted in the kernel or in user space.
#[track_caller]
fn counted(in_rings: bool, args: &[&str]) -> Value {
    let way: &[&str] = if in_rings { &["--no-bpf"] } else { &[] };
    page_of(&run(KYMO, [&["count", "--json"], way, args].concat()).success())
}

/// Notes beside that on the way.
fn other_notes(page: &Value) -> Vec<&Value> {
    let ledger = page["ledger"].as_array().unwrap();
    assert!(ledger.iter().any(|note| note["kind"] == "no-bpf"), "{page}");
    ledger.iter().filter(|note| note["kind"] != "no-bpf").collect()
}

/// Counts in both ways and compares; the rows are given back.
#[track_caller]
fn same_rows(args: &[&str]) -> Value {
    let (kernel, rings) = (counted(false, args), counted(true, args));
    assert_eq!(kernel["rows"], rings["rows"], "{args:?}: {kernel}\n{rings}");
    for name in ["measure", "left_out", "left_out_sum"] {
        assert_eq!(kernel[name], rings[name], "{args:?}: {kernel}\n{rings}");
    }
    let theirs = kernel["ledger"].as_array().unwrap();
    assert_eq!(theirs.iter().collect::<Vec<_>>(), other_notes(&rings), "{args:?}");
    rings["rows"].clone()
}

const CALLS: [&str; 2] = ["-e", "syscalls:sys_enter_getppid"];
const RAW_CALLS: [&str; 4] = ["-e", "raw_syscalls:sys_enter", "--filter", "id == 110"];
/// Fifty writes of a thousand bytes.
const WRITES: [&str; 6] = ["--", "dd", "if=/dev/zero", "of=/dev/null", "bs=1000", "count=50"];

#[test]
fn both_ways_count_the_same() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let command = ["--", work.arg(), "700"];
    let rows = same_rows(&[&CALLS[..], &command].concat());
    assert_eq!(rows, json!([{"key": {}, "count": 700}]));
    let rows = same_rows(&[&RAW_CALLS[..], &["--by", "comm,uid,cgroup"], &command].concat());
    assert_eq!((&rows[0]["count"], &rows[0]["key"]["comm"]), (&700.into(), &"syscalls".into()));
    // Children, and keys of texts whose length is known from the record only.
    let script = format!("{0} 300; {0} 400", work.arg());
    let shell = ["--", "sh", "-c", &script];
    let rows = same_rows(&[&CALLS[..], &["--by", "comm"], &shell].concat());
    assert_eq!(rows[0], json!({"key": {"comm": "syscalls"}, "count": 700}));
    let rows = same_rows(
        &[&["-e", "sched:sched_process_exec", "--by", "filename", "--top", "1"][..], &shell]
            .concat(),
    );
    assert_eq!((&rows[0]["count"], &rows[0]["key"]["filename"]), (&2.into(), &work.arg().into()));
    let events = ["-e", "syscalls:sys_enter_getppid,syscalls:sys_exit_getppid", "--by", "event"];
    let rows = same_rows(&[&events[..], &command].concat());
    assert_eq!((&rows[0]["count"], &rows[1]["count"]), (&700.into(), &700.into()));
}

/// A program of the kernel does not filter perf events of others by what it returns.
#[test]
fn programs_in_the_kernel_keep_no_event_from_rings() {
    if !begin() {
        return;
    }
    let text = "BEGIN { printf(\"on\\n\"); } \
                tracepoint:sched:sched_process_exec { @[str(args.filename)] = count(); }";
    let mut child = Command::new(KYMO)
        .args(["run", "-e", text])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "on"));
    let work = Workload::syscalls();
    let page = counted(true, &["-e", "sched:sched_process_exec", "--", work.arg(), "1"]);
    assert_eq!(page["rows"][0]["count"], 1, "{page}");
    let _ = run("kill", ["-INT", &child.id().to_string()]).success();
    // It saw the same.
    assert!(lines.any(|line| line.unwrap() == format!("@[{}]: 1", work.arg())));
    child.wait().unwrap();
}

#[test]
fn both_ways_measure_the_same() {
    if !begin() {
        return;
    }
    let event = ["-e", "syscalls:sys_enter_write", "--filter", "count == 1000"];
    let check = |measure: &[&str], name: &str, expected: Value| {
        let rows = same_rows(&[&event[..], measure, &WRITES].concat());
        assert_eq!(rows[0][name], expected, "{measure:?}");
    };
    check(&["--sum", "count"], "sum", 50_000.into());
    check(&["--avg", "count"], "average", 1000.into());
    check(&["--min", "count"], "min", 1000.into());
    check(&["--max", "count"], "max", 1000.into());
    check(&["--stats", "count"], "count", 50.into());
    check(&["--hist", "count"], "buckets", json!([{"from": 512, "to": 1024, "count": 50}]));
    check(
        &["--lhist", "count:0:2000:300"],
        "buckets",
        json!([{"from": 900, "to": 1200, "count": 50}]),
    );
    // Arguments of all sizes.
    let all = ["-e", "syscalls:sys_enter_write", "--filter", "fd == 1", "--hist", "count"];
    let _ = same_rows(&[&all[..], &["--by", "comm,fd"], &WRITES].concat());
}

#[test]
fn latencies_have_pairs_and_the_slowest_in_user_space() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let latency = "raw_syscalls:sys_enter -> raw_syscalls:sys_exit by tid";
    let flags = ["--latency", latency, "--filter", "args.id == 110", "--", work.arg(), "600"];
    let (kernel, rings) = (counted(false, &flags), counted(true, &flags));
    for name in ["not_ended", "begun_again"] {
        assert_eq!(kernel[name], rings[name], "{kernel}\n{rings}");
    }
    let row = &rings["rows"][0];
    assert_eq!((&row["count"], &kernel["rows"][0]["count"]), (&600.into(), &600.into()));
    let number = |value: &Value| value.as_u64().unwrap();
    let order = ["p50_ns", "p90_ns", "p99_ns", "max_ns"].map(|name| number(&row[name]));
    assert!(order.is_sorted() && order[0] > 0, "{order:?}");
    let slowest = rings["slowest"].as_array().unwrap();
    assert_eq!((number(&slowest[0]["latency_ns"]), slowest.len()), (order[3], 5), "{rings}");
    assert!(other_notes(&rings).is_empty(), "{rings}");
}

#[test]
fn both_ways_have_the_same_stacks() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    // Enough that the program still runs when its mappings are read.
    let command = ["--", work.arg(), "300000"];
    let by = |by: &str, in_rings| {
        let page =
            counted(in_rings, &[&RAW_CALLS[..], &["-m", "32M", "--by", by], &command].concat());
        let stack = page["rows"][0]["key"][by].clone();
        let names = stack.as_array().unwrap_or_else(|| panic!("{page}")).iter();
        let names = names.map(|frame| frame.as_str().unwrap().to_owned()).collect::<Vec<_>>();
        (names, page)
    };
    let (kernel, rings) = (by("ustack", false).0, by("ustack", true).0);
    assert_eq!(kernel, rings);
    assert!(rings[0].starts_with("syscall+"), "{rings:?}");
    // The program in the kernel has itself on the stack, and what called it.
    let (kernel, (rings, page)) = (by("stack", false).0, by("stack", true));
    assert!(rings.len() > 1 && kernel.ends_with(&rings[1..]), "{kernel:?}\n{rings:?}");
    let counts = page["rows"].as_array().unwrap().iter().map(|row| row["count"].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), 300_000, "{page}");
    // Perf has no kernel's stack where one system call begins, which is said.
    let page = counted(true, &[&CALLS[..], &["--by", "stack", "--", work.arg(), "70"]].concat());
    let facts = other_notes(&page);
    let is_said = facts
        .iter()
        .any(|note| note["fact"].as_str().unwrap().starts_with("70 kernel stacks are empty"));
    let row = &page["rows"][0];
    assert!(is_said || row["key"]["stack"].as_array().is_some_and(|s| !s.is_empty()), "{page}");
}

#[test]
fn what_rings_and_maps_lose_is_reported() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let flags = [&CALLS[..], &["-m", "1", "--", work.arg(), "400000"]].concat();
    let page = counted(true, &flags);
    let number = |text: &str| text.split(' ').next().unwrap().parse::<u64>().unwrap();
    let lost = page["ledger"].as_array().unwrap().iter().filter(|note| note["kind"] == "lost");
    let lost: u64 = lost.map(|note| number(note["fact"].as_str().unwrap())).sum();
    let kept = page["rows"][0]["count"].as_u64().unwrap();
    assert!(lost > 0, "a ring of a page holds 400000 events");
    // Events that follow the command come through the same ring.
    assert!((400_000..400_010).contains(&(kept + lost)), "{kept} + {lost}: {page}");
    let _ = run(KYMO, [&["count", "--strict", "--no-bpf"], &flags[..]].concat()).expect_status(3);
    let keys = ["--by", "nsecs", "--top", "0", "--", work.arg(), "9000"];
    let page = counted(true, &[&CALLS[..], &keys].concat());
    let rows = page["rows"].as_array().unwrap().len();
    let fact = other_notes(&page)[0]["fact"].as_str().unwrap().to_owned();
    assert!(fact.ends_with("4904 updates of @ did not fit: it holds 4096 entries"), "{fact}");
    assert_eq!(rows, 4096);
    // Where nothing was lost, the way alone is no reason to doubt.
    let flags = [&["count", "--strict", "--no-bpf"], &CALLS[..], &["--", work.arg(), "9"]].concat();
    let _ = run(KYMO, flags).success();
}

#[test]
fn intervals_in_user_space_add_up_to_the_whole() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let flags = ["count", "--no-bpf", "--by", "comm", "-i", "5", "--json", "-m", "64M"];
    let command = ["--", work.arg(), "600000"];
    let o = run(KYMO, [&flags[..], &CALLS, &command].concat()).success();
    let lines: Vec<Value> =
        o.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counts = lines.iter().filter_map(|line| line["rows"][0]["count"].as_u64());
    assert_eq!(counts.sum::<u64>(), 600_000, "{}", o.stdout);
    assert!(lines.len() > 3, "{}", o.stdout);
    assert!(other_notes(&json!({"ledger": ledger_of(&o.stderr)})).is_empty(), "{}", o.stderr);
}

/// Waits for the end of a run; what it wrote to standard error.
fn ended(child: Child) -> (ExitStatus, String) {
    let output = child.wait_with_output().unwrap();
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn it_ends_with_its_process_and_with_the_user() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let mut other = Command::new(work.arg()).arg("2000000000").spawn().unwrap();
    let pid = other.id().to_string();
    let watching = || {
        let mut child = Command::new(KYMO)
            .args(["count", "--no-bpf", "-e", "raw_syscalls:sys_enter", "--filter", "id == 110"])
            .args(["--by", "pid", "-i", "20", "--json", "-p", &pid])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let own = lines.by_ref().map(|line| line.unwrap()).find(|line| line.contains("\"pid\":"));
        assert!(own.unwrap().contains(&format!("\"pid\":{pid}")));
        (child, lines)
    };
    let (child, lines) = watching();
    let _ = run("kill", ["-INT", &child.id().to_string()]).success();
    let _ = lines.count();
    let (status, last) = ended(child);
    assert!(status.success());
    assert!(last.contains("\"no-bpf\""), "{last}");
    let (child, lines) = watching();
    other.kill().unwrap();
    other.wait().unwrap();
    let _ = lines.count();
    let (status, last) = ended(child);
    assert!(status.success());
    assert!(last.contains("\"no-bpf\""), "{last}");
}

#[test]
fn programs_run_in_user_space() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let program =
        |text: &str, args: &[&str]| run(KYMO, [&["run", "--no-bpf", "-e", text], args].concat());
    let command = format!("{} 700", work.arg());
    let by_number = "tracepoint:raw_syscalls:sys_enter /pid == cpid/ { @[args.id] = count(); }";
    let o = program(by_number, &["-c", &command]).success();
    assert!(o.stdout.contains("@[110]: 700\n"), "{}", o.stdout);
    assert!(o.stderr.contains("no-bpf: aggregated in user space (--no-bpf): "), "{}", o.stderr);
    let by_line = "tracepoint:raw_syscalls:sys_enter /pid == cpid && args.id == 110/ \
                   { @n++; printf(\"%d %s\\n\", @n, comm); if (@n == 500) { exit(4); } }";
    let o = program(by_line, &["-c", &command]).expect_status(4);
    let lines: Vec<&str> = o.stdout.lines().take(500).collect();
    let expected: Vec<String> = (1..=500).map(|n| format!("{n} syscalls")).collect();
    assert_eq!(lines, expected);
    assert!(o.stdout.ends_with("\n\n@n: 500\n"), "{}", o.stdout);
    // Time passes without events, too.
    let timer = "BEGIN { @b = 1; } interval:ms:5 { @n++; if (@n == 7) { exit(); } } \
                 END { printf(\"end %d %d\\n\", @b, @n); }";
    let o = program(timer, &[]).success();
    assert!(o.stdout.contains("end 1 7\n"), "{}", o.stdout);
    let endless = "BEGIN { while (1) { @ += 1; } } interval:ms:5 { exit(); }";
    let o = program(endless, &[]).success();
    assert!(o.stderr.contains("cut: 1 run of the program was ended"), "{}", o.stderr);
    let spin = Workload::spin();
    let profile = "profile:hz:500 /pid == cpid/ { @[comm, ustack(1)] = count(); }";
    let o = program(profile, &["-c", &format!("{} 60", spin.arg())]).success();
    assert!(o.stdout.contains("@[spin, \n        hot+"), "{}\n{}", o.stdout, o.stderr);
}

#[test]
fn what_only_the_kernel_can_is_refused_by_name() {
    if !begin() {
        return;
    }
    let refused = |args: &[&str], expected: &[&str]| {
        let o = run(KYMO, args).failure();
        for part in expected {
            assert!(o.stderr.contains(part), "{args:?}: {}", o.stderr);
        }
        assert_eq!(o.stdout, "", "{args:?}");
    };
    let run = |text: &str, place: &str, what: &str| {
        let only = format!("{place}: ERROR: {what} only in BPF programs");
        refused(&["run", "--no-bpf", "-e", text], &[&only, "HINT: user space supports "]);
    };
    run("rawtracepoint:sched_switch { @ = count(); }", "stdin:1:1", "rawtracepoint probes work");
    run("BEGIN { @ = curtask->pid; }", "stdin:1:13", "the task's structure works");
    run(
        "tracepoint:syscalls:sys_enter_openat { @[str(args.filename)] = count(); }",
        "stdin:1:42-60",
        "memory that a pointer points to works",
    );
    refused(
        &["run", "--no-bpf", "--preflight", "-e", "BEGIN { exit(); }"],
        &["--preflight and --budget are for programs that run in the kernel"],
    );
    refused(&["count", "--no-bpf", "-e", "sched:no_such"], &["sched:no_such"]);
    refused(&["count", "--no-bpf", "-e", "sched:sched_switch", "-p", "4194303"], &["4194303"]);
}

/// kymo by root, without the rights that programs in the kernel ask for, and those in `more`.
fn without_bpf(more: &str, args: &[&str]) -> Outcome {
    let mut command = Command::new("setpriv");
    let rights = format!("-sys_admin,-bpf{more}");
    command.arg(format!("--bounding-set={rights}")).arg(format!("--inh-caps={rights}"));
    run_command({
        command.arg(KYMO).args(args);
        command
    })
}

/// Whether this kernel refuses programs to users without the right to them, as is usual.
fn refuses_programs() -> bool {
    let path = "/proc/sys/kernel/unprivileged_bpf_disabled";
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() != "0")
}

#[test]
fn without_the_right_to_programs_it_goes_on_in_user_space() {
    if !begin() || !require(&[Need::Tool("setpriv")]) || !refuses_programs() {
        return;
    }
    let work = Workload::syscalls();
    let command = ["--", work.arg(), "700"];
    let o = without_bpf("", &[&["count", "--json"], &CALLS[..], &command].concat()).success();
    let page = page_of(&o);
    assert_eq!(page["rows"], json!([{"key": {}, "count": 700}]), "{page}");
    assert!(other_notes(&page).is_empty(), "{page}");
    let fact = page["ledger"][0]["fact"].as_str().unwrap();
    assert!(fact.contains("not permitted") && fact.contains("CAP_BPF"), "{fact}");
    let by_name = "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @ = count(); }";
    let o = without_bpf("", &["run", "-e", by_name, "-c", &format!("{} 70", work.arg())]);
    assert_eq!(o.success().stdout, "\n\n@: 70\n");
    let o = without_bpf("", &["run", "-e", "kprobe:vfs_read { @ = count(); }"]).failure();
    assert!(o.stderr.contains("kprobe probes work only in BPF programs"), "{}", o.stderr);
    assert!(o.stderr.contains("HINT: no BPF program can run here: "), "{}", o.stderr);
}

#[test]
fn ones_own_command_is_counted_without_privileges() {
    if !begin() || !refuses_programs() {
        return;
    }
    let place = Unprivileged::new(Path::new(KYMO));
    let page =
        page_of(&place.run(["count", "--json", "-e", "page-faults", "--", "true"]).success());
    assert!(page["rows"][0]["count"].as_u64().unwrap() > 0, "{page}");
    let _ = other_notes(&page);
    let faults = "software:page-faults:1 /pid == cpid/ { @[comm] = count(); }";
    let o = place.run(["run", "-e", faults, "-c", "true"]).success();
    assert!(o.stdout.contains("@[true]: "), "{}\n{}", o.stdout, o.stderr);
    let said = place.run(["count", "-e", "page-faults", "-p", "1"]).failure().stderr;
    assert!(said.contains("task 1 is not yours"), "{said}");
    let said = place.run(["count", "-e", "sched:sched_switch", "--", "true"]).failure().stderr;
    assert!(said.contains("permission"), "{said}");
    let said = place.run(["count", "-e", "kprobe:vfs_read", "--", "true"]).failure().stderr;
    assert!(said.contains("kprobe probes work only in BPF programs"), "{said}");
    assert!(said.contains(" no BPF program can run here: ") && said.contains("CAP_BPF"), "{said}");
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    if level.trim().parse::<i32>().unwrap() < 2 {
        return;
    }
    assert!(o.stderr.contains("scope: only process "), "{}", o.stderr);
    assert!(o.stderr.contains("user-only: "), "{}", o.stderr);
    for args in [
        &["count", "-a", "-e", "page-faults", "--", "true"][..],
        &["count", "-e", "context-switches", "--", "true"],
        &["run", "-e", "software:page-faults:1 { @[comm] = count(); }"],
    ] {
        let said = place.run(args).failure().stderr;
        assert!(said.contains("kernel.perf_event_paranoid"), "{args:?}: {said}");
    }
}
