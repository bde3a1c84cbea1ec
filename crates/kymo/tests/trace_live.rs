//! `kymo trace -e` on the running kernel: its text beside the kernel's own
//! `trace` file of the same ring, whose events it takes, and what is left behind.
#![allow(clippy::unwrap_used, reason = "tests")]

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

/// The same text, line by line and to the last byte. The kernel keeps the names of
/// 128 tasks and writes `<...>` for others; kymo asks /proc for those.
#[track_caller]
fn same_text(kernel: &str, kymo: &str) {
    // Other tests' tasks may have become known to the kernel between the two looks, so
    // of such a line the task is compared by its number alone. Its name may have blanks
    // (`lto module`), and a process follows it in parentheses.
    fn known(line: &str) -> (Option<&str>, &str) {
        let (task, rest) = line.split_once(" [").unwrap_or(("", line));
        let task = task.split_once(" (").map_or(task, |(task, _)| task);
        (task.trim().rsplit('-').next(), rest)
    }
    for (a, b) in kernel.lines().zip(kymo.lines()) {
        let same = match a.starts_with("           <...>-") {
            true => known(a) == known(b),
            false => a == b,
        };
        assert!(same, "kernel {a:?}\nkymo   {b:?}");
    }
    assert_eq!(kernel.lines().count(), kymo.lines().count());
    assert_eq!(kernel.ends_with('\n'), kymo.ends_with('\n'));
}

const SCRIPT: &str = "ls -l /etc >/dev/null; for i in 1 2 3; do (exit $i); done; \
    sleep 0.02 & kill -USR1 $!; wait; cat /proc/self/maps | sort | head -3; \
    dd if=/dev/zero of=/dev/null bs=4k count=300; true";

#[test]
fn the_text_is_that_of_the_kernels_trace_file() {
    let Some(_state) = begin() else { return };
    let instance = filled(&["sched", "syscalls", "irq", "timer", "signal", "task"], &[], SCRIPT);
    let kernel = instance.read("trace").unwrap();
    let kymo = trace(&["--instance", instance.name().unwrap()]).success();
    assert!(events(&kernel).len() > 1000, "{} events", events(&kernel).len());
    assert!(kernel.contains("tracing_mark_write: a mark of the test\n"));
    // SIGUSR1 is 10, the first number that newer kernels write with 0x.
    assert!(kernel.contains(", sig: 0xa)") || kernel.contains(", sig: a)"));
    same_text(&kernel, &kymo.stdout);
    assert_eq!(kymo.stderr, "");
    // It was taken out of the ring.
    assert_eq!(events(&instance.read("trace").unwrap()).len(), 0);
}

#[test]
fn stacks_and_processes_are_shown_as_the_kernel_does() {
    let Some(_state) = begin() else { return };
    let options = ["stacktrace", "record-tgid"];
    let instance = filled(&["sched:sched_switch", "sched:sched_process_exec"], &options, SCRIPT);
    let kernel = instance.read("trace").unwrap();
    let kymo = trace(&["--instance", instance.name().unwrap()]).success();
    assert!(kernel.contains("<stack trace>\n => ") && kernel.contains("  TGID  "), "{kernel}");
    same_text(&kernel, &kymo.stdout);
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
    assert!(o.stdout.starts_with("# tracer: nop\n#\n"), "{}", o.stdout);
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
        l.split_whitespace().nth(3).unwrap().trim_end_matches(':').parse::<f64>().unwrap()
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
    let places = text.lines().filter(|l| l.starts_with("CPU:") && l.contains("[LOST ")).count();
    let lost: u64 = err.split("lost: ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let shown = text.lines().filter(|l| l.contains("sys_enter: NR")).count();
    assert!(places > 0 && lost > 10_000, "{places} places, {err}");
    assert!(err.contains(&format!("lost: {lost} events lost beside {shown} shown (CPU ")), "{err}");
    let calls = text.lines().filter(|l| l.contains("sys_enter: NR 110 (")).count();
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
        let line = lines.by_ref().map(Result::unwrap).find(|l| l.contains("softirq_entry: vec="));
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
    assert!(lines.any(|l| l.unwrap().contains("softirq_entry: vec=")));
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
    let mut lines = BufReader::new(kymo.stdout.take().unwrap()).lines();
    assert!(lines.any(|l| l.unwrap().contains("TIMESTAMP")));
    std::thread::sleep(Duration::from_millis(200));
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
    let refused = o.stderr.contains("this kernel does not let functions be traced");
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
    assert!(o.stdout.contains("sched_process_exit: comm=true"), "{}", o.stdout);
}
