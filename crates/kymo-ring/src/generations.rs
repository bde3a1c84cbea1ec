//! Sharing of what is made once for each generation of a slot, by the first thread that needs it,
//! while others look it up: the channels of a traced program. Lookup is one load; making
//! excludes other threads of the process, which wait a while, and a signal handler of the maker,
//! which must not. Models of it are in `loom_tests.rs`.

use crate::sync::{AtomicPtr, AtomicU32, Ordering};

/// Value that belongs to one generation.
pub trait OfGeneration {
    /// Which.
    fn generation(&self) -> u8;
}

/// Value of the present generation of a slot, null before the first.
#[derive(Debug)]
pub struct Generations<T> {
    current: AtomicPtr<T>,
    /// The thread that makes, or 0.
    making: AtomicU32,
}

impl<T> Generations<T> {
    /// Nothing was made yet.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { current: AtomicPtr::new(std::ptr::null_mut()), making: AtomicU32::new(0) }
    }

    /// Nothing was made yet.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { current: AtomicPtr::new(std::ptr::null_mut()), making: AtomicU32::new(0) }
    }

    /// In a forked child, where this thread is the only one: values of its parent are not its own,
    /// and the thread that was making one does not exist.
    pub fn forget(&self) {
        self.making.store(0, Ordering::Relaxed);
        self.current.store(std::ptr::null_mut(), Ordering::Release);
    }
}

#[cfg(not(loom))]
impl<T> Default for Generations<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: OfGeneration + 'static> Generations<T> {
    /// The newest value, of any generation.
    pub fn last(&self) -> Option<&'static T> {
        // Pairs with the swap in `make`: what the maker has written is seen.
        // SAFETY: null, or what `make` was promised to stay.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// Value of this generation, if it was made.
    #[inline(always)]
    pub fn known(&self, generation: u8) -> Option<&'static T> {
        self.last().filter(|made| made.generation() == generation)
    }

    /// Value of this generation, made now if necessary. `thread` is not 0; `wait` lets some time
    /// pass while another thread makes the value, and returns whether to continue waiting; `make`
    /// makes it, and `replaced` receives the value of the generation before.
    ///
    /// # Safety
    ///
    /// The result of `make` must stay valid for as long as it may be in use, which only the caller
    /// can know.
    pub unsafe fn make(
        &self,
        generation: u8,
        thread: u32,
        mut wait: impl FnMut() -> bool,
        make: impl FnOnce() -> Option<*mut T>,
        replaced: impl FnOnce(*mut T),
    ) -> Option<&'static T> {
        // Pairs with the release below: what the maker before has made is seen.
        while let Err(maker) =
            self.making.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed)
        {
            // A signal handler of the thread that is making it would wait forever.
            if maker == thread || !wait() {
                return None;
            }
        }
        let made = self.known(generation).or_else(|| {
            let new = make()?;
            replaced(self.current.swap(new, Ordering::AcqRel));
            // SAFETY: the caller's promise.
            unsafe { new.as_ref() }
        });
        self.making.store(0, Ordering::Release);
        made
    }
}
