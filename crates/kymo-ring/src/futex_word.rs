//! Wake-up of a sleeping reader: the reader sets a word before it checks for data and sleeps, and
//! the first writer with data clears it. The writer that clears it wakes the reader.
//! `loom_tests.rs` has a model of it.

use crate::sync::{AtomicU32, Ordering, fence};

/// The word. Zero: no reader sleeps.
#[repr(transparent)]
#[derive(Debug)]
pub struct FutexWord(AtomicU32);

impl FutexWord {
    /// Value that the reader writes before its last look and its sleep.
    pub const ARMED: [u8; 4] = [1, 0, 0, 0];

    /// A word that no reader has armed yet.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Called after a commit: whether a reader has to be woken. Of several callers, one receives
    /// `true`.
    pub fn is_wanted(&self) -> bool {
        // Pairs with the reader, who sets the word before it looks: either it sees what was
        // committed, or the word is seen here.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) != 0 && self.0.swap(0, Ordering::Relaxed) != 0
    }

    /// Address of the word for the kernel.
    #[cfg(not(loom))]
    pub fn as_ptr(&self) -> *mut u32 {
        self.0.as_ptr()
    }

    /// The reader's part: sets the word.
    #[cfg(loom)]
    pub(crate) fn arm(&self) {
        self.0.store(u32::from_ne_bytes(Self::ARMED), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The reader's part: whether it may sleep, as the kernel finds out.
    #[cfg(loom)]
    pub(crate) fn is_armed(&self) -> bool {
        self.0.load(Ordering::Relaxed) == u32::from_ne_bytes(Self::ARMED)
    }
}
