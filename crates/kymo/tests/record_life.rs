//! Life of a recording: end, continuation in a new file, no events: signals, times, sizes, users.
//! perf reads the files.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::{Need, Outcome, TracingState, Workload, perf, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 4] = [Need::Root, Need::PerfEvents, Need::Perf, Need::Gcc];
/// Faults of a shell and of small programs, until there is a file `stop`; `rounds` has a line for
/// each round. Without the file it ends after two minutes.
const WORK: &str = "n=0; while [ ! -e stop ] && [ $n -lt 2400 ]; do \
                    ls >/dev/null; sleep 0.05; n=$((n+1)); echo $n >>rounds; done";

#[track_caller]
fn record(args: &[&str]) -> Outcome {
    run(KYMO, [&["record"], args].concat())
}

/// Faults of three dozen small programs.
const MANY: &str = "for i in $(seq 36); do ls >/dev/null; done";

/// A recording of every page fault of `WORK` in the background; what it says goes
/// to the file `said`.
fn background(w: &Workload, flags: &[&str]) -> Child {
    let said = std::fs::File::create(w.file("said")).unwrap();
    Command::new(KYMO)
        .args(["record", "-o", &w.file("x.data"), "-e", "page-faults", "-c", "1"])
        .args(flags)
        .args(["--", "sh", "-c", WORK])
        .current_dir(w.dir())
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()
        .unwrap()
}

/// Waits until `WORK` has gone round that number of times more; gives all rounds.
#[track_caller]
fn rounds(w: &Workload, more: usize) -> usize {
    let now = || std::fs::read_to_string(w.file("rounds")).map_or(0, |text| text.lines().count());
    let goal = now() + more;
    until("more rounds", || now() >= goal);
    now()
}

/// Ends `WORK`, and with it the recording.
#[track_caller]
fn stop(w: &Workload, child: &mut Child) {
    std::fs::write(w.file("stop"), "").unwrap();
    assert!(child.wait().unwrap().success());
}

/// Number of runs of `ls` in a file.
#[track_caller]
fn listings(file: &Path) -> usize {
    let text = perf(["script", "-F", "comm,pid", "-i", file.to_str().unwrap()]);
    let text = text.success().stdout;
    let own = text.lines().filter(|l| l.trim().starts_with("ls "));
    own.collect::<std::collections::BTreeSet<_>>().len()
}

fn signal(child: &Child, name: &str) {
    let _ = run("kill", [&format!("-{name}"), &child.id().to_string()]).success();
}

/// All files of the recording, oldest first (the last may lack a date).
fn files(w: &Workload) -> Vec<PathBuf> {
    let name = |p: &PathBuf| p.file_name().unwrap().to_str().unwrap().to_owned();
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(w.dir()).unwrap().map(|e| e.unwrap().path()).collect();
    all.retain(|p| name(p).starts_with("x.data"));
    all.sort_by_key(|p| (name(p) == "x.data", name(p)));
    all
}

/// Times of the samples that perf finds in a file, in order.
#[track_caller]
fn times(file: &Path) -> Vec<f64> {
    let text = perf(["script", "-F", "time", "--ns", "-i", file.to_str().unwrap()]);
    let text = text.success().stdout;
    text.lines().map(|l| l.trim().trim_end_matches(':').parse().unwrap()).collect()
}

/// Waits until the condition holds, for a minute at most.
#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Each file continues where the one before it ended.
#[track_caller]
fn in_sequence(files: &[PathBuf]) {
    let mut last = 0.0;
    for file in files {
        let times = times(file);
        assert!(times.first().is_none_or(|t| *t >= last), "{files:?}: {last} {times:?}");
        last = times.last().copied().unwrap_or(last);
    }
    assert!(last > 0.0, "{files:?} are empty");
}

#[test]
fn a_time_begins_a_new_file() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let began = Instant::now();
    let mut child = background(&w, &["--switch-output=1s"]);
    until("a third file", || files(&w).len() > 2);
    stop(&w, &mut child);
    let seconds = began.elapsed().as_secs() as usize;
    let files = files(&w);
    let said = std::fs::read_to_string(w.file("said")).unwrap();
    // One a second at most, and the last, however busy the machine is.
    assert!((3..=seconds + 1).contains(&files.len()), "{files:?} in {seconds} s\n{said}");
    for file in &files {
        assert!(said.contains(file.to_str().unwrap()), "{file:?} not in\n{said}");
    }
    in_sequence(&files);
}

#[test]
fn sigusr2_begins_a_new_file_only_where_it_was_asked_for() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let mut child = background(&w, &["--switch-output"]);
    rounds(&w, 2);
    signal(&child, "USR2");
    until("the second file", || files(&w).len() == 2);
    rounds(&w, 2);
    stop(&w, &mut child);
    let found = files(&w);
    assert_eq!(found.len(), 2, "{found:?}");
    in_sequence(&found);
    assert!(found.iter().all(|file| listings(file) >= 2), "{found:?}");

    // perf ignores it then; the recording must not end in the middle of a file.
    let w = Workload::spin();
    let mut child = background(&w, &[]);
    rounds(&w, 2);
    signal(&child, "USR2");
    let all = rounds(&w, 4);
    stop(&w, &mut child);
    let found = files(&w);
    assert_eq!(found.len(), 1, "{found:?}");
    // Those after the signal are there, too.
    assert!(listings(&found[0]) >= all, "{} of {all}", listings(&found[0]));
}

#[test]
fn an_event_of_whomever_begins_a_new_file() {
    if !require(&NEEDS) {
        return;
    }
    // No other process makes this call.
    const HIT: &str = "#include <unistd.h>\nint main(void) { return sethostname(0, -1) != -1; }";
    let (w, hit) = (Workload::spin(), Workload::compile("hit", HIT));
    let mut child = background(&w, &["--switch-output-event", "syscalls:sys_enter_sethostname"]);
    for count in 2..4 {
        rounds(&w, 2);
        let _ = run(hit.arg(), [""; 0]).success();
        until("another file", || files(&w).len() == count);
    }
    rounds(&w, 2);
    stop(&w, &mut child);
    let found = files(&w);
    assert_eq!(found.len(), 3, "{found:?}");
    in_sequence(&found);
    assert!(found.iter().all(|file| listings(file) >= 2), "{found:?}");
    // What switches is not in the files.
    for file in &found {
        let events = perf(["evlist", "-i", file.to_str().unwrap()]).success().stdout;
        assert!(events.contains("page-faults") && !events.contains("hostname"), "{events}");
    }
    let refused = record(&["--switch-output-event", "cpu-clock", "--", "true"]).failure();
    assert!(refused.stderr.contains("not a tracepoint or probe"), "{refused:?}");
}

#[test]
fn a_flight_recorder_gives_its_newest_events_on_sigusr2() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let mut child = background(&w, &["--overwrite", "-m", "2"]);
    // A sample takes 40 bytes, and each `ls` has faults for dozens of them.
    let cpus = std::thread::available_parallelism().unwrap().get();
    let most = cpus * 2 * 4096 / 40;
    rounds(&w, most / 20);
    signal(&child, "USR2");
    until("the second file", || files(&w).len() == 2);
    let all = rounds(&w, 2);
    stop(&w, &mut child);
    let found = files(&w);
    assert_eq!(found.len(), 2, "{found:?}");
    let (taken, rest) = (times(&found[0]), times(&found[1]));
    let span = (taken.first().unwrap().min(*rest.first().unwrap()), *rest.last().unwrap());
    // The rings hold less than was recorded until then: the oldest are gone.
    assert!(!taken.is_empty() && taken.len() <= most, "{} of {most}", taken.len());
    assert!(listings(&found[0]) < all, "{all}");
    assert!(taken.last().unwrap() < rest.last().unwrap(), "{span:?}");
}

#[test]
fn the_end_of_its_time_is_success_and_a_signal_is_reported() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let data = w.file("t.data");
    let began = Instant::now();
    let args = ["-o", &data, "-e", "cpu-clock", "--timeout", "200", "--", "sleep", "60"];
    let _ = record(&args).success();
    assert!(began.elapsed() < Duration::from_secs(20));
    // A command's own status counts when it ends by itself.
    let _ =
        record(&["-o", &data, "--timeout", "60000", "--", "sh", "-c", "exit 9"]).expect_status(9);
    // Sent to the recorder alone, as `timeout` does, when it records.
    let script = format!(
        "{KYMO} record -q -o {data}.2 -- sleep 60 & \
         until [ -s {data}.2 ]; do sleep 0.05; done; kill -TERM $!; wait $!"
    );
    assert_eq!(run("bash", ["-c", &script]).status, 143);
    let data = format!("{data}.2");
    assert!(times(Path::new(&data)).len() < 1000);
}

#[test]
fn a_file_that_may_not_grow_is_an_error_not_a_death() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let data = w.file("x.data");
    // 8 blocks of 1024 bytes.
    let script =
        format!("ulimit -f 8; exec {KYMO} record -o {data} -e page-faults -c 1 -- sh -c '{MANY}'");
    let out = run("bash", ["-c", &script]).failure();
    assert!(out.stderr.contains("File too large") && out.stderr.contains(&data), "{out:?}");
    assert!(!times(Path::new(&data)).is_empty(), "what was written can be read");
}

#[test]
fn a_recording_of_nothing_says_why() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let data = w.file("x.data");
    let late = record(&["-o", &data, "-e", "cpu-clock", "-D", "60000", "--", "true"]).success();
    assert!(late.stderr.contains("over before the 60000 ms of -D"), "{late:?}");
    let none = record(&["-o", &data, "-e", "alignment-faults", "-c", "1", "--", "true"]).success();
    assert!(none.stderr.contains("none of the events happened"), "{none:?}");
    let ftrace = record(&["-o", &data, "-e", "ftrace:print", "--", "true"]).success();
    assert!(ftrace.stderr.contains("reach the ftrace ring only"), "{ftrace:?}");
    let shown = run(KYMO, ["script", "-i", &data]).success();
    assert!(shown.stdout.is_empty(), "{shown:?}");
    assert!(shown.stderr.contains("the recording holds no events"), "{shown:?}");
}

#[test]
fn values_out_of_range_are_named() {
    let refused = |args: &[&str], part: &str| {
        let out = record(&[args, &["-o", "/nowhere/x", "true"]].concat()).expect_status(2);
        assert!(out.stderr.contains(part), "{part}: {out:?}");
    };
    refused(&["-z99"], "99 is not in 1..=22");
    refused(&["-c", "0"], "0 is not in 1..");
    refused(&["-m", "0"], "a ring has between");
    refused(&["-F", "0"], "a frequency is a number above 0");
}

/// A user that no other test has processes of.
const USER: u32 = 61_357;

#[test]
fn a_users_processes_are_recorded_and_no_others() {
    if !require(&NEEDS) {
        return;
    }
    use std::os::unix::process::CommandExt as _;
    let w = Workload::spin();
    let data = w.file("u.data");
    let place = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(place.path(), Some(USER), Some(USER)).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", WORK]).uid(USER).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.current_dir(place.path()).spawn().unwrap();
    until("the user's work", || place.path().join("rounds").exists());
    let user = USER.to_string();
    let flags = ["-q", "-o", &data, "-e", "page-faults", "-c", "1", "-u", &user];
    // As long as the user makes ten rounds.
    let script =
        "n=$(($(wc -l <rounds)+10)); until [ $(wc -l <rounds) -ge $n ]; do sleep 0.05; done";
    let mut recorder = Command::new(KYMO);
    recorder.arg("record").args(flags).args(["--", "sh", "-c", script]);
    recorder.current_dir(place.path());
    let _ = kymo_testkit::run_command(recorder).success();
    std::fs::write(place.path().join("stop"), "").unwrap();
    let _ = child.wait();
    let comms = perf(["script", "-F", "comm,pid", "-i", &data]).success().stdout;
    assert!(comms.lines().count() > 50, "{comms}");
    assert!(comms.lines().any(|l| l.trim().starts_with("ls ")), "{comms}");
    // What the recorder itself runs beside them is root's, `wc` among it.
    let recorded: std::collections::BTreeSet<&str> =
        comms.lines().filter_map(|l| l.split_whitespace().next()).collect();
    assert!(recorded.iter().all(|c| ["sh", "ls", "sleep"].contains(c)), "{recorded:?}");
}

/// Threads that read debug information before the command starts do not take its end away.
#[test]
fn commands_with_probes_end_with_their_command() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    let probe = format!("{} probed=main", w.arg());
    for _ in 0..6 {
        let out = w.file("x.dat");
        for args in [&["trace", "-q", "-f", "-o", &out][..], &["stat"]] {
            let args = [args, &["--probe", &probe, "--", w.arg(), "10"]].concat();
            let command = Command::new("timeout").args(["-k5", "60", KYMO]).args(&args).output();
            let status = command.unwrap().status;
            assert!(status.success(), "{args:?}: {status}");
        }
    }
}

/// A process that has ended before is not there to be watched, though it has a number still.
#[test]
fn a_dead_process_is_refused_as_such() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let _state = TracingState::take();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("x.data").to_str().unwrap().to_owned();
    let mut target = Command::new("true").spawn().unwrap();
    let pid = target.id().to_string();
    let stat = format!("/proc/{pid}/stat");
    until("it has ended", || std::fs::read_to_string(&stat).unwrap().contains(") Z "));
    for args in [
        &["stat", "-e", "task-clock"][..],
        &["count", "-e", "sched:sched_process_exit"],
        &["run", "-e", "tracepoint:sched:sched_process_exit { print(1); }"],
        &["trace"],
        &["strace"],
        &["record", "-e", "cpu-clock", "-o", &out],
        &["profile"],
        &["top", "--stdio"],
    ] {
        let said = run(KYMO, [args, &["-p", &pid]].concat()).failure().stderr;
        assert!(said.contains(&format!("{pid} has ended")), "{args:?}: {said}");
    }
    target.wait().unwrap();
    let said = run(KYMO, ["count", "-e", "cpu-clock", "-p", &pid]).failure().stderr;
    assert!(said.contains(&format!("no such process: {pid}")), "{said}");
}

/// The parent of a dead process that was not reaped may be waiting for kymo.
#[test]
fn a_dead_process_that_nobody_reaped_ends_what_watches_it() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let _state = TracingState::take();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("x.data").to_str().unwrap().to_owned();
    let dat = dir.path().join("x.dat").to_str().unwrap().to_owned();
    let event = "sched:sched_process_exit";
    for args in [
        &["stat", "-e", "task-clock"][..],
        &["count", "-e", event],
        &["run", "-e", "tracepoint:sched:sched_process_exit { print(1); }"],
        &["trace"],
        &["trace", "-s"],
        &["trace", "-e", event],
        &["trace", "-e", event, "-f", "-o", &dat],
        &["record", "-e", "cpu-clock", "-o", &out],
        &["profile"],
        &["top", "--stdio"],
    ] {
        let mut target = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = target.id().to_string();
        let said = dir.path().join("said");
        let file = std::fs::File::create(&said).unwrap();
        let mut kymo = Command::new("timeout");
        kymo.args(["-k5", "60", KYMO]).args(args).args(["-p", &pid]).env("KYMO_CACHE", "off");
        let mut kymo = kymo
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        // It watches before it opens events: a descriptor of the process stands in its table.
        until("kymo watches", || watches(kymo.id()));
        target.kill().unwrap();
        let status = kymo.wait().unwrap();
        let said = std::fs::read_to_string(&said).unwrap();
        assert!(!matches!(status.code(), Some(124 | 137) | None), "{args:?}: {status}\n{said}");
        target.wait().unwrap();
    }
}

/// Whether the child of `timeout` has a descriptor of a process.
fn watches(timeout: u32) -> bool {
    let children = std::fs::read_to_string(format!("/proc/{timeout}/task/{timeout}/children"));
    // One that refuses ends, as its status shows.
    let Ok(children) = children else { return true };
    let Some(child) = children.split_whitespace().next() else { return false };
    let fds = std::fs::read_dir(format!("/proc/{child}/fd"));
    fds.into_iter().flatten().flatten().any(|fd| {
        let link = std::fs::read_link(fd.path()).unwrap_or_default();
        link.to_string_lossy().contains("pidfd")
    })
}

/// A program that was removed while it runs is still what its process has mapped.
#[test]
fn a_removed_program_has_names_while_it_runs() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::spin();
    let mut spin = Command::new(w.program()).arg("1000000").stdout(Stdio::null()).spawn().unwrap();
    let pid = spin.id().to_string();
    let exe = || std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    until("the program runs", || exe() == w.program().canonicalize().unwrap());
    std::fs::remove_file(w.program()).unwrap();
    let out = w.file("x.data");
    let args = ["-q", "-e", "cpu-clock", "-o", &out, "-p", &pid, "--timeout", "500"];
    let _ = record(&args).success();
    let report = run(KYMO, ["report", "-i", &out, "--sort", "symbol"]);
    spin.kill().unwrap();
    spin.wait().unwrap();
    let report = report.success().stdout;
    assert!(report.contains("[.] hot"), "{report}");
}

/// A library or program that was replaced while processes run it: probes of the new file are not
/// in their code, which is said by every command with probes of programs.
#[test]
fn probes_of_a_replaced_program_name_the_processes_that_run_the_old_one() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::spin();
    let mut spin =
        Command::new(w.program()).arg("1000000000").stdout(Stdio::null()).spawn().unwrap();
    let pid = spin.id().to_string();
    let exe = || std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    until("the program runs", || exe() == w.program().canonicalize().unwrap());
    let (program, copy) = (w.arg(), w.file("copy"));
    std::fs::copy(program, &copy).unwrap();
    std::fs::rename(&copy, program).unwrap();
    let (place, probe) = (format!("uprobe:{program}:hot"), format!("{program} hot"));
    let text = format!("{place} {{ @ = count(); }} interval:ms:300 {{ exit(); }}");
    let end = ["--timeout", "300"];
    let commands: [(&str, Vec<&str>); 5] = [
        ("run", vec!["run", "-p", &pid, "-e", &text]),
        ("count", [&["count", "-e", &place, "-p", &pid], &end[..]].concat()),
        ("trace", [&["trace", "--probe", &probe, "-p", &pid], &end[..]].concat()),
        ("stat", [&["stat", "--probe", &probe, "-p", &pid], &end[..]].concat()),
        ("probe", vec!["probe", "-x", program, "-n", "hot"]),
    ];
    let outs = commands.map(|(name, args)| (name, run(KYMO, args)));
    spin.kill().unwrap();
    spin.wait().unwrap();
    for (name, out) in outs {
        let said = format!("was replaced: process {pid} runs the code of the old file");
        let all = format!("{}{}", out.stdout, out.stderr);
        // With a process, programs in the kernel are attached to what that has mapped.
        let is_counted = all.contains("@: ") || all.contains(" events in ");
        let may_count = name == "run" || name == "count";
        assert!(all.contains(&said) || may_count && is_counted, "{name}: {all}");
    }
}
