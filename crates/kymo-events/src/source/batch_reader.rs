//! A perf.data that is read and ordered by a thread of its own, beside who looks at its records.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use kymo_files::perfdata::{Batch, PerfData, PerfDataReadError, PerfDataReadStats, RecordOrder};

use super::batch_tee::BatchTee;

/// Batches that wait at most, where all of them are worked on by one who takes them.
pub(super) const WAITING: usize = 2;

/// [`WAITING`] with two consumers: records come in order by many batches in a row, and while the
/// next are sorted there must be enough work for both. That is some 16 MiB of records.
pub(super) const WAITING_FOR_TWO: usize = 32;

/// Batches of one recording by time, as they were prepared where they are read.
pub(super) struct BatchReader<'s, T> {
    batches: Receiver<T>,
    thread: ScopedJoinHandle<'s, Result<PerfDataReadStats, PerfDataReadError>>,
}

impl<'s, T: Send + 's> BatchReader<'s, T> {
    /// Begins to read; the recording is locked until the reader is finished. `prepare` works
    /// on each batch on the thread that reads, at most `waiting` wait then. A second consumer
    /// gets all batches, also where the first one wants no more.
    pub(super) fn start(
        scope: &'s Scope<'s, '_>,
        (data, waiting): (&'s Mutex<PerfData>, usize),
        mut tee: Option<BatchTee>,
        mut prepare: impl FnMut(Arc<Batch>) -> T + Send + 's,
    ) -> BatchReader<'s, T> {
        let (sender, batches) = sync_channel(waiting);
        let thread = scope.spawn(move || {
            let mut data = data.lock().unwrap_or_else(PoisonError::into_inner);
            let mut is_wanted = true;
            let stats = data.for_each_batch(RecordOrder::Time, &mut |batch| {
                let batch = Arc::new(batch);
                let is_shared = tee.as_mut().is_some_and(|tee| tee.give(&batch));
                is_wanted = is_wanted && sender.send(prepare(batch)).is_ok();
                if is_wanted || is_shared {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
            if let Some(tee) = tee {
                tee.end(stats.clone());
            }
            Ok(stats)
        });
        BatchReader { batches, thread }
    }

    /// The next batch, once it is there.
    pub(super) fn next(&self) -> Option<T> {
        self.batches.recv().ok()
    }

    /// Ends the reader and returns its statistics; batches that it still holds are dropped.
    ///
    /// # Errors
    /// If reading failed.
    pub(super) fn finish(self) -> Result<PerfDataReadStats, PerfDataReadError> {
        drop(self.batches);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
