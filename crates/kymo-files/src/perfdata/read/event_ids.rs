//! Which event a record is of, and when it happened: by the ids and the layouts of the events
//! that were opened, whether the record lies in a file or in a ring.

use kymo_model::{Endian, Misc, RecordHeader, RecordKind, SampleLayout};
use rustc_hash::FxHashMap;

use super::{EventDesc, PerfDataReadStats, known};

const MAX_IDS: usize = 1 << 24;

/// Ids that a table has a slot for each: the kernel numbers events one after the other.
const MOST_SLOTS: u64 = 1 << 16;
/// A slot of no event.
const NO_EVENT: u32 = u32::MAX;

/// Why a record is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnusableRecord {
    /// Its id belongs to no event.
    UnknownId,
    /// Unknown record type.
    UnknownKind(RecordKind),
    /// Shorter than its event says.
    Malformed,
}

/// Event of a record by its number, and its time where it has one.
type EventAndTime = (u32, Option<u64>);

/// Ids of the events of a recording.
#[derive(Debug, Default)]
pub(super) struct EventIds {
    layouts: Vec<SampleLayout>,
    /// Events of the ids from `first_slot` on, which are most or all.
    slots: Vec<u32>,
    first_slot: Option<u64>,
    /// Those of the others.
    ids: FxHashMap<u64, u32>,
}

impl EventIds {
    pub(super) fn new(events: &[EventDesc]) -> EventIds {
        let first = events.iter().flat_map(|e| &e.ids).copied().filter(|id| *id != 0).min();
        let mut ids = EventIds { first_slot: first, ..EventIds::default() };
        events.iter().enumerate().for_each(|(number, event)| ids.add(number, event));
        ids
    }

    /// Adds the event of the next number.
    pub(super) fn add(&mut self, number: usize, event: &EventDesc) {
        self.layouts.push(SampleLayout::new(&event.attr));
        for id in &event.ids {
            let at = id.wrapping_sub(*self.first_slot.get_or_insert(*id));
            if at < MOST_SLOTS {
                let at = at as usize;
                if self.slots.len() <= at {
                    self.slots.resize(at + 1, NO_EVENT);
                }
                if let Some(slot) = self.slots.get_mut(at) {
                    *slot = number as u32;
                }
            } else if self.ids.len() < MAX_IDS {
                self.ids.insert(*id, number as u32);
            }
        }
    }

    /// The event that states this id.
    #[inline]
    pub(super) fn named(&self, id: u64) -> Option<u32> {
        let at = id.wrapping_sub(self.first_slot?);
        match self.slots.get(usize::try_from(at).ok()?) {
            Some(event) => Some(*event).filter(|event| *event != NO_EVENT),
            None => self.ids.get(&id).copied(),
        }
    }

    /// The event with this id. Id 0 is the first event's, as perf has it.
    #[inline]
    fn event_of(&self, id: u64) -> Option<u32> {
        if id == 0 { Some(0) } else { self.named(id) }
    }

    #[inline]
    pub(super) fn sample(
        &self,
        body: &[u8],
        endian: Endian,
    ) -> Result<EventAndTime, UnusableRecord> {
        let Some(layout) = self.layouts.first() else { return Err(UnusableRecord::UnknownId) };
        let event = match layout.leading.id {
            Some(at) if self.layouts.len() > 1 => {
                let id = endian.u64_at(body, at).ok_or(UnusableRecord::Malformed)?;
                self.event_of(id).ok_or(UnusableRecord::UnknownId)?
            }
            _ => 0,
        };
        let Some(layout) = self.layouts.get(event as usize) else {
            return Err(UnusableRecord::UnknownId);
        };
        let time = match layout.leading.time {
            Some(at) => usable(endian.u64_at(body, at).ok_or(UnusableRecord::Malformed)?),
            None => None,
        };
        Ok((event, time))
    }

    /// Event of a kernel record that is not a sample.
    pub(super) fn sideband(
        &self,
        kind: RecordKind,
        body: &[u8],
        endian: Endian,
    ) -> Result<EventAndTime, UnusableRecord> {
        if !known(kind) {
            return Err(UnusableRecord::UnknownKind(kind));
        }
        let Some(layout) = self.layouts.first() else { return Err(UnusableRecord::UnknownId) };
        let id = layout.trailing.id.and_then(|back| endian.u64_from_end(body, back));
        let event = id.and_then(|id| self.event_of(id)).unwrap_or(0);
        let back = self.layouts.get(event as usize).and_then(|l| l.trailing.time);
        let time = back.and_then(|back| endian.u64_from_end(body, back)).and_then(usable);
        Ok((event, time))
    }

    /// CPU of a sample, if it states one.
    #[inline]
    pub(super) fn sample_cpu(&self, event: u32, body: &[u8], endian: Endian) -> Option<u32> {
        endian.u32_at(body, self.layouts.get(event as usize)?.leading.cpu?)
    }

    /// CPU of a kernel record that is not a sample.
    pub(super) fn sideband_cpu(&self, event: u32, body: &[u8], endian: Endian) -> Option<u32> {
        let back = self.layouts.get(event as usize)?.trailing.cpu?;
        endian.u32_at(body, body.len().checked_sub(back)?)
    }

    /// Whether a record that is no sample is too short for the time of its event.
    pub(super) fn is_cut(&self, event: u32, body: &[u8]) -> bool {
        let back = self.layouts.get(event as usize).and_then(|l| l.trailing.time);
        back.is_some_and(|back| back > body.len())
    }
}

impl PerfDataReadStats {
    pub(super) fn count_unusable(&mut self, why: UnusableRecord) {
        match why {
            UnusableRecord::UnknownId => self.unknown_ids += 1,
            UnusableRecord::UnknownKind(kind) => {
                *self.unknown_kinds.entry(kind.0).or_default() += 1;
            }
            UnusableRecord::Malformed => self.malformed += 1,
        }
    }

    /// Counts the losses that a kernel record other than a sample reports.
    pub(super) fn count_sideband(
        &mut self,
        header: RecordHeader,
        body: &[u8],
        (time, endian): (Option<u64>, Endian),
    ) {
        match header.kind {
            RecordKind::LOST => {
                let lost = endian.u64_at(body, 8).unwrap_or(0);
                self.lost_chunks += 1;
                self.lost = self.lost.saturating_add(lost);
            }
            // What a BPF filter of the user's left out was not lost.
            RecordKind::LOST_SAMPLES if header.misc.0 & Misc::LOST_SAMPLES_BPF != 0 => {}
            RecordKind::LOST_SAMPLES => {
                let lost = endian.u64_at(body, 0).unwrap_or(0);
                let sum = match time {
                    Some(_) => &mut self.lost_in_hardware,
                    None => &mut self.lost_samples,
                };
                *sum = sum.saturating_add(lost);
            }
            RecordKind::THROTTLE => self.throttled += 1,
            RecordKind::AUX => {
                /// Flag of an AUX record: its data are cut short.
                const TRUNCATED: u64 = 1;
                let flags = endian.u64_at(body, 16).unwrap_or(0);
                self.aux_records += 1;
                self.aux_truncated += u64::from(flags & TRUNCATED != 0);
            }
            _ => {}
        }
    }
}

/// Times perf takes for "no time".
#[inline]
fn usable(time: u64) -> Option<u64> {
    (time != 0 && time != u64::MAX).then_some(time)
}
