//! `kymo evlist`, `buildid-list` and `kallsyms` print what perf prints of the same.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use kymo_testkit::{Need, Outcome, Workload, perf, require, run};

#[track_caller]
fn kymo(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), args)
}

#[track_caller]
fn same(args: &[&str]) {
    let ours = kymo(args).success().stdout;
    let theirs = perf(args).success().stdout;
    // perf ends with a remark where there are tracepoints.
    let theirs: Vec<&str> =
        theirs.lines().filter(|l| !l.starts_with("# Tip")).map(str::trim_end).collect();
    assert!(!theirs.is_empty(), "{args:?}: perf prints nothing");
    assert_eq!(ours.lines().collect::<Vec<_>>(), theirs, "{args:?}");
}

/// Attributes without the size of the structure, which states how old the recorder was.
fn without_size(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|l| !l.starts_with("# Tip"));
    lines
        .map(|line| {
            let kept = line.split(", ").filter(|field| !field.starts_with("size: "));
            kept.collect::<Vec<_>>().join(", ")
        })
        .collect()
}

#[test]
fn events_and_their_attributes_are_those_that_perf_lists() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let w = Workload::spin();
    let file = w.file("x.data");
    let recordings: [&[&str]; 4] = [
        &["-e", "cpu-clock,sched:sched_switch", "-F", "99", "-g"],
        &["-e", "{cpu-clock,page-faults}", "-d", "--switch-events", "-P", "--namespaces"],
        &["-e", "cpu-clock:u", "-c", "100000", "--call-graph", "dwarf", "--phys-data", "-s"],
        &["-e", "page-faults:k", "--intr-regs", "--weight", "--all-cgroups", "--data-page-size"],
    ];
    for flags in recordings {
        let record = [&["record", "-q", "-o", &file], flags, &["--", "true"]].concat();
        let _ = perf(&record).success();
        for flag in ["-f", "-F", "-g"] {
            same(&["evlist", flag, "-i", &file]);
        }
        let args = ["evlist", "-v", "-i", &file];
        let ours = without_size(&kymo(&args).success().stdout);
        let theirs = without_size(&perf(args).success().stdout);
        assert_eq!(ours, theirs, "{flags:?}");
        same(&["buildid-list", "-i", &file]);
    }
    let record = ["record", "-q", "-e", "sched:sched_switch", "-o", &file, "--", "true"];
    let _ = perf(record).success();
    same(&["evlist", "--trace-fields", "-i", &file]);
}

#[test]
fn build_ids_and_symbols_of_the_kernel_are_those_that_perf_prints() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents]) {
        return;
    }
    same(&["buildid-list", "-k"]);
    same(&["buildid-list", "-m"]);
    same(&["kallsyms", "schedule", "no_such_symbol_anywhere"]);
    let w = Workload::spin();
    let file = w.file("x.data");
    let record = ["record", "-q", "-e", "cpu-clock", "-o", &file, "--", w.arg(), "200"];
    let _ = perf(record).success();
    same(&["buildid-list", "-H", "-i", &file]);
}

/// As a recorder leaves a file that is killed: no size of the data, and no sections behind them.
#[test]
fn an_unfinished_file_has_the_build_ids_of_its_mappings() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents]) {
        return;
    }
    let w = Workload::spin();
    let file = w.file("x.data");
    let record = ["record", "-q", "-e", "cpu-clock", "-o", &file, "--", w.arg(), "200"];
    let _ = kymo(&record).success();
    let whole = perf(["buildid-list", "-i", &file]).success().stdout;
    let mut bytes = std::fs::read(&file).unwrap();
    let word = |bytes: &[u8], at: usize| {
        usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap()
    };
    // struct perf_file_header: the data's offset and size, and the bits of the sections.
    let end = word(&bytes, 40) + word(&bytes, 48);
    bytes.truncate(end);
    bytes[48..56].fill(0);
    bytes[72..104].fill(0);
    std::fs::write(&file, &bytes).unwrap();
    let ids = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.split(' ').next().unwrap().len() == 40);
        let mut ids: Vec<String> = lines.map(str::to_owned).collect();
        ids.sort();
        ids
    };
    let ours = kymo(&["buildid-list", "-i", &file]);
    let theirs = ids(&whole);
    assert!(theirs.iter().any(|line| line.contains("/libc.so.6")), "{whole}");
    for line in theirs.iter().filter(|line| !line.contains('[')) {
        assert!(ids(&ours.stdout).contains(line), "{line}: {ours:?}");
    }
    for command in [&["buildid-list"][..], &["evlist"], &["report", "--header-only"]] {
        let out = kymo(&[command, &["-i", &file]].concat());
        assert!(out.stderr.contains("unfinished"), "{command:?}: {out:?}");
    }
}
