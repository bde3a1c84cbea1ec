//! A perf.data that is read and ordered by a thread of its own, beside who looks at its records.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use kymo_files::perfdata::{Batch, PerfData, PerfDataReadError, PerfDataReadStats, RecordOrder};

/// Batches that wait at most.
const WAITING: usize = 2;

/// Batches of one recording by time.
pub(super) struct BatchReader<'s> {
    batches: Receiver<Batch>,
    thread: ScopedJoinHandle<'s, Result<PerfDataReadStats, PerfDataReadError>>,
}

impl<'s> BatchReader<'s> {
    /// Begins to read; the recording is locked until the reader is finished.
    pub(super) fn start(scope: &'s Scope<'s, '_>, data: &'s Mutex<PerfData>) -> BatchReader<'s> {
        let (sender, batches) = sync_channel(WAITING);
        let thread = scope.spawn(move || {
            let mut data = data.lock().unwrap_or_else(PoisonError::into_inner);
            data.for_each_batch(RecordOrder::Time, &mut |batch| match sender.send(batch) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            })
        });
        BatchReader { batches, thread }
    }

    /// The next batch, once it is there.
    pub(super) fn next_batch(&self) -> Option<Batch> {
        self.batches.recv().ok()
    }

    /// What was read; a reader that still has something to hand over ends.
    ///
    /// # Errors
    /// If reading failed.
    pub(super) fn finish(self) -> Result<PerfDataReadStats, PerfDataReadError> {
        drop(self.batches);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
