//! Counts equal stacks. Chains of distinct stacks lie in one arena, as numbers
//! of addresses at first and of frames once these are known.

use std::hash::{BuildHasher, Hash, Hasher};

use kymo_events::state::CommId;
use kymo_model::{IndexVec, OpenTable, TableSlot, impl_vec_index, internal_error};
use rustc_hash::FxBuildHasher;

use crate::addresses::AddressId;
use crate::frames::FramesOf;

/// Key of a stack besides its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StackKey {
    pub(crate) comm: CommId,
    pub(crate) cpu: Option<u32>,
    /// Threads that ran, where that is kept apart; else 0.
    pub(crate) parallelism: u32,
    /// Process and thread where they are kept apart.
    pub(crate) task: Option<(u32, u32)>,
    /// Label by which the profile's user separates samples.
    pub(crate) label: u32,
    pub(crate) mode: u16,
    /// Sampled address: an [`AddressId`]; a frame once frames are known.
    pub(crate) leaf: u32,
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) key: StackKey,
    /// Process and thread of the first sample.
    pub(crate) task: (u32, u32),
    len: u32,
    /// Number of the first sample.
    pub(crate) first: u64,
    start: usize,
    pub(crate) samples: u64,
    pub(crate) period: u64,
    /// Sum of the periods, each divided by the number of threads that ran; 0 unless asked for.
    pub(crate) latency: u64,
}

/// A sample in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) time: u64,
    pub(crate) period: u64,
    /// Its stack.
    pub(crate) slot: SlotId,
}

/// Number of a distinct stack of a [`Counter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlotId(pub(crate) u32);
impl_vec_index!(SlotId, "stack");

/// Entry of the table of stacks: 32 bits of the hash, and the slot's number plus one.
#[derive(Clone, Copy, Debug)]
struct StackEntry {
    hash: u32,
    number: u32,
}

impl StackEntry {
    fn slot(&self) -> SlotId {
        SlotId(self.number - 1)
    }
}

impl TableSlot for StackEntry {
    const EMPTY: StackEntry = StackEntry { hash: 0, number: 0 };

    #[inline]
    fn is_empty(&self) -> bool {
        self.number == 0
    }

    #[inline]
    fn hash(&self) -> u32 {
        self.hash
    }
}

/// The stacks of one event, or a share of them.
#[derive(Debug)]
pub(crate) struct Counter {
    pub(crate) slots: IndexVec<SlotId, Slot>,
    pub(crate) arena: Vec<u32>,
    /// Each sample, where that is asked for, in the order of the recording.
    pub(crate) moments: Vec<Moment>,
    table: OpenTable<StackEntry>,
    pub(crate) empty_chains: u64,
    pub(crate) cut_chains: u64,
    pub(crate) bad_chains: u64,
}

impl Default for Counter {
    fn default() -> Counter {
        Counter {
            slots: IndexVec::default(),
            arena: Vec::new(),
            moments: Vec::new(),
            table: OpenTable::with_slots(10),
            empty_chains: 0,
            cut_chains: 0,
            bad_chains: 0,
        }
    }
}

impl Counter {
    /// Counts a sample; answers its slot. The chain was put to the end of `arena`,
    /// from `start` on, and is taken back if it is known.
    pub(crate) fn add(
        &mut self,
        key: StackKey,
        task: (u32, u32),
        start: usize,
        first: u64,
        (period, latency): (u64, u64),
    ) -> SlotId {
        let chain = self.arena.get(start..).unwrap_or_default();
        let mut hasher = FxBuildHasher.build_hasher();
        key.hash(&mut hasher);
        chain.iter().for_each(|word| hasher.write_u32(*word));
        let hash = (hasher.finish().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        let slots = &self.slots;
        let same = |entry: &StackEntry| {
            entry.hash == hash
                && slots.get(entry.slot()).is_some_and(|slot| {
                    let held = slot.start..slot.start + slot.len as usize;
                    // The processor is slow to compare nothing with nothing: it is a masked
                    // load of an address that is not mapped.
                    slot.key == key
                        && held.len() == chain.len()
                        && (chain.is_empty() || self.arena.get(held) == Some(chain))
                })
        };
        if let Some(known) = self.table.find(hash, same).map(StackEntry::slot) {
            if let Some(slot) = self.slots.get_mut(known) {
                slot.samples += 1;
                slot.period = slot.period.saturating_add(period);
                slot.latency = slot.latency.saturating_add(latency);
            }
            self.arena.truncate(start);
            return known;
        }
        let len = chain.len() as u32;
        let slot =
            self.slots.push(Slot { key, task, len, first, start, samples: 1, period, latency });
        self.table.insert(StackEntry { hash, number: slot.0 + 1 });
        slot
    }

    /// Puts other numbers in the place of those of labels.
    pub(crate) fn number_labels(&mut self, numbers: &[u32]) {
        for slot in self.slots.iter_mut() {
            slot.key.label = numbers.get(slot.key.label as usize).copied().unwrap_or_else(|| {
                internal_error("label");
                0
            });
        }
    }

    /// The chain of a slot.
    pub(crate) fn chain(&self, slot: &Slot) -> &[u32] {
        let chain = self.arena.get(slot.start..slot.start + slot.len as usize);
        chain.unwrap_or_else(|| {
            internal_error("call chain");
            &[]
        })
    }

    /// Puts frames in the place of addresses. Stacks that become equal stay apart: their readers
    /// add them up at no extra cost.
    pub(crate) fn name_frames(&mut self, frames: &FramesOf) {
        self.table = OpenTable::with_slots(0);
        for slot in &mut self.slots {
            slot.key.leaf = frames.leaf(AddressId(slot.key.leaf)).0;
        }
        if !frames.expands() {
            self.arena.iter_mut().for_each(|word| *word = frames.leaf(AddressId(*word)).0);
            return;
        }
        let mut arena = Vec::with_capacity(self.arena.len());
        for slot in &mut self.slots {
            let chain = self.arena.get(slot.start..slot.start + slot.len as usize);
            slot.start = arena.len();
            let chain = chain.unwrap_or_else(|| {
                internal_error("call chain");
                &[]
            });
            for address in chain {
                arena.extend(frames.run(AddressId(*address)).iter().map(|f| f.0));
            }
            slot.len = (arena.len() - slot.start) as u32;
        }
        self.arena = arena;
    }

    /// Samples that were taken where there is a symbol, and where there is a line;
    /// asked before frames are named.
    pub(crate) fn known(&self, frames: &FramesOf) -> (u64, u64) {
        self.slots.iter().fold((0, 0), |(named, lined), slot| {
            let (symbol, line) = frames.known(AddressId(slot.key.leaf));
            (named + u64::from(symbol) * slot.samples, lined + u64::from(line) * slot.samples)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_are_counted_and_others_kept_apart() {
        let mut counter = Counter::default();
        let key = |leaf| StackKey {
            comm: CommId(1),
            cpu: None,
            parallelism: 0,
            task: None,
            label: 0,
            mode: 2,
            leaf,
        };
        // Enough for the index to grow several times.
        for round in 0..3u32 {
            for i in 0..5000u32 {
                let start = counter.arena.len();
                counter.arena.extend((0..i % 4).map(|n| n * i));
                counter.add(key(i), (7, 8), start, u64::from(round * 5000 + i), (2, 0));
            }
        }
        assert_eq!(counter.slots.len(), 5000);
        assert_eq!(counter.arena.len(), 5000 / 4 * 6);
        for (i, slot) in (0u32..).zip(&counter.slots) {
            assert_eq!((slot.key.leaf, slot.samples, slot.period), (i, 3, 6));
            assert_eq!(slot.first, u64::from(i));
            assert!(counter.chain(slot).iter().eq(&(0..i % 4).map(|n| n * i).collect::<Vec<_>>()));
        }
    }
}
