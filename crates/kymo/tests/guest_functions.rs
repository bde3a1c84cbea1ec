//! `kymo trace --tracer` in the guest, whose kernel lets functions be traced, and
//! `kymo event trigger` with the kinds that only it has.
#![allow(clippy::unwrap_used, reason = "tests")]

use kymo_testkit::{Need, Outcome, TracingState, Workload, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// Serves getppid(2) in the guest's kernel.
const SERVER: &str = "__do_sys_getppid";

fn begin() -> Option<TracingState> {
    require(&[Need::Root, Need::Tracefs]).then(TracingState::take)
}

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

#[test]
fn the_function_tracer_shows_each_call() {
    let Some(_state) = begin() else { return };
    let work = Workload::syscalls();
    let o =
        kymo(&["trace", "--tracer", "function", "-l", SERVER, "--", work.arg(), "50"]).success();
    assert!(o.stdout.starts_with("# tracer: function\n"), "{}", o.stdout);
    let calls = o.stdout.lines().filter(|l| l.contains(&format!(": {SERVER} <-"))).count();
    assert_eq!(calls, 50, "{}", o.stdout);
    let n =
        kymo(&["trace", "--tracer", "function", "-l", SERVER, "-n", "4", "--", work.arg(), "50"]);
    let n = n.success().stdout;
    assert_eq!(n.lines().filter(|l| !l.starts_with('#')).count(), 4, "{n}");
}

#[test]
fn the_function_graph_tracer_shows_each_call_and_leaves_the_top_as_it_was() {
    let Some(_state) = begin() else { return };
    let work = Workload::syscalls();
    let args = ["trace", "--tracer", "function_graph", "-l", SERVER, "--max-depth", "2", "--"];
    let o = kymo(&[&args[..], &[work.arg(), "50"]].concat()).success();
    assert!(o.stdout.starts_with("# tracer: function_graph\n"), "{}", o.stdout);
    let calls = o.stdout.lines().filter(|l| l.contains(&format!("{SERVER}();"))).count();
    let open = o.stdout.lines().filter(|l| l.contains(&format!("{SERVER}() {{"))).count();
    assert_eq!(calls + open, 50, "{}", o.stdout);
}

#[test]
fn functions_that_are_not_there_are_refused() {
    let Some(_state) = begin() else { return };
    for flag in ["-l", "-G"] {
        let args =
            ["trace", "--tracer", "function_graph", flag, "no_such_function_here", "--", "true"];
        let o = kymo(&args).failure();
        assert!(o.stderr.contains("no_such_function_here"), "{}", o.stderr);
    }
    let o = kymo(&["trace", "--tracer", "sundial", "--", "true"]).failure();
    assert!(o.stderr.contains("no tracer \"sundial\"; available_tracers: "), "{}", o.stderr);
}

#[test]
fn histograms_count_in_the_kernel_and_go_away() {
    let Some(_state) = begin() else { return };
    let event = "syscalls:sys_enter_getppid";
    let hist = "hist:keys=common_pid.execname:vals=hitcount";
    let _ = kymo(&["event", "trigger", event, hist]).success();
    let work = Workload::syscalls();
    let _ = run(work.program(), ["321"]).success();
    let shown = kymo(&["event", "trigger", event]).success().stdout;
    assert!(shown.contains("hitcount:        321"), "{shown}");
    let wrong = kymo(&["event", "trigger", event, "hist:keys=nonsense"]).failure();
    assert!(wrong.stderr.contains("^ Couldn't find field"), "{}", wrong.stderr);
    let _ = kymo(&["event", "trigger", event, "--clear"]).success();
    assert_eq!(kymo(&["event", "trigger", event]).success().stdout, format!("{event}: none\n"));
}

#[test]
fn the_snapshot_trigger_is_taken() {
    let Some(_state) = begin() else { return };
    let event = "syscalls:sys_enter_getppid";
    let _ = kymo(&["event", "trigger", event, "snapshot:1 if common_pid == 0"]).success();
    let shown = kymo(&["event", "trigger", event]).success().stdout;
    assert!(shown.contains("snapshot:count=1 if common_pid == 0"), "{shown}");
    let _ = kymo(&["event", "trigger", event, "!snapshot"]).success();
    assert_eq!(kymo(&["event", "trigger", event]).success().stdout, format!("{event}: none\n"));
}

#[test]
fn calls_and_events_are_shown_here_too() {
    let Some(_state) = begin() else { return };
    let work = Workload::syscalls();
    let o = kymo(&["trace", "-e", "syscalls:sys_enter_getppid", "--", work.arg(), "100"]).success();
    assert_eq!(o.stdout.matches(": sys_enter_getppid:").count(), 100, "{}", o.stdout);
    let o = kymo(&["trace", "-s", "--", work.arg(), "100"]).success();
    let row = o.stdout.lines().find(|l| l.starts_with("getppid ")).unwrap();
    assert_eq!(row.split_whitespace().nth(1), Some("100"), "{row}");
}

#[test]
fn what_a_killed_tracer_changed_in_the_top_the_next_start_puts_back() {
    let Some(_state) = begin() else { return };
    let mut child = std::process::Command::new(KYMO)
        .args(["trace", "--tracer", "function_graph", "-l", SERVER])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let tracer = || std::fs::read_to_string("/sys/kernel/tracing/current_tracer").unwrap();
    let started = std::time::Instant::now();
    while tracer().trim() != "function_graph" {
        assert!(started.elapsed().as_secs() < 60, "{}", tracer());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // Another tool's start leaves it alone while it lives.
    let _ = kymo(&["event", "show"]).success();
    assert_eq!(tracer().trim(), "function_graph");
    child.kill().unwrap();
    child.wait().unwrap();
    let o = kymo(&["event", "show"]).success();
    assert!(o.stderr.contains("which made it, is dead"), "{}", o.stderr);
    assert_eq!(tracer().trim(), "nop");
    let filter = std::fs::read_to_string("/sys/kernel/tracing/set_ftrace_filter").unwrap();
    assert!(!filter.contains(SERVER), "{filter}");
}
