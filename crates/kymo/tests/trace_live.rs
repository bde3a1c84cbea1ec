//! `kymo trace -e` on the running kernel: its text beside the kernel's own
//! `trace` file of the same ring, whose events it takes, and beside a recording of the same
//! run; and what is left behind.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kymo_kernel::ftrace::{Instance, Selection, TraceDir};
use kymo_kernel::tracefs::Tracefs;
use kymo_testkit::{Need, Outcome, TracingState, Workload, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

fn begin() -> Option<TracingState> {
    require(&[Need::Root, Need::Tracefs]).then(TracingState::take)
}

fn trace(args: &[&str]) -> Outcome {
    run(KYMO, [&["trace"], args].concat())
}

/// The lines that are events.
fn events(text: &str) -> Vec<&str> {
    text.lines().filter(|l| !l.starts_with('#') && l.contains("] ")).collect()
}

/// Does something of everything in `script`, traced by an instance that is
/// left stopped and full.
fn filled(systems: &[&str], options: &[&str], script: &str) -> Instance {
    let instance = Instance::create(&Tracefs::open().unwrap(), "test-live").unwrap();
    instance.set_buffer_size_kb(32 << 10).unwrap();
    instance.set_option("hash-ptr", false).unwrap();
    instance.set_option("event-fork", true).unwrap();
    for option in options {
        instance.set_option(option, true).unwrap();
    }
    for system in systems {
        instance.enable(&Selection::parse(system).unwrap()).unwrap();
    }
    let mut child = Command::new("sh")
        .args(["-c", &format!("read go; {script}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    instance.set_pids(&[child.id()]).unwrap();
    instance.set_tracing(true).unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    std::fs::write(instance.path("trace_marker"), "a mark of the test").unwrap();
    instance.set_tracing(false).unwrap();
    instance
}

/// An event's line: task, thread, CPU, time, name, payload. The kernel's own has flags before
/// the time, other columns, and `<...>` for tasks whose names it has not kept (128 of them);
/// kymo asks /proc for those.
#[derive(Clone, Debug, PartialEq)]
struct EventText<'t> {
    comm: &'t str,
    tid: &'t str,
    cpu: &'t str,
    time: &'t str,
    name: &'t str,
    payload: &'t str,
}

fn event_text(line: &str) -> Option<EventText<'_>> {
    let (task, rest) = line.split_once(" [")?;
    let (comm, tid) = task.trim().rsplit_once('-')?;
    let (cpu, rest) = rest.split_once("] ")?;
    let (head, text) = rest.split_once(": ")?;
    let (name, payload) = text.split_once(':')?;
    let (time, payload) = (head.split_whitespace().last()?, payload.trim_start());
    Some(EventText { comm, tid, cpu, time, name, payload })
}

/// Whether two texts say the same; tasks without a name in one of them are compared by number.
fn is_same(a: &EventText<'_>, b: &EventText<'_>) -> bool {
    let is_unnamed = |e: &EventText<'_>| e.comm == "<...>";
    let comm = if is_unnamed(a) || is_unnamed(b) { a.comm } else { b.comm };
    EventText { comm, ..b.clone() } == *a
}

const SCRIPT: &str = "ls -l /etc >/dev/null; for i in 1 2 3; do (exit $i); done; \
    sleep 0.02 & kill -USR1 $!; wait; cat /proc/self/maps | sort | head -3; \
    dd if=/dev/zero of=/dev/null bs=4k count=300; true";

#[test]
fn tasks_times_and_payloads_are_those_of_the_kernels_trace_file() {
    let Some(_state) = begin() else { return };
    let instance = filled(&["sched", "irq", "timer", "signal", "task"], &[], SCRIPT);
    let kernel = instance.read("trace").unwrap();
    let kymo = trace(&["--instance", instance.name().unwrap()]).success();
    assert!(events(&kernel).len() > 200, "{} events", events(&kernel).len());
    // The kernel has words of its own for marks, file readers take the print format.
    let (mark, ours): (Vec<&str>, Vec<&str>) =
        events(&kymo.stdout).into_iter().partition(|l| l.contains(": print: "));
    assert!(mark[0].ends_with("a mark of the test"), "{mark:?}");
    let theirs = events(&kernel).into_iter().filter(|l| !l.contains("tracing_mark_write: "));
    let theirs: Vec<&str> = theirs.collect();
    assert_eq!(theirs.len(), ours.len());
    // File readers put 0x before pointers, the kernel does not.
    let plain = |line: &str| line.replace("=0x", "=");
    // The kernel shows the last name of a task for all its events, kymo the name of that time.
    let last: BTreeMap<&str, &str> =
        ours.iter().map(|line| event_text(line).unwrap()).map(|e| (e.tid, e.comm)).collect();
    for (theirs, ours) in theirs.iter().zip(&ours) {
        let (theirs, ours) = (plain(theirs), plain(ours));
        let (kernels, own) = (event_text(&theirs).unwrap(), event_text(&ours).unwrap());
        let renamed = EventText { comm: last[own.tid], ..own.clone() };
        let same = is_same(&kernels, &own) || is_same(&kernels, &renamed);
        assert!(same, "kernel {theirs:?}\nkymo   {ours:?}");
    }
    assert_eq!(kymo.stderr, "");
    // It was taken out of the ring.
    assert_eq!(events(&instance.read("trace").unwrap()).len(), 0);
}

#[test]
fn stacks_are_those_that_the_kernel_shows() {
    let Some(_state) = begin() else { return };
    let systems = ["sched:sched_switch", "sched:sched_process_exec"];
    let instance = filled(&systems, &["stacktrace"], SCRIPT);
    let kernel = instance.read("trace").unwrap();
    let kymo = trace(&["--instance", instance.name().unwrap()]).success();
    let functions = |text: &str| -> Vec<String> {
        let name = |line: &str| {
            let name = line.trim_start().strip_prefix("=> ")?;
            Some(name.split(' ').next().unwrap().to_owned())
        };
        text.lines().filter_map(name).collect()
    };
    let theirs = functions(&kernel);
    assert!(theirs.len() > 100 && kymo.stdout.contains(": kernel_stack:         <stack trace >\n"));
    assert_eq!(theirs, functions(&kymo.stdout));
}

/// Selects among the events of an existing instance.
#[test]
fn events_of_an_instance_are_selected() {
    let Some(_state) = begin() else { return };
    let show = |select: &[&str]| {
        let instance = filled(&["sched"], &[], "/bin/true; /bin/ls /dev/null");
        trace(&[&["--instance", instance.name().unwrap()], select].concat())
    };
    let exec = ["-e", "sched:sched_process_exec", "--filter", "filename ~ \"*/true\""];
    let o = show(&exec).success();
    let names: Vec<&str> = events(&o.stdout);
    assert_eq!(names.len(), 1, "{}", o.stdout);
    assert!(names[0].contains("sched_process_exec:   filename=/bin/true pid="), "{}", o.stdout);
    let o = show(&["-e", "sched", "--comm", "ls", "--json"]).success();
    assert!(!o.stdout.is_empty() && o.stdout.lines().all(|l| l.starts_with("{\"comm\":\"ls\"")));
    let o = show(&["-e", "sched:*", "--filter", "nonsense == 1"]).failure();
    assert!(o.stderr.contains("nonsense == 1\n  ^"), "{}", o.stderr);
}

/// One run, seen by two who watch and one who records: the same lines and objects, but for
/// the nanoseconds between the writing of an event into three rings.
#[test]
fn a_recording_reads_as_what_was_shown_live() {
    let Some(_state) = begin() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat").display().to_string();
    let script = "read go; for i in 1 2 3; do (exit $i); : > /dev/null; kill -WINCH $$; done";
    let mut child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
    let pid = child.id().to_string();
    let what = ["-e", "syscalls:*,signal:*,sched:sched_process_fork", "-p", &pid];
    let start = |args: &[&str]| {
        let mut command = Command::new(KYMO);
        command.arg("trace").args(args).args(what).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let watchers = [start(&["--ns"]), start(&["--json"]), start(&["-o", &file])];
    watchers.iter().for_each(|watcher| until_it_traces(watcher.id()));
    drop(child.stdin.take());
    child.wait().unwrap();
    let [text, json, _] = watchers.map(|w| {
        let o = w.wait_with_output().unwrap();
        assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
        String::from_utf8(o.stdout).unwrap()
    });
    let script = |args: &[&str]| run(KYMO, [&["script"], args, &[&file]].concat()).success().stdout;

    // Of one task events come in their order; tasks of two CPUs may change places.
    let lines = |text: &str| -> Vec<(String, f64)> {
        let parse = |line: &str| {
            let e = event_text(line)?;
            let columns = line.split_once(": ")?.1;
            let task = line.split_once("] ")?.0.trim();
            let task = task.replace("<...>", "sh");
            Some((format!("{task} {columns}"), e.time.parse().unwrap()))
        };
        let mut lines: Vec<(String, f64)> = text.lines().filter_map(parse).collect();
        lines.sort_by_key(|(line, _)| line.split(' ').next().unwrap().to_owned());
        lines
    };
    let (live, recorded) = (lines(&text), lines(&script(&["--ns"])));
    assert!(live.len() > 50, "{text}");
    let texts = |of: &[(String, f64)]| of.iter().map(|(l, _)| l.clone()).collect::<Vec<_>>();
    assert_eq!(texts(&live), texts(&recorded));
    let apart = |(a, b): (&(String, f64), &(String, f64))| (a.1 - b.1).abs();
    assert!(live.iter().zip(&recorded).map(apart).all(|apart| apart < 0.1));

    let objects = |text: &str| -> Vec<serde_json::Value> {
        let parse = |line: &str| {
            let mut object: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(object["time"].take().is_f64(), "{line}");
            if object["comm"] == "<...>" {
                object["comm"] = "sh".into();
            }
            object
        };
        let mut objects: Vec<_> = text.lines().map(parse).collect();
        objects.sort_by_key(|object| object["tid"].as_u64());
        objects
    };
    let (live, recorded) = (objects(&json), objects(&script(&["--json"])));
    assert_eq!((live.len(), &live), (texts(&lines(&text)).len(), &recorded));
}

#[test]
fn only_the_command_and_its_children_are_traced() {
    let Some(_state) = begin() else { return };
    let script = "/bin/true; (/bin/true; exit 3)";
    let args =
        ["-e", "sched:sched_process_exec,sched:sched_process_exit", "--", "sh", "-c", script];
    let o = trace(&args).expect_status(3);
    let lines = events(&o.stdout);
    let execs: Vec<&&str> = lines.iter().filter(|l| l.contains("sched_process_exec")).collect();
    assert_eq!(execs.len(), 3, "{}", o.stdout);
    assert!(execs[0].contains("/sh pid="), "{}", o.stdout);
    let exits = lines.iter().filter(|l| l.contains("sched_process_exit")).count();
    assert_eq!((lines.len(), exits >= 3), (execs.len() + exits, true), "{}", o.stdout);
    assert_eq!(lines.len(), o.stdout.lines().count(), "{}", o.stdout);
    assert_eq!(o.stderr, "");
}

#[test]
fn every_event_of_a_known_number_is_shown_in_order() {
    let Some(_state) = begin() else { return };
    if !require(&[Need::Gcc]) {
        return;
    }
    let work = Workload::syscalls();
    // Of everybody the filter lets through only the one call that the program repeats.
    let o = trace(&["-e", "syscalls:sys_enter_getppid", "--", work.arg(), "20000"]).success();
    let lines = events(&o.stdout);
    assert_eq!((lines.len(), o.stderr.as_str()), (20_000, ""));
    let time = |l: &str| {
        l.split_whitespace().nth(2).unwrap().trim_end_matches(':').parse::<f64>().unwrap()
    };
    assert!(lines.windows(2).all(|w| time(w[0]) <= time(w[1])));
    let o = trace(&["-e", "syscalls:sys_*_getppid", "-n", "7", "--", work.arg(), "100"]).success();
    assert_eq!(events(&o.stdout).len(), 7);
}

#[test]
fn filters_belong_to_their_events_and_json_has_types() {
    let Some(_state) = begin() else { return };
    let o = trace(&[
        "--json",
        "-e",
        "sched:sched_process_exec",
        "--filter",
        "filename ~ \"*/true\"",
        "-e",
        "sched:sched_process_fork",
        "--",
        "sh",
        "-c",
        "/bin/true; /bin/ls /dev/null >&2",
    ])
    .success();
    let lines: Vec<serde_json::Value> =
        o.stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let of = |event: &str| lines.iter().filter(|l| l["event"] == event).collect::<Vec<_>>();
    let execs = of("sched:sched_process_exec");
    assert_eq!(execs.len(), 1, "{}", o.stdout);
    assert_eq!(execs[0]["fields"]["filename"], "/bin/true");
    assert_eq!(execs[0]["fields"]["pid"], execs[0]["tid"]);
    assert!(execs[0]["time"].is_f64() && execs[0]["flags"].as_str().unwrap().len() == 5);
    assert_eq!(of("sched:sched_process_fork").len(), 2, "{}", o.stdout);
    let o =
        trace(&["-e", "sched:sched_switch", "--filter", "nonsense == 1", "--", "true"]).failure();
    assert!(o.stderr.contains("  nonsense == 1\n           ^ Field not found"), "{}", o.stderr);
    let o = trace(&["-e", "no:such", "--", "true"]).failure();
    assert!(o.stderr.contains("no event \"no:such\" in /sys/kernel/tracing;"), "{}", o.stderr);
}

/// Waits for something, for a minute at most.
#[track_caller]
fn until(is: impl Fn() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a kymo has switched its instance on.
#[track_caller]
fn until_it_traces(pid: u32) {
    let tracefs = Tracefs::open().unwrap();
    let begin = format!("kymo-{pid}-");
    until(|| {
        let instances = TraceDir::instances(&tracefs).unwrap();
        let mut of_it = instances.iter().filter(|i| i.starts_with(&begin));
        // A new instance is on until its maker has switched it off.
        let is_on = |d: &TraceDir| {
            !d.enabled().unwrap_or_default().is_empty() && d.tracing().unwrap_or(false)
        };
        of_it.any(|i| TraceDir::open(&tracefs, i).is_ok_and(|d| is_on(&d)))
    });
}

#[test]
fn what_is_lost_is_said_where_it_is_lost() {
    let Some(_state) = begin() else { return };
    if !require(&[Need::Gcc]) {
        return;
    }
    // A ring of a few pages that is read by a process that is stopped while they are made.
    let work = Workload::syscalls();
    let wait = |file: &str| format!("until [ -e {} ]; do sleep 0.05; done", work.file(file));
    let (begun, flooded) = (work.file("begun"), work.file("flooded"));
    let (go, end) = (wait("go"), wait("end"));
    let script = format!("touch {begun}; {go}; {} 50000; touch {flooded}; {end}", work.arg());
    let mut child = Command::new(KYMO)
        .args(["trace", "-m", "16K", "--strict", "-e", "raw_syscalls:sys_enter", "--"])
        .args(["sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let signal = |name: &str| {
        Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    };
    until(|| std::fs::exists(&begun).unwrap());
    signal("-STOP");
    std::fs::write(work.file("go"), "").unwrap();
    until(|| std::fs::exists(&flooded).unwrap());
    signal("-CONT");
    std::fs::write(work.file("end"), "").unwrap();
    let mut text = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        text.push_str(&line.unwrap());
        text.push('\n');
    }
    let o = child.wait_with_output().unwrap();
    let err = String::from_utf8(o.stderr).unwrap();
    // A full page has no room to say how many; the figure comes from the ring then.
    let places =
        text.lines().filter(|l| l.starts_with("CPU:") && l.contains("EVENTS DROPPED]")).count();
    let lost: u64 = err.split("lost: ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let shown = text.lines().filter(|l| l.contains(": sys_enter: ")).count();
    assert!(places > 0 && lost > 10_000, "{places} places, {err}");
    assert!(err.contains(&format!("lost: {lost} events lost beside {shown} shown (CPU ")), "{err}");
    let calls = text.lines().filter(|l| l.contains(" NR 110 (")).count();
    assert!(calls < 50_000, "{calls}");
    assert_eq!(o.status.code(), Some(3));
}

#[test]
fn a_signal_ends_it_and_leaves_nothing() {
    let Some(_state) = begin() else { return };
    for signal in ["-INT", "-TERM"] {
        let mut child = Command::new(KYMO)
            .args(["trace", "-e", "irq:softirq_entry"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.by_ref().map(Result::unwrap).find(|l| l.contains(" softirq_entry: "));
        assert!(line.is_some());
        let mine = format!("kymo-{}-", child.id());
        let instances = || TraceDir::instances(&Tracefs::open().unwrap()).unwrap();
        assert!(instances().iter().any(|n| n.starts_with(&mine)));
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert_eq!(lines.filter(|l| l.is_err()).count(), 0);
        assert!(child.wait().unwrap().success());
        assert!(!instances().iter().any(|n| n.starts_with(&mine)));
    }
}

#[test]
fn what_a_killed_one_leaves_the_next_removes_and_says_so() {
    let Some(_state) = begin() else { return };
    let mut child = Command::new(KYMO)
        .args(["trace", "-e", "irq:softirq_entry"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|l| l.unwrap().contains(" softirq_entry: ")));
    child.kill().unwrap();
    child.wait().unwrap();
    let mine = format!("kymo-{}-", child.id());
    let o = trace(&["-e", "sched:sched_process_exec", "--", "true"]).success();
    let left = TraceDir::instances(&Tracefs::open().unwrap()).unwrap();
    assert!(!left.iter().any(|n| n.starts_with(&mine)), "{left:?}");
    // Another test's kymo may have been the one that found it.
    let said = format!("process {}, which made it, is dead", child.id());
    assert!(
        o.stderr.is_empty() || o.stderr.contains(&said) || !o.stderr.contains(&mine),
        "{}",
        o.stderr
    );
}

#[test]
fn two_at_once_do_not_disturb_each_other() {
    let Some(_state) = begin() else { return };
    let threads: Vec<_> = (0..2)
        .map(|_| {
            std::thread::spawn(|| {
                trace(&["-e", "sched:sched_process_exec", "--", "sh", "-c", "/bin/true; /bin/true"])
            })
        })
        .collect();
    for t in threads {
        let o = t.join().unwrap().success();
        assert_eq!(events(&o.stdout).len(), 3, "{}", o.stdout);
    }
}

#[test]
fn a_process_is_followed_until_it_ends() {
    let Some(_state) = begin() else { return };
    let mut child = Command::new("sh")
        .args(["-c", "read go; /bin/true; /bin/true"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let mut kymo = Command::new(KYMO)
        .args(["trace", "-e", "sched:sched_process_exec", "-p", &pid])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(kymo.stdout.take().unwrap()).lines();
    until_it_traces(kymo.id());
    drop(child.stdin.take());
    child.wait().unwrap();
    let execs = lines.map(Result::unwrap).filter(|l| l.contains("filename=/bin/true")).count();
    assert_eq!(execs, 2);
    assert!(kymo.wait().unwrap().success());
    let o = trace(&["-e", "sched", "-p", &pid]).failure();
    assert!(o.stderr.contains(&format!("no such process: {pid}")), "{}", o.stderr);
}

#[test]
fn a_tracer_that_the_kernel_refuses_is_explained() {
    let Some(_state) = begin() else { return };
    let tracers = std::fs::read_to_string("/sys/kernel/tracing/available_tracers").unwrap();
    let o = trace(&["--tracer", "sundial", "--", "true"]).failure();
    assert!(o.stderr.contains("this kernel has no tracer \"sundial\""), "{}", o.stderr);
    if !tracers.contains("function_graph") {
        let o = trace(&["--tracer", "function_graph", "--", "true"]).failure();
        assert!(
            o.stderr.contains("no tracer \"function_graph\"; available_tracers: "),
            "{}",
            o.stderr
        );
    }
    // Allowed or not, it ends in an orderly way and leaves nothing.
    let o = trace(&["--tracer", "function", "-l", "vfs_read", "--", "true"]);
    let refused = o.stderr.contains("this kernel cannot trace functions");
    assert!(o.status == 0 || refused, "{}", o.stderr);
}

#[test]
fn a_read_only_tracefs_is_named_and_can_still_be_looked_at() {
    let Some(_state) = begin() else { return };
    // In a mount namespace of its own; the machine's stays as it is.
    let inside = |command: &str| {
        let script = format!("mount -o remount,bind,ro /sys/kernel/tracing && {KYMO} {command}");
        run("unshare", ["-m", "sh", "-c", &script])
    };
    let why = "tracefs is mounted read-only; as root: mount -o remount,rw /sys/kernel/tracing";
    for command in ["trace -e sched:sched_switch -- true", "trace -- true", "event enable irq"] {
        let o = inside(command).failure();
        assert!(o.stderr.contains(why), "{command}: {}", o.stderr);
    }
    let o = inside("event list irq").success();
    assert!(o.stdout.contains("  softirq_entry"), "{}", o.stdout);
}

/// In a pid namespace of its own the kernel's events have other numbers than processes: what
/// would be shown is nothing, or another's.
#[test]
fn in_a_container_no_wrong_tasks_are_traced() {
    let Some(_state) = begin() else { return };
    let inside = |args: &[&str]| {
        let unshare = ["--pid", "--mount", "--fork", "--mount-proc", KYMO, "trace"];
        run("unshare", [&unshare[..], args].concat())
    };
    let event = ["-e", "sched:sched_process_exit"];
    for args in [&["--", "true"][..], &[event[0], event[1], "--", "true"], &["-s", "-a"]] {
        let o = inside(args).failure();
        assert!(o.stderr.contains("other numbers in this pid namespace"), "{}", o.stderr);
        assert_eq!(o.stdout, "");
    }
    let o = inside(&[event[0], event[1], "-a", "--", "true"]).success();
    assert!(o.stdout.contains(" sched_process_exit:   comm=true pid="), "{}", o.stdout);
}
