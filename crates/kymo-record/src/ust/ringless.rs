//! Programs that could not make their rings, and what they have lost by that.

use std::collections::BTreeMap;

use kymo_kernel::errno::ENOMEM;
use kymo_ust::{Slot, SlotAnswer};

use super::drain::DrainStats;
use super::program::ProgramId;

/// Their events, as they count them.
#[derive(Debug, Default)]
pub(super) struct RinglessPrograms(BTreeMap<(u32, ProgramId), LostEvents>);

#[derive(Clone, Copy, Debug)]
struct LostEvents {
    events: u64,
    /// The program may not have more memory.
    is_for_memory: bool,
}

impl RinglessPrograms {
    /// Notes the losses in a program's slot.
    pub(super) fn note(&mut self, key: &(u32, ProgramId), slot: &Slot) {
        if slot.lost > 0 {
            let failed = slot.answer_in_force() == Some(SlotAnswer::Failed);
            let is_for_memory = failed && i32::try_from(slot.errno) == Ok(ENOMEM);
            let lost = LostEvents { events: slot.lost, is_for_memory };
            self.0.insert(key.clone(), lost);
        }
    }

    pub(super) fn add_to(&self, stats: &mut DrainStats) {
        for lost in self.0.values() {
            // The programs say these numbers: they add up to no small one.
            stats.without_ring = stats.without_ring.saturating_add(lost.events);
            if lost.is_for_memory {
                let sum = stats.without_address_space.saturating_add(lost.events);
                stats.without_address_space = sum;
            }
        }
    }
}
