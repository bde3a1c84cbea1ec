//! What a program rings when its ring fills up, so that a drain can sleep meanwhile: a
//! word in its slot.

use kymo_kernel::untouched::Bell;
use kymo_ust::{CONTROL_HEADER, Slot, slot_at};

use super::channel::Channel;
use super::program::Program;

/// The bell of a program's slot.
#[derive(Debug)]
pub(super) struct ProgramBell {
    at: u64,
    bell: Bell,
}

impl ProgramBell {
    /// Of the slot that a program has for a channel; none if it has none yet, or its file cannot
    /// be mapped.
    pub(super) fn of(channel: &Channel, program: &Program) -> Option<ProgramBell> {
        let (attached, _) = channel.slot_of(program).ok()??;
        let at = slot_at(attached.slot) + Slot::BELL_AT;
        let page = program.file().untouched(0, CONTROL_HEADER as u64).ok()?;
        Some(ProgramBell { at: at as u64, bell: Bell::new(page, at).ok()? })
    }

    /// From now on it can ring. That it cannot be hung up makes it one that has rung.
    pub(super) fn hang(&self, program: &Program) {
        let _ = program.file().write_at(self.at, &kymo_ring::Bell::HUNG[..1]);
    }

    /// Whether it has rung since.
    pub(super) fn has_rung(&self, program: &Program) -> bool {
        let mut word = [0; 4];
        program.file().read_at(self.at, &mut word).is_err() || word != kymo_ring::Bell::HUNG
    }

    /// For who sleeps.
    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }
}
