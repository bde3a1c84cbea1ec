//! Memory that one answer may take. Debugging information can refer to the same bytes
//! from many entries, and packed sections hold much in little, so the size of a file does
//! not bound what is made of it: whatever is kept of a unit is counted here, and given
//! back with the unit.

use std::cell::Cell;
use std::rc::Rc;

use super::{DwarfError, Result};

/// Bytes that one answer may take: a unit of a large program takes some megabytes.
pub(crate) const LIMIT: usize = 512 << 20;

/// Count of the bytes that are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryBudget {
    used: Rc<Cell<usize>>,
}

/// Bytes of one thing that is kept; dropped with it, which gives them back.
#[derive(Debug)]
pub(crate) struct MemoryCharge {
    used: Rc<Cell<usize>>,
    bytes: usize,
}

impl MemoryBudget {
    /// A thing that needs no bytes yet.
    pub(crate) fn open(&self) -> MemoryCharge {
        MemoryCharge { used: self.used.clone(), bytes: 0 }
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }
}

impl MemoryCharge {
    /// Counts bytes that are about to be kept.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<()> {
        let used = self.used.get().saturating_add(bytes);
        if used > LIMIT {
            return Err(DwarfError::TooMuchMemory { limit: LIMIT });
        }
        self.used.set(used);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        let used = self.used.get();
        debug_assert!(self.bytes <= used, "{} bytes are given back of {used}", self.bytes);
        self.used.set(used.saturating_sub(self.bytes));
    }
}
