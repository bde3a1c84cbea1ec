//! Reports of stacks that were recorded as registers and copies of the stack, of
//! a Rust program with full debugging information; and how many of the stacks
//! each tool gets whole.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::Effort;
use super::inputs::{self, Recording};
use super::measure::output;
use super::rows::{Bench, Each, Row, peak_row, time_row};

/// Bytes of the stack in each sample, as the goals are stated for.
pub(crate) const COPY: u32 = 16384;
/// Copies that are tried for what perf needs.
const COPIES: [u32; 4] = [8192, COPY, 32768, 65528];
/// Outermost functions of a program or a thread.
const OUTERMOST: [&str; 4] = ["_start", "clone3", "__clone3", "__clone"];

/// The recording, made when it is not there yet.
pub(crate) fn recording(dir: &Path, effort: Effort) -> anyhow::Result<Recording> {
    let (samples, seconds) = match effort {
        Effort::Full => (25_000, 14),
        Effort::Quick => (500, 1),
    };
    inputs::kept(&dir.join("dwarf.data"), samples, || {
        record(dir, &dir.join("dwarf.data"), COPY, seconds)
    })
}

/// This project's own program, optimised, with all that DWARF can say. Once built it
/// stays as it is: recordings are of no use when their program changes.
pub(super) fn program(dir: &Path) -> anyhow::Result<PathBuf> {
    let kept = dir.join("dwarf-program");
    if kept.is_file() {
        return Ok(kept);
    }
    let target = dir.join("dwarf-target").display().to_string();
    let settings = ["debug='full'", "strip=false", "lto=false", "codegen-units=16"];
    let settings = settings.map(|s| format!("profile.release.{s}"));
    let mut args = vec!["build", "--release", "--offline", "--bin", "kymo"];
    args.extend(["--target-dir", &target]);
    settings.iter().for_each(|s| args.extend(["--config", s]));
    let built = crate::cargo::build(&args)?;
    std::fs::copy(&built, &kept).with_context(|| kept.display().to_string())?;
    Ok(kept)
}

/// Samples the program at work: several kinds of it, some on several threads.
pub(super) fn record(dir: &Path, to: &Path, copy: u32, seconds: u32) -> anyhow::Result<()> {
    let program = program(dir)?;
    let input = dir.join("syscalls-small.data");
    let _ = inputs::syscalls(&input, 100_000)?;
    let work = "end=$(($(date +%s) + $0)); while [ $(date +%s) -lt $end ]; do \
                for what in report script 'script --json'; do $1 $what -i $2 >/dev/null 2>&1; \
                done; done";
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-m", "4096", "-e", "cpu-clock", "-F", "5000", "--call-graph"])
        .arg(format!("dwarf,{copy}"))
        .arg("-o")
        .arg(to)
        .args(["--", "sh", "-c", work, &seconds.to_string()])
        .args([&program, &input]);
    output(perf).map(drop)
}

impl Bench<'_> {
    /// `report` without inlined functions, and how complete the stacks are.
    pub(crate) fn dwarf(&self) -> anyhow::Result<Vec<Row>> {
        let recording = recording(self.dir(), self.effort())?;
        let args = ["report", "--stdio", "--no-inline", "-g", "--no-children", "-i", "dwarf.data"];
        let costs = self.each(3, &args)?;
        let what = format!("`report --no-inline`, {} DWARF stacks", recording.samples);
        let kymos = self.share_of_kymo(&recording.path)?;
        let mut shares = Vec::new();
        for copy in COPIES {
            let path = self.dir().join(format!("dwarf-{copy}.data"));
            if copy != COPY {
                record(self.dir(), &path, copy, 2)?;
            }
            let path = if copy == COPY { &recording.path } else { &path };
            shares.push((copy, share_of_perf(Command::new("perf"), path)?));
        }
        let newest = kymo_testkit::peer("perf");
        let newest = newest.is_newest().then(|| newest.command());
        let newest = newest.map(|perf| share_of_perf(perf, &recording.path)).transpose()?;
        let perfs = shares.iter().find(|(copy, _)| *copy == COPY).map_or(0.0, |s| s.1);
        // Runs differ a little.
        let enough = shares.iter().find(|(_, share)| *share + 0.5 >= kymos);
        let enough = enough.map_or_else(
            || "no copy is large enough for perf to have as many".into(),
            |(copy, _)| format!("the installed perf needs copies of {copy} bytes for as many"),
        );
        let complete = Each { newest, installed: perfs, kymo: kymos };
        let stacks = format!("the same, complete stacks with copies of {COPY} bytes");
        Ok(vec![
            time_row(what, &costs, "10×"),
            peak_row("the same, peak memory", &costs),
            complete.row(stacks, |share| format!("{share:.1} %"), enough),
        ])
    }

    /// In percent, from the ledger.
    fn share_of_kymo(&self, path: &Path) -> anyhow::Result<f64> {
        let path = path.to_str().context("a path of the bench is not UTF-8")?;
        let text = output(self.kymo_with(&["report", "--stdio", "-g", "-i", path]))?;
        let line =
            text.lines().find_map(|l| l.trim_start_matches("# ").trim().strip_prefix("stacks: "));
        let share = line.and_then(|l| l.split_once('(')?.1.split_once('%')?.0.parse().ok());
        share.context("the ledger states no share of complete stacks")
    }
}

/// In percent, of the stacks that have user frames, by their last ones.
fn share_of_perf(mut perf: Command, path: &Path) -> anyhow::Result<f64> {
    perf.args(["script", "--no-inline", "-F", "ip,sym", "-i"]).arg(path);
    let text = output(perf)?;
    let (mut all, mut complete) = (0u32, 0u32);
    for stack in text.split("\n\n") {
        let last = stack.lines().rfind(|l| !l.trim().is_empty());
        let Some((_, name)) = last.and_then(|l| l.trim().split_once(' ')) else { continue };
        all += 1;
        complete += u32::from(OUTERMOST.contains(&name));
    }
    Ok(100.0 * f64::from(complete) / f64::from(all.max(1)))
}
