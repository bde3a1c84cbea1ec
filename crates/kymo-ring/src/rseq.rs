//! Restartable sequences: a few instructions that the kernel lets run to their last one only if the
//! thread was neither preempted, nor moved, nor signalled meanwhile. glibc registers each thread;
//! where it has not, [`Rseq::find`] returns none and the ring uses areas with a lock for which no
//! writer waits.
//!
//! The copying and the commit of an event are such a sequence: an interrupted sequence has not
//! happened.

/// Areas of words that CPUs count in lie two to this power bytes apart.
pub const AREA_SHIFT: u32 = 21;

/// That this thread's restartable sequences are registered, and where.
#[derive(Clone, Copy, Debug)]
pub struct Rseq {
    offset: isize,
}

impl Rseq {
    /// Address at which the C library has registered this thread, if it has.
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
    pub fn find() -> Option<Self> {
        let (offset, size) = imp::registration();
        if offset.is_null() || size.is_null() {
            return None;
        }
        // SAFETY: glibc's variables, set before any constructor runs and constant from then on;
        // the types are those of <sys/rseq.h>.
        let (offset, size) = unsafe { (offset.read(), size.read()) };
        let here = Self { offset };
        // A thread whose registration failed has a negative CPU number.
        (size != 0 && here.cpu() < i32::MAX as u32).then_some(here)
    }

    /// The registration by what [`Rseq::offset`] said before.
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
    #[inline(always)]
    pub(crate) fn at(offset: isize) -> Self {
        Self { offset }
    }

    /// Offset of struct rseq from the thread pointer, the same in each thread.
    pub(crate) fn offset(self) -> isize {
        self.offset
    }
}

#[cfg_attr(target_arch = "x86_64", path = "rseq/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "rseq/aarch64.rs")]
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
mod imp;

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
pub(crate) use imp::pair;

/// Most starts of a sequence before it is given up: a debugger's single steps interrupt each.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
const TRIES: u32 = 16;

/// One copy of bytes, eight at a time; at least eight.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
#[repr(C)]
pub(crate) struct Piece {
    pub(crate) to: *mut u8,
    pub(crate) from: *const u8,
    pub(crate) words: usize,
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom))))]
impl Rseq {
    /// Not on this machine.
    pub fn find() -> Option<Self> {
        None
    }

    /// Never called: there is no value of this type.
    pub fn cpu(self) -> u32 {
        u32::MAX
    }
}
