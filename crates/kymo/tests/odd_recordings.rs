//! Answers about recordings that are odd but not damaged: numbers of tasks that are given again, two
//! tasks of one name, a clock that steps back, CPUs that come and go, interrupts without a begin or
//! an end. The recordings are written here; their numbers are known.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod kernel_ctf;

use std::path::Path;

use kernel_ctf::{CtfClass, CtfEvent, CtfWriter};
use kymo_testkit::{Outcome, page_with_ledger, run};
use serde_json::{Value, json};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const MS: u64 = 1_000_000;

const CLASSES: [CtfClass; 11] = [
    CtfClass {
        name: "sched_switch",
        fields: &[
            ("text", "prev_comm"),
            ("int32_t", "prev_tid"),
            ("uint64_t", "prev_state"),
            ("text", "next_comm"),
            ("int32_t", "next_tid"),
        ],
    },
    CtfClass { name: "sched_waking", fields: &[("text", "comm"), ("int32_t", "tid")] },
    CtfClass { name: "sched_wakeup_new", fields: &[("text", "comm"), ("int32_t", "tid")] },
    CtfClass { name: "sched_process_exit", fields: &[("text", "comm"), ("int32_t", "tid")] },
    CtfClass {
        name: "sched_process_fork",
        fields: &[
            ("text", "parent_comm"),
            ("int32_t", "parent_tid"),
            ("int32_t", "parent_pid"),
            ("text", "child_comm"),
            ("int32_t", "child_tid"),
            ("int32_t", "child_pid"),
        ],
    },
    CtfClass { name: "irq_handler_entry", fields: &[("int32_t", "irq"), ("text", "name")] },
    CtfClass { name: "irq_handler_exit", fields: &[("int32_t", "irq"), ("int32_t", "ret")] },
    CtfClass { name: "irq_softirq_entry", fields: &[("uint32_t", "vec")] },
    CtfClass { name: "irq_softirq_exit", fields: &[("uint32_t", "vec")] },
    CtfClass {
        name: "syscall_entry_futex",
        fields: &[("uint64_t", "uaddr"), ("int32_t", "op"), ("uint32_t", "val")],
    },
    CtfClass { name: "syscall_exit_futex", fields: &[("int32_t", "ret")] },
];

const SLEEPS: u64 = 1;
const DEAD: u64 = 16;

/// At a time in milliseconds, on a CPU.
fn at(time: u64, cpu: u32, name: &str, values: &[u64]) -> CtfEvent {
    let class = CLASSES.iter().position(|c| c.name == name).unwrap();
    CtfEvent { time: 1_000_000 * MS + time * MS, cpu, class, values: values.to_vec() }
}

/// Tasks are called `t` and a number.
fn switch(time: u64, cpu: u32, from: (u64, u64), state: u64, to: (u64, u64)) -> CtfEvent {
    at(time, cpu, "sched_switch", &[from.1, from.0, state, to.1, to.0])
}

fn write(events: &[CtfEvent], directory: &Path) -> String {
    let path = directory.join("kernel");
    CtfWriter { classes: &CLASSES, events, packet: 100, without: &|_, _| false }.write(&path);
    path.to_str().unwrap().to_owned()
}

fn page(args: &[&str], path: &str) -> (Value, Outcome) {
    let out = run(KYMO, [args, &["--json", "-i", path]].concat()).success();
    (page_with_ledger(&out.stdout, &out.stderr), out)
}

fn rows<const N: usize>(page: &Value, rows: &str, names: [&str; N]) -> Vec<[Value; N]> {
    let of = |row: &Value| names.map(|name| row[name].clone());
    let mut all: Vec<_> = page[rows].as_array().unwrap().iter().map(of).collect();
    all.sort_by_key(|row| row[0].to_string() + &row[1].to_string());
    all
}

fn notes(page: &Value, kind: &str) -> usize {
    page["ledger"].as_array().map_or(0, |all| all.iter().filter(|n| n["kind"] == kind).count())
}

#[test]
fn numbers_of_dead_tasks_that_are_given_again_are_of_new_tasks() {
    let directory = tempfile::tempdir().unwrap();
    let (idle, one, two, parent) = ((0, 0), (100, 1), (100, 2), (50, 5));
    let path = write(
        &[
            switch(0, 0, idle, 0, one),
            switch(10, 0, one, SLEEPS, idle),
            at(20, 0, "sched_waking", &[1, 100]),
            switch(22, 0, idle, 0, one),
            at(25, 0, "sched_process_exit", &[1, 100]),
            switch(26, 0, one, DEAD, parent),
            at(31, 0, "sched_wakeup_new", &[2, 100]),
            switch(33, 0, parent, SLEEPS, two),
            switch(40, 0, two, SLEEPS, idle),
            at(45, 0, "sched_waking", &[2, 100]),
            switch(46, 0, idle, 0, two),
            switch(50, 0, two, SLEEPS, idle),
        ],
        directory.path(),
    );
    let (latency, _) = page(&["sched", "latency", "-p"], &path);
    let expected = [
        [json!("t1"), json!(100), json!(14 * MS), json!(2)],
        [json!("t2"), json!(100), json!(11 * MS), json!(2)],
        [json!("t5"), json!(50), json!(7 * MS), json!(1)],
    ];
    let names = ["comm", "tid", "runtime_ns", "switches"];
    assert_eq!(rows(&latency, "tasks", names), expected, "{latency:#}");
    let (off, _) = page(&["offcpu", "report", "--tasks"], &path);
    let names = ["comm", "running_ns", "waiting_ns", "blocked_ns"];
    let expected = [
        [json!("t1"), json!(14 * MS), json!(2 * MS), json!(10 * MS)],
        [json!("t2"), json!(11 * MS), json!(3 * MS), json!(5 * MS)],
        [json!("t5"), json!(7 * MS), json!(0), json!(0)],
    ];
    assert_eq!(rows(&off, "tasks", names), expected, "{off:#}");
    // The path of one of them does not go over into the other.
    let (why, _) = page(&["why", "--comm", "t2"], &path);
    let start = why["paths"][0]["start_ns"].as_u64().unwrap();
    assert!(start >= 1_000_031 * MS, "{why:#}");
}

/// A task that begins to exit may sleep and run once more, and its last switch may be missing: who
/// comes then under another name is a new task, under the same name it is still the old one.
#[test]
fn a_task_that_began_to_exit_ends_where_a_new_one_has_its_number() {
    let directory = tempfile::tempdir().unwrap();
    let (idle, one, two) = ((0, 0), (100, 1), (100, 2));
    let path = write(
        &[
            switch(0, 0, idle, 0, one),
            at(5, 0, "sched_process_exit", &[1, 100]),
            switch(10, 0, one, SLEEPS, idle),
            at(20, 0, "sched_waking", &[1, 100]),
            switch(22, 0, idle, 0, one),
            switch(26, 0, one, SLEEPS, idle),
            switch(33, 0, idle, 0, two),
            switch(40, 0, two, SLEEPS, idle),
        ],
        directory.path(),
    );
    let (latency, _) = page(&["sched", "latency", "-p"], &path);
    let expected = [
        [json!("t1"), json!(100), json!(14 * MS), json!(2)],
        [json!("t2"), json!(100), json!(7 * MS), json!(1)],
    ];
    let names = ["comm", "tid", "runtime_ns", "switches"];
    assert_eq!(rows(&latency, "tasks", names), expected, "{latency:#}");
    let (off, _) = page(&["offcpu", "report", "--tasks"], &path);
    let expected = [[json!("t1"), json!(14 * MS)], [json!("t2"), json!(7 * MS)]];
    assert_eq!(rows(&off, "tasks", ["comm", "running_ns"]), expected, "{off:#}");
}

/// Without the exit event of the first task, the fork event of the second separates them, and the
/// next task has the name of neither.
#[test]
fn tasks_that_ended_unseen_keep_their_rows() {
    let directory = tempfile::tempdir().unwrap();
    let (idle, one, two, other, parent) = ((0, 0), (100, 1), (100, 2), (300, 8), (50, 5));
    let path = write(
        &[
            switch(0, 0, idle, 0, one),
            switch(10, 0, one, SLEEPS, parent),
            at(15, 0, "sched_process_fork", &[5, 50, 50, 5, 100, 100]),
            at(16, 0, "sched_wakeup_new", &[8, 300]),
            at(17, 0, "sched_wakeup_new", &[2, 100]),
            switch(20, 0, parent, SLEEPS, two),
            switch(30, 0, two, SLEEPS, other),
            switch(35, 0, other, SLEEPS, idle),
        ],
        directory.path(),
    );
    let (latency, _) = page(&["sched", "latency", "-p"], &path);
    let expected = [
        [json!("t1"), json!(100), json!(10 * MS)],
        [json!("t2"), json!(100), json!(10 * MS)],
        [json!("t5"), json!(50), json!(10 * MS)],
        [json!("t8"), json!(300), json!(5 * MS)],
    ];
    assert_eq!(rows(&latency, "tasks", ["comm", "tid", "runtime_ns"]), expected, "{latency:#}");
    let (off, _) = page(&["offcpu", "report", "--tasks"], &path);
    let expected = [
        [json!("t1"), json!(100), json!(10 * MS)],
        [json!("t2"), json!(100), json!(10 * MS)],
        [json!("t5"), json!(50), json!(10 * MS)],
        [json!("t8"), json!(300), json!(5 * MS)],
    ];
    assert_eq!(rows(&off, "tasks", ["comm", "tid", "running_ns"]), expected, "{off:#}");
    let (why, _) = page(&["why", "--tid", "300"], &path);
    assert_eq!(why["paths"][0]["task"]["comm"], "t8", "{why:#}");
    let (why, _) = page(&["why", "--comm", "t1"], &path);
    assert_eq!(why["paths"][0]["start_ns"], 1_000_000 * MS, "{why:#}");
}

#[test]
fn tasks_of_one_name_are_distinguished() {
    let directory = tempfile::tempdir().unwrap();
    let (idle, first, second) = ((0, 0), (100, 7), (101, 7));
    let path = write(
        &[
            switch(0, 0, idle, 0, first),
            switch(1, 1, idle, 0, second),
            switch(5, 0, first, SLEEPS, idle),
            switch(9, 1, second, SLEEPS, idle),
            at(20, 0, "sched_waking", &[7, 100]),
            switch(21, 0, idle, 0, first),
            at(30, 1, "sched_waking", &[7, 101]),
            switch(34, 1, idle, 0, second),
            switch(50, 0, first, SLEEPS, idle),
            switch(51, 1, second, SLEEPS, idle),
        ],
        directory.path(),
    );
    let (latency, _) = page(&["sched", "latency", "-p"], &path);
    let expected = [
        [json!("t7"), json!(100), json!(34 * MS), json!(MS)],
        [json!("t7"), json!(101), json!(25 * MS), json!(4 * MS)],
    ];
    let delays = |row: &Value| {
        let of = ["comm", "tid", "runtime_ns"].map(|n| row[n].clone());
        let [comm, tid, runtime] = of;
        [comm, tid, runtime, row["delay"]["max_ns"].clone()]
    };
    let mut found: Vec<_> = latency["tasks"].as_array().unwrap().iter().map(delays).collect();
    found.sort_by_key(|row| row[1].to_string());
    assert_eq!(found, expected, "{latency:#}");
    // Together only if their names alone count.
    let (together, _) = page(&["sched", "latency"], &path);
    let names = ["comm", "tasks", "runtime_ns"];
    assert_eq!(rows(&together, "tasks", names), [[json!("t7"), json!(2), json!(59 * MS)]]);
    let text = run(KYMO, ["why", "-i", &path, "--comm", "t7"]).success().stdout;
    assert!(text.contains("Other tasks fit as well (--tid): t7:10"), "{text}");
}

#[test]
fn a_clock_that_steps_back_makes_no_time_and_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let (idle, task) = ((0, 0), (100, 1));
    let path = write(
        &[
            switch(0, 0, idle, 0, task),
            switch(10, 0, task, SLEEPS, idle),
            switch(15, 0, idle, 0, task),
            switch(12, 0, task, SLEEPS, idle),
            at(40, 0, "sched_waking", &[1, 100]),
            switch(41, 0, idle, 0, task),
            switch(42, 0, task, SLEEPS, idle),
        ],
        directory.path(),
    );
    for args in [&["sched", "latency", "-p"][..], &["offcpu", "report"], &["why", "--tid", "100"]] {
        let (page, _) = page(args, &path);
        assert!(notes(&page, "order") > 0, "{args:?}: {page:#}");
    }
    let (latency, _) = page(&["sched", "latency", "-p"], &path);
    // The run that would have ended before it began is none.
    assert_eq!(latency["tasks"][0]["runtime_ns"], 11 * MS, "{latency:#}");
    assert_eq!(latency["tasks"][0]["woken"]["max_ns"], MS, "{latency:#}");
    let strict = run(KYMO, ["sched", "latency", "--strict", "-i", &path]);
    assert_eq!(strict.status, 3, "{strict:?}");
}

#[test]
fn cpus_that_come_and_go_make_no_time() {
    let directory = tempfile::tempdir().unwrap();
    let (idle, x, y, z, stop) = ((0, 0), (100, 1), (101, 2), (102, 3), (20, 9));
    let path = write(
        &[
            switch(0, 0, idle, 0, x),
            switch(1, 1, idle, 0, y),
            // It leaves, and the task that ran there continues elsewhere.
            switch(10, 1, y, 0, stop),
            switch(20, 0, x, 0, y),
            switch(30, 0, y, 0, x),
            // It is there again, from its idle task on.
            switch(100, 1, idle, 0, y),
            switch(110, 1, y, SLEEPS, idle),
            switch(120, 0, x, SLEEPS, idle),
            // One that was not there before.
            switch(130, 7, idle, 0, z),
            switch(140, 7, z, SLEEPS, idle),
        ],
        directory.path(),
    );
    let (off, _) = page(&["offcpu", "report", "--tasks"], &path);
    let expected = [
        [json!("t1"), json!(110 * MS), json!(10 * MS)],
        [json!("t2"), json!(29 * MS), json!(80 * MS)],
        [json!("t3"), json!(10 * MS), json!(0)],
        // Until when it ran is not known.
        [json!("t9"), json!(0), json!(0)],
    ];
    assert_eq!(rows(&off, "tasks", ["comm", "running_ns", "waiting_ns"]), expected, "{off:#}");
    let doubts = off["ledger"].as_array().unwrap().iter();
    let said = doubts.filter(|n| n["fact"].as_str().unwrap().contains("had not switched to"));
    assert_eq!(said.count(), 1, "{off:#}");
}

/// A recording that has the idle tasks has all tasks: another one would not have more. Where none of
/// the kernel's tasks runs, the recording may be of some tasks.
#[test]
fn advice_to_record_is_given_only_where_tasks_are_missing() {
    let directory = tempfile::tempdir().unwrap();
    let (idle, one, two, three) = ((0, 0), (1, 1), (2, 2), (3, 3));
    for (kernel, is_advised) in [(idle, false), ((4, 4), true)] {
        let mut events = Vec::new();
        for round in 0..20 {
            events.push(switch(10 * round, 0, kernel, 0, one));
            events.push(switch(10 * round + 5, 0, one, SLEEPS, kernel));
        }
        // The switch to the third one is missing, and so is the wake-up of the first one.
        events.push(switch(300, 0, kernel, 0, two));
        events.push(switch(310, 0, three, SLEEPS, kernel));
        events.push(at(320, 0, "sched_waking", &[2, 2]));
        let place = directory.path().join(if is_advised { "some" } else { "all" });
        let path = write(&events, &place);
        for args in [&["sched", "latency"][..], &["view", "--force", "-o", "/dev/null"]] {
            let out = run(KYMO, [args, &["-i", &path]].concat()).success();
            let said = out.stdout + &out.stderr;
            assert!(said.contains("1 switch away from tasks"), "{args:?}: {said}");
            assert!(said.contains("no wake-up in the recording"), "{args:?}: {said}");
            assert_eq!(said.contains("a recording of some tasks"), is_advised, "{args:?}: {said}");
            for advice in ["all tasks on all CPUs", "the wake-ups of all CPUs"] {
                assert_eq!(said.contains(advice), is_advised, "{args:?}: {said}");
            }
        }
    }
}

#[test]
fn interrupts_without_a_begin_or_an_end_are_counted_and_take_no_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(
        &[
            at(0, 0, "irq_handler_exit", &[5, 1]),
            at(2, 0, "irq_handler_entry", &[5, 5]),
            at(3, 0, "irq_handler_exit", &[5, 1]),
            at(4, 0, "irq_handler_exit", &[5, 1]),
            at(5, 0, "irq_handler_entry", &[6, 6]),
            at(7, 0, "irq_handler_exit", &[6, 1]),
            at(8, 0, "irq_softirq_exit", &[3]),
            at(10, 0, "irq_softirq_entry", &[3]),
            at(12, 0, "irq_softirq_exit", &[3]),
            at(13, 0, "irq_softirq_entry", &[1]),
        ],
        directory.path(),
    );
    let (report, _) = page(&["kwork", "report"], &path);
    let of = |row: &Value| (row["name"].clone(), row["runtime"]["total_ns"].clone());
    let mut found: Vec<_> = report["rows"].as_array().unwrap().iter().map(of).collect();
    found.sort_by_key(|row| row.0.to_string());
    let expected = [
        (json!("(s)NET_RX:3"), json!(2 * MS)),
        (json!("t5:5"), json!(MS)),
        (json!("t6:6"), json!(2 * MS)),
    ];
    assert_eq!(found, expected, "{report:#}");
    assert_eq!(report["halves"]["exits_only"], 3, "{report:#}");
    assert_eq!(report["halves"]["entries_only"], 1, "{report:#}");
}

#[test]
fn futexes_of_lttng_are_waited_for_and_halves_are_no_waits() {
    let directory = tempfile::tempdir().unwrap();
    let (idle, waiter, waker) = ((0, 0), (100, 1), (101, 2));
    const WAIT: u64 = 128;
    const WAKE: u64 = 129;
    let path = write(
        &[
            switch(0, 0, idle, 0, waiter),
            // It had begun before.
            at(1, 0, "syscall_exit_futex", &[0]),
            at(2, 0, "syscall_entry_futex", &[0x1000, WAIT, 0]),
            switch(3, 0, waiter, SLEEPS, idle),
            switch(4, 1, idle, 0, waker),
            at(9, 1, "syscall_entry_futex", &[0x1000, WAKE, 1]),
            at(10, 1, "syscall_exit_futex", &[1]),
            switch(11, 0, idle, 0, waiter),
            at(12, 0, "syscall_exit_futex", &[0]),
            // It has not ended.
            at(20, 0, "syscall_entry_futex", &[0x2000, WAIT, 0]),
        ],
        directory.path(),
    );
    let (report, _) = page(&["lock", "contention", "--futex"], &path);
    let names = ["address", "count", "total_ns", "wakes"];
    let futexes = rows(&report, "futexes", names);
    assert!(futexes.contains(&[json!("0x1000"), json!(1), json!(10 * MS), json!(1)]), "{report:#}");
    let waits: u64 =
        report["futexes"].as_array().unwrap().iter().map(|f| f["count"].as_u64().unwrap()).sum();
    assert_eq!(waits, 1, "{report:#}");
}

/// Runs kymo on a recording that was made by hand.
#[track_caller]
fn made(args: &[&str], name: &str) -> Outcome {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/perf-data-made");
    run(KYMO, [args, &["-i", dir.join(name).to_str().unwrap()]].concat())
}

/// A regular file of the pipe form is a file: what can be read twice is read twice.
#[test]
fn a_file_of_the_pipe_form_is_read_as_any_file() {
    assert_eq!(made(&["evlist"], "pipe.data").success().stdout, "cycles\n");
    let header = made(&["script", "--header-only"], "pipe.data").success().stdout;
    assert!(
        header.contains("# hostname : box\n") && header.contains("# arch : x86_64"),
        "{header}"
    );
    let missing = header.lines().find(|l| l.contains("missing features")).unwrap_or_default();
    assert!(!missing.contains("HOSTNAME") && !missing.contains("ARCH"), "{missing}");
    let profile = made(&["profile", "--json"], "pipe.data").success().stdout;
    let profile: Value = serde_json::from_str(&profile).unwrap();
    assert_eq!(profile["elapsed_ns"], 500_000_000);
    let half = made(&["script", "--time", "0%-50%"], "pipe.data").success().stdout;
    assert_eq!(half.lines().count(), 3, "{half}");
    for args in [&["convert", "-f", "chrome", "-o", "-"][..], &["view", "-o", "-"]] {
        assert!(!made(args, "pipe.data").success().stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn samples_behind_odd_tracing_data_are_read() {
    let lines = made(&["script"], "simpleperf-tracing.data").stdout;
    assert_eq!(lines.lines().count(), 6, "{lines}");
}

#[test]
fn trace_data_of_hardware_are_named_and_what_is_missing_of_them() {
    let profile = ["profile", "--strict"];
    for args in [&["script", "--strict"][..], &["report", "--strict"], &profile] {
        let outcome = made(args, "aux.data").expect_status(3);
        // A report ends with its warnings.
        let said = outcome.stdout + &outcome.stderr;
        assert!(said.contains("64 bytes of Intel PT are not decoded"), "{args:?}: {said}");
        assert!(said.contains("1 of 1 piece of Intel PT were truncated"), "{args:?}: {said}");
        assert!(!said.contains("a higher rate"), "{args:?}: {said}");
    }
}

/// As perf 7.2 shows it: an event's line has what it counted since the sample before.
#[test]
fn each_event_of_a_sampled_group_has_its_line() {
    let right = [
        ("cycles", 1000),
        ("instructions", 500),
        ("cycles", 2000),
        ("instructions", 1200),
        ("cycles", 6000),
        ("instructions", 300),
    ];
    let text = made(&["script", "-F", "event,period"], "group-read.data").success().stdout;
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let seen: Vec<(String, u64)> =
        words.map(|w| (w[1].trim_end_matches(':').to_owned(), w[0].parse().unwrap())).collect();
    assert_eq!(seen, right.map(|(name, count)| (name.to_owned(), count)));
    let json = made(&["script", "--json"], "group-read.data").success().stdout;
    let objects = json.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let seen: Vec<Value> = objects.map(|o| json!([o["event"], o["period"]])).collect();
    assert_eq!(seen, right.map(|(name, count)| json!([name, count])));
}

/// As perf 7.2 converts it: a sample of each event that counted anything.
#[test]
fn each_event_of_a_sampled_group_is_converted() {
    let place = tempfile::tempdir().unwrap();
    let [json, ctf] = ["group.json", "ctf"].map(|name| place.path().join(name));
    let [json, ctf] = [&json, &ctf].map(|path| path.to_str().unwrap());
    for to in [&["--to-json", json][..], &["--to-ctf", ctf]] {
        let out = made(&[&["data", "convert"], to].concat(), "group-read.data").success();
        assert!(out.stderr.contains("wrote 6 samples"), "{to:?}: {}", out.stderr);
    }
    let json: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let threads = |samples: &Vec<Value>| samples.iter().map(|s| s["tid"].as_u64()).collect();
    let threads: Vec<Option<u64>> = json["samples"].as_array().map(threads).unwrap();
    assert_eq!(threads, [Some(10); 6]);
    let lines = run(KYMO, ["script", "--json", "-i", ctf]).success().stdout;
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let periods: Vec<Value> =
        lines.map(|o| json!([o["event"], o["fields"]["perf_period"]])).collect();
    let right = [
        ("cycles", 1000),
        ("instructions", 500),
        ("cycles", 2000),
        ("instructions", 1200),
        ("cycles", 6000),
        ("instructions", 300),
    ];
    assert_eq!(periods, right.map(|(name, count)| json!([name, count])));
    // Of a part of the recording, too, the counts are those since the sample before it.
    let part = place.path().join("part");
    let to = ["data", "convert", "--time", "10%-100%", "--to-ctf", part.to_str().unwrap()];
    let _ = made(&to, "group-read.data").success();
    let lines = run(KYMO, ["script", "--json", "-i", part.to_str().unwrap()]).success().stdout;
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["fields"]["perf_period"], 2000, "{lines}");
}

/// The sums of perf 7.2's lines: 9000 cycles and 2000 instructions.
#[test]
fn stacks_of_a_sampled_group_have_the_counts_of_each_event() {
    for (event, count) in [("cycles", 9000), ("instructions", 2000)] {
        let out = made(&["convert", "-f", "folded", "-e", event], "group-read.data").success();
        let counts: Vec<u64> =
            out.stdout.lines().map(|l| l.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
        assert_eq!(counts, [count], "{event}: {out:?}");
        let report = made(&["report", "-e", event], "group-read.data").success().stdout;
        assert!(report.contains(&format!("Event count (approx.): {count}\n")), "{report}");
    }
}

/// Chains of the processor's branch records do not depend on how the program was built.
#[test]
fn branch_records_need_no_frame_pointers() {
    for args in [&["report"][..], &["profile"], &["convert", "-f", "folded", "-o", "-"]] {
        let out = made(args, "lbr-callgraph.data").success();
        let said = out.stdout + &out.stderr;
        assert!(!said.contains("keeps no frame pointers"), "{args:?}: {said}");
        assert!(said.contains("branch records (LBR)"), "{args:?}: {said}");
    }
}

#[test]
fn callers_in_the_branch_stack_are_of_the_call_chain() {
    let json = made(&["script", "--json"], "lbr-callgraph.data").success().stdout;
    let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    let ips: Vec<&str> =
        first["callchain"].as_array().unwrap().iter().map(|f| f["ip"].as_str().unwrap()).collect();
    assert_eq!(ips, ["0x400200", "0x400150", "0x400110"]);
    let folded = made(&["convert", "-f", "folded", "-o", "-"], "lbr-callgraph.data").success();
    let line = folded.stdout.lines().next().unwrap();
    assert_eq!(line.split(';').count(), 4, "{line}");
}

/// One trace of a directory was left out without a word.
#[test]
fn a_broken_trace_beside_a_good_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ctf/x86_64/lttng-ust");
    let good = dir.path().join("good");
    let _ = run("cp", [Path::new("-r"), &fixture, &good]).success();
    std::fs::create_dir(dir.path().join("killed")).unwrap();
    std::fs::write(dir.path().join("killed/metadata"), "").unwrap();
    std::fs::create_dir(dir.path().join("odd")).unwrap();
    std::fs::write(dir.path().join("odd/metadata"), "nothing of CTF").unwrap();
    let path = dir.path().to_str().unwrap();
    let read = run(KYMO, ["script", "-i", path]).failure();
    assert!(!read.stdout.is_empty());
    assert!(read.stderr.contains("killed: its metadata file is empty"), "{}", read.stderr);
    assert!(read.stderr.contains("odd: its metadata file does not begin"), "{}", read.stderr);
    let alone = run(KYMO, ["script", "-i", &format!("{path}/killed")]).failure();
    assert!(alone.stderr.contains("its metadata file is empty"), "{}", alone.stderr);
}

fn made_file(name: &str) -> String {
    format!("{}/tests/fixtures/made/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// perf reads /proc/modules while a module is loaded, which has no address yet.
#[test]
fn a_module_without_an_address_has_no_samples() {
    let text = run(KYMO, ["report", "--stdio", "--sort", "dso", "-i", &made_file("module0.data")]);
    let text = text.stdout;
    let share = |dso: &str| text.lines().find(|l| l.contains(dso)).map(str::trim);
    assert!(share("[kernel.kallsyms]").is_some_and(|l| l.starts_with("80.00%")), "{text}");
    assert!(share("[nvme_common]").is_some_and(|l| l.starts_with("20.00%")), "{text}");
    assert_eq!(share("[nls_ucs2_utils]"), None, "{text}");
}

/// A trace.dat of a machine whose `long` has 4 bytes.
#[test]
fn numbers_of_a_32_bit_recording_are_whole() {
    let text = run(KYMO, ["script", "-i", &made_file("long4.dat")]).success().stdout;
    assert!(text.contains("a=3 b=62171916542 c=-5 d=1244"), "{text}");
    assert!(text.contains("now=62171916542 err=-933"), "{text}");
}

/// Two clocks of one origin, 100 and 200 s after it, as babeltrace2 merges them.
#[test]
fn clocks_with_an_origin_of_their_own_are_merged_by_their_offsets() {
    let out = run(KYMO, ["script", "-i", &made_file("ctf2-origin")]).success();
    let text = out.stdout;
    assert!(!out.stderr.contains("real time"), "{}", out.stderr);
    assert!(out.stderr.contains("counted from the origin of their clocks"), "{}", out.stderr);
    let time = |line: &str| {
        let mut words = line.split_whitespace().map(|w| w.trim_end_matches(':'));
        words.find_map(|w| w.contains('.').then(|| w.parse::<f64>().ok()).flatten())
    };
    let of = |name: &str| -> Vec<u64> {
        let own = text.lines().filter(|l| l.contains(name));
        own.map(|l| time(l).unwrap() as u64).collect()
    };
    assert_eq!(of("evA"), [101, 102, 103], "{text}");
    assert_eq!(of("evB"), [201, 202, 203], "{text}");
}

/// Traces whose clocks have different origins, or one of 1970, are not merged.
#[test]
fn clocks_with_different_origins_are_not_merged() {
    let origin = r#""origin": {"namespace": "lab", "name": "start", "uid": "x"}"#;
    for other in [
        r#""origin": {"namespace": "lab", "name": "stop", "uid": "x"}"#,
        r#""origin": "unix-epoch""#,
    ] {
        let dir = tempfile::tempdir().unwrap();
        for trace in ["A", "B"] {
            std::fs::create_dir(dir.path().join(trace)).unwrap();
            for file in ["metadata", "stream"] {
                let from = made_file(&format!("ctf2-origin/{trace}/{file}"));
                std::fs::copy(from, dir.path().join(trace).join(file)).unwrap();
            }
        }
        let metadata = dir.path().join("B/metadata");
        let text = std::fs::read_to_string(&metadata).unwrap();
        assert!(text.contains(origin), "{text}");
        std::fs::write(&metadata, text.replace(origin, other)).unwrap();
        let out = run(KYMO, ["script", "-i", dir.path().to_str().unwrap()]);
        assert_eq!((out.status, &*out.stdout), (1, ""));
        assert!(out.stderr.contains("count from different origins"), "{}", out.stderr);
        let alone = run(KYMO, ["script", "-i", dir.path().join("B").to_str().unwrap()]).success();
        assert!(alone.stdout.contains("evB"), "{}", alone.stdout);
    }
}

/// Nothing in it identifies its kernel as the running one, and a module's path shows that it is
/// not.
#[test]
fn a_recording_that_names_no_kernel_has_no_names_of_the_running_one() {
    let out = run(KYMO, ["script", "-F", "ip,sym", "-i", &made_file("pipe-otherkernel.data")]);
    let names = out.stdout.split_whitespace().filter(|w| !w.starts_with("ffffffff"));
    assert!(names.clone().count() > 0, "{}", out.stdout);
    let names: Vec<&str> = names.filter(|w| *w != "[unknown]").collect();
    assert!(names.is_empty(), "{names:?}");
    assert!(out.stderr.contains("kernel"), "{}", out.stderr);
}
