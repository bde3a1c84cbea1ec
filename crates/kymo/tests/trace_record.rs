//! `kymo trace -o` against trace-cmd's report and perf's counts: the same events,
//! nothing lost, readable after every kind of end, the machine as it was.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kymo_events::{EventSelection, EventSource, ReadOptions, RecordedEvent};
use kymo_symbols::ResolverOptions;
use kymo_testkit::{Need, Outcome, TracingState, Workload, lines_with, perf, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 4] = [Need::Root, Need::Tracefs, Need::TraceCmd, Need::Gcc];
const EVENT: &str = "syscalls:sys_enter_getppid";
const LIMIT: Duration = Duration::from_secs(60);

#[track_caller]
fn trace(args: &[&str]) -> Outcome {
    run(KYMO, [&["trace"], args].concat())
}

/// The lines of trace-cmd's report, without its head.
#[track_caller]
fn report(path: &str) -> Vec<String> {
    let out = run("trace-cmd", ["report", "-i", path]).success();
    // Losses of a small ring are marked by lines of their own.
    let head = |l: &str| l.starts_with("cpus=") || l.contains("EVENTS DROPPED");
    out.stdout.lines().filter(|l| !head(l)).map(str::to_owned).collect()
}

fn count(lines: &[String], what: &str) -> usize {
    lines.iter().filter(|l| l.contains(what)).count()
}

/// A kymo that runs beside the test.
struct Beside(Child);

impl Beside {
    fn start(args: &[&str], dir: &Path) -> Beside {
        let mut command = Command::new(KYMO);
        command.args(args).current_dir(dir).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        Beside(command.spawn().unwrap())
    }

    fn signal(&self, name: &str) {
        let _ = run("kill", [name, &self.0.id().to_string()]).success();
    }

    /// Its exit status and what it said.
    fn end(self) -> (Option<i32>, String) {
        let out = self.0.wait_with_output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    }
}

#[track_caller]
fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < LIMIT, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn size(path: &str) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

/// Bytes that the file takes on the disk.
fn blocks(path: &str) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(path).unwrap()) * 512
}

#[test]
fn trace_cmd_reads_every_event_of_every_form() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    let dat = w.file("x.dat");
    let forms: [&[&str]; 5] = [
        &[],
        &["--file-version", "6"],
        &["--compression", "zstd"],
        &["--compression", "zlib"],
        &["--clock", "local", "--buffer-size", "1M", "-C", "0"],
    ];
    let packs = run("trace-cmd", ["list", "-c"]).stdout;
    for form in forms {
        if form == ["--compression", "zlib"] && !packs.contains("zlib") {
            continue;
        }
        // On the one that is recorded, if it is not all of them.
        let pinned = if form.contains(&"-C") { &["taskset", "-c", "0"][..] } else { &[] };
        let command = [pinned, &[w.arg(), "3000"]].concat();
        let args = [form, &["-o", &dat, "-e", EVENT, "--"], &command].concat();
        let said = trace(&args).success().stderr;
        assert!(said.contains("(3000 events)") && !said.contains("lost"), "{form:?}: {said}");
        let lines = report(&dat);
        assert_eq!(lines.len(), 3000, "{form:?}");
        assert!(lines.iter().all(|l| l.trim_start().starts_with("syscalls-")), "{}", lines[0]);
        // No holes are left: what the file takes is what it says.
        assert!(blocks(&dat) + (2 << 20) >= size(&dat), "{form:?}");
    }
    // The recording before was kept.
    assert_eq!(report(&w.file("x.dat.old")).len(), 3000);
}

#[test]
fn the_same_events_as_trace_cmd_and_perf_see() {
    if !require(&[&NEEDS[..], &[Need::Perf, Need::PerfEvents]].concat()) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::threads();
    let (ours, theirs) = (w.file("ours.dat"), w.file("theirs.data"));
    // One run seen by both at the same time; children and threads too.
    let _ = perf([
        "record",
        "-q",
        "-o",
        &theirs,
        "-e",
        "raw_syscalls:sys_enter",
        "--",
        KYMO,
        "trace",
        "-q",
        "-o",
        &ours,
        "-e",
        "raw_syscalls:sys_enter",
        "--",
        w.arg(),
    ])
    .success();
    let ours = report(&ours);
    let theirs = perf(["script", "-i", &theirs, "-F", "comm,tid,trace"]).success().stdout;
    // From exec on: before it the child bears kymo's name. A thread gets its name
    // only some calls after its start, so the program's names go together.
    let own = |l: &str| ["threads", "left", "right"].iter().any(|n| l.trim_start().starts_with(n));
    let call = |l: &str| l.split("NR ").nth(1).map(|call| call.trim().to_owned());
    // The report gives a task its last name, also for what it called before exec.
    let executed = ours.iter().skip_while(|l| !(own(l) && l.contains("NR 59 ")));
    let mut a: Vec<_> = executed.filter(|l| own(l)).filter_map(|l| call(l)).collect();
    let mut b: Vec<_> = theirs.lines().filter(|l| own(l)).filter_map(call).collect();
    a.sort();
    b.sort();
    let mut rest = a.clone();
    for call in &b {
        let at = rest.binary_search(call);
        rest.remove(at.unwrap_or_else(|_| panic!("{call} is missing")));
    }
    assert!(b.len() > 50 && rest.len() < 20, "{} {rest:?}", b.len());
    assert_eq!(count(&ours, "sys_enter:"), ours.len());
    let theirs_all = lines_with(&theirs, "NR ").len();
    assert!(theirs_all >= ours.len(), "perf follows kymo itself too: {theirs_all}");
}

#[test]
fn a_killed_recorder_leaves_what_it_had_and_nothing_switched_on() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    for version in ["6", "7"] {
        let dat = w.file("k.dat");
        let _ = std::fs::remove_file(&dat);
        let beside = Beside::start(
            &[
                "trace",
                "-o",
                &dat,
                "--file-version",
                version,
                "--buffer-size",
                "64K",
                "-e",
                EVENT,
                "--",
                w.arg(),
                "20000000",
            ],
            w.dir(),
        );
        wait_until("a megabyte", || Path::new(&dat).exists() && blocks(&dat) > 6 << 20);
        let instances = || -> Vec<String> {
            let all = std::fs::read_dir("/sys/kernel/tracing/instances").unwrap();
            let own = format!("kymo-{}-", beside.0.id());
            let names = all.map(|e| e.unwrap().file_name().into_string().unwrap());
            names.filter(|n| n.starts_with(&own)).collect()
        };
        assert_eq!(instances().len(), 1);
        let pid = beside.0.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        beside.signal("-KILL");
        // The command continues; it is ours to end.
        let _ = run("kill", ["-KILL", children.trim()]).success();
        wait_until("its end", || !Path::new(&format!("/proc/{}/exe", beside.0.id())).exists());
        let left = instances();
        let lines = report(&dat);
        assert!(lines.len() > 1000, "{}", lines.len());
        assert!(lines.iter().all(|l| l.contains("sys_enter_getppid")));
        // Found and removed by the next one.
        let said = trace(&["-o", &w.file("next.dat"), "-e", EVENT, "--", "true"]).success().stderr;
        // Another test's kymo may have been the next one.
        let told = left.iter().all(|name| said.contains(name.as_str()));
        assert!(told || instances().is_empty(), "{said}");
        assert_eq!(instances(), Vec::<String>::new());
        let _ = beside.end();
    }
}

#[test]
fn two_at_once_and_whose_owner_lives() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    let (a, b) = (w.file("a.dat"), w.file("b.dat"));
    let first = Beside::start(&["trace", "-o", &a, "-e", EVENT, "--", "sleep", "3"], w.dir());
    wait_until("the first file", || Path::new(&a).exists());
    let said = trace(&["-o", &b, "-e", EVENT, "--", w.arg(), "100"]).success().stderr;
    // The first one's instance is not taken for a dead one's.
    assert!(!said.contains(&format!("kymo-{}-", first.0.id())), "{said}");
    assert_eq!(report(&b).len(), 100);
    let (status, said) = first.end();
    assert_eq!(status, Some(0), "{said}");
    // Neither saw the other's command.
    assert_eq!(count(&report(&a), "syscalls-"), 0);
}

#[test]
fn files_by_size_and_by_time() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    let dat = w.file("r.dat");
    let said = trace(&[
        "-o",
        &dat,
        "--switch-output=500K",
        "--buffer-size",
        "1M",
        "-e",
        EVENT,
        "--",
        "sh",
        "-c",
        // Also a recorder that gets no CPU for a while sees each of the sizes.
        &format!("for i in 1 2 3; do {} 100000; sleep 0.3; done", w.arg()),
    ])
    .success()
    .stderr;
    let files = |w: &Workload| -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(w.dir())
            .unwrap()
            .map(|e| e.unwrap().path().to_str().unwrap().to_owned())
            .filter(|n| n.contains("r.dat."))
            .collect();
        names.sort();
        names
    };
    let all = files(&w);
    assert!(all.len() >= 2, "{all:?} {said}");
    let total: usize = all.iter().map(|f| count(&report(f), "syscalls-")).sum();
    // Every event is in one file.
    if !said.contains("lost") {
        assert_eq!(total, 300_000, "{said}");
    }
    let _ = trace(&[
        "-q",
        "-o",
        &dat,
        "--switch-output=1s",
        "--switch-max-files",
        "2",
        "-e",
        EVENT,
        "--",
        "sleep",
        "1.5",
    ]);
    let kept = files(&w).len() - all.len();
    assert!((1..=2).contains(&kept), "{kept}");
    // A size that ends the recording leaves the command alone.
    let out = trace(&[
        "-o",
        &dat,
        "--max-size",
        "200K",
        "--buffer-size",
        "64K",
        "-e",
        EVENT,
        "--",
        "sh",
        "-c",
        &format!("{0} 100000; sleep 0.3; {0} 200000; echo done; exit 4", w.arg()),
    ])
    .expect_status(4);
    assert_eq!(out.stdout, "done\n");
    assert!(report(&dat).len() < 300_000);
}

#[test]
fn what_is_not_a_recording_is_not_overwritten() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    let dat = w.file("letters");
    std::fs::write(&dat, "my letters").unwrap();
    let said = trace(&["-o", &dat, "-e", EVENT, "--", "true"]).failure().stderr;
    assert!(said.contains("is not a recording"), "{said}");
    assert_eq!(std::fs::read_to_string(&dat).unwrap(), "my letters");
    let _ = trace(&["-f", "-o", &dat, "-e", EVENT, "--", w.arg(), "5"]).success();
    assert_eq!(report(&dat).len(), 5);
    for (args, expected) in [
        (&["-e", EVENT, "-o", "/dev/null", "--", "true"][..], "is not a regular file"),
        (&["-e", "no:such", "-o", "n.dat", "--", "true"], "no event"),
        (&["-e", EVENT, "--filter", "foo == 1", "-o", "n.dat", "--", "true"], "foo"),
        (&["-e", EVENT, "-o", "tcp://127.0.0.1:9", "--", "true"], "no connection"),
        (&["-e", EVENT, "--clock", "sundial", "-o", "n.dat", "--", "true"], "no such clock"),
        (&["-o", "n.dat", "--", "true"], "which events"),
    ] {
        let mut command = Command::new(KYMO);
        command.arg("trace").args(args).current_dir(w.dir());
        let said = kymo_testkit::run_command(command).failure().stderr;
        assert!(said.contains(expected), "{args:?}: {said}");
    }
    // What was refused leaves no file.
    assert!(!Path::new(&w.file("n.dat")).exists());
    let missing = trace(&["-o", &w.file("m"), "-e", EVENT, "--", "no-such-program"]);
    assert_eq!(missing.status, 127, "{}", missing.stderr);
}

/// A small file system of its own.
struct Small(tempfile::TempDir);

impl Small {
    fn mount(size: &str) -> Option<Small> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let out = run("mount", ["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", path]);
        (out.status == 0).then_some(Small(dir))
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = run("umount", [self.0.path()]);
    }
}

#[test]
fn a_full_disk_is_reported_and_what_is_there_can_be_read() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let Some(small) = Small::mount("16m") else {
        eprintln!("SKIPPED: a tmpfs cannot be mounted here");
        return;
    };
    let w = Workload::syscalls();
    let dat = small.file("x.dat");
    let out = trace(&[
        "-o",
        &dat,
        "--buffer-size",
        "256K",
        "-e",
        "raw_syscalls",
        "--",
        w.arg(),
        "2000000",
    ])
    .failure();
    let said = out.stderr;
    assert!(said.contains("No space left on device") && said.contains("can be read"), "{said}");
    let lines = report(&dat);
    assert!(lines.len() > 10_000, "{}", lines.len());
    let of_ours = count(&lines, "NR 110 (") + count(&lines, "NR 110 =");
    assert!(of_ours * 10 > lines.len() * 9, "{of_ours} of {}", lines.len());
}

#[test]
fn over_the_network_nothing_is_lost_and_no_stranger_gets_in() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    let secret = w.file("secret");
    std::fs::write(&secret, "a secret of some length\n").unwrap();
    let _ = run("chmod", ["600", &secret]).success();
    let wrong = w.file("wrong");
    std::fs::write(&wrong, "another secret of length\n").unwrap();
    let _ = run("chmod", ["600", &wrong]).success();
    // The system names a free port; it stays free for the moment it takes.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (bind, to) = (format!("127.0.0.1:{port}"), format!("tcp://127.0.0.1:{port}"));
    let listener = Beside::start(
        &["listen", "--dir", "in", "--bind", &bind, "--secret-file", &secret, "-n", "2"],
        w.dir(),
    );
    wait_until("the listener", || std::net::TcpStream::connect(&bind).is_ok());
    for (with, expected) in [
        (&[][..], "asks for a secret"),
        (&["--secret-file", wrong.as_str()], "the sender does not know the secret"),
    ] {
        let args = [with, &["-o", &to, "-e", EVENT, "--", w.arg(), "10"]].concat();
        let said = trace(&args).failure().stderr;
        assert!(said.contains(expected), "{said}");
    }
    let a = Beside::start(
        &[
            "trace",
            "-o",
            &to,
            "--secret-file",
            &secret,
            "--sender",
            "a",
            "-e",
            EVENT,
            "--",
            w.arg(),
            "200000",
        ],
        w.dir(),
    );
    let said = trace(&[
        "-o",
        &to,
        "--secret-file",
        &secret,
        "--sender",
        "../b",
        "--file-version",
        "6",
        "-e",
        EVENT,
        "--",
        w.arg(),
        "100000",
    ])
    .success()
    .stderr;
    assert!(said.contains("(100000 events)"), "{said}");
    let (status, said) = a.end();
    assert_eq!(status, Some(0), "{said}");
    let (status, said) = listener.end();
    assert_eq!(status, Some(0), "{said}");
    for (directory, events) in [("a", 200_000), ("_b", 100_000)] {
        let lines = report(&w.file(&format!("in/{directory}/trace.dat")));
        assert_eq!(count(&lines, "sys_enter_getppid"), events, "{directory}");
    }
    assert_eq!(std::fs::read_dir(w.file("in")).unwrap().count(), 2, "{said}");
}

#[test]
fn a_listener_that_is_killed_keeps_what_it_acknowledged() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (bind, to) = (format!("127.0.0.1:{port}"), format!("tcp://127.0.0.1:{port}"));
    let listener = Beside::start(&["listen", "--dir", "in", "--bind", &bind], w.dir());
    wait_until("the listener", || std::net::TcpStream::connect(&bind).is_ok());
    let sender = Beside::start(
        &[
            "trace",
            "-o",
            &to,
            "--sender",
            "s",
            "--buffer-size",
            "64K",
            "-e",
            EVENT,
            "--",
            w.arg(),
            "20000000",
        ],
        w.dir(),
    );
    let dat = w.file("in/s/trace.dat");
    wait_until("some megabytes", || Path::new(&dat).exists() && blocks(&dat) > 8 << 20);
    listener.signal("-KILL");
    let _ = listener.end();
    let (status, said) = sender.end();
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("the listener disconnected"), "{said}");
    let acknowledged: u64 = {
        let words: Vec<&str> = said.split_whitespace().collect();
        let of = words.windows(3).find(|w| w[1] == "of" && w[0].parse::<u64>().is_ok()).unwrap();
        of[0].parse().unwrap()
    };
    let stored = report(&dat).len() as u64;
    // An event takes 20 bytes and its share of the page's head.
    assert!(stored * 20 >= acknowledged * 9 / 10 && acknowledged > 0, "{stored} {acknowledged}");
}

/// Readers of one task's events would otherwise meet its frees before its allocations.
#[test]
fn events_with_stacks_of_a_task_that_changes_its_cpu_stay_in_the_order_of_time() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let _state = TracingState::take();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("moves.dat");
    let moves = "for i in $(seq 100); do taskset -p -c $((i % 2)) $$ >/dev/null; done";
    let args = ["trace", "-q", "-T", "-e", "raw_syscalls:sys_enter", "-o", path.to_str().unwrap()];
    let out = trace(&[&args[1..], &["--", "sh", "-c", moves]].concat()).success();
    assert_eq!(out.stderr, "");
    let source = EventSource::open(&[path], ResolverOptions::default()).unwrap();
    let options = ReadOptions { join_stacks: true, ..ReadOptions::default() };
    // By task: time and CPU of its last event, and how often it changed the CPU.
    let mut tasks: BTreeMap<u32, (u64, Option<u32>, usize)> = BTreeMap::new();
    let (mut events, mut stacks) = (0, 0);
    let mut see = |event: &RecordedEvent<'_>| {
        let (tid, time) = (event.task().tid.unwrap(), event.time.unwrap());
        let last = tasks.entry(tid).or_insert((0, event.cpu(), 0));
        assert!(last.0 <= time, "task {tid}: {time} comes behind {}", last.0);
        let moved = usize::from(last.1 != event.cpu());
        *last = (time, event.cpu(), last.2 + moved);
        events += 1;
        stacks += usize::from(!event.stack().kernel.is_empty());
        ControlFlow::Continue(())
    };
    source.for_each(&EventSelection::default(), options, &mut see).unwrap();
    let most = tasks.values().map(|t| t.2).max().unwrap();
    assert!(most >= 50, "no task changed its CPU often enough: {most} times");
    assert!(events > 1000 && stacks * 10 > events * 9, "{stacks} of {events} have a stack");
}

/// They take megabytes, which a file of a few events has no use for.
#[test]
fn the_kernels_symbols_are_there_where_events_print_functions() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let recorded = |name: &str, flags: &[&str]| {
        let path = directory.path().join(name).to_str().unwrap().to_owned();
        let all = [&["-q", "-o", &path][..], flags, &["--", "true"]].concat();
        let _ = trace(&all).success();
        // Room for pages of the ring of each CPU.
        (size(&path) > 3 << 20, report(&path))
    };
    let switches = ["-e", "sched:sched_switch"];
    let (is_large, lines) = recorded("switches.dat", &switches);
    assert!(!is_large && count(&lines, "sched_switch") > 0, "{lines:?}");
    assert!(recorded("all.dat", &[&switches[..], &["--kallsyms"]].concat()).0);
    let stacks = recorded("stacks.dat", &[&switches[..], &["-T"]].concat());
    assert!(stacks.0 && count(&stacks.1, "=> __schedule") > 0, "{:?}", stacks.1);
    let (is_large, lines) = recorded("functions.dat", &["-e", "kmem:kmalloc"]);
    assert!(is_large && count(&lines, "call_site=") > 0, "{lines:?}");
    assert!(!lines.iter().any(|l| l.contains("call_site=ffffffff")), "{lines:?}");
}
