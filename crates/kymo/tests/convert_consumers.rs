//! Output of `kymo convert`, read by the programs it is for, which show the numbers of `kymo
//! report`: pprof in Go's tools, the schema that speedscope publishes, a program that draws SVG.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

mod exports;

use std::collections::BTreeMap;

use exports::{Folded, folded, same};
use kymo_testkit::{Need, Outcome, Workload, perf, require, run};

const SOURCE: &str = concat!("#define ROUNDS 6000\n", include_str!("programs/calls.c"));

fn kymo(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), args)
}

fn recording(w: &Workload) -> String {
    let file = w.file("perf.data");
    let program = w.program().display().to_string();
    let args = ["record", "-q", "-F", "2000", "-g", "-e", "cpu-clock", "-o", &file, &program];
    let _ = perf(args);
    file
}

/// Runs pprof over a profile.
fn pprof(args: &[&str], file: &str) -> String {
    let all = [&["tool", "pprof"], args, &[file]].concat();
    run("go", all).success().stdout
}

/// Weights of each function: self, and with children.
type Weights = BTreeMap<String, (u64, u64)>;

/// The table of `pprof -top`.
fn top(file: &str) -> Weights {
    let how = ["-top", "-sample_index=samples", "-nodefraction=0", "-nodecount=1000000"];
    let text = pprof(&[&how[..], &["-symbolize=none"]].concat(), file);
    let (_, table) = text.split_once("cum%\n").unwrap_or_else(|| panic!("{text}"));
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words[5..].join(" ").replace(" (inline)", "");
        (name, (words[0].parse().unwrap(), words[3].parse().unwrap()))
    };
    table.lines().map(row).collect()
}

/// Computes weights from folded stacks; recursion counts once.
fn weights(stacks: &Folded) -> Weights {
    let mut weights = Weights::new();
    for (stack, n) in stacks {
        let frames: Vec<&str> = stack.split(';').skip(1).collect();
        weights.entry(frames.last().unwrap().to_string()).or_default().0 += n;
        for name in frames.iter().collect::<std::collections::BTreeSet<_>>() {
            weights.entry(name.to_string()).or_default().1 += n;
        }
    }
    weights
}

/// Samples of each function by `kymo report`.
fn reported(file: &str) -> BTreeMap<String, u64> {
    let args = ["report", "-i", file, "--no-children", "--no-inline", "-g", "none", "--sort"];
    let text = kymo(&[&args[..], &["sym", "-F", "sample,sym"]].concat()).success().stdout;
    let mut counts = BTreeMap::new();
    for line in text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()) {
        let (n, rest) = line.trim().split_once(' ').unwrap();
        let (_, name) = rest.trim().split_once("] ").unwrap();
        *counts.entry(name.trim().to_owned()).or_default() += n.parse::<u64>().unwrap();
    }
    counts
}

/// The stacks of `pprof -traces`, the innermost function first in each.
fn traces(file: &str) -> Folded {
    let text = pprof(&["-traces", "-sample_index=samples", "-symbolize=none"], file);
    let mut stacks = Folded::new();
    for block in text.split("-----------+").skip(1) {
        let mut lines = block.lines().skip(1).peekable();
        // Labels stand before the stack.
        let mut comm = "";
        while let Some(label) = lines.next_if(|l| l.contains(':') && !l.contains("  ")) {
            comm = label.trim().strip_prefix("comm:").unwrap_or(comm).trim();
        }
        let labels: Vec<&str> = block.lines().skip(1).filter(|l| l.contains("comm:")).collect();
        if let Some(label) = labels.first() {
            comm = label.trim().trim_start_matches("comm:").trim();
        }
        let rows: Vec<&str> = block
            .lines()
            .skip(1)
            .filter(|l| !l.trim().is_empty() && !l.contains("comm:"))
            .collect();
        let Some((first, rest)) = rows.split_first() else { continue };
        let (n, name) = first.trim().split_once(' ').unwrap();
        let mut frames: Vec<String> = vec![name.trim().replace(" (inline)", "")];
        frames.extend(rest.iter().map(|l| l.trim().replace(" (inline)", "")));
        frames.push(comm.to_owned());
        frames.reverse();
        *stacks.entry(frames.join(";")).or_default() += n.parse::<u64>().unwrap();
    }
    stacks
}

#[test]
fn pprof_shows_the_numbers_of_report() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc, Need::Tool("go")]) {
        return;
    }
    let w = Workload::compile("consumers", SOURCE);
    let file = recording(&w);
    let stacks = |args: &[&str]| {
        let all = ["convert", "-i", &file, "-f", "folded", "--no-marks", "--weight", "samples"];
        folded(&kymo(&[&all[..], args].concat()).success().stdout)
    };
    for inline in ["--inline", "--no-inline"] {
        let profile = w.file(&format!("a{inline}.pb.gz"));
        let _ = kymo(&["convert", "-i", &file, "-o", &profile, inline]).success();
        let (stacks, top) = (stacks(&[inline]), top(&profile));
        let whole: u64 = stacks.values().sum();
        assert!(whole > 100, "{whole}");
        same(&traces(&profile), &stacks);
        assert_eq!(top, weights(&stacks));
        let raw = pprof(&["-raw", "-symbolize=none"], &profile);
        assert!(raw.contains("samples/count cpu-clock/nanoseconds[dflt]"), "{raw}");
        let time = pprof(&["-top", "-unit=ms", "-symbolize=none"], &profile);
        // Each sample stands for half a millisecond.
        let all = format!("{:.2}", whole as f64 / 2.0);
        let all = format!("Total samples = {}ms ", all.trim_end_matches(".00"));
        assert!(time.contains(&all), "{all}: {time}");
        assert!(time.starts_with("File: consumers\n"), "{time}");
    }
    let top = top(&w.file("a--no-inline.pb.gz"));
    for (name, n) in reported(&file) {
        // What has no symbol is an address there and a binary here.
        if !name.starts_with("0x") {
            assert_eq!(top.get(&name).map(|t| t.0), Some(n), "{name}");
        }
    }
    // Lines of the source, and functions that were inlined there.
    let profile = w.file("a--inline.pb.gz");
    let line = SOURCE.lines().position(|l| l.contains("sink += i * i")).unwrap() + 1;
    let lines = pprof(&["-top", "-lines", "-symbolize=none"], &profile);
    assert!(lines.contains(&format!("consumers.c:{line} (inline)")), "{lines}");
    let called = pprof(&["-peek=^inner$", "-symbolize=none"], &profile);
    assert!(called.contains("|   leaf"), "{called}");
}

const SCHEMA: &str = "tests/fixtures/speedscope/file-format-schema.json";

#[test]
fn speedscopes_schema_holds() {
    let needs = [Need::Perf, Need::PerfEvents, Need::Gcc, Need::Tool("python3")];
    if !require(&needs) {
        return;
    }
    let valid = |path: &str| run("/usr/bin/python3", ["-m", "jsonschema", "-i", path, SCHEMA]);
    let w = Workload::compile("consumers_speedscope", SOURCE);
    let file = recording(&w);
    let path = w.file("a.speedscope.json");
    let _ = kymo(&["convert", "-i", &file, "-o", &path]).success();
    let _ = valid(&path).success();
    let events = w.file("b.speedscope.json");
    let ring = "tests/fixtures/trace-dat/x86_64/ring.dat";
    let _ = kymo(&["convert", ring, "-o", &events]).success();
    let _ = valid(&events).success();
    // And it would not hold of anything.
    let text = std::fs::read_to_string(&path).unwrap();
    let wrong = w.file("wrong.json");
    std::fs::write(&wrong, text.replacen("\"weights\"", "\"burdens\"", 1)).unwrap();
    let said = valid(&wrong).failure();
    assert!(said.stderr.contains("burdens") || said.stdout.contains("burdens"), "{}", said.stderr);
}

#[test]
fn a_flame_graph_can_be_drawn() {
    let needs = [Need::Perf, Need::PerfEvents, Need::Gcc, Need::Tool("rsvg-convert")];
    if !require(&needs) {
        return;
    }
    let w = Workload::compile("consumers_flame", SOURCE);
    let file = recording(&w);
    let (svg, png) = (w.file("a.svg"), w.file("a.png"));
    let _ = kymo(&["convert", "-i", &file, "-o", &svg]).success();
    let _ = run("rsvg-convert", ["-o", &png, &svg]).success();
    let picture = std::fs::read(&png).unwrap();
    let size = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
    assert_eq!(&picture[1..4], b"PNG");
    let text = std::fs::read_to_string(&svg).unwrap();
    let height = text.split_once(" height=\"").unwrap().1.split('"').next().unwrap();
    assert_eq!((size(16), size(20).to_string().as_str()), (1200, height));
    // A picture of one colour would be packed into less.
    assert!(picture.len() > 8 << 10, "{} bytes", picture.len());
}
