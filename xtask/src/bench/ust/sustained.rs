//! Events a second that reach the disk without loss, and what the one costs that brings them
//! there.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::lttng::Lttng;
use crate::bench::measure::{ended, output};

/// Tried from below; the last that loses nothing counts. Millions a second.
const RATES: [u64; 14] = [2, 4, 6, 8, 10, 12, 14, 17, 20, 25, 30, 35, 40, 50];
/// Where the readers are compared, millions a second.
const COMPARED: u64 = 2;
const ROUNDS: usize = 3;

/// One run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sustained {
    events: u64,
    seconds: f64,
    lost: u64,
    /// The reader's CPU time.
    reader: Duration,
}

impl Sustained {
    /// From what the program prints.
    pub(super) fn of(printed: &str, lost: u64, reader: Duration) -> anyhow::Result<Self> {
        let (events, seconds) = printed.trim().split_once(' ').context("events and seconds")?;
        Ok(Self { events: events.parse()?, seconds: seconds.parse()?, lost, reader })
    }

    fn reader_share(&self) -> f64 {
        self.reader.as_secs_f64() / self.seconds * 100.0
    }
}

pub(super) fn rows(pace: &Path, lttng: &Lttng) -> anyhow::Result<Vec<[String; 4]>> {
    let kymo = crate::cargo::build_release()?;
    let ours = |rate| kymo_sustains(&kymo, pace, rate);
    let theirs = |rate| lttng.sustained(rate);
    let (most_ours, most_theirs) = (most(ours)?, most(theirs)?);
    println!("to disk: kymo {most_ours:.1} M/s, LTTng {most_theirs:.1} M/s");
    let (mut cpu_ours, mut cpu_theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        cpu_ours.push(ours(COMPARED * 1_000_000)?.reader_share());
        cpu_theirs.push(theirs(COMPARED * 1_000_000)?.reader_share());
    }
    let median = |shares: &[f64]| super::median(shares).context("no rounds");
    let (cpu_ours, cpu_theirs) = (median(&cpu_ours)?, median(&cpu_theirs)?);
    println!("reader: kymo {cpu_ours:.1} %, LTTng {cpu_theirs:.1} %");
    Ok(vec![
        [
            "events to disk without loss".into(),
            format!("{most_theirs:.1} M/s"),
            format!("{most_ours:.1} M/s"),
            format!("{:.1}×", most_ours / most_theirs),
        ],
        [
            format!("CPU of the reader at {COMPARED} M events a second"),
            format!("{cpu_theirs:.1} %"),
            format!("{cpu_ours:.1} %"),
            format!("{:.2} of LTTng's", cpu_ours / cpu_theirs),
        ],
    ])
}

/// The most millions a second that reach the disk without loss. A rate that loses is tried
/// once more, since the machine may have been busy.
fn most(run: impl Fn(u64) -> anyhow::Result<Sustained>) -> anyhow::Result<f64> {
    let mut most: f64 = 0.0;
    for rate in RATES.map(|rate| rate * 1_000_000) {
        let mut runs = [run(rate)?, run(rate)?];
        runs.sort_by_key(|run| run.lost);
        let [best, _] = runs;
        if best.lost > 0 {
            break;
        }
        let reached = best.events as f64 / best.seconds / 1e6;
        if reached < most * 1.02 {
            // The program itself can do no more.
            break;
        }
        most = reached;
    }
    Ok(most)
}

fn kymo_sustains(kymo: &Path, pace: &Path, rate: u64) -> anyhow::Result<Sustained> {
    let folder = crate::target().join("bench/ust-kymo");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    // The rings are in memory, as those of LTTng.
    let shared = format!("/dev/shm/kymo-bench-{}", std::process::id());
    std::fs::create_dir_all(&shared)?;
    let mut tool = Command::new(kymo);
    tool.args(["trace", "-u", "pace:two", "--buffer-size", "8M", "-o"]).arg(folder.join("trace"));
    tool.env("KYMO_UST_DIR", &shared).stdin(Stdio::null()).stdout(Stdio::null());
    let tool = tool.stderr(Stdio::piped()).spawn().context("cannot run kymo")?;
    let mut program = Command::new(pace);
    program.args(["paced", "overwrite", &rate.to_string(), "1"]).env("KYMO_UST_DIR", &shared);
    let paced = output(program);
    // So that it takes what is left, and ends.
    let _ = Command::new("kill").args(["-INT", &tool.id().to_string()]).status();
    let ended = ended(tool)?;
    let _ = std::fs::remove_dir_all(&shared);
    let _ = std::fs::remove_dir_all(&folder);
    if !ended.said.contains("1 programs") {
        bail!("kymo trace: {}", ended.said.trim());
    }
    let lost = ended.said.lines().find_map(|line| {
        let words = line.split(" events discarded").next().filter(|before| *before != line)?;
        words.rsplit(' ').next()?.parse().ok()
    });
    Sustained::of(&paced?, lost.unwrap_or(0), ended.cpu)
}

/// CPU time of the child of the session daemon that brings programs' events to the disk.
pub(super) fn cpu_of_consumer(daemon: u32) -> anyhow::Result<Duration> {
    let mut total = Duration::ZERO;
    let mut found = false;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((name, rest)) = stat.rsplit_once(") ") else { continue };
        let parent = rest.split(' ').nth(1).and_then(|p| p.parse::<u32>().ok());
        if parent != Some(daemon) || !name.contains("(lttng-consumerd") {
            continue;
        }
        found = true;
        for task in std::fs::read_dir(entry.path().join("task"))?.flatten() {
            let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let ns = text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
            total += Duration::from_nanos(ns);
        }
    }
    if !found {
        bail!("the session daemon has no lttng-consumerd");
    }
    Ok(total)
}
