//! perf opens what `kymo record` wrote: the same events, counts and names, in
//! each form and after each way a recording can end.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::{Need, Outcome, Workload, lines_with, perf, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 5] = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Perf, Need::Gcc];
/// `getppid` calls of the recorded program.
const CALLS: &str = "3000";
const EVENT: &str = "syscalls:sys_enter_getppid";

#[track_caller]
fn record(args: &[&str]) -> Outcome {
    run(KYMO, [&["record"], args].concat())
}

/// Waits until the condition holds, however busy the machine is.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn size(path: &str) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

/// Most samples that the rings of all CPUs hold, also of offline ones: a sample takes 40 bytes and
/// more.
fn most_in_rings(pages: usize) -> usize {
    let cpus = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    let last = cpus.trim().rsplit(['-', ',']).next().unwrap();
    (last.parse::<usize>().unwrap() + 1) * pages * 4096 / 40
}

/// A program and where its recording goes.
struct Recorded {
    w: Workload,
    data: String,
}

impl Recorded {
    fn of(w: Workload) -> Recorded {
        let data = w.file("x.data");
        Recorded { w, data }
    }

    /// The arguments that record the program's `argument`, with `flags`.
    fn args<'a>(&'a self, flags: &[&'a str], argument: &'a str) -> Vec<&'a str> {
        [flags, &["-o", &self.data, "--", self.w.arg(), argument]].concat()
    }

    /// Records it with nothing to complain about.
    #[track_caller]
    fn clean(&self, flags: &[&str], argument: &str) {
        let out = record(&self.args(flags, argument)).success();
        assert!(!out.stderr.contains("Trust:"), "{out:?}");
    }

    /// Returns perf's output for the recording; perf must not print a warning.
    #[track_caller]
    fn perf_script(&self, fields: &str) -> String {
        perf_script(&self.data, fields)
    }
}

/// Returns perf's output for a recording that lost events by intent; perf must print no other
/// warning.
#[track_caller]
fn perf_script_with_losses(path: &str, fields: &str) -> String {
    const LOST: [&str; 4] = ["not valid for", "Warning:", "Processed ", "Check IO/CPU overload!"];
    perf_script_but(path, fields, &LOST)
}

#[track_caller]
fn perf_script(path: &str, fields: &str) -> String {
    // What perf says of any recording: fields that other kinds of events have not.
    perf_script_but(path, fields, &["not valid for"])
}

#[track_caller]
fn perf_script_but(path: &str, fields: &str, known: &[&str]) -> String {
    let out = perf(["script", "-F", fields, "-i", path]).success();
    let known = |l: &str| l.is_empty() || known.iter().any(|k| l.contains(k));
    let complaints: Vec<&str> = out.stderr.lines().filter(|l| !known(l)).collect();
    assert!(complaints.is_empty(), "perf complains about {path}: {complaints:?}");
    out.stdout
}

#[test]
fn perf_counts_every_event_of_every_form() {
    if !require(&NEEDS) {
        return;
    }
    let r = Recorded::of(Workload::syscalls());
    let forms: [&[&str]; 7] =
        [&[], &["-z"], &["-z9", "-m", "1M"], &["-k", "raw"], &["-B", "-d"], &["-N", "-T"], &["-s"]];
    for form in forms {
        r.clean(&[form, &["-e", EVENT]].concat(), CALLS);
        let text = r.perf_script("comm,pid,tid,cpu,time,event,trace");
        assert_eq!(lines_with(&text, EVENT).len(), 3000, "{form:?}");
        assert!(text.lines().all(|l| l.trim_start().starts_with("syscalls ")), "{form:?}");
    }
}

#[test]
fn the_header_describes_machine_events_and_clock() {
    if !require(&NEEDS) {
        return;
    }
    let r = Recorded::of(Workload::spin());
    r.clean(&["-g", "-e", "cpu-clock", "-F", "99"], "100");
    let header = |path: &str| {
        let out = perf(["report", "--header-only", "-I", "-i", path]).success();
        assert_eq!(out.stderr, "");
        out.stdout
    };
    let ours = header(&r.data);
    let path = r.w.file("y.data");
    let args = ["record", "-q", "-o", &path, "-g", "-e", "cpu-clock", "-F", "99"];
    let _ = perf([&args[..], &["-k", "monotonic", "--", r.w.arg(), "100"]].concat()).success();
    let theirs = header(&path);
    // What is a matter of the file, the tool, the moment or chance; perf lists PMUs as the
    // directory has them, and knows of the programs of BPF.
    const OWN: [&str; 16] = [
        "captured on",
        "data offset",
        "data size",
        "feat offset",
        "perf version",
        "cmdline",
        "event :",
        "meminfo",
        "pmu mappings",
        "first sample",
        "last sample",
        "sample duration",
        "reference time",
        "missing features",
        "bpf_prog_info",
        "btf info of id",
    ];
    let facts = |text: &str| -> Vec<String> {
        let own = |l: &&str| !OWN.iter().any(|o| l.contains(o));
        text.lines().filter(own).map(str::to_owned).collect()
    };
    assert_eq!(facts(&ours), facts(&theirs));
    assert!(facts(&ours).len() > 25, "{ours}");
    let event = lines_with(&ours, "# event : name = cpu-clock");
    assert!(
        event.len() == 1 && event[0].contains("sample_type = IP|TID|TIME|CALLCHAIN|PERIOD"),
        "{event:?}"
    );
    assert_eq!(lines_with(&ours, "# clockid: monotonic (1)").len(), 1);
    let missing = |text: &str| -> Vec<String> {
        let line = lines_with(text, "# missing features:").concat();
        line.split(' ').skip(3).map(str::to_owned).collect()
    };
    let theirs = missing(&theirs);
    // A bit of perf's for what is no section in ours: BPF programs.
    let more: Vec<String> = missing(&ours).into_iter().filter(|f| !theirs.contains(f)).collect();
    assert_eq!(more, ["BPF_PROG_INFO", "BPF_BTF", "PMU_CAPS"]);
    let ids = perf(["buildid-list", "-i", &r.data]).success().stdout;
    assert_eq!(lines_with(&ids, "[kernel.kallsyms]").len(), 1, "{ids}");
    assert_eq!(lines_with(&ids, r.w.arg()).len(), 1, "{ids}");
}

#[test]
fn perf_reads_the_pipe_form() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::syscalls();
    let command = format!(
        "'{KYMO}' record -q -o - -e {EVENT} -- '{}' {CALLS} | perf script -i - -F comm,event,trace",
        w.arg()
    );
    let text = run("sh", ["-c", &command]).success().stdout;
    assert_eq!(lines_with(&text, EVENT).len(), 3000);
}

#[test]
fn call_chains_reach_the_functions_that_burn() {
    if !require(&NEEDS) {
        return;
    }
    let r = Recorded::of(Workload::spin());
    for graph in ["fp", "dwarf"] {
        r.clean(&["-e", "cpu-clock:u", "-F", "500", "--call-graph", graph], "200");
        let text = r.perf_script("comm,ip,sym");
        let hot = text.split("\n\n").filter(|s| s.contains(" hot") && s.contains(" main"));
        // Three of four samples; how many there are is a matter of the machine's speed.
        let all = text.split("\n\n").filter(|s| s.contains(" main"));
        let (hot, all) = (hot.count(), all.count());
        assert!(hot > 0 && hot * 2 > all, "{graph}: {hot} of {all}: {text}");
    }
}

#[test]
fn attaching_tells_what_was_there_before() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let data = w.file("x.data");
    let mut child = Command::new(w.program()).arg("1000000").stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let pid = child.id().to_string();
    let out = record(&["-o", &data, "-e", "cpu-clock", "-p", &pid, "--timeout", "300"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(out.success().stderr.contains("Captured and wrote"));
    let text = perf_script(&data, "comm,pid,ip,sym,dso");
    assert!(lines_with(&text, "hot").iter().any(|l| l.contains("spin")), "{text}");
    // Its end ends the recording.
    let script = format!("read go; exec {} 20", w.arg());
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let ended = w.file("ended.data");
    let mut recorder = Command::new(KYMO)
        .args(["record", "-q", "-o", &ended, "-e", "cpu-clock", "-p", &pid])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    until("the recording", || size(&ended) > 0);
    drop(child.stdin.take());
    child.wait().unwrap();
    let mut status = None;
    until("its end", || {
        status = recorder.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success(), "{status:?}");
    let gone = record(&["-o", &data, "-p", &pid]).failure();
    assert!(gone.stderr.contains(&pid), "{}", gone.stderr);
}

#[test]
fn several_files_each_whole() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::syscalls();
    let data = w.file("x.data");
    // A ring that holds more than a file, so that also a recorder that runs rarely fills some.
    let first = ["-o", &data, "--switch-output=64K", "-m", "64", "-e", EVENT, "--", w.arg()];
    let out = record(&[&first[..], &["300000"]].concat()).success();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(w.dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().contains("x.data.2") {
            files.push(path);
        }
    }
    assert!(files.len() > 1 && !Path::new(&data).exists(), "{files:?} {}", out.stderr);
    files.sort();
    let mut all = lost(&out).unwrap_or(0);
    for (i, file) in files.iter().enumerate() {
        let text = perf_script_with_losses(file.to_str().unwrap(), "comm,event");
        // The last one has what was left.
        assert!(text.lines().count() > 100 || i + 1 == files.len(), "{}", file.display());
        all += text.lines().count();
    }
    // A few records that are no samples are lost with them.
    assert!((300_000..300_010).contains(&all), "{all}: {out:?}");
}

#[test]
fn overwriting_keeps_the_newest() {
    if !require(&NEEDS) {
        return;
    }
    let r = Recorded::of(Workload::syscalls());
    r.clean(&["--overwrite", "-m", "4", "-e", "raw_syscalls:sys_enter"], "20000");
    let text = r.perf_script("comm,event,trace");
    let count = text.lines().count();
    assert!((50..most_in_rings(4).min(19_000)).contains(&count), "{count}");
    // exit_group is the last call of all.
    assert!(text.lines().last().unwrap().contains(": NR 231 "), "{text}");
}

#[test]
fn a_size_limit_stops_and_says_so() {
    if !require(&NEEDS) {
        return;
    }
    let r = Recorded::of(Workload::syscalls());
    // The ring holds more than that: it is reached whenever the recorder comes to look.
    let args = r.args(&["--max-size", "64K", "-m", "64", "-e", EVENT], "1000000");
    // perf would end the command with SIGTERM; here it ends by itself.
    let out = record(&args).success();
    assert!(out.stderr.contains("max-size: stopped"), "{}", out.stderr);
    assert!(out.stderr.contains("runs on"), "{}", out.stderr);
    let events = perf_script_with_losses(&r.data, "comm,event").lines().count();
    assert!((100..1_000_000).contains(&events), "{events}");
}

#[test]
fn a_group_is_read_at_its_leaders_samples() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::spin();
    let data = w.file("x.data");
    let _ = record(&["-q", "-o", &data, "-e", "{cpu-clock,page-faults}:S", "--", w.arg(), "20"])
        .success();
    let out = perf(["report", "--group", "--stdio", "-i", &data]).success();
    assert!(out.stdout.contains("anon group { cpu-clock, page-faults }"), "{}", out.stdout);
    let evlist = perf(["evlist", "-g", "-i", &data]).success().stdout;
    assert!(evlist.starts_with("{cpu-clock,page-faults"), "{evlist}");
}

#[test]
fn filters_belong_to_the_event_before_them() {
    if !require(&NEEDS) {
        return;
    }
    let r = Recorded::of(Workload::syscalls());
    let (enter, exit) = ("raw_syscalls:sys_enter", "raw_syscalls:sys_exit");
    let flags = ["-e", enter, "--filter", "id == 110", "-e", exit, "--filter", "id == 231"];
    r.clean(&flags, "50");
    let text = r.perf_script("comm,event,trace");
    assert_eq!(
        (lines_with(&text, "sys_enter").len(), lines_with(&text, "sys_exit").len()),
        (50, 0)
    );
    let bad =
        record(&["-o", &r.data, "-e", EVENT, "--filter", "bogus > 3", "--", "true"]).failure();
    assert!(bad.stderr.contains("bogus > 3") && bad.stderr.contains(EVENT), "{}", bad.stderr);
}

/// Kills a recorder in the middle of its work: when it has marked, which it does each quarter of
/// a second, at least a quarter of a megabyte as whole.
fn killed(r: &Recorded, flags: &[&str], argument: &str) {
    let mut recorder = Command::new(KYMO)
        .arg("record")
        .args(r.args(&[&["-q"], flags].concat(), argument))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let id = recorder.id();
    until("a quarter of a megabyte", || size(&r.data) > 256 << 10);
    until("what the header states", || {
        let mut bytes = [0; 8];
        let file = std::fs::File::open(&r.data).unwrap();
        file.read_exact_at(&mut bytes, 48).is_ok_and(|()| u64::from_le_bytes(bytes) > 256 << 10)
    });
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    // The program would go on for long.
    let _ = run("kill", ["-KILL", children.trim()]);
}

#[test]
fn a_killed_recorder_leaves_a_whole_file() {
    if !require(&NEEDS) {
        return;
    }
    let r = Recorded::of(Workload::spin());
    killed(&r, &["-m", "2", "-F", "20000", "-e", "cpu-clock"], "100000");
    assert!(lines_with(&perf_script_with_losses(&r.data, "comm,ip,sym"), "hot").len() > 100);
    // The newest checks that each section of the file lies in it.
    let newest = |event: &str| {
        let perf = kymo_testkit::peer("perf").run(["script", "-i", &r.data]);
        let count = lines_with(&perf.stdout, event).len();
        assert!(count > 100, "{}: {}", kymo_testkit::peer("perf").version(), perf.stderr);
    };
    newest("cpu-clock");
    // Tracepoints can be read only with their formats, which are a section of the file.
    for packed in [&[][..], &["-z"]] {
        let r = Recorded::of(Workload::syscalls());
        killed(&r, &[packed, &["-e", EVENT, "-e", "page-faults"]].concat(), "1000000000");
        let text = perf_script_with_losses(&r.data, "comm,event,trace");
        let perfs = lines_with(&text, EVENT).len();
        assert!(perfs > 1000, "{packed:?}: {perfs}");
        let header = perf(["report", "--header-only", "-i", &r.data]).success().stdout;
        assert_eq!(lines_with(&header, "# hostname :").len(), 1, "{header}");
        let newest = kymo_testkit::peer("perf").run(["script", "-i", &r.data]);
        let seen = lines_with(&newest.stdout, EVENT).len();
        assert!(seen > 1000, "{seen}: {}", newest.stderr);
        // kymo continues after the last mark, and reports it.
        let ours = run(KYMO, ["script", "-i", &r.data]).success();
        assert!(lines_with(&ours.stdout, EVENT).len() >= perfs);
        assert!(ours.stderr.contains("did not finish the file"), "{}", ours.stderr);
    }
}

/// Number of lost events that a recorder reports.
fn lost(out: &Outcome) -> Option<usize> {
    let said = out.stderr.lines().find_map(|l| l.trim().strip_prefix("lost: "))?;
    Some(said.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn what_was_lost_last_is_counted_too() {
    if !require(&NEEDS) {
        return;
    }
    let r = Recorded::of(Workload::syscalls());
    let out = record(&r.args(&["-m", "1", "-e", EVENT], "300000")).success();
    let text = perf_script_with_losses(&r.data, "event");
    let lost = lost(&out);
    // A machine quick enough loses nothing.
    // A few records that are no samples are lost with them.
    let all = text.lines().count() + lost.unwrap_or(0);
    assert!((300_000..300_010).contains(&all), "{all}: {out:?}");
    if lost.is_some() {
        let advice =
            out.stderr.lines().find_map(|l| l.trim().strip_prefix("-> a larger ring: -m "));
        assert!(advice.is_some_and(|a| a.ends_with(['K', 'M'])), "{out:?}");
    }
}

#[test]
fn the_clocks_that_work_are_named() {
    if !require(&NEEDS) {
        return;
    }
    let r = Recorded::of(Workload::syscalls());
    for clock in ["realtime", "boottime", "tai"] {
        r.clean(&["-e", "cpu-clock", "-k", clock], "1");
        let header = perf(["report", "--header-only", "-i", &r.data]).success().stdout;
        assert_eq!(lines_with(&header, &format!("# clockid: {clock}")).len(), 1, "{header}");
        let out = record(&r.args(&["-e", EVENT, "-k", clock], "1")).failure();
        assert!(
            out.stderr.contains(clock) && out.stderr.contains("monotonic, monotonic_raw, perf"),
            "{out:?}"
        );
    }
}

#[test]
fn bad_requests_say_what_is_wrong() {
    if !require(&NEEDS) {
        return;
    }
    let w = Workload::syscalls();
    let data = w.file("x.data");
    let error = |args: &[&str]| record(args).failure().stderr;
    assert!(error(&["-o", &data, "-e", "nonsense", "--", "true"]).contains("nonsense"));
    let full = error(&["-o", "/dev/full", "-e", "cpu-clock", "--", "true"]);
    assert!(full.contains("/dev/full") && full.contains("No space left"), "{full}");
    assert!(error(&["-o", "/nonexistent/x", "--", "true"]).contains("/nonexistent/x"));
    std::fs::write(&data, "letters").unwrap();
    assert!(error(&["-o", &data, "--", "true"]).contains("not a recording"));
    assert_eq!(std::fs::read(&data).unwrap(), b"letters");
    std::fs::remove_file(&data).unwrap();
    assert_eq!(record(&["-q", "-o", &data, "--", "/nonexistent"]).status, 127);
    let none = format!("{data}.none");
    assert_eq!(record(&["-q", "-o", &none, "--", "/nonexistent"]).status, 127);
    assert!(!std::path::Path::new(&none).exists(), "no file for a command that is not there");
    assert_eq!(record(&["-q", "-o", &data, "--", "sh", "-c", "exit 7"]).status, 7);
    let strict =
        record(&["--strict", "-o", &data, "-e", EVENT, "-m", "1", "--", w.arg(), "100000"]);
    assert!(strict.status == 3 && strict.stderr.contains("events lost"), "{}", strict.stderr);
}
