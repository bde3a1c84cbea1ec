//! `kymo report` next to `perf report` on the same recordings of real programs.

use std::collections::BTreeSet;

use kymo_testkit::{Need, Workload, perf, require, run};

const SOURCE: &str = r#"
#include <stdio.h>
#include <string.h>
volatile unsigned long sink;
__attribute__((noinline)) void leaf(int n) { for (int i = 0; i < n; i++) sink += i * i; }
__attribute__((noinline)) void mid(int n) { leaf(n); for (int i = 0; i < n / 2; i++) sink ^= i; }
__attribute__((noinline)) void top_a(int n) { mid(n); mid(n / 2); }
__attribute__((noinline)) void top_b(int n) { mid(n / 3); leaf(n); }
int main(void) {
    char b[4096];
    for (int i = 0; i < 1500; i++) {
        top_a(40000);
        top_b(30000);
        FILE *f = fopen("/proc/self/stat", "r");
        if (f) { sink += fread(b, 1, sizeof b, f); fclose(f); }
    }
    return 0;
}
"#;

/// The lines that are not headings, comments or empty. Callers without a symbol
/// are left out: perf prints where they were mapped, kymo their place in the file.
fn rows(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter(|l| !l.starts_with('#') && !l.trim().is_empty() && !l.contains("] 0x"))
        .map(str::to_string)
        .collect()
}

/// Heading lines that both print, up to the first empty one.
fn headings(text: &str) -> Vec<&str> {
    text.lines().filter(|l| l.starts_with("# Samples") || l.starts_with("# Event count")).collect()
}

#[track_caller]
fn same(file: &str, options: &[&str]) {
    let args = |first: &[&'static str]| -> Vec<String> {
        let all = first.iter().copied().chain(["--stdio", "-i", file]);
        all.chain(options.iter().copied()).map(str::to_string).collect()
    };
    let theirs = perf(args(&["report"])).success();
    let ours = run(env!("CARGO_BIN_EXE_kymo"), args(&["report"])).success();
    assert_eq!(headings(&ours.stdout), headings(&theirs.stdout), "{options:?}");
    let (ours, theirs) = (rows(&ours.stdout), rows(&theirs.stdout));
    assert!(!theirs.is_empty(), "{options:?}: perf shows nothing");
    let missing: Vec<_> = theirs.difference(&ours).collect();
    let extra: Vec<_> = ours.difference(&theirs).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "{options:?}\nonly in perf's: {missing:#?}\nonly in ours: {extra:#?}"
    );
}

#[test]
fn rows_chains_and_percentages_are_perfs() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("report_shape", SOURCE);
    let file = w.file("perf.data");
    let program = w.program().display().to_string();
    let record =
        ["record", "-q", "-F", "2000", "-g", "-e", "cpu-clock,page-faults", "-o", &file, &program];
    let _ = perf(record).success();
    let cases: &[&[&str]] = &[
        &["--no-children", "-g", "none", "--sort", "comm,dso,sym"],
        &["--no-children", "-g", "none", "-n", "--show-total-period"],
        &["--no-children", "-g", "none", "-F", "sym,overhead,sample"],
        &["--no-children", "-g", "folded"],
        &["-g", "folded"],
        &["--children", "-g", "none", "--percent-limit", "1"],
        &["--no-children", "-g", "none", "--dsos", "report_shape"],
    ];
    for options in cases {
        same(&file, options);
    }
}

#[test]
fn a_tracepoint_is_reported_with_its_callers() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("report_trace", SOURCE);
    let file = w.file("perf.data");
    let program = w.program().display().to_string();
    let event = "raw_syscalls:sys_enter";
    let _ = perf(["record", "-q", "-g", "-e", event, "-o", &file, &program]).success();
    same(&file, &["--no-children", "-g", "none", "--sort", "comm,dso,sym"]);
    same(&file, &["--children", "-g", "none", "--sort", "comm,dso,sym"]);
}
