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
//! Only `(time, position)` pairs are sorted. The bytes stay in the blocks they
//! were read into; a [`Batch`] is some pairs and a share in the blocks.

use std::sync::Arc;

use kymo_model::{Endian, Misc, RawRecord, RecordHeader, RecordKind};

use super::block::Block;
use super::loss_watch::LossWatch;
use super::{Entry, EventDesc, Features, RecordOrder};

/// Bytes waiting for a round mark at which half of them are let go regardless. Of a mapped file an
/// eighth of them counts: its pages are the kernel's, which takes them back if it has to, and two
/// rounds of large rings on many CPUs are more than this.
const MAX_QUEUED: usize = 192 << 20;
const MAPPED_SHARE: usize = 8;
/// Bytes that are held back until each CPU has a later record, where losses are watched.
const HELD_FOR_LOSSES: usize = 32 << 20;
/// Records of a batch at most, and bytes of them or so: some work for a consumer's
/// core, not too much text.
const BATCH: usize = 4096;
const BATCH_BYTES: usize = 512 << 10;

/// Set in [`Key::event`] for records that are no samples.
const OTHER: u32 = 1 << 31;

#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// 0 for records without a time, so that they come first.
    pub(super) time: u64,
    /// Number of the block the record is in.
    pub(super) block: u32,
    /// Offset in the block.
    pub(super) at: u32,
    pub(super) event: u32,
}

/// Records in order of delivery, with a share in the bytes they lie in.
#[derive(Debug)]
pub struct Batch {
    pub(super) keys: Vec<Key>,
    pub(super) blocks: Arc<[Arc<Block>]>,
    pub(super) events: Arc<Vec<EventDesc>>,
    pub(super) features: Arc<Features>,
    pub(super) big_endian: bool,
}

impl Batch {
    /// The records.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry<'_>> {
        let endian = self.endian();
        self.keys.iter().map(move |key| self.entry(key, endian))
    }

    /// The records without samples of the events that are marked in `unwanted`, by number: not
    /// even the bytes of those are looked at.
    pub fn entries_without<'b>(&'b self, unwanted: &'b [bool]) -> impl Iterator<Item = Entry<'b>> {
        let endian = self.endian();
        // What is no sample has a number beyond all events.
        let is_wanted = |key: &&Key| !unwanted.get(key.event as usize).is_some_and(|is| *is);
        self.keys.iter().filter(is_wanted).map(move |key| self.entry(key, endian))
    }

    /// Times of the first and the last sample that state one.
    pub fn sample_span(&self) -> Option<(u64, u64)> {
        let times = self.keys.iter().filter(|key| key.event & OTHER == 0 && key.time != 0);
        times.map(|key| key.time).fold(None, |span, time| {
            let (first, last) = span.unwrap_or((time, time));
            Some((first.min(time), last.max(time)))
        })
    }

    /// Leaves out the records that `keep` does not want.
    pub fn retain(&mut self, mut keep: impl FnMut(&Entry<'_>) -> bool) {
        let mut keys = std::mem::take(&mut self.keys);
        let endian = self.endian();
        keys.retain(|key| keep(&self.entry(key, endian)));
        self.keys = keys;
    }

    /// A record by its place among them.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Entry<'_>> {
        self.keys.get(index).map(|key| self.entry(key, self.endian()))
    }

    /// Returns the record of a known header without reading its bytes.
    #[inline]
    pub fn get_with_header(&self, index: usize, header: RecordHeader) -> Option<Entry<'_>> {
        self.keys.get(index).map(|key| {
            let record = self.record(key);
            self.entry_of(key, header, record, self.endian())
        })
    }

    /// Those that are no samples: what changes the meaning of later ones.
    pub fn others(&self) -> impl Iterator<Item = Entry<'_>> {
        let endian = self.endian();
        let others = self.keys.iter().filter(|key| key.event & OTHER != 0);
        others.map(move |key| self.entry(key, endian))
    }

    /// Returns the records that are not samples, with their indexes among all records.
    pub fn numbered_others(&self) -> impl Iterator<Item = (usize, Entry<'_>)> {
        let endian = self.endian();
        let others = self.keys.iter().enumerate().filter(|(_, key)| key.event & OTHER != 0);
        others.map(move |(place, key)| (place, self.entry(key, endian)))
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

    /// Sets the facts known when the batch was made.
    pub(super) fn known(mut self, events: &Arc<Vec<EventDesc>>, features: &Arc<Features>) -> Self {
        self.events = Arc::clone(events);
        self.features = Arc::clone(features);
        self
    }

    fn endian(&self) -> Endian {
        if self.big_endian { Endian::Big } else { Endian::Little }
    }

    #[inline]
    pub(super) fn entry(&self, key: &Key, endian: Endian) -> Entry<'_> {
        let record = self.record(key);
        let header = RecordHeader::parse(record, endian).unwrap_or(RecordHeader {
            kind: RecordKind(0),
            misc: Misc(0),
            size: 8,
        });
        self.entry_of(key, header, record, endian)
    }

    /// Bytes of a record and what comes behind it. Keys are made by `Queue::push` only, for
    /// records that lie wholly in their block; but a mapped file may have been cut short since.
    #[inline]
    fn record(&self, key: &Key) -> &[u8] {
        let block = &self.blocks[key.block as usize];
        block.bytes().get(key.at as usize..).unwrap_or_default()
    }

    #[inline]
    fn entry_of<'b>(
        &'b self,
        key: &Key,
        header: RecordHeader,
        record: &'b [u8],
        endian: Endian,
    ) -> Entry<'b> {
        let raw = RawRecord {
            kind: header.kind,
            misc: header.misc,
            body: record.get(RecordHeader::SIZE..usize::from(header.size)).unwrap_or_default(),
            endian,
        };
        Entry {
            raw,
            event: (key.event & !OTHER) as usize,
            events: &self.events,
            features: &self.features,
            time: (key.time != 0).then_some(key.time),
            offset: self.blocks[key.block as usize].offset_of(key.at),
        }
    }
}

/// Records waiting for delivery.
pub(super) struct Queue {
    order: RecordOrder,
    endian: Endian,
    keys: Vec<Key>,
    /// Sealed blocks that keys point into. The block that is still being filled
    /// has the number behind the last.
    blocks: Vec<Arc<Block>>,
    /// Keys there are without those of the open block.
    sealed_keys: usize,
    /// Bytes of all blocks.
    bytes: usize,
    /// Memory they take, in bytes.
    weight: usize,
    /// Bytes needed before a flush is tried again, so that each flush moves a
    /// fair share of what it looks at.
    enough: usize,
    /// Less than this is not worth handing over.
    min_batch: usize,
    /// A round ended since the last flush.
    round_ended: bool,
    /// Everything up to here is complete.
    limit: u64,
    max_time: u64,
    delivered: u64,
    watch: Option<LossWatch>,
    pub(super) out_of_order: u64,
    pub(super) forced_flushes: u64,
}

impl Queue {
    pub(super) fn new(order: RecordOrder, endian: Endian, min_batch: usize) -> Queue {
        Queue {
            order,
            endian,
            keys: Vec::new(),
            blocks: Vec::new(),
            sealed_keys: 0,
            bytes: 0,
            weight: 0,
            enough: min_batch,
            min_batch,
            round_ended: false,
            limit: 0,
            max_time: 0,
            delivered: 0,
            watch: None,
            out_of_order: 0,
            forced_flushes: 0,
        }
    }

    /// Has losses watched, and records held back until they are known.
    pub(super) fn watch_losses(&mut self, watch: LossWatch) {
        self.watch = (self.order == RecordOrder::Time).then_some(watch);
    }

    /// Losses under way, and the time up to which records were delivered.
    #[inline]
    pub(super) fn watch(&mut self) -> Option<(&mut LossWatch, u64)> {
        self.watch.as_mut().map(|watch| (watch, self.delivered))
    }

    /// Takes note of a sample at `at` in the block that is being filled.
    #[inline]
    pub(super) fn push(&mut self, at: usize, time: Option<u64>, event: u32) {
        let time = time.unwrap_or(0);
        self.max_time = self.max_time.max(time);
        self.keys.push(Key { time, block: self.blocks.len() as u32, at: at as u32, event });
    }

    /// Adds a record that is not a sample.
    pub(super) fn push_other(&mut self, at: usize, time: Option<u64>, event: u32) {
        self.push(at, time, event | OTHER);
    }

    /// Whether records are handed on in the order of time.
    pub(super) fn is_by_time(&self) -> bool {
        self.order == RecordOrder::Time
    }

    /// Whether anything in the open block is waited for.
    pub(super) fn open_is_used(&self) -> bool {
        self.keys.len() > self.sealed_keys
    }

    /// The open block is full: takes it. The next begins.
    pub(super) fn seal(&mut self, block: Block) {
        self.bytes += cost(&block);
        self.weight += weight(&block);
        self.blocks.push(Arc::new(block));
        self.sealed_keys = self.keys.len();
    }

    /// A round mark was read.
    pub(super) fn round(&mut self, complete: &mut u64) {
        self.round_ended = true;
        self.limit = *complete;
        *complete = self.max_time;
    }

    /// Whether [`flush`](Self::flush) is worth calling, once all is sealed.
    pub(super) fn is_due(&self) -> bool {
        !self.open_is_used()
            && self.bytes >= self.enough
            && (self.round_ended || self.held() >= MAX_QUEUED || self.order == RecordOrder::File)
    }

    fn held(&self) -> usize {
        self.weight + self.keys.len() * size_of::<Key>()
    }

    /// Lets go what is complete; half of everything when too much waits.
    pub(super) fn flush(&mut self) -> Vec<Batch> {
        self.round_ended = false;
        if self.order == RecordOrder::File {
            return self.finish();
        }
        let forced = self.held() >= MAX_QUEUED;
        self.keys.sort_by_key(|k| k.time);
        let settled = match &self.watch {
            Some(watch) if self.bytes < HELD_FOR_LOSSES => watch.settled(),
            _ => u64::MAX,
        };
        let limit = self.limit.min(settled);
        let mut split = self.keys.partition_point(|k| k.time <= limit);
        if forced && split < self.keys.len() / 4 {
            split = self.keys.len().div_ceil(2);
            self.forced_flushes += 1;
        }
        let batches = self.split_off(split);
        self.enough = (self.bytes + self.bytes / 2 + self.min_batch).min(MAX_QUEUED / 2);
        batches
    }

    /// Lets everything go; all must be sealed.
    pub(super) fn finish(&mut self) -> Vec<Batch> {
        if let Some(watch) = &mut self.watch {
            watch.finish(self.delivered);
        }
        if self.order == RecordOrder::Time {
            self.keys.sort_by_key(|k| k.time);
        }
        self.split_off(self.keys.len())
    }

    /// The first `split` keys as batches.
    fn split_off(&mut self, split: usize) -> Vec<Batch> {
        let blocks: Arc<[Arc<Block>]> = self.blocks.as_slice().into();
        if self.order == RecordOrder::Time {
            let gone = &self.keys[..split];
            let late = gone.partition_point(|k| k.time < self.delivered);
            let untimed = gone.partition_point(|k| k.time == 0);
            self.out_of_order += (late - untimed.min(late)) as u64;
            self.delivered = gone.last().map_or(0, |k| k.time).max(self.delivered);
        }
        let big_endian = self.endian == Endian::Big;
        let batch = |keys: &[Key]| Batch {
            keys: keys.to_vec(),
            blocks: Arc::clone(&blocks),
            events: Arc::default(),
            features: Arc::default(),
            big_endian,
        };
        let each = self.bytes / self.keys.len().max(1);
        let size = (BATCH_BYTES / each.max(1)).clamp(64, BATCH);
        let batches = self.keys[..split].chunks(size).map(batch).collect();
        self.keys.drain(..split);
        self.sealed_keys = self.keys.len();
        self.forget_blocks();
        batches
    }

    /// Keeps only the blocks that something waits for, and numbers them anew.
    fn forget_blocks(&mut self) {
        const UNUSED: u32 = u32::MAX;
        let mut numbers = vec![UNUSED; self.blocks.len()];
        for key in &self.keys {
            if let Some(n) = numbers.get_mut(key.block as usize) {
                *n = 0;
            }
        }
        for (kept, n) in numbers.iter_mut().filter(|n| **n != UNUSED).enumerate() {
            *n = kept as u32;
        }
        let mut n = 0;
        self.blocks.retain(|_| {
            n += 1;
            numbers[n - 1] != UNUSED
        });
        for key in &mut self.keys {
            key.block = numbers.get(key.block as usize).copied().unwrap_or(UNUSED);
        }
        self.bytes = self.blocks.iter().map(|b| cost(b)).sum();
        self.weight = self.blocks.iter().map(|b| weight(b)).sum();
    }
}

/// The bytes that are held with a block.
fn cost(block: &Block) -> usize {
    block.bytes().len() + 128
}

/// Memory that holding the block takes, in bytes.
fn weight(block: &Block) -> usize {
    if block.is_mapped() { cost(block) / MAPPED_SHARE } else { cost(block) }
}

#[cfg(test)]
mod tests {
    use super::super::FileMapping;
    use super::super::block::Origin;
    use super::*;

    fn record(tag: u16) -> Vec<u8> {
        RecordHeader { kind: RecordKind::SAMPLE, misc: Misc(tag), size: 8 }.to_bytes().to_vec()
    }

    fn tags(batches: &[Batch]) -> Vec<u16> {
        batches.iter().flat_map(|b| b.entries().map(|e| e.raw.misc.0).collect::<Vec<_>>()).collect()
    }

    /// Each record in a block of its own, at offset 1000 and its tag.
    fn push(q: &mut Queue, tag: u16, time: Option<u64>) {
        q.push(0, time, 0);
        q.seal(Block::exact(&record(tag), Origin::From(1000 + u64::from(tag))));
    }

    #[test]
    fn a_round_lets_go_what_the_round_before_had_seen() {
        let mut q = Queue::new(RecordOrder::Time, Endian::NATIVE, 0);
        let mut complete = 0;
        for (t, tag) in [(10, 1), (12, 2), (11, 3)] {
            push(&mut q, tag, Some(t));
        }
        q.round(&mut complete);
        assert!(tags(&q.flush()).is_empty());
        for (t, tag) in [(20, 4), (13, 5)] {
            push(&mut q, tag, Some(t));
        }
        push(&mut q, 6, None);
        q.round(&mut complete);
        assert_eq!(tags(&q.flush()), [6, 1, 3, 2]);
        push(&mut q, 7, Some(5));
        assert_eq!(tags(&q.finish()), [7, 5, 4]);
        assert_eq!(q.out_of_order, 1);
    }

    /// Pages that have not been touched.
    #[derive(Debug)]
    struct Untouched(Vec<u8>);

    impl FileMapping for Untouched {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
        fn forget(&self, _: &[u8]) {}
        fn expect(&self, _: std::ops::Range<usize>) {}
        fn was_cut(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_mapped_file_may_have_rounds_beyond_the_limit() {
        let map: Arc<dyn FileMapping> = Arc::new(Untouched(vec![0; 2 * MAX_QUEUED]));
        let mut q = Queue::new(RecordOrder::Time, Endian::NATIVE, 0);
        for (n, time) in [(0, 20), (1, 10)] {
            q.push(0, Some(time), 0);
            q.seal(Block::mapped(&map, n * MAX_QUEUED..(n + 1) * MAX_QUEUED));
        }
        assert!(!q.is_due());
        q.round(&mut 0);
        assert!(q.is_due() && q.flush().is_empty());
        let offsets: Vec<u64> = q.finish()[0].entries().map(|e| e.offset).collect();
        assert_eq!(offsets, [MAX_QUEUED as u64, 0]);
        assert_eq!((q.forced_flushes, q.out_of_order, q.weight), (0, 0, 0));
    }

    #[test]
    fn records_wait_for_losses_within_a_limit() {
        let windows = kymo_model::LossWindows::default();
        let mut q = Queue::new(RecordOrder::Time, Endian::NATIVE, 0);
        q.watch_losses(LossWatch::new(windows.clone()));
        let mut complete = 0;
        let sample = |q: &mut Queue, tag, cpu, time| {
            q.watch().unwrap().0.sample(Some(cpu), time);
            push(q, tag, Some(time));
        };
        for (tag, cpu, time) in [(1, 0, 10), (2, 1, 11)] {
            sample(&mut q, tag, cpu, time);
        }
        q.round(&mut complete);
        sample(&mut q, 3, 1, 20);
        q.round(&mut complete);
        sample(&mut q, 4, 1, 30);
        q.round(&mut complete);
        // CPU 0 had nothing since: what it lost would be stated with its next record.
        assert_eq!(tags(&q.flush()), [1]);
        let (watch, delivered) = q.watch().unwrap();
        watch.sideband(RecordKind::LOST, None, (Some(0), 35), delivered);
        q.round(&mut complete);
        assert_eq!(tags(&q.flush()), [2, 3, 4]);
        assert_eq!((windows.to_spans(), windows.late()), (vec![(10, 35)], 0));
        // It stays silent for longer than records are held.
        q.push(0, Some(40), 0);
        q.seal(Block::exact(&vec![0; HELD_FOR_LOSSES], Origin::From(0)));
        sample(&mut q, 6, 1, 90);
        q.round(&mut complete);
        sample(&mut q, 7, 1, 99);
        q.round(&mut complete);
        assert_eq!(q.flush().iter().map(Batch::len).sum::<usize>(), 2);
    }

    #[test]
    fn samples_of_unwanted_events_are_passed_over() {
        let mut q = Queue::new(RecordOrder::Time, Endian::NATIVE, 0);
        for (tag, event) in [(1, 0), (2, 1), (3, 1 | OTHER), (4, 2)] {
            q.push(0, Some(u64::from(tag) * 10), event);
            q.seal(Block::exact(&record(tag), Origin::From(0)));
        }
        let batch = &q.finish()[0];
        let tags = |unwanted: &[bool]| -> Vec<u16> {
            batch.entries_without(unwanted).map(|e| e.raw.misc.0).collect()
        };
        assert_eq!(tags(&[]), [1, 2, 3, 4]);
        assert_eq!(tags(&[false, true]), [1, 3, 4]);
        assert_eq!(tags(&[true; 3]), [3]);
        assert_eq!(batch.sample_span(), Some((10, 40)));
    }

    #[test]
    fn equal_times_keep_the_files_order() {
        let mut q = Queue::new(RecordOrder::Time, Endian::NATIVE, 0);
        for tag in 0..100 {
            push(&mut q, tag, Some(7));
        }
        let batches = q.finish();
        assert_eq!(tags(&batches), (0..100).collect::<Vec<u16>>());
        let offsets = batches[0].entries().map(|e| e.offset);
        assert!(offsets.eq(1000..1100));
    }

    #[test]
    fn blocks_go_with_the_last_record_that_lies_in_them() {
        let mut q = Queue::new(RecordOrder::Time, Endian::NATIVE, 0);
        let mut complete = 0;
        push(&mut q, 1, Some(10));
        q.round(&mut complete);
        push(&mut q, 2, Some(30));
        push(&mut q, 3, Some(5));
        q.round(&mut complete);
        assert_eq!(tags(&q.flush()), [3, 1]);
        assert_eq!(q.blocks.len(), 1);
        assert_eq!(tags(&q.finish()), [2]);
        assert_eq!((q.blocks.len(), q.bytes), (0, 0), "{:?}", q.blocks);
    }
}
