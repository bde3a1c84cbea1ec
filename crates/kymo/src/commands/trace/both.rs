//! `kymo trace -e … -u …`: events of the kernel and of programs on one timeline, live or
//! into the directory of a session: `kernel/trace.dat` and a CTF trace for each program.
//!
//! Both have times of CLOCK_MONOTONIC. Live, what happened before a round began has been
//! seen by both sides when the next round is over, and is shown in its order then.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kymo_model::NoteKind;
use kymo_record::ftrace::{TraceError, TraceEvent, TraceOutput, record_trace_beside};
use kymo_record::ust::{ChannelWatch, Draining};
use kymo_ust::EventRule;
use kymo_view::Ledger;

use super::follow::{Printer, note_lost};
use super::source::{End, Pace, Source};
use super::ust::live::Live;
use super::{Args, close, out, ust};
use crate::commands::{counted, tracing};

pub(super) fn run(args: &Args, events: Vec<TraceEvent>) -> anyhow::Result<ExitCode> {
    if args.clock != ust::CLOCK {
        bail!("--clock {}: beside events of programs there is only the clock mono", args.clock);
    }
    let rules = ust::asked(args)?;
    match args.out.directory()? {
        Some(directory) => record(args, events, rules, directory),
        None => follow(args, &events, rules),
    }
}

/// The command whose processes alone are meant.
fn alone(args: &Args, command: Option<u32>) -> Option<u32> {
    command.filter(|_| !args.all_cpus)
}

fn record(
    args: &Args,
    events: Vec<TraceEvent>,
    rules: Vec<EventRule>,
    directory: &Path,
) -> anyhow::Result<ExitCode> {
    ust::check_new(directory)?;
    let was_there = directory.exists();
    let kernel = directory.join("kernel");
    std::fs::create_dir_all(&kernel).with_context(|| kernel.display().to_string())?;
    let result = record_into(args, events, rules, directory, &kernel);
    // Where nothing was recorded nothing is left; what has something in it stays.
    if std::fs::remove_dir(&kernel).is_ok() && !was_there {
        let _ = std::fs::remove_dir(directory);
    }
    result
}

fn record_into(
    args: &Args,
    events: Vec<TraceEvent>,
    rules: Vec<EventRule>,
    directory: &Path,
    kernel: &Path,
) -> anyhow::Result<ExitCode> {
    let output = TraceOutput::File { path: kernel.join("trace.dat"), force: false };
    let options = out::options(args, events, output)?;
    let tracefs = tracing::open()?;
    let pids = args.pids()?;
    let mut draining: Option<Draining> = None;
    let recorded = record_trace_beside(&tracefs, &options, &mut |command| {
        let watch = ust::watch(args, rules.clone(), pids.clone(), alone(args, command))?;
        draining = Some(ust::drain(watch, directory)?);
        Ok(())
    });
    let drained = draining.map(Draining::finish).transpose();
    let summary = match recorded {
        Ok(summary) => summary,
        Err(TraceError::Spawn(e)) => {
            sayln!("kymo: {e}");
            return Ok(ExitCode::from(e.shell_status()));
        }
        Err(e) => return Err(e.into()),
    };
    let (notes, programs) = drained?.unwrap_or_default();
    let mut ledger = out::ledger(&summary);
    ust::note(&mut ledger, &notes, &programs);
    if programs.programs == 0 {
        ledger.tell(NoteKind::Programs, "no program had such events", None);
    }
    if !args.quiet {
        let bytes = summary.bytes + programs.bytes;
        sayln!(
            "[ kymo trace: wrote {:.3} MB {} ({} of the kernel, {}) ]",
            bytes as f64 / (1024.0 * 1024.0),
            directory.display(),
            counted(summary.events, "event", "events"),
            counted(programs.programs, "program", "programs")
        );
    }
    Ok(close(args, &ledger, summary.exit))
}

fn follow(args: &Args, events: &[TraceEvent], rules: Vec<EventRule>) -> anyhow::Result<ExitCode> {
    let mut ledger = Ledger::default();
    let mut source = Source::open(args, events, Pace::Tick, &mut ledger)?;
    let current = source.dir().clocks()?.current;
    if current != ust::CLOCK {
        bail!(
            "this kernel gives no times of CLOCK_MONOTONIC but of {current}: take -e or -u alone"
        );
    }
    let mut printer = Printer::new(args, &source)?;
    printer.flush()?;
    let mut live = Live::new(args, printer.flags());
    let mut watch = ust::watch(args, rules, args.pids()?, alone(args, source.child_id()))?;
    if let Err(e) = source.start()? {
        sayln!("kymo: {e}");
        return Ok(ExitCode::from(e.shell_status()));
    }
    let result = rounds(&mut source, &mut printer, &mut watch, &mut live);
    let (lost, code) = source.end(result)?;
    let (shown, unreadable) = printer.counts();
    note_lost(&mut ledger, shown, unreadable, &lost);
    let stats = live.stats();
    ust::note(&mut ledger, watch.notes(), &stats);
    if stats.programs == 0 {
        ledger.tell(NoteKind::Programs, "no program had such events", None);
    } else {
        let error = live.error().saturating_add(1);
        let fact = format!("times of programs and of the kernel agree within {error} ns");
        ledger.tell(NoteKind::Clock, fact, None);
    }
    Ok(close(args, &ledger, code))
}

/// `None`: as many events as were asked for.
fn rounds(
    source: &mut Source,
    printer: &mut Printer,
    watch: &mut ChannelWatch,
    live: &mut Live,
) -> anyhow::Result<Option<End>> {
    let mut end = None;
    // When the last round began that emptied the kernel's rings.
    let mut complete = 0;
    loop {
        live.begin_round();
        printer.refresh();
        // Kernel's events come in order: none that is still to come is older than the last.
        let mut last = 0;
        let more = source.stream.round(end.is_some(), &mut |item| {
            if let Some((time, line)) = printer.line(item) {
                last = time;
                live.put(time, line);
            }
            std::ops::ControlFlow::Continue(())
        })?;
        let tasks = printer.tasks();
        watch.round(|channel, program| live.take(channel, program, &|tid| tasks.saved(tid)))?;
        let until = match (more, end) {
            (true, _) => last,
            (false, None) => std::mem::replace(&mut complete, live.horizon()),
            (false, Some(_)) => u64::MAX,
        };
        if until > 0 && live.end_round(until)? {
            return Ok(None);
        }
        if end.is_none() {
            end = source.wait(more)?;
            if end.is_some() {
                source.stop()?;
                watch.stop();
                std::thread::sleep(ust::FORGET);
            }
        } else if !more {
            return Ok(end);
        }
    }
}
