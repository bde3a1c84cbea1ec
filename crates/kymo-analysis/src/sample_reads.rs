//! Groups of which only the leader is sampled (`{…}:S`): each sample holds the counts of all
//! events, and what each has counted since the sample before is its part of it.

use kymo_files::perfdata::{Entry, EventDesc, PerfData};
use kymo_model::{AttrFlags, Sample, SampleType};
use rustc_hash::FxHashMap;

/// Counts of a group's events since the sample before: number of the event, and count.
pub type ReadParts = Box<[(usize, u64)]>;

/// Count of an event of a group since the sample before.
struct ReadPart {
    event: usize,
    id: u64,
    part: u64,
}

/// A sample of a group as the sample of one of its events.
#[derive(Clone, Copy, Debug)]
pub struct MemberSample<'e> {
    /// The record, of that event.
    pub entry: Entry<'e>,
    /// Id of the event.
    pub id: u64,
    /// Its count since the sample before.
    pub period: u64,
}

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
        Some(self.read(entry)?.into_iter().map(|p| (p.event, p.part)).collect())
    }

    /// A sample as those of the events of its group that counted anything since the sample before;
    /// `None` where it is of its own event alone.
    pub fn member_samples<'e>(&mut self, entry: &Entry<'e>) -> Option<Vec<MemberSample<'e>>> {
        let leader = entry.desc();
        let as_member = |p: ReadPart| {
            // The record has the fields of the leader.
            let is_alike = entry.events.get(p.event).zip(leader).is_some_and(|(own, leader)| {
                own.attr.sample_type == leader.attr.sample_type
                    && own.attr.read_format == leader.attr.read_format
            });
            let event = if is_alike { p.event } else { entry.event };
            MemberSample { entry: Entry { event, ..*entry }, id: p.id, period: p.part }
        };
        Some(self.read(entry)?.into_iter().map(as_member).collect())
    }

    fn read(&mut self, entry: &Entry<'_>) -> Option<Vec<ReadPart>> {
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
                parts.push(ReadPart { event, id, part });
            }
        }
        Some(parts)
    }
}
