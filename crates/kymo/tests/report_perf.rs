//! `kymo report` next to `perf report` on the same recordings of real programs.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use std::collections::BTreeSet;

use kymo_testkit::{Need, Workload, perf, require, run};

const SOURCE: &str = include_str!("programs/calls.c");

/// The lines that are not headings, comments or empty. Callers without a symbol
/// are left out: perf prints where they were mapped, kymo their place in the file.
///
/// The call that ends the dynamic linker's `_start` returns to the first address
/// of `_dl_start_user`, which perf takes for the caller (not so where it unwinds).
/// So that function's own row is left out, and in chains it is put right.
fn rows(text: &str) -> BTreeSet<String> {
    let own = |l: &str| l.ends_with("[.] _start") || l.ends_with("[.] _dl_start_user");
    text.lines()
        .filter(|l| !l.starts_with('#') && !l.trim().is_empty() && !l.contains("] 0x"))
        .filter(|l| !own(l))
        .map(|l| l.replace("_dl_start_user", "_start"))
        .collect()
}

/// Heading lines that both print, up to the first empty one.
fn headings(text: &str) -> Vec<&str> {
    text.lines().filter(|l| l.starts_with("# Samples") || l.starts_with("# Event count")).collect()
}

#[track_caller]
fn same(file: &str, options: &[&str]) {
    let args = |first: &[&'static str]| -> Vec<String> {
        // perf shows inlined functions in chains that it unwound only.
        let all = first.iter().copied().chain(["--stdio", "--no-inline", "-i", file]);
        all.chain(options.iter().copied()).map(str::to_string).collect()
    };
    let theirs = perf(args(&["report"])).success().stdout;
    let ours = run(env!("CARGO_BIN_EXE_kymo"), args(&["report"])).success();
    assert_eq!(headings(&ours.stdout), headings(&theirs), "{options:?}");
    let (ours, theirs) = (rows(&ours.stdout), rows(&theirs));
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
        &["--no-children", "-g", "none", "--dsos", "report_shape", "--percentage", "relative"],
        // With chains perf 6.1's rows are relative and its chains are not; ours are alike.
        &["--no-children", "-g", "none", "-U"],
        &["--no-children", "-g", "folded", "--max-stack", "3"],
        &["--children", "-g", "none", "--max-stack", "2", "-f"],
        &["--no-children", "-g", "folded", "-G"],
        &["--no-children", "-g", "none", "-p", "main", "-x"],
    ];
    for options in cases {
        same(&file, options);
    }
    // Where some have none: hidden ones are in no number.
    let stripped = w.file("stripped");
    // Without its build-id the names of the other are not found.
    let strip = ["-R", ".note.gnu.build-id", "-o", &stripped, &program];
    let _ = run("strip", strip).success();
    let bare = w.file("bare.data");
    let record = ["record", "-q", "-F", "2000", "-e", "cpu-clock", "-o", &bare, &stripped];
    let _ = perf(record).success();
    let whole = run(env!("CARGO_BIN_EXE_kymo"), ["report", "-q", "-i", &bare]).success().stdout;
    assert!(whole.contains("[.] 0x") && whole.contains("[k] "), "{whole}");
    same(&bare, &["-U"]);
    same(&bare, &["-U", "--dsos", "[kernel.kallsyms]"]);
    // perf 6.1 filters the first event's symbols alone.
    let one = ["record", "-q", "-F", "2000", "-g", "-e", "cpu-clock", "-o", &file, &program];
    let _ = perf(one).success();
    same(&file, &["--no-children", "-g", "none", "--symbol-filter", "le"]);
    same(&file, &["--children", "-g", "none", "--symbol-filter", "top"]);
    same(&file, &["--no-children", "-g", "folded", "--ignore-callees", "^top_[ab]$"]);
    // Where chains are read from the caller's end (-g caller, --children) perf 6.1 forgets the
    // callers and keeps what was called. Here main has as much as before.
    let row = |name: &str, more: &[&str]| {
        let args = ["report", "-i", &file, "--children", "-g", "none", "-s", "sym"];
        let text = run(env!("CARGO_BIN_EXE_kymo"), [&args[..], more].concat()).success().stdout;
        text.lines().find(|line| line.ends_with(&format!("[.] {name}"))).map(str::to_owned)
    };
    let ignored = ["--ignore-callees", "^top_a$"];
    assert!(row("main", &[]).is_some_and(|main| Some(main) == row("main", &ignored)));
    assert_ne!(row("top_a", &[]), row("top_a", &ignored));
}

#[test]
fn records_and_tasks_are_those_that_perf_counts() {
    if !require(&[Need::Perf, Need::PerfEvents]) {
        return;
    }
    let w = Workload::spin();
    let file = w.file("perf.data");
    let script = "(true; /bin/true) & wait; exec /bin/true";
    let record = ["record", "-q", "-e", "cpu-clock,page-faults", "-o", &file, "sh", "-c", script];
    let _ = perf(record).success();
    let both = |flag: &str| {
        let args = ["report", flag, "--stdio", "-i", &file];
        let words = |text: &str| -> Vec<Vec<String>> {
            let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with("# "));
            lines.map(|l| l.split_whitespace().map(str::to_owned).collect()).collect()
        };
        let ours = run(env!("CARGO_BIN_EXE_kymo"), args).success().stdout;
        (words(&ours), words(&perf(args).success().stdout))
    };
    let (ours, theirs) = both("--stats");
    assert!(theirs.len() > 8, "{theirs:?}");
    assert_eq!(ours, theirs);
    // perf adds the idle task, which is in no record.
    let (ours, mut theirs) = both("--tasks");
    theirs.retain(|row| row.last().is_none_or(|name| name != "|swapper"));
    assert!(theirs.len() >= 2, "{theirs:?}");
    assert_eq!(ours, theirs);
    let args = ["report", "--mmaps", "-i", &file];
    let text = run(env!("CARGO_BIN_EXE_kymo"), args).success().stdout;
    assert!(text.lines().any(|l| l.contains(" r-xp ") && l.contains("libc")), "{text}");
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

/// Lines as perf prints them, in perf's order, headings included; what perf adds
/// in grey (a tip) and our ledger left out.
fn lines(text: &str) -> Vec<String> {
    let is_ledger = |l: &str| l.starts_with("# Trust") || l.starts_with("# Note:");
    let shown = text.lines().take_while(|l| !is_ledger(l) && !l.contains("(Tip:"));
    let trimmed = shown.map(|l| l.trim_end().to_string());
    trimmed.filter(|l| !l.is_empty() && l != "#").collect()
}

#[track_caller]
fn same_lines(file: &str, options: &[&str]) {
    let args: Vec<&str> =
        ["report", "--stdio", "-i", file].into_iter().chain(options.iter().copied()).collect();
    let theirs = lines(&perf(&args).success().stdout);
    let ours = lines(&run(env!("CARGO_BIN_EXE_kymo"), &args).success().stdout);
    assert!(theirs.len() > 5, "{options:?}: perf shows nothing: {theirs:#?}");
    for (i, (a, b)) in theirs.iter().zip(&ours).enumerate() {
        assert_eq!(b, a, "{options:?}: line {i} of {}", theirs.len());
    }
    assert_eq!(ours.len(), theirs.len(), "{options:?}");
}

#[test]
fn payload_fields_are_sort_keys() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("report_fields", SOURCE);
    let file = w.file("perf.data");
    let program = w.program().display().to_string();
    // Without task names in payloads: perf cuts those with a blank at the blank.
    let events = "raw_syscalls:sys_enter,raw_syscalls:sys_exit,cpu-clock";
    let _ = perf(["record", "-q", "-e", events, "-o", &file, &program]).success();
    let tracepoint = w.file("exit.data");
    let event = "raw_syscalls:sys_exit";
    let sleeps = format!("sleep 0.01; {program}; sleep 0.01");
    let record = ["record", "-q", "-e", event, "-o", &tracepoint, "sh", "-c", &sleeps];
    let _ = perf(record).success();
    same_lines(&file, &["-s", "comm,id"]);
    same_lines(&file, &["-s", "id,ret,comm"]);
    same_lines(&tracepoint, &["-s", "sys_exit.id"]);
    same_lines(&tracepoint, &["-s", "comm,trace_fields"]);
    // Tracepoints alone are grouped by their text.
    same_lines(&tracepoint, &[]);
    same_lines(&tracepoint, &["-s", "trace", "-n"]);
    let wrong = run(env!("CARGO_BIN_EXE_kymo"), ["report", "-i", &file, "-s", "nonsense"]);
    assert_ne!(wrong.status, 0);
    assert!(wrong.stderr.contains("unknown sort key `nonsense`"), "{wrong:?}");
}

#[test]
fn payloads_are_shown_as_they_are() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("report_raw", SOURCE);
    let file = w.file("perf.data");
    let program = w.program().display().to_string();
    let events = "syscalls:sys_enter_mmap,syscalls:sys_exit_mmap,sched:sched_waking";
    let _ = perf(["record", "-q", "-e", events, "-o", &file, &program]).success();
    same_lines(&file, &["--raw-trace"]);
    same_lines(&file, &["--raw-trace", "-s", "trace"]);
    same_lines(&file, &["--raw-trace", "-s", "comm,prot,flags"]);
    same_lines(&file, &["--raw-trace", "-s", "sys_enter_mmap.len", "-n"]);
    let tracepoint = w.file("switch.data");
    let event = "sched:sched_switch";
    let _ = perf(["record", "-q", "-e", event, "-o", &tracepoint, &program]).success();
    same_lines(&tracepoint, &["--raw-trace", "-s", "prev_state"]);
    same_lines(&tracepoint, &["--raw-trace", "-s", "prev_prio,prev_state", "-n"]);
    // The states have letters in the text of the event.
    let states = |more: &[&str]| {
        let args = [&["report", "-i", &tracepoint, "-q", "-s", "prev_state"], more].concat();
        run(env!("CARGO_BIN_EXE_kymo"), args).success().stdout
    };
    let is_letter = |text: &str| {
        text.lines().any(|l| l.trim().ends_with(|c: char| c.is_ascii_uppercase() || c == '+'))
    };
    assert!(is_letter(&states(&[])), "{}", states(&[]));
    assert!(!is_letter(&states(&["--raw-trace"])), "{}", states(&["--raw-trace"]));
}

#[test]
fn parents_and_filters_are_perfs_line_by_line() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("report_parent", SOURCE);
    let file = w.file("perf.data");
    let program = w.program().display().to_string();
    let record = ["record", "-q", "-F", "2000", "-g", "-e", "cpu-clock", "-o", &file, &program];
    let _ = perf(record).success();
    let flat = ["--no-children", "-g", "none"];
    let cases: &[&[&str]] = &[
        &["-s", "comm,parent", "-p", "^top_[ab]$"],
        &["-s", "comm,dso", "-p", "^vfs_|^top_b"],
        &["-s", "sym", "-S", "leaf"],
        &["-s", "comm,dso", "-d", "report_parent,libc.so.6"],
        &["-s", "comm", "-c", "absent,report_parent"],
    ];
    for options in cases {
        same_lines(&file, &[&flat[..], options].concat());
    }
    // With children the filter is about where the processor was, and the first
    // parent met is the outermost one.
    same_lines(&file, &["-g", "none", "-s", "comm,parent", "-p", "^mid|^top_"]);
}

#[test]
fn json_honours_filters_and_the_limit() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("report_json", SOURCE);
    let file = w.file("perf.data");
    let program = w.program().display().to_string();
    let _ = perf(["record", "-q", "-g", "-e", "cpu-clock", "-o", &file, &program]).success();
    let json = |options: &[&str]| -> Vec<(String, f64)> {
        let args = ["report", "--json", "-i", &file, "--no-children"];
        let args: Vec<&str> = args.into_iter().chain(options.iter().copied()).collect();
        let text = run(env!("CARGO_BIN_EXE_kymo"), args).success().stdout;
        let all: serde_json::Value = serde_json::from_str(&text).unwrap();
        let rows = all["events"][0]["entries"].as_array().unwrap();
        let row = |r: &serde_json::Value| {
            (r["symbol"].as_str().unwrap().to_owned(), r["percent"].as_f64().unwrap())
        };
        rows.iter().map(row).collect()
    };
    let all = json(&[]);
    assert!(all.iter().any(|(s, _)| s == "leaf") && all.iter().any(|(s, _)| s == "mid"));
    // Between the two heaviest, whatever they are here.
    let limit = (all[0].1 + all[1].1) / 2.0;
    let heavy: Vec<_> = all.iter().filter(|(_, p)| *p >= limit).cloned().collect();
    assert!(!heavy.is_empty() && heavy.len() < all.len(), "{all:?}");
    assert_eq!(json(&["--percent-limit", &limit.to_string()]), heavy);
    let leaf: Vec<_> = all.iter().filter(|(s, _)| s == "leaf").cloned().collect();
    assert_eq!(json(&["-S", "leaf"]), leaf);
    assert_eq!(json(&["-c", "absent"]), []);
}

/// Sections that this machine's perf does not write.
#[test]
fn sections_of_other_machines_are_worded_as_by_perf() {
    use kymo_files::perfdata::Feature;
    use kymo_files::perfdata::write::synth::Synth;
    use kymo_files::perfdata::write::{EventMeta, FeatureSections, PerfDataWriter, features};
    use kymo_model::{Attr, EventType, SampleType};
    if !require(&[Need::Perf]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    let event = |name: &str, id: u64| EventMeta {
        name: name.into(),
        attr: Attr {
            kind: EventType::SOFTWARE,
            config: id,
            sample_period: 1,
            sample_type: SampleType::IP | SampleType::TID | SampleType::IDENTIFIER,
            ..Attr::default()
        },
        ids: vec![id],
        ..EventMeta::default()
    };
    let events = vec![event("one", 1), event("two", 2), event("three", 3), event("four", 4)];
    let pairs = |all: &[(&str, &str)]| -> Vec<(String, String)> {
        all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    };
    let text = |t: &str| features::string(t);
    let hybrid = [
        2u32.to_ne_bytes().to_vec(),
        text("cpu_core"),
        text("0-7"),
        text("cpu_atom"),
        text("8-15"),
    ];
    let groups = [("{anon_group}".to_owned(), 0, 2), ("mine".to_owned(), 2, 2)];
    let others = [
        ("cpu_core".to_owned(), pairs(&[("branches", "32"), ("max_precise", "3")])),
        ("cpu_atom".to_owned(), pairs(&[("pmu_name", "alderlake_hybrid")])),
    ];
    let mut sections = FeatureSections::new();
    for (feature, bytes) in [
        (Feature::EVENT_DESC, features::event_desc(&events)),
        (Feature::BRANCH_STACK, Vec::new()),
        (Feature::GROUP_DESC, features::group_desc(&groups)),
        (Feature::CPU_PMU_CAPS, features::pmu_caps(&pairs(&[("branches", "16"), ("x", "y")]))),
        (Feature::HYBRID_TOPOLOGY, hybrid.concat()),
        (Feature::PMU_CAPS, features::caps_of_pmus(&others)),
    ] {
        sections.insert(feature, bytes);
    }
    let file = std::fs::File::create(&path).unwrap();
    let mut synth = Synth::new(&events[0].attr, 1);
    let mut writer = PerfDataWriter::file(file, events, &sections).unwrap();
    // A file without any data is one that its recorder did not finish.
    writer.record(synth.comm(1, 1, b"made")).unwrap();
    writer.finish(&sections).unwrap();
    for more in [&[][..], &["-I"]] {
        let args = ["report", "--header-only", "-i", path.to_str().unwrap()];
        let args = [&args[..], more].concat();
        let theirs = perf(&args).success().stdout;
        let ours = run(env!("CARGO_BIN_EXE_kymo"), &args).success().stdout;
        let told = |text: &str| -> Vec<String> {
            let from = text.lines().skip_while(|l| !l.contains("# event : name = four")).skip(1);
            from.take_while(|l| !l.contains("missing")).map(|l| l.trim_end().to_owned()).collect()
        };
        assert_eq!(told(&ours), told(&theirs), "{ours}\n{theirs}");
        assert!(told(&ours).len() > 5, "{ours}");
    }
}

#[test]
fn the_header_tells_what_perf_tells() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("report_header", SOURCE);
    let file = w.file("perf.data");
    let program = w.program().display().to_string();
    let _ =
        perf(["record", "-q", "-k", "mono", "-e", "cpu-clock", "-o", &file, &program]).success();
    // Without -I what is long is only named.
    let args = ["report", "--header-only", "-i", &file];
    let named = |text: &str| -> Vec<String> {
        text.lines().filter(|l| l.contains("info available")).map(str::to_owned).collect()
    };
    let ours = run(env!("CARGO_BIN_EXE_kymo"), args).success().stdout;
    let theirs = perf(args).success().stdout;
    assert!(named(&theirs).len() > 2, "{theirs}");
    assert_eq!(named(&ours), named(&theirs));
    let script = run(env!("CARGO_BIN_EXE_kymo"), ["script", "--header-only", "-i", &file]);
    assert_eq!(script.success().stdout, ours);
    let args = ["report", "--header-only", "-I", "-i", &file];
    let theirs = perf(args).success().stdout;
    let ours = run(env!("CARGO_BIN_EXE_kymo"), args).success().stdout;
    let mut told = 0;
    for line in theirs.lines() {
        // perf calls version 2 of the file 1, and dates the file and the clock's
        // reference in local time; its description of an event follows the fields of
        // its own structure; we know newer features.
        // Which BPF programs are loaded is others' business.
        let other =
            ["version :", "captured on", "reference time", "# event :", "missing", "bpf", "btf"];
        if !other.iter().any(|o| line.contains(o)) || line.contains("perf version") {
            told += 1;
            assert!(ours.lines().any(|l| l.trim_end() == line.trim_end()), "{line}\n{ours}");
        }
    }
    assert!(told > 25, "{theirs}");
    let missing = |text: &str| -> Vec<String> {
        let line = text.lines().find_map(|l| l.strip_prefix("# missing features: "));
        line.unwrap().split_whitespace().map(str::to_owned).collect()
    };
    let newer = ["PMU_CAPS", "CPU_DOMAIN_INFO"];
    let known: Vec<String> =
        missing(&ours).into_iter().filter(|f| !newer.contains(&f.as_str())).collect();
    assert_eq!(known, missing(&theirs));
}

/// Programs in the kernel by the names of their functions, as perf 6.1 writes them.
#[test]
fn the_header_has_functions_of_programs_in_the_kernel() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data").to_str().unwrap().to_owned();
    // While perf records there is a program of this test, whatever others have loaded.
    let text = format!(
        "tracepoint:syscalls:sys_enter_getppid {{ @ = count(); }} \
         BEGIN {{ system(\"perf record -q -e cpu-clock -o {file} true\"); exit(); }}"
    );
    let program = run(env!("CARGO_BIN_EXE_kymo"), ["run", "--unsafe", "-e", &text]).success();
    let args = ["report", "--header-only", "-i", &file];
    let of_programs = |text: &str| -> Vec<String> {
        let is_one = |l: &&str| l.contains("bpf_prog_info") || l.contains("sub_prog");
        text.lines().filter(is_one).map(str::to_owned).collect()
    };
    let theirs = of_programs(&perf(args).success().stdout);
    assert!(!theirs.is_empty(), "{program:?}");
    assert_eq!(of_programs(&run(env!("CARGO_BIN_EXE_kymo"), args).success().stdout), theirs);
}

/// A kernel is moved at every boot: its symbols are where the recording says that it was. Whatever
/// was moved on, it is named as perf names it.
#[test]
fn the_kernel_may_have_been_elsewhere() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("moved.data");
    let name = path.to_str().unwrap();
    let work = Workload::syscalls();
    let record = ["record", "-q", "-e", "cpu-clock:k", "-F", "5000", "-o", name, "--"];
    let _ = perf([&record[..], &[work.arg(), "300000"]].concat()).success();
    let symbols = || {
        let args = ["report", "--stdio", "-i", name, "-s", "sym"];
        let theirs = rows(&perf(args).success().stdout);
        assert_eq!(rows(&run(env!("CARGO_BIN_EXE_kymo"), args).success().stdout), theirs);
        theirs
    };
    let before = symbols();
    let mut bytes = std::fs::read(&path).unwrap();
    let text = b"[kernel.kallsyms]_text";
    // The address of the symbol stands before the name.
    let at = bytes.windows(text.len()).position(|w| w == text).unwrap() - 8;
    let address = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    bytes[at..at + 8].copy_from_slice(&(address + 0x1000).to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    assert_ne!(symbols(), before);
}
