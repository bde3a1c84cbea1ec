//! A kernel in lockdown of mode `confidentiality` (`lockdown=confidentiality` on its command line):
//! what needs no secrets of the kernel works, and what it refuses is refused with that reason.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::process::{Command, Stdio};

use kymo_testkit::{Outcome, Workload, guest, run, run_command};
use kymo_tracepoint::{emit, tracepoint};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

tracepoint! {
    locked: step(number: u64) { fields { number: u64 = number } print "step {number}" }
}

const ROLE: &str = "KYMO_LOCKED_STEPS";

/// This test program is started again as one with tracepoints, which makes a given number of steps.
#[test]
fn role() {
    let Some(steps) = std::env::var(ROLE).ok() else { return };
    (0..steps.parse().unwrap()).for_each(|number| emit!(step(number)));
}

/// Whether the guest is locked down, with the place mounted where the kernel says so.
fn is_locked() -> bool {
    if !guest() {
        return false;
    }
    let place = "/sys/kernel/security";
    let mode = || std::fs::read_to_string(format!("{place}/lockdown")).unwrap_or_default();
    if mode().is_empty() {
        let _ = run("mount", ["-t", "securityfs", "securityfs", place]);
    }
    let mode = mode();
    assert!(mode.contains("[confidentiality]"), "the kernel's command line is another: {mode:?}");
    true
}

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

#[test]
fn what_needs_no_secrets_of_the_kernel_works() {
    if !is_locked() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("spin.data").to_str().unwrap().to_owned();
    let spin = Workload::spin();
    let said = kymo(&["stat", "-x,", "-e", "task-clock,page-faults", "--", spin.arg(), "5"]);
    let said = said.success().stderr;
    assert!(said.lines().count() >= 2 && !said.contains("<not"), "{said}");
    for graph in ["fp", "dwarf"] {
        let args = ["record", "-q", "-e", "cpu-clock", "-F", "500", "--call-graph", graph];
        let command = ["-o", &data, "--", spin.arg(), "20"];
        let _ = kymo(&[&args[..], &command].concat()).success();
        let text = kymo(&["report", "-i", &data, "--no-children", "-g", "none"]).success().stdout;
        let name = spin.program().file_name().unwrap().to_str().unwrap().to_owned();
        assert!(text.lines().any(|l| l.contains(&name) && l.contains("[.]")), "{text}");
    }
    // Its switches are records of perf, not tracepoints.
    let said = kymo(&["profile", "--", "sleep", "0.2"]).success();
    let text = format!("{}{}", said.stdout, said.stderr);
    assert!(text.contains("asleep") || text.contains("sleeping"), "{text}");
    let mut command = Command::new(KYMO);
    let me = std::env::current_exe().unwrap();
    command.args(["trace", "-u", "locked:step", "--"]).arg(me).args(["--exact", "role"]);
    command.env("KYMO_UST_DIR", directory.path()).env(ROLE, "300").stdin(Stdio::null());
    let text = run_command(command).success().stdout;
    assert_eq!(text.matches(": step ").count(), 300, "{text}");
}

#[test]
fn what_the_kernel_keeps_to_itself_is_refused_with_the_reason() {
    if !is_locked() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("x.data").to_str().unwrap().to_owned();
    let event = "sched:sched_switch";
    for args in [
        &["trace", "--", "true"][..],
        &["trace", "-e", event, "--", "true"],
        &["record", "-e", event, "-o", &data, "--", "true"],
        &["stat", "-e", event, "--", "true"],
        &["probe", "vfs_read"],
        &["session", "create", "locked", "-e", event],
        &["sched", "record", "-o", &data, "--", "true"],
        &["count", "-e", event, "--", "true"],
        &["run", "-e", "tracepoint:sched:sched_switch { exit(); }"],
        &["run", "-e", "kprobe:vfs_read { exit(); }"],
        &["list", "tracepoint"],
    ] {
        let said = kymo(args);
        let text = format!("{}{}", said.stdout, said.stderr);
        assert!(text.contains("lockdown"), "{args:?}: status {}: {text}", said.status);
        assert!(said.status != 0, "{args:?}: {text}");
    }
}
