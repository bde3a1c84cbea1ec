//! kymo in the guest, whose kernel can do what the host's cannot.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use kymo_testkit::{Need, require};

const TRACING: &str = "/sys/kernel/tracing";

#[test]
fn the_guest_has_what_the_host_lacks() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let tracers = std::fs::read_to_string(format!("{TRACING}/available_tracers")).unwrap();
    let tracers: Vec<&str> = tracers.split_whitespace().collect();
    assert!(tracers.contains(&"function") && tracers.contains(&"function_graph"), "{tracers:?}");
    for file in ["kprobe_events", "uprobe_events", "synthetic_events", "snapshot"] {
        assert!(std::fs::exists(format!("{TRACING}/{file}")).unwrap(), "{file}");
    }
    let hist = format!("{TRACING}/events/sched/sched_switch/hist");
    assert!(std::fs::exists(&hist).unwrap(), "{hist}");
}
