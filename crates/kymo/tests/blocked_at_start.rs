//! Waits in progress when a live capture attaches: they count from the start of the capture, with
//! their cause, whether they end in it or not.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kymo_testkit::{Need, NoIdleCpus, Outcome, page_with_ledger, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 3] = [Need::Root, Need::Tracefs, Need::PerfEvents];

/// Nanoseconds that the command of a capture sleeps before it ends the wait.
const HELD: u64 = 700_000_000;

fn json(out: &Outcome) -> Value {
    page_with_ledger(&out.stdout, &out.stderr)
}

fn rows<'v>(page: &'v Value, table: &str) -> &'v [Value] {
    page[table].as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Waits until a thread is in a system call.
fn await_call(tid: u32, call: i64) {
    let begin = Instant::now();
    let is_in = || {
        let text = std::fs::read_to_string(format!("/proc/{tid}/syscall")).unwrap_or_default();
        text.split(' ').next() == Some(call.to_string().as_str())
    };
    while !is_in() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
}

fn fifo(directory: &Path, name: &str) -> String {
    let path = directory.join(name).display().to_string();
    let _ = run("mkfifo", [&path]).success();
    path
}

/// A `cat` of a FIFO, blocked in its read, and what keeps the FIFO open.
fn reader(path: &str) -> (Child, std::fs::File) {
    let cat = Command::new("cat").arg(path).stdout(Stdio::null()).spawn().unwrap();
    let writer = std::fs::File::options().write(true).open(path).unwrap();
    await_call(cat.id(), libc::SYS_read);
    (cat, writer)
}

/// Runs an answer beside a command that ends the wait after a known time; returns the answer and an
/// upper limit of the wait, in nanoseconds.
fn answer(words: &[&str], ends: &str) -> (Value, u64) {
    let command = format!("sleep 0.7; {ends}; sleep 0.2");
    let begin = Instant::now();
    let out = run(KYMO, [words, &["--json", "--", "sh", "-c", &command]].concat()).success();
    (json(&out), begin.elapsed().as_nanos() as u64 - 200_000_000)
}

fn has_note(page: &Value, part: &str) -> bool {
    page["ledger"].to_string().contains(part)
}

#[test]
fn a_wait_for_a_pipe_counts_from_the_start() {
    if !require(&NEEDS) {
        return;
    }
    let _busy = NoIdleCpus::keep();
    let directory = tempfile::tempdir().unwrap();
    let path = fifo(directory.path(), "pipe");
    let (mut cat, writer) = reader(&path);
    let pid = cat.id().to_string();
    let ends = format!("echo x > {path}");
    let (page, most) = answer(&["offcpu", "report", "--live", "-p", &pid], &ends);
    let pipe = rows(&page, "causes").iter().find(|c| c["cause"] == "pipe").unwrap();
    // The one that was in progress, and the one after it, which does not end.
    assert_eq!((number(&pipe["count"]), number(&pipe["not_ended"])), (1, 1), "{pipe}");
    let total = number(&pipe["total_ns"]);
    assert!((HELD..most).contains(&total), "{total} of {most}");
    let of_pipe = |stack: &&Value| stack["cause"] == "pipe" && stack["waker"]["comm"] == "sh";
    let stack = rows(&page, "stacks").iter().find(of_pipe).unwrap();
    assert!(stack["stack"].to_string().contains("pipe_read"), "{stack}");
    assert!(has_note(&page, "1 wait began before the recording"), "{page}");

    let (page, most) = answer(&["why", "-p", &pid], &ends);
    let path = &rows(&page, "paths")[0];
    let total = number(&path["end_ns"]) - number(&path["start_ns"]);
    // To the end of its next wait, or of the recording.
    assert!((HELD..most + 300_000_000).contains(&total), "{total} of {most}");
    drop(writer);
    cat.wait().unwrap();
}

#[test]
fn a_wait_that_does_not_end_is_in_progress_at_the_end() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (mut cat, writer) = reader(&fifo(directory.path(), "pipe"));
    let pid = cat.id().to_string();
    let (page, most) = answer(&["offcpu", "report", "--live", "-p", &pid], "true");
    let pipe = rows(&page, "causes").iter().find(|c| c["cause"] == "pipe").unwrap();
    assert_eq!((number(&pipe["count"]), number(&pipe["not_ended"])), (0, 1), "{pipe}");
    let open = number(&pipe["not_ended_ns"]);
    assert!((HELD..most + 200_000_000).contains(&open), "{open} of {most}");
    assert!(has_note(&page, "1 chosen thread was blocked all the time"), "{page}");
    assert!(!has_note(&page, "in no table"), "{page}");

    let (page, _) = answer(&["why", "-p", &pid], "true");
    let segments = rows(&rows(&page, "paths")[0], "segments");
    assert_eq!(segments.len(), 1, "{page}");
    assert_eq!(
        (&segments[0]["kind"], &segments[0]["ended_by"]),
        (&"pipe".into(), &"not-ended".into())
    );
    assert!(number(&segments[0]["duration_ns"]) >= HELD, "{page}");
    drop(writer);
    cat.wait().unwrap();
}

/// A process that hangs in a call all the time has no event.
#[test]
fn a_count_of_a_hung_process_names_it() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (mut cat, writer) = reader(&fifo(directory.path(), "pipe"));
    let pid = cat.id().to_string();
    let span = "raw_syscalls:sys_enter -> raw_syscalls:sys_exit by tid";
    for words in [
        &["count", "--latency", span][..],
        &["count", "-e", "raw_syscalls:sys_enter"],
        &["syscalls", "report", "--live"],
    ] {
        let out = run(KYMO, [words, &["--json", "-p", &pid, "--timeout", "200"]].concat());
        let ledger = json(&out.success())["ledger"].to_string();
        let named = format!("({pid})");
        assert!(ledger.contains("1 chosen thread was blocked all the time"), "{words:?}: {ledger}");
        assert!(ledger.contains("pipe_read") && ledger.contains(&named), "{words:?}: {ledger}");
    }
    drop(writer);
    cat.wait().unwrap();
}

#[test]
fn a_sleep_and_a_wait_for_a_child_have_their_causes() {
    if !require(&NEEDS) {
        return;
    }
    let _busy = NoIdleCpus::keep();
    let directory = tempfile::tempdir().unwrap();
    let path = fifo(directory.path(), "pipe");
    // The shell waits for a child, which the command ends.
    let mut shell = Command::new("sh").args(["-c", &format!("cat {path}; :")]).spawn().unwrap();
    let writer = std::fs::File::options().write(true).open(&path).unwrap();
    await_call(shell.id(), libc::SYS_wait4);
    let children = format!("/proc/{0}/task/{0}/children", shell.id());
    let child = std::fs::read_to_string(children).unwrap();
    let ends = format!("kill {}", child.trim());
    let pid = shell.id().to_string();
    let (page, most) = answer(&["offcpu", "report", "--live", "-p", &pid], &ends);
    let waits = rows(&page, "causes").iter().find(|c| c["cause"] == "child").unwrap();
    let total = number(&waits["total_ns"]);
    assert!(waits["count"] == 1 && (HELD..most).contains(&total), "{waits}");
    drop(writer);
    shell.wait().unwrap();

    let mut sleep = Command::new("sleep").arg("1000").spawn().unwrap();
    await_call(sleep.id(), libc::SYS_clock_nanosleep);
    let pid = sleep.id().to_string();
    let (page, most) = answer(&["offcpu", "report", "--live", "-p", &pid], &format!("kill {pid}"));
    let waits = rows(&page, "causes").iter().find(|c| c["cause"] == "sleep").unwrap();
    let total = number(&waits["total_ns"]);
    assert!(waits["count"] == 1 && (HELD..most).contains(&total), "{waits}");
    sleep.wait().unwrap();
}

/// A thread of this process waits for a mutex that another one holds until the command writes.
#[test]
fn a_wait_for_a_futex_has_its_address() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = fifo(directory.path(), "pipe");
    let (lock, (tid_to, tid_from)) = (Mutex::new(()), std::sync::mpsc::channel());
    let (page, most, address) = std::thread::scope(|scope| {
        let (held_to, held_from) = std::sync::mpsc::channel();
        let (lock, file) = (&lock, path.clone());
        scope.spawn(move || {
            let _held = lock.lock().unwrap();
            held_to.send(()).unwrap();
            let _ = std::fs::File::open(file).unwrap().read(&mut [0]).unwrap();
        });
        held_from.recv().unwrap();
        scope.spawn(move || {
            let link = std::fs::read_link("/proc/thread-self").unwrap();
            let tid = link.file_name().unwrap().to_str().unwrap().parse::<u32>().unwrap();
            tid_to.send(tid).unwrap();
            drop(lock.lock().unwrap());
        });
        let tid = tid_from.recv().unwrap();
        await_call(tid, libc::SYS_futex);
        let call = std::fs::read_to_string(format!("/proc/{tid}/syscall")).unwrap();
        let address = call.split(' ').nth(1).unwrap().to_owned();
        let words = ["lock", "contention", "--live", "--futex", "--tid", &tid.to_string()];
        let (page, most) = answer(&words, &format!("echo x > {path}"));
        (page, most, address)
    });
    let futexes = rows(&page, "futexes");
    let row = futexes.iter().find(|row| row["address"] == address.as_str());
    let row = row.unwrap_or_else(|| panic!("{address}: {page}"));
    let total = number(&row["total_ns"]);
    assert!(row["count"] == 1 && (HELD..most).contains(&total), "{row}");
    assert_eq!(row["pid"], std::process::id(), "{row}");
    assert!(has_note(&page, "1 wait began before the recording"), "{page}");
}
