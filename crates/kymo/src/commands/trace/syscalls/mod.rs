//! `kymo trace` without events: system calls with their arguments, results and
//! durations, in the manner of strace but without stopping the program.
//!
//! `numbers` and `errno` name calls and errors, `args` and `flags` say what an
//! argument is, `look` asks the task's memory and descriptors, `lines` pairs a
//! call's beginning with its end, `summary` counts.

mod args;
mod errno;
mod flags;
mod lines;
mod look;
mod numbers;
mod summary;

use std::io::{IsTerminal as _, Write as _, stdout};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use kymo_kernel::ftrace::{Item, Selection};
use kymo_record::ftrace::TraceEvent;
use kymo_view::Ledger;

use super::follow::note_lost;
use super::source::{End, Pace, Source};
use super::{Args, close};
use lines::Lines;

/// Flags for system calls.
#[derive(clap::Args)]
pub(super) struct CallArgs {
    /// Only a table of calls, errors and times at the end
    #[arg(short = 's', long, conflicts_with_all = ["event", "output"])]
    summary: bool,
    /// The calls, and the table at the end
    #[arg(short = 'S', long, conflicts_with_all = ["event", "output"])]
    with_summary: bool,
    /// When each call began, in seconds of the trace's clock
    #[arg(short = 't', long, conflicts_with_all = ["event", "output"])]
    times: bool,
    /// Only these system calls
    #[arg(long, value_name = "NAME,…", value_delimiter = ',',
          conflicts_with_all = ["event", "output"])]
    calls: Vec<String>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut ledger = Ledger::default();
    // Looking at a call takes calls: without this everybody's would never end.
    let everybody = args.all_cpus || args.command.is_empty() && args.pids()?.is_empty();
    let events = events(&args.call.calls, everybody.then(std::process::id))?;
    let mut source = Source::open(args, &events, Pace::AtOnce, &mut ledger)?;
    let colour = stdout().is_terminal()
        && anstream::AutoStream::choice(&stdout()) != anstream::ColorChoice::Never;
    let mut lines = Lines::new(source.dir(), source.child_id(), args, colour)?;
    // Of everybody's calls there may be no end, and others want the processor too.
    if lines.looks_up() && source.has_tasks() {
        // Refused to who is not root: then more texts are read too late.
        let _ = kymo_kernel::process::hurry();
    }
    if let Err(e) = source.start()? {
        sayln!("kymo: {e}");
        return Ok(ExitCode::from(e.shell_status()));
    }
    let result = until_the_end(&mut source, &mut lines);
    let (lost, code) = source.end(result)?;
    lines.finish();
    flush(&mut lines.out)?;
    note_lost(&mut ledger, (lines.shown, lines.lost), (lines.damaged, 0), &lost);
    lines.note(&mut ledger);
    Ok(close(args, &ledger, code))
}

/// Calls begin and end; programs and tasks do. Those of one task may be left out.
fn events(calls: &[String], without: Option<u32>) -> anyhow::Result<Vec<TraceEvent>> {
    let mut numbers = Vec::new();
    for call in calls {
        let Some(number) = numbers::number(call) else { bail!("there is no system call {call:?}") };
        numbers.push(format!("id == {number}"));
    }
    let named = (!numbers.is_empty()).then(|| format!("({})", numbers.join(" || ")));
    let others = without.map(|pid| format!("common_pid != {pid}"));
    let both: Vec<String> = named.into_iter().chain(others).collect();
    let filter = (!both.is_empty()).then(|| both.join(" && "));
    let event = |name, filter| -> anyhow::Result<TraceEvent> {
        Ok(TraceEvent { selection: Selection::parse(name)?, filter })
    };
    Ok(vec![
        event("raw_syscalls:sys_enter", filter.clone())?,
        event("raw_syscalls:sys_exit", filter)?,
        event("sched:sched_process_exec", None)?,
        event("sched:sched_process_exit", None)?,
    ])
}

/// To be woken by each call finds its texts soonest and costs the traced program
/// most, so that it is granted so often in such a time.
const WAKES: u32 = 500;
const WINDOW: Duration = Duration::from_millis(100);
/// Beyond that the rings are looked at after so long.
const NAP: Duration = Duration::from_micros(100);
/// While calls come, output is written so often.
const FLUSH: Duration = Duration::from_millis(20);

fn until_the_end(source: &mut Source, lines: &mut Lines) -> anyhow::Result<Option<End>> {
    let mut end = None;
    let (mut flushed, mut window, mut wakes) = (Instant::now(), Instant::now(), 0);
    loop {
        let before = lines.sighted;
        let more = round(source, lines, end.is_some())?;
        let now = Instant::now();
        let quiet = lines.sighted == before;
        if quiet || end.is_some() || lines.is_full() || now - flushed >= FLUSH {
            flush(&mut lines.out)?;
            lines.stale();
            flushed = now;
        }
        if lines.is_full() {
            return Ok(None);
        }
        if end.is_some() {
            if more {
                continue;
            }
            return Ok(end);
        }
        if now - window >= WINDOW {
            (window, wakes) = (now, 0);
        }
        wakes += u32::from(!quiet && !more);
        if wakes > WAKES && !quiet && !more {
            std::thread::sleep(NAP);
            continue;
        }
        end = source.wait(more)?;
        if end.is_some() {
            source.stop()?;
        }
    }
}

fn round(source: &mut Source, lines: &mut Lines, last: bool) -> anyhow::Result<bool> {
    let cell = std::cell::RefCell::new(lines);
    let more = source.stream.round_seeing(
        last,
        &mut |time, payload| cell.borrow_mut().sight(time, payload),
        &mut |item| {
            let mut lines = cell.borrow_mut();
            match item {
                Item::Event { time, payload, .. } => lines.event(time, payload),
                Item::Lost { cpu, count } => lines.lost(cpu, count),
                Item::Damaged { .. } => lines.damaged += 1,
            }
            match lines.is_full() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        },
    )?;
    Ok(more)
}

fn flush(out: &mut Vec<u8>) -> anyhow::Result<()> {
    if !out.is_empty() {
        let mut stdout = stdout().lock();
        stdout.write_all(out).and_then(|()| stdout.flush())?;
        out.clear();
    }
    Ok(())
}
