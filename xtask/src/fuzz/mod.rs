//! `cargo xtask fuzz`: runs the fuzz targets of `fuzz/` without cargo-fuzz and
//! without a nightly compiler. What cargo-fuzz adds to a build are flags that every
//! compiler takes; the sanitizers, which need a nightly one, say little of programs
//! without unsafe code. libFuzzer itself is compiled by the crate `libfuzzer-sys`,
//! which needs a C++ compiler.
//!
//! Inputs to begin with are made of real files by [`seeds`]; what a target finds
//! worth keeping stays under `target/fuzz/corpus/TARGET` and serves the next run.

mod seeds;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, bail, ensure};

use crate::{cargo, workers};

pub(crate) const USAGE: &str = "\
\x20 fuzz [TARGET…] [--seconds N]
                      fuzz targets, as many at a time as there are CPUs, by default each for 60 s
  fuzz --list         their names
";

/// Compiler flags of cargo-fuzz, without the sanitizer.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg",
    "fuzzing",
    "-Cdebug-assertions=on",
    "-Ccodegen-units=1",
];

/// No input may take longer (s), or more memory (MB).
const SLOWEST: u32 = 10;
const LARGEST: u32 = 2048;

pub(crate) fn main(args: &[&str]) -> anyhow::Result<()> {
    let (mut wanted, mut seconds) = (Vec::new(), 60);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match *arg {
            "--list" => {
                for target in targets()? {
                    println!("{target}");
                }
                return Ok(());
            }
            "--seconds" => {
                let number = rest.next().context("--seconds wants a number")?;
                seconds = number.parse().with_context(|| format!("--seconds {number}"))?;
            }
            name => wanted.push(name.to_owned()),
        }
    }
    run(wanted, seconds)
}

fn run(wanted: Vec<String>, seconds: u32) -> anyhow::Result<()> {
    let all = targets()?;
    if let Some(unknown) = wanted.iter().find(|name| !all.contains(name)) {
        bail!("no such fuzz target: {unknown}; there are {}", all.join(", "));
    }
    let wanted = if wanted.is_empty() { all } else { wanted };
    let built = build()?;
    println!("fuzz: {} targets, each for {seconds} s", wanted.len());
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> anyhow::Result<()> {
        while let Some(target) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !fuzz(&built, target, seconds)? {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(target.as_str());
            }
        }
        Ok(())
    };
    workers::run(|_| work())?;
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(failed.is_empty(), "inputs that fail were found by {}", failed.join(", "));
    Ok(())
}

/// The names of the targets, which are the names of their files.
fn targets() -> anyhow::Result<Vec<String>> {
    let directory = crate::root().join("fuzz/fuzz_targets");
    let read = std::fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
    let names = read.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some(name.strip_suffix(".rs")?.to_owned())
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

fn home() -> PathBuf {
    crate::target().join("fuzz")
}

/// Builds all targets and gives the directory they are in.
fn build() -> anyhow::Result<PathBuf> {
    // A target that is named keeps the flags from build scripts and macros.
    let host = host()?;
    let mut command = cargo::command(&["build", "--release", "--manifest-path"]);
    command.arg(crate::root().join("fuzz/Cargo.toml")).args(["--target", &host]);
    command.arg("--target-dir").arg(home()).env("RUSTFLAGS", FLAGS.join(" "));
    cargo::run_command(command)?;
    Ok(home().join(host).join("release"))
}

/// The triple of this machine's compiler.
fn host() -> anyhow::Result<String> {
    let out = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc names no host")
}

/// Whether the target ran to its end.
fn fuzz(built: &Path, target: &str, seconds: u32) -> anyhow::Result<bool> {
    let (corpus, found) = (home().join("corpus").join(target), home().join("found").join(target));
    for directory in [&corpus, &found] {
        std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    seeds::make(target, &corpus)?;
    let mut command = Command::new(built.join(target));
    command.arg(&corpus).current_dir(&found);
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-timeout={SLOWEST}"));
    command.arg(format!("-rss_limit_mb={LARGEST}")).arg("-print_final_stats=1");
    command.arg(format!("-artifact_prefix={}/", found.display()));
    command.args(["-max_len=65536", "-verbosity=1"]);
    let ran = command.output().with_context(|| format!("cannot run {target}"))?;
    let said = String::from_utf8_lossy(&ran.stderr);
    if ran.status.success() {
        let tried =
            said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
        println!("fuzz {target}: {} inputs", tried.unwrap_or("?").trim());
    } else {
        println!("{said}\nfuzz {target}: {}; the input lies in {}", ran.status, found.display());
    }
    Ok(ran.status.success())
}
