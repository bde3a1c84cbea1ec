//! `kymo session`: sessions outlive the command, snapshots are taken while tracing continues, and a
//! condition takes them when something is too slow, and only then.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use kymo_testkit::{Need, Outcome, TracingState, Workload, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 4] = [Need::Root, Need::Tracefs, Need::TraceCmd, Need::Gcc];
const GETPPID: &str = "syscalls:sys_enter_getppid";

/// Naps of a millisecond as often as the first argument says, then one as long as the second says,
/// in milliseconds, then short ones again: until a file exists, if a third argument names one and
/// for a minute at most, and then the same number as before. `getpriority` calls surround the long
/// one, so that it can be found.
const NAPS: &str = r#"
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
static void nap(long ms) {
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
    nanosleep(&t, 0);
}
int main(int argc, char **argv) {
    for (int i = 0; i < atoi(argv[1]); i++) nap(1);
    getpriority(PRIO_PROCESS, 0);
    nap(atoi(argv[2]));
    getpriority(PRIO_PROCESS, 0);
    for (int i = 0; argc > 3 && i < 60000 && access(argv[3], F_OK); i++) nap(1);
    for (int i = 0; i < atoi(argv[1]); i++) nap(1);
    return 0;
}
"#;

#[track_caller]
fn session(args: &[&str]) -> Outcome {
    run(KYMO, [&["session"], args].concat())
}

#[track_caller]
fn report(path: &str) -> Vec<String> {
    let out = run("trace-cmd", ["report", "-i", path]).success();
    // What a full ring lost is marked by lines of their own.
    let head = |l: &str| l.starts_with("cpus=") || l.contains("EVENTS DROPPED");
    out.stdout.lines().filter(|l| !head(l)).map(str::to_owned).collect()
}

/// A session with a name of its own, destroyed in any case.
struct Named(String);

impl Named {
    fn create(what: &str, args: &[&str]) -> Named {
        let name = format!("test-{what}-{}", std::process::id());
        let _ = session(&[&["create", &name], args].concat()).success();
        Named(name)
    }

    fn name(&self) -> &str {
        &self.0
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = session(&["destroy", &self.0]);
    }
}

fn beside(args: &[&str]) -> Child {
    let mut command = Command::new(KYMO);
    command.arg("session").args(args).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a child says that it watches: its instance may trace before the event is on.
#[allow(clippy::unbuffered_bytes, reason = "what follows is read later")]
fn watching(child: &mut Child) {
    let said = child.stderr.as_mut().unwrap();
    let line = said.bytes().map(Result::unwrap).take_while(|b| *b != b'\n').collect();
    let line = String::from_utf8(line).unwrap();
    assert!(line.contains("watching in user space"), "{line}");
}

fn files(dir: &Path, with: &str) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path().to_str().unwrap().to_owned())
        .filter(|n| n.contains(with))
        .collect();
    names.sort();
    names
}

#[test]
fn a_session_outlives_its_command_and_ends_when_destroyed() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    let s = Named::create("life", &["-e", GETPPID, "--buffer-size", "1M"]);
    let name = s.name();
    let other = Named::create("other", &[]);
    let again = session(&["create", name]).failure().stderr;
    assert!(again.contains("there is a session"), "{again}");
    let empty = session(&["start", other.name()]).failure().stderr;
    assert!(empty.contains("has no events"), "{empty}");
    // Nothing before the start.
    let _ = run(w.program(), ["10"]).success();
    let _ = session(&["start", name]).success();
    let list = session(&["list"]).success().stdout;
    assert!(list.contains(&format!("{name}: tracing, 1 event on, ")), "{list}");
    assert!(list.contains(&format!("{}: stopped, 0 events on, ", other.name())), "{list}");
    let _ = run(w.program(), ["500"]).success();
    let _ = session(&[
        "enable",
        name,
        "-e",
        "sched:sched_process_exit",
        "--filter",
        "comm == \"syscalls\"",
    ])
    .success();
    let _ = run(w.program(), ["1"]).success();
    let _ = session(&["stop", name]).success();
    let _ = run(w.program(), ["10"]).success();
    let show = session(&["show", name]).success().stdout;
    assert!(show.contains("sched:sched_process_exit if comm == \"syscalls\""), "{show}");
    assert!(show.contains("1024 KiB") || show.contains("1027 KiB"), "{show}");
    let dat = w.file("s.dat");
    let said = session(&["snapshot", name, "-o", &dat]).success().stderr;
    assert!(said.contains("taken by the kernel") || said.contains("read from the rings"), "{said}");
    let lines = report(&dat);
    let of =
        |what: &str| lines.iter().filter(|l| l.contains("syscalls-") && l.contains(what)).count();
    assert_eq!((of("sys_enter_getppid"), of("sched_process_exit")), (501, 1));
    let _ = session(&["destroy", name]).success();
    assert!(session(&["show", name]).failure().stderr.contains("there is no session"));
    assert!(!session(&["list"]).success().stdout.contains(name));
}

#[test]
fn rings_that_are_full_overwrite_or_discard() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    for (mode, newest) in [("overwrite", true), ("discard", false)] {
        let args = ["-e", "raw_syscalls:sys_enter", "--mode", mode, "--buffer-size", "64K"];
        let s = Named::create(mode, &args);
        let _ = session(&[
            "enable",
            s.name(),
            "-e",
            "raw_syscalls:sys_enter",
            "--filter",
            "id == 110 || id == 140",
        ])
        .success();
        let _ = session(&["start", s.name()]).success();
        // getppid many times, then the mark; and the mark before.
        let naps = Workload::compile("naps", NAPS);
        let _ = run(naps.program(), ["0", "0"]).success();
        // In the ring of one CPU.
        let _ = run("taskset", ["-c", "0", w.arg(), "100000"]).success();
        let _ = run(naps.program(), ["0", "0"]).success();
        let _ = session(&["stop", s.name()]).success();
        let dat = w.file(&format!("{mode}.dat"));
        let taken = session(&["snapshot", s.name(), "-o", &dat]).success().stderr;
        let lines = report(&dat);
        // The marks run on any CPU: the one with the flood decides.
        let flood: Vec<&String> = lines.iter().filter(|l| l.contains("NR 110 (")).collect();
        assert!((500..10_000).contains(&flood.len()), "{mode}: {}", flood.len());
        let show = session(&["show", s.name(), "--json"]).success().stdout;
        let lost = if newest { "overwritten" } else { "dropped" };
        let show: serde_json::Value = serde_json::from_str(&show).unwrap();
        let lost: u64 =
            show["cpus"].as_array().unwrap().iter().map(|c| c[lost].as_u64().unwrap()).sum();
        assert!(lost > 90_000, "{show}");
        // What a flight recorder is asked to do is no loss.
        let said = run(KYMO, ["script", "-i", &dat]).success().stderr;
        assert_eq!(said.contains("overwritten: events before the first"), newest, "{said}");
        assert!(!newest || !said.contains("lost: "), "{said}");
        let stated = format!("lost: {lost} events found the ring full");
        assert_eq!(said.contains(&stated), !newest, "{said}");
        let stated = format!("lost: {lost} events found the rings full");
        assert_eq!(taken.contains(&stated), !newest, "{taken}");
    }
}

/// Calls sysfs(2), which no other program uses, the number of times in the argument.
const SYSFS: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
    for (int i = 0; i < atoi(argv[1]); i++) syscall(SYS_sysfs, 3);
    return argc != 2;
}
"#;

#[test]
fn what_a_full_ring_dropped_is_stated_once() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::compile("sysfs", SYSFS);
    let event = ["-e", "raw_syscalls:sys_enter", "--filter", "id == 139"];
    let ring = ["--mode", "discard", "--buffer-size", "64K"];
    let s = Named::create("once", &[&event[..], &ring].concat());
    let _ = session(&["start", s.name()]).success();
    let of_text = |text: &str| -> u64 {
        let line = text.lines().find_map(|l| l.trim_start().strip_prefix("lost: "));
        line.map_or(0, |l| l.split(' ').next().unwrap().parse().unwrap())
    };
    for (round, calls) in [30_000, 10, 20_000].into_iter().enumerate() {
        let _ = run("taskset", ["-c", "0", w.arg(), &calls.to_string()]).success();
        let dat = w.file(&format!("{round}.dat"));
        let said = session(&["snapshot", s.name(), "-o", &dat]).success().stderr;
        let held = report(&dat).iter().filter(|l| l.contains("NR 139 (")).count() as u64;
        let stated = of_text(&said);
        assert_eq!(held + stated, calls, "{said}");
        assert_eq!(stated > 0, calls > 10, "{said}");
        let read = run(KYMO, ["script", "-i", &dat]).success().stderr;
        assert_eq!(of_text(&read), stated, "{read}");
    }
}

#[test]
fn rotations_together_hold_every_event_once() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    let args = ["-e", GETPPID, "--mode", "discard", "--buffer-size", "4M"];
    let s = Named::create("rotate", &args);
    let _ = session(&["start", s.name()]).success();
    let mut load = Command::new(w.program()).arg("60000").spawn().unwrap();
    let pid = format!("syscalls-{} ", load.id());
    let dat = w.file("rot.dat");
    for _ in 0..4 {
        let _ = session(&["rotate", s.name(), "-o", &dat]).success();
    }
    assert!(load.wait().unwrap().success());
    let _ = session(&["rotate", s.name(), "-o", &dat]).success();
    let files = files(w.dir(), "rot.dat.");
    assert_eq!(files.len(), 5);
    let total: usize = files
        .iter()
        .flat_map(|f| report(f))
        .filter(|l| l.contains(&pid) && l.contains("sys_enter_getppid"))
        .count();
    assert_eq!(total, 60_000);
}

#[test]
fn the_flight_recorder_catches_a_stall_with_what_was_before_it_and_nothing_else() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let naps = Workload::compile("naps", NAPS);
    let s = Named::create("stall", &["--buffer-size", "8M"]);
    // Other tests keep the machine busy: two seconds of everything are too much.
    for (events, filter) in [
        ("raw_syscalls", "id == 230 || id == 140"),
        ("sched:sched_switch", "prev_comm == \"naps\" || next_comm == \"naps\""),
    ] {
        let _ = session(&["enable", s.name(), "-e", events, "--filter", filter]).success();
    }
    let _ = session(&["start", s.name()]).success();
    let dat = naps.file("stall.dat");
    // The child of the test is identified by its name, which a filter can see: other programs sleep
    // long too.
    let condition = "raw_syscalls:sys_enter if id == 230 && comm == \"naps\" -> \
                     raw_syscalls:sys_exit if id == 230 && comm == \"naps\" > 1500ms by pid";
    let mut watcher = beside(&["snapshot", s.name(), "-o", &dat, "--on-latency", condition]);
    watching(&mut watcher);
    // Two hundred short naps before the stall; some after it, until the snapshot is there,
    // and two hundred more.
    let there = naps.file("there");
    let mut child = Command::new(naps.program()).args(["200", "2000", &there]).spawn().unwrap();
    let began = std::time::Instant::now();
    // It is taken immediately, and not when the program ends, which waits for it.
    while files(naps.dir(), "stall.dat").is_empty() {
        assert!(began.elapsed().as_secs() < 50, "no snapshot");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    std::fs::write(&there, "").unwrap();
    assert!(child.wait().unwrap().success());
    // The same without a stall: no snapshot.
    let _ = run(naps.program(), ["200", "20"]).success();
    let _ = run("kill", ["-INT", &watcher.id().to_string()]).success();
    let out = watcher.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{}: {said}", out.status);
    assert!(said.contains(&format!("key {}: ", child.id())), "{said}");
    let files = files(naps.dir(), "stall.dat");
    assert_eq!(files.len(), 1, "{said}");
    let lines = report(&files[0]);
    let own: Vec<&String> =
        lines.iter().filter(|l| l.contains(&format!("naps-{} ", child.id()))).collect();
    let enters =
        |nr: &str| own.iter().filter(|l| l.contains("sys_enter") && l.contains(nr)).count();
    // Everything before the stall and its end are there.
    assert!(enters("NR 230 ") >= 201, "{}", enters("NR 230 "));
    assert!(enters("NR 140 ") >= 1);
    let time = |l: &str| -> f64 {
        let after = l.split("] ").nth(1).unwrap_or_else(|| panic!("{l}"));
        after.trim().split(':').next().unwrap().parse().unwrap()
    };
    let longest = own
        .windows(2)
        .filter(|w| w[0].contains("sched_switch") || w[0].contains("NR 230 ("))
        .map(|w| time(w[1]) - time(w[0]))
        .fold(0.0, f64::max);
    assert!((1.9..30.0).contains(&longest), "{longest}");
}

#[test]
fn a_snapshot_of_a_latency_comes_with_its_explanation() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let naps = Workload::compile("whynaps", NAPS);
    let s = Named::create("why", &["--buffer-size", "16M"]);
    for event in ["sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new"] {
        let _ = session(&["enable", s.name(), "-e", event]).success();
    }
    let _ = session(&["start", s.name()]).success();
    let dat = naps.file("why.dat");
    let condition = "raw_syscalls:sys_enter if id == 230 && comm == \"whynaps\" -> \
                     raw_syscalls:sys_exit if id == 230 && comm == \"whynaps\" > 1500ms by tid";
    let args = ["snapshot", s.name(), "-o", &dat, "-n", "1", "--why", "--on-latency", condition];
    let mut watcher = beside(&args);
    watching(&mut watcher);
    let there = naps.file("there");
    std::fs::write(&there, "").unwrap();
    let mut child = Command::new(naps.program()).args(["2", "2000", &there]).spawn().unwrap();
    assert!(child.wait().unwrap().success());
    let out = watcher.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{}: {said}", out.status);
    let files = files(naps.dir(), "why.dat");
    let [dat, explained] = &files[..] else { panic!("{files:?}: {said}") };
    assert_eq!(*explained, format!("{dat}.why.txt"));
    // Who may not read the one may not read the other.
    let mode = |path: &String| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(dat), mode(explained)), (0o600, 0o600));
    let text = std::fs::read_to_string(explained).unwrap();
    // It is the path of the thread in that time, most of which an interrupt ended.
    let tid = child.id();
    let first = text.lines().find(|l| l.contains(" took "));
    let first = first.unwrap_or_else(|| panic!("{text}"));
    assert!(first.contains(&format!("whynaps:{tid} took 2")), "{first}");
    assert!(first.ends_with("the task itself was blocked, ended by an interrupt."), "{first}");
    let span = said.split(" ms from ").nth(1).unwrap();
    let (from, rest) = span.split_once(" to ").unwrap();
    let to = rest.split(',').next().unwrap();
    let (tid, times) = (tid.to_string(), format!("{from},{to}"));
    let path = run(KYMO, ["why", "-i", dat, "--tid", &tid, "--time", &times]);
    let path = path.success().stdout;
    assert!(path.contains(&format!("whynaps:{tid} took 2")), "{path}");
}

#[test]
fn a_snapshot_on_an_event() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    // A name that no other test's program has.
    let w = Workload::compile("snapnaps", NAPS);
    let s = Named::create("on", &["-e", "syscalls:sys_enter_getpriority"]);
    let _ = session(&["start", s.name()]).success();
    let dat = w.file("on.dat");
    let mut watcher = beside(&[
        "snapshot",
        s.name(),
        "-o",
        &dat,
        "-n",
        "1",
        "--on",
        "sched:sched_process_exit if comm == \"snapnaps\"",
    ]);
    watching(&mut watcher);
    // Another program's end is not the condition.
    let _ = run("true", [""; 0]).success();
    assert_eq!(files(w.dir(), "on.dat").len(), 0);
    let _ = run(w.program(), ["5", "5"]).success();
    let out = watcher.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("event at"), "{said}");
    let files = files(w.dir(), "on.dat");
    assert_eq!(files.len(), 1, "{said}");
    let lines = report(&files[0]);
    assert_eq!(lines.iter().filter(|l| l.contains("snapnaps-")).count(), 2);
}

#[test]
fn conditions_and_names_that_cannot_be() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let s = Named::create("bad", &["-e", GETPPID]);
    for (args, expected) in [
        (&["--on", "no:such"][..], "no event"),
        (&["--on", "sched"], "a condition needs one"),
        (&["--on-latency", "sched:sched_waking > 5ms"], "there is no `->`"),
        (
            &["--on-latency", "sched:sched_waking -> sched:sched_switch > 5ms by color"],
            "has no field \"color\"",
        ),
        (&["--on-latency", "sched:sched_waking if foo == 1 -> sched:sched_switch > 5ms"], "foo"),
    ] {
        let said = session(&[&["snapshot", s.name()], args].concat()).failure().stderr;
        assert!(said.contains(expected), "{args:?}: {said}");
    }
    for name in ["../x", "a b", ""] {
        let said = session(&["create", name]).failure().stderr;
        assert!(said.contains("cannot be a session's name"), "{said}");
    }
    assert!(session(&["destroy", "no-such-session"]).failure().stderr.contains("no session"));
    // An instance that another process removed: reported, and cleaned up.
    let lost = Named::create("lost", &[]);
    std::fs::remove_dir(format!("/sys/kernel/tracing/instances/kymo-session-{}", lost.name()))
        .unwrap();
    let list = session(&["list"]).success().stdout;
    let expected = format!("{}: lost: its trace instance was removed", lost.name());
    assert!(list.contains(&expected), "{list}");
    let _ = session(&["destroy", lost.name()]).success();
    assert!(!session(&["list"]).success().stdout.contains(lost.name()));
}

/// The ring of a busy CPU goes round sooner than that of an idle one, which then has events of a
/// time when nothing is known of the other: answers begin where both have some.
#[test]
fn answers_of_a_flight_recorder_begin_where_all_cpus_have_events() {
    if !require(&NEEDS) || !require(&[Need::Tool("taskset")]) {
        return;
    }
    let _state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let dat = directory.path().join("uneven.dat").to_str().unwrap().to_owned();
    let cpus = std::thread::available_parallelism().unwrap().get();
    // When a CPU begins, and whether its ring went round.
    let begin = |cpu: usize| -> Option<(f64, bool)> {
        let args = ["report", "-i", &dat, "--cpu", &cpu.to_string()];
        let lines = run("trace-cmd", args).success().stdout;
        let line = lines.lines().find(|l| !l.starts_with("cpus=") && !l.contains("DROPPED"))?;
        let word = |word: &&str| word.ends_with(':') && word.contains('.');
        let time = line.split_whitespace().find(word)?;
        Some((time.trim_end_matches(':').parse().unwrap(), lines.contains("DROPPED]")))
    };
    let much = "i=0; while [ $i -lt 400 ]; do /bin/true; i=$((i+1)); done";
    // Until rings are uneven: others may keep the idle CPU busy.
    let (first, both) = loop {
        let s = Named::create("uneven", &["-e", "sched:*", "--buffer-size", "64K"]);
        let _ = session(&["start", s.name()]).success();
        let _ = run("taskset", ["-c", "1", "sleep", "0.02"]).success();
        let _ = run("taskset", ["-c", "0", "sh", "-c", much]).success();
        let _ = session(&["stop", s.name()]).success();
        let _ = session(&["snapshot", s.name(), "--force", "-o", &dat]).success();
        let begins: Vec<(f64, bool)> = (0..cpus).filter_map(begin).collect();
        let first = begins.iter().map(|b| b.0).reduce(f64::min).unwrap();
        let both = begins.iter().filter(|b| b.1).map(|b| b.0).reduce(f64::max);
        if let Some(both) = both.filter(|both| both - first > 0.001) {
            break (first, both);
        }
    };
    let lines = |options: &[&str]| {
        let args = [&["sched", "map", "--json", "-i", &dat], options].concat();
        let shown = run(KYMO, args).success();
        let times = shown.stdout.lines().filter_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["time_ns"].as_f64().map(|ns| ns / 1e9)
        });
        (times.reduce(f64::min).unwrap(), format!("{}{}", shown.stdout, shown.stderr))
    };
    // trace-cmd rounds to microseconds.
    let (begins, said) = lines(&[]);
    assert!(begins >= both - 1e-6, "{begins} {both}");
    let left_out = said.split(" s are left out, of which not all CPUs").next().unwrap();
    let left_out: f64 = left_out.rsplit("the first ").next().unwrap().parse().expect(&said);
    assert!((left_out - (both - first)).abs() < 3e-6, "{left_out} {first} {both}");
    let (begins, said) = lines(&["--time", "0%-100%"]);
    assert!(begins < both && !said.contains("left out"), "{begins} {said}");
}
