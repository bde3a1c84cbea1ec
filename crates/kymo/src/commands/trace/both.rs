//! `kymo trace -e … -u …`: events of the kernel and of programs on one timeline, live or
//! into the directory of a session: `kernel/trace.dat` and a CTF trace for each program.
//!
//! Both have times of CLOCK_MONOTONIC. Live, what happened before a round began has been
//! seen by both sides when the next round is over, and is shown in its order then.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kymo_events::live::LiveEvents;
use kymo_kernel::ftrace::Item;
use kymo_model::{NoteKind, counted};
use kymo_record::ftrace::{
    LiveCapture, LiveEnd, LivePace, TraceEvent, TraceOutput, record_trace_beside,
};
use kymo_record::ust::{ChannelWatch, Draining, LivePrograms, check_new_directory};
use kymo_ust::EventRule;
use kymo_view::Ledger;

use super::live_output::{LiveKinds, LiveOutput};
use super::{Args, close, follow, out, ust};
use crate::args::targets::note_kernel_numbers;
use crate::commands::tracing;

pub(super) fn run(args: &Args, events: Vec<TraceEvent>) -> anyhow::Result<ExitCode> {
    if args.clock != ust::CLOCK {
        bail!("--clock {}: beside events of programs there is only the clock mono", args.clock);
    }
    let rules = ust::asked(args)?;
    match args.out.directory()? {
        Some(directory) => record(args, events, rules, directory),
        None => show(args, &events, rules),
    }
}

/// The command whose processes alone are meant.
fn alone(args: &Args, command: Option<u32>) -> Option<u32> {
    command.filter(|_| args.command_alone())
}

fn record(
    args: &Args,
    events: Vec<TraceEvent>,
    rules: Vec<EventRule>,
    directory: &Path,
) -> anyhow::Result<ExitCode> {
    check_new_directory(directory)?;
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
        draining = Some(ust::drain(args, watch, directory)?);
        Ok(())
    });
    let drained = draining.map(Draining::finish).transpose();
    let summary = recorded?;
    let (notes, programs) = drained?.unwrap_or_default();
    let mut ledger = out::ledger(&summary);
    programs.notes(&notes).into_iter().for_each(|note| ledger.push(note));
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

fn show(args: &Args, events: &[TraceEvent], rules: Vec<EventRule>) -> anyhow::Result<ExitCode> {
    let selection = args.selection()?;
    let mut capture = follow::open(args, events, LivePace::Tick)?;
    let mut ledger = Ledger::from_notes(capture.notes().to_vec());
    note_kernel_numbers().into_iter().for_each(|note| ledger.push(note));
    let current = capture.dir().clocks()?.current;
    if current != ust::CLOCK {
        bail!(
            "this kernel gives no times of CLOCK_MONOTONIC but of {current}: take -e or -u alone"
        );
    }
    let mut output = LiveOutput::new(args, LiveKinds::Both, Some(&capture))?;
    let mut live = LiveEvents::new(&selection, Some(capture.dir()));
    let mut programs = LivePrograms::default();
    let mut watch = ust::watch(args, rules, args.pids()?, alone(args, capture.child_id()))?;
    capture.start()?;
    let result = rounds(&mut capture, &mut watch, &mut programs, &mut live, &mut output);
    let (lost, code) = capture.end(result)?;
    output.note(&lost, &mut ledger);
    let stats = programs.stats();
    let passed_over = [&watch.notes(), programs.passed_over()].concat();
    stats.notes(&passed_over).into_iter().for_each(|note| ledger.push(note));
    if stats.programs == 0 {
        ledger.tell(NoteKind::Programs, "no program had such events", None);
    } else {
        let error = programs.error().saturating_add(1);
        let fact = format!("times of programs and of the kernel agree within {error} ns");
        ledger.tell(NoteKind::Clock, fact, None);
    }
    Ok(close(args, &ledger, code))
}

/// `None`: as many events as were asked for.
fn rounds(
    capture: &mut LiveCapture,
    watch: &mut ChannelWatch,
    programs: &mut LivePrograms,
    live: &mut LiveEvents<'_>,
    output: &mut LiveOutput,
) -> anyhow::Result<Option<LiveEnd>> {
    let mut end = None;
    // When the last round began that emptied the kernel's rings.
    let mut complete = 0;
    loop {
        programs.begin_round();
        live.begin_round();
        // Kernel's events come in order: none that is still to come is older than the last.
        let mut last = 0;
        let more = capture.round(end.is_some(), &mut |item| {
            match item {
                Item::Event { cpu, time, payload } => {
                    last = time;
                    live.push_kernel_event((cpu, time, payload));
                }
                Item::Lost { cpu, count } => live.push_lost(last, cpu, count),
                Item::Damaged { .. } => output.add_damaged(),
            }
            ControlFlow::Continue(())
        })?;
        watch.round(|channel, program| {
            programs.take(channel, program, &mut |number, news| output.news(live, number, news))
        })?;
        let until = match (more, end) {
            (true, _) => last,
            (false, None) => std::mem::replace(&mut complete, programs.horizon()),
            (false, Some(_)) => u64::MAX,
        };
        if until > 0 {
            let _ = live.hand_out(until, &mut |item| output.item(item));
            output.flush()?;
            if output.is_full() {
                return output.finish().map(|()| None);
            }
        }
        if end.is_none() {
            end = capture.wait(more)?;
            if end.is_some() {
                capture.stop()?;
                watch.stop();
                std::thread::sleep(ust::FORGET);
            }
        } else if !more {
            return output.finish().map(|()| end);
        }
    }
}
