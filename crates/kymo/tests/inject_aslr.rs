//! `kymo inject --aslr`: no address of the recording is left, and reports are the same.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use std::collections::BTreeSet;
use std::path::Path;

use kymo_testkit::{Need, Outcome, Workload, check_perf_data, peer, require, run};

/// A parent and a child that does not execute a program, each in a function of its own, which read
/// and write files now and then.
const FORKS: &str = r#"
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile unsigned long rounds;
__attribute__((noinline)) static void work(int fd)
{
    static char bytes[65536];
    for (unsigned long i = 0; i < 300; i++) {
        for (unsigned long j = 0; j < 200000; j++) rounds += j;
        if (pread(fd, bytes, sizeof bytes, 0) < 0) _exit(1);
    }
}
__attribute__((noinline)) void in_parent(int fd) { work(fd); rounds++; }
__attribute__((noinline)) void in_child(int fd) { work(fd); rounds++; }
int main(void)
{
    int fd = open("/dev/zero", O_RDONLY);
    if (!fork()) { in_child(fd); return 0; }
    in_parent(fd);
    wait(0);
    return 0;
}
"#;

fn kymo(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), args)
}

/// Rows of a report: share, samples, binary and symbol.
fn rows(report: &Outcome) -> Vec<String> {
    let lines = report.stdout.lines().filter(|l| l.contains('%') && !l.starts_with('#'));
    let words = lines.map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "));
    // The order of equal ones, and what no mapping holds, is by address.
    let mut rows: Vec<String> =
        words.filter(|l| !l.contains("] 0x") && !l.contains("00000000")).collect();
    rows.sort();
    rows
}

/// Starts of mappings and sampled addresses, innermost and of callers, as kymo reads them.
fn addresses(file: &str, fields: &str) -> BTreeSet<u64> {
    let maps = kymo(&["script", "--show-mmap-events", "-F", fields, "-i", file]).success().stdout;
    let starts = maps.split('[').filter_map(|part| part.strip_prefix("0x")?.split('(').next());
    let words = maps.lines().filter(|l| !l.contains("MMAP")).flat_map(str::split_whitespace);
    let all = starts.chain(words).filter_map(|word| u64::from_str_radix(word, 16).ok());
    // Small numbers are no addresses of this machine, and may be anything in the new file.
    all.filter(|address| *address >= 1 << 32).collect()
}

/// Those that stand in a file, wherever.
fn left(file: &str, addresses: &BTreeSet<u64>) -> Vec<String> {
    let bytes = std::fs::read(file).unwrap();
    let words = bytes.windows(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    let found: BTreeSet<u64> = words.filter(|word| addresses.contains(word)).collect();
    found.iter().map(|address| format!("{address:x}")).collect()
}

fn checked(file: &str) {
    let bytes = std::fs::read(Path::new(file)).unwrap();
    let _ = check_perf_data(&bytes).unwrap_or_else(|broken| panic!("{file}: {broken}"));
}

#[test]
fn reports_stay_and_no_address_does() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("inject_aslr", FORKS);
    let (file, moved, piped) = (w.file("plain.data"), w.file("moved.data"), w.file("piped.data"));
    let flags = ["record", "-q", "-F", "500", "-e", "cpu-clock", "-g", "-d", "-o", &file, w.arg()];
    let _ = kymo(&flags).success();
    let out = kymo(&["inject", "-b", "--aslr", "-i", &file, "-o", &moved]).success();
    assert!(!out.stderr.contains("malformed"), "{}", out.stderr);
    checked(&moved);
    let known = addresses(&file, "ip,addr");
    assert!(known.len() > 20, "{known:x?}");
    assert!(left(&file, &known).len() > 10);
    assert_eq!(left(&moved, &known), [""; 0]);
    // Names, also of the child and of the kernel, by kymo and by the newest perf.
    for sort in ["dso,sym", "comm,pid,sym"] {
        let report = ["report", "--stdio", "--no-children", "-g", "none", "-n", "-s", sort, "-i"];
        let before = kymo(&[&report[..], &[&file]].concat()).success();
        let after = kymo(&[&report[..], &[&moved]].concat()).success();
        assert_eq!(rows(&after), rows(&before), "{}\n{}", before.stdout, after.stdout);
        assert!(before.stdout.contains("[.] work"), "{}", before.stdout);
        let newest = peer("perf");
        if newest.is_newest() {
            let after = newest.run([&report[..], &[&moved]].concat()).success();
            let before = newest.run([&report[..], &[&file]].concat()).success();
            assert_eq!(rows(&after), rows(&before), "{}\n{}", before.stdout, after.stdout);
        }
    }
    // Callers.
    let folded = |file: &str| kymo(&["convert", "-f", "folded", "-i", file]).success().stdout;
    let callers = |text: &str| -> Vec<String> {
        let named = text.lines().filter(|l| !l.contains("0x") && !l.contains("unknown"));
        let mut lines: Vec<String> = named.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (before, after) = (callers(&folded(&file)), callers(&folded(&moved)));
    assert_eq!(after, before);
    assert!(before.iter().any(|l| l.contains("in_child;work")), "{before:?}");
    // Into a pipe it is the same, and so a second time.
    let line = format!("'{}' inject --aslr -i '{file}' > '{piped}'", env!("CARGO_BIN_EXE_kymo"));
    let _ = run("sh", ["-c", &line]).success();
    checked(&piped);
    assert_eq!(left(&piped, &known), [""; 0]);
    let ips = |file: &str| kymo(&["script", "-F", "time,ip,sym", "-i", file]).success().stdout;
    assert_eq!(ips(&piped), ips(&moved));
}

#[test]
fn what_may_hold_addresses_is_left_out_and_reported() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let w = Workload::spin();
    let (file, moved) = (w.file("all.data"), w.file("all-moved.data"));
    let events = ["-e", "cpu-clock", "-e", "sched:sched_switch"];
    let flags = ["-F", "500", "--call-graph", "dwarf,4096", "-I", "-o", &file, w.arg()];
    let _ = kymo(&[&["record", "-q"], &events[..], &flags].concat()).success();
    let known = addresses(&file, "ip");
    let out = kymo(&["inject", "--aslr", "-i", &file, "-o", &moved]).success();
    for fact in ["of tracepoints", "without the copy of the stack"] {
        assert!(out.stderr.contains(fact), "{fact}: {}", out.stderr);
    }
    checked(&moved);
    assert_eq!(left(&moved, &known), [""; 0]);
    let samples = |file: &str, event: &str| {
        let text = kymo(&["script", "-F", "event,ip,sym", "-G", "-i", file]).success().stdout;
        text.lines().filter(|l| l.contains(event)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(samples(&moved, "sched_switch"), [""; 0]);
    let clock = samples(&moved, "cpu-clock");
    assert_eq!(clock.len(), samples(&file, "cpu-clock").len());
    let attributes = kymo(&["evlist", "-v", "-i", &moved]).success().stdout;
    assert!(!attributes.contains("REGS") && !attributes.contains("STACK"), "{attributes}");
    // perf opens a recording with tracepoints only with their formats.
    let newest = peer("perf");
    if newest.is_newest() {
        let text =
            newest.run(["script", "-F", "event,ip,sym", "-G", "-i", &moved]).success().stdout;
        assert_eq!(text.lines().filter(|l| l.contains("cpu-clock")).count(), clock.len());
    }
    // Chains that were unwound first are kept.
    let (chains, both) = (w.file("chains.data"), w.file("both.data"));
    let _ = kymo(&["inject", "--convert-callchain", "-i", &file, "-o", &chains]).success();
    let _ = kymo(&["inject", "--aslr", "-i", &chains, "-o", &both]).success();
    let folded = kymo(&["convert", "-f", "folded", "-i", &both]).success().stdout;
    assert!(folded.lines().any(|l| l.contains("main;")), "{folded}");
    assert_eq!(left(&both, &addresses(&chains, "ip")), [""; 0]);
    let refused = kymo(&["inject", "--aslr", "--convert-callchain", "-i", &file, "-o", &both]);
    assert!(refused.failure().stderr.contains("cannot be used with"));
}

/// perf's own test of it. Callers are shown by their place in the file, as perf 6.1 does it, so that
/// its part about them sees no difference.
#[test]
fn the_newest_perfs_test_of_it_passes() {
    let needs = [Need::Root, Need::NewestPeers, Need::PerfEvents, Need::Gcc];
    if !require(&needs) {
        return;
    }
    let kymo = Path::new(env!("CARGO_BIN_EXE_kymo"));
    let tests = kymo_testkit::PerfTests::new(kymo).unwrap().unwrap();
    let limit = std::time::Duration::from_secs(120);
    let outcome = tests.run("inject_aslr.sh", kymo_testkit::PerfProgram::Kymo, limit).unwrap();
    let failed = outcome.text.lines().filter(|l| l.contains("[Failed"));
    let others = failed.filter(|l| !l.starts_with("Callchain ASLR test"));
    assert_eq!(others.collect::<Vec<_>>(), [""; 0], "{}", outcome.text);
    assert!(outcome.text.matches("[Success]").count() >= 8, "{}", outcome.text);
}
