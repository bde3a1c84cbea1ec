//! Putting records in order of time within a bounded window.
//!
//! A recorder empties the rings of all CPUs in turn and then writes a round
//! mark (FINISHED_ROUND). What a ring held at the time of a visit is older
//! than what any ring will deliver two rounds later:
//!
//! ```text
//!   round 1        | round 2        | round 3
//!   cpu0 …10  cpu1 …12 | cpu0 …20  cpu1 …22 | …
//!                  ^ max 12         ^ all up to 12 can go: whatever comes
//!                                     from now on is later than 12
//! ```
//!
//! Only `(time, position)` pairs are sorted; the bytes stay where they are and
//! leave together with the pairs as a [`Batch`].

use std::sync::Arc;

use kymo_model::{Endian, Misc, RawRecord, RecordHeader, RecordKind};

use super::{Entry, EventDesc, Features, Order};

/// Bytes waiting for a round mark at which half of them are let go regardless.
const MAX_QUEUED: usize = 192 << 20;

/// Bytes handed over at once when no order is asked for.
const FILE_ORDER_BATCH: usize = 512 << 10;

/// The file offset stored in front of each record.
const PREFIX: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Key {
    /// 0 for records without a time, so that they come first.
    time: u64,
    /// Of the prefix, within the batch's bytes.
    at: u32,
    event: u32,
}

/// Records in order of delivery, with the bytes they lie in.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    keys: Vec<Key>,
    events: Arc<Vec<EventDesc>>,
    features: Arc<Features>,
    big_endian: bool,
}

impl Batch {
    /// The records.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry<'_>> {
        let endian = if self.big_endian { Endian::Big } else { Endian::Little };
        self.keys.iter().map(move |key| self.entry(key, endian))
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The events known when the batch was made.
    pub fn events(&self) -> &[EventDesc] {
        &self.events
    }

    /// The feature sections known when the batch was made.
    pub fn features(&self) -> &Features {
        &self.features
    }

    #[inline]
    fn entry(&self, key: &Key, endian: Endian) -> Entry<'_> {
        // Keys are made by `Queue::push` only, which put prefix and record there.
        let (prefix, record) = self.bytes[key.at as usize..].split_at(PREFIX);
        let mut offset = [0; PREFIX];
        offset.copy_from_slice(prefix);
        let header = RecordHeader::parse(record, endian).unwrap_or(RecordHeader {
            kind: RecordKind(0),
            misc: Misc(0),
            size: 8,
        });
        let raw = RawRecord {
            kind: header.kind,
            misc: header.misc,
            body: &record[RecordHeader::SIZE..usize::from(header.size)],
            endian,
        };
        Entry {
            raw,
            event: key.event as usize,
            events: &self.events,
            features: &self.features,
            time: (key.time != 0).then_some(key.time),
            offset: u64::from_ne_bytes(offset),
        }
    }
}

/// Records waiting for delivery.
pub(super) struct Queue {
    order: Order,
    endian: Endian,
    bytes: Vec<u8>,
    keys: Vec<Key>,
    /// Bytes needed before a flush is tried again, so that each flush moves a
    /// fair share of what it looks at.
    enough: usize,
    /// Batches smaller than this are not worth handing over.
    min_batch: usize,
    /// A round ended since the last flush.
    round_ended: bool,
    /// Everything up to here is complete.
    limit: u64,
    max_time: u64,
    delivered: u64,
    spare: Vec<Batch>,
    pub(super) out_of_order: u64,
    pub(super) forced_flushes: u64,
}

impl Queue {
    pub(super) fn new(order: Order, endian: Endian, min_batch: usize) -> Queue {
        Queue {
            order,
            endian,
            bytes: Vec::new(),
            keys: Vec::new(),
            enough: min_batch,
            min_batch,
            round_ended: false,
            limit: 0,
            max_time: 0,
            delivered: 0,
            spare: Vec::new(),
            out_of_order: 0,
            forced_flushes: 0,
        }
    }

    /// Takes a whole record, its header included.
    #[inline]
    pub(super) fn push(&mut self, offset: u64, record: &[u8], time: Option<u64>, event: u32) {
        let time = time.unwrap_or(0);
        self.max_time = self.max_time.max(time);
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&offset.to_ne_bytes());
        self.bytes.extend_from_slice(record);
        self.keys.push(Key { time, at, event });
    }

    /// Takes back a batch for its memory.
    pub(super) fn recycle(&mut self, mut batch: Batch) {
        if self.spare.len() < 2 {
            batch.bytes.clear();
            batch.keys.clear();
            self.spare.push(batch);
        }
    }

    /// A round mark was read.
    pub(super) fn round(&mut self, complete: &mut u64) {
        self.round_ended = true;
        self.limit = *complete;
        *complete = self.max_time;
    }

    /// Whether [`flush`](Self::flush) is worth calling.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        let have = self.bytes.len();
        have >= self.enough
            && (self.round_ended
                || have >= MAX_QUEUED
                || (self.order == Order::File && have >= FILE_ORDER_BATCH))
    }

    /// Lets go what is complete; half of everything when too much waits.
    pub(super) fn flush(&mut self) -> Option<Batch> {
        self.round_ended = false;
        if self.order == Order::File {
            return self.finish();
        }
        let forced = self.bytes.len() >= MAX_QUEUED;
        self.keys.sort_by_key(|k| k.time);
        let mut split = self.keys.partition_point(|k| k.time <= self.limit);
        if forced && split < self.keys.len() / 4 {
            split = self.keys.len().div_ceil(2);
            self.forced_flushes += 1;
        }
        let batch = self.split_off(split);
        self.enough = (self.bytes.len() + self.bytes.len() / 2 + self.min_batch).min(MAX_QUEUED);
        batch
    }

    /// Lets everything go.
    pub(super) fn finish(&mut self) -> Option<Batch> {
        if self.order == Order::Time {
            self.keys.sort_by_key(|k| k.time);
        }
        self.split_off(self.keys.len())
    }

    fn split_off(&mut self, split: usize) -> Option<Batch> {
        if split == 0 {
            return None;
        }
        let mut next = self.spare.pop().unwrap_or_default();
        for key in &self.keys[split..] {
            let from = key.at as usize;
            let header = &self.bytes[from + PREFIX..];
            let size = RecordHeader::parse(header, self.endian).map_or(8, |h| usize::from(h.size));
            let at = next.bytes.len() as u32;
            next.bytes.extend_from_slice(&self.bytes[from..from + PREFIX + size]);
            next.keys.push(Key { at, ..*key });
        }
        self.keys.truncate(split);
        if self.order == Order::Time {
            let late = self.keys.partition_point(|k| k.time < self.delivered);
            let untimed = self.keys.partition_point(|k| k.time == 0);
            self.out_of_order += (late - untimed.min(late)) as u64;
            self.delivered = self.keys.last().map_or(0, |k| k.time).max(self.delivered);
        }
        let bytes = std::mem::replace(&mut self.bytes, next.bytes);
        let keys = std::mem::replace(&mut self.keys, next.keys);
        let big_endian = self.endian == Endian::Big;
        Some(Batch { bytes, keys, big_endian, ..Batch::default() })
    }
}

impl Batch {
    /// Says what was known when the batch was made.
    pub(super) fn known(mut self, events: &Arc<Vec<EventDesc>>, features: &Arc<Features>) -> Self {
        self.events = Arc::clone(events);
        self.features = Arc::clone(features);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tag: u16) -> Vec<u8> {
        RecordHeader { kind: RecordKind::SAMPLE, misc: Misc(tag), size: 8 }.to_bytes().to_vec()
    }

    fn tags(batch: &Option<Batch>) -> Vec<u16> {
        batch.iter().flat_map(|b| b.entries().map(|e| e.raw.misc.0).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn a_round_lets_go_what_the_round_before_had_seen() {
        let mut q = Queue::new(Order::Time, Endian::NATIVE, 0);
        let mut complete = 0;
        for (t, tag) in [(10, 1), (12, 2), (11, 3)] {
            q.push(0, &record(tag), Some(t), 0);
        }
        q.round(&mut complete);
        assert!(tags(&q.flush()).is_empty());
        for (t, tag) in [(20, 4), (13, 5)] {
            q.push(0, &record(tag), Some(t), 0);
        }
        q.push(0, &record(6), None, 0);
        q.round(&mut complete);
        assert_eq!(tags(&q.flush()), [6, 1, 3, 2]);
        q.push(0, &record(7), Some(5), 0);
        assert_eq!(tags(&q.finish()), [7, 5, 4]);
        assert_eq!(q.out_of_order, 1);
    }

    #[test]
    fn equal_times_keep_the_files_order() {
        let mut q = Queue::new(Order::Time, Endian::NATIVE, 0);
        for tag in 0..100 {
            q.push(u64::from(tag), &record(tag), Some(7), 0);
        }
        let batch = q.finish().unwrap();
        assert!(batch.entries().enumerate().all(|(i, e)| e.offset == i as u64));
    }
}
