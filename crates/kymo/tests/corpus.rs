//! The corpus: small recordings and programs under `fixtures/`, read on any machine, without
//! root and without the peers. What the peers say of them is kept beside them; with `BLESS=1`
//! it is renewed by the peers that are installed. A missing expectation fails.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_testkit::{Outcome, run_command};
use serde_json::{Value, json};

/// The program under test, or what `KYMO_CORPUS_PROGRAM` names: that of another architecture.
fn program() -> String {
    let other = std::env::var("KYMO_CORPUS_PROGRAM");
    other.unwrap_or_else(|_| env!("CARGO_BIN_EXE_kymo").to_owned())
}

/// Binaries as the recordings name them.
const SYMFS: [&str; 2] = ["--symfs", "elf/x86_64/symfs"];

const PERF_DATA: [&str; 7] =
    ["fp", "dwarf", "zstd", "tracepoints", "pipe", "kymo", "kymo-tracepoints"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Runs a program among the fixtures, so that no path of the machine gets into its output.
fn run_there(program: &str, args: &[&str]) -> Outcome {
    let mut command = Command::new(program);
    command.args(args).current_dir(fixtures()).env("LC_ALL", "C").env("TZ", "UTC");
    let mut outcome = run_command(command);
    let here = fixtures().display().to_string();
    outcome.stdout = outcome.stdout.replace(&here, "FIXTURES");
    outcome
}

#[track_caller]
fn kymo(args: &[&str]) -> String {
    run_there(&program(), args).success().stdout
}

/// Returns the output of a peer, as kept in the file `name`.
#[track_caller]
fn peer(name: &str, command: &[&str]) -> String {
    if std::env::var_os("BLESS").is_some_and(|bless| bless == "1") {
        let (program, args) = command.split_first().unwrap();
        let out = run_there(program, args);
        assert!(!out.stdout.is_empty(), "{command:?}: {}", out.stderr);
        std::fs::write(fixtures().join(name), out.stdout).unwrap();
    }
    kept(name)
}

/// An expectation that another test renews.
#[track_caller]
fn kept(name: &str) -> String {
    let path = fixtures().join(name);
    std::fs::read_to_string(&path)
        .unwrap_or_else(|e| panic!("{}: {e}; `BLESS=1` makes it", path.display()))
}

/// A command of perf, which looks nowhere but here for binaries.
fn perf<'a>(command: &'a str, file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let first = ["perf", "--buildid-dir", "/nonexistent", command, "-i", file];
    [&first[..], &SYMFS, more].concat()
}

/// Lines that differ without a known cause.
#[track_caller]
fn same_lines(what: &str, ours: &str, theirs: &str) {
    assert!(!theirs.is_empty(), "{what}: the peer says nothing");
    for (n, (our, their)) in ours.lines().zip(theirs.lines()).enumerate() {
        assert_eq!(our, their, "{what}: line {}", n + 1);
    }
    assert_eq!(ours.lines().count(), theirs.lines().count(), "{what}: number of lines");
}

#[test]
fn script_of_perf_data() {
    for name in PERF_DATA {
        let file = format!("perf-data/x86_64/{name}.data");
        let args = [&["script", "-i", &file, "--no-inline"], &SYMFS[..]].concat();
        let ours = kymo(&args);
        let theirs = peer(
            &format!("perf-data/x86_64/{name}.script.txt"),
            &perf("script", &file, &["--no-inline"]),
        );
        same_lines(name, &ours, &theirs);
    }
}

const SYMFS_OF_AARCH64: [&str; 2] = ["--symfs", "elf/aarch64/symfs"];

/// The texts are those of perf on that machine, which has unwound the stacks of `dwarf`.
#[test]
fn recordings_of_aarch64_are_read_as_there() {
    for name in ["fp", "dwarf", "tracepoints"] {
        let file = format!("perf-data/aarch64/{name}.data");
        let args = [&["script", "-i", &file, "--no-inline"], &SYMFS_OF_AARCH64[..]].concat();
        same_lines(name, &kymo(&args), &kept(&format!("perf-data/aarch64/{name}.script.txt")));
    }
}

/// A function of `spin-signed` signs its return address before it stores it. There perf 6.1 on that
/// machine names the first caller twice and nothing above it: what is true is in the source.
#[test]
fn stacks_with_signed_return_addresses_are_complete() {
    let file = "perf-data/aarch64/signed.data";
    let args = [&["script", "-i", file, "--no-inline"], &SYMFS_OF_AARCH64[..]].concat();
    let folded = fold(&kymo(&args));
    let chains = ["heavy;leaf", "light"].map(|end| format!("spin-signed;_start;work;{end}"));
    let known: u64 = chains.iter().map(|chain| folded.get(chain).copied().unwrap_or(0)).sum();
    assert_eq!(folded.keys().collect::<Vec<_>>(), chains.iter().collect::<Vec<_>>(), "{folded:?}");
    assert_eq!(known, 42);
}

#[test]
fn a_pipe_is_read_from_standard_input() {
    let file = std::fs::File::open(fixtures().join("perf-data/x86_64/pipe.data")).unwrap();
    let args = [&["script", "-i", "-", "--no-inline"], &SYMFS[..]].concat();
    let mut command = Command::new(program());
    command.args(args).current_dir(fixtures()).env("KYMO_CACHE", "off").stdin(file);
    let out = command.output().unwrap();
    let theirs = kept("perf-data/x86_64/pipe.script.txt");
    same_lines("pipe", std::str::from_utf8(&out.stdout).unwrap(), &theirs);
}

/// Rows of a report: neither headings nor comments. Callers without a symbol are left out:
/// perf prints where they were mapped, kymo their place in the file.
fn rows(text: &str) -> Vec<&str> {
    let is_row = |l: &&str| !l.starts_with('#') && !l.trim().is_empty() && !l.contains("] 0x");
    let mut rows: Vec<&str> = text.lines().filter(is_row).map(str::trim_end).collect();
    // Rows of one weight stand in any order.
    rows.sort_unstable();
    rows
}

#[test]
fn report_of_perf_data() {
    for (name, options) in [
        ("fp", &["--no-children"][..]),
        ("dwarf", &["--children", "-g", "none"]),
        ("zstd", &["--children", "-g", "none"]),
        ("kymo", &["--no-children"]),
        ("tracepoints", &["-s", "comm,pid"]),
    ] {
        let file = format!("perf-data/x86_64/{name}.data");
        let options = [&["--stdio", "--no-inline"], options].concat();
        let ours = kymo(&[&["report", "-i", &file], &SYMFS[..], &options].concat());
        let theirs =
            peer(&format!("perf-data/x86_64/{name}.report.txt"), &perf("report", &file, &options));
        assert!(rows(&theirs).len() > 1, "{name}: {theirs}");
        assert_eq!(rows(&ours), rows(&theirs), "{name}");
        let counts = |text: &str| -> Vec<String> {
            let heads = |l: &&str| l.starts_with("# Samples") || l.starts_with("# Event count");
            text.lines().filter(heads).map(str::to_owned).collect()
        };
        assert_eq!(counts(&ours), counts(&theirs), "{name}");
    }
}

/// Stacks of a script, folded: root first, with the number of samples.
fn fold(script: &str) -> BTreeMap<String, u64> {
    let mut folded = BTreeMap::new();
    for sample in script.split("\n\n").filter(|s| !s.trim().is_empty()) {
        let mut lines = sample.trim_start_matches('\n').lines();
        let name = lines.next().unwrap().split_whitespace().next().unwrap().to_owned();
        let mut stack: Vec<String> = lines
            .map(|line| {
                let symbol = line.trim_start().split_once(' ').unwrap().1;
                let symbol = symbol.rsplit_once(" (").unwrap().0;
                symbol.rsplit_once('+').map_or(symbol, |(name, _)| name).to_owned()
            })
            .collect();
        stack.push(name);
        stack.reverse();
        *folded.entry(stack.join(";")).or_default() += 1;
    }
    folded
}

#[test]
fn folded_stacks_are_those_of_perfs_script() {
    for name in ["fp", "kymo"] {
        let file = format!("perf-data/x86_64/{name}.data");
        let args = ["convert", "-f", "folded", "--no-inline", "-o", "-", "-i", &file];
        let ours: BTreeMap<String, u64> = kymo(&[&args[..], &SYMFS].concat())
            .lines()
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(stack, n)| (stack.to_owned(), n.parse().unwrap()))
            .collect();
        let theirs = fold(&kept(&format!("perf-data/x86_64/{name}.script.txt")));
        assert!(theirs.len() > 1, "{theirs:?}");
        // A weight is the sum of the periods: nanoseconds.
        let in_samples: BTreeMap<String, u64> = ours
            .iter()
            .map(|(stack, n)| {
                (stack.clone(), n / (ours.values().sum::<u64>() / theirs.values().sum::<u64>()))
            })
            .collect();
        assert_eq!(in_samples, theirs, "{name}");
    }
}

/// Returns the share and the text of each instruction.
fn instructions(text: &str) -> BTreeMap<u64, (Option<String>, String)> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let Some((cell, rest)) = line.split_once(" :  ") else { continue };
        let Some((address, text)) = rest.trim_start().split_once(':') else { continue };
        let Ok(address) = u64::from_str_radix(address, 16) else { continue };
        // What is drawn beside it.
        let text = text.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // perf writes zeros where there is no sample.
        let cell = Some(cell.trim()).filter(|c| !c.is_empty() && *c != "0.00");
        assert!(found.insert(address, (cell.map(str::to_owned), text)).is_none(), "{address:x}");
    }
    found
}

#[test]
fn annotate_counts_as_perf_does() {
    for symbol in ["leaf", "light"] {
        let file = "perf-data/x86_64/fp.data";
        let args = ["annotate", "-s", symbol, "--stdio", "--no-source", "-i", file];
        let ours = instructions(&kymo(&[&args[..], &SYMFS].concat()));
        let theirs = peer(
            &format!("perf-data/x86_64/fp.annotate-{symbol}.txt"),
            &perf("annotate", file, &["--stdio", "-s", symbol]),
        );
        let theirs = instructions(&theirs);
        assert!(theirs.len() > 5, "{theirs:?}");
        assert_eq!(ours, theirs, "{symbol}");
    }
}

const TRACE_DAT: [&str; 5] = ["v6", "v7", "v7-zstd", "kymo", "kymo-v6"];

/// Lines of events; trace-cmd says first how many CPUs there are.
fn event_lines(report: &str) -> Vec<&str> {
    report.lines().filter(|line| !line.starts_with("cpus=")).collect()
}

#[test]
fn script_of_trace_dat() {
    for name in TRACE_DAT {
        let file = format!("trace-dat/x86_64/{name}.dat");
        // Its plugins word some events as older kernels did.
        let theirs = peer(
            &format!("trace-dat/x86_64/{name}.report.txt"),
            &["trace-cmd", "report", "-N", &file],
        );
        let ours = kymo(&["script", "-i", &file]);
        assert!(event_lines(&theirs).len() > 10, "{theirs}");
        assert_eq!(event_lines(&ours), event_lines(&theirs), "{name}");
    }
}

#[test]
fn list_counts_the_events_of_a_recording() {
    for name in TRACE_DAT {
        let theirs = kept(&format!("trace-dat/x86_64/{name}.report.txt"));
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for line in event_lines(&theirs) {
            let event = line.split_whitespace().nth(3).unwrap().trim_end_matches(':');
            *counts.entry(event.to_owned()).or_default() += 1;
        }
        let file = format!("trace-dat/x86_64/{name}.dat");
        let ours = kymo(&["list", "-i", &file]);
        let listed: BTreeMap<String, u64> = ours
            .lines()
            .filter_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let [event, n, "event" | "events"] = words[..] else { return None };
                Some((event.split_once(':')?.1.to_owned(), n.parse().ok()?))
            })
            .collect();
        // `kymo list` names them by group, too, of which trace-cmd says nothing.
        assert_eq!(listed, counts, "{name}: {ours}");
    }
}

#[test]
fn list_counts_the_samples_of_a_recording() {
    for name in PERF_DATA {
        let theirs = kept(&format!("perf-data/x86_64/{name}.script.txt"));
        let file = format!("perf-data/x86_64/{name}.data");
        let ours = kymo(&["list", "--json", "-i", &file]);
        let listed: Vec<Value> = serde_json::from_str(&ours).unwrap();
        let mut samples = 0;
        for class in &listed {
            let event = format!(" {}: ", class["name"].as_str().unwrap());
            // Where a stack follows nothing stands behind the name.
            let is = |l: &&str| format!("{l} ").contains(&event);
            let count = theirs.lines().filter(is).count() as u64;
            assert_eq!(class["events"], count, "{name}: {ours}");
            let sampled = class["attributes"]["sample_type"].as_array().unwrap();
            assert!(sampled.contains(&json!("TID")), "{name}: {ours}");
            samples += count;
        }
        assert!(samples > 0, "{name}: {ours}");
    }
}

#[test]
fn a_session_is_converted_as_one() {
    let session = "ctf/x86_64/kymo-session";
    let folded = kymo(&["convert", "-f", "folded", session]);
    let count = |wanted: &dyn Fn(&str) -> bool| -> u64 {
        let lines = folded.lines().map(|l| l.rsplit_once(' ').unwrap());
        let own = lines.filter(|(stack, _)| wanted(stack.rsplit(';').next().unwrap()));
        own.map(|(_, n)| n.parse::<u64>().unwrap()).sum()
    };
    let programs = kept("ctf/x86_64/kymo-session.babeltrace.txt").lines().count() as u64;
    let kernel = kept("ctf/x86_64/kymo-session.report.txt");
    assert_eq!(count(&|event| event.starts_with("request:")), programs);
    assert_eq!(count(&|event| !event.starts_with("request:")), event_lines(&kernel).len() as u64);
}

/// A value in babeltrace2's text, and what is behind it.
fn parse_value(text: &str) -> (Value, &str) {
    let text = text.trim_start();
    if let Some(rest) = text.strip_prefix('"') {
        let mut out = String::new();
        let mut chars = rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => return (Value::String(out), &rest[at + 1..]),
                '\\' => out.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    't' => '\t',
                    c => c,
                }),
                c => out.push(c),
            }
        }
        panic!("a text without an end: {text}");
    }
    if let Some(rest) = text.strip_prefix("( ") {
        // An enumeration: ( "LABEL" : container = 1 )
        let (label, rest) = parse_value(rest);
        let (value, rest) = parse_value(rest.strip_prefix(" : container = ").unwrap());
        return (json!({"label": label, "value": value}), rest.strip_prefix(" )").unwrap());
    }
    for (open, close) in [("{", "}"), ("[", "]")] {
        let Some(mut rest) = text.strip_prefix(open) else { continue };
        let mut members = Vec::new();
        loop {
            rest = rest.trim_start_matches([' ', ',']);
            if let Some(rest) = rest.strip_prefix(close) {
                let row = || members.iter().map(|(_, v): &(String, Value)| v.clone()).collect();
                let value = match open {
                    "[" => Value::Array(row()),
                    _ => Value::Object(members.iter().cloned().collect()),
                };
                return (value, rest);
            }
            let (name, value) = rest.split_once(" = ").unwrap();
            let (value, behind) = parse_value(value);
            members.push((name.to_owned(), value));
            rest = behind;
        }
    }
    let end = text.find([',', ' ']).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let value = match number.strip_prefix("0x") {
        Some(hex) => json!(u64::from_str_radix(hex, 16).unwrap()),
        None => serde_json::from_str(number).unwrap_or_else(|e| panic!("{number}: {e}")),
    };
    (value, rest)
}

/// An event in babeltrace2's text: time in nanoseconds, name, fields.
fn parse_event(line: &str) -> (u64, String, Value) {
    let (time, rest) = line.strip_prefix('[').unwrap().split_once("] ").unwrap();
    let time = time.replace('.', "").parse().unwrap();
    let (head, rest) = rest.split_once(": { ").unwrap();
    let name = head.rsplit(' ').next().unwrap().to_owned();
    // Packet context, event context and fields; an event may have no fields.
    let mut rest = &line[line.len() - rest.len() - 2..];
    let mut parts = Vec::new();
    while rest.trim_start().starts_with('{') {
        let (part, behind) = parse_value(rest);
        parts.push(part);
        rest = behind.trim_start_matches([',', ' ']);
    }
    (time, name, parts.pop().unwrap())
}

/// Numbers with a fraction are printed with six digits.
fn is_same_value(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-5 * a.abs().max(b.abs())
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same_value(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(k, v)| b.get(k).is_some_and(|other| is_same_value(v, other)))
        }
        // kymo's programs have booleans, which their metadata tell other readers as an
        // enumeration of `false` and `true`.
        (Value::Bool(a), Value::Object(b)) => b.get("label") == Some(&json!(a.to_string())),
        _ => ours == theirs,
    }
}

#[test]
fn script_of_ctf() {
    // Packets of kymo's own state readings of two clocks, by which kymo corrects their times;
    // babeltrace2 knows the stated frequency alone.
    for (name, directory, count, error) in [
        ("lttng-ust", "lttng-ust", 400, 0),
        ("kymo-programs", "kymo-programs", 160, 1000),
        ("kymo-session", "kymo-session/ust", 80, 1000),
    ] {
        let directory = format!("ctf/x86_64/{directory}");
        let clock = ["--clock-seconds", "--clock-gmt", "--no-delta"];
        let theirs = peer(
            &format!("ctf/x86_64/{name}.babeltrace.txt"),
            &[&["babeltrace2"], &clock[..], &[&directory]].concat(),
        );
        are_same_events(&directory, &theirs, count, error);
    }
}

/// The events of a directory are those of babeltrace2, but for an error of their times.
#[track_caller]
fn are_same_events(directory: &str, theirs: &str, count: usize, error: u64) {
    let ours = kymo(&["script", "--json", "--real-time", "-i", directory]);
    assert_eq!((ours.lines().count(), theirs.lines().count()), (count, count), "{directory}");
    for (our, their) in ours.lines().zip(theirs.lines()) {
        let (time, event, fields) = parse_event(their);
        // As text: a double does not hold the nanoseconds of our days.
        let ns: String = our
            .split_once("\"time\":")
            .unwrap()
            .1
            .chars()
            .take_while(|c| *c != ',')
            .filter(|c| *c != '.')
            .collect();
        let our: Value = serde_json::from_str(our).unwrap();
        assert_eq!(our["event"], event, "{directory}: {their}");
        assert!(ns.parse::<u64>().unwrap().abs_diff(time) <= error, "{directory}: {our}\n{their}");
        assert!(is_same_value(&our["fields"], &fields), "{directory}: {our}\n{their}");
    }
}

/// The installed babeltrace2 may not read CTF 2: the newest one reads it.
#[test]
fn script_of_ctf_2() {
    let name = "ctf-2/x86_64/lttng-ust.babeltrace.txt";
    let directory = "ctf-2/x86_64/lttng-ust";
    let newest = kymo_testkit::peer("babeltrace2");
    if std::env::var_os("BLESS").is_some_and(|bless| bless == "1") && newest.is_newest() {
        let mut command = newest.command();
        command.args(["--clock-seconds", "--clock-gmt", "--no-delta", directory]);
        command.current_dir(fixtures()).env("LC_ALL", "C");
        std::fs::write(fixtures().join(name), run_command(command).success().stdout).unwrap();
    }
    are_same_events(directory, &kept(name), 400, 0);
}

#[test]
fn a_session_is_its_kernel_and_its_programs_on_one_time() {
    let theirs = peer(
        "ctf/x86_64/kymo-session.report.txt",
        &["trace-cmd", "report", "-N", "ctf/x86_64/kymo-session/kernel/trace.dat"],
    );
    let all = kymo(&["script", "-i", "ctf/x86_64/kymo-session"]);
    let (programs, kernel): (Vec<&str>, Vec<&str>) =
        all.lines().partition(|line| line.contains(": request:"));
    assert_eq!(programs.len(), 80);
    // Columns are as wide as both need.
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let kernel: Vec<String> = kernel.into_iter().map(words).collect();
    let theirs: Vec<String> = event_lines(&theirs).into_iter().map(words).collect();
    assert!(theirs.len() > 3, "{theirs:?}");
    assert_eq!(kernel, theirs);
    let times: Vec<&str> = all.lines().map(|l| l.split("] ").nth(1).unwrap()).collect();
    let times: Vec<&str> =
        times.iter().map(|rest| rest.trim_start().split(':').next().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
}

/// Programs and their probes. perf 6.1 reads no split DWARF: there its definitions of the same
/// program in one piece are the right ones.
const PROBES: [(&str, &str, &[&str]); 5] = [
    ("shapes", "shapes", &["measure", "measure shape scale", "measure:3 s->name", "shapes.c:14"]),
    ("shapes-split", "shapes", &["measure", "measure shape scale", "measure:3 s->name"]),
    ("shapes-compressed", "shapes-compressed", &["measure shape scale", "main argc"]),
    (
        "shapes-plain",
        "shapes-plain",
        &["measure shape scale", "measure shape->name shape->corner[1].y", "main argc argv"],
    ),
    ("rusty", "rusty", &["total", "main"]),
];

#[test]
fn definitions_of_probes() {
    for (program, judged_as, probes) in PROBES {
        for (n, probe) in probes.iter().enumerate() {
            let name = format!("elf/x86_64/{judged_as}.probe-{n}.txt");
            let path = format!("elf/x86_64/{program}");
            let theirs = if program == judged_as {
                peer(&name, &["perf", "probe", "-q", "-x", &path, "-D", probe])
            } else {
                kept(&name)
            };
            let ours = kymo(&["probe", "-q", "-x", &path, "-D", probe]);
            // The name of the program is in the group's and in the path.
            let ours = ours.replace(&path, &format!("elf/x86_64/{judged_as}"));
            let group = |name: &str| format!(":probe_{}/", name.split('-').next().unwrap());
            let ours = ours.replace(&group(program), &group(judged_as));
            same_lines(&format!("{program}: {probe}"), &ours, &theirs);
        }
    }
}
