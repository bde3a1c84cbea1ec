//! Reading the scheduler's events of recordings into the state machine.

use std::ops::ControlFlow;

use kymo_events::{
    EventSelection, EventSource, ReadOptions, ReadSummary, RecordedEvent, SourceError,
};

use super::decode::{SCHED_EVENTS, SchedDecoder};
use super::machine::{TaskMachine, Transition};
use super::task::SchedTask;
use crate::losses::{EventScan, LossWindows, scan_events, select_events};

/// Which transitions are shown. The state machine needs all events, so that nothing of this
/// is left to the readers.
#[derive(Clone, Debug, Default)]
pub struct SchedSelection {
    /// Conditions on time, CPU and task.
    pub events: EventSelection,
}

impl SchedSelection {
    /// Whether a time is wanted.
    #[inline]
    pub fn wants_time(&self, time: u64) -> bool {
        self.events.wants_time(Some(time))
    }

    /// Whether a CPU is wanted.
    #[inline]
    pub fn wants_cpu(&self, cpu: u32) -> bool {
        self.events.wants_cpu(Some(cpu))
    }

    /// Whether a task is wanted.
    #[inline]
    pub fn wants_task(&self, task: &SchedTask) -> bool {
        !self.events.has_task_conditions()
            || self.events.wants_task(task.info.pid, Some(task.tid), task.comm())
    }

    /// Whether tasks are chosen.
    pub fn chooses_tasks(&self) -> bool {
        self.events.has_task_conditions()
    }

    /// The part of a span of time that is wanted, by begin and end.
    #[inline]
    pub fn cut(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        if self.events.times.is_empty() {
            return Some((from, to));
        }
        let (first, last) = (self.events.from(), self.events.until());
        (to >= first && from <= last).then(|| (from.max(first), to.min(last)))
    }
}

/// What was read.
#[derive(Debug)]
pub struct SchedRead {
    /// The machine as it was at the end.
    pub machine: TaskMachine,
    /// What the readers say.
    pub summary: ReadSummary,
    /// Times of the first and the last event.
    pub span: Option<(u64, u64)>,
    /// Events that lack a field.
    pub malformed: u64,
}

/// A transition with the event that made it.
pub struct SchedStep<'a, 'e> {
    /// What changed.
    pub transition: Transition,
    /// The event.
    pub event: &'a RecordedEvent<'e>,
    /// Its time.
    pub time: u64,
    /// Its CPU.
    pub cpu: u32,
}

/// Reads all scheduler events; `sink` gets each transition with the machine as it is after it.
/// `losses` are those that an earlier pass met.
///
/// # Errors
/// If reading fails.
pub fn read_sched(
    source: &EventSource,
    options: ReadOptions,
    losses: LossWindows,
    sink: &mut dyn FnMut(&SchedStep<'_, '_>, &TaskMachine) -> ControlFlow<()>,
) -> Result<SchedRead, SourceError> {
    let mut machine = TaskMachine::new(losses);
    let mut decoder = SchedDecoder::default();
    let mut span: Option<(u64, u64)> = None;
    let summary = source.for_each(&select_events(&SCHED_EVENTS), options, &mut |event| {
        let Some(sched) = decoder.decode(event) else { return ControlFlow::Continue(()) };
        if let Some(time) = event.time {
            let (first, last) = span.unwrap_or((time, time));
            span = Some((first.min(time), last.max(time)));
        }
        match (machine.apply(&sched, event), event.time, event.cpu()) {
            (Some(transition), Some(time), Some(cpu)) => {
                sink(&SchedStep { transition, event, time, cpu }, &machine)
            }
            _ => ControlFlow::Continue(()),
        }
    })?;
    machine.finish();
    Ok(SchedRead { machine, summary, span, malformed: decoder.malformed })
}

/// Looks through recordings before the first line is written.
///
/// # Errors
/// If reading fails.
pub fn scan_sched(source: &EventSource) -> Result<EventScan, SourceError> {
    scan_events(source, &select_events(&SCHED_EVENTS))
}
