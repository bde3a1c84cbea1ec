//! Events on their way to those who render them, copied together.

use kymo_files::ctf::read::{CtfEvent, Packed, Run};

/// An event of a batch.
#[derive(Clone, Copy)]
pub(super) struct CtfItem {
    pub(super) time: u64,
    pub(super) class: u32,
    /// Its place among [`CtfBatch::sources`].
    source: u32,
    pub(super) body: Packed,
}

/// Origin of an event.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EventOrigin {
    pub(super) cpu: Option<u32>,
    /// Events lost before it; 0 for none.
    pub(super) missed: u64,
}

/// Events that are rendered together.
#[derive(Default)]
pub(crate) struct CtfBatch {
    pub(super) bytes: Vec<u8>,
    pub(super) items: Vec<CtfItem>,
    sources: Vec<EventOrigin>,
}

impl CtfBatch {
    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds an event.
    #[inline]
    pub(crate) fn push(&mut self, e: &CtfEvent<'_>) {
        let body = e.body.pack(&mut self.bytes);
        let source = self.source_of(EventOrigin { cpu: e.cpu, missed: e.missed.unwrap_or(0) });
        self.items.push(CtfItem { time: e.time, class: e.class, source, body });
    }

    /// Adds events that belong together.
    pub(crate) fn push_run(&mut self, run: &Run<'_>) {
        let source = self.source_of(EventOrigin { cpu: run.cpu, missed: 0 });
        let items = &mut self.items;
        items.reserve(run.events.len());
        run.pack(&mut self.bytes, |e, body| {
            items.push(CtfItem { time: e.time, class: e.class, source, body });
        });
    }

    /// Origin of an event of the batch.
    #[inline]
    pub(super) fn source(&self, item: &CtfItem) -> EventOrigin {
        self.sources.get(item.source as usize).copied().unwrap_or_default()
    }

    #[inline]
    fn source_of(&mut self, source: EventOrigin) -> u32 {
        if self.sources.last() != Some(&source) {
            self.sources.push(source);
        }
        self.sources.len() as u32 - 1
    }
}
