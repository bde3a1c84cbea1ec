//! Hit of an enabled site: the payload is built on the stack, passes the filters of the sessions
//! that listen, and is written to their rings.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use kymo_ring::{HEADROOM, SLACK};
use kymo_ust::SLOTS;

use crate::channel::{Stopped, channel, known_channel};
use crate::process;
use crate::site::Site;
use crate::sys;

/// Payloads up to this are made on the stack.
pub const SMALL: usize = 480;

thread_local! {
    static TID: Cell<u32> = const { Cell::new(0) };
}

#[inline(always)]
fn tid() -> u32 {
    match TID.get() {
        0 => {
            let tid = sys::tid();
            TID.set(tid);
            tid
        }
        tid => tid,
    }
}

/// In a forked child: the thread has another number.
pub(crate) fn forget_thread() {
    TID.set(0);
}

/// Room for an event on the stack.
#[repr(C, align(16))]
pub struct Scratch {
    words: [MaybeUninit<u64>; (HEADROOM + SMALL + SLACK) / 8],
}

impl Scratch {
    /// Not initialised.
    #[inline(always)]
    pub fn new() -> Self {
        Self { words: [MaybeUninit::uninit(); (HEADROOM + SMALL + SLACK) / 8] }
    }

    /// Start of the payload.
    #[inline(always)]
    pub fn payload(&mut self) -> *mut u8 {
        self.words[HEADROOM / 8..].as_mut_ptr().cast()
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// The lowest slot whose byte is set, of some that are.
#[inline(always)]
fn first_slot(word: u64) -> usize {
    word.trailing_zeros() as usize / 8 % SLOTS
}

impl Site {
    /// Writes an event whose payload of `len` bytes has been put into `scratch`.
    ///
    /// # Safety
    /// The first `len` bytes of the payload are initialised, and `len` is at most [`SMALL`].
    #[inline(always)]
    pub unsafe fn record(&self, scratch: &mut Scratch, len: usize) {
        // Pairs with the tool, which writes the slot before the enable byte.
        let word = self.word(Ordering::Acquire);
        if word == 0 {
            return;
        }
        // Bytes are 0 or 1: without its lowest bit nothing is left of most words.
        let (slot, only) = (first_slot(word), word & (word - 1) == 0);
        // SAFETY: the promise on `len`; slack is initialised here.
        let payload = unsafe {
            let payload = scratch.payload();
            payload.add(len).cast::<[u8; SLACK]>().write([0; SLACK]);
            std::slice::from_raw_parts(payload, len + SLACK)
        };
        if only && self.is_rejected(slot, payload) {
            return;
        }
        // SAFETY: as above; and headroom is initialised here.
        let record = unsafe {
            let start: *mut u8 = scratch.words.as_mut_ptr().cast();
            start.cast::<[u64; HEADROOM / 8]>().write([0; HEADROOM / 8]);
            std::slice::from_raw_parts_mut(start, HEADROOM + len + SLACK)
        };
        if only {
            self.record_in(slot, record, len)
        } else {
            self.record_in_each(word, record, len)
        }
    }

    /// Whether a filter that is quick to answer rejects the event; counts it. What most programs
    /// do most of the time when a filter is set, so it stands in the site.
    #[inline(always)]
    fn is_rejected(&self, slot: usize, payload: &[u8]) -> bool {
        let Some(control) = process::control() else { return false };
        let page = control.slot(slot);
        let Some(channel) = known_channel(slot, page.generation()) else { return false };
        let id = self.id.load(Ordering::Relaxed);
        let rejected = channel.rejects_at_once(id, payload);
        if rejected {
            page.count_rejected();
        }
        rejected
    }

    /// For several sessions.
    #[cold]
    fn record_in_each(&self, mut word: u64, record: &mut [u8], len: usize) {
        while word != 0 {
            let slot = first_slot(word);
            word &= !(0xff << (8 * slot));
            self.record_in(slot, record, len);
        }
    }

    #[inline(never)]
    fn record_in(&self, slot: usize, record: &mut [u8], len: usize) {
        let Some(control) = process::control() else { return };
        let page = control.slot(slot);
        let id = self.id.load(Ordering::Relaxed);
        let channel = channel(slot, page.generation());
        let Some((channel, ring)) = channel.and_then(|c| Some((c, c.ring.as_ref()?))) else {
            page.count_lost();
            return;
        };
        match channel.passes(id, self, &record[HEADROOM..HEADROOM + len]) {
            // Losses are counted in the ring.
            Ok(()) => {
                let _ = ring.write(id, tid(), record, len);
            }
            Err(Stopped::Rejected) => page.count_rejected(),
            Err(Stopped::Unfit) => page.count_unfit(),
        }
    }

    /// Writes an event whose payload is too large for the stack: `put` makes it in the ring, once
    /// for each session that listens.
    #[cold]
    pub fn record_large(&self, len: usize, put: &mut dyn FnMut(*mut u8)) {
        let mut word = self.word(Ordering::Acquire);
        while word != 0 {
            let slot = first_slot(word);
            word &= !(0xff << (8 * slot));
            let Some(control) = process::control() else { return };
            let page = control.slot(slot);
            let id = self.id.load(Ordering::Relaxed);
            let channel = channel(slot, page.generation());
            let Some((channel, ring)) = channel.and_then(|c| Some((c, c.ring.as_ref()?))) else {
                page.count_lost();
                continue;
            };
            let mut stopped = None;
            let _ = ring.write_in_place(id, tid(), len, |to| {
                put(to.as_mut_ptr());
                stopped = channel.passes(id, self, to).err();
                stopped.is_none()
            });
            match stopped {
                None => {}
                Some(Stopped::Rejected) => page.count_rejected(),
                Some(Stopped::Unfit) => page.count_unfit(),
            }
        }
    }
}
