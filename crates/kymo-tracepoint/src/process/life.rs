//! Fork and exit: a forked child gets a directory of its own, a program that ends in order takes its
//! directory along.

use std::sync::atomic::Ordering;

use kymo_ust::{SLOT_PATH, SLOTS, Slot, slot_at};

use super::directory::{Counts, create_control, has_rings, remove};
use super::{
    CONTROL, ENDING, STATE, State, code_maps, control, counter_file, counting, enable_word, events,
    page, place, publish, write_counts,
};
use crate::callbacks::grace_period;
use crate::channel;
use crate::sys::{self, Path};

pub(super) fn at_fork_and_exit() {
    // SAFETY: functions that live as long as the library.
    unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child));
        libc::atexit(at_exit);
    }
}

extern "C" fn at_exit() {
    ENDING.store(true, Ordering::Relaxed);
    let state = STATE.lock();
    // A forked child without handlers has copied the state of its parent.
    let ours = control().is_some_and(|page| {
        let pid: [u8; 4] = std::array::from_fn(|i| page.bytes[12 + i].load(Ordering::Relaxed));
        u32::from_le_bytes(pid) == sys::pid()
    });
    if let Some(place) = place().filter(|_| ours) {
        if has_rings(&place.directory) {
            code_maps::leave();
        }
        let counts = if counting::is_counted() { Counts::Kept } else { Counts::Removed };
        if counts == Counts::Kept {
            counter_file::mark_ended(&state);
        }
        // The listener has yet to see that events were lost; the next program removes it.
        if !control().is_some_and(|page| page.has_lost()) {
            remove(&place.directory, counts);
        }
    }
}

extern "C" fn before_fork() {
    STATE.stop();
    grace_period::stop();
}

extern "C" fn after_fork() {
    grace_period::go_on();
    drop(STATE.go_on());
}

/// The child gets a directory of its own, with what its parent's sessions had switched on.
extern "C" fn in_child() {
    crate::record::forget_thread();
    grace_period::go_on_in_child();
    become_child(&mut STATE.go_on());
}

fn become_child(state: &mut State) {
    let Some(old) = control() else { return };
    let base = CONTROL.load(Ordering::Relaxed);
    // Its events, those of libraries that were unloaded included, keep their numbers and places.
    let (mut table, at) = (vec![0; state.table_bytes as usize], state.table);
    if state.file().is_none_or(|file| file.read_at(&mut table, at).is_err()) {
        // Continues with its parent's, whose rings processes can share.
        return;
    }
    // Shares an open file with the parent, whose lock must outlive this.
    drop(state.control.take());
    let Some(parent) = place() else { return };
    let words: Vec<u64> = (0..events()).map(|id| enable_word(id).load(Ordering::Relaxed)).collect();
    let mut slots = [[0; SLOT_PATH + 2]; SLOTS];
    for (i, copy) in slots.iter_mut().enumerate() {
        let slot = old.slot(i);
        copy[0] = slot.generation();
        copy[1] = slot.state();
        copy[2..].copy_from_slice(&slot.path());
    }
    let user = Path::new().add(parent.user.bytes());
    if create_control(state, user, parent.capacity, base).is_err() {
        // Continues with its parent's, whose rings processes can share.
        return;
    }
    let at = state.table;
    if state.file().is_none_or(|file| file.write_at(&table, at).is_err()) {
        return;
    }
    state.table_bytes = table.len() as u64;
    counter_file::become_child(state);
    write_counts(state);
    for (i, copy) in slots.iter().enumerate() {
        page().write(slot_at(i) + Slot::PATH_AT, &copy[2..]);
        page().write(slot_at(i), &copy[..2]);
    }
    channel::forget_all();
    for (id, word) in words.into_iter().enumerate() {
        enable_word(id as u32).store(word, Ordering::Relaxed);
    }
    publish();
}
