//! Current activity of the program (reading, resolving), for progress output.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_RESOLVING: AtomicBool = AtomicBool::new(false);

/// Whether names of addresses are looked up; else recordings are read.
pub fn is_resolving() -> bool {
    IS_RESOLVING.load(Ordering::Relaxed)
}

pub(crate) fn set_resolving(is_resolving: bool) {
    IS_RESOLVING.store(is_resolving, Ordering::Relaxed);
}
