//! `kymo boot` of guests whose kernel traced its boot, with six slow disks: behind two adapters that
//! are scanned by who adds them, behind one with a queue that they share, behind two that are
//! scanned at the same time. Each boot is a guest of its own (`xtask`, `vm/suite.rs`), which has the
//! recordings of those before it.
//! What must be named is known by how the guest is made; how long it took at least, by the delay of
//! each command.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::Path;

use kymo_testkit::{Need, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// Delay of a command by the disks' driver: ten ticks of the kernel's 250 a second.
const DELAY: u64 = 40_000_000;
/// Commands of a disk that are delayed at least: its capacity, its caches, its partitions.
const COMMANDS: u64 = 6;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value}"))
}

fn report(args: &[&str]) -> Value {
    let text = run(KYMO, [&["boot", "report", "--json"], args].concat()).success().stdout;
    let page: Value = serde_json::from_str(&text).unwrap();
    let schema = kymo_testkit::JsonSchema::parse(include_str!("../../../docs/json.schema.json"));
    let definition = if args.contains(&"--compare") { "boot_compare" } else { "boot" };
    assert_eq!(schema.errors(definition, &page), Vec::<String>::new(), "{page:#}");
    // The path has no gaps, and its rows are the sum of its parts.
    if page["parts"].is_array() {
        let rows: u64 = list(&page["rows"]).iter().map(|r| number(&r["total_ns"])).sum();
        assert_eq!(rows, number(&page["to_ns"]) - number(&page["from_ns"]));
        for pair in list(&page["parts"]).windows(2) {
            assert_eq!(pair[0]["to_ns"], pair[1]["from_ns"]);
        }
    }
    page
}

fn has(rows: &Value, activity: &str, name: &str) -> bool {
    list(rows).iter().any(|r| r["activity"] == activity && r["name"] == name)
}

/// Nanoseconds of the path that were waits for disks.
fn waits(rows: &Value, total: &str) -> u64 {
    let scsi = |r: &&Value| r["device"].as_str().is_some_and(|d| d.starts_with("scsi "));
    list(rows).iter().filter(scsi).map(|r| number(&r[total])).sum()
}

#[test]
fn a_traced_boot_is_explained() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let line = std::fs::read_to_string("/proc/cmdline").unwrap();
    let word = |name: &str| line.split_whitespace().find_map(|w| w.strip_prefix(name));
    let boot = word("kymo_boot=").expect("the guest of a traced boot");
    // The proposal equals this kernel's command line; disks have events of their own by now.
    let parameters = run(KYMO, ["boot", "prepare", "--buffer-size", "32M"]).success().stdout;
    let (events, others): (Vec<&str>, Vec<&str>) =
        parameters.split_whitespace().partition(|w| w.starts_with("trace_event="));
    assert!(others.iter().all(|w| line.split_whitespace().any(|l| l == *w)), "{parameters} {line}");
    let events: Vec<&str> = events[0].trim_start_matches("trace_event=").split(',').collect();
    let traced = word("trace_event=").unwrap();
    assert!(traced.split(',').all(|e| events.contains(&e)), "{parameters} {line}");

    let directory = tempfile::tempdir().unwrap();
    let saved = directory.path().join("boot");
    let saved = saved.to_str().unwrap();
    let _ = run(KYMO, ["boot", "record", "-o", saved]).success();
    let tracing = std::fs::read_to_string("/sys/kernel/tracing/tracing_on").unwrap();
    assert_eq!(tracing.trim(), "0");
    let dmesg = std::fs::read_to_string(format!("{saved}/dmesg")).unwrap();
    assert!(dmesg.contains("Linux version ") && dmesg.contains(" Attached SCSI disk"));
    std::fs::create_dir_all("/vm/boots").unwrap();
    std::fs::copy(format!("{saved}/trace.dat"), "/vm/boots/recorded.dat").unwrap();

    // To the first process: the kernel unpacks the initial file system asynchronously.
    let page = report(&[saved]);
    assert_eq!(page["ends_with"], "/init");
    assert!(has(&page["longest"], "async", "do_populate_rootfs"), "{page:#}");
    assert!(list(&page["rows"]).iter().filter(|r| r["activity"] == "initcall").count() > 50);
    let missing = run(KYMO, ["boot", "report", saved, "--until", "sshd"]).failure().stderr;
    assert!(missing.contains("no program sshd starts in the recording"), "{missing}");

    // To this test, which is started when the modules are there.
    let own = std::env::current_exe().unwrap();
    let own = own.file_name().unwrap().to_str().unwrap();
    let until = report(&[saved, "--until", own]);
    assert!(number(&until["to_ns"]) > number(&page["to_ns"]), "{until:#}");
    assert_eq!(until["from_ns"], page["from_ns"]);
    let is_scsi = |h: &&Value| h["host"].as_str().unwrap().starts_with("scsi host");
    let hosts: Vec<&Value> = list(&until["hosts"]).iter().filter(is_scsi).collect();
    let (adapters, disks) = if boot == "shared" { (1, 6) } else { (2, 3) };
    assert_eq!(hosts.len(), adapters, "{until:#}");
    for (n, host) in hosts.iter().enumerate() {
        let names: Vec<String> = (0..disks).map(|disk| format!("scsi {n}:0:{disk}:0")).collect();
        assert_eq!(host["devices"], serde_json::json!(names), "{host:#}");
        let least = disks * COMMANDS * DELAY;
        assert!(number(&host["total_ns"]) >= least, "{host:#}");
        match boot {
            // One after the other.
            "shared" => assert!(host["most"] == 1 && number(&host["busy_ns"]) >= least, "{host:#}"),
            _ => assert!(number(&host["most"]) > 1, "{host:#}"),
        }
    }
    // Who scans: the module that adds the adapters, or a function for each at the same time.
    let scans = list(&until["longest"]).iter().filter(|l| l["name"] == "do_scan_async").count();
    assert_eq!(scans, if boot == "serial" { 0 } else { adapters }, "{until:#}");
    let last = adapters - 1;
    assert!(has(&until["longest"], "device", &format!("scsi_debug adapter{last}")), "{until:#}");
    assert!(has(&until["longest"], "module", "scsi_debug"), "{until:#}");
    let probe = format!("sd {last}:0:2:0");
    assert!(has(&until["longest"], "device", &probe), "{until:#}");
    // The path goes through the probe of a disk, whose commands are waited for by name.
    let disk = |r: &Value| {
        let (name, disk) = (r["name"].as_str().unwrap(), r["disk"].as_str().unwrap_or_default());
        r["activity"] == "device" && name.starts_with("sd ") && disk.starts_with("sd")
    };
    assert!(list(&until["rows"]).iter().any(disk), "{until:#}");
    let text = run(KYMO, ["boot", "report", saved, "--until", own]).success().stdout;
    let queue = text.contains("scsi host 0: its 6 devices share a queue of one");
    assert_eq!(queue, boot == "shared", "{text}");

    // The same to when systemd says that a unit was active, in its words: there is none here.
    let pid = std::process::id();
    let ready = number(&until["to_ns"]) / 1000 - 1000;
    let unit = |name: &str, pid: u32, active: u64| {
        format!(
            "Id={name}\nExecMainPID={pid}\nInactiveExitTimestampMonotonic=1000\n\
             ActiveEnterTimestampMonotonic={active}\n\n"
        )
    };
    let units = unit("own.service", pid, ready) + &unit("late.target", 0, ready * 1000);
    std::fs::write(format!("{saved}/units"), units).unwrap();
    let active = report(&[saved, "--until", "own.service"]);
    assert_eq!(
        (&active["ends_with"], number(&active["to_ns"])),
        (&"own.service".into(), ready * 1000)
    );
    assert_eq!(active["from_ns"], page["from_ns"]);
    let late = run(KYMO, ["boot", "report", saved, "--until", "late.target"]).failure().stderr;
    assert!(late.contains("the recording ends before late.target was active"), "{late}");
    let of_unit = report(&[saved, "--tid", &pid.to_string()]);
    let mut rows = list(&of_unit["rows"]).iter().filter(|r| r["activity"] == "process");
    let is_own = |r: &Value| r["name"].as_str().unwrap().ends_with(" (own.service)");
    assert!(rows.any(is_own), "{of_unit:#}");

    // Of a boot without a queue of one less is waited for than of one with it.
    if boot == "parallel" {
        let shared = "/vm/boots/shared.dat";
        assert!(Path::new("/vm/boots/serial.dat").exists());
        let now = format!("{saved}/trace.dat");
        let compare = ["--until", own, "--compare", shared, &now];
        let page = report(&compare);
        let changes: i64 =
            list(&page["rows"]).iter().map(|r| r["change_ns"].as_i64().unwrap()).sum();
        let whole = |of: &str| page[of].as_i64().unwrap();
        assert_eq!(changes, whole("second_ns") - whole("first_ns"));
        let (before, after) = (waits(&page["rows"], "first_ns"), waits(&page["rows"], "second_ns"));
        assert!(after < before, "{page:#}");
        let share: f64 =
            list(&page["rows"]).iter().map(|r| r["change_percent"].as_f64().unwrap()).sum();
        let expected = changes as f64 * 100.0 / whole("first_ns") as f64;
        assert!((share - expected).abs() < 0.01, "{share} {expected}");
        let text = run(KYMO, [&["boot", "report"][..], &compare].concat()).success().stdout;
        assert!(text.contains("waiting for scsi "), "{text}");
    }
}
