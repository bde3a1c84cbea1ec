//! The scheduler's events while they happen, out of perf rings.

use std::ops::ControlFlow;
use std::time::Duration;

use kymo_analysis::losses::select_events;
use kymo_analysis::tasks::{SCHED_EVENTS, SchedSelection};
use kymo_events::live::LiveSamples;
use kymo_events::{ReadSummary, RecordedEvent, TaskTree};
use kymo_model::{Note, NoteKind};
use kymo_record::{CaptureSummary, ChosenTasks, PerfCapture, RecordError, RecordOptions};
use kymo_symbols::ResolverOptions;

use super::super::analysis::note_scope;
use super::super::live::WatchArgs;
use super::record::events;

/// Rings are read so often, or when one is half full.
const TICK: Duration = Duration::from_millis(100);

/// Outcome of a live capture.
pub(super) struct LiveOutcome {
    /// The command's exit status.
    pub(super) exit: Option<u8>,
    /// Notes about the capture.
    pub(super) notes: Vec<Note>,
    /// The tasks that are wanted, if they are those of a command or of cgroups.
    tree: Option<TaskTree>,
    /// Tasks that were named: the capture ends with them.
    chosen: ChosenTasks,
}

impl LiveOutcome {
    /// Creates the outcome of a capture of these tasks.
    pub(super) fn of(selection: &SchedSelection, chosen: ChosenTasks) -> LiveOutcome {
        let tree = selection.events.tree.clone();
        let of_command = tree.iter().filter(|tree| !tree.is_of_cgroups());
        let notes = of_command.map(|_| note_scope()).collect();
        LiveOutcome { exit: None, notes, tree, chosen }
    }
}

/// Step of a live capture.
pub(super) enum LiveStep<'s, 'e> {
    /// An event.
    Event(&'s RecordedEvent<'e>),
    /// Nothing more for now.
    RoundEnd,
}

/// Hands all events to `sink`, by time, until it is over or that breaks off; `symbols` names the
/// functions of call chains, if these are wanted.
pub(super) fn watch(
    args: &WatchArgs,
    symbols: Option<&ResolverOptions>,
    outcome: &mut LiveOutcome,
    sink: &mut dyn FnMut(LiveStep<'_, '_>) -> ControlFlow<()>,
) -> anyhow::Result<ReadSummary> {
    let cgroups = outcome.tree.as_ref().is_some_and(TaskTree::is_of_cgroups);
    let options = args.options(&events(), symbols.is_some(), cgroups)?;
    let options = RecordOptions { chosen: outcome.chosen.clone(), ..options };
    let mut capture = PerfCapture::open(&options)?;
    let selection = select_events(&SCHED_EVENTS);
    let options = symbols.cloned().unwrap_or_default();
    let mut samples = LiveSamples::new(&selection, capture.described(), &options);
    if let Some(tree) = &outcome.tree {
        samples.follow(tree);
    }
    let mut existing = Vec::new();
    capture.tell_existing(symbols.is_some(), &mut |record| existing.extend_from_slice(record))?;
    samples.push(&existing, &[]);
    drop(existing);
    capture.start()?;
    let flow = until_the_end(&mut capture, &mut samples, sink);
    // What was switched on is switched off, also after an error.
    capture.stop()?;
    flow?;
    outcome.notes.extend_from_slice(capture.notes());
    let finished = capture.finish();
    outcome.exit = finished.exit;
    outcome.notes.push(overhead(&finished));
    Ok(samples.into_summary())
}

fn until_the_end(
    capture: &mut PerfCapture,
    samples: &mut LiveSamples<'_>,
    sink: &mut dyn FnMut(LiveStep<'_, '_>) -> ControlFlow<()>,
) -> Result<(), RecordError> {
    loop {
        let end = capture.wait(TICK)?;
        if end.is_some() {
            capture.stop()?;
        }
        capture.round(&mut |first, second| samples.push(first, second));
        let events = samples.end_round(&mut |event| sink(LiveStep::Event(event)));
        if events.is_break() || sink(LiveStep::RoundEnd).is_break() {
            return Ok(());
        }
        if end.is_some() {
            break;
        }
    }
    if samples.finish(&mut |event| sink(LiveStep::Event(event))).is_break() {
        return Ok(());
    }
    if let Some(record) = capture.unreported_losses(samples.lost()) {
        samples.push(&record, &[]);
        let _ = samples.finish(&mut |event| sink(LiveStep::Event(event)));
    }
    Ok(())
}

/// Note about the CPU time that the capture took.
fn overhead(finished: &CaptureSummary) -> Note {
    let (used, elapsed) = (finished.used.as_secs_f64(), finished.elapsed.as_secs_f64());
    let share = if elapsed > 0.0 { used * 100.0 / elapsed } else { 0.0 };
    let fact = format!("kymo itself used {share:.1}% of one CPU: {used:.3} s in {elapsed:.3} s");
    Note::choice(NoteKind::Overhead, fact, None)
}
