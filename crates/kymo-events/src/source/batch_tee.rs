//! Batches of one perf.data for two who work on them at the same time, read and ordered once.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use kymo_files::perfdata::{Batch, PerfDataReadStats};

use super::batch_reader::WAITING_FOR_TWO;

/// Hands on what its owner reads.
pub struct BatchTee {
    sender: SyncSender<Teed>,
}

/// What somebody else reads.
pub struct TeedBatches(Receiver<Teed>);

enum Teed {
    Batch(Arc<Batch>),
    End(Box<PerfDataReadStats>),
}

impl BatchTee {
    /// The two ends. Who has the other one must take what comes, or drop it.
    pub fn new() -> (BatchTee, TeedBatches) {
        let (sender, batches) = sync_channel(WAITING_FOR_TWO);
        (BatchTee { sender }, TeedBatches(batches))
    }

    pub(super) fn give(&mut self, batch: &Arc<Batch>) {
        // Nobody may want them any more.
        _ = self.sender.send(Teed::Batch(Arc::clone(batch)));
    }

    /// All was read.
    pub fn end(self, stats: PerfDataReadStats) {
        _ = self.sender.send(Teed::End(Box::new(stats)));
    }
}

impl TeedBatches {
    /// Hands on all batches; what was read. Nothing is known of a reading that failed.
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
