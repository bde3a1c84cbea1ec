//! What is measured. Each part gives rows of the table, the peer's figure next to
//! ours.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use super::Effort;
use super::inputs::{Inputs, statistics};
use super::measure::{Cost, cost, interleaved, median, output};

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) perf: String,
    pub(crate) kymo: String,
    /// How much better, and the goal, in words.
    pub(crate) verdict: String,
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
        // The first start reads the program from disk; nobody's figure should have that.
        for program in [Path::new("perf"), kymo] {
            let mut command = Command::new(program);
            command.arg("--version");
            cost(command)?;
        }
        Ok(Bench { kymo, inputs, effort })
    }

    pub(super) fn effort(&self) -> Effort {
        self.effort
    }

    /// Where recordings are.
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

    pub(super) fn kymo_with(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.kymo);
        command.args(args).current_dir(&self.inputs.dir);
        command
    }

    /// The same arguments for both.
    pub(super) fn both(&self, rounds: usize, args: &[&str]) -> anyhow::Result<(Cost, Cost)> {
        let (perf, kymo) = (|| self.perf_with(args), || self.kymo_with(args));
        match interleaved(self.rounds(rounds), &[&perf, &kymo])?.as_slice() {
            [perf, kymo] => Ok((*perf, *kymo)),
            _ => anyhow::bail!("two commands give two costs"),
        }
    }

    /// `script` of everything to nowhere, and whether memory grows with the file.
    pub(crate) fn script(&self) -> anyhow::Result<Vec<Row>> {
        let recording = &self.inputs.syscalls;
        let (perf, kymo) = self.both(3, &["script", "-i", "syscalls.data"])?;
        let rate = |c: &Cost| format!("{:.2} M/s", per_second(recording.samples, c) / 1e6);
        let (perf_half, kymo_half) = self.both(1, &["script", "-i", "syscalls-half.data"])?;
        Ok(vec![
            time_row(
                format!("`script`, {} events", recording.samples),
                &perf,
                &kymo,
                "20×, least 8×",
            ),
            Row {
                what: "`script`, events a second".into(),
                perf: rate(&perf),
                kymo: rate(&kymo),
                verdict: String::new(),
            },
            peak_row("`script`, peak memory", &perf, &kymo),
            Row {
                what: format!("the same, {} events", self.inputs.syscalls_half.samples),
                perf: megabytes(perf_half.peak),
                kymo: megabytes(kymo_half.peak),
                verdict: format!(
                    "twice the file: {:+.1} MB (goal: does not grow)",
                    (kymo.peak as f64 - kymo_half.peak as f64) / 1e6
                ),
            },
        ])
    }

    /// `report` with call graphs, with and without adding up children.
    pub(crate) fn report(&self) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for children in ["--children", "--no-children"] {
            let args = ["report", "--stdio", "-g", children, "-i", "stacks.data"];
            let (perf, kymo) = self.both(3, &args)?;
            let what = format!("`report -g {children}`, {} samples", self.inputs.stacks.samples);
            rows.push(time_row(what, &perf, &kymo, "10×, least 4×"));
            rows.push(peak_row("the same, peak memory", &perf, &kymo));
        }
        Ok(rows)
    }

    /// What a recording costs the recorded program, and what each tool loses.
    pub(crate) fn record(&self) -> anyhow::Result<Vec<Row>> {
        let loops = if self.effort == Effort::Full { 100_000 } else { 10_000 };
        let text = loops.to_string();
        let load = ["perf", "bench", "-f", "simple", "sched", "pipe", "-l", &text];
        let record = ["record", "-e", "raw_syscalls:*", "-o"];
        let out = ["overhead-perf.data", "overhead-kymo.data"];
        let with = |out: &str| [&record[..], &[out, "--"], &load].concat().join(" ");
        let (perf_args, kymo_args) = (with(out[0]), with(out[1]));
        let split = |text: &'_ str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut micros = [vec![], vec![], vec![]];
        let mut counts = [vec![], vec![]];
        for _ in 0..self.rounds(5) {
            let commands = [
                self.perf_with(&load[1..]),
                {
                    let mut c = self.perf_with(&[]);
                    c.args(split(&perf_args));
                    c
                },
                {
                    let mut c = self.kymo_with(&[]);
                    c.args(split(&kymo_args));
                    c
                },
            ];
            for (command, micros) in commands.into_iter().zip(&mut micros) {
                let text = output(command)?;
                let seconds = text
                    .lines()
                    .find_map(|l| l.trim().parse::<f64>().ok())
                    .with_context(|| format!("no seconds in `{}`", text.trim()))?;
                micros.push(seconds * 1e6 / f64::from(loops));
            }
            for (name, counts) in out.iter().zip(&mut counts) {
                let found = statistics(&self.inputs.dir.join(name))?;
                counts.push((found.lost, found.samples));
            }
        }
        let middle = |values: &[f64]| median(values).context("no rounds");
        let [bare, perf, kymo] = [middle(&micros[0])?, middle(&micros[1])?, middle(&micros[2])?];
        let losses = |counts: &[(u64, u64)]| {
            let (lost, samples) = counts.iter().fold((0, 0), |a, c| (a.0 + c.0, a.1 + c.1));
            format!("{lost} of {}", lost + samples)
        };
        Ok(vec![
            Row {
                what: format!(
                    "`record -e 'raw_syscalls:*'` of `perf bench sched pipe` (bare: {bare:.1} µs/op)"
                ),
                perf: format!("{perf:.1} µs/op"),
                kymo: format!("{kymo:.1} µs/op"),
                verdict: format!("{:.2} of perf's time (goal: no worse)", kymo / perf),
            },
            Row {
                what: "the same, events lost in all rounds".into(),
                perf: losses(&counts[0]),
                kymo: losses(&counts[1]),
                verdict: "goal: no more".into(),
            },
        ])
    }

    /// How long a command takes that does nothing.
    pub(crate) fn start_up(&self) -> anyhow::Result<Vec<Row>> {
        let (perf, kymo) = self.both(25, &["stat", "true"])?;
        let help = || self.kymo_with(&["--help"]);
        let version = || self.perf_with(&["--version"]);
        let rounds = self.rounds(25);
        let costs = interleaved(rounds, &[&version, &help])?;
        let mut rows = vec![
            time_row("`stat true`".into(), &perf, &kymo, "≤ perf's, < 10 ms"),
            peak_row("the same, peak memory", &perf, &kymo),
        ];
        if let [perf, kymo] = costs.as_slice() {
            rows.push(time_row("start-up (`--version`, `--help`)".into(), perf, kymo, "< 10 ms"));
        }
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
        let perf = || self.perf_with(&args);
        let (first, second) = (|| kymo(Path::new("off")), || kymo(&kept));
        let costs = interleaved(self.rounds(25), &[&perf, &first, &second])?;
        let [perf, first, second] = costs.as_slice() else {
            anyhow::bail!("three commands give three costs")
        };
        Ok(vec![
            time_row("`report -g` of one `true`".into(), perf, second, "≤ perf's"),
            time_row("the same, nothing kept on disk".into(), perf, first, "≤ perf's"),
        ])
    }
}

fn per_second(count: u64, cost: &Cost) -> f64 {
    count as f64 / cost.time.as_secs_f64()
}

pub(super) fn time_row(what: String, perf: &Cost, kymo: &Cost, goal: &str) -> Row {
    let ratio = perf.time.as_secs_f64() / kymo.time.as_secs_f64();
    Row {
        what,
        perf: seconds(perf.time.as_secs_f64()),
        kymo: seconds(kymo.time.as_secs_f64()),
        verdict: format!("{ratio:.1}× as fast (goal: {goal})"),
    }
}

pub(super) fn peak_row(what: &str, perf: &Cost, kymo: &Cost) -> Row {
    Row {
        what: what.to_owned(),
        perf: megabytes(perf.peak),
        kymo: megabytes(kymo.peak),
        verdict: format!("{:.2} of perf's", kymo.peak as f64 / perf.peak as f64),
    }
}

pub(super) fn seconds(seconds: f64) -> String {
    if seconds < 0.1 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

pub(super) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
