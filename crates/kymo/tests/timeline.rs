//! One timeline: events of the kernel and of a program recorded together lie in the order
//! in which they happened. This test binary is started again as the program, which emits
//! an event right before and right after a system call, thousands of times: what the
//! kernel saw of the call must lie between the two.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::{Lttng, LttngSession, Need, TracingState, require};
use kymo_tracepoint::{emit, tracepoint};
use serde_json::Value;

tracepoint! {
    /// The call comes now.
    pub bracket: before(round: u64) { fields { round: u64 = round } print "{round}" }
}
tracepoint! {
    /// The call is over.
    bracket: after(round: u64) { fields { round: u64 = round } print "{round}" }
}

const ROLE: &str = "KYMO_TEST_BRACKETS";
/// getppid(2): a call that no program makes by chance.
const GETPPID: &str = if cfg!(target_arch = "x86_64") { "id == 110" } else { "id == 173" };

/// The program: a number of calls on each of two threads.
#[test]
fn role() {
    let Some(rounds) = std::env::var(ROLE).ok().and_then(|t| t.parse::<u64>().ok()) else { return };
    // What the test harness says at the end would stand within kymo's lines.
    let null = std::fs::File::create("/dev/null").unwrap();
    // SAFETY: both descriptors are open.
    assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), 1) }, 1);
    let calls = |from: u64| {
        for round in from..from + rounds {
            emit!(before(round));
            let _ = std::os::unix::process::parent_id();
            emit!(after(round));
        }
    };
    std::thread::scope(|s| {
        s.spawn(|| calls(0));
        s.spawn(|| calls(rounds));
    });
}

struct RecordingDirectory(tempfile::TempDir);

impl RecordingDirectory {
    fn new() -> RecordingDirectory {
        RecordingDirectory(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn kymo(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.args(args).env("KYMO_UST_DIR", self.0.path().join("shared"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        let output = self.kymo(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        output
    }

    /// Traces the program with both kinds of events.
    fn trace(&self, args: &[&str], rounds: u64) -> Output {
        std::fs::create_dir_all(self.0.path().join("shared")).unwrap();
        let me = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
        let events = "raw_syscalls:sys_enter,raw_syscalls:sys_exit";
        let all = ["trace", "-e", events, "--filter", GETPPID, "-u", "bracket:*", "-m", "64M"];
        let program = ["--", &me, "--exact", "role", "--nocapture", "-q"];
        let all = [&all[..], args, &program].concat();
        let output = self.kymo(&all).env(ROLE, rounds.to_string()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output
    }

    /// A recorded session.
    fn session(&self, rounds: u64) -> String {
        let directory = self.path("session");
        let said = text(&self.trace(&["-o", &directory, "--strict"], rounds).stderr);
        assert!(said.contains("events of the kernel, 1 program)"), "{said}");
        directory
    }
}

/// Saves the state of the machine's tracing, to be restored.
fn begin() -> Option<TracingState> {
    require(&[Need::Root, Need::Tracefs]).then(TracingState::take)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Largest difference between the times of both sides, as both report it.
fn stated(said: &str) -> i128 {
    let (_, rest) = said.split_once("agree within ").unwrap_or_else(|| panic!("{said}"));
    rest.split_once(" ns").unwrap().0.parse().unwrap()
}

/// An event: thread, nanoseconds, what.
type Event = (u64, i128, String);

fn events_of(json: &str) -> Vec<Event> {
    let event = |line: &str| {
        let o: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        // The number as it is written: as a float it would lose nanoseconds.
        let time = line.split_once("\"time\":").unwrap().1.split_once(',').unwrap().0;
        let (seconds, nanos) = time.split_once('.').unwrap();
        let time =
            seconds.parse::<i128>().unwrap() * 1_000_000_000 + nanos.parse::<i128>().unwrap();
        (o["tid"].as_u64().unwrap(), time, o["event"].as_str().unwrap().to_owned())
    };
    json.lines().filter(|l| l.starts_with('{')).map(event).collect()
}

/// Asserts that each thread's events come by fours in the order in which they happened, but
/// for what the stated error allows; that order is never against the times. Says how many
/// pairs lay the wrong way round within the error.
fn check(events: &[Event], rounds: u64, error: i128) -> usize {
    assert_eq!(events.len() as u64, 2 * 4 * rounds);
    assert!(events.is_sorted_by_key(|e| e.1), "shown by time");
    let order =
        ["bracket:before", "raw_syscalls:sys_enter", "raw_syscalls:sys_exit", "bracket:after"];
    let mut tids: Vec<u64> = events.iter().map(|e| e.0).collect();
    tids.sort_unstable();
    tids.dedup();
    assert_eq!(tids.len(), 2);
    let mut swapped = 0;
    for tid in tids {
        // The n-th of each kind belong together: each kind alone is in order.
        let of = |name: &str| -> Vec<i128> {
            events.iter().filter(|e| e.0 == tid && e.2 == name).map(|e| e.1).collect()
        };
        let kinds = order.map(of);
        assert!(kinds.iter().all(|k| k.len() as u64 == rounds));
        for round in 0..rounds as usize {
            let times = kinds.each_ref().map(|k| k[round]);
            for (i, pair) in times.windows(2).enumerate() {
                swapped += usize::from(pair[0] > pair[1]);
                let what = (order[i], order[i + 1]);
                assert!(pair[0] <= pair[1] + error, "round {round} of {tid}: {what:?} {times:?}");
            }
        }
    }
    swapped
}

#[test]
fn a_system_call_lies_between_what_the_program_says_of_it() {
    let Some(_before) = begin() else { return };
    let (place, rounds) = (RecordingDirectory::new(), 5000);
    let session = place.session(rounds);
    let merged = place.run(&["script", "--json", "--strict", &session]);
    let said = text(&merged.stderr);
    let error = stated(&said);
    assert!(error < 100_000, "{said}");
    let swapped = check(&events_of(&text(&merged.stdout)), rounds, error);
    // The clocks are the same; in 30,000 pairs hardly any is closer together than they
    // were read.
    assert!(swapped <= rounds as usize / 10, "{swapped} within {error} ns");
    // The same recordings one by one, in any order.
    let (kernel, programs) = (format!("{session}/kernel/trace.dat"), format!("{session}/ust"));
    for both in [[&kernel, &programs], [&programs, &kernel]] {
        let again = place.run(&["script", "--json", both[0], both[1]]);
        assert_eq!(again.stdout, merged.stdout);
    }
}

#[test]
fn live_events_of_both_kinds_come_in_their_order() {
    let Some(_before) = begin() else { return };
    let (place, rounds) = (RecordingDirectory::new(), 2000);
    let output = place.trace(&["--json", "--strict"], rounds);
    let said = text(&output.stderr);
    check(&events_of(&text(&output.stdout)), rounds, stated(&said));
    // As text both have the kernel's columns.
    let lines = text(&place.trace(&[], 10).stdout);
    let column = |what: &str| {
        let line = lines.lines().find(|l| l.contains(what)).unwrap_or_else(|| panic!("{lines}"));
        line.find(what).unwrap()
    };
    assert_eq!(column(": bracket:after: "), column(": sys_exit: "), "{lines}");
}

#[test]
fn filters_reports_and_lists_are_of_both() {
    let Some(_before) = begin() else { return };
    let (place, rounds) = (RecordingDirectory::new(), 100);
    let session = place.session(rounds);
    let whole = text(&place.run(&["script", "-t", &session]).stdout);
    assert_eq!(whole.lines().count() as u64, 8 * rounds, "{whole}");
    let count = |args: &[&str]| {
        let out = place.run(&[&["script", "-t", &session], args].concat());
        text(&out.stdout).lines().count() as u64
    };
    assert_eq!(count(&["--event", "sys_enter,bracket:after"]), 4 * rounds);
    assert_eq!(count(&["--event", "raw_syscalls:*"]), 4 * rounds);
    assert_eq!(count(&["-c", "absent"]), 0);
    let all = place.run(&["script", "--json", &session]);
    let lines = text(&all.stdout);
    // A program that is moved again and again at one event writes it to no CPU's area.
    let of_cpus = lines.lines().filter(|l| l.contains("\"cpu\":")).count() as u64;
    assert!(of_cpus > 7 * rounds);
    let all = events_of(&lines);
    // By thread and by time, as they are counted by hand.
    let (tid, middle) = (all[0].0, all[all.len() / 2].1);
    assert_eq!(count(&["--tid", &tid.to_string()]), 4 * rounds);
    let late = all.iter().filter(|e| e.1 >= middle).count() as u64;
    let from = format!("{}.{:09},", middle / 1_000_000_000, middle % 1_000_000_000);
    assert_eq!(count(&["--time", &from]), late);
    let cpu = |c: &str| count(&["-C", c]);
    assert_eq!(cpu("0") + cpu("1-1023"), of_cpus);
    let report = |by: &str| {
        text(&place.run(&["report", "-s", by, "-t", ";", &session]).stdout).replace(' ', "")
    };
    let by_event = report("event");
    for event in
        ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit", "bracket:before", "bracket:after"]
    {
        let row = format!("25.00%;{};{event}", 2 * rounds);
        assert!(by_event.contains(&row), "{by_event}");
        let list = text(&place.run(&["list", "-i", &session]).stdout);
        let line = list.lines().find(|l| l.contains(event)).unwrap_or_else(|| panic!("{list}"));
        assert!(line.ends_with(&format!(" {} events", 2 * rounds)), "{list}");
    }
    // A field that only one side has.
    let by = report("id");
    assert!(by.contains(&format!("50.00%;{};N/A", 4 * rounds)), "{by}");
    let wrong = place.kymo(&["report", "-s", "nofield", &session]).output().unwrap();
    assert!(!wrong.status.success() && text(&wrong.stderr).contains("no event has a field"));
}

#[test]
fn lttngs_traces_of_programs_lie_beside_the_kernels_events() {
    let needs = [Need::Root, Need::Tracefs, Need::Lttng, Need::Babeltrace, Need::Gcc];
    let Some(_before) = require(&needs).then(TracingState::take) else { return };
    let place = RecordingDirectory::new();
    let (kernel, programs) = (place.path("kernel.dat"), place.0.path().join("lttng"));
    let lttng = Lttng::start();
    let mut program = Command::new(lttng.program());
    program.arg("100");
    let events = "sched:sched_process_exec,sched:sched_process_exit";
    let mut kymo = place.kymo(&["trace", "-a", "-e", events, "-o", &kernel, "--", "cat"]);
    kymo.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut kymo = kymo.spawn().unwrap();
    // The command runs when all is switched on: it echoes its input.
    std::io::Write::write_all(kymo.stdin.as_mut().unwrap(), b"\n").unwrap();
    std::io::Read::read_exact(kymo.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let session = LttngSession {
        output: &programs,
        by_process: false,
        sub_buffer: "64k",
        sub_buffers: 4,
        contexts: &["vpid", "vtid", "procname"],
        waits: false,
    };
    lttng.record(&session, program);
    drop(kymo.stdin.take());
    assert!(kymo.wait_with_output().unwrap().status.success());
    let merged = place.run(&["script", "--json", &kernel, programs.to_str().unwrap()]);
    assert!(text(&merged.stderr).contains("as their traces call it"), "{}", text(&merged.stderr));
    let all = events_of(&text(&merged.stdout));
    assert!(all.is_sorted_by_key(|e| e.1));
    let own: Vec<&Event> = all.iter().filter(|e| e.2.starts_with("kt:")).collect();
    assert_eq!(own.len(), 300);
    // The program lived before the kernel saw its end and after it saw its beginning.
    let at = |name: &str| all.iter().rfind(|e| e.0 == own[0].0 && e.2 == name).unwrap().1;
    assert!(at("sched:sched_process_exec") < own[0].1, "{own:?}");
    assert!(own[299].1 < at("sched:sched_process_exit"), "{own:?}");
}

#[test]
fn a_program_that_runs_is_recorded_and_nothing_is_left_of_what_cannot_be() {
    let Some(_before) = begin() else { return };
    let place = RecordingDirectory::new();
    let directory = place.path("running");
    let events = ["trace", "-e", "raw_syscalls:sys_enter", "--filter", GETPPID, "-u", "bracket:*"];
    std::fs::create_dir_all(place.0.path().join("shared")).unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture", "-q"])
        .env("KYMO_UST_DIR", place.0.path().join("shared"))
        .env(ROLE, u32::MAX.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = program.id().to_string();
    let listed = || text(&place.kymo(&["list", "ust"]).output().unwrap().stdout);
    let began = Instant::now();
    while !listed().contains("bracket:before") {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", listed());
        std::thread::sleep(Duration::from_millis(10));
    }
    let some = ["-p", &pid, "--timeout", "1000", "-o", &directory];
    let output = place.kymo(&[&events[..], &some].concat()).output();
    program.kill().unwrap();
    let _ = program.wait().unwrap();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json = text(&place.run(&["script", "--json", &directory]).stdout);
    for name in ["bracket:before", "bracket:after", "sys_enter"] {
        let found = json.lines().filter(|l| l.contains(name)).count();
        assert!(found > 0, "{found} of {name}");
    }
    // The process is gone.
    let directory = place.path("gone");
    let gone = ["-p", &pid, "--timeout", "100", "-o", &directory];
    let said = refusal(&place, &[&events[..], &gone].concat());
    assert!(said.contains(&format!("no such process: {pid}")), "{said}");
    assert!(!Path::new(&directory).exists());
    // So is the command; the directory was there before.
    std::fs::create_dir(&directory).unwrap();
    let none = ["-o", &directory, "--", "/no/such/command"];
    let output = place.kymo(&[&events[..], &none].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

fn refusal(place: &RecordingDirectory, args: &[&str]) -> String {
    let output = place.kymo(args).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}");
    text(&output.stderr)
}

#[test]
fn clocks_that_are_not_one_are_refused() {
    let Some(_before) = begin() else { return };
    let place = RecordingDirectory::new();
    let session = place.session(10);
    // The kernel's clock of each CPU.
    let local = place.path("local.dat");
    let event = "raw_syscalls:sys_enter";
    place.run(&["trace", "-e", event, "--clock", "local", "-o", &local, "--", "true"]);
    let said = refusal(&place, &["script", &local, &session]);
    assert!(said.contains("its clock is `local`, not `mono`"), "{said}");
    // Of another machine: its name differs in a letter.
    let kernel = std::fs::read(format!("{session}/kernel/trace.dat")).unwrap();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let place_of = |what: &[u8]| kernel.windows(what.len()).position(|w| w == what).unwrap();
    let mut other = kernel.clone();
    other[place_of(b"Linux ") + b"Linux ".len()] ^= 1;
    let named = place_of(release.trim().as_bytes()) > place_of(b"Linux ");
    let path = place.path("other.dat");
    std::fs::write(&path, other).unwrap();
    let said = refusal(&place, &["script", &path, &session]);
    assert!(named && said.contains("recorded on another machine"), "{said}");
    // Programs whose ticks were not related to the kernel's clock.
    let ust = Path::new(&session).join("ust");
    let metadata = find(&ust, "metadata");
    let whole = std::fs::read_to_string(&metadata).unwrap();
    let stated = |l: &&str| l.trim_start().starts_with("anchor_");
    let without: String = whole.lines().filter(|l| !stated(l)).map(|l| format!("{l}\n")).collect();
    assert_ne!(without.len(), whole.len());
    std::fs::write(&metadata, &without).unwrap();
    // Where programs read CLOCK_MONOTONIC itself there is nothing to relate.
    if !whole.contains("freq = 1000000000;") {
        let said = refusal(&place, &["script", &session]);
        assert!(said.contains("only related to real time"), "{said}");
        assert!(refusal(&place, &["report", &session]).contains("only related to real time"));
        // Alone they can be shown.
        place.run(&["script", ust.to_str().unwrap()]);
    }
    // Of another start of the machine: two hours later.
    let later = |line: &str| match line.split_once("_monotonic = ") {
        Some((name, n)) => {
            let n: u64 = n.trim_end_matches(';').parse().unwrap();
            format!("{name}_monotonic = {};\n", n + 7_200_000_000_000)
        }
        None => format!("{line}\n"),
    };
    std::fs::write(&metadata, whole.lines().map(later).collect::<String>()).unwrap();
    let output = place.kymo(&["script", "--strict", &session]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("do not overlap in time"), "{said}");
    for flags in [["--clock", "local"], ["-C", "0"]] {
        let all = ["trace", "-e", event, "-u", "bracket:*"];
        let said = refusal(&place, &[&all[..], &flags, &["--", "true"]].concat());
        assert!(said.contains("clock mono") || said.contains("cannot be used with"), "{said}");
    }
}

/// The one file of a name below a directory.
fn find(directory: &Path, name: &str) -> std::path::PathBuf {
    let mut below: Vec<_> =
        std::fs::read_dir(directory).unwrap().flatten().map(|e| e.path()).collect();
    below.sort();
    let here = below.iter().find(|p| p.ends_with(name));
    here.cloned().unwrap_or_else(|| find(below.iter().find(|p| p.is_dir()).unwrap(), name))
}
