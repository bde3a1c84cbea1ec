//! `kymo profile` of commands that wait: the first screen names the cause, where in the program,
//! and who ended it, also where that is another process.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::{Need, lines_with, require, run};

mod verdicts;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wait_programs/causes.c");
const NEEDS: [Need; 4] = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc];

fn compile(directory: &Path, flags: &[&str]) -> String {
    let program = directory.join("causes").to_str().unwrap().to_owned();
    let all = [flags, &["-O1", "-g", "-pthread", "-o", &program, PROGRAM]].concat();
    assert!(Command::new("gcc").args(all).status().unwrap().success());
    program
}

/// Milliseconds of a duration as the page shows it.
fn millis(text: &str) -> f64 {
    let mut words = text.split_whitespace();
    let number: f64 = words.next().unwrap().parse().unwrap();
    match words.next().unwrap() {
        "us" => number / 1e3,
        "ms" => number,
        "s" => number * 1e3,
        unit => panic!("{unit}"),
    }
}

/// Total of a cause in the table, in milliseconds.
#[track_caller]
fn total(page: &str, cause: &str) -> f64 {
    let start = format!("  {cause} ");
    let line = page.lines().find(|l| l.starts_with(&start)).unwrap_or_else(|| panic!("{page}"));
    millis(&line[start.len()..])
}

/// The longest wait of a cause, in milliseconds.
#[track_caller]
fn longest(page: &str, cause: &str) -> f64 {
    let start = format!("  {cause} ");
    let line = page.lines().find(|l| l.starts_with(&start)).unwrap_or_else(|| panic!("{page}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    millis(&words[words.len() - 2..].join(" "))
}

/// The cause has the time that the program measured, but for what it ran, and waited for a CPU.
#[track_caller]
fn is_cause(page: &str, said: &str, cause: &str) {
    let measured = said.trim().parse::<f64>().unwrap() / 1e6;
    let found = total(page, cause);
    let (woken, preempted) = ("waiting for a CPU: after wake-up", "waiting for a CPU: preempted");
    let rest: f64 = ["running on a CPU", woken, preempted]
        .into_iter()
        .filter(|c| page.lines().any(|l| l.starts_with(&format!("  {c} "))))
        .map(|c| total(page, c))
        .sum();
    // The thread that is joined may have been preempted: that is a futex, too.
    let most = if cause == "blocked: futex" { longest(page, cause) } else { found };
    assert!(most <= measured * 1.01 + 1.0, "{most} of {measured}: {page}");
    assert!(found + rest + 1.0 >= measured * 0.99, "{found} of {measured}: {page}");
}

/// Starts `kymo profile` of a command; its page goes into a file.
fn start_profile(directory: &Path, command: &[&str]) -> (PathBuf, Child) {
    let page = directory.join("page.txt");
    let child = Command::new(KYMO)
        .args([&["profile", "--"], command].concat())
        .env("KYMO_CACHE", "off")
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&page).unwrap())
        .spawn();
    (page, child.unwrap())
}

/// Waits until the only child of a process has this name, and sleeps.
fn wait_until_asleep(parent: &Child, name: &str) {
    let began = Instant::now();
    let children = format!("/proc/{0}/task/{0}/children", parent.id());
    let sleeps = || -> Option<bool> {
        let of = std::fs::read_to_string(&children).ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", of.trim())).ok()?;
        let (comm, state) = stat.rsplit_once(") ")?;
        Some(comm.ends_with(&format!("({name}")) && state.starts_with('S'))
    };
    while sleeps() != Some(true) {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_first_screen_names_the_cause() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = compile(directory.path(), &["-fno-omit-frame-pointer"]);
    let file = directory.path().join("saved").to_str().unwrap().to_owned();
    let profile =
        |args: &[&str]| run(KYMO, [&["profile", "--", &program], args].concat()).success();
    // A mutex that another thread holds, and the stack in which it gave it back.
    let out = profile(&["mutex"]);
    is_cause(&out.stderr, &out.stdout, "blocked: futex");
    let (_, pairs) =
        out.stderr.split_once("Longest waits, with the stacks that ended them").unwrap();
    assert!(
        pairs.contains("  blocked: futex: ") && pairs.contains("ended by causes, in"),
        "{pairs}"
    );
    // The C library is without frame pointers, where callers are lost.
    assert!(pairs.contains("futex_wait") && pairs.contains("futex_wake"), "{pairs}");
    // A disk.
    let out = profile(&["fsync", &file]);
    is_cause(&out.stderr, &out.stdout, "blocked: disk");
    // On a busy machine it waits for a CPU for longer than for the disk.
    let waits_for_cpu = |page: &str| {
        let all = page.lines().filter(|l| l.starts_with("  waiting for a CPU: "));
        all.map(|l| millis(l["  waiting for a CPU: after wake-up ".len()..].trim_start()))
            .fold(0.0, f64::max)
    };
    if total(&out.stderr, "blocked: disk") > waits_for_cpu(&out.stderr) {
        let short = lines_with(&out.stderr, "  In short  it waits for ");
        let names = |l: &&str| l.contains("mostly blocked on disk, in ");
        assert!(short.iter().all(names), "{}", out.stderr);
    }
    // A child, which is profiled, too.
    let out = profile(&["child"]);
    is_cause(&out.stderr, &out.stdout, "blocked: child process");
    assert!(out.stderr.contains("do_wait") && out.stderr.contains("do_exit"), "{}", out.stderr);
    // Unwound: code without frame pointers.
    let program = compile(directory.path(), &["-fomit-frame-pointer"]);
    let args = ["profile", "--call-graph", "dwarf,4096", "--", &program, "mutex"];
    let out = run(KYMO, args).success();
    is_cause(&out.stderr, &out.stdout, "blocked: futex");
    let (_, pairs) =
        out.stderr.split_once("Longest waits, with the stacks that ended them").unwrap();
    assert!(pairs.contains("need_the_lock") && pairs.contains("hold_the_lock"), "{pairs}");
    // Without.
    let out = run(KYMO, ["profile", "--cpu-only", "--", &program, "child"]).success();
    assert!(!out.stderr.contains("Where the time went"), "{}", out.stderr);
}

#[test]
fn wakers_of_other_processes_are_seen() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe").to_str().unwrap().to_owned();
    let _ = run("mkfifo", [&pipe]).success();
    // It writes on command, and is there until the page is.
    let writer = format!("exec 3<>{pipe}; read go; echo line >&3; read go");
    let mut writer =
        Command::new("bash").args(["-c", &writer]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = writer.stdin.take().unwrap();
    let (page, mut child) = start_profile(directory.path(), &["head", "-n", "1", &pipe]);
    wait_until_asleep(&child, "head");
    input.write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    drop(input);
    let _ = writer.wait().unwrap();
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(total(&page, "blocked: pipe") > 0.0, "{page}");
    let by = format!("ended by task {} (now bash), in", writer.id());
    assert!(page.contains(&by), "{by}: {page}");
}

/// Threads of this process that wake each other all the time.
struct WakeStorm {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl WakeStorm {
    fn start() -> WakeStorm {
        use std::io::Read as _;
        use std::os::unix::net::UnixStream;
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let mut threads = Vec::new();
        for _ in 0..8 {
            let (a, b) = UnixStream::pair().unwrap();
            (&a).write_all(b"x").unwrap();
            for mut end in [a, b] {
                let stop = std::sync::Arc::clone(&stop);
                threads.push(std::thread::spawn(move || {
                    let mut byte = [0];
                    while !stop.load(std::sync::atomic::Ordering::Relaxed)
                        && end.read(&mut byte).is_ok_and(|n| n > 0)
                        && end.write_all(&byte).is_ok()
                    {}
                }));
            }
        }
        WakeStorm { stop, threads }
    }
}

impl Drop for WakeStorm {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Copies of the stacks of all wakers of the machine filled the rings: nine of ten events of the
/// command were lost. Wake-ups among others are not written at all, and none of the command's
/// twice.
#[test]
fn wake_ups_of_others_cost_the_command_nothing() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = compile(directory.path(), &["-fomit-frame-pointer"]);
    let data = directory.path().join("perf.data").to_str().unwrap().to_owned();
    let args = ["profile", "-o", &data, "-F", "200", "--call-graph", "dwarf", "--", &program];
    for what in ["mutex", "child"] {
        let storm = WakeStorm::start();
        let out = run(KYMO, [&args[..], &[what]].concat()).success();
        drop(storm);
        assert!(!out.stderr.contains("lost:"), "{}", out.stderr);
        // Who wakes from within the program does it with its own stack.
        if what == "mutex" {
            let (_, pairs) = out.stderr.split_once("with the stacks that ended them").unwrap();
            assert!(pairs.contains("hold_the_lock"), "{}", out.stderr);
        }
        let fields = "comm,tid,time,event,trace";
        let lines = run(KYMO, ["script", "-i", &data, "-F", fields, "--ns"]).success().stdout;
        let mut last = std::collections::HashMap::new();
        let mut foreign = 0;
        for line in lines.lines().filter(|l| l.contains(" sched:sched_waking: ")) {
            let (head, payload) = line.split_once(" sched:sched_waking: ").unwrap();
            let words: Vec<&str> = head.split_whitespace().collect();
            let [.., tid, time] = words[..] else { panic!("{line}") };
            let time: f64 = time.trim_end_matches(':').parse().unwrap();
            let is_own = words[0] == "causes";
            // Before it executes the program it is named after its parent.
            let is_woken = payload.starts_with("comm=causes ") || payload.starts_with("comm=kymo ");
            assert!(is_own || is_woken, "{line}");
            foreign += usize::from(!is_own);
            // No task is woken, runs, sleeps and is woken again within so little.
            let wakee = payload.split_whitespace().nth(1).unwrap().to_owned();
            let before = last.insert((tid.to_owned(), wakee), time);
            assert!(before.is_none_or(|before| time - before > 5e-6), "{line}\n{lines}");
        }
        // The child's end wakes its parent when its own events are gone.
        assert!(what != "child" || foreign > 0 || out.stderr.contains("do_exit"), "{lines}");
    }
}

/// Threads that wait for work all the time are not what a program waits for.
#[test]
fn threads_that_never_ran_are_not_the_cause() {
    if !require(&NEEDS) {
        return;
    }
    let script = "import threading, time\n\
        for i in range(6): threading.Thread(target=threading.Event().wait, daemon=True).start()\n\
        print(flush=True)\n\
        while True: time.sleep(0.02)";
    let mut program =
        Command::new("python3").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    // All are there.
    let mut line = String::new();
    let mut said = std::io::BufReader::new(program.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    let args = ["profile", "-p", &program.id().to_string(), "--timeout", "600"];
    let page = run(KYMO, args).success().stdout;
    program.kill().unwrap();
    program.wait().unwrap();
    // They are the longest waits, reported in a line of their own and no part of what it does.
    assert!(total(&page, "6 threads that never ran") > total(&page, "sleeping"), "{page}");
    let is_futex = |line: &&str| line.contains("blocked: futex");
    let lines: Vec<&str> = page.lines().filter(is_futex).collect();
    let (idle, threads): (Vec<&str>, Vec<&str>) =
        lines.into_iter().partition(|line| line.contains("threads that never ran"));
    assert!(idle.len() == 1 && idle[0].ends_with("  blocked: futex"), "{page}");
    assert!(threads.iter().all(|line| line.contains("python3 ")), "{page}");
    // On a busy machine it waits for a CPU.
    let is_it = page.contains(", mostly sleeping")
        || page.contains("waits for a CPU")
        || page.contains("wait for CPUs");
    assert!(is_it && !page.contains("mostly blocked on futex"), "{page}");
}

/// A wait that is in progress when the profile is stopped counts.
#[test]
fn an_interrupt_does_not_lose_the_last_wait() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let (page, mut child) = start_profile(directory.path(), &["sleep", "100"]);
    wait_until_asleep(&child, "sleep");
    let asleep = Instant::now();
    std::thread::sleep(Duration::from_millis(300));
    let least = asleep.elapsed();
    let _ = run("kill", ["-INT", &child.id().to_string()]).success();
    assert!(!child.wait().unwrap().success());
    let text = std::fs::read_to_string(&page).unwrap();
    let found = total(&text, "sleeping");
    // Its own clock has two digits of seconds.
    assert!(found + 10.0 >= least.as_secs_f64() * 1e3, "{found}: {text}");
    assert!(found <= began.elapsed().as_secs_f64() * 1e3 + 10.0, "{found}: {text}");
}

/// A process that was there before, and sleeps all the time: the kernel reported the cause before
/// the recording began.
#[test]
fn a_process_that_only_sleeps_is_said_to_sleep() {
    if !require(&NEEDS) {
        return;
    }
    let mut parent = Command::new("sh").args(["-c", "sleep 100; true"]).spawn().unwrap();
    wait_until_asleep(&parent, "sleep");
    let pid = parent.id().to_string();
    let waits = || std::fs::read_to_string(format!("/proc/{pid}/stack")).unwrap();
    while !waits().contains("do_wait") {
        std::thread::sleep(Duration::from_millis(5));
    }
    // The command says how long, and is not looked at itself; standard output is its own.
    let page = run(KYMO, ["profile", "-p", &pid, "sleep", "0.4"]).success().stderr;
    let children = format!("/proc/{pid}/task/{pid}/children");
    let children = std::fs::read_to_string(children).unwrap();
    parent.kill().unwrap();
    parent.wait().unwrap();
    let _ = run("kill", [children.trim()]).success();
    assert!(page.contains(&format!("sh ({pid}) and 1 child\n")), "{page}");
    // Both from begin to end.
    for cause in ["sleeping", "blocked: child process"] {
        let found = total(&page, cause);
        assert!((395.0..1000.0).contains(&found), "{found}: {page}");
    }
}

/// A recording that was kept is shown as it was when it was made.
#[test]
fn a_kept_recording_gives_the_same_table() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("kept.data");
    let data = data.to_str().unwrap();
    let script = "for i in 1 2 3; do sleep 0.05; done";
    let made = run(KYMO, ["profile", "-o", data, "--", "sh", "-c", script]).success().stderr;
    let shown = run(KYMO, ["profile", "-i", data]).success().stdout;
    // On a busy machine the child sleeps before its parent waits for it.
    for (cause, least) in [("sleeping", 140.0), ("blocked: child process", 0.0)] {
        let (made, shown) = (total(&made, cause), total(&shown, cause));
        assert!(made > least && (made - shown).abs() < 5.0, "{cause}: {made} {shown}");
    }
}

/// The events of 400 threads are opened one after the other, and count from one moment on.
#[test]
fn times_of_many_threads_add_up_to_the_window() {
    const THREADS: usize = 400;
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = directory.path().join("many").to_str().unwrap().to_owned();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wait_programs/many_threads.c");
    let args = ["-O1", "-pthread", "-o", &program, source];
    assert!(Command::new("gcc").args(args).status().unwrap().success());
    let mut many = Command::new(&program);
    let mut many = many.arg(THREADS.to_string()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(many.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let pid = many.id().to_string();
    let out =
        run(KYMO, ["profile", "--json", "--call-graph", "fp", "--timeout", "300", "-p", &pid]);
    many.kill().unwrap();
    many.wait().unwrap();
    let page: serde_json::Value = serde_json::from_str(&out.success().stdout).unwrap();
    let nanos = |value: &serde_json::Value| value.as_f64().unwrap();
    let elapsed = nanos(&page["elapsed_ns"]);
    let cpus = std::thread::available_parallelism().unwrap().get() as f64;
    assert!(nanos(&page["on_cpu_ns"]) <= elapsed * cpus, "{page:#}");
    let times = page["times"].as_array().unwrap();
    let all: f64 = times.iter().map(|row| nanos(&row["total_ns"])).sum();
    let want = elapsed * (THREADS + 1) as f64;
    assert!((all - want).abs() <= want * 0.01, "{all} of {want}: {page:#}");
}

/// Tasks that live for a millisecond have executed a program, too.
#[test]
fn a_process_counts_for_the_program_that_it_executed() {
    if !require(&NEEDS) {
        return;
    }
    let line = "i=0; while [ $i -lt 60 ]; do /bin/true; /bin/echo x; i=$((i+1)); done";
    let out = run(KYMO, ["profile", "--json", "--call-graph", "fp", "--", "sh", "-c", line]);
    let out = out.success();
    let page: serde_json::Value = serde_json::from_str(&out.stderr).unwrap();
    let programs = page["programs"].as_array().unwrap();
    let mut counts: Vec<(&str, u64)> = programs
        .iter()
        .map(|p| (p["comm"].as_str().unwrap(), p["processes"].as_u64().unwrap()))
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [("echo", 60), ("sh", 1), ("true", 60)], "{page:#}");
    assert!(programs.iter().all(|p| p["on_cpu_ns"].as_u64().unwrap() > 0), "{page:#}");
}
