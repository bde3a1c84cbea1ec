//! Everything that can happen to a program, together (`programs/stress.c`): each event is accounted
//! for, none is torn, and those of a writer are in order.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Program, Shared, config};
use kymo_testkit::{Need, require};
use kymo_ust::ChannelConfig;

fn compile(source: &str, out: &Path, args: &[&str], link: &[PathBuf]) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-Wall", "-Wextra", "-Werror", "-O2"]).args(args).arg(here.join(source));
    gcc.arg("-I").arg(here.join("include")).arg("-o").arg(out).args(link);
    let output = gcc.args(["-lpthread", "-ldl", "-lm"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Numbers that each writer has written; the noise and its checksum are verified.
fn numbers(lines: &[String]) -> BTreeMap<u32, Vec<u64>> {
    let mut of_writer: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.contains(" stress:hit: ")) {
        let value = |name: &str| {
            let rest = line.split_once(&format!(" {name} = ")).expect(line).1;
            rest.split([',', ' ']).next().unwrap().trim_matches('"')
        };
        let writer: u32 = value("writer").parse().unwrap();
        let number: u64 = value("number").parse().unwrap();
        let (_, noise) = line.split_once(" noise = \"").unwrap();
        let noise = noise.split_once("\", sum").unwrap().0.replace("\\\\", "\\");
        assert_eq!(noise.len() as u64, 63 - number % 61, "{line}");
        let sum =
            noise.bytes().fold(writer.wrapping_mul(31).wrapping_add(number as u32), |sum, byte| {
                sum.wrapping_mul(33).wrapping_add(byte.into())
            });
        assert_eq!(value("sum").parse(), Ok(sum), "a torn event: {line}");
        of_writer.entry(writer).or_default().push(number);
    }
    of_writer
}

/// The events a process has produced, which it has reported, are in its ring or counted.
fn check(program: &Program, produced: u64) -> (u64, u64) {
    let ring = program.ring(0, 1);
    let (count, discarded) = ring.counts();
    let overwritten = ring.overwritten();
    let (lines, _) = program.babeltrace_with_warning(0, 1);
    assert_eq!(lines.len() as u64 + overwritten, count, "{}", program.path.display());
    // While the ring was made, handlers of the thread that made it had none.
    let lost = program.slot(0).lost;
    assert!(lost < 100 || lost * 10 < produced, "{lost} of {produced}");
    assert_eq!(count + discarded + lost, produced, "{}", program.path.display());
    let gaps = overwritten + discarded + lost > 0;
    for (writer, numbers) in numbers(&lines) {
        for pair in numbers.windows(2) {
            let in_order = if gaps { pair[0] < pair[1] } else { pair[0] + 1 == pair[1] };
            assert!(in_order, "writer {writer}: {pair:?} in {}", program.path.display());
        }
    }
    (discarded, overwritten)
}

/// For as long as it takes on this machine until enough has happened.
fn scenario(config: &ChannelConfig, tunables: &str) {
    if !require(&[Need::Gcc, Need::Babeltrace]) {
        return;
    }
    let enough = |milliseconds: &str| {
        let (seen, all) = run_for(milliseconds, config, tunables);
        seen > 3 && all > 20_000
    };
    assert!(["700", "5000", "40000"].into_iter().any(enough), "too little has happened");
}

/// Number of processes, and of events they have produced.
fn run_for(milliseconds: &str, config: &ChannelConfig, tunables: &str) -> (usize, u64) {
    let dir = tempfile::tempdir().unwrap();
    let (program, library) = (dir.path().join("stress"), dir.path().join("libshop.so"));
    let reports = dir.path().join("reports");
    std::fs::create_dir(&reports).unwrap();
    let static_library = [common::static_library()];
    compile("tests/programs/stress.c", &program, &["-rdynamic"], &static_library);
    compile("examples/shop.c", &library, &["-shared", "-fPIC", "-DLIBRARY"], &[]);
    let shared = Shared::new();
    shared.want("s", config);
    let mut command = Command::new(&program);
    command.arg(milliseconds).arg(&library).arg(&reports);
    command.env("KYMO_UST_DIR", shared.user().parent().unwrap());
    let status = command.env("GLIBC_TUNABLES", tunables).status().unwrap();
    assert!(status.success(), "{status}");
    let mut seen = 0;
    let (mut discarded, mut overwritten, mut all) = (0, 0, 0);
    for program in shared.programs() {
        let name = program.path.file_name().unwrap().to_str().unwrap();
        let words: Vec<&str> = name.split('-').collect();
        let report = reports.join(format!("{}.{}", words[0], words[2]));
        let produced: u64 = std::fs::read_to_string(&report).unwrap().trim().parse().unwrap();
        let result = check(&program, produced);
        seen += 1;
        discarded += result.0;
        overwritten += result.1;
        all += produced;
    }
    assert_eq!(seen, std::fs::read_dir(&reports).unwrap().count());
    eprintln!("{seen} processes, {all} events, {discarded} discarded, {overwritten} overwritten");
    (seen, all)
}

/// Sub-buffers so small that each holds some fifty events.
fn tiny(overwrite: bool) -> ChannelConfig {
    ChannelConfig { overwrite, sub_buffer: 4096, sub_buffers: 4, ..config("stress:*", "") }
}

const WITHOUT: &str = "glibc.pthread.rseq=0";

#[test]
fn overwriting_in_tiny_sub_buffers() {
    scenario(&tiny(true), "");
}

#[test]
fn overwriting_in_tiny_sub_buffers_without_restartable_sequences() {
    scenario(&tiny(true), WITHOUT);
}

#[test]
fn discarding_in_tiny_sub_buffers() {
    scenario(&tiny(false), "");
}

#[test]
fn room_for_all() {
    scenario(&ChannelConfig { sub_buffer: 4 << 20, sub_buffers: 16, ..config("stress:*", "") }, "");
}

#[test]
fn room_for_all_without_restartable_sequences() {
    let config = ChannelConfig { sub_buffer: 4 << 20, sub_buffers: 16, ..config("stress:*", "") };
    scenario(&config, WITHOUT);
}
