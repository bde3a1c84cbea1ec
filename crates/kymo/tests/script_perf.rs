//! `kymo script` beside `perf script` on recordings that the installed perf
//! makes of real work on the spot: the same lines.
//!
//! Where the text of a payload differs, the kernel's own is followed: perf
//! leaves the size out of `%pS`, shows `page` without the address of its map, and
//! does not know the enumerators that the kernel left in a print format.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::Path;
use std::process::{Command, Stdio};

use kymo_testkit::{Need, require};

/// Records `sh -c work` with perf into `file`; a failure shows what perf says.
#[track_caller]
fn record(file: &Path, args: &[&str], work: &str) {
    let file = file.to_str().unwrap();
    let all = [&["record", "-q", "-m", "1024"], args, &["-o", file, "--", "sh", "-c", work]];
    let _ = kymo_testkit::perf(all.concat()).success();
}

fn lines(program: &str, file: &Path, args: &[&str]) -> Vec<String> {
    let output = Command::new(program)
        .arg("script")
        .arg("-i")
        .arg(file)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} script {args:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const WORK: &str = "for i in 1 2 3; do ls -lR /etc; cat /etc/passwd | wc -l; done";

/// Both print the same lines, after `change` to each.
fn same_after(file: &Path, args: &[&str], change: impl Fn(&str) -> String) {
    let perf = lines("perf", file, args);
    let kymo = lines(KYMO, file, args);
    assert!(!perf.is_empty(), "{args:?}: perf printed nothing");
    for (n, (p, k)) in perf.iter().zip(&kymo).enumerate() {
        // Inside execve the old program's mappings are gone already; perf keeps them.
        if p.contains("execve") && k.contains("[unknown]") {
            continue;
        }
        assert_eq!(change(k), change(p), "{args:?}: line {}", n + 1);
    }
    assert_eq!(kymo.len(), perf.len(), "{args:?}: number of lines");
}

fn same(file: &Path, args: &[&str]) {
    same_after(file, args, str::to_owned);
}

#[test]
fn tracepoints_of_every_way_to_record() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    let ways: [&[&str]; 4] = [
        &["-e", "raw_syscalls:*"],
        &["-e", "raw_syscalls:*", "-z"],
        &["-e", "raw_syscalls:sys_enter", "--per-thread"],
        &["-e", "sched:sched_switch", "-e", "sched:sched_process*"],
    ];
    for way in ways {
        record(&file, way, WORK);
        same(&file, &[]);
        same(&file, &["-F", "comm,pid,tid,time,event,trace"]);
    }
}

#[test]
fn a_pipe_is_read_like_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pipe.data");
    let output = Command::new("perf")
        .args(["record", "-q", "-e", "raw_syscalls:*", "-o", "-", "--", "sh", "-c"])
        .arg(format!("({WORK}) >/dev/null"))
        .stderr(Stdio::null())
        .output()
        .expect("perf is installed");
    std::fs::write(&file, &output.stdout).unwrap();
    same(&file, &[]);
    let piped = Command::new(KYMO)
        .args(["script", "-i", "-"])
        .stdin(std::fs::File::open(&file).unwrap())
        .output()
        .unwrap();
    let from_file = lines(KYMO, &file, &[]);
    assert_eq!(String::from_utf8_lossy(&piped.stdout).lines().count(), from_file.len());
}

#[test]
fn samples_groups_and_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    record(&file, &["-e", "{cpu-clock,page-faults}", "-d"], WORK);
    same(&file, &["-F", "comm,tid,time,period,event,ip,addr"]);
    same(&file, &["-F", "comm,pid,time,event", "--ns"]);
}

/// perf gives PLT entries without a name of their own no name at all, and of
/// several names of one place another; the place and the binary must agree.
fn without_aliases(line: &str) -> String {
    match line.trim_start().split_once(' ') {
        Some((ip, rest)) if line.starts_with('\t') => {
            let dso = rest.rsplit_once(" (").map_or("", |(_, dso)| dso);
            let offset = rest.rsplit_once('+').map_or("", |(_, o)| o);
            format!("{ip} +{offset} {dso}")
        }
        _ => line.to_owned(),
    }
}

#[test]
fn call_chains_and_symbols() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    record(&file, &["-e", "cpu-clock", "-F", "4000", "-g"], WORK);
    // perf shows inlined functions in chains that it unwound only.
    // The call that ends the dynamic linker's `_start` returns to the first address of
    // `_dl_start_user`, which perf takes for the caller (not so where it unwinds).
    let change = |l: &str| without_aliases(&l.replace("_dl_start_user+0x0", "_start+0x8"));
    same_after(&file, &["--no-inline"], change);
    same_after(&file, &["--no-inline", "-F", "ip,sym,symoff,dso"], change);
    same(&file, &["-G", "-F", "+pid,-period,-sym,-symoff,-dso"]);
    same(&file, &["-G", "-F", "comm,tid,time,event,ip"]);
    // Names agree but for a few aliases.
    let plain = ["--no-inline"];
    let (perf, kymo) = (lines("perf", &file, &plain), lines(KYMO, &file, &plain));
    let differ = perf.iter().zip(&kymo).filter(|(p, k)| p != k).count();
    assert!(differ * 100 < perf.len(), "{differ} of {} lines differ", perf.len());
}

/// perf 6.1 prints the addresses of frames in the binary, perf 7.2 those in the process.
#[test]
fn under_perfs_name_frames_have_their_addresses_in_the_process() {
    if !require(&[Need::PerfEvents, Need::NewestPeers]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    let link = dir.path().join("perf");
    std::os::unix::fs::symlink(KYMO, &link).unwrap();
    record(&file, &["-e", "cpu-clock", "-F", "4000", "-g"], WORK);
    let args = ["script", "-F", "ip,sym", "-i", file.to_str().unwrap()];
    // Each distinct address once, in order: some frames of inlined functions have other places.
    let addresses = |text: &str| -> std::collections::BTreeSet<u64> {
        let words = text.lines().filter_map(|line| line.split_whitespace().next());
        words.filter_map(|word| u64::from_str_radix(word, 16).ok()).collect()
    };
    let ours = addresses(&kymo_testkit::run(&link, args).success().stdout);
    let newest = addresses(&kymo_testkit::peer("perf").run(args).success().stdout);
    let in_binary = addresses(&kymo_testkit::run(KYMO, args).success().stdout);
    assert!(ours.len() > 100, "{}", ours.len());
    assert_eq!(ours, newest);
    assert_ne!(ours, in_binary);
}

#[test]
fn task_and_mapping_records() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    record(&file, &["-e", "cpu-clock"], WORK);
    same_after(&file, &["--show-task-events", "--show-mmap-events"], |line| {
        if line.contains("PERF_RECORD") { line.to_owned() } else { String::new() }
    });
}

#[test]
fn filters_keep_what_they_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    record(&file, &["-e", "raw_syscalls:*"], WORK);
    let all = lines(KYMO, &file, &["-F", "comm,tid,time,event"]);
    let ls = lines(KYMO, &file, &["-F", "comm,tid,time,event", "--comm", "ls"]);
    let expected: Vec<&String> = all.iter().filter(|l| l.trim_start().starts_with("ls ")).collect();
    assert!(!ls.is_empty() && ls.iter().eq(expected));
    let exits = lines(KYMO, &file, &["-F", "event", "--event", "*:sys_exit"]);
    assert_eq!(exits.len(), all.iter().filter(|l| l.contains("sys_exit")).count());
    let time = |l: &String| l.split_whitespace().nth(2).unwrap().trim_end_matches(':').to_owned();
    let (from, to) = (time(&all[all.len() / 3]), time(&all[all.len() / 2]));
    let range = format!("{from},{to}");
    same(&file, &["--time", &range]);
}

#[test]
fn json_lines_carry_typed_fields() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    record(&file, &["-e", "sched:sched_process_exec", "-e", "raw_syscalls:sys_enter"], WORK);
    let (json, text) = (lines(KYMO, &file, &["--json"]), lines(KYMO, &file, &[]));
    assert_eq!(json.len(), text.len());
    let mut execs = 0;
    for line in &json {
        let v: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(v["pid"].is_i64() && v["time"].is_f64(), "{line}");
        match v["event"].as_str() {
            Some("sched:sched_process_exec") => {
                execs += 1;
                assert!(v["fields"]["filename"].as_str().unwrap().starts_with('/'), "{line}");
            }
            _ => assert_eq!(v["fields"]["args"].as_array().map(Vec::len), Some(6), "{line}"),
        }
    }
    assert!(execs > 3, "{execs} execs");
}

#[test]
fn a_cut_recording_is_shown_as_far_as_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    record(&file, &["-e", "raw_syscalls:*"], "true");
    let whole = lines(KYMO, &file, &["-F", "comm,tid,time"]);
    let bytes = std::fs::read(&file).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let cut = dir.path().join("cut.data");
    std::fs::write(&cut, &bytes[..word(40) + word(48) * 3 / 4]).unwrap();
    let output = Command::new(KYMO)
        .args(["script", "-F", "comm,tid,time", "-i"])
        .arg(&cut)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("at offset") && errors.contains("cut.data"), "{errors}");
    let shown = String::from_utf8_lossy(&output.stdout).lines().count();
    assert!(shown * 2 > whole.len() && shown < whole.len(), "{shown} of {}", whole.len());
}

/// SIGKILL leaves a perf.data of perf without formats, names and sizes.
#[test]
fn a_killed_recorders_file_shows_payloads_and_says_what_it_took() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    let mut perf = Command::new("perf")
        .args(["record", "-q", "-e", "raw_syscalls:sys_enter", "-o"])
        .arg(&file)
        .args(["--", "sh", "-c", "for i in $(seq 100); do ls -lR /etc; sleep 0.2; done"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("perf is installed");
    let enough = |f: &Path| std::fs::metadata(f).is_ok_and(|m| m.len() > 100_000);
    for _ in 0..3000 {
        if enough(&file) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    perf.kill().unwrap();
    perf.wait().unwrap();
    assert!(enough(&file), "perf wrote nothing in a minute");
    let output = Command::new(KYMO).args(["script", "-i"]).arg(&file).output().unwrap();
    let (said, shown) =
        (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    let first = shown.lines().next().unwrap_or_default();
    assert!(first.contains(": NR ") && first.contains('('), "{first}\n{said}");
    assert!(said.contains("unfinished") && said.contains("the running kernel's is used"), "{said}");
}

/// Whether perf's word stands for the same: see the top of this file.
fn same_word(event: &str, perf: &str, kymo: &str) -> bool {
    let number = |w: &str| w.rsplit('=').next().is_some_and(|v| v.starts_with("0x"));
    let key = |w: &str| w.split_once('=').map(|(key, _)| key.to_owned());
    perf == kymo
        || kymo.strip_prefix(perf).is_some_and(|rest| rest.starts_with("/0x"))
        || (perf.starts_with("page=") && kymo.starts_with("page="))
        // `flags & (A|B|…)`: perf loses the parentheses and prints bits that are not set.
        || (event.starts_with("timer:timer_start") && perf.starts_with("flags="))
        // An enumerator that only the kernel's BTF has.
        || (number(perf) && !number(kymo) && key(perf) == key(kymo))
}

#[test]
fn payloads_of_many_subsystems() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    let scratch = dir.path().join("scratch");
    let work = format!(
        "ls -l /etc/default; echo hi | cat >{0}; cat {0}; sync {0}; sleep 0.01; \
         i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done",
        scratch.display()
    );
    // In one recording: perf opens each anew for long, whatever is in it.
    let systems = ["kmem", "sched", "irq", "timer", "block", "filemap", "signal"];
    let events = systems.map(|s| format!("{s}:*")).join(",");
    record(&file, &["-e", &events], &work);
    let args = ["-F", "event,trace"];
    let (perf, kymo) = (lines("perf", &file, &args), lines(KYMO, &file, &args));
    let words =
        |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    let mut seen = std::collections::BTreeSet::new();
    for (p, k) in perf.iter().zip(&kymo) {
        let (pw, kw) = (words(p), words(k));
        let event = pw.first().map_or("", |w| w);
        let same = pw.iter().zip(&kw).all(|(p, k)| same_word(event, p, k));
        assert!(same && pw.len() == kw.len(), "{p}\n{k}");
        seen.insert(event.split(':').next().unwrap_or_default().to_owned());
    }
    assert_eq!(perf.len(), kymo.len());
    // `block` has nothing to do where the scratch file lies in memory.
    assert!(seen.len() >= systems.len() - 1, "only {seen:?} of {systems:?}");
}
