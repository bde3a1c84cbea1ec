//! Wake-ups by tasks that are not recorded. They are events of the whole machine in rings of their
//! own (`Terms::system_wide`), without copies of stacks; of these only what wakes a recorded task
//! is written. What recorded tasks wake is left out, too: their own events tell it, with stacks.

use kymo_files::perfdata::write::TracingBlob;
use kymo_format::{EventFormat, Field};
use kymo_model::{Endian, LeadingFields, RawRecord, RecordHeader, RecordKind, Sideband};
use rustc_hash::FxHashMap;

use crate::open::RingSet;

/// Chooses among the records of the rings apart.
#[derive(Debug)]
pub(super) struct ForeignWakeups {
    fields: LeadingFields,
    /// The field of the payload that names who is woken.
    wakee: Field,
    /// Threads that are recorded, with the times from and to which their own events tell.
    tasks: FxHashMap<u32, (u64, u64)>,
    /// Records that wait until the births before them were seen.
    held: Vec<u8>,
}

impl ForeignWakeups {
    /// For a recording of `tids`; none where no ring is apart.
    pub(super) fn new(
        rings: &RingSet,
        tracing: Option<&TracingBlob>,
        tids: &[u32],
    ) -> Option<ForeignWakeups> {
        let event = rings.set.events.iter().find(|e| e.planned.spec.terms.system_wide)?;
        let (system, name) = event.planned.spec.tracepoint.as_ref()?;
        let (_, formats) = tracing?.systems.iter().find(|(s, _)| s == system)?;
        let mut formats = formats.iter().filter_map(|text| std::str::from_utf8(text).ok());
        let format =
            formats.find_map(|f| EventFormat::parse(f).ok().filter(|f| f.name == *name))?;
        Some(ForeignWakeups {
            fields: LeadingFields::new(event.planned.attr.sample_type),
            wakee: format.field("pid")?.clone(),
            tasks: tids.iter().map(|tid| (*tid, (0, u64::MAX))).collect(),
            held: Vec::new(),
        })
    }

    /// Takes what a ring apart holds, before the other rings are read.
    pub(super) fn hold(&mut self, first: &[u8], second: &[u8]) {
        self.held.extend_from_slice(first);
        self.held.extend_from_slice(second);
    }

    /// Sees births and ends of recorded tasks in what another ring holds.
    pub(super) fn follow(&mut self, first: &[u8], second: &[u8]) {
        let rest = self.follow_records(first);
        if rest.is_empty() {
            self.follow_records(second);
            return;
        }
        // A record lies across both.
        let mut across = rest.to_vec();
        across.extend_from_slice(
            second.get(..second.len().min(usize::from(u16::MAX))).unwrap_or(second),
        );
        let Some(size) = size_of(&across) else { return };
        self.follow_records(across.get(..size).unwrap_or(&[]));
        self.follow_records(second.get(size - rest.len()..).unwrap_or(&[]));
    }

    /// Gives what is left when no record is complete any more.
    fn follow_records<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let mut rest = bytes;
        while let Some((header, body, next)) = split_record(rest) {
            rest = next;
            if !matches!(header.kind, RecordKind::FORK | RecordKind::EXIT) {
                continue;
            }
            let raw =
                RawRecord { kind: header.kind, misc: header.misc, body, endian: Endian::NATIVE };
            match Sideband::parse(&raw) {
                Ok(Some(Sideband::Fork(task))) => {
                    self.tasks.insert(task.tid, (task.time, u64::MAX));
                }
                // Whoever waits for its end is woken after it.
                Ok(Some(Sideband::Exit(task))) => {
                    self.tasks.entry(task.tid).and_modify(|(_, to)| *to = task.time);
                }
                _ => {}
            }
        }
        rest
    }

    /// Hands over the held records that count.
    pub(super) fn release<E>(
        &mut self,
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let held = std::mem::take(&mut self.held);
        let mut rest = held.as_slice();
        while let Some((header, body, next)) = split_record(rest) {
            let record = rest.get(..rest.len() - next.len()).unwrap_or(rest);
            rest = next;
            if header.kind != RecordKind::SAMPLE || self.counts(body).unwrap_or(true) {
                write(record)?;
            }
        }
        self.held = held;
        self.held.clear();
        Ok(())
    }

    /// Whether a recorded task is woken by one that is not.
    fn counts(&self, body: &[u8]) -> Option<bool> {
        let endian = Endian::NATIVE;
        let waker = endian.u32_at(body, self.fields.tid? + 4)?;
        let time = endian.u64_at(body, self.fields.time?)?;
        let chain = endian.u64_at(body, self.fields.end)?;
        let raw = self.fields.end + 8 + usize::try_from(chain).ok()?.checked_mul(8)?;
        let wakee = self.wakee.int(body.get(raw.checked_add(4)?..)?, endian)?;
        if !self.tasks.contains_key(&(wakee as u32)) {
            return Some(false);
        }
        Some(self.tasks.get(&waker).is_none_or(|(from, to)| time < *from || time >= *to))
    }
}

fn size_of(bytes: &[u8]) -> Option<usize> {
    let header = RecordHeader::parse(bytes, Endian::NATIVE).ok()?;
    Some(usize::from(header.size)).filter(|size| *size >= RecordHeader::SIZE)
}

/// The first record, and what is behind it.
fn split_record(bytes: &[u8]) -> Option<(RecordHeader, &[u8], &[u8])> {
    let header = RecordHeader::parse(bytes, Endian::NATIVE).ok()?;
    let (record, rest) = bytes.split_at_checked(size_of(bytes)?)?;
    Some((header, record.get(RecordHeader::SIZE..)?, rest))
}
