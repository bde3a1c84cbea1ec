//! Options of perf's that take effect in kymo, beside perf on the same recordings; options that
//! are refused by name.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use std::collections::BTreeSet;

use kymo_testkit::{Need, Outcome, Workload, perf, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

#[track_caller]
fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

/// Records a command by perf and gives the path.
fn record(directory: &tempfile::TempDir, name: &str, args: &[&str]) -> String {
    let path = directory.path().join(name).display().to_string();
    let _ = perf([&["record", "-q", "-N", "-B", "-o", &path], args].concat()).success();
    path
}

/// Lines of a table, with single blanks.
fn rows(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter(|l| !l.starts_with('#') && !l.trim().is_empty())
        .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

#[track_caller]
fn same_report(path: &str, options: &[&str]) {
    let args = [&["report", "--stdio", "-i", path], options].concat();
    let (ours, theirs) = (kymo(&args).success(), perf(&args).success());
    assert_eq!(rows(&ours.stdout), rows(&theirs.stdout), "{options:?}");
    assert!(!rows(&ours.stdout).is_empty(), "{options:?}");
}

#[test]
fn sort_keys_of_samples_group_as_perf_does() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let work = Workload::syscalls();
    let what = ["-W", "--code-page-size", "--all-cgroups", "-e", "cpu-clock", "-F", "2000"];
    let command = ["--", work.arg(), "400000"];
    let path = record(&directory, "keys.data", &[&what[..], &command].concat());
    for keys in [
        "time",
        "comm,time",
        "cgroup",
        "code_page_size",
        "weight",
        "local_weight,comm",
        "ins_lat",
        "local_ins_lat",
    ] {
        same_report(&path, &["-s", keys]);
    }
    same_report(&path, &["-s", "time", "--time-quantum", "20ms"]);
    same_report(&path, &["-s", "time", "--time-quantum", "20ms", "--ns"]);
    same_report(&path, &["-s", "comm", "--show-cpu-utilization"]);
    same_report(&path, &["-F", "overhead,overhead_sys,overhead_us,comm"]);
    let plain = record(&directory, "plain.data", &[&["-e", "cpu-clock"], &command[..]].concat());
    let refused = kymo(&["report", "-i", &plain, "-s", "weight"]).failure();
    assert!(refused.stderr.contains("samples have no weight: `kymo record -W`"), "{refused:?}");
}

#[test]
fn events_switch_others_on_and_off() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let events = "syscalls:sys_enter_getppid,syscalls:sys_enter_openat,syscalls:sys_exit_openat,\
                  syscalls:sys_enter_mmap,syscalls:sys_enter_read";
    let path = record(&directory, "switch.data", &["-e", events, "--", "cat", "/dev/null"]);
    let (on, off) = ("syscalls:sys_enter_openat", "syscalls:sys_enter_read");
    let both = ["--switch-on", on, "--switch-off", off];
    for options in
        [&both[..], &[&both[..], &["--show-on-off-events"]].concat(), &["--switch-on", on]]
    {
        let args = [&["script", "-i", &path], options].concat();
        let (ours, theirs) = (kymo(&args).success(), perf(&args).success());
        assert_eq!(ours.stdout, theirs.stdout, "{options:?}");
        let all = kymo(&["script", "-i", &path]).stdout.lines().count();
        assert!((1..all).contains(&ours.stdout.lines().count()), "{options:?} {}", ours.stdout);
        same_report(&path, &[options, &["-s", "comm,dso"]].concat());
    }
    let unknown = kymo(&["script", "-i", &path, "--switch-on", "sched:none"]).failure();
    assert!(unknown.stderr.contains("has no such event"), "{unknown:?}");
}

#[test]
fn namespaces_and_cgroups_are_printed_as_perf_prints_them() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let what = ["--namespaces", "--all-cgroups", "-e", "cpu-clock", "--", "unshare", "-n", "true"];
    let path = record(&directory, "spaces.data", &what);
    let args = ["script", "-i", &path, "--show-namespace-events", "--show-cgroup-events"];
    let (ours, theirs) = (kymo(&args).success().stdout, perf(args).success().stdout);
    let shown = |text: &str| -> Vec<String> {
        let is_record = |l: &&str| l.contains("PERF_RECORD_") || l.starts_with("\t\t");
        text.lines().filter(is_record).map(str::to_owned).collect()
    };
    assert_eq!(shown(&ours), shown(&theirs));
    assert!(shown(&ours).iter().any(|l| l.contains("PERF_RECORD_NAMESPACES")), "{ours}");
}

#[test]
fn options_before_a_subcommand_are_taken() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sched.data").display().to_string();
    let _ = kymo(&["sched", "record", "-q", "-o", &path, "--", "sleep", "0.1"]).success();
    let behind = kymo(&["sched", "latency", "-i", &path]).success().stdout;
    assert_eq!(kymo(&["sched", "-f", "-v", "-i", &path, "latency"]).success().stdout, behind);
    assert!(behind.contains("sleep"), "{behind}");
}

#[test]
fn calls_are_chosen_by_time_failure_and_name() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let script = "sleep 0.2; cat /nonexistent/file 2>/dev/null; true";
    let lines = |options: &[&str]| {
        let args = [&["trace", "--json"], options, &["--", "sh", "-c", script]].concat();
        let out = kymo(&args);
        let parse = |l: &str| serde_json::from_str::<serde_json::Value>(l).unwrap();
        out.stdout.lines().map(parse).collect::<Vec<_>>()
    };
    let slow = lines(&["--duration", "150"]);
    assert!(slow.iter().all(|l| l["duration"].as_f64().unwrap() >= 0.15), "{slow:?}");
    assert!(slow.iter().any(|l| l["syscall"] == "clock_nanosleep"), "{slow:?}");
    let failed = lines(&["--failure"]);
    assert!(failed.iter().all(|l| l["errno"].is_string()), "{failed:?}");
    assert!(failed.iter().any(|l| l["syscall"] == "openat" && l["errno"] == "ENOENT"));
    let named = lines(&["-e", "openat,close", "--max-events", "3"]);
    assert_eq!(named.len(), 3);
    assert!(named.iter().all(|l| l["syscall"] == "openat" || l["syscall"] == "close"));
    let refused = kymo(&["trace", "-e", "sched:sched_switch", "--failure"]).failure();
    assert!(refused.stderr.contains("--failure is for system calls"), "{refused:?}");
}

#[test]
fn stat_leaves_a_side_out_and_runs_scripts_around() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let echo = |word: &str| format!("echo {word} >> {}", log.display());
    let (before, after) = (echo("before"), echo("after"));
    let command = echo("run");
    let args =
        ["stat", "-r", "2", "--pre", &before, "--post", &after, "-n", "--", "sh", "-c", &command];
    let _ = kymo(&args).success();
    let words = std::fs::read_to_string(&log).unwrap();
    assert_eq!(
        words.split_whitespace().collect::<Vec<_>>().join(" "),
        "before run after before run after"
    );
    // Faults happen in user space alone here: the kernel's own are none of `:u`.
    let faults = |side: &str| {
        let out = kymo(&["stat", "-x,", side, "-e", "page-faults", "--", "true"]).success();
        out.stderr.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let (user, kernel) = (faults("--all-user"), faults("--all-kernel"));
    assert!(user > kernel, "{user} {kernel}");
    let line = kymo(&["stat", "--all-user", "-x,", "-e", "page-faults", "--", "true"]).stderr;
    let theirs = perf(["stat", "--all-user", "-x,", "-e", "page-faults", "--", "true"]).stderr;
    let name = |text: &str| text.split(',').nth(2).unwrap().to_owned();
    assert_eq!(name(&line), name(&theirs));
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    for (args, reason) in [
        (&["report", "--branch-stack"][..], "kymo script -F brstacksym"),
        (&["sched", "replay", "--repeat", "3"], "perf sched replay"),
        (&["lock", "contention", "--inject-delay", "x"], "does not inject delays"),
        (&["trace", "--print-sample"], "kymo script -D"),
        (&["offcpu", "record", "-p", "1"], "-p PID"),
        (&["why", "record", "--tid", "1"], "-p PID"),
    ] {
        let out = kymo(args);
        assert_eq!(out.status, 2, "{args:?}: {out:?}");
        assert!(out.stderr.starts_with("error: kymo "), "{args:?}: {}", out.stderr);
        assert!(out.stderr.contains(reason), "{args:?}: {}", out.stderr);
    }
}

/// The suggested alternatives exist.
#[test]
fn commands_of_perf_that_are_missing_are_refused_by_name() {
    let commands = ["bench", "c2c", "daemon", "ftrace", "iostat", "kvm", "mem"];
    let scripts = [&["script", "report"][..], &["script", "record", "x"]];
    for args in commands.iter().map(std::slice::from_ref).chain(scripts) {
        let out = kymo(args).expect_status(2);
        let name =
            out.stderr.strip_prefix("error: kymo has no ").unwrap_or_else(|| panic!("{out:?}"));
        assert!(name.starts_with(args[0]), "{out:?}");
        for named in out.stderr.split("`kymo ").skip(1) {
            let command = named.split([' ', '`']).next().unwrap();
            let _ = kymo(&[command, "-h"]).success();
        }
    }
    // A recording may be called so.
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("report"), "text").unwrap();
    let mut command = std::process::Command::new(KYMO);
    command.args(["script", "report"]).current_dir(&directory);
    let out = kymo_testkit::run_command(command).failure();
    assert!(!out.stderr.contains("has no script"), "{out:?}");
}

#[test]
fn perf_trace_record_records_calls() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.data").display().to_string();
    let work = Workload::syscalls();
    let _ = kymo(&["trace", "record", "-o", &path, "--", work.arg(), "50"]).success();
    let shown = kymo(&["trace", "-i", &path, "--comm", "syscalls"]).success().stdout;
    assert_eq!(shown.matches("getppid()").count(), 50, "{shown}");
}

/// Each row of a tree with the rows it is below.
fn tree_rows(text: &str) -> BTreeSet<String> {
    let mut path: Vec<(usize, String)> = Vec::new();
    let mut all = BTreeSet::new();
    for line in text.lines().filter(|l| !l.starts_with('#') && l.contains('%')) {
        // Shares stand to the right.
        let indent = line.find('%').unwrap();
        path.retain(|(above, _)| *above < indent);
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let above: Vec<&str> = path.iter().map(|(_, name)| name.as_str()).collect();
        all.insert(format!("{} > {words}", above.join(" > ")));
        path.push((indent, words));
    }
    all
}

#[test]
fn a_tree_of_sort_keys_is_perfs() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let work = Workload::syscalls();
    let what = ["-e", "cpu-clock", "-F", "2000", "--", "sh", "-c"];
    let script = format!("{0} 100000; cat /etc/hostname >/dev/null; {0} 50000", work.arg());
    let path = record(&directory, "tree.data", &[&what[..], &[&script]].concat());
    for options in [
        &["-s", "comm,dso"][..],
        &["-s", "dso,comm", "-n", "--show-cpu-utilization"],
        &["-s", "comm,dso", "--percent-limit", "20"],
        &["-s", "comm,pid,dso", "-c", "syscalls"],
    ] {
        let args = [&["report", "--stdio", "--hierarchy", "-i", &path], options].concat();
        let (ours, theirs) = (kymo(&args).success(), perf(&args).success());
        assert_eq!(tree_rows(&ours.stdout), tree_rows(&theirs.stdout), "{options:?}");
        assert!(tree_rows(&ours.stdout).len() > 1, "{options:?}");
        let heading = |text: &str| -> String {
            text.lines().find(|l| l.contains("Overhead")).unwrap().trim_end().to_owned()
        };
        assert_eq!(heading(&ours.stdout), heading(&theirs.stdout), "{options:?}");
    }
    // Of some binaries perf gives a task the weight of all of its samples; here rows are the
    // sums of those below.
    let args = ["report", "--hierarchy", "-i", &path, "-s", "comm,dso", "-d", "[kernel.kallsyms]"];
    let rows = tree_rows(&kymo(&args).success().stdout);
    let (above, below): (Vec<&String>, Vec<&String>) =
        rows.iter().partition(|row| row.starts_with(" > "));
    let share = |row: &str| row.rsplit(" > ").next().unwrap().split('%').next().unwrap().to_owned();
    for row in below {
        let (task, own) = row.split_once(" > ").unwrap();
        assert!(own.ends_with("[kernel.kallsyms]"), "{row}");
        assert_eq!(share(task), share(own), "{row}");
    }
    assert!(!above.is_empty());
}

/// Options that mean the same of several commands.
#[test]
fn records_are_dumped_and_results_go_into_files() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let workload = Workload::spin();
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let data = place("perf.data");
    let events = ["-e", "cpu-clock,page-faults", "-F", "4000"];
    let record = [&["record", "-q", "--sample-cpu", "-o", &data], &events[..]].concat();
    let _ = kymo_testkit::perf([&record[..], &["--", workload.arg(), "20"]].concat()).success();
    let dump = kymo(&["script", "-D", "-i", &data]).success().stdout;
    assert!(dump.contains("PERF_RECORD_SAMPLE"), "{dump}");
    for command in [&["report"][..], &["annotate"], &["sched", "latency"], &["kwork", "report"]] {
        let same = kymo(&[command, &["-D", "-i", &data]].concat()).success().stdout;
        assert_eq!(same, dump, "{command:?}");
    }
    let before = kymo(&["lock", "-D", "-i", &data, "report"]).success().stdout;
    assert_eq!(before, dump);
    // A list of events, as on the standard output.
    let file = place("list");
    let listed = kymo(&["list", "sw", "-o", &file]).success().stdout;
    assert_eq!(listed, "");
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text, kymo(&["list", "sw"]).success().stdout);
    assert!(text.contains("page-faults"), "{text}");
    // Each event in a file, with what was chosen.
    let fields = ["script", "-F", "event,ip", "-i", &data];
    let all = kymo(&fields).success().stdout;
    let said = kymo(&[&fields[..], &["--per-event-dump"]].concat()).success();
    assert_eq!(said.stdout, "");
    let mut sum = 0;
    for event in ["cpu-clock", "page-faults"] {
        let path = format!("{data}.{event}.dump");
        assert!(said.stderr.contains(&format!("MB {path} ]")), "{}", said.stderr);
        let text = std::fs::read_to_string(path).unwrap();
        let own: Vec<&str> = all.lines().filter(|l| l.contains(&format!("{event}:"))).collect();
        assert!(!own.is_empty(), "{event}: {all}");
        assert_eq!(text.lines().collect::<Vec<_>>(), own, "{event}");
        sum += own.len();
    }
    assert_eq!(sum, all.lines().count());
    // A machine of one socket, or more of which one ran it.
    let report = |more: &[&str]| {
        let args = ["report", "--stdio", "-s", "cpu", "-n", "-i", &data];
        kymo(&[&args[..], more].concat())
    };
    let whole = report(&[]).success().stdout;
    let header = kymo(&["report", "--header-only", "-I", "-i", &data]).success().stdout;
    let sockets = header.lines().filter(|line| line.contains("sibling sockets")).count();
    let own = report(&["--socket-filter", "0"]);
    assert!(sockets > 1 || own.success().stdout == whole, "{whole}");
    let none = report(&["--socket-filter", "77"]).failure();
    assert!(none.stderr.contains("--socket-filter 77: the machine"), "{}", none.stderr);
}

/// Options that tune perf's own way of working, or output that is never shown here, change nothing.
#[test]
fn options_that_tune_perf_change_nothing() {
    if !require(&[Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let workload = Workload::spin();
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("perf.data").to_str().unwrap().to_owned();
    let options = [
        "--affinity=cpu",
        "--aio",
        "--aio=2",
        "--mmap-flush=4096",
        "--num-thread-synthesize=2",
        "--threads",
        "--threads=core",
        "--debuginfod",
    ];
    let record = [&["record", "-q", "-e", "cpu-clock:u", "-o", &data], &options[..]].concat();
    let _ = kymo(&[&record[..], &["--", workload.arg(), "20"]].concat()).success();
    let report = ["report", "--stdio", "-i", &data];
    let plain = kymo(&report).success().stdout;
    assert!(plain.contains("spin"), "{plain}");
    let shown = [
        "--objdump=objdump",
        "--addr2line=addr2line",
        "-M",
        "intel",
        "--asm-raw",
        "--source",
        "--prefix=/x",
        "--prefix-strip=1",
        "--percent-type=local-hits",
        "-m",
    ];
    assert_eq!(kymo(&[&report[..], &shown].concat()).success().stdout, plain);
}

/// Under the name `perf` lines of calls are on standard error, apart from what the command prints,
/// or in a file, before which the last one gets a suffix.
#[test]
fn lines_of_perf_trace_are_where_perf_writes_them() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let called = directory.path().join("perf");
    std::os::unix::fs::symlink(KYMO, &called).unwrap();
    let command = ["--", "sh", "-c", "echo of the command"];
    let chosen = ["trace", "-e", "write"];
    let streams = [&chosen[..], &command].concat();
    let mut said = Vec::new();
    for (who, outcome) in [("kymo", run(&called, &streams)), ("perf", perf(&streams))] {
        let outcome = outcome.success();
        assert_eq!(outcome.stdout, "of the command\n", "{who}");
        assert_eq!(outcome.stderr.matches("write(").count(), 1, "{who}: {}", outcome.stderr);
        let file = directory.path().join(format!("{who}.txt")).display().to_string();
        let args = [&chosen[..], &["-o", &file], &command].concat();
        for text in ["", "what was there before\n"] {
            std::fs::write(&file, text).unwrap();
            let outcome = if who == "perf" { perf(&args) } else { run(&called, &args) };
            assert_eq!(outcome.success().stdout, "of the command\n", "{who}");
            let lines = std::fs::read_to_string(&file).unwrap();
            assert_eq!(lines.matches("write(").count(), 1, "{who}: {lines}");
            assert!(!lines.contains("before"), "{who}: {lines}");
            let old = std::fs::read_to_string(format!("{file}.old")).unwrap_or_default();
            said.push((who, old));
        }
    }
    let old: Vec<&str> = said.iter().map(|(_, old)| old.as_str()).collect();
    assert_eq!(old[..2], old[2..], "{said:?}");
    // Its own name keeps recordings for -o.
    let own = directory.path().join("own.dat").display().to_string();
    let _ = kymo(&["trace", "-q", "-e", "syscalls:sys_enter_write", "-o", &own, "--", "true"])
        .success();
    assert!(std::fs::read(&own).unwrap().starts_with(b"\x17\x08\x44tracing"));
}

#[test]
fn a_directory_of_perfs_is_read_as_its_recording() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let work = Workload::syscalls();
    let what = ["-g", "-e", "cpu-clock", "-F", "2000", "--", work.arg(), "400000"];
    let file = record(&directory, "plain.data", &what);
    // As perf record --kcore leaves it, where the kernel has /proc/kcore.
    let made = directory.path().join("kcore.data");
    std::fs::create_dir_all(made.join("kcore_dir")).unwrap();
    std::fs::copy(&file, made.join("data")).unwrap();
    let made = made.display().to_string();
    for args in [&["script"][..], &["report", "--stdio"], &["evlist"]] {
        let of = |path: &str| kymo(&[args, &["-i", path]].concat()).success().stdout;
        assert_eq!(of(&made), of(&file), "{args:?}");
    }
    let theirs = perf(["script", "-F", "comm,tid,time,ip", "-i", &made]).success().stdout;
    let ours = kymo(&["script", "-F", "comm,tid,time,ip", "-i", &made]).success().stdout;
    assert_eq!(ours, theirs);
    // Of several threads' files one alone would be a part of the samples.
    let threads = directory.path().join("threads.data").display().to_string();
    let options = ["record", "-q", "--threads", "-e", "cpu-clock", "-o", &threads, "--"];
    let _ = perf([&options[..], &[work.arg(), "1000"]].concat()).success();
    let refused = kymo(&["script", "-i", &threads]).failure();
    assert!(refused.stderr.contains("recorded by several threads"), "{refused:?}");
}
