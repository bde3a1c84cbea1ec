//! Probes of a kernel that has them: functions, returns and a module, by the
//! kernel's own symbols and by definitions that another machine made from the
//! debugging information; added, hit, with the values that a known program makes,
//! removed.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use kymo_testkit::{Need, Outcome, TracingState, Workload, load_module, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

/// Runs a program under `kymo record` and gives the lines of the events.
fn hits(events: &str, program: &[&str]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("perf.data");
    let data = data.to_str().unwrap();
    let mut args = vec!["record", "-q", "-e", events, "-o", data, "--"];
    args.extend(program);
    let _ = kymo(&args).success();
    let shown = kymo(&["script", "-i", data]).success().stdout;
    shown.lines().map(str::to_owned).collect()
}

fn count(lines: &[String], parts: &[&str]) -> usize {
    lines.iter().filter(|l| parts.iter().all(|p| l.contains(p))).count()
}

fn ready() -> bool {
    require(&[Need::Root, Need::Tracefs, Need::PerfEvents])
}

#[test]
fn functions_and_returns_of_the_kernel() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let program = Workload::compile("opens", include_str!("guest_programs/opens.c"));
    let path = program.program().to_str().unwrap();
    let _ = kymo(&["probe", "-q", "do_sys_openat2 dfd=%di:s32 name=+0(%si):ustring"]).success();
    let _ = kymo(&["probe", "-q", "do_sys_openat2%return ret=$retval:s64"]).success();
    // As `kymo probe -D 'opened=do_sys_openat2 filename:ustring how->flags'` gives it
    // with this kernel's vmlinux.
    let _ = kymo(&[
        "probe",
        "-q",
        "p:probe/opened do_sys_openat2+0 filename=+0(%si):ustring flags=+0(%dx):x64",
    ])
    .success();
    let list = kymo(&["probe", "-l"]).success().stdout;
    for part in [
        "probe:do_sys_openat2 ",
        "probe:do_sys_openat2__return ",
        "with dfd name",
        "with filename flags",
    ] {
        assert!(list.contains(part), "{part}\n{list}");
    }
    let lines = hits("probe:*", &[path, "8"]);
    let name = "name=\"/tmp/kymo-known-file\"";
    assert_eq!(count(&lines, &["probe:do_sys_openat2:", "dfd=-100", name]), 8, "{lines:#?}");
    // O_RDWR | O_CREAT | O_LARGEFILE six times, O_RDONLY | O_LARGEFILE twice.
    let known = "filename=\"/tmp/kymo-known-file\"";
    assert_eq!(count(&lines, &["probe:opened:", known, "flags=0x8042"]), 6, "{lines:#?}");
    assert_eq!(count(&lines, &["probe:opened:", known, "flags=0x8000"]), 2, "{lines:#?}");
    assert_eq!(count(&lines, &["probe:do_sys_openat2__return:", "ret=-2"]), 1, "{lines:#?}");
    let verbose = kymo(&["probe", "-l", "-v"]).success().stdout;
    assert!(verbose.contains(" hits, 0 missed"), "{verbose}");
    let _ = kymo(&["probe", "-q", "--del", "probe:*"]).success();
    assert_eq!(kymo(&["probe", "-l"]).success().stdout, "");
}

/// The kernel that boots writes `p:kprobes/EVENT PROBE` for each value (trace_boot.c), which this
/// kernel takes from a file in the same words.
#[test]
fn what_a_boot_configuration_defines_is_what_the_kernel_takes() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let shown = kymo(&[
        "probe",
        "--bootconfig",
        "-D",
        "opened=do_sys_openat2 name=+0(%si):ustring",
        "-D",
        "p:other/opened do_sys_open name=+0(%si):ustring",
        "-D",
        "vfs_read%return $retval",
    ])
    .success();
    assert!(shown.stderr.contains("other:opened is in the group kprobes"), "{}", shown.stderr);
    let lines: Vec<&str> = shown.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in lines {
        let (key, values) = line.split_once(" = ").unwrap();
        let event = key.strip_prefix("ftrace.event.kprobes.").unwrap();
        let event = event.strip_suffix(".probes").unwrap();
        for value in values.split("\", \"") {
            let probe = format!("p:kprobes/{event} {}\n", value.trim_matches('"'));
            let mut file = std::fs::OpenOptions::new()
                .append(true)
                .open("/sys/kernel/tracing/kprobe_events")
                .unwrap();
            std::io::Write::write_all(&mut file, probe.as_bytes()).expect(&probe);
        }
    }
    let listed = kymo(&["probe", "-l", "-v"]).success().stdout;
    let removed = kymo(&["probe", "-q", "-d", "kprobes:*"]);
    assert_eq!(listed.matches("kprobes/opened").count(), 2, "{listed}");
    // The kernel says how many calls it watches at a time: r10.
    let is_return = |l: &str| l.trim().starts_with('r') && l.contains(":kprobes/vfs_read__return ");
    assert!(listed.lines().any(is_return), "{listed}");
    let _ = removed.success();
}

#[test]
fn globs_and_what_cannot_be() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let _ = kymo(&["probe", "-q", "vfs_read* %di"]).success();
    let list = kymo(&["probe", "-l"]).success().stdout;
    assert!(list.contains("probe:vfs_read ") && list.contains("probe:vfs_readlink "), "{list}");
    let _ = kymo(&["probe", "-q", "--del", "probe:vfs_*"]).success();
    let variable = kymo(&["probe", "vfs_read file->f_mode"]).failure().stderr;
    assert!(variable.contains("no vmlinux") && variable.contains("-dbg"), "{variable}");
    let unknown = kymo(&["probe", "vfs_raed"]).failure().stderr;
    assert!(unknown.contains("no function vfs_raed"), "{unknown}");
    // Functions on the kernel's blacklist are refused by the kernel, in its words.
    let refused = kymo(&["probe", "exc_int3"]).failure().stderr;
    assert!(refused.contains("the kernel refused"), "{refused}");
    // What was added before the one that fails is removed again.
    let both =
        kymo(&["probe", "--add", "vfs_read", "--add", "bad=vfs_write %nosuch"]).failure().stderr;
    assert!(both.contains("the kernel refused"), "{both}");
    assert_eq!(kymo(&["probe", "-l"]).success().stdout, "");
}

#[test]
fn functions_of_a_module() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    load_module("scsi_debug", "dev_size_mb=8");
    let functions = kymo(&["probe", "-m", "scsi_debug", "-F", "*delay_show"]).success().stdout;
    assert!(functions.lines().any(|l| l == "delay_show"), "{functions}");
    let _ = kymo(&["probe", "-q", "-m", "scsi_debug", "delay_show%return $retval"]).success();
    let definition = kymo(&["probe", "-m", "scsi_debug", "-D", "delay_show"]).success().stdout;
    assert_eq!(definition, "p:probe/delay_show scsi_debug:delay_show+0\n");
    let lines =
        hits("probe:delay_show__return", &["cat", "/sys/bus/pseudo/drivers/scsi_debug/delay"]);
    assert_eq!(count(&lines, &["probe:delay_show__return:", "arg1=0x2"]), 1, "{lines:#?}");
    let _ = kymo(&["probe", "-q", "--del", "probe:*"]).success();
}

#[test]
fn what_a_hit_costs() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let switch = "/proc/sys/debug/kprobes-optimization";
    let before = std::fs::read_to_string(switch).unwrap();
    let text = kymo(&["probe", "bench", "--json", "--pairs", "3", "k*"]).success().stdout;
    let rows: Vec<serde_json::Value> =
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    for name in [
        "kprobe at a function's entry",
        "kprobe inside, breakpoint",
        "kprobe inside, optimized to a jump",
        "kretprobe",
    ] {
        // Times in the guest mean nothing, but that each was hit as often as expected.
        let row = rows.iter().find(|r| r["probe"] == name).unwrap();
        assert!(row["ns"].is_number(), "{row}");
    }
    let jump = rows.iter().find(|r| r["probe"] == "kretprobe, optimized to a jump").unwrap();
    assert!(jump["missing"].as_str().unwrap().contains("function tracer's call"), "{jump}");
    assert_eq!(std::fs::read_to_string(switch).unwrap(), before);
    let flight =
        kymo(&["probe", "--preflight", "0.5", "getppid=__do_sys_getppid"]).success().stdout;
    assert!(flight.contains("probe:getppid is hit 0.0 times a second, about 0.00 ms"), "{flight}");
    assert!(flight.contains(" ns a hit, measured here now)"), "{flight}");
    let _ = kymo(&["probe", "-q", "--del", "probe:getppid"]).success();
    assert_eq!(kymo(&["probe", "-l"]).success().stdout, "");
}
