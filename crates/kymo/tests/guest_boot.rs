//! `kymo boot report` of SCSI disks that are scanned serially and in parallel, with a queue that
//! they share and without: it names where the time goes in each. Delays are those of scsi_debug,
//! made on purpose.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use kymo_testkit::{Need, TracingState, load_module, require, run, unload_module};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// Events of a boot that loading modules makes.
const EVENTS: &str = "initcall:initcall_start,initcall:initcall_finish,module:module_load,\
     sched:sched_switch,sched:sched_waking,sched:sched_wakeup_new,sched:sched_process_exec,\
     workqueue:workqueue_queue_work,workqueue:workqueue_execute_start,\
     workqueue:workqueue_execute_end,scsi:scsi_dispatch_cmd_start,scsi:scsi_dispatch_cmd_done";

fn report(path: &str, more: &[&str]) -> Value {
    let text = run(KYMO, [&["boot", "report", path, "--json"], more].concat()).stdout;
    let page: Value = serde_json::from_str(&text).unwrap();
    let schema = kymo_testkit::JsonSchema::parse(include_str!("../../../docs/json.schema.json"));
    assert_eq!(schema.errors("boot", &page), Vec::<String>::new(), "{page:#}");
    page
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value}"))
}

/// Traces a script that makes disks by scsi_debug, whose commands take some jiffies each.
fn scan(path: &str, script: &str) {
    load_module("scsi_mod", "scan=async");
    load_module("sd_mod", "");
    let script = format!(
        "load() {{ /init load scsi_debug \"num_tgts=3 max_luns=1 dev_size_mb=8 delay=3 $*\"; }}
         wait_for() {{
             until [ $(ls -d /sys/block/sd* 2>/dev/null | wc -l) = $1 ]; do sleep 0.05; done
             sleep 0.3
         }}
         {script}"
    );
    let trace = ["trace", "-q", "-o", path, "-m", "8M", "-a", "-e", EVENTS, "--", "sh", "-c"];
    let _ = run(KYMO, [&trace[..], &[&script]].concat()).success();
    ["scsi_debug", "sd_mod", "scsi_mod"].into_iter().for_each(unload_module);
}

#[test]
fn hosts_that_are_scanned_serially_and_queues_of_one_are_named() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (serial, shared, free) = (path("serial.dat"), path("shared.dat"), path("free.dat"));
    let add_host = "echo 1 > /sys/bus/pseudo/drivers/scsi_debug/add_host";
    scan(&serial, &format!("load add_host=1; wait_for 3; {add_host}; wait_for 6"));
    scan(&shared, "load add_host=2 max_queue=1 host_max_queue=1; wait_for 6");
    scan(&free, "load add_host=2; wait_for 6");
    let hosts = |page: &Value| -> Vec<Value> {
        let is_scsi = |h: &&Value| h["host"].as_str().unwrap().starts_with("scsi host");
        list(&page["hosts"]).iter().filter(is_scsi).cloned().collect()
    };
    let of_sh = ["--comm", "sh"];
    for path in [&serial, &shared, &free] {
        let page = report(path, &of_sh);
        let hosts = hosts(&page);
        assert_eq!(hosts.len(), 2, "{path} {page:#}");
        assert_eq!(page["hosts_are_serial"], path == &serial, "{path} {page:#}");
        let most: Vec<u64> = hosts.iter().map(|h| number(&h["most"])).collect();
        assert_eq!(most == [1, 1], path == &shared, "{path} {page:#}");
        for host in &hosts {
            assert_eq!(list(&host["devices"]).len(), 3, "{path} {host}");
            assert!(number(&host["busy_ns"]) <= number(&host["total_ns"]), "{host}");
        }
        // The path has no gaps, and its rows are the sum of its parts.
        let span = number(&page["to_ns"]) - number(&page["from_ns"]);
        let rows: u64 = list(&page["rows"]).iter().map(|r| number(&r["total_ns"])).sum();
        assert_eq!(rows, span, "{page:#}");
        for pair in list(&page["parts"]).windows(2) {
            assert_eq!(pair[0]["to_ns"], pair[1]["from_ns"]);
        }
        // Loading the module is in it, by its name.
        let longest = list(&page["longest"]);
        assert!(longest.iter().any(|l| l["name"] == "scsi_debug"), "{page:#}");
    }
    // Disks that are waited for are named.
    let page = report(&serial, &["--comm", "init"]);
    let waits: u64 = list(&page["rows"])
        .iter()
        .filter(|r| r["device"].as_str().is_some_and(|d| d.starts_with("scsi ")))
        .map(|r| number(&r["total_ns"]))
        .sum();
    assert!(waits > 0, "{page:#}");
    let text = run(KYMO, ["boot", "report", &shared, "--comm", "sh"]).stdout;
    assert!(text.contains("its 3 devices share a queue of one"), "{text}");
    let text = run(KYMO, ["boot", "report", &serial, "--comm", "sh"]).stdout;
    assert!(text.contains("2 SCSI hosts are scanned one after the other"), "{text}");
    let compared = run(KYMO, ["boot", "report", "--comm", "sh", "--compare", &serial, &free]);
    assert!(compared.stdout.contains("first     second"), "{}", compared.stdout);
    assert_eq!(state.left_behind(), None);
}

#[test]
fn a_boot_that_was_not_traced_is_not_recorded() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let there = directory.path().join("boot");
    let refused = run(KYMO, ["boot", "record", "-o", there.to_str().unwrap()]).expect_status(1);
    assert!(refused.stderr.contains("/proc/cmdline has no trace_event="), "{}", refused.stderr);
    assert!(!there.exists());
    let parameters = run(KYMO, ["boot", "prepare"]).success().stdout;
    assert!(parameters.contains("trace_event=initcall:initcall_start,"), "{parameters}");
}
