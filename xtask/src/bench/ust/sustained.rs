//! Events a second that reach the disk without loss, and what the one costs that brings them
//! there.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::lttng::Lttng;
use crate::bench::measure::{ended, output};

/// Tried from below, then halved between the last that loses nothing and the first that does.
/// Millions a second.
const RATES: [u64; 12] = [4, 8, 12, 16, 20, 25, 30, 35, 40, 50, 60, 80];
const HALVINGS: u32 = 2;
/// A rate is sustained if all but one of that number of runs lose nothing: the machine may have been busy.
const TRIALS: usize = 3;
/// Rate at which the readers are compared, in millions per second.
const COMPARED: u64 = 2;
const ROUNDS: usize = 3;

/// Load of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) kind: &'static str,
    pub(super) per_second: u64,
    pub(super) threads: u32,
}

impl Load {
    fn paced(per_second: u64) -> Self {
        Self { kind: "paced", per_second, threads: 1 }
    }

    fn flat(threads: u32) -> Self {
        Self { kind: "flat", per_second: 0, threads }
    }
}

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

    /// Nanoseconds of the reader for each event that reached the disk.
    fn reader_per_event(&self) -> f64 {
        self.reader.as_nanos() as f64 / self.kept() as f64
    }

    fn kept(&self) -> u64 {
        self.events.saturating_sub(self.lost)
    }

    /// Millions a second that reached the disk.
    fn rate(&self) -> f64 {
        self.kept() as f64 / self.seconds / 1e6
    }
}

pub(super) fn rows(pace: &Path, lttng: &Lttng) -> anyhow::Result<Vec<[String; 4]>> {
    let kymo = crate::cargo::build_release()?;
    let ours = |load| kymo_sustains(&kymo, pace, load);
    let theirs = |load| lttng.sustained(load);
    let (most_ours, most_theirs) = (most(ours)?, most(theirs)?);
    println!("to disk: kymo {most_ours:.1} M/s, LTTng {most_theirs:.1} M/s");
    let mut rows = vec![[
        "events to disk without loss".into(),
        format!("{most_theirs:.1} M/s"),
        format!("{most_ours:.1} M/s"),
        format!("{:.1}×", most_ours / most_theirs),
    ]];
    for threads in [1, 2] {
        rows.push(flat_out(threads, ours, theirs)?);
    }
    let (mut all_ours, mut all_theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        all_ours.push(ours(Load::paced(COMPARED * 1_000_000))?);
        all_theirs.push(theirs(Load::paced(COMPARED * 1_000_000))?);
    }
    let of = |runs: &[Sustained], value: fn(&Sustained) -> f64| {
        super::median(&runs.iter().map(value).collect::<Vec<_>>()).context("no rounds")
    };
    let share = |runs: &[Sustained]| of(runs, Sustained::reader_share);
    let per_event = |runs: &[Sustained]| of(runs, Sustained::reader_per_event);
    let (share_ours, share_theirs) = (share(&all_ours)?, share(&all_theirs)?);
    println!("reader: kymo {share_ours:.1} %, LTTng {share_theirs:.1} %");
    rows.push([
        format!("CPU of the reader at {COMPARED} M events a second"),
        format!("{share_theirs:.1} % ({:.1} ns an event)", per_event(&all_theirs)?),
        format!("{share_ours:.1} % ({:.1} ns an event)", per_event(&all_ours)?),
        format!("{:.2} of LTTng's", share_ours / share_theirs),
    ]);
    Ok(rows)
}

/// Events of a number of threads that reach the disk, if they do nothing else.
fn flat_out(
    threads: u32,
    ours: impl Fn(Load) -> anyhow::Result<Sustained>,
    theirs: impl Fn(Load) -> anyhow::Result<Sustained>,
) -> anyhow::Result<[String; 4]> {
    let (mut all_ours, mut all_theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        all_ours.push(ours(Load::flat(threads))?);
        all_theirs.push(theirs(Load::flat(threads))?);
    }
    let cell = |runs: &mut Vec<Sustained>| -> anyhow::Result<(f64, String)> {
        runs.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
        let run = runs.get(runs.len() / 2).context("no rounds")?;
        let (rate, hit) = (run.rate(), run.events as f64 / run.seconds / 1e6);
        Ok((rate, format!("{rate:.1} of {hit:.1} M/s ({:.0} %)", 100.0 * rate / hit)))
    };
    let ((rate_ours, ours), (rate_theirs, theirs)) = (cell(&mut all_ours)?, cell(&mut all_theirs)?);
    let what = match threads {
        1 => "events to disk, a thread that does nothing else".to_owned(),
        n => format!("events to disk, {n} threads that do nothing else"),
    };
    println!("{what}: kymo {ours}, LTTng {theirs}");
    Ok([what, theirs, ours, format!("{:.1}×", rate_ours / rate_theirs)])
}

/// The most millions a second that reach the disk without loss.
fn most(run: impl Fn(Load) -> anyhow::Result<Sustained>) -> anyhow::Result<f64> {
    let (mut most, mut asked, mut too_much) = (0.0, 0, None);
    for rate in RATES.map(|rate| rate * 1_000_000) {
        match sustains(&run, rate)? {
            // The program itself can do no more.
            Some(reached) if reached < most * 1.02 => return Ok(most),
            Some(reached) => (most, asked) = (reached, rate),
            None => {
                too_much = Some(rate);
                break;
            }
        }
    }
    let Some(mut too_much) = too_much else { return Ok(most) };
    for _ in 0..HALVINGS {
        let rate = asked.midpoint(too_much);
        match sustains(&run, rate)? {
            Some(reached) => (most, asked) = (reached.max(most), rate),
            None => too_much = rate,
        }
    }
    Ok(most)
}

/// Rate that reached the disk if nothing of it was lost.
fn sustains(
    run: &impl Fn(Load) -> anyhow::Result<Sustained>,
    rate: u64,
) -> anyhow::Result<Option<f64>> {
    let (mut good, mut bad) = (Vec::new(), 0);
    while bad < 2 && good.len() + 1 < TRIALS {
        match run(Load::paced(rate))? {
            run if run.lost == 0 => good.push(run.rate()),
            _ => bad += 1,
        }
    }
    Ok(if bad < 2 { super::median(&good) } else { None })
}

fn kymo_sustains(kymo: &Path, pace: &Path, load: Load) -> anyhow::Result<Sustained> {
    let directory = crate::target().join("bench/ust-kymo");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory)?;
    // The rings are in memory, as those of LTTng.
    let shared = format!("/dev/shm/kymo-bench-{}", std::process::id());
    std::fs::create_dir_all(&shared)?;
    let mut tool = Command::new(kymo);
    tool.args(["trace", "-u", "pace:two", "--buffer-size", "8M", "-o"])
        .arg(directory.join("trace"));
    tool.env("KYMO_UST_DIR", &shared).stdin(Stdio::null()).stdout(Stdio::null());
    let tool = tool.stderr(Stdio::piped()).spawn().context("cannot run kymo")?;
    let mut program = Command::new(pace);
    let (rate, threads) = (load.per_second.to_string(), load.threads.to_string());
    program.args([load.kind, "overwrite", &rate, &threads]).env("KYMO_UST_DIR", &shared);
    let paced = output(program);
    // So that it takes what is left, and ends.
    let _ = Command::new("kill").args(["-INT", &tool.id().to_string()]).status();
    let ended = ended(tool)?;
    let _ = std::fs::remove_dir_all(&shared);
    let _ = std::fs::remove_dir_all(&directory);
    if !ended.said.contains("(1 program") {
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
