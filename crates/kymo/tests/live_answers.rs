//! Answers with `--live`: the numbers are those of a recording, nothing is left behind, and the
//! end is the command's, a time's, or the user's.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::{
    Need, NoIdleCpus, Outcome, TracingState, Unprivileged, Workload, page_with_ledger, require, run,
};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 4] = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc];

fn json(out: &Outcome) -> Value {
    page_with_ledger(&out.stdout, &out.stderr)
}

#[test]
fn system_calls_are_all_counted_and_none_of_who_counts() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::syscalls();
    let live = ["syscalls", "report", "--live", "--json", "--threads", "10000", "--", w.arg()];
    let live = run(KYMO, [&live[..], &["3000"]].concat()).success();
    let text = json(&live);
    let calls = text["calls"].as_array().unwrap();
    let getppid = calls.iter().find(|c| c["syscall"] == "getppid").unwrap();
    assert_eq!(getppid["count"], 3000, "{getppid}");
    assert!(live.stderr.contains("of one CPU itself"), "{}", live.stderr);
    let threads = text["threads"].as_array().unwrap();
    assert!(threads.iter().any(|t| t["comm"] == "syscalls"), "{threads:?}");
    assert_eq!(threads.len(), 1, "{threads:?}");
    // No line suggests to read again what cannot be read again.
    let page = ["syscalls", "report", "--live", "--", w.arg(), "100"];
    let page = run(KYMO, page).success().stdout;
    assert!(page.contains(" system calls of ") && !page.contains("kymo script -i"), "{page}");
}

#[test]
fn requests_and_waits_are_those_of_the_command() {
    if !require(&NEEDS) {
        return;
    }
    let _busy = NoIdleCpus::keep();
    // In the directory of the tests, which is on a disk.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let of = format!("of={}", directory.path().join("f").display());
    let dd = ["dd", "if=/dev/zero", &of, "bs=64k", "count=64", "oflag=direct"];
    let top = ["io", "top", "--live", "--json", "--comm", "dd", "--"];
    let text = json(&run(KYMO, [&top[..], &dd].concat()).success());
    let rows = text["processes"].as_array().unwrap();
    let written: u64 = rows.iter().map(|r| r["written_bytes"].as_u64().unwrap()).sum();
    assert_eq!(written, 64 * 65536, "{text}");
    let off = ["offcpu", "report", "--live", "--json", "--comm", "sleep", "--", "sleep", "0.2"];
    let text = json(&run(KYMO, off).success());
    let causes = text["causes"].as_array().unwrap();
    let sleeping = causes.iter().find(|c| c["cause"] == "sleep").unwrap();
    assert!(sleeping["total_ns"].as_u64().unwrap() >= 200_000_000, "{sleeping}");
}

#[test]
fn every_command_ends_with_its_command_and_its_status() {
    if !require(&NEEDS) {
        return;
    }
    for command in [
        &["syscalls", "report"][..],
        &["io", "latency"],
        &["io", "top"],
        &["lock", "contention"],
        &["lock", "contention", "--futex"],
        &["lock", "report"],
        &["offcpu", "report"],
        &["kwork", "report"],
        &["kwork", "latency"],
        &["kwork", "timehist"],
        &["kwork", "top"],
        &["kmem", "stat"],
        &["kmem", "pagealloc"],
        &["sched", "latency"],
        &["sched", "timehist"],
        &["sched", "map"],
    ] {
        let out = run(KYMO, [command, &["--", "sh", "-c", "sleep 0.1; exit 7"]].concat());
        assert_eq!(out.status, 7, "{command:?}: {out:?}");
        assert!(!out.stdout.is_empty(), "{command:?}: {out:?}");
        let timed = run(KYMO, [command, &["-a", "--timeout", "100"]].concat());
        assert_eq!(timed.status, 0, "{command:?}: {timed:?}");
        let refused = run(KYMO, [command, &["-a", "-i", "perf.data"]].concat());
        assert_eq!(refused.status, 2, "{command:?}: {refused:?}");
        // There, --live chooses what is alive at the end.
        if command[0] != "kmem" {
            let live = run(KYMO, [command, &["--live", "--timeout", "100"]].concat());
            assert_eq!(live.status, 0, "{command:?}: {live:?}");
        }
    }
    let gone = run(KYMO, ["io", "top", "--live", "--", "/nonexistent/program"]);
    assert_ne!(gone.status, 0);
    assert!(gone.stderr.contains("/nonexistent/program"), "{gone:?}");
}

/// Also where no process reaps it, as a supervisor that waits for kymo.
#[test]
fn every_command_ends_with_the_process_that_was_chosen() {
    if !require(&NEEDS) {
        return;
    }
    for command in [
        &["syscalls", "report", "--live"][..],
        &["io", "latency", "--live"],
        &["io", "top", "--live"],
        &["lock", "contention", "--live"],
        &["lock", "contention", "--futex", "--live"],
        &["offcpu", "report", "--live"],
        &["kwork", "report", "--live"],
        &["kwork", "latency", "--live"],
        &["kwork", "timehist", "--live"],
        &["kwork", "top", "--live"],
        &["kmem", "stat", "-a"],
        &["kmem", "pagealloc", "-a"],
        &["sched", "latency", "--live"],
        &["sched", "timehist", "--live"],
        &["why", "--live"],
    ] {
        let mut chosen = Command::new("sleep").arg("1").spawn().unwrap();
        let began = Instant::now();
        let pid = chosen.id().to_string();
        let out = run(KYMO, [command, &["--timeout", "120000", "--pid", &pid]].concat());
        assert!(began.elapsed() < Duration::from_secs(100), "{command:?}: {out:?}");
        assert_eq!(out.status, 0, "{command:?}: {out:?}");
        // Not reaped before; the sleep is over then.
        assert!(chosen.wait().unwrap().success());
    }
}

#[test]
fn what_waits_is_of_the_command_unless_others_are_chosen() {
    if !require(&NEEDS) {
        return;
    }
    // Who wakes up ten times a second, and is no child of the command.
    let script = "for n in {1..300}; do sleep 0.1; done";
    let mut other = Command::new("bash").args(["-c", script]).spawn().unwrap();
    let script = "sleep 0.3 & (sleep 0.2; sleep 0.1); wait";
    let command = ["bash", "-c", script];
    let pid = &Value::from(other.id());
    let off = |chosen: &[&str]| {
        let all = [&["offcpu", "report", "--json", "--tasks"], chosen, &["--"], &command].concat();
        let text = json(&run(KYMO, all).success());
        let tasks = text["tasks"].as_array().unwrap().clone();
        let named = |t: &Value| (t["comm"].as_str().unwrap().to_owned(), t["tid"].clone());
        let names: Vec<(String, Value)> = tasks.iter().map(named).collect();
        let has_scope = text["ledger"]
            .as_array()
            .is_some_and(|notes| notes.iter().any(|n| n["kind"] == "scope"));
        (names, has_scope)
    };
    let count =
        |names: &[(String, Value)], comm: &str| names.iter().filter(|n| n.0 == comm).count();
    let (own, has_scope) = off(&[]);
    assert!(has_scope && own.iter().all(|n| n.1 != *pid), "{own:?}");
    // The inner shell becomes its last program.
    assert_eq!((count(&own, "bash"), count(&own, "sleep")), (1, 3), "{own:?}");
    assert_eq!(own.len(), 4, "{own:?}");
    let (all, has_scope) = off(&["-a"]);
    assert!(!has_scope && all.iter().any(|n| n.1 == *pid), "{all:?}");
    let (chosen, has_scope) = off(&["-p", &pid.to_string()]);
    assert!(!has_scope && chosen.len() == 1, "{chosen:?}");
    assert_eq!(&chosen[0].1, pid);
    // The same where rings are read without a pipe between.
    let latency = ["sched", "latency", "-p", "--json", "--"];
    let text = json(&run(KYMO, [&latency[..], &command].concat()).success());
    let tasks = text["tasks"].as_array().unwrap();
    assert!(tasks.len() == 4 && tasks.iter().all(|t| t["tid"] != *pid), "{text}");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn memory_that_events_are_read_into_is_not_counted() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let of = format!("of={}", directory.path().join("f").display());
    let pages = ["kmem", "pagealloc", "--json", "--"];
    let dd = ["dd", "if=/dev/zero", &of, "bs=1M", "count=20"];
    let text = json(&run(KYMO, [&pages[..], &dd].concat()).success());
    let processes = text["processes"].as_array().unwrap();
    let of = |comm: &str| processes.iter().filter(|p| p["comm"] == comm).collect::<Vec<_>>();
    // A file system may allocate several pages together.
    let bytes: u64 = of("dd").iter().map(|p| p["allocated_bytes"].as_u64().unwrap()).sum();
    assert!(bytes >= 20 << 20, "{processes:?}");
    assert_eq!(of("kymo-live"), Vec::<&Value>::new());
    assert!(text["vmstat"].as_object().is_some_and(|v| !v.is_empty()), "{text}");
}

#[test]
fn the_path_of_a_command_is_shown_at_once() {
    if !require(&NEEDS) {
        return;
    }
    let out = run(KYMO, ["why", "--json", "--", "sh", "-c", "sleep 0.2; exit 5"]);
    assert_eq!(out.status, 5, "{out:?}");
    let text = json(&out);
    let path = &text["paths"][0];
    let kinds = text["culprits"].as_array().unwrap();
    let sleeping = kinds.iter().find(|k| k["kind"] == "sleep").unwrap_or_else(|| panic!("{text}"));
    // It leaves its CPU a little after it began to count.
    assert!(sleeping["total_ns"].as_u64().unwrap() >= 190_000_000, "{text}");
    // The recording is gone.
    assert!(path["segments"].as_array().unwrap().iter().all(|s| s["script"].is_null()), "{text}");
    let page = run(KYMO, ["why", "--", "sleep", "0.1"]).success().stdout;
    assert!(page.contains("sleeping") && !page.contains("kymo script"), "{page}");
}

#[test]
fn the_path_of_a_process_that_runs_already_is_shown() {
    if !require(&NEEDS) {
        return;
    }
    let script = "for n in {1..300}; do sleep 0.1; done";
    let mut other = Command::new("bash").args(["-c", script]).spawn().unwrap();
    let pid = other.id().to_string();
    let why = |chosen: &[&str]| {
        let out = run(KYMO, [&["why", "--json"], chosen].concat()).success();
        json(&out)
    };
    // It waits for its children, which sleep.
    let page = why(&["-p", &pid, "--timeout", "500"]);
    let path = &page["paths"][0];
    assert_eq!(path["task"]["tid"], other.id(), "{page}");
    let culprits = page["culprits"].as_array().unwrap();
    let sleeping =
        culprits.iter().find(|c| c["kind"] == "sleep").unwrap_or_else(|| panic!("{page}"));
    assert!(sleeping["total_ns"].as_u64().unwrap() >= 100_000_000, "{page}");
    // Until a command ends that it has nothing to do with.
    let page = why(&["-p", &pid, "--", "sleep", "0.3"]);
    assert_eq!(page["paths"][0]["task"]["tid"], other.id(), "{page}");
    other.kill().unwrap();
    other.wait().unwrap();
    // Who runs most of all tasks of the machine; nothing points to what was not kept.
    let w = Workload::spin();
    let page = run(KYMO, ["why", "-a", "--", w.arg(), "300"]).success().stdout;
    assert!(page.contains(" took ") && !page.contains(" -i "), "{page}");
    let refused = run(KYMO, ["why", "--timeout", "50"]).failure().stderr;
    assert!(refused.contains("which task?"), "{refused}");
}

#[test]
fn an_interrupt_ends_it_and_the_answer_comes() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let mut spinning =
        Command::new(w.program()).arg("100000").stdout(Stdio::null()).spawn().unwrap();
    let mut command = Command::new(KYMO);
    let command = command.args(["kwork", "report", "--live"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // On a busy machine it takes a while until the events are on.
    let descriptors = format!("/proc/{}/fd", child.id());
    let is_event = |entry: std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().contains("perf_event"))
    };
    while !std::fs::read_dir(&descriptors).unwrap().flatten().any(is_event) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::thread::sleep(std::time::Duration::from_millis(800));
    let _ = run("kill", ["-INT", &child.id().to_string()]).success();
    let out = child.wait_with_output().unwrap();
    let _ = spinning.kill();
    let _ = spinning.wait();
    assert!(out.status.success(), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stdout).contains("TIMER"), "{out:?}");
}

#[test]
fn a_recording_goes_through_a_pipe_to_who_reads_it() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::syscalls();
    let mut record = Command::new(KYMO);
    let record = record.args(["kmem", "record", "--slab", "-q", "-o", "-", "--", "sh", "-c"]);
    let command = format!("{} 10 >&2", w.program().display());
    let mut record = record.arg(&command).stdout(Stdio::piped()).spawn().unwrap();
    let mut stat = Command::new(KYMO);
    let stat = stat.args(["kmem", "stat", "--slab", "-i", "-"]);
    let stat = stat.stdin(record.stdout.take().unwrap()).output().unwrap();
    assert!(record.wait().unwrap().success());
    let text = String::from_utf8_lossy(&stat.stdout);
    assert!(stat.status.success() && text.contains("Total bytes requested"), "{stat:?}");
}

/// Answers that take events now, each with the flag that chooses a process.
const ANSWERS: [(&[&str], &str); 10] = [
    (&["offcpu", "report"], "-p"),
    (&["sched", "latency"], "--pid"),
    (&["sched", "timehist"], "--pid"),
    (&["syscalls", "report"], "-p"),
    (&["lock", "contention", "--futex"], "-p"),
    (&["io", "latency"], "-p"),
    (&["io", "top"], "-p"),
    (&["kwork", "report"], "--pid"),
    (&["kmem", "stat"], "--pid"),
    (&["why"], "-p"),
];

/// The process that it chooses, for a moment.
fn of_process(answer: (&[&str], &str), pid: u32) -> Vec<String> {
    let (words, flag) = answer;
    let words = words.iter().map(|word| (*word).to_owned());
    words.chain([flag.to_owned(), pid.to_string(), "--timeout".into(), "200".into()]).collect()
}

/// In a pid namespace of its own numbers of processes are not those of the kernel's events: the
/// answer would be empty, or about another process.
#[test]
fn in_a_pid_namespace_no_answer_is_empty_without_a_word() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let inside = |args: &[String]| {
        let unshare = ["--pid", "--mount", "--fork", "--mount-proc", KYMO].map(str::to_owned);
        run("unshare", [&unshare[..], args].concat())
    };
    let is_said = |out: &Outcome| {
        assert!(out.stderr.contains("other numbers in this pid namespace"), "{out:?}");
        assert!(out.stderr.contains("nsenter") && out.stdout.is_empty(), "{out:?}");
    };
    for answer in ANSWERS {
        is_said(&inside(&of_process(answer, 1)).failure());
    }
    // Answers that are of the command's tasks.
    for (words, _) in &ANSWERS[..7] {
        let words = words.iter().chain(&["--", "true"]).map(|word| (*word).to_owned());
        is_said(&inside(&words.collect::<Vec<_>>()).failure());
    }
    // Of all tasks there is no choice to be made.
    let all = ["offcpu", "report", "-a", "--", "sleep", "0.1"].map(str::to_owned);
    let all = inside(&all).success();
    assert!(all.stdout.contains("sleep"), "{all:?}");
    // Answers and recordings of all tasks have the kernel's ids, and name them as such.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x").display().to_string();
    let of_all: [&[&str]; 9] = [
        &["offcpu", "report", "-a", "--", "sleep", "0.1"],
        &["sched", "latency", "-a", "--", "sleep", "0.1"],
        &["sched", "timehist", "-a", "--", "sleep", "0.1"],
        &["kwork", "latency", "--", "sleep", "0.1"],
        &["why", "--", "sleep", "0.1"],
        &["trace", "-a", "-e", "sched:sched_switch", "--", "sleep", "0.1"],
        &["trace", "-a", "-e", "sched:sched_switch", "-o", &file, "--", "true"],
        &["sched", "record", "-o", &file, "--", "true"],
        &["record", "-e", "sched:sched_switch", "-o", &file, "--", "true"],
    ];
    for words in of_all {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let out = inside(&words).success();
        let text = out.stdout.clone() + &out.stderr;
        assert!(text.contains("of the first pid namespace"), "{words:?}: {out:?}");
        // Where numbers are the same, nothing is said.
        let outside = run(KYMO, &words).success();
        let text = outside.stdout.clone() + &outside.stderr;
        assert!(!text.contains("pid namespace"), "{words:?}: {outside:?}");
    }
}

/// A process that waits all the time makes no event; of one that is not there is none, either.
#[test]
fn who_is_blocked_all_the_time_is_named() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let mut hung = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = hung.id();
    let call = format!("/proc/{pid}/syscall");
    // read(2) of the descriptor 0.
    while !std::fs::read_to_string(&call).unwrap().starts_with("0 0x0 ") {
        std::thread::yield_now();
    }
    let named = format!("({pid})");
    for answer in ANSWERS {
        // Neither had a wait for a CPU, nor a line.
        if answer.0[0] == "sched" {
            continue;
        }
        let out = run(KYMO, of_process(answer, pid));
        let said = format!("{}{}", out.stdout, out.stderr);
        assert!(said.contains("1 chosen thread was blocked all the time"), "{said}");
        assert!(said.contains(&named), "{said}");
    }
    hung.kill().unwrap();
    hung.wait().unwrap();
    for answer in ANSWERS {
        let out = run(KYMO, of_process(answer, pid)).failure();
        assert!(out.stderr.contains(&format!("no such process: {pid}")), "{out:?}");
    }
}

/// Without the right to a system-wide capture, the message names the setting that forbids it, also
/// as root of a user namespace.
#[test]
fn without_rights_no_answer_is_empty_without_a_word() {
    if !require(&NEEDS) {
        return;
    }
    let user = Unprivileged::new(std::path::Path::new(KYMO));
    let names_it = |out: Outcome| {
        let said = out.failure().stderr;
        let words = ["perf_event_paranoid", "root", "ermission", "CAP_"];
        assert!(words.iter().any(|word| said.contains(word)), "{said}");
    };
    for (words, _) in ANSWERS {
        let args = [words, &["--", "true"]].concat();
        names_it(user.run(&args));
        let unshare = ["--user", "--map-root-user", KYMO];
        names_it(run("unshare", [&unshare[..], &args].concat()));
    }
}

/// A recording without the events that an answer is made of.
#[test]
fn missing_events_are_named() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let clock = file("clock.data");
    let _ = run(KYMO, ["record", "-q", "-e", "task-clock", "-o", &clock, "--", "true"]).success();
    let said = |out: Outcome| format!("{}{}", out.stdout, out.stderr);
    for (words, _) in ANSWERS {
        let text = said(run(KYMO, [words, &["-i", &clock]].concat()));
        let is_named = ["record", "no events", "has no", "there is no", "there are no"];
        assert!(is_named.iter().any(|word| text.contains(word)), "{words:?}: {text}");
        assert!(!text.contains("panicked"), "{text}");
    }
}

/// Events that all answers need, of the whole machine while a shell runs programs.
const ALL_EVENTS: [&str; 12] = [
    "sched:sched_switch",
    "sched:sched_waking",
    "sched:sched_process_fork",
    "raw_syscalls:sys_enter",
    "raw_syscalls:sys_exit",
    "irq:softirq_entry",
    "irq:softirq_exit",
    "irq:softirq_raise",
    "kmem:kmalloc",
    "kmem:kfree",
    "kmem:mm_page_alloc",
    "kmem:mm_page_free",
];

/// Commands that read recordings and choose tasks, CPUs or times.
const READERS: [&str; 22] = [
    "offcpu report",
    "sched latency",
    "sched timehist",
    "sched map",
    "syscalls report",
    "why",
    "profile",
    "lock contention",
    "io latency",
    "io top",
    "io timehist",
    "kmem stat",
    "kmem pagealloc",
    "kwork report",
    "kwork latency",
    "kwork timehist",
    "timechart -o page --force",
    "view -o page --force",
    "script",
    "report -s event,comm",
    "convert -f folded",
    "trace -s",
];

/// A choice that nothing meets is named with what there is, whatever command it is given to; what
/// a command does not know it refuses.
#[test]
fn no_answer_is_empty_without_a_word() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (perf, ftrace, bare) = (path("x.data"), path("x.dat"), path("bare.data"));
    let events = ALL_EVENTS.map(|event| ["-e", event]).concat();
    let command = ["--", "sh", "-c", "for i in 1 2 3; do sleep 0.02; ls / >/dev/null; done"];
    let record = [&["record", "-q", "-a", "-o", &perf][..], &events, &command].concat();
    let _ = run(KYMO, record).success();
    let trace = [&["trace", "-o", &ftrace][..], &events, &command].concat();
    let _ = run(KYMO, trace).success();
    let plain = [&["record", "-q", "-e", "cpu-clock", "-o", &bare][..], &command].concat();
    let _ = run(KYMO, plain).success();
    let said = |command: &str, file: &str, more: &[&str]| {
        let words: Vec<&str> = command.split(' ').collect();
        let args = [&words[..], &["-i", file], more].concat();
        let out = std::process::Command::new(KYMO)
            .args(args)
            .current_dir(directory.path())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let all = text(&out.stdout) + &text(&out.stderr);
        // What a command refuses it has said.
        let is_refused = out.status.code() == Some(2)
            || text(&out.stderr).lines().any(|line| line.starts_with("kymo: "));
        (is_refused, all)
    };
    let nothing = [
        ("--comm", "nosuchname", "no event matches --comm nosuchname; the recording has "),
        ("--pid", "4194303", "no event matches --pid 4194303; the recording has "),
        ("--tid", "4194303", "no event matches --tid 4194303; the recording has "),
        ("--cpu", "4095", "no event is on --cpu 4095; the "),
        ("--time", "1,2", "no event is within --time 1.000000,2.000000; the recording is from "),
    ];
    let needs_requests = |command: &str| {
        // Of a machine at rest there is nothing to choose from.
        command.starts_with("io ") || command.starts_with("lock ")
    };
    for command in READERS {
        for file in [&perf, &ftrace] {
            for (flag, value, expected) in nothing {
                let (is_refused, text) = said(command, file, &[flag, value]);
                let has_word = text.contains(expected)
                    || needs_requests(command) && text.contains("empty: there are no ");
                assert!(is_refused || has_word, "{command} {flag} on {file}: {text}");
            }
        }
        // Without the events that it is about.
        let (is_refused, text) = said(command, &bare, &[]);
        let is_of_samples = ["profile", "script", "report", "convert", "view"]
            .iter()
            .any(|name| command.starts_with(name));
        let has_word = text.contains("there are no") || text.contains("there is no");
        assert!(is_refused || is_of_samples || has_word, "{command} on {bare}: {text}");
    }
    for command in ["script", "report -s event,comm", "convert -f folded"] {
        let (_, text) = said(command, &perf, &["--filter", "common_pid == 4194303"]);
        assert!(text.contains("no event matches --filter"), "{command}: {text}");
        let (_, text) = said(command, &perf, &["-e", "nosuch:event"]);
        let said = ["no such event", "no event matches --event nosuch:event; the recording has "];
        assert!(said.iter().any(|fact| text.contains(fact)), "{command}: {text}");
    }
}

/// Threads that sleep from before the start to the end are in no table, but they are named.
#[test]
fn a_thread_that_sleeps_all_the_time_is_named() {
    if !require(&NEEDS) {
        return;
    }
    let mut sleep = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = sleep.id().to_string();
    let is_asleep = || {
        let path = |name: &str| format!("/proc/{pid}/{name}");
        let read = |name: &str| std::fs::read_to_string(path(name)).unwrap_or_default();
        read("comm").trim() == "sleep" && read("status").contains("State:\tS")
    };
    let begin = std::time::Instant::now();
    while !is_asleep() {
        assert!(begin.elapsed() < std::time::Duration::from_secs(60));
        std::thread::yield_now();
    }
    let outs = [&["sched", "latency", "--pid"][..], &["sched", "timehist", "--pid"]]
        .map(|command| run(KYMO, [command, &[&pid, "--timeout", "200"]].concat()));
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    for out in outs {
        let all = format!("{}{}", out.stdout, out.stderr);
        assert!(all.contains("1 chosen thread was blocked all the time"), "{all}");
        assert!(all.contains(&format!("({pid})")), "{all}");
    }
}

/// Output of a command on both streams, and whether it succeeded.
fn printed(args: &[&str]) -> (bool, String) {
    let out = run(KYMO, args);
    (out.status == 0, out.stdout + &out.stderr)
}

/// Commands that choose nothing by `--comm`: each names what is missing in its own words.
#[test]
fn no_comparison_table_or_export_is_empty_without_a_word() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let samples = path("samples.data");
    let _ = run(KYMO, ["record", "-q", "-e", "cpu-clock", "-o", &samples, "--", "sh", "-c", spin])
        .success();

    // A comparison.
    for choice in [
        &["--pid", "4194303"][..],
        &["--tid", "4194303"],
        &["-C", "nosuchname"],
        &["--cpu", "4095"],
        &["--time", "1,2"],
    ] {
        for form in [
            &["diff", &samples, &samples][..],
            &["diff", "-c", "delta", &samples, &samples],
            &["diff", "--before", &samples, &samples, "--after", &samples, &samples],
        ] {
            let (is_success, text) = printed(&[form, choice].concat());
            let is_named = text.contains("no event matches --") || text.contains("no event is ");
            assert!(!is_success && is_named, "{form:?} {choice:?}: {text}");
        }
    }
    let of = ["diff", "--of", "syscalls report", &samples, &samples];
    let (is_success, text) = printed(&of);
    assert!(!is_success && text.contains("; there are no events of system calls"), "{text}");

    // Tables: what the recording lacks is named for each table without rows.
    let tables = [
        ("ftrace_event", "there are no events of the kernel"),
        ("program_event", "there are no events of programs"),
        ("args", "there are no fields of events"),
        ("slice", "there are no system calls, interrupts, function graphs or spans"),
        ("counter", "there are no counters"),
        ("counter_track", "there are no counters"),
        ("track", "there are no system calls, interrupts, function graphs, spans"),
        ("sched_slice", "there are no sched_switch events"),
        ("thread_state", "there are no sched_switch events"),
        ("offcpu", "there are no sched_switch events"),
        ("syscalls", "there are no events of system calls"),
        ("lock_contention", "there are no events lock:contention_begin"),
        ("io_latency", "there are no events of block requests"),
        ("io_top", "there are no events of block requests"),
        ("kwork_report", "there are no events of interrupts"),
        ("kmem_pagealloc", "there are no events of the page allocator"),
    ];
    for (table, missing) in tables {
        let query = format!("SELECT * FROM {table}");
        for format in ["--json", "--csv", "--memory-limit=1024"] {
            let (_, text) = printed(&["sql", format, &samples, &query]);
            assert!(text.contains(missing), "{table}: {text}");
        }
    }
    let (_, text) = printed(&["sql", &samples, "SELECT count(*) FROM perf_sample"]);
    assert!(!text.contains("empty:"), "{text}");
    let (_, text) = printed(&["export", &samples, "-o", &path("out")]);
    assert!(text.contains("there are no sched_switch events"), "{text}");

    // Damaged files and directories.
    let bytes = std::fs::read(&samples).unwrap();
    let file = |name: &str, bytes: &[u8]| {
        std::fs::write(path(name), bytes).unwrap();
        path(name)
    };
    let cut = file("cut.data", &bytes[..bytes.len() / 2]);
    let (head, empty) = (file("head.data", &bytes[..100]), file("empty.data", &[]));
    let (without, broken) = (path("without"), path("broken"));
    std::fs::create_dir(&without).unwrap();
    std::fs::create_dir(&broken).unwrap();
    std::fs::write(format!("{broken}/metadata"), "no metadata").unwrap();
    let out = path("damaged");
    for bad in [&cut, &head, &empty, &without, &broken] {
        for args in [
            &["sql", bad, "SELECT count(*) FROM sched_slice"][..],
            &["export", bad, "-o", &out],
            &["diff", "--before", &samples, "--after", bad],
            &["diff", "-c", "delta", &samples, bad],
            &["diff", "--of", "syscalls report", &samples, bad],
        ] {
            let (is_success, text) = printed(args);
            let words = [
                "damaged",
                "cut short",
                "is beyond",
                "is empty",
                "no stacks",
                "is not a recording",
            ];
            let is_named = words.iter().any(|word| text.contains(word));
            assert!(!is_success && is_named && text.contains(&**bad), "{args:?}: {text}");
        }
    }
}

/// Pages of `top` show the chosen tasks, and what there was where none are.
#[test]
fn no_page_of_top_is_empty_without_a_word() {
    if !require(&NEEDS) {
        return;
    }
    let spin = Workload::spin();
    let spin = || Command::new(spin.program()).arg("100000").stdout(Stdio::null()).spawn().unwrap();
    let (mut one, mut other) = (spin(), spin());
    let page = |more: &[&str]| {
        let args = ["top", "--stdio", "--timeout", "700", "-d", "0.3", "-E", "1000"];
        printed(&[&args, more].concat())
    };
    for choice in ["--comms", "--dsos", "--symbols"] {
        let (is_success, text) = page(&[choice, "nosuchname"]);
        assert!(is_success && text.contains("no sample matches --comms"), "{choice}: {text}");
    }
    let tasks = |choice: &[&str]| page(&[&["--tasks"], choice].concat());
    let (_, text) = tasks(&["--comms", "nosuchname"]);
    assert!(text.contains("no task matches -p, -t and --comms"), "{text}");
    let (pid, others) = (one.id().to_string(), other.id().to_string());
    let row = |text: &str, pid: &str| {
        text.lines().any(|line| line.split_whitespace().nth(5) == Some(pid))
    };
    for choice in [&["-p", &pid][..], &["-t", &pid]] {
        let (is_success, text) = tasks(choice);
        assert!(is_success && row(&text, &pid) && !row(&text, &others), "{choice:?}: {text}");
    }
    let (_, text) = tasks(&[]);
    assert!(row(&text, &pid) && row(&text, &others), "{text}");
    // What it does not choose by, it refuses.
    for refused in [&["--dsos", "x"][..], &["--symbols", "x"], &["-G", "x"], &["-u", "root"]] {
        let (is_success, text) = tasks(refused);
        assert!(!is_success && text.contains("cannot be used with"), "{refused:?}: {text}");
    }
    one.kill().unwrap();
    other.kill().unwrap();
    one.wait().unwrap();
    other.wait().unwrap();
    for gone in [&["-p", &pid][..], &["-t", &pid], &["--tasks", "-p", &pid]] {
        let (is_success, text) = page(gone);
        assert!(!is_success && text.contains("no such"), "{gone:?}: {text}");
    }

    // In other namespaces, and without rights.
    let inside = |kind: &[&str], args: &[&str]| {
        let out = run("unshare", [kind, &[KYMO], args].concat());
        (out.status == 0, out.stdout + &out.stderr)
    };
    let pids = ["--pid", "--mount", "--fork", "--mount-proc"];
    let top = ["top", "--tasks", "--stdio", "--timeout", "300"];
    let (_, text) = inside(&pids, &top);
    assert!(text.contains("of the first pid namespace"), "{text}");
    let (is_success, text) = inside(&pids, &[&top[..], &["-p", "1"]].concat());
    assert!(!is_success && text.contains("other numbers in this pid namespace"), "{text}");
    let nobody = Unprivileged::new(std::path::Path::new(KYMO));
    let is_said =
        |text: &str| ["perf_event_paranoid", "ermission"].iter().any(|w| text.contains(w));
    for args in [&top[..], &["top", "--stdio", "--timeout", "300"]] {
        let (is_success, text) = inside(&["--user", "--map-root-user"], args);
        assert!(!is_success && is_said(&text), "{args:?}: {text}");
        let out = nobody.run(args);
        assert!(out.status != 0 && is_said(&out.stderr), "{args:?}: {out:?}");
    }
}
