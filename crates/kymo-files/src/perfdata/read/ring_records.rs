//! Records of rings that are read while the kernel writes them, in the order of time: what
//! the reader of files does with records and round marks, without a file between.

use std::ops::ControlFlow;
use std::sync::Arc;

use kymo_model::{Endian, RecordHeader, RecordKind};

use super::block::{Block, Origin, Pool};
use super::event_ids::EventIds;
use super::order::{Batch, Queue};
use super::{EventDesc, Features, PerfDataReadStats, RecordOrder};

/// Puts the records of several rings in order.
///
/// All rings are emptied in turn, then the round ends. What is older than anything that
/// was there when the round before ended is complete.
pub struct RingRecords {
    events: Arc<Vec<EventDesc>>,
    features: Arc<Features>,
    ids: EventIds,
    queue: Queue,
    pool: Arc<Pool>,
    /// Largest time seen when the last round ended.
    complete: u64,
    stats: PerfDataReadStats,
}

impl RingRecords {
    /// Records of these events.
    pub fn new(events: Vec<EventDesc>, features: Features) -> RingRecords {
        RingRecords {
            ids: EventIds::new(&events),
            events: Arc::new(events),
            features: Arc::new(features),
            queue: Queue::new(RecordOrder::Time, Endian::NATIVE, 0),
            pool: Arc::default(),
            complete: 0,
            stats: PerfDataReadStats::default(),
        }
    }

    /// Takes whole records that lie in two pieces, of which the first may end in a record that
    /// the second begins with.
    pub fn push(&mut self, first: &[u8], second: &[u8]) {
        let all = first.len() + second.len();
        let mut buffer = self.pool.take(all);
        for (place, part) in [(0, first), (first.len(), second)] {
            if let Some(to) = buffer.get_mut(place..place + part.len()) {
                to.copy_from_slice(part);
            }
        }
        let (bytes, mut at) = (buffer.get(..all).unwrap_or_default(), 0);
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let header = RecordHeader::parse(rest, Endian::NATIVE).ok();
            let record = header.and_then(|h| Some((h, rest.get(..usize::from(h.size))?)));
            let Some((header, body)) =
                record.and_then(|(h, record)| Some((h, record.get(RecordHeader::SIZE..)?)))
            else {
                // The kernel writes whole records.
                self.stats.malformed += 1;
                break;
            };
            self.record(header, body, at);
            at += usize::from(header.size);
        }
        self.stats.bytes += all as u64;
        if self.queue.open_is_used() {
            self.queue.seal(Block::pooled(buffer, all, Origin::From(0), &self.pool))
        } else {
            self.pool.give(buffer)
        }
    }

    fn record(&mut self, header: RecordHeader, body: &[u8], at: usize) {
        self.stats.records += 1;
        let is_sample = header.kind == RecordKind::SAMPLE;
        let found = if is_sample {
            self.ids.sample(body, Endian::NATIVE)
        } else {
            self.ids.sideband(header.kind, body, Endian::NATIVE)
        };
        match found {
            Err(why) => self.stats.count_unusable(why),
            Ok((event, time)) if is_sample => {
                self.stats.samples += 1;
                self.queue.push(at, time, event);
            }
            Ok((event, time)) => {
                self.stats.count_sideband(header, body, (time, Endian::NATIVE));
                self.queue.push_other(at, time, event);
            }
        }
    }

    /// All rings were read: hands over what is complete, by time.
    pub fn end_round(&mut self, sink: &mut dyn FnMut(Batch) -> ControlFlow<()>) -> ControlFlow<()> {
        self.queue.round(&mut self.complete);
        let batches = self.queue.flush();
        self.give(batches, sink)
    }

    /// Nothing more comes: hands over the rest.
    pub fn finish(&mut self, sink: &mut dyn FnMut(Batch) -> ControlFlow<()>) -> ControlFlow<()> {
        let batches = self.queue.finish();
        self.give(batches, sink)
    }

    fn give(
        &self,
        batches: Vec<Batch>,
        sink: &mut dyn FnMut(Batch) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        batches.into_iter().try_for_each(|batch| sink(batch.known(&self.events, &self.features)))
    }

    /// Records that were lost, as LOST records say.
    pub fn lost(&self) -> u64 {
        self.stats.lost
    }

    /// Statistics of the records read.
    pub fn stats(&self) -> PerfDataReadStats {
        PerfDataReadStats {
            out_of_order: self.queue.out_of_order,
            forced_flushes: self.queue.forced_flushes,
            ..self.stats.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use kymo_model::{Attr, AttrFlags, SampleType};

    use super::*;

    /// A sample of time alone, or a LOST record with its time.
    fn record(kind: RecordKind, words: &[u64]) -> Vec<u8> {
        let size = (RecordHeader::SIZE + 8 * words.len()) as u16;
        let mut bytes = [&kind.0.to_ne_bytes()[..], &[0, 0], &size.to_ne_bytes()].concat();
        words.iter().for_each(|w| bytes.extend_from_slice(&w.to_ne_bytes()));
        bytes
    }

    fn sample(time: u64) -> Vec<u8> {
        record(RecordKind::SAMPLE, &[time])
    }

    fn made() -> RingRecords {
        let attr = Attr {
            sample_type: SampleType::TIME,
            flags: AttrFlags::SAMPLE_ID_ALL,
            ..Attr::default()
        };
        let event = EventDesc { attr, ids: vec![7], ..EventDesc::default() };
        RingRecords::new(vec![event], Features::default())
    }

    fn times(of: impl FnOnce(&mut dyn FnMut(Batch) -> ControlFlow<()>)) -> Vec<u64> {
        let mut times = Vec::new();
        of(&mut |batch| {
            times.extend(batch.entries().filter_map(|e| e.time));
            ControlFlow::Continue(())
        });
        times
    }

    #[test]
    fn records_wait_until_no_ring_can_have_an_older_one() {
        let mut rings = made();
        // The second record lies across the end of the ring.
        let (a, b) = (sample(30), sample(50));
        rings.push(&[&a[..], &b[..5]].concat(), &b[5..]);
        rings.push(&sample(20), &[]);
        assert_eq!(times(|sink| _ = rings.end_round(sink)), [0; 0]);
        rings.push(&sample(40), &[]);
        rings.push(&sample(60), &record(RecordKind::LOST, &[7, 3, 55]));
        assert_eq!(times(|sink| _ = rings.end_round(sink)), [20, 30, 40, 50]);
        // Nothing came meanwhile: so nothing older can.
        assert_eq!(times(|sink| _ = rings.end_round(sink)), [55, 60]);
        rings.push(&sample(70), &[]);
        assert_eq!(times(|sink| _ = rings.finish(sink)), [70]);
        let stats = rings.stats();
        assert_eq!((stats.samples, stats.lost, stats.out_of_order), (6, 3, 0));
        assert_eq!(stats.malformed, 0);
    }

    #[test]
    fn bytes_that_are_no_records_are_counted() {
        let mut rings = made();
        rings.push(&[0; 24], &[1]);
        rings.push(&sample(5)[..9], &[]);
        assert_eq!(times(|sink| _ = rings.finish(sink)), [0; 0]);
        assert_eq!(rings.stats().malformed, 2);
    }
}
