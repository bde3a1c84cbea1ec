//! Reading the scheduler's events of recordings into the state machine.

use std::ops::ControlFlow;

use kymo_events::{
    EventSelection, EventSource, ReadOptions, ReadSummary, RecordedEvent, SourceError,
};

use super::decode::{EXIT_EVENT, SCHED_EVENTS, SchedDecoder, SchedEvent};
use super::machine::{TaskMachine, Transition};
use super::task::SchedTask;
use crate::losses::{LossWindows, select_events};

/// Selection of the shown transitions. The state machine needs all events, so that nothing of this
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

/// Scheduler events of a recording.
#[derive(Debug)]
pub struct SchedRead {
    /// The machine as it was at the end.
    pub machine: TaskMachine,
    /// Summary of the readers.
    pub summary: ReadSummary,
    /// Times of the first and the last event.
    pub span: Option<(u64, u64)>,
    /// Events that lack a field.
    pub malformed: u64,
}

/// A transition with the event that made it.
pub struct SchedStep<'a, 'e> {
    /// Change that the event makes.
    pub transition: &'a Transition,
    /// The event.
    pub event: &'a RecordedEvent<'e>,
    /// Its time.
    pub time: u64,
    /// Its CPU.
    pub cpu: u32,
}

/// Reads all scheduler events; `sink` gets each transition with the machine as it is after it.
///
/// # Errors
/// If reading fails.
pub fn read_sched(
    source: &EventSource,
    options: ReadOptions,
    mut sink: impl FnMut(&SchedStep<'_, '_>, &TaskMachine) -> ControlFlow<()>,
) -> Result<SchedRead, SourceError> {
    let mut reader = SchedReader::new(source.losses());
    let select = select_events(&[&SCHED_EVENTS[..], &[EXIT_EVENT]].concat());
    let (summary, decoders) = source.for_each_digest(
        &select,
        options,
        SchedDecoder::default,
        |event, (cpu, sched)| reader.decoded(event, cpu, &sched, &mut sink),
    )?;
    reader.decoder.malformed += decoders.iter().map(|d| d.malformed).sum::<u64>();
    Ok(reader.finish(summary))
}

/// Takes each transition with the machine as it is after it.
pub type SchedSink<'k> = &'k mut dyn FnMut(&SchedStep<'_, '_>, &TaskMachine) -> ControlFlow<()>;

/// Puts events into the state machine as they come.
#[derive(Debug)]
pub struct SchedReader {
    machine: TaskMachine,
    decoder: SchedDecoder,
    span: Option<(u64, u64)>,
}

impl SchedReader {
    /// A reader that has seen nothing; `losses` are those of the events' source, if it has some.
    pub fn new(losses: LossWindows) -> SchedReader {
        let decoder = SchedDecoder::default();
        SchedReader { machine: TaskMachine::new(losses), decoder, span: None }
    }

    /// Takes an event, and hands on the transition that it makes.
    #[inline]
    pub fn event(&mut self, event: &RecordedEvent<'_>, sink: SchedSink<'_>) -> ControlFlow<()> {
        match self.decoder.decode(event) {
            Some(sched) => self.decoded(event, event.cpu(), &sched, sink),
            None => {
                self.machine.note_loss(event);
                ControlFlow::Continue(())
            }
        }
    }

    /// Takes an event whose fields have been read.
    #[inline]
    fn decoded(
        &mut self,
        event: &RecordedEvent<'_>,
        cpu: Option<u32>,
        sched: &SchedEvent,
        mut sink: impl FnMut(&SchedStep<'_, '_>, &TaskMachine) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let SchedReader { machine, span, .. } = self;
        if let Some(time) = event.time {
            let (first, last) = span.unwrap_or((time, time));
            *span = Some((first.min(time), last.max(time)));
        }
        let Some(transition) = &machine.apply_at(sched, event, (event.time, cpu)) else {
            return ControlFlow::Continue(());
        };
        match (event.time, cpu) {
            (Some(time), Some(cpu)) => sink(&SchedStep { transition, event, time, cpu }, machine),
            _ => ControlFlow::Continue(()),
        }
    }

    /// The machine as it is after the last event.
    pub fn machine(&self) -> &TaskMachine {
        &self.machine
    }

    /// Nothing more comes; `summary` is what the readers say.
    pub fn finish(self, summary: ReadSummary) -> SchedRead {
        let SchedReader { mut machine, decoder, span } = self;
        machine.finish();
        SchedRead { machine, summary, span, malformed: decoder.malformed }
    }
}
