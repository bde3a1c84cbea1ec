//! perf's own shell tests of kernel 6.1 (`tools/perf/tests/shell`), run with kymo under the name
//! `perf`: those that perf passes on this machine pass. Of perf 7's, a third of the quick ones is run
//! (`cargo xtask perf-tests` runs all); what they look for besides is checked by tests of our own.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use kymo_testkit::{
    Need, Outcome, PerfProgram, PerfTests, TracingState, kernel_source, require, run, run_command,
};

/// Those of a daemon that kymo has sessions for, of other processors, and of the keys of JSON
/// before perf 7, whose version the name answers with (`aggregate-number` is `counters` now).
const LEFT_OUT: [&str; 3] = ["daemon.sh", "test_arm", "stat+json_output.sh"];

/// Runs a script with this `perf` and gives its status and what it said.
fn status(script: &Path, perf: &Path, home: &Path) -> (Option<i32>, String) {
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=5", "120", "bash"])
        .arg(script)
        .current_dir(script.parent().unwrap());
    command.env("PATH", format!("{}:{path}", perf.display()));
    // Binaries that recordings name are cached there.
    command.env("HOME", home).env_remove("PERF_CONFIG").stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
    (output.status.code(), text.concat())
}

#[test]
fn what_perf_passes_kymo_passes() {
    let needs = [Need::Root, Need::Perf, Need::PerfEvents, Need::Tracefs, Need::Gcc];
    if !require(&needs) || !require(&[Need::KernelSource]) {
        return;
    }
    let _state = TracingState::take();
    let dir = tempfile::tempdir().unwrap();
    let unpacked = Command::new("tar")
        .arg("xJf")
        .arg(kernel_source().unwrap())
        .args(["--wildcards", "--strip-components=3", "-C"])
        .arg(dir.path())
        .args(["*/tools/perf/tests/shell/*.sh", "*/tools/perf/tests/shell/lib/*"])
        .status()
        .unwrap();
    assert!(unpacked.success());
    let home = dir.path().join("home");
    let (perf, kymo) = (dir.path().join("perf"), dir.path().join("kymo"));
    for directory in [&home, &perf, &kymo] {
        fs::create_dir(directory).unwrap();
    }
    symlink("/usr/bin/perf", perf.join("perf")).unwrap();
    symlink(env!("CARGO_BIN_EXE_kymo"), kymo.join("perf")).unwrap();
    let mut scripts: Vec<_> = fs::read_dir(dir.path().join("tests/shell"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "sh"))
        .collect();
    scripts.sort();
    let (mut passed, mut failed) = (Vec::new(), Vec::new());
    for script in scripts {
        let name = script.file_name().unwrap().to_str().unwrap().to_owned();
        if LEFT_OUT.iter().any(|begin| name.starts_with(begin))
            || status(&script, &perf, &home).0 != Some(0)
        {
            continue;
        }
        match status(&script, &kymo, &home) {
            (Some(0), _) => passed.push(name),
            (status, text) => failed.push(format!("{name}: {status:?}\n{text}")),
        }
    }
    assert!(failed.is_empty(), "passed: {passed:?}\nfailed: {}", failed.join("\n"));
    // Others need what a machine may lack: cycles, sources, a just-in-time compiler.
    for name in ["buildid.sh", "pipe_test.sh", "stat+csv_output.sh", "stat.sh"] {
        assert!(passed.iter().any(|p| p == name), "{name} is not among {passed:?}");
    }
}

/// Quick tests of perf 7 that need neither a counter of the processor nor much time. A run takes
/// every third of them, others each day.
const QUICK: [&str; 15] = [
    "attr.sh",
    "buildid.sh",
    "data_file_offset_diagnostics.sh",
    "data_validation.sh",
    "evlist.sh",
    "header.sh",
    "kallsyms.sh",
    "kwork.sh",
    "list.sh",
    "perf-report-hierarchy.sh",
    "sched.sh",
    "stat+csv_output.sh",
    "stat+json_output.sh",
    "stat+std_output.sh",
    "test_perf_data_converter_json.sh",
];

#[test]
fn the_days_third_of_the_newest_perfs_quick_tests_passes() {
    let needs = [Need::Root, Need::NewestPeers, Need::PerfEvents, Need::Tracefs, Need::Gcc];
    if !require(&needs) {
        return;
    }
    let _state = TracingState::take();
    let tests = PerfTests::new(Path::new(env!("CARGO_BIN_EXE_kymo"))).unwrap().unwrap();
    let day = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() / 86400;
    let first = usize::try_from(day % 3).unwrap();
    let mut failed = Vec::new();
    for name in QUICK.iter().skip(first).step_by(3) {
        let outcome = tests.run(name, PerfProgram::Kymo, Duration::from_secs(60)).unwrap();
        if outcome.status != Some(0) {
            failed.push(format!("{name}: {:?}\n{}", outcome.status, outcome.text));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The program under the name perf.
struct PerfLink {
    dir: tempfile::TempDir,
}

impl PerfLink {
    fn new() -> PerfLink {
        let dir = tempfile::tempdir().unwrap();
        symlink(env!("CARGO_BIN_EXE_kymo"), dir.path().join("perf")).unwrap();
        PerfLink { dir }
    }

    fn program(&self) -> String {
        self.dir.path().join("perf").display().to_string()
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn run(&self, args: &[&str]) -> Outcome {
        run(self.program(), args)
    }

    /// Runs a shell line in which `perf` is the program.
    fn shell(&self, line: &str) -> Outcome {
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.dir.path());
        command.env("PATH", format!("{}:{path}", self.dir.path().display()));
        run_command(command)
    }
}

#[test]
fn workloads_have_the_names_and_symbols_that_scripts_look_for() {
    let perf = PerfLink::new();
    let symbols = perf.run(&["test", "-vv", "-F", "Symbols"]).success().stdout;
    for symbol in ["noploop", "test_loop", "thfunc", "leaf", "parent", "datasym", "test_rs"] {
        assert!(symbols.lines().any(|l| l.ends_with(&format!(" {symbol}"))), "{symbol}: {symbols}");
    }
    let names = perf.run(&["test", "--list-workloads"]).success().stdout;
    for name in names.lines() {
        // Seconds of some, rounds of others.
        let few = if matches!(name, "brstack" | "traploop") { "10" } else { "0.02" };
        let _ = perf.run(&["test", "-w", name, few]).success();
    }
    assert!(names.lines().any(|name| name == "noploop"));
    let wrong = perf.run(&["test", "-w", "thloop", "0"]).expect_status(255);
    assert!(wrong.stderr.contains("number of seconds must be positive: 0"), "{wrong:?}");
    let unknown = perf.run(&["test", "-w", "nonsense"]).expect_status(255);
    assert!(unknown.stderr.contains("no workload 'nonsense'"), "{unknown:?}");
    let xml = perf.file("junit.xml");
    let _ = perf.run(&["test", &format!("-j{xml}"), "symbols"]).success();
    let xml = fs::read_to_string(xml).unwrap();
    assert!(xml.contains("tests=\"1\" failures=\"0\" skipped=\"0\""), "{xml}");
    // No test has this in its name.
    let _ = perf.run(&["test", "-v", "-j/dev/null", "util"]).success();
}

#[test]
fn features_are_checked_by_status() {
    let perf = PerfLink::new();
    let _ = perf.run(&["check", "feature", "-q", "dwarf"]).success();
    let _ = perf.run(&["check", "feature", "zlib,HAVE_ZSTD_SUPPORT"]).success();
    let off = perf.run(&["check", "feature", "zlib,libpython"]).expect_status(1);
    assert!(off.stdout.contains("libpython: [ OFF ]"), "{off:?}");
    let unknown = perf.run(&["check", "feature", "-q", "nonsense"]).expect_status(255);
    assert!(unknown.stderr.contains("--build-options"), "{unknown:?}");
    let options = perf.run(&["version", "--build-options"]).success().stdout;
    assert!(options.lines().any(|l| l == "                  zlib: [ on  ]  # HAVE_ZLIB_SUPPORT"));
}

#[test]
fn metrics_are_those_of_perf_7() {
    if !require(&[Need::PerfEvents]) {
        return;
    }
    let perf = PerfLink::new();
    let file = perf.file("stat.json");
    let _ = perf.run(&["stat", "-j", "-o", &file, "true"]).success();
    let text = fs::read_to_string(&file).unwrap();
    let rows: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.iter().all(|r| matches!(r.as_object().unwrap().len(), 5 | 7)), "{text}");
    let metric = |event: &str| {
        let row = rows.iter().find(|r| r["event"] == event).unwrap();
        let value: f64 = row["metric-value"].as_str().unwrap().parse().unwrap();
        let number = |key: &str| row[key].as_str().unwrap().parse::<f64>().unwrap();
        (row["metric-unit"].as_str().unwrap().to_owned(), value, number("counter-value"))
    };
    let (unit, per_second, faults) = metric("page-faults");
    assert_eq!(unit, "faults/sec  page_faults_per_second");
    let (unit, _, milliseconds) = metric("task-clock");
    assert_eq!(unit, "CPUs  CPUs_utilized");
    assert!((per_second / (faults / milliseconds * 1e3) - 1.0).abs() < 1e-3, "{text}");
    // Of named events perf derives nothing.
    let named = perf.run(&["stat", "-j", "-e", "task-clock", "true"]).success().stderr;
    assert!(!named.contains("metric-value"), "{named}");
    let only = perf.run(&["stat", "-j", "--metric-only", "-M", "page_faults_per_second", "true"]);
    let only: serde_json::Value = serde_json::from_str(only.success().stderr.trim()).unwrap();
    let names: Vec<&String> = only.as_object().unwrap().keys().collect();
    assert_eq!(names, ["faults/sec  page_faults_per_second"]);
}

#[test]
fn counts_are_a_table_of_script() {
    if !require(&[Need::PerfEvents]) {
        return;
    }
    let perf = PerfLink::new();
    let table = perf.shell(
        "perf stat record -e task-clock,page-faults -o - true 2>/dev/null | perf script -i -",
    );
    let table = table.success().stdout;
    let lines: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["CPU", "THREAD", "VAL", "ENA", "RUN", "TIME", "EVENT"], "{table}");
    let events: Vec<&str> = lines[1..].iter().map(|l| *l.last().unwrap()).collect();
    assert_eq!(events, ["task-clock", "page-faults"], "{table}");
    assert!(lines[1..].iter().all(|l| l.len() == 7 && l[2] != "0"), "{table}");
}

#[test]
fn a_pipe_has_a_header() {
    if !require(&[Need::PerfEvents]) {
        return;
    }
    let perf = PerfLink::new();
    let header = perf.shell(
        "perf record -q -e cpu-clock:u -o - perf test -w noploop 0.05 | perf report --header-only -I -i -",
    );
    let header = header.success().stdout;
    for field in [
        "hostname : ",
        "os release : ",
        "arch : ",
        "nrcpus online : ",
        "cmdline : ",
        "event : name = cpu-clock:u",
        "total memory : ",
        "captured on",
    ] {
        assert!(header.contains(field), "{field}: {header}");
    }
}

#[test]
fn stacks_become_call_chains() {
    if !require(&[Need::PerfEvents]) {
        return;
    }
    let perf = PerfLink::new();
    let (copies, chains) = (perf.file("copies.data"), perf.file("chains.data"));
    let program = perf.program();
    let record = ["record", "-q", "-e", "task-clock:u", "--call-graph", "dwarf", "-o", &copies];
    let _ =
        perf.run(&[&record[..], &["--", &program, "test", "-w", "thloop", "0.2", "3"]].concat());
    let _ = perf.run(&["inject", "--convert-callchain", "-i", &copies, "-o", &chains]).success();
    let events = perf.run(&["evlist", "-v", "-i", &chains]).success().stdout;
    assert!(events.contains("CALLCHAIN"), "{events}");
    assert!(!events.contains("STACK_USER") && !events.contains("REGS_USER"), "{events}");
    assert!(fs::metadata(&chains).unwrap().len() * 4 < fs::metadata(&copies).unwrap().len());
    let script = |file: &str| {
        let script = ["script", "-F", "comm,tid,time,ip,sym", "-i", file];
        perf.run(&script).success().stdout
    };
    let (before, after) = (script(&copies), script(&chains));
    assert!(before.contains("thfunc") && before.contains("test_loop"), "{before}");
    assert_eq!(before, after);
}

#[test]
fn a_chart_has_lanes_of_cpus_and_tasks() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let _state = TracingState::take();
    let perf = PerfLink::new();
    let (data, chart) = (perf.file("sched.data"), perf.file("chart.svg"));
    let record =
        ["timechart", "record", "-o", &data, "--", &perf.program(), "test", "-w", "noploop", "0.3"];
    let _ = perf.run(&record).success();
    let _ = perf.run(&["timechart", "-n", "1000", "-i", &data, "-o", &chart]).success();
    let svg = fs::read_to_string(&chart).unwrap();
    assert!(svg.ends_with("</svg>\n") && svg.contains(">CPU 0</text>"), "{svg}");
    // It ran longest, or among the longest.
    assert!(svg.contains(">perf-noploop "), "{svg}");
    assert_eq!(
        svg.matches("<rect").count(),
        svg.matches("/>").count() - svg.matches("<line").count() + svg.matches("</rect>").count()
    );
    // Under its own name nothing is replaced unasked.
    let refused =
        run(env!("CARGO_BIN_EXE_kymo"), ["timechart", "-i", &data, "-o", &chart]).failure();
    assert!(refused.stderr.contains("already exists"), "{refused:?}");
}

#[test]
fn calls_and_tracepoints_have_perfs_lines() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let _state = TracingState::take();
    let perf = PerfLink::new();
    let program = perf.program();
    let calls = ["trace", "-e", "landlock_add_rule", &program, "test", "-w", "landlock"];
    let calls = perf.run(&calls).success().stderr;
    // The numbers are those of the workload, the names those of the kernel's header.
    for rule in ["LANDLOCK_RULE_PATH_BENEATH", "LANDLOCK_RULE_NET_PORT"] {
        let begin = format!(" landlock_add_rule(ruleset_fd: 11, rule_type: {rule}, rule_attr: 0x");
        let line = calls.lines().find(|l| l.contains(&begin)).unwrap_or_else(|| panic!("{calls}"));
        assert!(line.contains(", flags: 45)") && line.contains(" = -1 "), "{line}");
    }
    let exits = ["trace", "--no-comm", "-e", "syscalls:sys_enter_exit_group", "true"];
    for _ in 0..5 {
        let said = perf.run(&exits).success().stderr;
        let line =
            said.lines().find(|l| l.contains("exit_group")).unwrap_or_else(|| panic!("{said}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((words[0], words[2]), ("0.000", "syscalls:sys_enter_exit_group()"), "{line}");
        assert!(words[1].parse::<u32>().is_ok(), "{line}");
    }
}

#[test]
fn what_a_machine_does_not_count_is_replaced_and_said() {
    if !require(&[Need::PerfEvents]) {
        return;
    }
    let perf = PerfLink::new();
    let data = perf.file("cycles.data");
    let recorded = perf.run(&["record", "-e", "cycles:u", "-o", &data, "true"]).success().stderr;
    let events = perf.run(&["evlist", "-i", &data]).success().stdout;
    if recorded.contains("cycles:u is not supported on this machine: recording task-clock") {
        assert!(events.lines().any(|l| l == "task-clock:u"), "{events}")
    } else {
        assert!(events.lines().any(|l| l == "cycles:u"), "{events}")
    }
    assert!(recorded.contains("Woken up "), "{recorded}");
}

#[test]
fn a_record_that_is_too_short_for_its_fields_is_named() {
    if !require(&[Need::PerfEvents]) {
        return;
    }
    let perf = PerfLink::new();
    let data = perf.file("perf.data");
    let _ = perf.run(&["record", "-q", "-e", "cpu-clock:u", "-o", &data, "true"]).success();
    let dump = perf.run(&["report", "-D", "-i", &data]).success().stdout;
    let line = dump.lines().find(|l| l.contains("PERF_RECORD_MMAP2")).unwrap();
    let offset = line.split_whitespace().find(|word| word.starts_with("0x")).unwrap();
    let at = usize::from_str_radix(&offset[2..], 16).unwrap();
    let mut bytes = fs::read(&data).unwrap();
    bytes[at + 6..at + 8].copy_from_slice(&16u16.to_ne_bytes());
    fs::write(&data, bytes).unwrap();
    let said = perf.run(&["report", "-i", &data, "--stdio"]).stderr;
    let fact = format!("at offset {offset}: MMAP2 (10) states a size of 16 bytes");
    assert!(said.contains(&fact), "{fact}: {said}");
}

#[test]
fn compressed_records_are_counted_and_unpacked() {
    if !require(&[Need::PerfEvents]) {
        return;
    }
    let perf = PerfLink::new();
    let (packed, plain) = (perf.file("packed.data"), perf.file("plain.data"));
    let program = perf.program();
    let record = ["record", "-q", "-e", "cpu-clock:u", "-z", "-o", &packed];
    let _ = perf.run(&[&record[..], &["--", &program, "test", "-w", "noploop", "0.3"]].concat());
    let stats = perf.run(&["report", "--stats", "-i", &packed]).success().stdout;
    assert!(stats.contains("COMPRESSED2 events:"), "{stats}");
    let _ = perf.run(&["inject", "-i", &packed, "-o", &plain]).success();
    let samples = |file: &str| perf.run(&["script", "-i", file]).success().stdout;
    assert_eq!(samples(&packed), samples(&plain));
}
