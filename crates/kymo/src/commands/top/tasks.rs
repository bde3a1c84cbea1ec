//! `kymo top --tasks`: what tasks do, by the second, out of the scheduler's events.

use std::io::{IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kymo_analysis::losses::select_events;
use kymo_analysis::task_activity::TaskActivities;
use kymo_analysis::tasks::SCHED_EVENTS;
use kymo_events::live::LiveSamples;
use kymo_kernel::cpus;
use kymo_kernel::terminal::terminal_size;
use kymo_model::{AttrFlags, Note, NoteKind};
use kymo_record::{CallGraph, PerfCapture, RecordOptions, Target};
use kymo_symbols::ResolverOptions;
use kymo_view::Ledger;
use kymo_view::top::{ActivityColumns, write_tasks};

use super::super::event_recording::{CALLS, RecordedEvents, has_event};
use super::Args;
use super::stdio::CLEAR;
use crate::exit;

/// Rings are read so often, or when one is half full.
const TICK: Duration = Duration::from_millis(100);
/// Pages of a ring: the scheduler's events come in bursts.
const PAGES: usize = 1024;

/// What is watched: accounted run times and migrations say nothing that is shown.
fn recorded() -> RecordedEvents<'static> {
    let wakeup: &[&str] = match has_event("sched:sched_waking") {
        true => &["sched:sched_waking", "sched:sched_wakeup_new", "sched:sched_process_fork"],
        false => &["sched:sched_wakeup", "sched:sched_wakeup_new", "sched:sched_process_fork"],
    };
    let required = &["sched:sched_switch"];
    RecordedEvents { command: "kymo top --tasks", required, optional: wakeup }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let cpu_list = args.cpu.as_deref().map(cpus::parse_list).transpose().context("-C")?;
    let options = RecordOptions {
        events: recorded().specs(&CALLS)?,
        target: Target::System,
        cpus: cpu_list.clone().unwrap_or_default(),
        period: Some(1),
        // The kernel's functions say what a task waits for; nobody looks at the program's.
        call_graph: Some(CallGraph::FramePointers),
        exclude: AttrFlags::EXCLUDE_CALLCHAIN_USER,
        pages: Some(args.mmap_pages.map_or(PAGES, |ring| ring.0)),
        timeout: args.timeout,
        ..RecordOptions::default()
    };
    let mut capture = PerfCapture::open(&options)?;
    let selection = select_events(&SCHED_EVENTS);
    let symbols = ResolverOptions::default();
    let mut samples = LiveSamples::new(&selection, capture.described(), &symbols);
    let mut existing = Vec::new();
    capture.tell_existing(true, &mut |record| existing.extend_from_slice(record))?;
    samples.push(&existing, &[]);
    drop(existing);
    capture.start()?;
    let count = cpu_list.map_or_else(|| cpus::online().len(), |list| list.len());
    let mut tasks = TaskActivities::default();
    let mut next = Instant::now() + args.delay();
    let (began, mut lost_before) = (Instant::now(), 0);
    loop {
        let left = next.saturating_duration_since(Instant::now());
        let end = capture.wait(TICK.min(left))?;
        if end.is_some() {
            // What was switched on is switched off.
            capture.stop()?;
        }
        capture.round(&mut |first, second| samples.push(first, second));
        let mut take = |event: &kymo_events::RecordedEvent<'_>| {
            tasks.event(event);
            ControlFlow::Continue(())
        };
        let _ = match end {
            Some(_) => samples.finish(&mut take),
            None => samples.end_round(&mut take),
        };
        if Instant::now() >= next || end.is_some() {
            next += args.delay();
            let lost = std::mem::replace(&mut lost_before, samples.lost());
            show(args, &mut tasks, count, samples.lost() - lost)?;
        }
        if end.is_some() {
            break;
        }
    }
    let mut ledger = Ledger::from_notes(capture.notes().iter().cloned());
    if samples.lost() > 0 {
        let fact = format!("{} events lost: times of their tasks are wrong", samples.lost());
        ledger.note(NoteKind::Lost, fact, Some("a larger ring: -m".into()));
    }
    let mismatched = tasks.machine().counts.mismatched;
    if mismatched > 0 {
        let fact = format!("{mismatched} switches away from a task that was not seen to run");
        ledger.note(NoteKind::Lost, fact, None);
    }
    let finished = capture.finish();
    let (used, elapsed) = (finished.used.as_secs_f64(), began.elapsed().as_secs_f64());
    let share = used * 100.0 / elapsed.max(f64::MIN_POSITIVE);
    let fact = format!("kymo itself used {share:.1}% of one CPU: {used:.3} s in {elapsed:.3} s");
    ledger.push(Note::choice(NoteKind::Overhead, fact, None));
    write!(anstream::stdout(), "\n{}", ledger.to_text("# ")).context("standard output")?;
    Ok(exit::of_command(None, &ledger, args.strict))
}

/// Writes a page about the time since the one before.
fn show(args: &Args, tasks: &mut TaskActivities, cpus: usize, lost: u64) -> anyhow::Result<()> {
    let interval = tasks.end_interval();
    let mut columns = ActivityColumns { cpus, most: args.entries, width: usize::MAX };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    if out.get_ref().is_terminal() && !args.stdio {
        out.write_all(CLEAR.as_bytes())?;
        if let Some((width, height)) = terminal_size() {
            columns.width = usize::from(width);
            // Both lines of the head, that of losses, and the cursor's.
            columns.most = usize::from(height).saturating_sub(4);
        }
    } else {
        writeln!(out)?;
    }
    if lost > 0 {
        writeln!(out, "{lost} events lost: times are wrong")?;
    }
    write_tasks(&mut out, &interval, columns).context("standard output")?;
    Ok(())
}
