//! The header and the slots of the control file, as they are mapped: single bytes and counters
//! that the tool and the program share.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use kymo_ring::FutexWord;
use kymo_ust::{CONTROL_HEADER, SLOT_PATH, SLOTS, Slot, SlotAnswer, SlotState, slot_at};

use crate::sys;

/// The header and the slots, as they are mapped.
#[repr(C, align(8))]
pub(crate) struct ControlPage {
    pub(super) bytes: [AtomicU8; CONTROL_HEADER],
}

impl ControlPage {
    pub(crate) fn slot(&self, slot: usize) -> SlotPage<'_> {
        SlotPage(&self.bytes[slot_at(slot)..slot_at(slot) + 256])
    }

    /// Whether a session that has a slot here has lost events for want of a ring.
    pub(super) fn has_lost(&self) -> bool {
        (0..SLOTS).map(|slot| self.slot(slot)).any(|slot| slot.is_active() && slot.lost() > 0)
    }

    /// Whether any session has a slot here.
    pub(super) fn any_active(&self) -> bool {
        (0..SLOTS).any(|slot| self.slot(slot).is_active())
    }

    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        for (to, byte) in self.bytes[at..].iter().zip(bytes) {
            to.store(*byte, Ordering::Relaxed);
        }
    }
}

/// A slot, as it is mapped.
#[derive(Clone, Copy)]
pub(crate) struct SlotPage<'a>(&'a [AtomicU8]);

impl SlotPage<'_> {
    #[inline(always)]
    pub(crate) fn generation(self) -> u8 {
        self.0[0].load(Ordering::Relaxed)
    }

    pub(super) fn is_active(self) -> bool {
        self.0[1].load(Ordering::Acquire) == SlotState::Active as u8
    }

    pub(super) fn state(self) -> u8 {
        self.0[1].load(Ordering::Relaxed)
    }

    pub(crate) fn path(self) -> [u8; SLOT_PATH] {
        std::array::from_fn(|i| self.0[Slot::PATH_AT + i].load(Ordering::Relaxed))
    }

    /// Says that the ring is ready, or why it is not.
    pub(crate) fn answer(self, generation: u8, result: Result<(), i32>) {
        let errno = result.err().unwrap_or(0).to_le_bytes();
        for (i, byte) in errno.iter().enumerate() {
            self.0[4 + i].store(*byte, Ordering::Relaxed);
        }
        let answer = if result.is_ok() { SlotAnswer::Ready } else { SlotAnswer::Failed };
        self.0[3].store(answer as u8, Ordering::Relaxed);
        self.0[2].store(generation, Ordering::Release);
    }

    /// Says of the ring of that generation, if it is the one in use, that its file was cut short.
    pub(super) fn ring_is_cut(self, generation: u8) {
        if self.0[2].load(Ordering::Acquire) == generation {
            self.0[3].store(SlotAnswer::Cut as u8, Ordering::Relaxed);
        }
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: eight of the slot's bytes, aligned to eight; atomics may be seen as wider ones where all
        // accesses to these bytes are.
        unsafe { &*self.0[at..at + 8].as_ptr().cast::<AtomicU64>() }
    }

    /// Events lost because there was no ring.
    pub(super) fn lost(self) -> u64 {
        self.counter(8).load(Ordering::Relaxed)
    }

    pub(crate) fn count_lost(self) {
        self.counter(8).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_rejected(self) {
        let counter = self.counter(16);
        // Roughly, as the specification says: a rejected event must cost little.
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(crate) fn count_unfit(self) {
        self.counter(24).fetch_add(1, Ordering::Relaxed);
    }

    /// Wakes the tool if it sleeps until something is to be done for this slot.
    pub(crate) fn tell_tool(self) {
        // SAFETY: four of the slot's bytes, aligned to four, which the program sees in no other way.
        let futex_word = unsafe {
            &*self.0[Slot::FUTEX_WORD_AT..Slot::FUTEX_WORD_AT + 4].as_ptr().cast::<FutexWord>()
        };
        if futex_word.is_wanted() {
            sys::wake(futex_word.as_ptr());
        }
    }
}
