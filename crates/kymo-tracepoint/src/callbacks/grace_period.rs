//! Grace periods for callbacks: threads that are calling them, and the time when replaced lists can
//! be dropped.
//!
//! Callers announce themselves before they load a list and withdraw afterwards. They are counted in
//! one of two counters, and new ones are directed to the other now and then, so that each reaches
//! zero under any load. A replaced list is dropped when both have been zero since.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::lock::{Guarded, Held};
use crate::sys;

/// Number of threads that are calling callbacks, of any site.
static CALLING: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Which of them counts those that begin now.
static PHASE: AtomicUsize = AtomicUsize::new(0);
static CHANGES: Guarded<Changes> =
    Guarded::new(Changes { next: 1, old: Vec::new(), sites: BTreeSet::new() });

thread_local! {
    /// This thread's part of these counters.
    static MINE: [Cell<u64>; 2] = const { [const { Cell::new(0) }; 2] };
}

/// State that changes under the lock, along with the lists of all sites.
struct Changes {
    next: u64,
    old: Vec<Old>,
    sites: BTreeSet<usize>,
}

/// A list that a thread may still be reading.
struct Old {
    number: u64,
    list: *mut c_void,
    drop: unsafe fn(*mut c_void),
    /// Which counters have been at zero since.
    seen: [bool; 2],
}

// SAFETY: lists hold what may be shared and dropped by any thread.
unsafe impl Send for Old {}

impl Drop for Old {
    fn drop(&mut self) {
        // SAFETY: the promise given to `retire`; the caller that drops this has seen that no thread
        // reads the list.
        unsafe { (self.drop)(self.list) };
    }
}

/// Exclusive right to change lists.
pub(crate) struct Change {
    held: Held<'static, Changes>,
    /// Dropped after the lock: what closures own may have callbacks, too.
    done: Vec<Old>,
}

/// Waits until no other thread changes lists.
pub(crate) fn change() -> Change {
    Change { held: CHANGES.lock(), done: Vec::new() }
}

impl Change {
    /// A number that nothing else has.
    pub(crate) fn number(&mut self) -> u64 {
        self.held.next += 1;
        self.held.next - 1
    }

    /// Addresses of the sites that have, or had, callbacks in C.
    pub(crate) fn sites(&mut self) -> &mut BTreeSet<usize> {
        &mut self.held.sites
    }

    /// Drops a list as soon as no thread can be reading it. It has been replaced already.
    ///
    /// # Safety
    /// `drop` may be called once with `list`, by any thread.
    pub(crate) unsafe fn retire(&mut self, list: *mut c_void, drop: unsafe fn(*mut c_void)) {
        if !list.is_null() {
            let number = self.number();
            self.held.old.push(Old { number, list, drop, seen: [false; 2] });
        }
        self.collect();
    }

    fn collect(&mut self) {
        for (phase, calling) in CALLING.iter().enumerate() {
            // Callers that announce from here on find the new lists: all of it is in one total
            // order.
            if calling.load(Ordering::SeqCst) == 0 {
                self.held.old.iter_mut().for_each(|old| old.seen[phase] = true);
            }
        }
        let next = 1 - PHASE.load(Ordering::Relaxed) % 2;
        PHASE.store(next, Ordering::Relaxed);
        let (done, held) =
            std::mem::take(&mut self.held.old).into_iter().partition(|old| old.seen == [true; 2]);
        self.held.old = held;
        self.done.extend::<Vec<_>>(done);
    }
}

/// Waits until no call that began before uses a callback that has been unregistered by now.
/// Not in a callback, which would wait for itself: `false`.
pub(crate) fn synchronize() -> bool {
    if MINE.with(|mine| mine.iter().any(|m| m.get() != 0)) {
        return false;
    }
    let until = change().number();
    loop {
        let mut change = change();
        change.collect();
        if change.held.old.iter().all(|old| old.number >= until) {
            return true;
        }
        drop(change);
        sys::wait_a_little();
    }
}

/// Announcement of a caller of callbacks, until this is dropped.
pub(crate) struct Announced(usize);

impl Announced {
    pub(crate) fn new() -> Self {
        let phase = PHASE.load(Ordering::Relaxed) % 2;
        MINE.with(|mine| mine[phase].set(mine[phase].get() + 1));
        CALLING[phase].fetch_add(1, Ordering::SeqCst);
        Self(phase)
    }

    /// For [`Announced::again`].
    pub(crate) fn keep(self) -> usize {
        let phase = self.0;
        std::mem::forget(self);
        phase
    }

    /// Takes back the result of [`Announced::keep`], once.
    pub(crate) fn again(phase: usize) -> Self {
        Self(phase % 2)
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        CALLING[self.0].fetch_sub(1, Ordering::SeqCst);
        MINE.with(|mine| mine[self.0].set(mine[self.0].get().saturating_sub(1)));
    }
}

/// Before a fork.
pub(crate) fn stop() {
    CHANGES.stop();
}

/// Behind a fork.
pub(crate) fn go_on() {
    drop(CHANGES.go_on());
}

/// In a forked child: this thread is the only one, whatever others were calling.
pub(crate) fn go_on_in_child() {
    MINE.with(|mine| {
        for (calling, mine) in CALLING.iter().zip(mine) {
            calling.store(mine.get(), Ordering::SeqCst);
        }
    });
    go_on();
}
