//! Counts equal raw stacks. Chains of distinct stacks lie in one arena.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::state::{CommId, Maps};

/// What tells two stacks apart besides their chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RawStack {
    pub(crate) comm: CommId,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) cpu: Option<u32>,
    /// States of the user's and the kernel's address space.
    pub(crate) user: u64,
    pub(crate) kernel: u64,
    pub(crate) mode: u16,
    pub(crate) ip: u64,
}

#[derive(Debug)]
struct Slot {
    raw: RawStack,
    start: usize,
    len: usize,
    samples: u64,
    period: u64,
    /// The next slot with the same hash, plus one.
    next: u32,
}

/// The stacks of one event.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    slots: Vec<Slot>,
    arena: Vec<u64>,
    first: FxHashMap<u64, u32>,
    pub(crate) empty_chains: u64,
    pub(crate) cut_chains: u64,
}

impl Counter {
    /// Counts one sample.
    pub(crate) fn add(
        &mut self,
        raw: RawStack,
        chain: impl ExactSizeIterator<Item = u64>,
        period: u64,
    ) {
        // The chain goes to the end of the arena and is taken back if known.
        let start = self.arena.len();
        self.arena.extend(chain);
        let chain = self.arena.get(start..).unwrap_or_default();
        let len = chain.len();
        let mut hasher = FxBuildHasher.build_hasher();
        raw.hash(&mut hasher);
        chain.iter().for_each(|word| hasher.write_u64(*word));
        let head = self.first.entry(hasher.finish()).or_insert(0);
        let mut at = *head;
        while let Some(slot) = at.checked_sub(1).and_then(|i| self.slots.get_mut(i as usize)) {
            if slot.raw == raw && self.arena.get(slot.start..slot.start + slot.len) == Some(chain) {
                slot.samples += 1;
                slot.period = slot.period.saturating_add(period);
                self.arena.truncate(start);
                return;
            }
            at = slot.next;
        }
        self.slots.push(Slot { raw, start, len, samples: 1, period, next: *head });
        *head = self.slots.len() as u32;
    }

    /// Calls `each` with `(stack, chain, samples, period)` in the order of
    /// first appearance.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&RawStack, &[u64], u64, u64)) {
        for s in &self.slots {
            let chain = self.arena.get(s.start..s.start + s.len).unwrap_or_default();
            each(&s.raw, chain, s.samples, s.period);
        }
    }
}

/// The states of address spaces that samples were taken in.
#[derive(Debug, Default)]
pub(crate) struct Spaces {
    by_generation: FxHashMap<u64, Arc<Maps>>,
    last: Option<u64>,
}

impl Spaces {
    /// Keeps a state alive.
    pub(crate) fn keep(&mut self, generation: u64, state: impl FnOnce() -> Arc<Maps>) {
        if self.last != Some(generation) {
            self.by_generation.entry(generation).or_insert_with(state);
            self.last = Some(generation);
        }
    }

    /// A state by its number.
    pub(crate) fn get(&self, generation: u64) -> Option<&Arc<Maps>> {
        self.by_generation.get(&generation)
    }
}
