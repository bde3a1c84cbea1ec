//! A lock for what is done seldom: constructors, registering, fork. Threads wait for it asleep,
//! and it can be held across a fork, where the child has another thread let go of it.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys;

/// A value that one thread at a time touches.
pub(crate) struct Guarded<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is touched by who holds the lock alone.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits until no other thread holds it.
    pub(crate) fn lock(&self) -> Held<'_, T> {
        while self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            sys::wait_a_little();
        }
        Held(self)
    }

    /// Locks it until [`Guarded::go_on`].
    pub(crate) fn stop(&self) {
        std::mem::forget(self.lock());
    }

    /// Behind [`Guarded::stop`], perhaps in a forked child: what is held now, until it is dropped.
    pub(crate) fn go_on(&self) -> Held<'_, T> {
        Held(self)
    }
}

/// Holds the lock for as long as it lives.
pub(crate) struct Held<'g, T>(&'g Guarded<T>);

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}
