//! Copies of user stacks on their way from the rings to the file. In a ring each has the size that
//! was requested; in the file it has the bytes that the kernel copied.

use kymo_model::{Attr, Endian, LeadingFields, RecordHeader, RecordKind, SampleType};
use rustc_hash::FxHashMap;

use super::foreign_wakeups::split_record;
use crate::open::RingSet;

/// Bytes of the size before a copy and of the number of copied bytes after it.
const WORD: usize = 8;

/// Shortens the copies of stacks.
#[derive(Debug)]
pub(super) struct StackCopies {
    /// Offset of the event's id in a sample, where there are several events.
    id: Option<usize>,
    /// Requested size by id.
    sizes: FxHashMap<u64, usize>,
    shortened: Vec<u8>,
}

impl StackCopies {
    /// None where no event copies stacks, or where the events of samples are not known.
    pub(super) fn new(rings: &RingSet) -> Option<StackCopies> {
        let events = || rings.events.iter().map(|event| (&event.attr, event.ids.as_slice()));
        StackCopies::of_events(events().count(), events())
    }

    fn of_events<'a>(
        count: usize,
        events: impl Iterator<Item = (&'a Attr, &'a [u64])>,
    ) -> Option<StackCopies> {
        let mut copies =
            StackCopies { id: None, sizes: FxHashMap::default(), shortened: Vec::new() };
        for (attr, ids) in events {
            if count > 1 {
                // The same place in the samples of all events.
                if !attr.sample_type.contains(SampleType::IDENTIFIER) {
                    return None;
                }
                copies.id = LeadingFields::new(attr.sample_type).id;
            }
            if ends_with_copy(attr.sample_type) {
                let size = attr.sample_stack_user as usize;
                let ids = if count > 1 { ids } else { &[0] };
                copies.sizes.extend(ids.iter().map(|id| (*id, size)));
            }
        }
        (!copies.sizes.is_empty()).then_some(copies)
    }

    /// The records of a ring, with copies as long as what was copied.
    pub(super) fn shorten(&mut self, first: &[u8], second: &[u8]) -> &[u8] {
        self.shortened.clear();
        let rest = self.push_records(first);
        if rest.is_empty() {
            let rest = self.push_records(second);
            self.shortened.extend_from_slice(rest);
            return &self.shortened;
        }
        // A record lies across both.
        let mut across = rest.to_vec();
        let most = second.len().min(usize::from(u16::MAX));
        across.extend_from_slice(second.get(..most).unwrap_or(second));
        let taken = match split_record(&across) {
            Some((_, _, behind)) => {
                let size = across.len() - behind.len();
                self.push(across.get(..size).unwrap_or(&across));
                size - rest.len()
            }
            None => {
                self.shortened.extend_from_slice(rest);
                0
            }
        };
        let rest = self.push_records(second.get(taken..).unwrap_or(&[]));
        self.shortened.extend_from_slice(rest);
        &self.shortened
    }

    /// Returns the start of an incomplete record.
    fn push_records<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let mut rest = bytes;
        while let Some((_, _, behind)) = split_record(rest) {
            self.push(rest.get(..rest.len() - behind.len()).unwrap_or(rest));
            rest = behind;
        }
        rest
    }

    fn push(&mut self, record: &[u8]) {
        if self.push_shortened(record).is_none() {
            self.shortened.extend_from_slice(record);
        }
    }

    /// None for a record that stays as it is.
    fn push_shortened(&mut self, record: &[u8]) -> Option<()> {
        let endian = Endian::NATIVE;
        let header = RecordHeader::parse(record, endian).ok()?;
        if header.kind != RecordKind::SAMPLE {
            return None;
        }
        let id = match self.id {
            Some(offset) => endian.u64_at(record, RecordHeader::SIZE + offset)?,
            None => 0,
        };
        let size = *self.sizes.get(&id)?;
        // A sample that would be too large has a smaller copy.
        let copied_at = record.len().checked_sub(WORD)?;
        let size_at = copied_at.checked_sub(size)?.checked_sub(WORD)?;
        if endian.u64_at(record, size_at)? != size as u64 {
            return None;
        }
        let copied = usize::try_from(endian.u64_at(record, copied_at)?).ok()?;
        // One word more than was copied: readers see that the stack has no more in memory, rather
        // than that the copy was too small.
        let kept = copied.checked_add(WORD)?.checked_next_multiple_of(WORD)?;
        let left_out = size.checked_sub(kept).filter(|n| *n > 0)?;
        let start = size_at + WORD;
        let parts = [record.get(RecordHeader::SIZE..size_at)?, record.get(start..start + kept)?];
        let length = header.size.checked_sub(u16::try_from(left_out).ok()?)?;
        let out = &mut self.shortened;
        out.extend_from_slice(&header.kind.0.to_ne_bytes());
        out.extend_from_slice(&header.misc.0.to_ne_bytes());
        out.extend_from_slice(&length.to_ne_bytes());
        out.extend_from_slice(parts[0]);
        out.extend_from_slice(&(kept as u64).to_ne_bytes());
        out.extend_from_slice(parts[1]);
        out.extend_from_slice(&(copied as u64).to_ne_bytes());
        Some(())
    }
}

/// Whether samples with these fields have a copy of the stack, and nothing after it.
fn ends_with_copy(has: SampleType) -> bool {
    let after =
        has.bits() & !SampleType::IDENTIFIER.bits() & !(2 * SampleType::STACK_USER.bits() - 1);
    has.contains(SampleType::STACK_USER) && after == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(id: u64, size: usize, copied: usize) -> Vec<u8> {
        let stack: Vec<u8> = (0..size).map(|n| n as u8).collect();
        let length = (RecordHeader::SIZE + 3 * WORD + size) as u16;
        let mut bytes = RecordKind::SAMPLE.0.to_ne_bytes().to_vec();
        bytes.extend(2u16.to_ne_bytes());
        bytes.extend(length.to_ne_bytes());
        bytes.extend(id.to_ne_bytes());
        bytes.extend((size as u64).to_ne_bytes());
        bytes.extend(stack);
        bytes.extend((copied as u64).to_ne_bytes());
        bytes
    }

    fn attr(has: SampleType, size: u32) -> Attr {
        Attr {
            sample_type: SampleType::IDENTIFIER | has,
            sample_stack_user: size,
            ..Attr::default()
        }
    }

    #[test]
    fn copies_are_as_long_as_the_stack_was() {
        let (copy, other) = (attr(SampleType::STACK_USER, 64), attr(SampleType::RAW, 0));
        let events = [(&copy, &[1, 2][..]), (&other, &[3][..])];
        let mut copies = StackCopies::of_events(2, events.into_iter()).unwrap();
        // A cut copy, one with 13 bytes of the stack, one of the event without copies, one that the
        // kernel made smaller, and one of which nothing could be copied.
        let records = [
            sample(1, 64, 64),
            sample(2, 64, 13),
            sample(3, 64, 13),
            sample(1, 40, 40),
            sample(1, 64, 0),
        ];
        let mut short = sample(2, 24, 13);
        short[RecordHeader::SIZE + 8..][..8].copy_from_slice(&24u64.to_ne_bytes());
        let last = sample(1, 8, 0);
        let expected = [&records[0], &short, &records[2], &records[3], &last].map(Vec::as_slice);
        let all = records.concat();
        // Wherever the ring's end lies.
        for at in 0..=all.len() {
            let (first, second) = all.split_at(at);
            assert_eq!(copies.shorten(first, second), expected.concat(), "{at}");
        }
        // Without ids only one event is known.
        let unnamed = Attr { sample_type: SampleType::STACK_USER, ..copy };
        assert!(StackCopies::of_events(2, [(&unnamed, &[1][..])].into_iter()).is_none());
        assert!(StackCopies::of_events(1, [(&unnamed, &[][..])].into_iter()).is_some());
        let followed = attr(SampleType::STACK_USER | SampleType::CGROUP, 64);
        assert!(StackCopies::of_events(1, [(&followed, &[1][..])].into_iter()).is_none());
        let nothing = attr(SampleType::RAW, 0);
        assert!(StackCopies::of_events(1, [(&nothing, &[1][..])].into_iter()).is_none());
    }
}
