//! Measurements. Each part returns rows of the table, the peers' figures next to ours: of the
//! newest release that is there (`cargo xtask peers`) and of the installed one.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use super::Effort;
use super::inputs::{Inputs, statistics_by};
use super::measure::{Cost, cost, installed, interleaved, median, output};

/// One line of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) newest: String,
    pub(crate) installed: String,
    pub(crate) kymo: String,
    /// Ratio and goal, in words.
    pub(crate) verdict: String,
}

/// Something of each tool; nothing of the newest release where that is not there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Each<T> {
    pub(super) newest: Option<T>,
    pub(super) installed: T,
    pub(super) kymo: T,
}

impl<T> Each<T> {
    pub(super) fn map<U>(&self, of: impl Fn(&T) -> U) -> Each<U> {
        Each {
            newest: self.newest.as_ref().map(&of),
            installed: of(&self.installed),
            kymo: of(&self.kymo),
        }
    }

    /// Compared peers, the newest release first.
    pub(super) fn peers(&self) -> impl Iterator<Item = &T> {
        self.newest.iter().chain([&self.installed])
    }

    /// A figure of each.
    pub(super) fn row(&self, what: String, show: impl Fn(&T) -> String, verdict: String) -> Row {
        let Each { newest, installed, kymo } = self.map(show);
        Row { what, newest: newest.unwrap_or_default(), installed, kymo, verdict }
    }
}

impl Each<f64> {
    /// Ratio of each peer's figure to ours.
    pub(super) fn times(&self) -> String {
        joined(self.peers().map(|peer| format!("{:.1}×", peer / self.kymo)))
    }

    /// Our share of each peer's figure.
    pub(super) fn shares(&self) -> String {
        joined(self.peers().map(|peer| format!("{:.2}", self.kymo / peer)))
    }
}

pub(super) fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join("; ")
}

/// A part of the bench.
pub(crate) type Part<'a> = fn(&Bench<'a>) -> anyhow::Result<Vec<Row>>;

pub(crate) struct Bench<'a> {
    kymo: &'a Path,
    inputs: &'a Inputs,
    effort: Effort,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(
        kymo: &'a Path,
        inputs: &'a Inputs,
        effort: Effort,
    ) -> anyhow::Result<Bench<'a>> {
        // The first start reads the program from disk; no figure should include that.
        let peer = kymo_testkit::peer("perf");
        for mut command in [Command::new("perf"), peer.command(), Command::new(kymo)] {
            command.arg("--version");
            cost(command)?;
        }
        Ok(Bench { kymo, inputs, effort })
    }

    pub(super) fn effort(&self) -> Effort {
        self.effort
    }

    /// Directory of the recordings.
    pub(super) fn dir(&self) -> &Path {
        &self.inputs.dir
    }

    pub(super) fn rounds(&self, full: usize) -> usize {
        if self.effort == Effort::Full { full } else { 1 }
    }

    pub(super) fn perf_with(&self, args: &[&str]) -> Command {
        let mut command = Command::new("perf");
        command.args(args).current_dir(&self.inputs.dir);
        command
    }

    /// A command in the directory of the recordings.
    pub(super) fn placed(&self, mut command: Command, args: &[&str]) -> Command {
        command.args(args).current_dir(&self.inputs.dir);
        command
    }

    pub(super) fn kymo_with(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.kymo);
        command.args(args).current_dir(&self.inputs.dir);
        command
    }

    /// Cost of equal arguments with perf and with kymo.
    pub(super) fn each(&self, rounds: usize, args: &[&str]) -> anyhow::Result<Each<Cost>> {
        let perf = kymo_testkit::peer("perf");
        let newest = || self.placed(perf.command(), args);
        let newest: &dyn Fn() -> Command = &newest;
        self.costs(rounds, perf.is_newest().then_some(newest), &|| self.perf_with(args), &|| {
            self.kymo_with(args)
        })
    }

    /// Cost of a command of each, in turns. A newest release that fails has no figure.
    pub(super) fn costs(
        &self,
        rounds: usize,
        newest: Option<&dyn Fn() -> Command>,
        installed: &dyn Fn() -> Command,
        kymo: &dyn Fn() -> Command,
    ) -> anyhow::Result<Each<Cost>> {
        let newest = newest.filter(|command| match cost(command()) {
            Ok(_) => true,
            Err(e) => {
                println!("it has no figure: {e:#}");
                false
            }
        });
        let mut commands = vec![installed, kymo];
        commands.extend(newest);
        match interleaved(self.rounds(rounds), &commands)?.as_slice() {
            [installed, kymo, newest @ ..] => {
                Ok(Each { newest: newest.first().copied(), installed: *installed, kymo: *kymo })
            }
            _ => anyhow::bail!("a command has no cost"),
        }
    }

    /// `script` of everything to nowhere, and whether memory grows with the file.
    pub(crate) fn script(&self) -> anyhow::Result<Vec<Row>> {
        let recording = &self.inputs.syscalls;
        let all = self.each(3, &["script", "-i", "syscalls.data"])?;
        let half = self.each(1, &["script", "-i", "syscalls-half.data"])?;
        let rate = |c: &Cost| format!("{:.2} M/s", per_second(recording.samples, c) / 1e6);
        let grown = format!(
            "twice the file: {:+.1} MB (goal: does not grow)",
            (all.kymo.peak as f64 - half.kymo.peak as f64) / 1e6
        );
        let samples = self.inputs.syscalls_half.samples;
        Ok(vec![
            time_row(format!("`script`, {} events", recording.samples), &all, "20×, least 8×"),
            all.row("`script`, events a second".into(), rate, String::new()),
            peak_row("`script`, peak memory", &all),
            half.row(format!("the same, {samples} events"), |c| megabytes(c.peak), grown),
        ])
    }

    /// `report` with call graphs, with and without adding up children.
    pub(crate) fn report(&self) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for children in ["--children", "--no-children"] {
            let args = ["report", "--stdio", "-g", children, "-i", "stacks.data"];
            let costs = self.each(3, &args)?;
            let what = format!("`report -g {children}`, {} samples", self.inputs.stacks.samples);
            rows.push(time_row(what, &costs, "10×, least 4×"));
            rows.push(peak_row("the same, peak memory", &costs));
        }
        let costs = self.each(3, &["diff", "-c", "delta", "stacks.data", "stacks.data"])?;
        let what = format!("`diff -c delta`, twice {} samples", self.inputs.stacks.samples);
        rows.push(time_row(what, &costs, "10×"));
        Ok(rows)
    }

    /// Overhead of a recording on the recorded program, and the losses of each tool.
    pub(crate) fn record(&self) -> anyhow::Result<Vec<Row>> {
        let loops = if self.effort == Effort::Full { 100_000 } else { 10_000 };
        let text = loops.to_string();
        let perf = installed("perf")?;
        let load = [perf.as_str(), "bench", "-f", "simple", "sched", "pipe", "-l", &text];
        let with = |command: Command, out: &str| {
            let record = ["record", "-e", "raw_syscalls:*", "-o", out, "--"];
            self.placed(command, &[&record[..], &load].concat())
        };
        let peer = kymo_testkit::peer("perf");
        let tried = Each {
            newest: peer.is_newest().then_some("overhead-newest.data"),
            installed: "overhead-perf.data",
            kymo: "overhead-kymo.data",
        };
        let mut bare = Vec::new();
        let mut seen = tried.map(|_| (Vec::new(), 0, 0));
        for _ in 0..self.rounds(5) {
            let micros = |command: Command| -> anyhow::Result<f64> {
                let text = output(command)?;
                let seconds = text.lines().find_map(|l| l.trim().parse::<f64>().ok());
                let seconds =
                    seconds.with_context(|| format!("no seconds in `{}`", text.trim()))?;
                Ok(seconds * 1e6 / f64::from(loops))
            };
            bare.push(micros(self.perf_with(&load[1..]))?);
            let newest = seen.newest.as_mut().zip(tried.newest);
            let newest = newest.map(|(seen, out)| (seen, peer.command(), out));
            let others = [
                (&mut seen.installed, Command::new("perf"), tried.installed),
                (&mut seen.kymo, Command::new(self.kymo), tried.kymo),
            ];
            for ((times, samples, lost), command, out) in newest.into_iter().chain(others) {
                times.push(micros(with(command, out))?);
                let is_newest = tried.newest == Some(out);
                let tool = || if is_newest { peer.command() } else { Command::new("perf") };
                let found = statistics_by(&tool, &self.inputs.dir.join(out))?;
                *samples += found.samples;
                *lost += found.lost;
            }
        }
        let bare = median(&bare).context("no rounds")?;
        let times = seen.map(|(times, ..)| median(times).unwrap_or(f64::NAN));
        let verdict = format!("{} of perf's time (goal: no worse)", times.shares());
        let what = format!(
            "`record -e 'raw_syscalls:*'` of `perf bench sched pipe` (bare: {bare:.1} µs/op)"
        );
        let losses =
            |(_, samples, lost): &(Vec<f64>, u64, u64)| format!("{lost} of {}", lost + samples);
        Ok(vec![
            times.row(what, |t| format!("{t:.1} µs/op"), verdict),
            seen.row("the same, events lost in all rounds".into(), losses, "goal: no more".into()),
        ])
    }

    /// Duration of a command that does nothing.
    pub(crate) fn start_up(&self) -> anyhow::Result<Vec<Row>> {
        let nothing = self.each(25, &["stat", "true"])?;
        let perf = kymo_testkit::peer("perf");
        let newest = || self.placed(perf.command(), &["--version"]);
        let newest: &dyn Fn() -> Command = &newest;
        let start = self.costs(
            25,
            perf.is_newest().then_some(newest),
            &|| self.perf_with(&["--version"]),
            &|| self.kymo_with(&["--help"]),
        )?;
        let mut rows = vec![
            time_row("`stat true`".into(), &nothing, "≤ perf's, < 10 ms"),
            peak_row("the same, peak memory", &nothing),
            time_row("start-up (`--version`, `--help`)".into(), &start, "< 10 ms"),
        ];
        rows.extend(self.small_reports()?);
        Ok(rows)
    }

    /// Reports of some calls of one command: most of their time is the kernel's, which
    /// prints its symbols, unless they were kept.
    fn small_reports(&self) -> anyhow::Result<Vec<Row>> {
        const FILE: &str = "small.data";
        let record = ["record", "-q", "-e", "raw_syscalls:sys_exit", "-g", "-o", FILE, "true"];
        output(self.perf_with(&record))?;
        let args = ["report", "--stdio", "-g", "-i", FILE];
        let kept = self.dir().join("small-cache");
        let kymo = |cache: &Path| {
            let mut command = self.kymo_with(&args);
            command.env("KYMO_CACHE", cache);
            command
        };
        cost(kymo(&kept))?;
        let perf = kymo_testkit::peer("perf");
        let newest = || self.placed(perf.command(), &args);
        let newest: &dyn Fn() -> Command = &newest;
        let newest = perf.is_newest().then_some(newest);
        let installed = || self.perf_with(&args);
        let again = self.costs(25, newest, &installed, &|| kymo(&kept))?;
        let first = self.costs(25, newest, &installed, &|| kymo(Path::new("off")))?;
        Ok(vec![
            time_row("`report -g` of one `true`".into(), &again, "≤ perf's"),
            time_row("the same, nothing kept on disk".into(), &first, "≤ perf's"),
        ])
    }
}

fn per_second(count: u64, cost: &Cost) -> f64 {
    count as f64 / cost.time.as_secs_f64()
}

/// Row for the duration of a query.
pub(super) fn time_row(what: String, costs: &Each<Cost>, goal: &str) -> Row {
    let times = costs.map(|c| c.time.as_secs_f64());
    times.row(what, |t| seconds(*t), format!("{} as fast (goal: {goal})", times.times()))
}

pub(super) fn peak_row(what: &str, costs: &Each<Cost>) -> Row {
    let peaks = costs.map(|c| c.peak as f64);
    peaks.row(what.into(), |p| megabytes(*p as u64), format!("{} of perf's", peaks.shares()))
}

pub(super) fn seconds(seconds: f64) -> String {
    if seconds < 0.1 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

pub(super) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
