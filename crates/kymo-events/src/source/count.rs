//! Counts of events by class. Only their numbers are read, neither fields nor tasks.

use std::ops::ControlFlow;

use kymo_files::perfdata::{PerfData, RecordOrder};
use kymo_files::{Moment, Timeline, TimelineSelect};
use kymo_model::{Note, NoteKind, RecordKind};

use super::summary::PerfSummary;
use super::{EventSource, ReadSummary, SourceError};
use crate::schema::{ClassOrigin, RecordedClass};
use crate::trace_dat::FormatTable;

/// The classes of recordings, and how many events each has.
pub struct ClassCounts {
    /// All classes that the recordings define.
    pub classes: Vec<(RecordedClass, u64)>,
    /// Summary of what was read.
    pub summary: ReadSummary,
}

impl EventSource {
    /// Counts the events of each class.
    ///
    /// # Errors
    /// If reading fails.
    pub fn count_classes(&self) -> Result<ClassCounts, SourceError> {
        let mut summary = ReadSummary::default();
        // By recording, then by number of the event in it.
        let mut counts: Vec<Vec<u64>> = Vec::new();
        for number in 0..self.perf.len() {
            let Some(mut data) = self.perf(number) else { continue };
            let (events, stats) = count_samples(&mut data)?;
            counts.push(events);
            summary.perf.push(PerfSummary::new(&data, stats));
        }
        if let Some(timeline) = &self.timeline {
            let formats: Vec<FormatTable<'_>> =
                timeline.kernels().iter().map(FormatTable::new).collect();
            let (events, stats) = count_moments(timeline, &formats)?;
            let kernels = formats.iter().zip(&events);
            kernels.for_each(|(formats, counts)| summary.add(notes(formats, counts)));
            counts.extend(events);
            summary.timeline = Some(stats);
        }
        // A pipe defines its classes while it is read.
        let mut next = vec![0; counts.len()];
        let number = |class: &RecordedClass, next: &mut Vec<u64>| match class.origin {
            ClassOrigin::Kernel if class.attr.is_none() => class.id,
            // These come in the order of their numbers.
            _ => next.get_mut(class.recording).map(|n| {
                *n += 1;
                *n - 1
            }),
        };
        let classes = self.classes().into_iter().map(|class| {
            let n = number(&class, &mut next).and_then(|n| usize::try_from(n).ok());
            let events = n.and_then(|n| counts.get(class.recording)?.get(n));
            let events = events.copied().unwrap_or(0);
            (class, events)
        });
        Ok(ClassCounts { classes: classes.collect(), summary })
    }
}

fn count_samples(
    data: &mut PerfData,
) -> Result<(Vec<u64>, kymo_files::perfdata::PerfDataReadStats), SourceError> {
    let mut counts = Vec::new();
    let stats = data.for_each_batch(RecordOrder::File, &mut |batch| {
        for entry in batch.entries().filter(|e| e.raw.kind == RecordKind::SAMPLE) {
            add(&mut counts, entry.event);
        }
        ControlFlow::Continue(())
    })?;
    Ok((counts, stats))
}

fn count_moments(
    timeline: &Timeline,
    formats: &[FormatTable<'_>],
) -> Result<(Vec<Vec<u64>>, kymo_files::Stats), SourceError> {
    let mut counts = vec![Vec::new(); formats.len() + 1];
    let programs = formats.len();
    let select = TimelineSelect { runs: true, ..TimelineSelect::default() };
    let stats = timeline.for_each(&select, &mut |moment| {
        match moment {
            Moment::Kernel(number, e) => {
                let id = formats.get(number).and_then(|f| f.id(e.payload)).unwrap_or(0);
                counts.get_mut(number).into_iter().for_each(|c| add(c, usize::from(id)));
            }
            Moment::Program(e) => {
                counts.get_mut(programs).into_iter().for_each(|c| add(c, e.class as usize));
            }
            Moment::Run(run) => {
                let Some(counts) = counts.get_mut(programs) else {
                    return ControlFlow::Continue(());
                };
                run.events.iter().for_each(|e| add(counts, e.class as usize));
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok((counts, stats))
}

#[inline]
fn add(counts: &mut Vec<u64>, number: usize) {
    if counts.len() <= number {
        counts.resize(number + 1, 0);
    }
    if let Some(n) = counts.get_mut(number) {
        *n += 1;
    }
}

/// Formats that cannot be read, and events without one.
fn notes(formats: &FormatTable<'_>, counts: &[u64]) -> Vec<Note> {
    let unread = formats.iter().filter_map(Result::err);
    let mut notes: Vec<Note> = unread.map(|e| Note::doubt(NoteKind::Format, e, None)).collect();
    for (id, n) in counts.iter().enumerate().filter(|(_, n)| **n > 0) {
        let known = u16::try_from(id).is_ok_and(|id| formats.get(id).is_ok());
        if !known {
            let fact = format!("{n} events of number {id}, which has no format");
            notes.push(Note::doubt(NoteKind::Unknown, fact, None));
        }
    }
    notes
}
