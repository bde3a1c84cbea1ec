//! `kymo count` on this machine: known numbers, the same of perf and bpftrace, latencies,
//! intervals, refusals, and nothing that stays attached.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use kymo_kernel::bpf::{BpfObject, object_ids};
use kymo_testkit::{
    Need, Outcome, TracingState, Workload, ledger_of, newest_peers, page_with_ledger, peer, perf,
    require, run,
};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

fn begin() -> bool {
    require(&[Need::Root, Need::Tracefs])
}

fn count(args: &[&str]) -> Outcome {
    run(KYMO, [&["count"], args].concat())
}

/// The object of `--json`.
fn counted(args: &[&str]) -> Value {
    let o = count(&[&["--json"], args].concat()).success();
    page_with_ledger(&o.stdout, &o.stderr)
}

/// Fifty writes of a thousand bytes.
const WRITES: [&str; 6] = ["--", "dd", "if=/dev/zero", "of=/dev/null", "bs=1000", "count=50"];

#[test]
fn calls_of_a_command_and_its_children_are_counted_one_by_one() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let event = ["-e", "syscalls:sys_enter_getppid"];
    let page = counted(&[&event[..], &["--", work.arg(), "700"]].concat());
    assert_eq!(page["rows"], serde_json::json!([{"key": {}, "count": 700}]), "{page}");
    assert_eq!(page["ledger"], serde_json::json!([]));
    let script = format!("{0} 300; {0} 400", work.arg());
    let by = ["--by", "comm,pid", "--top", "1", "--filter", "comm == syscalls"];
    let page = counted(&[&event[..], &by, &["--", "sh", "-c", &script]].concat());
    assert_eq!(page["rows"][0]["key"]["comm"], "syscalls", "{page}");
    assert_eq!(page["rows"][0]["count"], 400, "{page}");
    assert_eq!((&page["left_out"], &page["left_out_sum"]), (&1.into(), &300.into()), "{page}");
    let o = count(&[&event[..], &["--by", "comm", "--", work.arg(), "1700"]].concat()).success();
    assert!(o.stdout.starts_with("1,700 events in "), "{}", o.stdout);
    assert!(o.stdout.contains("; 1 entry by comm, first syscalls.\n\n"), "{}", o.stdout);
    assert!(o.stdout.contains("\n  1,700  100.0 %  "), "{}", o.stdout);
}

#[test]
fn a_command_has_as_many_events_as_perf_counts() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let script = format!("{0} 30; {0} 40", work.arg());
    let command = ["--", "sh", "-c", &script];
    let theirs = perf([&["stat", "-x,", "-e", "raw_syscalls:sys_enter"][..], &command].concat());
    let theirs = theirs.success().stderr;
    let theirs: u64 = theirs.split(',').next().unwrap().trim().parse().unwrap();
    let page = counted(&[&["-e", "raw_syscalls:sys_enter"][..], &command].concat());
    assert_eq!(page["rows"][0]["count"], theirs, "{page}");
}

/// From its execution on, which gives a task its name, to its exit.
#[test]
fn the_first_and_the_last_events_of_tasks_are_counted() {
    if !begin() {
        return;
    }
    let script = "for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done; exit 0";
    let command = ["--", "sh", "-c", script];
    for (event, least) in [
        ("sched:sched_process_exit", 10),
        ("task:task_rename", 10),
        ("sched:sched_process_exec", 10),
        ("sched:sched_process_fork", 9),
    ] {
        let theirs = perf([&["stat", "-x,", "-e", event][..], &command].concat());
        let theirs = theirs.success().stderr;
        let theirs: u64 = theirs.split(',').next().unwrap().trim().parse().unwrap();
        assert_eq!(theirs, least, "{event}");
        let page = counted(&[&["-e", event][..], &command].concat());
        assert_eq!(page["rows"][0]["count"], theirs, "{event}: {page}");
        let both = format!("{event},kmem:mm_page_free");
        let page = counted(&[&["-e", &both][..], &command].concat());
        let rows = page["rows"].as_array().unwrap();
        let of = |event: &str| rows.iter().find(|row| row["key"]["event"] == event).unwrap();
        assert_eq!(of(event)["count"], theirs, "{event}: {page}");
    }
}

#[test]
fn what_flags_become_is_a_program_of_bpftrace() {
    if !begin() || !require(&[Need::NewestPeers]) || newest_peers().is_none() {
        return;
    }
    let work = Workload::syscalls();
    let flags = ["-e", "raw_syscalls:sys_enter", "--filter", "id == 110", "--by", "comm"];
    let command = ["--", work.arg(), "250"];
    let text = count(&[&flags[..], &["--show-program"], &command].concat()).success().stdout;
    let line = format!("{} 250", work.arg());
    for o in [
        peer("bpftrace").run(["-e", &text, "-c", &line]),
        run(KYMO, ["run", "-e", &text, "-c", &line]),
    ] {
        let o = o.success();
        assert!(o.stdout.contains("@[syscalls]: 250\n"), "{}\n{}", o.stdout, o.stderr);
    }
    let page = counted(&[&flags[..], &command].concat());
    assert_eq!(page["rows"][0]["count"], 250, "{page}");
}

#[test]
fn fields_are_measured_exactly() {
    if !begin() {
        return;
    }
    let event = ["-e", "syscalls:sys_enter_write", "--filter", "count == 1000"];
    let check = |measure: &[&str], name: &str, expected: Value| {
        let page = counted(&[&event[..], measure, &WRITES].concat());
        assert_eq!(page["rows"][0][name], expected, "{measure:?}: {page}");
    };
    check(&["--sum", "count"], "sum", 50_000.into());
    check(&["--avg", "count"], "average", 1000.into());
    check(&["--min", "count"], "min", 1000.into());
    check(&["--max", "count"], "max", 1000.into());
    check(&["--stats", "count"], "count", 50.into());
    let bucket = |from: u64, to: u64| serde_json::json!([{"from": from, "to": to, "count": 50}]);
    check(&["--hist", "count"], "buckets", bucket(512, 1024));
    check(&["--lhist", "count:0:2000:300"], "buckets", bucket(900, 1200));
    let o = count(&[&event[..], &["--hist", "count"], &WRITES].concat()).success();
    assert!(o.stdout.starts_with("50 values of count in "), "{}", o.stdout);
    assert!(o.stdout.contains("512 -       1024 |        50 █"), "{}", o.stdout);
}

/// The number of the task that a record has in front of its fields is its thread's.
#[test]
fn tasks_of_records_are_threads() {
    if !begin() {
        return;
    }
    let by = ["-e", "syscalls:sys_enter_write", "--by", "common_pid,tid"];
    let page = counted(&[&by[..], &WRITES].concat());
    let rows = page["rows"].as_array().unwrap();
    assert!(!rows.is_empty(), "{page}");
    for row in rows {
        assert_eq!(row["common_pid"], row["tid"], "{page}");
    }
    let chosen = ["--filter", "common_pid > 0 && count == 1000"];
    let page = counted(&[&["-e", "syscalls:sys_enter_write"], &chosen[..], &WRITES].concat());
    assert_eq!(page["rows"][0]["count"], 50, "{page}");
}

/// Times of short functions are largely those of the probes; of long ones they are not.
#[test]
fn times_of_short_functions_contain_their_probes() {
    if !require(&[Need::Root, Need::Tracefs, Need::Tool("gcc")]) {
        return;
    }
    let _state = TracingState::take();
    let work = Workload::compile(
        "short",
        "#include <unistd.h>
         __attribute__((noinline)) void brief(int n) { asm volatile(\"\" :: \"r\"(n)); }
         __attribute__((noinline)) void nap(int n) { usleep(n); asm volatile(\"\"); }
         int main() {
             for (int i = 0; i < 200; i++) brief(i);
             for (int i = 0; i < 5; i++) nap(2000);
         }",
    );
    let said = "the times contain the cost of the probes";
    for (function, calls, is_said) in [("brief", 200, true), ("nap", 5, false)] {
        let file = work.arg();
        let latency = format!("uprobe:{file}:{function} -> uretprobe:{file}:{function} by tid");
        for more in [&["--strict"][..], &["--strict", "--interval", "60000"]] {
            let o = count(&[more, &["--latency", &latency, "--", file]].concat()).success();
            let is_counted = o.stdout.starts_with(&format!("{calls} latencies of "));
            assert!(is_counted || more.len() > 1, "{}", o.stdout);
            assert_eq!(o.stderr.contains(said), is_said, "{function} {more:?}: {}", o.stderr);
        }
    }
}

#[test]
fn latencies_have_pairs_and_the_slowest() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let latency = "raw_syscalls:sys_enter -> raw_syscalls:sys_exit by tid";
    let flags = ["--latency", latency, "--filter", "args.id == 110", "--", work.arg(), "600"];
    let page = counted(&flags);
    let row = &page["rows"][0];
    assert_eq!(row["count"], 600, "{page}");
    let number = |value: &Value| value.as_u64().unwrap();
    let order = ["p50_ns", "p90_ns", "p99_ns", "max_ns"].map(|name| number(&row[name]));
    assert!(order.is_sorted() && order[0] > 0, "{order:?}");
    let slowest = page["slowest"].as_array().unwrap();
    assert_eq!(number(&slowest[0]["latency_ns"]), order[3], "{page}");
    assert_eq!(slowest.len(), 5, "{page}");
    assert_eq!((&page["not_ended"], &page["begun_again"]), (&0.into(), &0.into()));
    let o = count(&[&["--by", "comm"], &flags[..]].concat()).success();
    assert!(o.stdout.starts_with(&format!("600 latencies of {latency} in ")), "{}", o.stdout);
    assert!(o.stdout.contains("  syscalls\n\nThe slowest, "), "{}", o.stdout);
}

#[test]
fn intervals_add_up_to_the_whole() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let event = ["-e", "syscalls:sys_enter_getppid", "--by", "comm", "-i", "20", "--json"];
    let o = count(&[&event[..], &["--", work.arg(), "2000000"]].concat()).success();
    let lines: Vec<Value> =
        o.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counts = lines.iter().filter_map(|line| line["rows"][0]["count"].as_u64());
    assert_eq!(counts.sum::<u64>(), 2_000_000, "{}", o.stdout);
    assert!(lines.len() > 3, "{}", o.stdout);
    assert_eq!(ledger_of(&o.stderr), serde_json::json!([]));
}

#[test]
fn what_does_not_fit_is_said_exactly() {
    if !begin() {
        return;
    }
    // More keys than a map has entries: each getppid has a time of its own.
    let work = Workload::syscalls();
    let event = ["-e", "syscalls:sys_enter_getppid", "--by", "nsecs", "--top", "0"];
    let page = counted(&[&event[..], &["--", work.arg(), "9000"]].concat());
    let rows = page["rows"].as_array().unwrap();
    let kept: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
    let fact = page["ledger"][0]["fact"].as_str().unwrap();
    let lost = fact.split_once(" updates of @ did not fit").unwrap().0;
    let lost: u64 = lost.rsplit(' ').next().unwrap().parse().unwrap();
    assert_eq!((rows.len(), kept + lost), (4096, 9000), "{fact}");
    let status = [&["--strict"], &event[..], &["--", work.arg(), "9000"]].concat();
    let _ = count(&status).expect_status(3);
}

#[test]
fn the_status_of_the_command_is_passed_on() {
    if !begin() {
        return;
    }
    let ways: [&[&str]; 3] =
        [&["-e", "raw_syscalls:sys_enter"], &["-e", "raw_syscalls:sys_enter", "--no-bpf"], &["-u"]];
    for way in ways {
        let run = |script: &str| count(&[way, &["--", "sh", "-c", script]].concat());
        let _ = run("exit 0").success();
        let _ = run("exit 7").expect_status(7);
        // As a shell has it: 128 and the signal's number.
        let _ = run("kill -KILL $$").expect_status(137);
    }
}

#[test]
fn mistakes_are_refused_and_nothing_stays() {
    if !begin() {
        return;
    }
    let refused = |args: &[&str], expected: &str| {
        let o = count(args).failure();
        assert!(o.stderr.contains(expected), "{args:?}: {}", o.stderr);
    };
    refused(&[], "-e SYSTEM:NAME");
    refused(&["-e", "nonsense"], "not an event");
    refused(&["-e", "sched:no_such"], "sched:no_such");
    refused(&["-e", "sched:sched_switch", "--by", "no_field"], "has no field \"no_field\"");
    let of_the_record = "does not let programs read the field \"common_flags\"";
    refused(&["-e", "sched:sched_switch", "--by", "common_flags"], of_the_record);
    refused(&["-e", "sched:sched_switch", "--hist", "x:y"], "not a field");
    refused(&["-e", "sched:sched_switch", "--lhist", "prev_prio:0:10"], "FIELD:FROM:TO:STEP");
    refused(&["--latency", "a:b -> c:d"], "A -> B by KEY");
    refused(&["-e", "sched:sched_switch", "-p", "4194303"], "4194303");
    let ids = || (object_ids(BpfObject::Program).unwrap(), object_ids(BpfObject::Link).unwrap());
    let before = ids();
    let mut child = std::process::Command::new(KYMO)
        .args(["count", "-e", "sched:sched_switch", "-i", "10", "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
    let during = ids();
    let new = |now: &[u32], before: &[u32]| -> Vec<u32> {
        now.iter().copied().filter(|id| !before.contains(id)).collect()
    };
    let own = (new(&during.0, &before.0), new(&during.1, &before.1));
    assert!(!own.0.is_empty() && !own.1.is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.starts_with('{'), "{line}");
    let is_gone = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        let now = ids();
        !own.0.iter().any(|id| now.0.contains(id)) && !own.1.iter().any(|id| now.1.contains(id))
    });
    assert!(is_gone, "programs or links {own:?} of a killed kymo are still there");
}

#[test]
fn costs_are_reported_before_and_limited() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let event = ["count", "-e", "raw_syscalls:sys_enter"];
    let o = run(KYMO, [&event[..], &["--preflight", "--", work.arg(), "10"]].concat()).success();
    assert!(o.stderr.contains("NS/HIT") && o.stderr.contains("% of a CPU"), "{}", o.stderr);
    let budget = ["--budget", "0.000001", "--", work.arg(), "3000000"];
    let o = run(KYMO, [&event[..], &budget].concat()).success();
    assert!(o.stderr.contains("raise --budget"), "{}", o.stderr);
    let o = run(KYMO, [&event[..], &["--no-bpf", "--preflight", "--", "true"]].concat());
    assert!(o.stderr.contains("run in the kernel"), "{}", o.stderr);
}

#[test]
fn a_count_ends_when_its_time_is_over() {
    if !begin() {
        return;
    }
    let mut child =
        std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let pid = child.id().to_string();
    let args = ["-e", "cpu-clock", "--by", "pid", "-p", &pid, "--timeout"];
    let began = std::time::Instant::now();
    for how in [&["300"][..], &["300", "--no-bpf"]] {
        let page = counted(&[&args[..], how].concat());
        assert_eq!(page["rows"][0]["key"]["pid"].to_string(), pid, "{page}");
        assert_eq!(page["rows"].as_array().unwrap().len(), 1, "{page}");
    }
    assert!(began.elapsed() >= std::time::Duration::from_millis(600));
    child.kill().unwrap();
    child.wait().unwrap();
    let refused = count(&["-e", "cpu-clock", "--timeout", "9", "--", "true"]).expect_status(2);
    assert!(refused.stderr.contains("--timeout"), "{}", refused.stderr);
}

/// Reads that fail are counted, without the line of a program that is not shown.
#[test]
fn failed_reads_name_no_line_of_a_program_that_is_not_shown() {
    if !begin() || !require(&[Need::Gcc]) {
        return;
    }
    const SOURCE: &str = "#include <fcntl.h>\n\
        int main(void) { for (int i = 0; i < 3; i++) open((char *)8, O_RDONLY); }\n";
    let work = Workload::compile("opens_nothing", SOURCE);
    let flags = ["-e", "syscalls:sys_enter_openat", "--filter", "filename == 8"];
    let by = ["--by", "str(args.filename)", "--", work.arg()];
    let o = count(&[&flags[..], &by].concat()).success();
    let note = o.stderr.lines().chain(o.stdout.lines()).find(|l| l.contains("of memory failed"));
    assert!(note.is_some_and(|l| l.trim().starts_with("unread: 3 reads")), "{o:?}");
}

/// A key that points to text is that text, as `trace` shows it; other pointers and buffers, which
/// have no NUL, are addresses.
#[test]
fn keys_that_point_to_text_are_text() {
    if !begin() || !require(&[Need::Gcc]) {
        return;
    }
    const SOURCE: &str = "#include <fcntl.h>\n#include <unistd.h>\n\
        char first[] = \"kymo-key-a\", second[] = \"kymo-key-b\";\n\
        __attribute__((noinline)) int handle(const char *user, int *n) { return open(user, *n); }\n\
        int main(void) { int n = O_RDONLY; first[0] = second[0] = 'k'; write(-1, first, 3);\n\
        for (int i = 0; i < 5; i++) handle(i % 3 ? first : second, &n); return 0; }\n";
    let work = Workload::compile("opens_by_text", SOURCE);
    let keys = |event: &str, field: &str| -> Vec<(String, u64)> {
        let page = counted(&["-e", event, "--by", field, "--", work.arg()]);
        let row = |row: &serde_json::Value| {
            let key = &row["key"][field];
            (key.as_str().map_or(key.to_string(), str::to_owned), row["count"].as_u64().unwrap())
        };
        page["rows"].as_array().unwrap().iter().map(row).collect()
    };
    let handle = format!("uprobe:{}:handle", work.arg());
    for (event, field) in [("syscalls:sys_enter_openat", "filename"), (&handle, "user")] {
        let mut keys = keys(event, field);
        keys.retain(|(key, _)| key.contains("kymo-key"));
        keys.sort();
        assert_eq!(keys, [("kymo-key-a".into(), 3), ("kymo-key-b".into(), 2)], "{event}");
    }
    for (event, field) in [("syscalls:sys_enter_write", "buf"), (&handle, "n")] {
        let keys = keys(event, field);
        assert!(keys.len() == 1 && !keys[0].0.contains("kymo"), "{event}: {keys:?}");
    }
}
