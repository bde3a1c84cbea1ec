//! The futex word in a program's slot that the program wakes when its ring fills up, so that a
//! drain can sleep meanwhile.

use kymo_kernel::opaque_mapping::FutexWaiter;
use kymo_ust::{CONTROL_HEADER, Slot, slot_at};

use super::channel::Channel;
use super::program::Program;

/// Waiter on the futex word of a program's slot.
#[derive(Debug)]
pub(super) struct ProgramWaiter {
    at: u64,
    waiter: FutexWaiter,
}

impl ProgramWaiter {
    /// Creates the waiter for a program's slot of a channel; none if the program has no slot yet,
    /// or its file cannot be mapped.
    pub(super) fn of(channel: &Channel, program: &Program) -> Option<ProgramWaiter> {
        let (attached, _) = channel.slot_of(program).ok()??;
        let at = slot_at(attached.slot) + Slot::FUTEX_WORD_AT;
        let page = program.file().opaque_mapping(0, CONTROL_HEADER as u64).ok()?;
        Some(ProgramWaiter { at: at as u64, waiter: FutexWaiter::new(page, at).ok()? })
    }

    /// Arms it: the program wakes its sleepers. If arming fails, it counts as signalled.
    pub(super) fn arm(&self, program: &Program) {
        let _ = program.file().write_at(self.at, &kymo_ring::FutexWord::ARMED[..1]);
    }

    /// Whether the program has changed the word since.
    pub(super) fn is_signalled(&self, program: &Program) -> bool {
        let mut word = [0; 4];
        program.file().read_at(self.at, &mut word).is_err() || word != kymo_ring::FutexWord::ARMED
    }

    /// The word, to sleep on.
    pub(super) fn waiter(&self) -> &FutexWaiter {
        &self.waiter
    }
}
