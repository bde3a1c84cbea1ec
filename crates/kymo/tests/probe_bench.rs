//! `kymo probe bench` on the running kernel: what it measures is plausible, what the
//! kernel lacks is said, and nothing of it stays, however it ends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::{Need, TracingState, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

fn ready() -> bool {
    require(&[Need::Root, Need::Tracefs])
}

fn rows(args: &[&str]) -> Vec<serde_json::Value> {
    let mut all = vec!["probe", "bench", "--json", "--pairs", "5"];
    all.extend(args);
    let text = run(KYMO, all).success().stdout;
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn left_over() -> Vec<String> {
    let text = std::fs::read_to_string("/sys/kernel/tracing/uprobe_events").unwrap();
    text.lines().filter(|l| l.contains("kymo_bench")).map(str::to_owned).collect()
}

#[test]
fn a_single_step_costs_several_times_a_nop() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let rows = rows(&["uprobe on nop", "uprobe on ret", "uretprobe", "USDT*", "kprobe*"]);
    let of = |name: &str| {
        let row = rows.iter().find(|r| r["probe"] == name).unwrap();
        row["ns"].as_f64().unwrap_or_else(|| panic!("{row}"))
    };
    let (nop, ret) = (of("uprobe on nop"), of("uprobe on ret"));
    assert!((100.0..100_000.0).contains(&nop) && ret > 3.0 * nop, "nop {nop}, ret {ret}");
    assert!(of("uretprobe") > nop, "{rows:?}");
    assert!(of("USDT probe, 2 arguments") > 0.7 * nop, "{rows:?}");
    assert!(of("USDT with semaphore, 2 arguments") > 0.7 * nop, "{rows:?}");
    // No reader: a load and a branch, in a function of nothing.
    assert!(of("USDT with semaphore that is off").abs() < 20.0, "{rows:?}");
    if !std::path::Path::new("/sys/kernel/tracing/kprobe_events").exists() {
        let kernel = rows.iter().find(|r| r["probe"] == "kprobe at a function's entry").unwrap();
        assert!(kernel["missing"].as_str().unwrap().contains("CONFIG_KPROBE_EVENTS"), "{kernel}");
    }
    let unknown = run(KYMO, ["probe", "bench", "nonsense"]).failure().stderr;
    assert!(unknown.contains("no such benchmark: nonsense"), "{unknown}");
}

#[test]
fn nothing_stays_of_one_that_is_ended() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let start = || {
        let mut bench = Command::new(KYMO);
        bench.args(["probe", "bench", "--pairs", "1000", "uprobe on ret"]);
        let child = bench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let group = format!("kymo_bench_{}", child.id());
        let begun = Instant::now();
        while !left_over().iter().any(|l| l.contains(&group)) {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(2));
        }
        (child, group)
    };
    let end = |signal: &str, pid: u32| {
        let _ = run("kill", [signal, &pid.to_string()]).success();
    };
    for signal in ["-INT", "-TERM"] {
        let (mut child, group) = start();
        end(signal, child.id());
        assert!(!child.wait().unwrap().success());
        assert!(!left_over().iter().any(|l| l.contains(&group)), "{signal}: {:?}", left_over());
    }
    // After SIGKILL the next start of anything that traces removes it.
    let (mut child, group) = start();
    end("-KILL", child.id());
    child.wait().unwrap();
    // The program that was measured lives on for a moment and keeps nothing. Another
    // test's kymo may be faster than this one.
    let _ = run(KYMO, ["probe", "--list"]).success();
    assert!(!left_over().iter().any(|l| l.contains(&group)), "{:?}", left_over());
}
