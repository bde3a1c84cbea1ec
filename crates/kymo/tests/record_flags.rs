//! Each flag of `kymo record` opens what perf opens for it, and refusals name
//! what is wrong and the way out.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kymo_testkit::{
    CheckedPerfData, Need, Outcome, Peer, TestCgroup, TracingState, Workload, check_perf_data,
    lines_with, peer, perf, require, run,
};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 5] = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Perf, Need::Gcc];

#[track_caller]
fn record(args: &[&str]) -> Outcome {
    run(KYMO, [&["record"], args].concat())
}

/// The attributes of a recording's events, one a line, as perf reads them.
#[track_caller]
fn attributes(path: &str) -> Vec<String> {
    let text = perf(["evlist", "-v", "-i", path]).success().stdout;
    text.lines().filter(|l| !l.starts_with('#')).map(attribute).collect()
}

/// Without what kymo asks for and perf does not (build-ids of mappings) or the
/// other way round (BPF programs, never read by either), and with one name for the
/// two ways to put an event's id into its samples.
fn attribute(line: &str) -> String {
    let mut line = line.replace(", build_id: 1", "").replace(", bpf_event: 1", "");
    // perf prints this union where `config1` has a value, or not, as it happens.
    if let Some(at) = line.find(", { bp_addr, config1 }") {
        line.truncate(at);
    }
    line.replace("|ID|", "|").replace("|ID,", ",").replace("|IDENTIFIER", "")
}

/// Records the same with both tools and compares the attributes.
#[track_caller]
fn as_perf(w: &Workload, flags: &[&str], command: &[&str]) {
    let (ours, theirs) = (w.file("ours.data"), w.file("theirs.data"));
    let clock = if flags.contains(&"-k") { &[][..] } else { &["-k", "monotonic"] };
    // perf would copy every binary to its cache.
    let tail = [clock, &["-N", "--"], command].concat();
    let _ = record(&[&["-q", "-o", &ours], flags, &tail].concat()).success();
    let _ = perf([&["record", "-q", "-o", &theirs], flags, &tail].concat()).success();
    assert_eq!(attributes(&ours), attributes(&theirs), "{flags:?}");
}

#[test]
fn events_are_opened_as_perf_opens_them() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let (clock, faults) = ("cpu-clock", "page-faults");
    // perf takes a second for each: flags that do not meddle share one.
    let cases: [&[&str]; 18] = [
        &["-e", clock, "-F", "max"],
        &["-e", clock, "-c", "100000"],
        &["-e", clock, "-R"],
        &["-e", clock, "-F", "99", "-g", "-s", "-T", "-P", "-m", "64"],
        &["-e", clock, "-d", "--namespaces", "--switch-events", "--sample-cpu", "--no-buildid"],
        &["-e", clock, "--no-inherit"],
        &["-e", clock, "--all-user", "--weight", "--phys-data"],
        &["-e", "raw_syscalls:sys_enter", "--all-kernel"],
        &["-e", clock, "-g", "--user-callchains", "--transaction"],
        &["-e", clock, "-g", "--kernel-callchains", "--code-page-size"],
        &["-e", clock, "--data-page-size", "--sample-identifier", "--synth", "task"],
        &["-e", clock, "--user-regs=ip,sp", "-Iax"],
        &["-e", clock, "--user-regs", "--intr-regs", "--all-cgroups"],
        &["-e", "cpu-clock,page-faults", "--group", "-n"],
        &["-e", clock, "-k", "tai"],
        &["-e", "raw_syscalls:sys_enter,cpu-clock"],
        &["-e", "cpu-clock:u,page-faults:k"],
        &["-e", clock, "-e", faults, "-c", "100000"],
    ];
    for flags in cases {
        as_perf(&w, flags, &["true"]);
    }
    let mut child = spinning(&w);
    let id = child.id().to_string();
    as_perf(&w, &["-e", clock, "-p", &id], &["sleep", "0.05"]);
    as_perf(&w, &["-e", clock, "-t", &id], &["sleep", "0.05"]);
    end(&mut child);
}

fn wait_for(holds: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "it never happened");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn spinning(w: &Workload) -> Child {
    Command::new(w.program()).arg("100000").stdout(Stdio::null()).spawn().unwrap()
}

fn end(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn what_comes_of_cpus_and_delay() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let data = w.file("x.data");
    let script = |fields: &str| perf(["script", "-F", fields, "-i", &data]).success().stdout;
    let one = ["-q", "-o", &data, "-e", "cpu-clock", "-F", "99", "-C", "0", "--", "sleep", "0.2"];
    let _ = record(&one).success();
    let cpus = script("cpu,event");
    assert!(!cpus.is_empty() && cpus.lines().all(|l| l.contains("[000]")), "{cpus}");
    let offline = record(&["-o", &data, "-C", "4095", "--", "true"]).failure();
    assert!(offline.stderr.contains("4095"), "{offline:?}");
    // Nothing of the first half of its life.
    let args = ["-q", "-o", &data, "-e", "cpu-clock", "-D", "150", "--timeout", "1500"];
    let _ = record(&[&args[..], &["--", w.arg(), "1000000"]].concat()).success();
    let header = perf(["script", "--show-task-events", "-F", "comm,time,event", "-i", &data]);
    let text = header.success().stdout;
    let time = |line: &str| -> f64 {
        let number = line.split_whitespace().find_map(|f| f.strip_suffix(':')?.parse().ok());
        number.unwrap_or_else(|| panic!("no time in {line:?}"))
    };
    let named = text.lines().find(|l| l.contains("PERF_RECORD_COMM exec")).unwrap();
    let first = text.lines().find(|l| l.contains("cpu-clock")).unwrap();
    let waited = time(first) - time(named);
    // More on a busy machine.
    assert!(waited >= 0.14, "{waited}: {text}");
}

#[test]
fn a_cgroup_is_recorded_and_no_other_task() {
    if !require(&NEEDS) {
        return;
    }
    let Some(group) = TestCgroup::new("record") else { return };
    let (w, other) = (Workload::spin(), Workload::spin());
    let mut inside = spinning(&w);
    let mut outside = Command::new(other.program());
    let mut outside = outside.arg("100000").stdout(Stdio::null()).spawn().unwrap();
    group.add(inside.id());
    let data = w.file("x.data");
    let flags = ["-o", &data, "-a", "-e", "cpu-clock", "-F", "999", "-G", group.name()];
    let recorded = record(&[&flags[..], &["--", "sleep", "0.3"]].concat());
    let two = ["-o", &data, "-a", "-e", "cpu-clock", "-G", "a,b", "--", "true"];
    let two = record(&two).failure();
    let missing = ["-o", &data, "-a", "-e", "cpu-clock", "-G", "no-such-group", "--", "true"];
    let missing = record(&missing).failure();
    let stat = ["stat", "-x,", "-a", "-e", "task-clock", "-G", group.name(), "sleep", "0.3"];
    let began = std::time::Instant::now();
    let stat = run(KYMO, stat);
    let elapsed = began.elapsed().as_secs_f64() * 1000.0;
    end(&mut outside);
    end(&mut inside);
    let _ = recorded.success();
    let pids = perf(["script", "-F", "pid", "-i", &data]).success().stdout;
    let own = inside.id().to_string();
    assert!(pids.lines().count() > 0, "nothing of {own}");
    assert!(pids.lines().all(|l| l.trim() == own), "{own}: {pids}");
    assert!(two.stderr.contains("-G names 2 cgroups for 1 events"), "{two:?}");
    assert!(missing.stderr.contains("no-such-group"), "{missing:?}");
    let stat = stat.success().stderr;
    let fields: Vec<&str> = stat.trim().split(',').collect();
    assert_eq!(fields[3], group.name(), "{stat}");
    let counted: f64 = fields[0].parse().unwrap();
    // One task, on one CPU.
    assert!(counted > 0.0 && counted < elapsed, "{stat} in {elapsed} ms");
}

/// The commands of `--control`, each answered, and events only between `enable` and `disable`.
#[test]
fn control_starts_and_stops_the_events() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let (data, ctl, ack) = (w.file("x.data"), w.file("ctl"), w.file("ack"));
    let control = format!("fifo:{ctl},{ack}");
    let mut spin = spinning(&w);
    let pid = spin.id().to_string();
    let flags = ["-q", "-o", &data, "-e", "cpu-clock", "-p", &pid, "-D", "-1", "--control"];
    let mut recorder = Command::new(KYMO).arg("record").args(flags).arg(&control).spawn().unwrap();
    let open = |path: &str| loop {
        if Path::new(path).exists() {
            break std::fs::File::options().read(true).write(true).open(path).unwrap();
        }
        assert!(recorder.try_wait().unwrap().is_none(), "the recorder ended");
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut open = open;
    let (mut commands, mut answers) = (open(&ctl), open(&ack));
    let mut say = |command: &str| {
        writeln!(commands, "{command}").unwrap();
        let mut answer = [0; 4];
        answers.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ack\n");
    };
    say("ping");
    std::thread::sleep(Duration::from_millis(200));
    let enabled = kymo_kernel::process::monotonic().as_secs_f64();
    say("enable");
    std::thread::sleep(Duration::from_millis(200));
    say("disable");
    let disabled = kymo_kernel::process::monotonic().as_secs_f64();
    std::thread::sleep(Duration::from_millis(200));
    writeln!(commands, "no-such-command").unwrap();
    writeln!(commands, "stop").unwrap();
    assert!(recorder.wait().unwrap().success());
    end(&mut spin);
    assert!(!Path::new(&ctl).exists() && !Path::new(&ack).exists(), "the pipes are left");
    let times = perf(["script", "--ns", "-F", "time", "-i", &data]).success().stdout;
    let times = times.lines().map(|l| l.trim().trim_end_matches(':').parse::<f64>().unwrap());
    let times: Vec<f64> = times.collect();
    assert!(!times.is_empty());
    assert!(
        times.iter().all(|t| (enabled..disabled).contains(t)),
        "{enabled} {disabled} {times:?}"
    );
}

#[test]
fn files_of_a_rotation_are_limited_and_named_by_time() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let data = w.file("x.data");
    let files = || {
        let dir = std::fs::read_dir(Path::new(&data).parent().unwrap()).unwrap();
        let names = dir.map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|n| n.starts_with("x.data")).collect::<Vec<_>>()
    };
    let checked = ["-o", &data, "-e", "cpu-clock", "--dry-run", "--", "no-such-program"];
    let _ = record(&checked).success();
    assert!(files().is_empty());
    let stamped = ["-q", "-o", &data, "-e", "cpu-clock", "--timestamp-filename", "--", "true"];
    let _ = record(&stamped).success();
    let names = files();
    assert!(names.len() == 1 && names[0].starts_with("x.data.20"), "{names:?}");
    std::fs::remove_file(w.file(&names[0])).unwrap();
    let rotated = ["-q", "-o", &data, "-e", "cpu-clock", "--switch-output"];
    let mut recorder = Command::new(KYMO)
        .arg("record")
        .args([&rotated[..], &["--switch-max-files", "2", "--", "sleep", "100"]].concat())
        .spawn()
        .unwrap();
    let pid = recorder.id().to_string();
    let sleeps = format!("/proc/{pid}/task/{pid}/children");
    wait_for(|| std::fs::read_to_string(&sleeps).is_ok_and(|c| !c.trim().is_empty()));
    wait_for(|| Path::new(&data).exists());
    let mut newest = String::new();
    for _ in 0..4 {
        let before = files();
        let _ = run("kill", ["-USR2", &pid]).success();
        let new = || files().into_iter().find(|n| n != "x.data" && !before.contains(n));
        wait_for(|| new().is_some());
        newest = new().unwrap();
    }
    let _ = run("kill", ["-INT", &pid]).success();
    let _ = recorder.wait().unwrap();
    let names = files();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.contains(&newest), "{newest} {names:?}");
}

#[test]
fn refusals_name_the_thing() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::syscalls();
    let data = w.file("x.data");
    let refused = |args: &[&str]| record(&[&["-o", &data], args].concat()).failure().stderr;
    assert!(refused(&["-p", "4194303"]).contains("4194303"));
    assert!(refused(&["-t", "4194303"]).contains("4194303"));
    assert!(refused(&["-u", "no-such-user"]).contains("no-such-user"));
    assert!(refused(&["-k", "sundial", "true"]).contains("sundial"));
    assert!(refused(&["-e", "cpu-clock", "--exclude-perf", "true"]).contains("--exclude-perf"));
    assert!(!Path::new(&data).exists(), "a refused recording left a file");
}

/// A file system of a given size, gone with the value.
struct Small(tempfile::TempDir);

impl Small {
    fn new(size: &str) -> Option<Small> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let options = format!("size={size}");
        let mount = run("mount", ["-t", "tmpfs", "-o", &options, "kymo-test", path]);
        (mount.status == 0).then(|| Small(dir))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = run("umount", [self.0.path()]);
    }
}

#[test]
fn a_full_disk_keeps_what_was_written() {
    if !require(&NEEDS) {
        return;
    }
    let Some(small) = Small::new("512k") else { return };
    let data = small.0.path().join("x.data");
    let data = data.to_str().unwrap();
    let w = Workload::syscalls();
    let event = "raw_syscalls:sys_enter";
    let out = record(&["-o", data, "-e", event, "--", w.arg(), "300000"]).failure();
    assert!(out.stderr.contains(data) && out.stderr.contains("No space left"), "{out:?}");
    let text = perf(["script", "-F", "comm,event,trace", "-i", data]).success().stdout;
    assert!(lines_with(&text, event).len() > 1000, "{}", text.len());
    let ours = run(KYMO, ["script", "-i", data]).success().stdout;
    assert_eq!(lines_with(&ours, event).len(), lines_with(&text, event).len());
}

#[test]
fn each_tool_reads_the_others_pipe() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::syscalls();
    let event = "syscalls:sys_enter_getppid";
    let record = |tool: &str| {
        format!("{tool} record -q -o - -e {event} -e page-faults -- '{}' 500", w.arg())
    };
    let count = |command: String| {
        let out = run("sh", ["-c", &command]).success();
        lines_with(&out.stdout, event).len()
    };
    assert_eq!(count(format!("{} | perf script -i -", record(KYMO))), 500);
    assert_eq!(count(format!("{} | {KYMO} script -i -", record(KYMO))), 500);
    assert_eq!(count(format!("{} | {KYMO} script -i -", record("perf"))), 500);
    let header = format!("{} | perf report --header-only -I -i -", record(KYMO));
    let header = run("sh", ["-c", &header]).success().stdout;
    for fact in ["# hostname :", "# CPU cache info:", "# memory nodes (", "# clockid: monotonic"] {
        assert_eq!(lines_with(&header, fact).len(), 1, "{fact} in {header}");
    }
    let kinds = format!("{} | perf script -D -i - 2>/dev/null", record(KYMO));
    let kinds = run("sh", ["-c", &kinds]).success().stdout;
    assert_eq!(lines_with(&kinds, &format!("... name:  {event}")).len(), 1);
    assert_eq!(lines_with(&kinds, "PERF_RECORD_THREAD_MAP nr: 1").len(), 1);
    // Where each instance of the events was opened: the same number as perf's, on the same CPUs.
    let places = |tool: &str| -> Vec<(String, String)> {
        let dump = format!("{} | perf script -D -i - 2>/dev/null", record(tool));
        let dump = run("sh", ["-c", &dump]).success().stdout;
        let lines = dump.lines().filter(|l| l.starts_with(" ... id: "));
        let mut places: Vec<_> = lines
            .map(|l| {
                let words: Vec<&str> = l.split_whitespace().collect();
                assert_eq!([words[3], words[5], words[7]], ["idx:", "cpu:", "tid:"], "{l}");
                (words[4].to_owned(), words[6].to_owned())
            })
            .collect();
        places.sort();
        places
    };
    assert_eq!(places(KYMO), places("perf"));
    assert!(!places(KYMO).is_empty());
}

/// `kymo stat` does not count while nothing is enabled.
#[test]
fn control_starts_and_stops_counting() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let (ctl, ack) = (w.file("ctl"), w.file("ack"));
    let control = format!("fifo:{ctl},{ack}");
    let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, mut from) = (cat.stdin.take().unwrap(), cat.stdout.take().unwrap());
    // Each line is one write(2) of cat.
    let mut line = || {
        to.write_all(b"a\n").unwrap();
        from.read_exact(&mut [0; 2]).unwrap();
    };
    let pid = cat.id().to_string();
    let event = "syscalls:sys_enter_write";
    let flags = ["-x", ",", "-e", event, "-p", &pid, "-D", "-1", "--control"];
    let mut stat = Command::new(KYMO)
        .arg("stat")
        .args(flags)
        .arg(&control)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut open = |path: &str| loop {
        if Path::new(path).exists() {
            break std::fs::File::options().read(true).write(true).open(path).unwrap();
        }
        assert!(stat.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(5));
    };
    let (mut commands, mut answers) = (open(&ctl), open(&ack));
    let mut say = |command: &str| {
        writeln!(commands, "{command}").unwrap();
        answers.read_exact(&mut [0; 4]).unwrap();
    };
    say("ping");
    line();
    say("enable");
    (0..3).for_each(|_| line());
    say("disable");
    line();
    say("enable");
    line();
    say("stop");
    let out = stat.wait_with_output().unwrap();
    drop(to);
    cat.wait().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    let row = text.lines().find(|row| row.contains(event));
    assert_eq!(row.and_then(|row| row.split(',').next()), Some("4"), "{text}");
    assert!(out.status.success() && !Path::new(&ctl).exists(), "{text}");
}

/// perf 6.1 does not know the flag yet.
#[test]
fn mappings_of_data_are_recorded_where_they_are_asked_for() {
    if !require(&NEEDS) || !require(&[Need::NewestPeers]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let newest = kymo_testkit::peer("perf");
    let (ours, theirs, plain) = (path("ours"), path("theirs"), path("plain"));
    let flags = ["-q", "-e", "cpu-clock", "-o"];
    let command = ["--", "true"];
    let _ = record(&[&flags[..], &[&ours, "--data-mmap"], &command].concat()).success();
    let _ = record(&[&flags[..], &[&plain], &command].concat()).success();
    let args = [&["record"], &flags[..], &[&theirs, "--data-mmap"], &command].concat();
    let _ = newest.run(args).success();
    // Mappings of the files that `true` is made of, by their rights.
    let mappings = |path: &str| -> std::collections::BTreeSet<String> {
        let text = run(KYMO, ["script", "-i", path, "--show-mmap-events"]).success().stdout;
        let files = lines_with(&text, "/ld-linux").into_iter().filter(|l| l.contains("MMAP2"));
        files.map(|l| l.rsplit("]: ").next().unwrap().trim().to_owned()).collect()
    };
    assert_eq!(mappings(&ours), mappings(&theirs));
    let has_data = |path: &str| mappings(path).iter().any(|m| m.starts_with("r--"));
    assert!(has_data(&ours) && !has_data(&plain), "{:?}", mappings(&ours));
}

/// A file that kymo wrote, checked against perf's rules.
#[track_caller]
fn checked(what: &str, path: &Path) -> CheckedPerfData {
    let bytes = std::fs::read(path).unwrap();
    check_perf_data(&bytes).unwrap_or_else(|broken| panic!("{what}: {broken}"))
}

/// Runs a line of a shell in which `$KYMO` is kymo.
#[track_caller]
fn shell(dir: &Path, line: &str) -> Outcome {
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(dir).env("KYMO", KYMO);
    kymo_testkit::run_command(command).success()
}

/// Flags of `record`, each of which changes what is written.
const FORMS: [&str; 36] = [
    "-e cpu-clock",
    "-e cpu-clock -g",
    "-e cpu-clock --call-graph dwarf,4096",
    "-e cpu-clock -z",
    "-e cpu-clock -z -g",
    "-e cpu-clock -a",
    "-e cpu-clock --overwrite -g",
    "-e cpu-clock,page-faults,context-switches",
    "-e '{cpu-clock,page-faults}'",
    "-e '{cpu-clock,page-faults}:S'",
    "-e sched:sched_switch -a",
    "-e sched:sched_switch,cpu-clock -a -g",
    "-e cpu-clock --namespaces",
    "-e cpu-clock --switch-events",
    "-e cpu-clock -k mono",
    "-e cpu-clock -d --phys-data",
    "-e cpu-clock -s -T -P",
    "-e cpu-clock --latency",
    "-e cpu-clock -B",
    "-e cpu-clock -N",
    "-e cpu-clock --buildid-mmap",
    "-e cpu-clock --all-cgroups",
    "-e cpu-clock -W --transaction -d --data-page-size --code-page-size",
    "-e cpu-clock --user-regs=ip,sp -I",
    "-e cpu-clock -R --sample-cpu --sample-identifier",
    "-e cpu-clock --synth=no",
    "-e cpu-clock --synth=task",
    "-e cpu-clock --data-mmap --no-bpf-event --tail-synthesize",
    "-e cpu-clock,page-faults --per-thread",
    "-e cpu-clock,task-clock -c 1000000 --group --running-time",
    "-e cpu-clock --all-user --user-callchains -g -i",
    "-e page-faults -c 1 --all-kernel --kernel-callchains -g",
    "-e cpu-clock --timestamp-boundary --buildid-all",
    "-e cpu-clock --max-size=64K -F 20000 -m 16K --no-buffering",
    "-e raw_syscalls:sys_enter --filter id>0 --exclude-perf -D 0",
    "-e cpu-clock -C 0 -a --timeout 50",
];

/// Options of `record` that write no other bytes: who is recorded and when, what is shown, how the
/// recorder works, what lies beside the recording, names for tools that kymo does without. `-n` has
/// no samples, `--switch-…` is tried with several files, `-b` wants a processor's branch stack.
const WRITE_NOTHING: &[&str] = &[
    "ledger",
    "no-pager",
    "probe",
    "full-names",
    "jobs",
    "no-sandbox",
    "pid",
    "tid",
    "uid",
    "cgroup",
    "control",
    "realtime",
    "dry-run",
    "output",
    "force",
    "no-samples",
    "branch-any",
    "branch-filter",
    "strict-freq",
    "switch-output",
    "switch-output-event",
    "switch-max-files",
    "timestamp-filename",
    "proc-map-timeout",
    "quiet",
    "verbose",
    "strict",
    "bundle",
    "affinity",
    "aio",
    "mmap-flush",
    "num-thread-synthesize",
    "threads",
    "clang-opt",
    "clang-path",
    "vmlinux",
    "debuginfod",
    "help",
    "version",
];

/// A new option of `record` is tried in a form, or stands among those that write nothing.
#[test]
fn each_option_of_record_has_a_form() {
    let help = run(KYMO, ["record", "--help"]).success().stdout;
    let mut seen = 0;
    for line in help.lines() {
        let words: Vec<&str> =
            line.split([' ', ',', '=', '[', '.']).filter(|w| !w.is_empty()).collect();
        let (short, long) = match words[..] {
            [short, long, ..] if long.starts_with("--") && short.starts_with('-') => (short, long),
            [long, ..] if line.starts_with("      --") => ("", long),
            _ => continue,
        };
        seen += 1;
        let is_word = |form: &&str| form.split([' ', '=']).any(|w| w == long || w == short);
        let is_tried = FORMS.iter().any(is_word);
        let writes_nothing = WRITE_NOTHING.contains(&long.trim_start_matches('-'));
        assert!(
            is_tried != writes_nothing,
            "{long}: in a form {is_tried}, listed {writes_nothing}"
        );
    }
    assert!(seen > 70, "{help}");
}

/// perf 7.2 refused kymo's pipes for a record that was not padded, and lost the names of tasks where
/// rounds ended before older samples.
#[test]
fn all_forms_of_record_keep_perfs_rules() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Perf, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let _state = TracingState::take();
    let spin = Workload::spin();
    let (dir, arg) = (tempfile::tempdir().unwrap(), spin.arg());
    let peers = [peer("perf"), Peer::installed("perf")];
    for form in FORMS {
        for to in ["file", "pipe"] {
            // Files that a ring is written into at the end have no place in a pipe.
            let (output, path) = match to {
                "file" => ("-o x.data".to_owned(), "x.data"),
                _ => ("-o - >x.pipe".to_owned(), "x.pipe"),
            };
            let what = format!("record {form} {output}");
            let form = form.replace("id>0", "'id > 0'");
            let _ = shell(dir.path(), &format!("$KYMO record -q {form} {output} -- {arg}"));
            let path = dir.path().join(path);
            let seen = checked(&what, &path);
            assert!(seen.samples > 0, "{what}: no samples");
            for peer in &peers {
                let path = path.to_str().unwrap();
                let read = peer.run(["script", "-F", "comm,tid,event", "-i", path]).success();
                let lines = read.stdout.lines().filter(|l| !l.trim().is_empty());
                let lines: Vec<&str> = lines.filter(|l| !l.starts_with(['#', '\t'])).collect();
                let least = if form.contains(":S") { 1 } else { seen.samples as usize };
                assert!(lines.len() >= least, "{what}: {} of {}", lines.len(), seen.samples);
                // Its task is known by name, never as `:TID`.
                let nameless = lines.iter().find(|l| l.trim_start().starts_with(':'));
                let is_all = form.contains("-a") && !form.contains("--all");
                assert!(nameless.is_none() || is_all, "{what}: {nameless:?}");
            }
        }
    }
}

#[test]
fn what_inject_and_off_cpu_record_write_keeps_perfs_rules() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Perf, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let _state = TracingState::take();
    let spin = Workload::spin();
    let (dir, arg) = (tempfile::tempdir().unwrap(), spin.arg());
    let _ = shell(dir.path(), &format!("$KYMO record -q -g -z -e cpu-clock -o in -- {arg}"));
    let _ = shell(dir.path(), &format!("$KYMO record -q -g -e cpu-clock -o - -- {arg} >in.pipe"));
    for input in ["in", "in.pipe"] {
        for flags in ["", "-b", "--buildid-all", "-B", "-j", "--strip"] {
            for output in ["-o out -f", "-o - >out"] {
                let line = format!("$KYMO inject {flags} -i {input} {output}");
                let _ = shell(dir.path(), &line);
                assert!(checked(&line, &dir.path().join("out")).samples > 0, "{line}");
            }
        }
        let line = format!("$KYMO inject -b -o - <{input} >out");
        let _ = shell(dir.path(), &line);
        assert!(checked(&line, &dir.path().join("out")).samples > 0, "{line}");
    }
    for output in ["-o off.data", "-o - >off.pipe"] {
        let line = format!("$KYMO offcpu record {output} -- sleep 0.01");
        let _ = shell(dir.path(), &line);
        let path = dir.path().join(output.rsplit([' ', '>']).next().unwrap());
        assert!(checked(&line, &path).samples > 0, "{line}");
    }
    let _ = shell(dir.path(), "$KYMO stat record -o - -e task-clock -- true >stat.pipe");
    let _ = checked("stat record", &dir.path().join("stat.pipe"));
    let line = "$KYMO record -q --switch-output=16k -e cpu-clock -F 20000 -o many";
    let _ = shell(dir.path(), &format!("{line} -- {arg}"));
    let many = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path());
    let many: Vec<_> = many.filter(|p| p.to_str().unwrap().contains("/many")).collect();
    assert!(!many.is_empty());
    many.iter().for_each(|path| _ = checked(line, path));
}

/// The command's text once stood within the recording, which was unreadable then.
#[test]
fn a_command_writes_to_standard_error_where_the_recording_goes_to_standard_output() {
    if !require(&[Need::Root, Need::PerfEvents]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (n, line) in [
        "$KYMO record -q -o - -e cpu-clock -- echo HELLO",
        "$KYMO record -q -o /dev/stdout -e cpu-clock -- echo HELLO",
        "$KYMO offcpu record -o - -- echo HELLO",
        "$KYMO stat record -o - -e task-clock -- echo HELLO",
    ]
    .into_iter()
    .enumerate()
    {
        let said = shell(dir.path(), &format!("{line} | cat >x{n}")).stderr;
        assert!(said.contains("HELLO"), "{line}: {said}");
        let bytes = std::fs::read(dir.path().join(format!("x{n}"))).unwrap();
        let _ = checked(line, &dir.path().join(format!("x{n}")));
        assert!(!bytes.windows(6).any(|b| b == b"HELLO\n"), "{line}");
    }
    let plain = shell(dir.path(), "$KYMO record -q -o x.data -e cpu-clock -- echo HELLO");
    assert_eq!(plain.stdout, "HELLO\n");
}

/// `bundle` once made regular files of devices, and `record` needed to read what it wrote.
#[test]
fn devices_and_pipes_are_written_to_and_stay() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tool("mknod")]) {
        return;
    }
    let _state = TracingState::take();
    let dir = tempfile::tempdir().unwrap();
    let _ = shell(dir.path(), "$KYMO record -q -g -e cpu-clock -o k.data -- sh -c 'seq 20000 >s'");
    let _ = shell(dir.path(), "mknod null c 1 3; mkfifo pipe; ln -s null link");
    let is_there = |line: &str| {
        use std::os::unix::fs::FileTypeExt as _;
        let kind = |name: &str| std::fs::symlink_metadata(dir.path().join(name)).unwrap();
        assert!(kind("null").file_type().is_char_device(), "{line}");
        assert!(kind("pipe").file_type().is_fifo(), "{line}");
        assert!(kind("link").is_symlink(), "{line}");
    };
    for line in [
        "$KYMO bundle -i k.data -o",
        "$KYMO record -q -e cpu-clock -- true -o",
        "$KYMO offcpu record -- true -o",
        "$KYMO lock record -- true -o",
        "$KYMO io record -- true -o",
        "$KYMO kmem record -- true -o",
        "$KYMO profile -- true -o",
        "$KYMO sched record -- true -o",
        "$KYMO inject -b -i k.data -o",
        "$KYMO convert -i k.data -f folded --force -o",
        "$KYMO convert -i k.data -f chrome --force -o",
        "$KYMO view k.data -o",
        "$KYMO stat -e task-clock -- true -o",
        "$KYMO report -i k.data --ledger",
    ] {
        // What is recorded stands last.
        let typed = |to: &str| match line.split_once(" -- true") {
            Some((before, flag)) => format!("{before}{flag} {to} -- true"),
            None => format!("{line} {to}"),
        };
        for to in ["null", "link"] {
            let line = typed(to);
            let _ = shell(dir.path(), &format!("{line} >out.txt"));
            is_there(&line);
        }
        let line = typed("pipe");
        let got = shell(dir.path(), &format!("cat pipe >got & {line} >out.txt; wait; wc -c <got"));
        assert_ne!(got.stdout.trim(), "0", "{line}");
        is_there(&line);
    }
    let line = "$KYMO record -q --switch-output=1s -e cpu-clock -o null -- true || echo refused";
    assert_eq!(shell(dir.path(), line).stdout, "refused\n");
    is_there(line);
}

/// After a full disk, and of one whose recording was damaged, a file says that it is not finished.
#[test]
fn an_incomplete_recording_reads_as_incomplete() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tracefs, Need::Tool("mount")]) {
        return;
    }
    let _state = TracingState::take();
    let dir = tempfile::tempdir().unwrap();
    // In a mount namespace of its own, which goes with the shell.
    let work = "sh -c 'i=0; while [ $i -lt 400 ]; do ls / >/dev/null; i=$((i+1)); done'";
    let script = format!(
        "mount -t tmpfs -o size=1m none full && cd full && \
         ! $KYMO record -q -a -e page-faults -c 1 -o x.data -- {work} && cp x.data .. ; \
         rm -f *; ! $KYMO trace -e sched:sched_switch -e 'syscalls:*' -o x.dat -- {work} && \
         stat -c %s x.dat && cp --sparse=always x.dat .."
    );
    let line = "unshare -m sh -c \"$SCRIPT\"";
    let mut command = Command::new("sh");
    command.args(["-c", line]).env("SCRIPT", script).current_dir(dir.path()).env("KYMO", KYMO);
    std::fs::create_dir(dir.path().join("full")).unwrap();
    let said = kymo_testkit::run_command(command).success();
    // trace.dat reserved a terabyte.
    let size: u64 = said.stdout.lines().last().unwrap().trim().parse().unwrap();
    assert!(size <= 64 << 20, "{size} bytes");
    for name in ["x.data", "x.dat"] {
        let line = format!("$KYMO script --strict -i {name} >out; echo $?");
        let read = shell(dir.path(), &line);
        assert!(read.stderr.contains("unfinished"), "{name}: {}", read.stderr);
        assert_eq!(read.stdout, "3\n", "{name}: {}", read.stderr);
        assert_ne!(std::fs::metadata(dir.path().join("out")).unwrap().len(), 0, "{name}");
    }
    let _ = checked("a full disk", &dir.path().join("x.data"));
    // inject carries it on.
    let line = "$KYMO inject -b -i x.data -o y.data; $KYMO script --strict -i y.data >out; echo $?";
    let read = shell(dir.path(), line);
    assert!(read.stderr.contains("unfinished") && read.stdout == "3\n", "{}", read.stderr);
    let _ = checked("injected", &dir.path().join("y.data"));
}
