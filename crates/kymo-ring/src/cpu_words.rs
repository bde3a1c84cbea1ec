//! Words that count: each CPU has an area with its own copy of them, a restartable sequence adds
//! to that of the CPU it runs on. One more area, after those of the CPUs, takes what is added
//! where there are no sequences, atomically. A reader adds up all areas.

use std::sync::atomic::{AtomicIsize, AtomicU32, AtomicU64, Ordering};

use crate::rseq::{AREA_SHIFT, Rseq};

/// Areas of the CPUs, and how this process adds to what is in them. Addresses of words are those
/// in the area of CPU 0.
#[derive(Debug)]
pub struct CpuWords {
    /// Offset of struct rseq from the thread pointer.
    offset: AtomicIsize,
    /// CPUs whose areas are added to by sequences; 0: there are none.
    sequences: AtomicU32,
    /// CPUs that have areas, which is the number of the area without a CPU.
    cpus: AtomicU32,
}

impl CpuWords {
    /// Areas of no CPUs.
    pub const fn new() -> Self {
        Self { offset: AtomicIsize::new(0), sequences: AtomicU32::new(0), cpus: AtomicU32::new(0) }
    }

    /// There are areas of this number of CPUs, and one more. Before any word is known to who adds.
    pub fn set(&self, cpus: u32) {
        self.cpus.store(cpus, Ordering::Relaxed);
        if let Some(rseq) = Rseq::find() {
            self.offset.store(rseq.offset(), Ordering::Relaxed);
            self.sequences.store(cpus, Ordering::Release);
        }
    }

    /// CPUs that have areas.
    pub fn cpus(&self) -> u32 {
        self.cpus.load(Ordering::Relaxed)
    }

    /// Adds to a word.
    ///
    /// # Safety
    /// `word` is aligned to eight, and can be written in each of the areas that [`CpuWords::set`]
    /// spoke of.
    #[inline(always)]
    pub unsafe fn add(&self, word: *mut u8, n: u64) {
        #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
        {
            let cpus = self.sequences.load(Ordering::Relaxed);
            let rseq = Rseq::at(self.offset.load(Ordering::Relaxed));
            // SAFETY: the caller's promise; there are sequences, so the offset is that of this process.
            if cpus != 0 && unsafe { rseq.add(word, cpus, n) } {
                return;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.add_shared(word, n) }
    }

    /// Adds to two adjacent words; in a sequence to both or to none, though the
    /// process be killed meanwhile. Two others, at `others`, become as large as `largest` if they
    /// are less.
    ///
    /// # Safety
    /// As [`CpuWords::add`], of all four; `pair` is aligned to 16.
    #[inline(always)]
    pub unsafe fn add_pair(&self, pair: *mut u8, n: [u64; 2], others: *mut u8, largest: [u64; 2]) {
        #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
        {
            let cpus = self.sequences.load(Ordering::Relaxed);
            let rseq = Rseq::at(self.offset.load(Ordering::Relaxed));
            let both = crate::rseq::pair(n[0], n[1]);
            // SAFETY: the caller's promise; there are sequences, so the offset is that of this process.
            if cpus != 0 && unsafe { rseq.add_pair(pair, cpus, both, others, largest) } {
                return;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.add_shared_pair(pair, n, others, largest) }
    }

    /// The word in the area without a CPU.
    ///
    /// # Safety
    /// As [`CpuWords::add`].
    unsafe fn shared<'a>(&self, word: *mut u8) -> &'a AtomicU64 {
        let distance = (self.cpus.load(Ordering::Relaxed) as usize) << AREA_SHIFT;
        // SAFETY: the caller's promise.
        unsafe { &*word.add(distance).cast::<AtomicU64>() }
    }

    #[cold]
    unsafe fn add_shared_pair(
        &self,
        pair: *mut u8,
        n: [u64; 2],
        others: *mut u8,
        largest: [u64; 2],
    ) {
        for i in 0..2 {
            // SAFETY: the caller's promise.
            unsafe {
                self.shared(others.add(8 * i)).fetch_max(largest[i], Ordering::Relaxed);
                self.shared(pair.add(8 * i)).fetch_add(n[i], Ordering::Relaxed);
            }
        }
    }

    #[cold]
    unsafe fn add_shared(&self, word: *mut u8, n: u64) {
        // SAFETY: the caller's promise.
        unsafe { self.shared(word) }.fetch_add(n, Ordering::Relaxed);
    }
}

impl Default for CpuWords {
    fn default() -> Self {
        Self::new()
    }
}
