//! Trace instances on the running kernel: made, used, removed, and found again
//! after a kill. The machine's tracing state is compared around every test.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use kymo_kernel::ftrace::{
    EventName, FtraceError, Instance, PageMover, Selection, TraceDir, Trigger, wait_readable,
};
use kymo_kernel::tracefs::Tracefs;
use kymo_testkit::{Need, TracingState, require};

/// The tree, and the state to compare with; `None` where the test cannot run.
fn begin() -> Option<(Tracefs, TracingState)> {
    require(&[Need::Root, Need::Tracefs]).then(|| (Tracefs::open().unwrap(), TracingState::take()))
}

fn select(text: &str) -> Selection {
    Selection::parse(text).unwrap()
}

fn event(text: &str) -> EventName {
    let (system, name) = text.split_once(':').unwrap();
    EventName { system: system.into(), name: name.into() }
}

/// A shell that makes `n` execs; its events only.
fn run_traced(instance: &Instance, script: &str) {
    let mut child = Command::new("sh")
        .args(["-c", &format!("read go; {script}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    instance.set_option("event-fork", true).unwrap();
    instance.set_pids(&[child.id()]).unwrap();
    assert_eq!(instance.pids().unwrap(), [child.id()]);
    instance.set_tracing(true).unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    instance.set_tracing(false).unwrap();
}

#[test]
fn events_of_a_command_come_out_of_the_ring_and_nothing_is_left() {
    let Some((tracefs, _state)) = begin() else { return };
    let instance = Instance::create(&tracefs, "test").unwrap();
    let root = instance.root().to_owned();
    assert!(!instance.tracing().unwrap());
    instance.set_buffer_size_kb(512).unwrap();
    assert!(instance.buffer_size_kb().unwrap().unwrap() >= 512);
    instance.set_clock("mono").unwrap();
    assert_eq!(instance.clocks().unwrap().current, "mono");
    instance.set_option("overwrite", false).unwrap();
    assert_eq!(instance.option("overwrite"), Some(false));
    instance.set_cpus(&instance.cpus().unwrap()).unwrap();
    let on = instance.enable(&select("sched:sched_process_*")).unwrap();
    assert!(on.contains(&event("sched:sched_process_exec")), "{on:?}");
    assert_eq!(instance.enabled().unwrap(), on);
    instance.set_filter(&event("sched:sched_process_exec"), "pid != 0").unwrap();
    assert_eq!(
        instance.filter(&event("sched:sched_process_exec")).unwrap().as_deref(),
        Some("pid != 0")
    );
    run_traced(&instance, "true; /bin/true; /bin/true");

    let text = instance.read("trace").unwrap();
    assert_eq!(text.matches("sched_process_exec: filename=/bin/true").count(), 2, "{text}");
    let entries: u64 =
        instance.cpus().unwrap().iter().map(|c| instance.stats(*c).unwrap().entries).sum();
    assert!(entries >= 6, "{entries} entries");
    let mut bytes = 0;
    for cpu in instance.cpus().unwrap() {
        let mut pipe = instance.raw_pipe(cpu).unwrap();
        let mut page = vec![0; pipe.page_size()];
        while let Some(n) = pipe.read(&mut page).unwrap() {
            bytes += n;
        }
        let stats = instance.stats(cpu).unwrap();
        assert_eq!((stats.entries, stats.lost()), (0, 0), "{stats:?}");
    }
    assert!(bytes >= 4096);
    drop(instance);
    assert!(!root.exists());
}

#[test]
fn full_pages_move_without_a_copy() {
    let Some((tracefs, _state)) = begin() else { return };
    let instance = Instance::create(&tracefs, "move").unwrap();
    instance.enable(&select("raw_syscalls")).unwrap();
    run_traced(&instance, "dd if=/dev/zero of=/dev/null bs=1 count=3000 2>/dev/null");
    let before: u64 =
        instance.cpus().unwrap().iter().map(|c| instance.stats(*c).unwrap().entries).sum();
    assert!(before > 12_000, "{before} events");
    let file = tempfile::tempfile().unwrap();
    let (mut moved, mut rest) = (0, 0);
    for cpu in instance.cpus().unwrap() {
        let mut pipe = instance.raw_pipe(cpu).unwrap();
        let mover = PageMover::new(pipe.page_size()).unwrap();
        loop {
            match mover.move_pages(&pipe, file.as_fd()).unwrap() {
                0 => break,
                n => moved += n,
            }
        }
        let mut page = vec![0; pipe.page_size()];
        while pipe.read(&mut page).unwrap().is_some() {
            rest += 1;
        }
    }
    assert_eq!(file.metadata().unwrap().len(), moved as u64);
    assert_eq!(moved % 4096, 0);
    // An entry takes 4 + 64 bytes with its header, an exit 4 + 24.
    assert!(
        moved > 12_000 * (68 + 28) / 2 && rest <= instance.cpus().unwrap().len(),
        "{moved} {rest}"
    );
    instance.remove().unwrap();
}

#[test]
fn a_reader_is_woken_and_told_which_cpu() {
    let Some((tracefs, _state)) = begin() else { return };
    let instance = Instance::create(&tracefs, "wake").unwrap();
    instance.set_wake_percent(0).unwrap();
    let pipes: Vec<_> =
        instance.cpus().unwrap().into_iter().map(|c| instance.raw_pipe(c).unwrap()).collect();
    let fds: Vec<_> = pipes.iter().map(|p| p.as_fd()).collect();
    let quiet = wait_readable(&fds, Some(Duration::from_millis(5))).unwrap();
    assert!(!quiet.contains(&true));
    instance.enable(&select("sched:sched_process_exec")).unwrap();
    run_traced(&instance, "/bin/true");
    let woken = wait_readable(&fds, Some(Duration::from_secs(5))).unwrap();
    assert!(woken.contains(&true), "{woken:?}");
}

#[test]
fn what_the_kernel_refuses_is_explained() {
    let Some((tracefs, _state)) = begin() else { return };
    let instance = Instance::create(&tracefs, "refuse").unwrap();
    let switch = event("sched:sched_switch");
    let e = instance.set_filter(&switch, "prev_pid == 1 && nonsense > 3").unwrap_err();
    // The kernel points behind the field it does not know.
    let caret = "\n  prev_pid == 1 && nonsense > 3\n                            ^ Field not found";
    assert!(e.to_string().ends_with(&format!("Field not found{caret}")), "{e}");
    assert_eq!(instance.filter(&switch).unwrap(), None);
    let e = instance.set_clock("sundial").unwrap_err();
    assert!(e.to_string().contains("no such clock; there are [local] global"), "{e}");
    let e = instance.set_tracer("sundial").unwrap_err();
    assert!(e.to_string().contains("no tracer \"sundial\"; available_tracers: "), "{e}");
    let e = instance.enable(&select("sched:sched_swich")).unwrap_err();
    assert!(matches!(e, FtraceError::NoEvent { .. }), "{e}");
    let e = instance.set_trigger(&switch, &Trigger::parse("enable_event:no:such").unwrap());
    let e = e.unwrap_err().to_string();
    assert!(e.contains("with an existing event"), "{e}");
    let offered = instance.read("events/sched/sched_switch/trigger").unwrap();
    if !offered.contains("hist") {
        let e = instance.set_trigger(&switch, &Trigger::parse("hist:keys=prev_pid").unwrap());
        let e = e.unwrap_err().to_string();
        let fact = "this kernel has no hist triggers (it needs CONFIG_HIST_TRIGGERS)";
        assert!(e.contains(fact), "{e}");
    }
}

#[test]
fn triggers_come_and_go() {
    let Some((tracefs, _state)) = begin() else { return };
    let instance = Instance::create(&tracefs, "trigger").unwrap();
    let exec = event("sched:sched_process_exec");
    for text in ["stacktrace:5 if pid == 1", "traceoff:1", "enable_event:sched:sched_switch:1"] {
        let add = Trigger::parse(text).unwrap();
        instance.set_trigger(&exec, &add).unwrap();
        assert_eq!(instance.triggers(&exec).unwrap().len(), 1, "{text}");
        let e = instance.set_trigger(&exec, &add).unwrap_err();
        assert!(e.to_string().ends_with("the event already has such a trigger"), "{e}");
        let remove = Trigger { remove: true, ..add };
        instance.set_trigger(&exec, &remove).unwrap();
        assert_eq!(instance.triggers(&exec).unwrap(), [""; 0], "{text}");
    }
}

#[test]
fn the_next_start_removes_what_a_killed_one_left() {
    let Some((tracefs, _state)) = begin() else { return };
    // A process that dies without a chance: its instance, made in its name.
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let start = stat.rsplit(") ").next().unwrap().split(' ').nth(19).unwrap().to_owned();
    let mine = Instance::create(&tracefs, "mine").unwrap();
    let namespace = mine.name().unwrap().split('-').nth(3).unwrap().to_owned();
    let name = format!("kymo-{}-{start}-{namespace}-left", child.id());
    let left = Instance::create_named(&tracefs, &name).unwrap();
    left.enable(&select("sched:sched_process_exec")).unwrap();
    let left = left.keep();

    let removed = |name: &str| Instance::remove_stale(&tracefs).iter().any(|s| s.name == name);
    assert!(!removed(&name), "its owner is alive");
    child.kill().unwrap();
    child.wait().unwrap();
    // Another test's kymo may be the one that finds it.
    let _ = removed(&name);
    assert!(!left.root().exists() && mine.root().exists());
}

#[test]
fn the_top_and_instances_are_opened_by_name() {
    let Some((tracefs, _state)) = begin() else { return };
    let instance = Instance::create(&tracefs, "named").unwrap();
    let again = TraceDir::open(&tracefs, instance.name().unwrap()).unwrap();
    assert_eq!(again.root(), instance.root());
    let e = TraceDir::open(&tracefs, "no-such-instance").unwrap_err();
    assert!(e.to_string().contains("the instances are "), "{e}");
    let e = Instance::create_named(&tracefs, instance.name().unwrap()).unwrap_err();
    assert!(e.to_string().ends_with("it already exists"), "{e}");
    assert!(TraceDir::top(&tracefs).enabled().is_ok());
}
