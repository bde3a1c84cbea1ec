//! The recordings that both tools read, made by perf under `target/bench` and kept
//! there for the next run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use super::Effort;
use super::measure;

/// `perf bench sched pipe` makes two calls per side and round trip, each of which
/// enters and exits.
const EVENTS_PER_ROUND_TRIP: u64 = 8;

/// One recording.
pub(crate) struct Recording {
    pub(crate) path: PathBuf,
    pub(crate) samples: u64,
    pub(crate) bytes: u64,
}

pub(crate) struct Inputs {
    pub(crate) dir: PathBuf,
    /// System calls, the number that the goal is stated for.
    pub(crate) syscalls: Recording,
    /// Half as many, to see what grows.
    pub(crate) syscalls_half: Recording,
    /// cpu-clock samples with frame-pointer stacks of a build of a part of this project.
    pub(crate) stacks: Recording,
}

impl Inputs {
    /// Only the directory, for parts that make their own recordings.
    pub(crate) fn directory(effort: Effort) -> anyhow::Result<Inputs> {
        let dir = crate::root().join("target").join("bench").join(match effort {
            Effort::Full => "full",
            Effort::Quick => "quick",
        });
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let none = || Recording { path: PathBuf::new(), samples: 0, bytes: 0 };
        Ok(Inputs { dir, syscalls: none(), syscalls_half: none(), stacks: none() })
    }

    pub(crate) fn prepare(effort: Effort) -> anyhow::Result<Inputs> {
        let (dir, events, samples) = match effort {
            Effort::Full => ("full", 2_000_000, 50_000),
            Effort::Quick => ("quick", 200_000, 5_000),
        };
        let dir = crate::root().join("target").join("bench").join(dir);
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let inputs = Inputs {
            syscalls: syscalls(&dir.join("syscalls.data"), events)?,
            syscalls_half: syscalls(&dir.join("syscalls-half.data"), events / 2)?,
            stacks: stacks(&dir, samples)?,
            dir,
        };
        for r in [&inputs.syscalls, &inputs.syscalls_half, &inputs.stacks] {
            let mb = r.bytes as f64 / 1e6;
            println!("{}: {} samples, {mb:.1} MB", r.path.display(), r.samples);
        }
        Ok(inputs)
    }
}

pub(crate) fn syscalls(path: &Path, events: u64) -> anyhow::Result<Recording> {
    // Some room for what is lost.
    let round_trips = events * 11 / 10 / EVENTS_PER_ROUND_TRIP;
    kept(path, events, || {
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-m", "2048", "-e", "raw_syscalls:*", "-o"])
            .arg(path)
            .args(["--", "perf", "bench", "sched", "pipe", "-l"])
            .arg(round_trips.to_string());
        measure::output(perf).map(drop)
    })
}

/// Samples a build of a part of the project from nothing: a load with several processes,
/// threads, deep stacks and many binaries. Of 200,000 samples perf needs more than 6 GB
/// for a report with children.
fn stacks(dir: &Path, samples: u64) -> anyhow::Result<Recording> {
    let (path, target) = (dir.join("stacks.data"), dir.join("stacks-target"));
    kept(&path, samples, || {
        let _ = std::fs::remove_dir_all(&target);
        let frequency = if samples >= 50_000 { "499" } else { "99" };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-m", "1024", "-e", "cpu-clock", "-g", "-F", frequency, "-o"])
            .arg(&path)
            .arg("--")
            .arg(cargo)
            .args(["build", "--quiet", "--offline", "-p", "kymo-symbols", "--lib"])
            .current_dir(crate::root())
            .env("CARGO_TARGET_DIR", &target);
        measure::output(perf).map(drop)
    })
}

/// The recording at `path` if it is there and large enough, else a new one.
pub(crate) fn kept(
    path: &Path,
    least: u64,
    make: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Recording> {
    if let Ok(recording) = look(path)
        && recording.samples >= least
    {
        return Ok(recording);
    }
    make()?;
    let recording = look(path)?;
    if recording.samples < least {
        bail!("{}: {} samples, wanted {least}", path.display(), recording.samples);
    }
    Ok(recording)
}

fn look(path: &Path) -> anyhow::Result<Recording> {
    let bytes = std::fs::metadata(path).with_context(|| path.display().to_string())?.len();
    let count = path.with_extension("samples");
    // Counting takes perf longer than all the rest, so the number is kept.
    let noted = std::fs::read_to_string(&count).ok().and_then(|text| {
        let (size, samples) = text.trim().split_once(' ')?;
        (size.parse() == Ok(bytes)).then(|| samples.parse::<u64>().ok())?
    });
    let samples = match noted {
        Some(samples) => samples,
        None => {
            let samples = statistics(path)?.samples;
            std::fs::write(&count, format!("{bytes} {samples}\n"))
                .with_context(|| count.display().to_string())?;
            samples
        }
    };
    Ok(Recording { path: path.to_owned(), samples, bytes })
}

/// Counts of a recording by perf.
pub(crate) struct Statistics {
    pub(crate) samples: u64,
    /// Samples that the kernel could not store.
    pub(crate) lost: u64,
}

/// Counts with the peer, for both tools' recordings.
pub(crate) fn statistics(path: &Path) -> anyhow::Result<Statistics> {
    statistics_by(&|| Command::new("perf"), path)
}

/// Counts with this perf: an older one does not read what a newer one writes.
pub(crate) fn statistics_by(tool: &dyn Fn() -> Command, path: &Path) -> anyhow::Result<Statistics> {
    let mut perf = tool();
    perf.args(["report", "--stats", "-i"]).arg(path);
    let text = measure::output(perf)?;
    let count = |what: &str| -> u64 {
        text.lines()
            .filter_map(|l| l.trim().strip_prefix(what)?.split_whitespace().next()?.parse().ok())
            .next()
            .unwrap_or(0)
    };
    let samples = count("SAMPLE events:");
    if samples == 0 {
        bail!("{}: perf sees no samples", path.display());
    }
    let lost = if count("LOST events:") + count("LOST_SAMPLES events:") == 0 {
        0
    } else {
        lost(tool(), path)?
    };
    Ok(Statistics { samples, lost })
}

/// The sum of the loss records. Ring losses (`LOST`) and the counter's own figure
/// (`LOST_SAMPLES`) tell the same story twice, so the larger one counts.
fn lost(mut perf: Command, path: &Path) -> anyhow::Result<u64> {
    perf.args(["script", "--show-lost-events", "-F", "comm", "-i"]).arg(path);
    let text = measure::output(perf)?;
    let sum = |kind: &str| -> u64 {
        text.lines()
            .filter_map(|l| {
                let mut words = l.split_whitespace().skip_while(|w| *w != kind).skip(1);
                (words.next()? == "lost").then(|| words.next()?.parse::<u64>().ok())?
            })
            .sum()
    };
    Ok(sum("PERF_RECORD_LOST").max(sum("PERF_RECORD_LOST_SAMPLES")))
}
