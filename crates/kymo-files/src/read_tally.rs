//! Count of the bytes that readers took from recordings: tests check that a command reads each
//! byte of a file once.

use std::sync::atomic::{AtomicU64, Ordering};

static BYTES: AtomicU64 = AtomicU64::new(0);

/// Adds bytes of a recording that were read, or walked where the file is mapped.
pub(crate) fn add(bytes: u64) {
    BYTES.fetch_add(bytes, Ordering::Relaxed);
}

/// Bytes of recordings that this process has read.
pub fn bytes_read() -> u64 {
    BYTES.load(Ordering::Relaxed)
}
