//! `kymo diff --run`: two commands recorded in turns (ABBA), so that whatever changes on the
//! machine meanwhile is in both.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kymo_compare::{
    CompareOptions, Comparison, GateOutcome, Measure, MeasureKind, RunSums, StackTree, Verdict,
};
use kymo_kernel::cpus;
use kymo_kernel::descriptors::MutedStdout;
use kymo_kernel::events::Catalog;
use kymo_model::{Aggregation, CountState, Note, NoteKind, shell_word};
use kymo_record::count::{
    Count, CountOptions, CountReading, CountResult, CountSink, CountTarget, CountedEvent,
    StartDelay,
};
use kymo_record::{CallGraph, Output, RecordOptions, Target, record};
use kymo_view::Ledger;
use kymo_view::diff::DiffReport;

use super::read::{self, Sides};
use super::{Args, Per, Until, judge, note_comparison, show};
use crate::commands::profile_recording::{StackChoice, wait_events};
use crate::commands::scratch::ScratchDirectory;

/// Runs of each side that are added before it is asked again whether they decide.
const STEP: usize = 5;

/// One side while it is recorded.
struct Side {
    word: &'static str,
    command: Vec<OsString>,
    paths: Vec<PathBuf>,
    /// Time of each run, in nanoseconds.
    elapsed: Vec<f64>,
    /// Counts of each run: name, unit, value.
    counts: Vec<Vec<(String, &'static str, f64)>>,
}

/// Recorder of runs, the same for both sides.
struct Recorder<'a> {
    args: &'a Args,
    directory: PathBuf,
    stacks: Option<StackChoice>,
    pinned: Vec<u32>,
    began: Instant,
    notes: Vec<Note>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let [before, after] = commands(&args.command)?;
    if args.runs < 2 {
        bail!("-n {}: one run shows no spread", args.runs);
    }
    let kept = args.output.as_ref();
    if let Some(directory) = kept {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let scratch = ScratchDirectory::new(kept.is_none())?;
    let directory = match kept {
        Some(directory) => directory.clone(),
        None => scratch.file().parent().unwrap_or(Path::new(".")).to_owned(),
    };
    let mut recorder = Recorder {
        args,
        directory,
        stacks: args.stat.is_empty().then(|| stacks(args, [&before, &after])),
        pinned: match &args.pin {
            Some(list) => cpus::parse_online(list).with_context(|| format!("--pin {list}"))?,
            None => Vec::new(),
        },
        began: Instant::now(),
        notes: Vec::new(),
    };
    let side = |word, command| Side {
        word,
        command,
        paths: Vec::new(),
        elapsed: Vec::new(),
        counts: Vec::new(),
    };
    let mut sides = [side("before", before), side("after", after)];
    // One pair fills caches; it does not count.
    recorder.warm_up(&mut sides)?;
    let mut read = Sides { before: Vec::new(), after: Vec::new() };
    let mut wanted = args.runs;
    loop {
        recorder.record_pairs(&mut sides, wanted)?;
        let (report, ledger) = compare(args, &recorder, &sides, &mut read)?;
        let is_over = recorder.began.elapsed() >= args.max_time;
        let is_open = args.until == Some(Until::Decided) && !is_decided(&report);
        if !is_open || is_over {
            return show(args, report, &ledger, read.damage());
        }
        wanted += STEP;
    }
}

/// The two commands behind `--`.
fn commands(words: &[OsString]) -> anyhow::Result<[Vec<OsString>; 2]> {
    let mut parts = words.split(|word| word == "--").map(<[OsString]>::to_vec);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(before), Some(after), None) if !before.is_empty() && !after.is_empty() => {
            Ok([before, after])
        }
        _ => bail!("--run compares two commands: kymo diff --run -- ./old ARGS -- ./new ARGS"),
    }
}

/// Stacks as both commands need them: what differs between the sides must be the program.
fn stacks(args: &Args, commands: [&Vec<OsString>; 2]) -> StackChoice {
    let choose = |command| StackChoice::of((args.call_graph, args.freq), &Target::Command, command);
    let [before, after] = commands.map(|command| choose(command));
    if matches!(before.mode, CallGraph::Dwarf(_)) { before } else { after }
}

/// Whether a verdict does not need more runs: of all gates, or of the quantity as a whole.
fn is_decided(report: &DiffReport) -> bool {
    if let Some(outcome) = report.gate_outcome() {
        return outcome != GateOutcome::Undecided;
    }
    let measures = &report.comparison.measures;
    measures.first().is_some_and(|m| {
        let is_open = matches!(m.whole.verdict, Verdict::Undecided { .. });
        !is_open || m.rows.iter().any(|row| row.own.is_some_and(|c| c.verdict.is_change()))
    })
}

impl Recorder<'_> {
    fn warm_up(&mut self, sides: &mut [Side; 2]) -> anyhow::Result<()> {
        for side in sides {
            let path = self.directory.join(format!("warm-up-{}.data", side.word));
            self.one(side, &path)?;
            side.elapsed.clear();
            side.counts.clear();
            // A recording that does not count is not kept.
            let _ = std::fs::remove_file(&path);
        }
        Ok(())
    }

    /// Records until each side has this many runs: A B, B A, A B, …
    fn record_pairs(&mut self, sides: &mut [Side; 2], wanted: usize) -> anyhow::Result<()> {
        loop {
            let pair = sides.first().map_or(0, |side| side.elapsed.len());
            if pair >= wanted {
                return Ok(());
            }
            if pair >= 4 && self.began.elapsed() >= self.args.max_time {
                let fact = format!("only {pair} pairs of runs: --max-time is over");
                self.notes.push(Note::doubt(NoteKind::Few, fact, None));
                return Ok(());
            }
            self.progress(pair, wanted);
            let order = if pair.is_multiple_of(2) { [0, 1] } else { [1, 0] };
            for at in order {
                let Some(side) = sides.get_mut(at) else { continue };
                let path = self.directory.join(format!("{}-{:03}.data", side.word, pair + 1));
                self.one(side, &path)?;
                side.paths.push(path);
            }
        }
    }

    /// Time that is left, on a terminal.
    fn progress(&self, pair: usize, wanted: usize) {
        if !crate::streams::error_is_terminal() {
            return;
        }
        // With the warm-up, one pair more than is counted.
        let one = self.began.elapsed() / u32::try_from(pair + 1).unwrap_or(1);
        let left = one * u32::try_from(wanted - pair).unwrap_or(1);
        let is_last = pair + 1 == wanted;
        let end = if is_last { "\r\x1b[K" } else { "" };
        let text =
            format!("\rpair {} of {wanted}, {} s left \x1b[K{end}", pair + 1, left.as_secs());
        let _ = crate::streams::control_stderr(&text);
    }

    fn one(&mut self, side: &mut Side, path: &Path) -> anyhow::Result<()> {
        let muted = MutedStdout::new().context("cannot redirect standard output")?;
        let (elapsed, status, signal) = match &self.stacks {
            Some(stacks) => {
                let options = RecordOptions {
                    freq: Some(stacks.freq),
                    call_graph: Some(stacks.mode),
                    more_events: if self.args.cpu_only {
                        Vec::new()
                    } else {
                        wait_events(&Target::Command, false)
                    },
                    target: Target::Command,
                    command: side.command.clone(),
                    pinned: self.pinned.clone(),
                    switch_events: true,
                    output: Output::File { path: path.to_owned(), force: true },
                    command_line: std::iter::once(OsString::from("kymo diff --"))
                        .chain(side.command.iter().cloned())
                        .map(|a| a.to_string_lossy().into_owned())
                        .collect(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    ..RecordOptions::default()
                };
                let summary = record(&options)?;
                for note in summary.ledger_notes(&options) {
                    // The recording itself reports the others when it is read.
                    if matches!(
                        note.kind,
                        NoteKind::Frequency
                            | NoteKind::DefaultEvent
                            | NoteKind::UserOnly
                            | NoteKind::KernelSymbols
                    ) && !self.notes.contains(&note)
                    {
                        self.notes.push(note);
                    }
                }
                (summary.elapsed, summary.exit.unwrap_or(0), summary.signal.is_some())
            }
            None => self.count(side)?,
        };
        drop(muted);
        if signal {
            bail!("ended by a signal after {} runs", side.elapsed.len());
        }
        if status != 0 && !self.args.ignore_failure {
            let command = side.command.iter().map(shell_word).collect::<Vec<_>>().join(" ");
            bail!(
                "`{command}` ended with status {status} (--ignore-failure compares all the same)"
            );
        }
        side.elapsed.push(elapsed.as_nanos() as f64);
        Ok(())
    }

    fn count(&self, side: &mut Side) -> anyhow::Result<(Duration, u8, bool)> {
        let catalog = Catalog::open();
        let mut events = Vec::new();
        for name in &self.args.stat {
            let specs = catalog.parse(name).with_context(|| format!("--stat {name}"))?;
            events.extend(specs.into_iter().map(|spec| CountedEvent { spec, cgroup: None }));
        }
        let options = CountOptions {
            events,
            default_events: false,
            target: CountTarget::Command,
            command: side.command.clone(),
            pinned: self.pinned.clone(),
            cpus: None,
            control: None,
            by: Aggregation::Global,
            inherit: true,
            scale: true,
            runs: 1,
            interval: None,
            interval_count: None,
            summary: false,
            timeout: None,
            delay: StartDelay::None,
            sync: false,
            file: None,
        };
        let mut sink = CountedRun::default();
        let summary = kymo_record::count::count(&options, &mut sink)?;
        if let Some(missing) = sink.missing {
            bail!("--stat {missing}: not counted on this machine");
        }
        side.counts.push(sink.counts);
        Ok((sink.elapsed, summary.status, summary.signal.is_some()))
    }
}

/// The counts of one run.
#[derive(Default)]
struct CountedRun {
    counts: Vec<(String, &'static str, f64)>,
    elapsed: Duration,
    missing: Option<String>,
}

impl CountSink for CountedRun {
    fn run_begins(&mut self, _: u32) -> std::io::Result<()> {
        Ok(())
    }

    fn switched(&mut self, _: bool) -> std::io::Result<()> {
        Ok(())
    }

    fn counter(&mut self, _: &str, _: Option<Count>) -> std::io::Result<()> {
        Ok(())
    }

    fn interval(&mut self, _: &CountReading) -> std::io::Result<()> {
        Ok(())
    }

    fn result(&mut self, result: &CountResult) -> std::io::Result<()> {
        self.elapsed = result.elapsed;
        for row in &result.rows {
            if row.state != CountState::Counted {
                self.missing.get_or_insert_with(|| row.name.clone());
            }
            let unit = if row.is_clock() { "nanoseconds" } else { "count" };
            self.counts.push((row.name.clone(), unit, row.value));
        }
        Ok(())
    }
}

/// Reads the recordings that were not read yet, and compares all.
fn compare(
    args: &Args,
    recorder: &Recorder<'_>,
    sides: &[Side; 2],
    read: &mut Sides,
) -> anyhow::Result<(DiffReport, Ledger)> {
    let [before, after] = sides;
    let mut ledger = Ledger::from_notes(recorder.notes.iter().cloned());
    let mut measures = Vec::new();
    if let Some(stacks) = &recorder.stacks {
        for (side, read) in [(before, &mut read.before), (after, &mut read.after)] {
            let new = side.paths.get(read.len()..).unwrap_or_default();
            read.extend(read::read_all(args, new, &Per::Run, false)?);
        }
        ledger.extend(Ledger::from_notes(stacks.note.clone()));
        read.notes(true, &mut ledger);
        measures.extend(read.measures()?);
    }
    measures.extend(count_measures(before, after));
    let options = CompareOptions { margin: args.margin / 100.0, ..CompareOptions::default() };
    let comparison = Comparison::new(&measures, &options)?;
    note_comparison(&comparison, &mut ledger);
    let report = DiffReport {
        gates: judge(args, &comparison, &ledger),
        comparison,
        sides: [before, after].map(|side| {
            let command = side.command.iter().map(shell_word).collect::<Vec<_>>().join(" ");
            let kept = args.output.is_some() && !side.paths.is_empty();
            let place = recorder.directory.join(format!("{}-*.data", side.word));
            if kept { vec![format!("{command} ({})", place.display())] } else { vec![command] }
        }),
        per: "run".to_owned(),
        run_word: "run",
        trees: StackTree::of_all(&measures),
    };
    Ok((report, ledger))
}

/// Counts of the runs, and the time that they took.
fn count_measures(before: &Side, after: &Side) -> Vec<Measure> {
    let of = |side: &Side, value: &dyn Fn(usize) -> f64| -> Vec<RunSums> {
        let one = |n: usize| {
            let mut run = RunSums::new(format!("{} {}", side.word, n + 1), 1.0);
            run.whole = value(n);
            run.samples = 1;
            run
        };
        (0..side.elapsed.len()).map(one).collect()
    };
    let time = |side: &Side| of(side, &|n| side.elapsed.get(n).copied().unwrap_or(0.0));
    let mut measures = vec![Measure {
        kind: MeasureKind::Count,
        name: "elapsed".to_owned(),
        unit: "nanoseconds",
        before: time(before),
        after: time(after),
    }];
    let names = before.counts.first().map_or(&[][..], |counts| counts);
    for (number, (name, unit, _)) in names.iter().enumerate() {
        let counts = |side: &Side| {
            let value = |n: usize| Some(side.counts.get(n)?.get(number)?.2);
            of(side, &|n| value(n).unwrap_or(0.0))
        };
        measures.push(Measure {
            kind: MeasureKind::Count,
            name: name.clone(),
            unit,
            before: counts(before),
            after: counts(after),
        });
    }
    measures
}
