//! A perf.data that is read and ordered by a thread of its own, beside who looks at its records.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use kymo_files::perfdata::{Batch, PerfData, PerfDataReadError, PerfDataReadStats, RecordOrder};

/// Batches that wait at most, where all of them are worked on by one who takes them.
pub(super) const WAITING: usize = 2;

/// The same where two work on them: records come in order by many batches at once, and while the
/// next are put in order there must be enough to do for both. That is some 16 MiB of records.
pub(super) const WAITING_FOR_TWO: usize = 32;

/// Batches of one recording by time, as they were prepared where they are read.
pub(super) struct BatchReader<'s, T> {
    batches: Receiver<T>,
    thread: ScopedJoinHandle<'s, Result<PerfDataReadStats, PerfDataReadError>>,
}

impl<'s, T: Send + 's> BatchReader<'s, T> {
    /// Begins to read; the recording is locked until the reader is finished. `prepare` works
    /// on each batch on the thread that reads, at most `waiting` wait then.
    pub(super) fn start(
        scope: &'s Scope<'s, '_>,
        (data, waiting): (&'s Mutex<PerfData>, usize),
        mut prepare: impl FnMut(Batch) -> T + Send + 's,
    ) -> BatchReader<'s, T> {
        let (sender, batches) = sync_channel(waiting);
        let thread = scope.spawn(move || {
            let mut data = data.lock().unwrap_or_else(PoisonError::into_inner);
            data.for_each_batch(RecordOrder::Time, &mut |batch| match sender.send(prepare(batch)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            })
        });
        BatchReader { batches, thread }
    }

    /// The next batch, once it is there.
    pub(super) fn next(&self) -> Option<T> {
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
