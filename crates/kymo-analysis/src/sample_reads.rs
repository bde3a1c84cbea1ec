//! Groups of which only the leader is sampled (`{…}:S`): each sample holds the counts of all
//! events, and what each has counted since the sample before is its part of it.

use kymo_files::perfdata::{Entry, EventDesc, PerfData};
use kymo_model::{AttrFlags, Sample, SampleType};
use rustc_hash::FxHashMap;

/// Counts of a group's events since the sample before: number of the event, and count.
pub type ReadParts = Box<[(usize, u64)]>;

/// The counts of the last samples.
#[derive(Debug, Default)]
pub struct SampleReads {
    events: FxHashMap<u64, usize>,
    /// Events whose ids are in there.
    known: usize,
    /// By id, and by thread where each has counts of its own.
    last: FxHashMap<(u64, u32), u64>,
}

impl SampleReads {
    /// `None` where no event has such samples.
    pub fn of(events: &[EventDesc]) -> Option<SampleReads> {
        let reads = |e: &EventDesc| e.attr.sample_type.contains(SampleType::READ);
        events.iter().any(reads).then(SampleReads::default)
    }

    /// Those of a recording; the events of a pipe are not known before its records are read.
    pub fn of_recording(data: &PerfData) -> Option<SampleReads> {
        if data.is_pipe() { Some(SampleReads::default()) } else { SampleReads::of(data.events()) }
    }

    /// Learns the ids of events that were not there before.
    fn learn(&mut self, events: &[EventDesc]) {
        if self.known < events.len() {
            let new = events.iter().enumerate().skip(self.known);
            self.events.extend(new.flat_map(|(n, e)| e.ids.iter().map(move |id| (*id, n))));
            self.known = events.len();
        }
    }

    /// The parts of a sample; `None` where it has its weight as others have.
    pub fn parts(&mut self, entry: &Entry<'_>) -> Option<ReadParts> {
        let attr = &entry.desc()?.attr;
        if !attr.sample_type.contains(SampleType::READ) {
            return None;
        }
        self.learn(entry.events);
        let sample = Sample::parse(&entry.raw, attr).ok()?;
        let read = sample.read?;
        let by_thread = attr.flags.contains(AttrFlags::INHERIT);
        let thread = sample.tid.filter(|_| by_thread).map_or(0, |(_, tid)| tid);
        let mut parts = Vec::new();
        for (count, id, _) in read.values {
            let id = id?;
            // What no event has needs no memory.
            let Some(event) = self.events.get(&id).copied() else { continue };
            let last = self.last.entry((id, thread)).or_default();
            let part = count.saturating_sub(std::mem::replace(last, count));
            if part > 0 {
                parts.push((event, part));
            }
        }
        Some(parts.into())
    }
}
