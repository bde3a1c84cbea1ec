//! Counts equal stacks. Chains of distinct stacks lie in one arena, as numbers
//! of addresses at first and of frames once these are known.

use std::hash::{BuildHasher, Hash, Hasher};

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::state::CommId;

/// What tells two stacks apart besides their chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StackKey {
    pub(crate) comm: CommId,
    pub(crate) cpu: Option<u32>,
    /// Process and thread where they are kept apart.
    pub(crate) task: Option<(u32, u32)>,
    /// What the user of the profile tells apart.
    pub(crate) label: u32,
    pub(crate) mode: u16,
    /// Where the processor was.
    pub(crate) leaf: u32,
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) key: StackKey,
    /// Process and thread of the first sample.
    pub(crate) task: (u32, u32),
    start: usize,
    len: u32,
    pub(crate) samples: u64,
    pub(crate) period: u64,
    /// The next slot with the same hash, plus one.
    next: u32,
}

/// The stacks of one event.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    pub(crate) slots: Vec<Slot>,
    pub(crate) arena: Vec<u32>,
    first: FxHashMap<u64, u32>,
    pub(crate) empty_chains: u64,
    pub(crate) cut_chains: u64,
    pub(crate) bad_chains: u64,
}

impl Counter {
    /// Counts samples. The chain was put to the end of `arena`, from `start`
    /// on, and is taken back if it is known.
    pub(crate) fn add(
        &mut self,
        key: StackKey,
        task: (u32, u32),
        start: usize,
        samples: u64,
        period: u64,
    ) {
        let chain = self.arena.get(start..).unwrap_or_default();
        let len = chain.len();
        let mut hasher = FxBuildHasher.build_hasher();
        key.hash(&mut hasher);
        chain.iter().for_each(|word| hasher.write_u32(*word));
        let head = self.first.entry(hasher.finish()).or_insert(0);
        let mut at = *head;
        while let Some(slot) = at.checked_sub(1).and_then(|i| self.slots.get_mut(i as usize)) {
            let same = slot.start..slot.start + slot.len as usize;
            if slot.key == key && self.arena.get(same) == Some(chain) {
                slot.samples += samples;
                slot.period = slot.period.saturating_add(period);
                self.arena.truncate(start);
                return;
            }
            at = slot.next;
        }
        let len = len as u32;
        self.slots.push(Slot { key, task, start, len, samples, period, next: *head });
        *head = self.slots.len() as u32;
    }

    /// The chain of a slot.
    pub(crate) fn chain(&self, slot: &Slot) -> &[u32] {
        self.arena.get(slot.start..slot.start + slot.len as usize).unwrap_or_default()
    }

    /// The same in frames instead of addresses: stacks that become equal are
    /// counted together, in the order of their first appearance.
    pub(crate) fn in_frames(self, frame_of: &dyn Fn(u32) -> u32) -> Counter {
        let mut folded = Counter {
            empty_chains: self.empty_chains,
            cut_chains: self.cut_chains,
            bad_chains: self.bad_chains,
            ..Counter::default()
        };
        for slot in &self.slots {
            let start = folded.arena.len();
            folded.arena.extend(self.chain(slot).iter().map(|a| frame_of(*a)));
            let key = StackKey { leaf: frame_of(slot.key.leaf), ..slot.key };
            folded.add(key, slot.task, start, slot.samples, slot.period);
        }
        folded.first = FxHashMap::default();
        folded.arena.shrink_to_fit();
        folded
    }
}
