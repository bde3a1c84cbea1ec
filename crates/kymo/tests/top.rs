//! `kymo top --stdio`: its pages have the numbers that `kymo report` and perf find in what it
//! saves of the same samples.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::{Need, Workload, perf, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 3] = [Need::Root, Need::PerfEvents, Need::Gcc];

/// A child that burns CPU until this is dropped.
struct Burner {
    child: Child,
}

impl Burner {
    fn start(workload: &Workload) -> Burner {
        let mut command = Command::new(workload.program());
        let child = command.arg("1000000").stdout(Stdio::null()).spawn().unwrap();
        Burner { child }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Samples by binary and symbol of the last page.
fn last_page(text: &str) -> BTreeMap<String, u64> {
    let page = text.rsplit("   PerfTop:").next().unwrap();
    rows(page)
}

/// Rows `12.34%  5  dso  [.] symbol` of a text.
fn rows(text: &str) -> BTreeMap<String, u64> {
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [share, samples, name @ ..] = &words[..]
            && share.ends_with('%')
            && let Ok(samples) = samples.parse()
        {
            // perf has columns without a value behind the name.
            let name = name.iter().filter(|word| **word != "-").copied().collect::<Vec<_>>();
            rows.insert(name.join(" "), samples);
        }
    }
    rows
}

#[test]
fn pages_have_the_numbers_of_what_is_saved() {
    if !require(&NEEDS) {
        return;
    }
    let workload = Workload::spin();
    let burner = Burner::start(&workload);
    let saved = workload.file("saved.data");
    let args = ["-d", "0.5", "--timeout", "1500", "-n", "-E", "100000", "--window", "1000"];
    let top =
        run(KYMO, [&["top", "--stdio", "-p", &burner.pid(), "-o", &saved], &args[..]].concat())
            .success();
    drop(burner);
    assert!(top.stdout.matches("PerfTop:").count() >= 3, "{}", top.stdout);
    assert!(!top.stdout.contains('\x1b'), "escape sequences in a pipe");
    let page = last_page(&top.stdout);
    let of = |name: &str| page.iter().find(|(k, _)| k.ends_with(name)).map_or(0, |(_, n)| *n);
    assert!(of("[.] hot") > of("[.] warm") && of("[.] warm") > 0, "{page:?}");
    let all: u64 = page.values().sum();
    assert!(top.stderr.contains(&format!("Saved {all} samples")), "{}", top.stderr);
    let shape = ["--stdio", "--no-children", "-n", "--sort", "dso,symbol", "-i"];
    let report = run(KYMO, [&["report"], &shape[..], &[&saved]].concat()).success();
    assert_eq!(rows(&report.stdout), page);
    let theirs = perf([&["report"], &shape[..], &[&saved]].concat()).success();
    let known = |all: &BTreeMap<String, u64>| -> BTreeMap<String, u64> {
        let is = |k: &String| k.ends_with("[.] hot") || k.ends_with("[.] warm");
        all.iter().filter(|(k, _)| is(k)).map(|(k, n)| (k.clone(), *n)).collect()
    };
    assert_eq!(known(&rows(&theirs.stdout)), known(&page));
    assert_eq!(rows(&theirs.stdout).values().sum::<u64>(), all);
}

#[test]
fn call_chains_weigh_callers() {
    if !require(&NEEDS) {
        return;
    }
    let workload = Workload::spin();
    let burner = Burner::start(&workload);
    let saved = workload.file("saved.data");
    let pid = burner.pid();
    let args = ["top", "--stdio", "-g", "-p", &pid, "-o", &saved, "--timeout", "800", "-s", "sym"];
    let top = run(KYMO, args).success();
    drop(burner);
    let page = top.stdout.rsplit("   PerfTop:").next().unwrap();
    // Both shares and the name, of this program alone.
    let shares = |text: &str| -> BTreeMap<String, (String, String)> {
        let mut all = BTreeMap::new();
        for line in text.lines() {
            if let [total, own, "[.]", name] = line.split_whitespace().collect::<Vec<_>>()[..]
                && ["main", "outer", "hot", "warm"].contains(&name)
            {
                all.insert(name.to_owned(), (total.to_owned(), own.to_owned()));
            }
        }
        all
    };
    let ours = shares(page);
    assert!(ours.len() >= 3, "{page}");
    let report = ["report", "--stdio", "-g", "none", "--sort", "sym", "-i", &saved];
    let mut theirs = shares(&run(KYMO, report).success().stdout);
    theirs.retain(|name, _| ours.contains_key(name));
    assert_eq!(ours, theirs);
}

/// A program that has something else in the register of the frame pointer.
#[cfg(target_arch = "x86_64")]
#[test]
fn stacks_without_frame_pointers_are_said_to_be_short() {
    if !require(&NEEDS) {
        return;
    }
    let source = r#"int main(void) {
        for (;;)
            __asm__ volatile("sub $128, %%rsp; push %%rbp; mov $8, %%ebp; mov $100000000, %%ecx;"
                             "1: dec %%ecx; jnz 1b; pop %%rbp; add $128, %%rsp" ::: "rcx", "cc");
    }"#;
    let reported = |workload: &Workload, options: &[&str]| {
        let burner = Burner::start(workload);
        let args = ["top", "--stdio", "-g", "-p", &burner.pid(), "--timeout", "800"];
        let text = run(KYMO, [&args[..], options].concat()).success().stdout;
        text.lines().filter(|l| l.starts_with("# ") && l.contains("--call-graph dwarf")).count()
    };
    let (lost, kept) = (Workload::compile("lost", source), Workload::spin());
    assert_eq!(reported(&lost, &[]), 1);
    assert_eq!(reported(&lost, &["--call-graph", "dwarf"]), 0);
    assert_eq!(reported(&lost, &["--max-stack", "1"]), 0);
    assert_eq!(reported(&kept, &[]), 0);
}

/// Times of threads off the CPU are those between the switch records that perf finds in what was
/// saved; the last one may be longer, up to the end of the page.
#[test]
fn times_off_the_cpu_are_those_between_switches() {
    if !require(&NEEDS) {
        return;
    }
    let source = r#"
#include <pthread.h>
#include <time.h>
volatile unsigned long sink;
static void *sleeps(void *span) {
  struct timespec t = {0, (long)span};
  for (;;) {
    for (int i = 0; i < 200000; i++) sink++;
    nanosleep(&t, 0);
  }
}
int main(void) {
  pthread_t thread;
  pthread_create(&thread, 0, sleeps, (void *)3000000);
  pthread_create(&thread, 0, sleeps, (void *)500000000);
  sleeps((void *)20000000);
}
"#;
    let workload = Workload::compile("naps", source);
    let burner = Burner::start(&workload);
    let saved = workload.file("off.data");
    let pid = burner.pid();
    let threads = format!("/proc/{pid}/task");
    while std::fs::read_dir(&threads).unwrap().count() < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let args = ["top", "--stdio", "--off-cpu", "-p", &pid, "-s", "pid", "-o", &saved];
    let more = ["-d", "0.5", "--timeout", "1700", "--window", "1000"];
    let began = Instant::now();
    let top = run(KYMO, [&args[..], &more].concat()).success();
    // The page ends before the command does.
    let most_time = began.elapsed().as_secs_f64() * 1e3;
    drop(burner);
    let page = top.stdout.rsplit("   PerfTop:").next().unwrap();
    // Milliseconds by thread: `1.00% 0.50% 12.3 ms 123:naps`.
    let mut shown: BTreeMap<u32, f64> = BTreeMap::new();
    for line in page.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, _, time, unit, task] = words[..]
            && let Some((tid, "naps")) = task.split_once(':')
        {
            let factor = BTreeMap::from([("us", 1e-3), ("ms", 1.0), ("s", 1e3)])[unit];
            shown.insert(tid.parse().unwrap(), time.parse::<f64>().unwrap() * factor);
        }
    }
    assert_eq!(shown.len(), 3, "{page}");
    let format = ["script", "--ns", "-F", "tid,time", "--show-switch-events", "-i", &saved];
    let theirs = perf(format).success().stdout;
    let mut reported: BTreeMap<u32, f64> = BTreeMap::new();
    let mut since: BTreeMap<u32, f64> = BTreeMap::new();
    let mut first = f64::MAX;
    for line in theirs.lines().filter(|l| l.contains("PERF_RECORD_SWITCH")) {
        let mut words = line.split_whitespace();
        let tid: u32 = words.next().unwrap().parse().unwrap();
        let time = words.next().unwrap().trim_end_matches(':').parse::<f64>().unwrap() * 1e3;
        first = first.min(time);
        if line.contains(" OUT") {
            since.insert(tid, time);
        } else if let Some(begin) = since.remove(&tid) {
            *reported.entry(tid).or_default() += time - begin;
        }
    }
    for (tid, shown) in &shown {
        let reported = reported.get(tid).copied().unwrap_or(0.0);
        // The last digit that is shown.
        let digit = if *shown < 1000.0 { 0.1 } else { 60.0 };
        let lasting = since.get(tid).map_or(0.0, |begin| first + most_time - begin);
        let most = reported + lasting + digit;
        assert!(
            (reported - digit..most).contains(shown),
            "{tid}: {shown} {reported} {lasting}: {page}"
        );
    }
    assert!(reported.values().filter(|t| **t > 0.0).count() >= 2, "{theirs}");
}

#[test]
fn rows_are_about_what_is_asked_for() {
    if !require(&NEEDS) {
        return;
    }
    let workload = Workload::spin();
    let burner = Burner::start(&workload);
    let pid = burner.pid();
    let top = |more: &[&str]| {
        let args = ["top", "--stdio", "-p", &pid, "--timeout", "300", "-F", "999"];
        run(KYMO, [&args[..], more].concat())
    };
    let text = |more: &[&str]| top(more).success().stdout;
    let by_task = text(&["-s", "pid,comm"]);
    assert!(by_task.contains(&format!("{pid}:spin")), "{by_task}");
    assert!(by_task.contains("[999Hz "), "{by_task}");
    assert!(by_task.contains(&format!("(target_pid: {pid}")), "{by_task}");
    let lines = text(&["-s", "srcline"]);
    assert!(lines.contains("spin.c:"), "{lines}");
    let kernel_only = text(&["-U"]);
    assert!(!kernel_only.contains("hot"), "{kernel_only}");
    let warm = text(&["--symbols", "warm", "-s", "symbol", "--percentage", "relative"]);
    assert!(warm.contains("100.00%  [.] warm"), "{warm}");
    let wrong = top(&["-s", "weight"]).failure();
    assert!(wrong.stderr.contains("-s weight: there are comm"), "{}", wrong.stderr);
}

/// Shares of the last page, added up.
fn shares(text: &str) -> f64 {
    let page = text.rsplit("   PerfTop:").next().unwrap();
    let of = |line: &str| line.trim_start().split('%').next()?.parse::<f64>().ok();
    page.lines().filter(|l| l.contains("[.]") || l.contains("[k]")).filter_map(of).sum()
}

#[test]
fn shares_are_of_all_samples_or_of_those_that_are_shown() {
    if !require(&NEEDS) {
        return;
    }
    let workload = Workload::spin();
    let burner = Burner::start(&workload);
    let top = |options: &[&str]| {
        let args = ["top", "--stdio", "-p", &burner.pid(), "-d", "1", "--timeout", "1000"];
        run(KYMO, [&args[..], options].concat()).success().stdout
    };
    // A quarter of the time.
    let chosen = ["-s", "symbol", "--symbols", "warm"];
    let all = shares(&top(&chosen));
    let shown = shares(&top(&[&chosen[..], &["--percentage", "relative"]].concat()));
    assert!((99.0..=101.0).contains(&shown), "{shown}");
    assert!(all < 99.0 && all > 0.0, "{all}");
}

#[test]
fn chains_are_as_long_as_is_asked_for() {
    if !require(&NEEDS) {
        return;
    }
    let workload = Workload::spin();
    let burner = Burner::start(&workload);
    let top = |options: &[&str]| {
        let args = ["top", "--stdio", "-g", "-p", &burner.pid(), "-d", "1", "--timeout", "1000"];
        run(KYMO, [&args[..], &["-E", "1000", "-s", "symbol"], options].concat()).success().stdout
    };
    // A caller has a share with its callees, and none of its own.
    let callers = |text: &str| {
        let page = text.rsplit("   PerfTop:").next().unwrap().to_owned();
        let caller = |l: &str| {
            let numbers: Vec<&str> = l.split_whitespace().take(2).collect();
            numbers.len() == 2 && numbers[1] == "0.00%" && numbers[0] != "0.00%"
        };
        page.lines().filter(|l| caller(l)).count()
    };
    let (whole, cut) = (top(&[]), top(&["--max-stack", "1"]));
    assert!(callers(&whole) > 0, "{whole}");
    assert_eq!(callers(&cut), 0, "{cut}");
}
