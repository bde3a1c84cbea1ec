//! Work beside the interpreter, which Ctrl-C ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use pyo3::prelude::*;

use crate::Error;

/// Signals are looked at so often.
const EVERY: Duration = Duration::from_millis(50);

/// Runs `work` on a thread of its own, without the interpreter's lock. A signal whose handler
/// raises (Ctrl-C) sets the flag, which ends the work.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    interrupted: &AtomicBool,
    work: impl FnOnce() -> Result<T, String> + Send,
) -> PyResult<T> {
    let (done, mut is_done) = channel::<()>();
    let result = std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let result = work();
            drop(done);
            result
        });
        let mut raised = None;
        loop {
            // A receiver can go to another thread, but not be shared with one.
            let receiver = &mut is_done;
            let received = py.detach(move || receiver.recv_timeout(EVERY));
            if received != Err(RecvTimeoutError::Timeout) {
                break;
            }
            if raised.is_none()
                && let Err(error) = py.check_signals()
            {
                interrupted.store(true, Ordering::Relaxed);
                raised = Some(error);
            }
        }
        let result = thread.join();
        interrupted.store(false, Ordering::Relaxed);
        raised.map_or(Ok(result), Err)
    })?;
    match result {
        Ok(result) => result.map_err(Error::new_err),
        Err(_) => Err(Error::new_err("an error in kymotrace itself: the work panicked")),
    }
}
