//! Several perf.data by time, each read and ordered by a thread of its own.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use kymo_files::perfdata::{
    Batch, Entry, PerfData, PerfDataReadError, PerfDataReadStats, RecordOrder,
};

use super::perf::{PerfContext, PerfLane};

/// Batches that wait at most for each recording that is merged.
const WAITING: usize = 2;

/// A recording that is read by a thread of its own.
struct BatchLane<'s> {
    batches: Receiver<Batch>,
    batch: Option<Batch>,
    at: usize,
    reader: ScopedJoinHandle<'s, Result<PerfDataReadStats, PerfDataReadError>>,
}

impl BatchLane<'_> {
    /// Waits for the next batch if there is none; its next record's time.
    fn time(&mut self) -> Option<u64> {
        loop {
            if let Some(batch) = &self.batch
                && let Some(entry) = batch.get(self.at)
            {
                return Some(entry.time.unwrap_or(0));
            }
            self.batch = Some(self.batches.recv().ok()?);
            self.at = 0;
        }
    }
}

/// Several recordings by time.
pub(super) struct BatchMerge<'s, 'c> {
    readers: Vec<BatchLane<'s>>,
    lanes: Vec<PerfLane<&'c PerfContext>>,
}

impl<'s, 'c> BatchMerge<'s, 'c> {
    pub(super) fn start(
        scope: &'s Scope<'s, '_>,
        perf: &'s [Mutex<PerfData>],
        contexts: &'c [PerfContext],
    ) -> BatchMerge<'s, 'c> {
        let reader = |data: &'s Mutex<PerfData>| {
            let (sender, batches) = sync_channel(WAITING);
            let reader = scope.spawn(move || {
                let mut data = data.lock().unwrap_or_else(PoisonError::into_inner);
                data.for_each_batch(RecordOrder::Time, &mut |batch| match sender.send(batch) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                })
            });
            BatchLane { batches, batch: None, at: 0, reader }
        };
        let lanes = contexts.iter().enumerate().map(|(n, c)| PerfLane::new(c, n)).collect();
        BatchMerge { readers: perf.iter().map(reader).collect(), lanes }
    }

    /// The earliest record that was not yet handed out, and its recording.
    pub(super) fn next(&mut self) -> Option<(&mut PerfLane<&'c PerfContext>, Entry<'_>)> {
        let times = self.readers.iter_mut().enumerate().filter_map(|(n, r)| Some((r.time()?, n)));
        let (_, n) = times.min()?;
        let (reader, lane) = (self.readers.get_mut(n)?, self.lanes.get_mut(n)?);
        reader.at += 1;
        let entry = reader.batch.as_ref()?.get(reader.at - 1)?;
        Some((lane, entry))
    }

    /// What was read of each.
    pub(super) fn finish(self) -> Vec<Result<PerfDataReadStats, PerfDataReadError>> {
        let join = |reader: BatchLane<'_>| {
            // A reader that still has something to say ends at its next word.
            drop(reader.batches);
            reader.reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        self.readers.into_iter().map(join).collect()
    }
}
