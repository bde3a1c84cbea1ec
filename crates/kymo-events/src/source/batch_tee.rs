//! Batches of one perf.data for a second consumer beside the one that reads it, so that both
//! see all records of one reading.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};

use kymo_files::perfdata::{Batch, PerfDataReadStats};

use super::EventSource;
use super::batch_reader::WAITING_FOR_TWO;

/// End of the thread that reads.
pub(super) struct BatchTee {
    sender: SyncSender<Teed>,
    is_wanted: bool,
}

/// End of the second consumer, which takes what comes or drops it.
pub struct TeedBatches(Receiver<Teed>);

enum Teed {
    Batch(Arc<Batch>),
    End(Box<PerfDataReadStats>),
}

impl EventSource {
    /// Whether it is one perf.data alone.
    pub fn is_one_perf_data(&self) -> bool {
        self.perf.len() == 1 && self.timeline.is_none()
    }

    /// Runs two consumers of one reading of one perf.data: `first` reads this source, and
    /// `second` has all batches of it, on a thread of its own.
    pub fn read_for_two<A, B: Send>(
        &self,
        first: impl FnOnce() -> A,
        second: impl FnOnce(TeedBatches) -> B + Send,
    ) -> (A, B) {
        let (sender, batches) = sync_channel(WAITING_FOR_TWO);
        if let Some(mut data) = self.perf(0).filter(|_| self.is_one_perf_data()) {
            // Some bytes of the records are read by neither.
            crate::mapped::map_any(&mut data);
            let tee = BatchTee { sender, is_wanted: true };
            *self.tee.lock().unwrap_or_else(PoisonError::into_inner) = Some(tee);
        }
        std::thread::scope(|scope| {
            let second = scope.spawn(move || second(TeedBatches(batches)));
            let first = first();
            // Still there if nothing was read.
            drop(self.take_tee());
            (first, second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    pub(super) fn take_tee(&self) -> Option<BatchTee> {
        self.tee.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl BatchTee {
    /// Hands a batch on; whether more are wanted.
    pub(super) fn give(&mut self, batch: &Arc<Batch>) -> bool {
        self.is_wanted = self.is_wanted && self.sender.send(Teed::Batch(Arc::clone(batch))).is_ok();
        self.is_wanted
    }

    /// All was read.
    pub(super) fn end(self, stats: PerfDataReadStats) {
        // The consumer may have ended.
        _ = self.sender.send(Teed::End(Box::new(stats)));
    }
}

impl TeedBatches {
    /// Hands on all batches; what was read. The statistics of a reading that failed are empty:
    /// its error goes to the first consumer.
    pub fn for_each(
        &self,
        sink: &mut dyn FnMut(Arc<Batch>) -> ControlFlow<()>,
    ) -> PerfDataReadStats {
        for teed in &self.0 {
            match teed {
                Teed::Batch(batch) => {
                    if sink(batch).is_break() {
                        break;
                    }
                }
                Teed::End(stats) => return *stats,
            }
        }
        PerfDataReadStats::default()
    }
}
