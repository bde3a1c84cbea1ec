//! Results of `kymo profile` for recordings of any format, for programs (`--json`), of chosen tasks
//! and times, and of a database whose transactions wait for each other.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod kernel_ctf;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kernel_ctf::{CtfClass, CtfEvent, CtfWriter};
use kymo_testkit::{Need, Workload, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wait_programs/causes.c");
const NEEDS: [Need; 4] = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc];

fn compile(directory: &Path) -> String {
    let program = directory.join("causes").to_str().unwrap().to_owned();
    let flags = ["-fno-omit-frame-pointer", "-O1", "-g", "-pthread"];
    let args = [&flags[..], &["-o", &program, PROGRAM]].concat();
    assert!(Command::new("gcc").args(args).status().unwrap().success());
    program
}

fn page(args: &[&str]) -> Value {
    let out = run(KYMO, [&["profile", "--json"], args].concat()).success();
    serde_json::from_str(&out.stdout).unwrap()
}

fn array<'v>(page: &'v Value, name: &str) -> &'v [Value] {
    page[name].as_array().unwrap_or_else(|| panic!("{name}: {page}"))
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name}: {value}"))
}

/// Time by cause.
fn times(page: &Value) -> BTreeMap<String, u64> {
    let of = |row: &Value| (row["cause"].as_str().unwrap().to_owned(), number(row, "total_ns"));
    array(page, "times").iter().map(of).collect()
}

/// The table, the threads and the programs are the same time.
#[track_caller]
fn adds_up(page: &Value) {
    // What is uncertain is of no thread's time.
    let certain = times(page).into_iter().filter(|(cause, _)| cause != "uncertain");
    let table: u64 = certain.map(|(_, nanos)| nanos).sum();
    let whole = number(page, "on_cpu_ns") + number(page, "waiting_ns") + number(page, "blocked_ns");
    let of = |rows: &[Value]| -> u64 {
        let names = ["on_cpu_ns", "waiting_ns", "blocked_ns"];
        rows.iter().flat_map(|row| names.iter().map(|name| number(row, name))).sum()
    };
    let (threads, programs) = (of(array(page, "threads")), of(array(page, "programs")));
    for other in [table, threads, programs] {
        assert!(other.abs_diff(whole) <= whole / 100, "{other} of {whole}: {page:#}");
    }
}

/// One thread that runs and sleeps fifty times, for half a second and more.
const ALTERNATING: &str = r#"
#include <time.h>
#include <unistd.h>
int main(void) {
    for (int i = 0; i < 50; i++) {
        struct timespec begin, now;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        do clock_gettime(CLOCK_MONOTONIC, &now);
        while ((now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec - begin.tv_nsec < 5000000);
        usleep(5000);
    }
    return 0;
}
"#;

#[test]
fn time_on_and_off_the_cpu_is_the_time_of_the_clock() {
    if !require(&NEEDS) {
        return;
    }
    let work = Workload::compile("alternating", ALTERNATING);
    for how in ["fp", "dwarf"] {
        let args = ["profile", "--json", "--call-graph", how, "--", work.arg()];
        let out = run(KYMO, args).success();
        // The ledger is printed on the last line, too.
        let text = &out.stderr[..out.stderr.rfind("\n}\n").unwrap() + 2];
        let page: Value = serde_json::from_str(text).unwrap();
        adds_up(&page);
        let sum: u64 =
            ["on_cpu_ns", "waiting_ns", "blocked_ns"].iter().map(|n| number(&page, n)).sum();
        let wall = number(&page, "elapsed_ns");
        // A task that takes the CPU from kymo itself at the start or the end is reported.
        let is_told = array(&page, "ledger").iter().any(|note| note["kind"] == "unmatched");
        assert!(wall > 500_000_000, "{wall}: {page:#}");
        assert!(
            sum.abs_diff(wall) <= (wall / 100).max(5_000_000) || is_told,
            "{how}: {sum} of {wall}: {page:#}"
        );
        let times = times(&page);
        assert!(times["running"] > 0 && times["sleep"] > 240_000_000, "{times:?}");
    }
}

#[test]
fn the_object_is_the_page_and_names_the_futex() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path());
    let file = directory.path().join("mutex.data").to_str().unwrap().to_owned();
    let out = run(KYMO, ["profile", "-o", &file, "--", &program, "mutex"]).success();
    let measured: u64 = out.stdout.trim().parse().unwrap();
    let next = format!("\n    kymo lock contention --futex -- {program} mutex\n");
    assert!(out.stderr.contains(&next) && out.stderr.contains("[futex lock]"), "{}", out.stderr);
    let page = page(&["-i", &file]);
    adds_up(&page);
    // Of two threads one waits for a mutex all the time, and has next to no sample.
    let waits = array(&page, "waits");
    let longest = &waits[0];
    assert_eq!(longest["cause"], "futex", "{page:#}");
    assert_eq!(longest["stack"][0], "[futex lock]", "{page:#}");
    let waited = number(longest, "max_ns");
    assert!(waited <= measured && waited * 10 > measured * 8, "{waited} of {measured}");
    assert_eq!(longest["waker"]["comm"], "causes", "{page:#}");
    assert_eq!(longest["waker"]["context"], "task", "{page:#}");
    let threads = array(&page, "threads");
    assert_eq!(threads.len(), 2, "{page:#}");
    assert!(threads.iter().any(|t| t["waits_for"] == "blocked: futex"), "{page:#}");
    assert_eq!(array(&page, "programs").len(), 1, "{page:#}");
    // Callers of what ran and of what waited, in one tree.
    let tree = array(&page, "tree");
    let of = |name: &str| tree.iter().find(|step| step["name"] == name);
    let blocked = of("[blocked: futex]").unwrap_or_else(|| panic!("{page:#}"));
    assert!(number(blocked, "off_cpu_ns") >= waited, "{blocked}");
    let ran = of("hold_the_lock").unwrap_or_else(|| panic!("{page:#}"));
    assert!(number(ran, "on_cpu_ns") > 0, "{ran}");
    let sentence = page["in_short"].as_str().unwrap();
    assert!(sentence.starts_with("it ") || sentence.starts_with("its "), "{sentence}");
    // The tasks of a recording of one command can be chosen; its times cannot be cut.
    let other = run(KYMO, ["profile", "-i", &file, "--json", "--comm", "absent"]);
    let other: Value = serde_json::from_str(&other.success().stdout).unwrap();
    assert_eq!(array(&other, "threads").len(), 0, "{other:#}");
    let cut = run(KYMO, ["profile", "-i", &file, "--time", "0%-50%"]);
    assert!(cut.status == 1 && cut.stderr.contains("kymo offcpu record"), "{cut:?}");
}

#[test]
fn recordings_of_the_machine_are_read_whatever_their_format() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path());
    for name in ["x.data", "x.dat"] {
        let file = directory.path().join(name).to_str().unwrap().to_owned();
        let args = ["offcpu", "record", "-o", &file, "--", &program, "mutex"];
        let measured: u64 = run(KYMO, args).success().stdout.trim().parse().unwrap();
        let page = page(&["-i", &file, "--comm", "causes"]);
        adds_up(&page);
        let all = times(&page);
        // The program measures until it runs again.
        let rest = ["woken", "preempted", "new", "running"].iter().filter_map(|c| all.get(*c));
        let most = all["futex"] + rest.sum::<u64>();
        assert!(all["futex"] > 0 && most >= measured / 100 * 99, "{measured}: {page:#}");
        // The other answer says the same.
        let report = ["offcpu", "report", "--json", "-i", &file, "--comm", "causes"];
        let report: Value = serde_json::from_str(&run(KYMO, report).success().stdout).unwrap();
        for cause in array(&report, "causes") {
            let nanos = number(cause, "total_ns") + number(cause, "not_ended_ns");
            assert_eq!(all.get(cause["cause"].as_str().unwrap()), Some(&nanos), "{page:#}");
        }
        assert_eq!(number(&report["total"], "running_ns"), all["running"], "{page:#}");
        // The thread that waited is who a closer look is at.
        let waiter = array(&page, "threads").iter().max_by_key(|t| number(t, "blocked_ns"));
        let tid = number(waiter.unwrap(), "tid");
        // On a busy machine it waits for a CPU longer.
        let why = format!("kymo why -i {file} --tid {tid}");
        let is_most = all.iter().all(|(c, n)| c == "running" || c == "futex" || *n < all["futex"]);
        let said = array(&page, "next").iter().any(|n| n["command"] == why.as_str());
        assert_eq!(said, is_most, "{why}: {page:#}");
        let one = self::page(&["-i", &file, "--tid", &tid.to_string()]);
        assert_eq!(array(&one, "threads").len(), 1, "{one:#}");
        assert_eq!(number(&array(&one, "threads")[0], "tid"), tid, "{one:#}");
        // A part of the time is a part of the waits: half of the longest.
        let is_futex = |c: &&Value| c["cause"] == "futex";
        let futex = array(&report, "causes").iter().find(is_futex).unwrap();
        let (start, max) = (number(futex, "max_start_ns"), number(futex, "max_ns"));
        let seconds =
            |nanos: u64| format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
        let span = [seconds(start + max / 4), seconds(start + max / 4 * 3)].join(",");
        let half = self::page(&["-i", &file, "--tid", &tid.to_string(), "--time", &span]);
        let (elapsed, of) = (number(&half, "elapsed_ns"), times(&half)["futex"]);
        assert!(elapsed.abs_diff(max / 2) <= 8 && of == elapsed, "{of} of {elapsed}: {half:#}");
    }
    // Processes of one name are one program.
    let two = directory.path().join("two.data").to_str().unwrap().to_owned();
    let script = "sleep 0.1 & sleep 0.1 & wait; true";
    let _ = run(KYMO, ["profile", "-o", &two, "--", "sh", "-c", script]).success();
    let two = page(&["-i", &two]);
    adds_up(&two);
    let of = |name: &str| array(&two, "programs").iter().find(|p| p["comm"] == name).cloned();
    let (shell, sleeps) = (of("sh").unwrap(), of("sleep").unwrap());
    assert!(shell["processes"] == 1 && shell["pid"].is_u64(), "{two:#}");
    assert!(sleeps["processes"] == 2 && sleeps["pid"].is_null(), "{two:#}");
    assert!(number(&sleeps, "blocked_ns") >= 198_000_000, "{two:#}");
    let no_switches = directory.path().join("none.data").to_str().unwrap().to_owned();
    let args =
        ["record", "-q", "-e", "syscalls:sys_enter_execve", "-o", &no_switches, "--", "true"];
    let _ = run(KYMO, args).success();
    let none = run(KYMO, ["profile", "-i", &no_switches]);
    assert!(none.status == 1 && none.stderr.contains("neither samples nor switches"), "{none:?}");
}

/// A server with a database of its own, below a directory of its own, that ends with this.
struct Postgres {
    programs: PathBuf,
    directory: tempfile::TempDir,
    server: Child,
}

impl Postgres {
    /// The programs of the newest release that is installed.
    fn programs() -> Option<PathBuf> {
        let releases = std::fs::read_dir("/usr/lib/postgresql").ok()?;
        let releases = releases.filter_map(|r| Some(r.ok()?.path().join("bin")));
        releases.filter(|bin| bin.join("postgres").exists()).max()
    }

    fn start(programs: PathBuf) -> Postgres {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap().to_owned();
        let _ = run("chown", ["postgres", &path]).success();
        let data = format!("{path}/data");
        let initdb = programs.join("initdb");
        let args = ["postgres", "--", initdb.to_str().unwrap(), "-D", &data, "-A", "trust"];
        let _ = run("runuser", [&["-u"], &args[..]].concat()).success();
        let id = |flag| run("id", [flag, "postgres"]).success().stdout.trim().parse().unwrap();
        let server = Command::new(programs.join("postgres"))
            .args(["-D", &data, "-k", &path, "-c", "listen_addresses=", "-c", "fsync=off"])
            .uid(id("-u"))
            .gid(id("-g"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Postgres { programs, directory, server };
        let began = Instant::now();
        while !server.client("select 1").status().unwrap().success() {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }

    fn client(&self, command: &str) -> Command {
        let mut client = Command::new(self.programs.join("psql"));
        client.args(["-X", "-q", "-t", "-A", "-U", "postgres", "-h"]).arg(self.directory.path());
        client.args(["-c", command]).stderr(Stdio::null());
        client
    }

    fn ask(&self, command: &str) -> String {
        let out = self.client(command).output().unwrap();
        assert!(out.status.success(), "{command}: {out:?}");
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // An end without waiting for clients.
        let _ = run("kill", ["-INT", &self.server.id().to_string()]);
        let _ = self.server.wait();
    }
}

/// An update of a row that another transaction has changed waits for the end of that transaction.
#[test]
fn a_transaction_that_waits_for_a_row_is_said_to_wait_for_its_lock() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let Some(programs) = Postgres::programs() else {
        eprintln!("SKIPPED: no PostgreSQL (Debian: postgresql)");
        return;
    };
    let server = Postgres::start(programs);
    let _ =
        server.ask("create table rows (id int primary key, n int); insert into rows values (1, 0)");
    // Holds the row until the command to release it.
    let mut holder = server
        .client("")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut typed = holder.stdin.take().unwrap();
    typed.write_all(b"begin; update rows set n = 1 where id = 1;\n").unwrap();
    let began = Instant::now();
    let state = "select count(*) from pg_stat_activity where state = 'idle in transaction'";
    while server.ask(state) != "1" {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    // Tries again and again until it gets the row.
    let tries = "set application_name = 'waiter'; set lock_timeout = '100ms';
        do $$ declare done bool := false; begin
            while not done loop
                begin
                    update rows set n = 2 where id = 1;
                    done := true;
                exception when lock_not_available then null;
                end;
            end loop;
        end $$";
    let mut waiter = server.client(tries).spawn().unwrap();
    let waiting = "select pid from pg_stat_activity
        where application_name = 'waiter' and wait_event_type = 'Lock'";
    let pid = loop {
        let pid = server.ask(waiting);
        if !pid.is_empty() {
            break pid;
        }
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    };
    let args = ["profile", "-p", &pid, "--call-graph", "dwarf,16384", "--timeout", "1500"];
    let text = run(KYMO, args).success().stdout;
    typed.write_all(b"commit;\n").unwrap();
    drop(typed);
    assert!(holder.wait().unwrap().success() && waiter.wait().unwrap().success());
    let screen: Vec<&str> = text.lines().take(24).collect();
    let said =
        screen.iter().find(|l| l.starts_with("  In short  ")).unwrap_or_else(|| panic!("{text}"));
    // What PostgreSQL sleeps in for a lock, by the names that it exports.
    assert!(said.contains("mostly blocked on poll, select or epoll, in "), "{text}");
    assert!(said.contains("ProcSleep"), "{text}");
    assert!(text.contains("XactLockTableWait") && text.contains("heap_update"), "{text}");
}

const CLASSES: [CtfClass; 4] = [
    CtfClass {
        name: "sched_switch",
        fields: &[
            ("text", "prev_comm"),
            ("int32_t", "prev_tid"),
            ("int32_t", "prev_state"),
            ("text", "next_comm"),
            ("int32_t", "next_tid"),
        ],
    },
    CtfClass { name: "sched_waking", fields: &[("text", "comm"), ("int32_t", "tid")] },
    CtfClass { name: "syscall_entry_futex", fields: &[("uint64_t", "uaddr"), ("int32_t", "op")] },
    CtfClass { name: "syscall_exit_futex", fields: &[("int32_t", "ret")] },
];

/// A thread waits for a futex that another one wakes, as LTTng's kernel tracer records it, which
/// names no task in events of system calls: all commands report the same wait.
#[test]
fn a_wait_in_a_kernel_trace_of_lttng_is_the_same_in_all_answers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kernel");
    let [switch, waking, entry, exit] = [0usize, 1, 2, 3];
    let events: Vec<CtfEvent> = [
        (1_000, 0, switch, vec![0, 0, 0, 101, 101]),
        (1_000, 1, switch, vec![0, 0, 0, 102, 102]),
        (2_000, 0, entry, vec![0x7000, 128]),
        (2_500, 0, switch, vec![101, 101, 1, 0, 0]),
        (10_000, 1, entry, vec![0x7000, 129]),
        (10_100, 1, waking, vec![101, 101]),
        (10_500, 1, exit, vec![1]),
        (11_000, 0, switch, vec![0, 0, 0, 101, 101]),
        (11_200, 0, exit, vec![0]),
        (20_000, 0, switch, vec![101, 101, 1, 0, 0]),
        (20_000, 1, switch, vec![102, 102, 1, 0, 0]),
    ]
    .into_iter()
    .map(|(time, cpu, class, values)| CtfEvent { time, cpu, class, values })
    .collect();
    CtfWriter { classes: &CLASSES, events: &events, packet: 100, without: &|_, _| false }
        .write(&path);
    let file = path.to_str().unwrap();
    let json = |args: &[&str]| -> Value {
        let out = run(KYMO, [args, &["--json", "-i", file]].concat()).success();
        serde_json::from_str(&out.stdout).unwrap()
    };
    let page = json(&["profile", "--tid", "101"]);
    adds_up(&page);
    assert_eq!(number(&page, "on_cpu_ns"), 1_500 + 9_000, "{page:#}");
    assert_eq!((number(&page, "blocked_ns"), number(&page, "waiting_ns")), (7_600, 900), "{page}");
    let off = json(&["offcpu", "report", "--tid", "101"]);
    assert_eq!(number(&off["total"], "blocked_ns"), 7_600, "{off:#}");
    let delays = json(&["sched", "latency", "--tid", "101"]);
    assert_eq!(number(&delays["tasks"][0]["delay"], "max_ns"), 900, "{delays:#}");
    let locks = json(&["lock", "contention", "--futex"]);
    let futex = &array(&locks, "futexes")[0];
    assert_eq!(futex["address"], "0x7000", "{locks:#}");
    assert_eq!((number(futex, "count"), number(futex, "total_ns")), (1, 9_200), "{locks:#}");
    assert_eq!(number(futex, "wakes"), 1, "{locks:#}");
    let calls = json(&["syscalls", "report", "--tid", "101"]);
    assert_eq!(number(&calls["calls"][0], "total_ns"), 9_200, "{calls:#}");
    let why = json(&["why", "--tid", "101"]);
    // No event says whether a wake-up is that of an interrupt, so the path goes to no other task.
    let blocked = array(&why, "culprits").iter().find(|c| c["kind"] == "blocked").unwrap();
    assert_eq!((number(blocked, "total_ns"), &blocked["ended_by"]), (7_600, &"unseen".into()));
}

/// Samples alone do not say for how long a task ran, nor that it waited.
#[test]
fn a_recording_without_switches_has_no_times_of_tasks() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/perf-data/x86_64/fp.data");
    let text = run(KYMO, ["profile", "-i", path]).success().stdout;
    let time = text.lines().find(|line| line.starts_with("  Time ")).unwrap();
    let elapsed = page(&["-i", path])["elapsed_ns"].as_u64().unwrap();
    assert!(elapsed > 1_000_000, "{elapsed}");
    assert!(
        time.contains(" from the first to the last event; ") && !time.contains(" 0 us"),
        "{time}"
    );
    assert!(!text.contains("In short"), "{text}");
}
