//! Events on their way to those who render them, copied together.

use kymo_files::ctf::read::{Event, Packed};

/// An event of a batch.
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) time: u64,
    pub(super) class: u32,
    pub(super) cpu: Option<u32>,
    /// Events lost before it; 0 for none.
    pub(super) missed: u64,
    pub(super) body: Packed,
}

/// Events that are rendered together.
#[derive(Default)]
pub(in crate::commands::script) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) items: Vec<Item>,
}

impl Batch {
    /// Bytes that it holds.
    pub(in crate::commands::script) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds an event.
    #[inline]
    pub(in crate::commands::script) fn push(&mut self, e: &Event<'_>) {
        let body = e.body.pack(&mut self.bytes);
        let missed = e.missed.unwrap_or(0);
        self.items.push(Item { time: e.time, class: e.class, cpu: e.cpu, missed, body });
    }
}
