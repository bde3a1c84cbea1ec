//! `kymo count -u`: what counters and histograms inside programs have come to, or come to counters
//! of a command or from interval to interval.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kymo_kernel::descriptors::{self, readable};
use kymo_kernel::process::{Signal, Signals, raise_open_file_limit};
use kymo_kernel::terminal_output;
use kymo_model::NoteKind;
use kymo_record::ust::{CounterChoice, CounterWatch, MountNamespace};
use kymo_ust::{CountedUnder, CounterTotals};
use kymo_view::Ledger;
use kymo_view::event_counts::ProgramCounts;

use super::Args;
use crate::commands::program_run::RunTarget;

/// Looks at programs are so far apart: those that end meanwhile leave their counters behind.
const LOOKS: Duration = Duration::from_millis(20);

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (mut by_pid, mut by_comm) = (false, false);
    for word in &args.by {
        match word.as_str() {
            "pid" => by_pid = true,
            "comm" => by_comm = true,
            "key" => {}
            word => bail!("counters of programs are grouped by pid and comm, not by {word:?}"),
        }
    }
    // Each program has a few files open here.
    let _ = raise_open_file_limit();
    let is_run = !args.command.is_empty() || args.interval.is_some();
    let mut target = RunTarget::of_words(args.pid.filter(|_| is_run), &args.command)?;
    let choice = CounterChoice {
        patterns: args.user_events.clone().unwrap_or_default(),
        pid: args.pid,
        command: target.child_pid().filter(|_| !args.all),
        by_pid,
        by_comm,
        since_now: is_run,
    };
    let namespaces = MountNamespace::all();
    let watch = CounterWatch::start(&namespaces, choice)?;
    let mut screen = CounterScreen {
        args,
        watch,
        by: (by_pid, by_comm),
        begin: is_run.then(Instant::now),
        before: CounterTotals::default(),
    };
    if is_run {
        follow(&mut screen, &mut target)?;
    }
    let status = target.end();
    screen.finish(status)
}

/// Looks at the programs until the command, the process or the user ends it.
fn follow(screen: &mut CounterScreen<'_>, target: &mut RunTarget) -> anyhow::Result<()> {
    let ends = [Signal::Int, Signal::Term, Signal::Hup, Signal::Quit];
    let signals = Signals::listen(&ends).context("cannot listen for signals")?;
    let interval = screen.args.interval.map(|ms| Duration::from_millis(ms.max(1)));
    target.release()?;
    let mut next = interval.map(|interval| Instant::now() + interval);
    loop {
        let is_interrupted = signals.next()?.is_some_and(Signal::is_end);
        if is_interrupted {
            target.interrupted(|command| signals.has_reached(command));
        }
        let is_over = is_interrupted || target.has_ended()?;
        screen.watch.look();
        if is_over {
            return Ok(());
        }
        if let (Some(interval), Some(at)) = (interval, next)
            && Instant::now() >= at
        {
            screen.show_interval()?;
            // One that took too long must not cause several in a row.
            next = Some((at + interval).max(Instant::now()));
        }
        let left = next.map(|at| at.saturating_duration_since(Instant::now()));
        let wait = left.map_or(LOOKS, |left| left.min(LOOKS));
        descriptors::wait(&mut [readable(&signals)], wait)?;
    }
}

/// Shows what was counted: with an interval each time, else at the end.
struct CounterScreen<'a> {
    args: &'a Args,
    watch: CounterWatch,
    by: (bool, bool),
    /// Start of this interval; none: counters are shown as they are.
    begin: Option<Instant>,
    /// Sums when this interval began.
    before: CounterTotals,
}

impl CounterScreen<'_> {
    fn show(&self, totals: &CounterTotals, is_whole: bool) -> io::Result<()> {
        let elapsed = self.begin.map(|begin| begin.elapsed().as_nanos());
        let counted = self.watch.counted();
        let counts = ProgramCounts {
            totals,
            elapsed_ns: elapsed.map(|ns| u64::try_from(ns).unwrap_or(u64::MAX)),
            programs: (counted.all, counted.ended),
            by: self.by,
            top: self.args.top as usize,
            columns: terminal_output::output_columns(),
        };
        let mut out = crate::streams::stdout().lock();
        match (self.args.json, is_whole) {
            (false, _) => counts.write_text(&mut out)?,
            (true, false) => writeln!(out, "{}", counts.to_json())?,
            (true, true) => writeln!(out, "{:#}", counts.to_json())?,
        }
        out.flush()
    }

    fn show_interval(&mut self) -> io::Result<()> {
        let totals = self.watch.totals();
        self.show(&totals.since(&self.before), false)?;
        if !self.args.json {
            writeln!(crate::streams::stdout())?;
        }
        self.before = totals;
        self.begin = Some(Instant::now());
        Ok(())
    }

    fn finish(mut self, status: Option<u8>) -> anyhow::Result<ExitCode> {
        let totals = self.watch.totals();
        let mut ledger = Ledger::default();
        for note in self.watch.notes() {
            ledger.note(NoteKind::Program, note, None);
        }
        note_other_keys(&totals, &mut ledger);
        let is_shown = self.args.interval.is_some();
        if is_shown {
            // The last, which was cut short.
            self.show_interval()?;
        } else {
            self.show(&totals, true)?;
        }
        crate::exit::tell(&ledger);
        if self.args.forget {
            self.watch.forget_killed();
        }
        Ok(crate::exit::of_command(status, &ledger, self.args.strict))
    }
}

/// Adds a warning about counts under keys that found no room.
fn note_other_keys(totals: &CounterTotals, ledger: &mut Ledger) {
    let mut counters: Vec<(&str, u32, u64)> = Vec::new();
    let others = |under: &CountedUnder| *under == CountedUnder::OtherKeys;
    for (row, value) in totals.iter().filter(|(row, value)| others(&row.under) && value.count() > 0)
    {
        match counters.last_mut().filter(|last| last.0 == row.name) {
            Some(last) => last.2 = last.2.wrapping_add(value.count()),
            None => counters.push((&row.name, row.kind.keys(), value.count())),
        }
    }
    for (name, keys, count) in counters {
        let fact = format!(
            "{}: {count} came under keys beyond the {keys} that a program can have",
            name.escape_debug()
        );
        ledger.note(NoteKind::Keys, fact, None);
    }
}
