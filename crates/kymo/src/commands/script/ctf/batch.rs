//! Events on their way to those who render them, copied together.

use std::ops::ControlFlow;

use kymo_files::ctf::read::{Ctf, Event, Packed, ReadError, ReadStats, Select};

use crate::commands::script::filter::Filter;
use crate::commands::script::pool::Job;

/// Bytes of events that go together.
const FULL: usize = 192 << 10;
/// Events that go together: with few bytes each they still are enough work.
const MANY: usize = 8 << 10;

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
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) items: Vec<Item>,
}

impl Batch {
    fn with_room() -> Batch {
        Batch { bytes: Vec::with_capacity(FULL + 4096), items: Vec::with_capacity(MANY) }
    }

    #[inline]
    fn push(&mut self, e: &Event<'_>) {
        let body = e.body.pack(&mut self.bytes);
        let missed = e.missed.unwrap_or(0);
        self.items.push(Item { time: e.time, class: e.class, cpu: e.cpu, missed, body });
    }
}

/// Merges and gathers.
pub(super) fn feed(
    ctf: &Ctf,
    filter: &Filter,
    give: &mut dyn FnMut(Job<Batch>) -> ControlFlow<()>,
) -> Result<ReadStats, ReadError> {
    let mut batch = Batch::with_room();
    let until = filter.until();
    let mut give = |job: Batch| give(Job { job, for_all: false });
    let stats = ctf.for_each(&Select { from: filter.from() }, &mut |e| {
        if e.time > until {
            return ControlFlow::Break(());
        }
        batch.push(e);
        if batch.bytes.len() < FULL && batch.items.len() < MANY {
            return ControlFlow::Continue(());
        }
        give(std::mem::replace(&mut batch, Batch::with_room()))
    });
    if !batch.items.is_empty() {
        let _ = give(batch);
    }
    stats
}
