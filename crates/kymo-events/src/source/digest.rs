//! Events whose fields are read where the recording is: on the thread that reads a perf.data,
//! so that who follows them in their order has less to do for each.

use std::cell::OnceCell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kymo_files::perfdata::{Batch, Entry};
use kymo_model::{RecordHeader, RecordKind, Sample};
use kymo_symbols::Resolver;

use super::batch_reader::BatchReader;
use super::perf::{PerfClasses, PerfContext, PerfLane};
use super::registry::Registry;
use super::summary::PerfSummary;
use super::{EventSource, ReadOptions, ReadSummary, SourceError};
use crate::chain_frames::ChainFrame;
use crate::event::{EventBody, PerfState, RecordedEvent, TaskInfo};
use crate::selection::EventSelection;

/// Batches that wait at most: as records are sorted, many come in a burst, and then none for some
/// time.
const WAITING: usize = 32;
/// As many wait when the thread that reads digests: else who takes them does.
const AHEAD: usize = 8;

/// Reads of events what their consumer needs. Neither tasks nor symbols are known there: only
/// the class, time, CPU and fields of an event are.
pub trait EventDigester: Send {
    /// Digest of an event.
    type Digest: Copy + Send;

    /// Reads an event; events of which it makes nothing are not handed on.
    fn digest(&mut self, event: &RecordedEvent<'_>) -> Option<Self::Digest>;
}

/// A record, and what was read of it.
struct DigestedRecord<D> {
    /// Place in its batch.
    index: u32,
    header: RecordHeader,
    /// None of a record that is no sample.
    digest: Option<D>,
}

/// A batch, with the records of it that matter if they have been read.
struct DigestedBatch<D> {
    batch: Arc<Batch>,
    records: Option<Vec<DigestedRecord<D>>>,
}

/// Digests batches on one thread.
struct BatchDigester<'f, D> {
    digester: D,
    classes: PerfClasses,
    registry: Registry<'f>,
}

impl<D: EventDigester> BatchDigester<'_, D> {
    fn digest(&mut self, batch: &Batch, records: &mut Vec<DigestedRecord<D::Digest>>) {
        for index in 0..batch.len() {
            let Some(entry) = batch.get(index) else { continue };
            let header = RecordHeader {
                kind: entry.raw.kind,
                misc: entry.raw.misc,
                size: (RecordHeader::SIZE + entry.raw.body.len()) as u16,
            };
            let index = index as u32;
            if entry.raw.kind != RecordKind::SAMPLE {
                records.push(DigestedRecord { index, header, digest: None });
                continue;
            }
            let Some(class) = self.classes.class(&entry, 0, &mut self.registry) else { continue };
            if !self.registry.wants_layout(class.layout) {
                continue;
            }
            let body = EventBody::Perf { entry: &entry, sample: OnceCell::new(), state: &NoState };
            let event = RecordedEvent::new(class, entry.time, body);
            if let Some(digest) = self.digester.digest(&event) {
                records.push(DigestedRecord { index, header, digest: Some(digest) });
            }
        }
    }
}

/// State that the two threads share.
struct DigestQueue<D> {
    /// Batches that the consumer has not begun.
    waiting: AtomicUsize,
    /// Lists that were worked off, whose memory is used again.
    spare: Mutex<Vec<Vec<DigestedRecord<D>>>>,
}

impl<D> DigestQueue<D> {
    fn list(&self) -> Vec<DigestedRecord<D>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give_back(&self, mut list: Vec<DigestedRecord<D>>) {
        list.clear();
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(list);
    }
}

/// Nothing is known of the machine where records are read.
struct NoState;

impl PerfState for NoState {
    fn task(&self, pid: u32, tid: u32) -> TaskInfo {
        TaskInfo::unnamed(Some(pid), Some(tid), b"")
    }

    fn cgroup(&self, _id: u64) -> Option<Arc<[u8]>> {
        None
    }

    fn name(&self, _pid: u32, _addr: u64, _mode: u16) -> Option<String> {
        None
    }

    fn chain(&self, _entry: &Entry<'_>, _sample: &Sample<'_>) -> Vec<ChainFrame> {
        Vec::new()
    }

    fn with_symbols(&self, _see: &mut dyn FnMut(&Resolver)) {}

    fn write_payload(&self, _entry: &Entry<'_>, _raw: &[u8], _out: &mut Vec<u8>) {}
    fn write_message(&self, _entry: &Entry<'_>, _raw: &[u8], _out: &mut Vec<u8>) {}
}

impl EventSource {
    /// Hands the selected events to `sink` as [`for_each`](Self::for_each) does, each with what
    /// a digester read of it: one of several, which come back in the end.
    ///
    /// # Errors
    /// If reading fails, or the filter fits no event class.
    pub fn for_each_digest<D: EventDigester>(
        &self,
        selection: &EventSelection,
        options: ReadOptions,
        digester: impl Fn() -> D,
        mut sink: impl FnMut(&RecordedEvent<'_>, D::Digest) -> ControlFlow<()>,
    ) -> Result<(ReadSummary, Vec<D>), SourceError> {
        self.check(selection)?;
        // Conditions on tasks need the state of the machine.
        if self.is_one_perf_data() && selection.is_of_classes() && !options.without_perf_data {
            return self.digest_perf(selection, [digester(), digester()], sink);
        }
        let mut digester = digester();
        let summary =
            self.for_each(selection, options, &mut |event| match digester.digest(event) {
                Some(digest) => sink(event, digest),
                None => ControlFlow::Continue(()),
            })?;
        Ok((summary, vec![digester]))
    }

    fn digest_perf<D: EventDigester>(
        &self,
        selection: &EventSelection,
        digesters: [D; 2],
        mut sink: impl FnMut(&RecordedEvent<'_>, D::Digest) -> ControlFlow<()>,
    ) -> Result<(ReadSummary, Vec<D>), SourceError> {
        let (Some(recording), Some(context)) = (self.perf.first(), self.perf_context()) else {
            return Ok((ReadSummary::default(), digesters.into()));
        };
        let mut registry = Registry::new(selection);
        let mut lane = PerfLane::new(&context, 0);
        let [mut there, mut here] = digesters.map(|digester| BatchDigester {
            digester,
            classes: context.classes(),
            registry: registry.clone(),
        });
        let queue = DigestQueue { waiting: AtomicUsize::new(0), spare: Mutex::default() };
        let stats = std::thread::scope(|scope| {
            let reader =
                BatchReader::start(scope, (recording, WAITING), self.take_tee(), |batch| {
                    // Who has less to do digests.
                    let is_ahead = queue.waiting.fetch_add(1, Ordering::Relaxed) >= AHEAD;
                    let records = is_ahead.then(|| {
                        let mut records = queue.list();
                        there.digest(&batch, &mut records);
                        records
                    });
                    DigestedBatch { batch, records }
                });
            while let Some(read) = reader.next() {
                queue.waiting.fetch_sub(1, Ordering::Relaxed);
                let records = read.records.unwrap_or_else(|| {
                    let mut records = queue.list();
                    here.digest(&read.batch, &mut records);
                    records
                });
                let flow = hand_on(&read.batch, &records, &mut lane, &mut registry, &mut sink);
                queue.give_back(records);
                if flow.is_break() {
                    break;
                }
            }
            reader.finish()
        })?;
        let perf: Vec<_> =
            self.perf(0).map(|data| PerfSummary::new(&data, stats)).into_iter().collect();
        let mut summary = ReadSummary { perf, ..ReadSummary::default() };
        drop(lane);
        summary.add_samples(context.finish());
        Ok((summary, vec![there.digester, here.digester]))
    }
}

fn hand_on<D: Copy>(
    batch: &Batch,
    records: &[DigestedRecord<D>],
    lane: &mut PerfLane<&PerfContext>,
    registry: &mut Registry<'_>,
    sink: &mut impl FnMut(&RecordedEvent<'_>, D) -> ControlFlow<()>,
) -> ControlFlow<()> {
    for record in records {
        let Some(entry) = batch.get_with_header(record.index as usize, record.header) else {
            continue;
        };
        match record.digest {
            Some(digest) => lane.digested(&entry, registry, |event| sink(event, digest))?,
            None => lane.sideband(&entry),
        }
    }
    ControlFlow::Continue(())
}
