//! Counts of how user stacks ended, for the ledger: those that are complete, and what would
//! complete the others.

use kymo_symbols::DsoId;
use kymo_symbols::unwind::CfiError;
use kymo_unwind::{End, Walked};
use rustc_hash::FxHashMap;

/// Location of a stack's end for lack of unwind information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnwindStop {
    /// The binary; `None` where nothing is mapped.
    pub dso: Option<DsoId>,
    /// Error of its unwind information.
    pub cfi_error: Option<CfiError>,
}

/// Copied part of a stack.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its stack pointer.
    pub sp: u64,
    /// Bytes that were copied.
    pub copied: u64,
    /// Bytes that were asked for; the kernel stops at the end of the memory.
    pub asked: u64,
}

/// The counts.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Samples with registers and a copy of the stack.
    pub stacks: u64,
    /// Up to the thread's first function.
    pub complete: u64,
    /// Cut by the size of the copy.
    pub cut: u64,
    /// Stacks whose next part the kernel did not find in memory.
    pub absent: u64,
    /// Gone on to another stack, of which nothing was copied.
    pub other_stack: u64,
    /// Ended where nothing said how to go on.
    pub stops: FxHashMap<UnwindStop, u64>,
    /// Deeper than frames are followed.
    pub too_deep: u64,
    /// Registers of another machine or of a 32-bit program.
    pub unusable: u64,
    /// With frames that were left by the frame pointer, for want of better.
    pub guessed: u64,
    /// Frames of all of them.
    pub frames: u64,
    /// The largest copy that was asked for.
    pub asked: u64,
    threads: FxHashMap<(u32, u32), Thread>,
}

#[derive(Clone, Debug, Default)]
struct Thread {
    /// Start addresses of the outermost frames of this thread: one, or one for each program that it
    /// executed.
    tops: Vec<u64>,
    /// Stacks that were cut, by their pointers in units of [`UNIT`].
    cut: FxHashMap<u64, u64>,
}

/// Pointers of cut stacks are kept as exactly as that.
const UNIT: u64 = 256;
/// Tops that are kept of a thread.
const MOST_TOPS: usize = 8;
/// Places at which cuts are kept of a thread; a stack has 8 MB.
const MOST_CUTS: usize = 1 << 15;

/// The largest copy that the kernel makes.
pub const LARGEST_COPY: u64 = 65528;

/// Copy size that would complete the stacks that were cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needed {
    /// Size of a copy that would hold all those that a copy can hold, a multiple of 8.
    pub size: u64,
    /// Stacks that it would complete.
    pub completes: u64,
    /// Stacks that are too large for any copy.
    pub too_large: u64,
    /// Stacks of threads of which no complete stack was seen, so that nothing
    /// is known about them.
    pub unknown: u64,
}

impl Tally {
    /// Counts a sample whose registers cannot be used.
    pub(crate) fn add_unusable(&mut self) {
        self.stacks += 1;
        self.unusable += 1;
    }

    /// Counts a stack.
    pub(crate) fn add(&mut self, walked: &Walked, stop: Option<UnwindStop>, copy: Cut) {
        self.stacks += 1;
        self.frames += walked.frames as u64;
        self.guessed += u64::from(walked.guessed > 0);
        self.asked = self.asked.max(copy.asked);
        // The kernel copies less than it is asked for where the memory ends, or
        // where it was not touched yet or is paged out.
        let cut = walked.end == End::Cut && copy.copied >= copy.asked;
        match walked.end {
            End::Outermost => self.complete += 1,
            End::Cut if cut => self.cut += 1,
            End::Cut => self.absent += 1,
            End::OtherStack => self.other_stack += 1,
            End::TooDeep => self.too_deep += 1,
            End::NoRegisters => self.unusable += 1,
            End::NoRule(_) | End::NoCode(_) | End::Wrong(_) => {}
        }
        if let Some(stop) = stop {
            *self.stops.entry(stop).or_default() += 1;
        }
        let top = walked.top.filter(|_| walked.guessed == 0);
        if top.is_none() && !cut {
            return;
        }
        let thread = self.threads.entry((copy.pid, copy.tid)).or_default();
        if let Some(top) = top
            && !thread.tops.contains(&top)
            && thread.tops.len() < MOST_TOPS
        {
            thread.tops.push(top);
        }
        if cut {
            let place = copy.sp / UNIT;
            if thread.cut.len() < MOST_CUTS || thread.cut.contains_key(&place) {
                *thread.cut.entry(place).or_default() += 1;
            }
        }
    }

    /// Adds another one.
    pub fn merge(&mut self, other: Tally) {
        self.stacks += other.stacks;
        self.complete += other.complete;
        self.cut += other.cut;
        self.absent += other.absent;
        self.other_stack += other.other_stack;
        self.too_deep += other.too_deep;
        self.unusable += other.unusable;
        self.guessed += other.guessed;
        self.frames += other.frames;
        self.asked = self.asked.max(other.asked);
        for (stop, n) in other.stops {
            *self.stops.entry(stop).or_default() += n;
        }
        for (key, theirs) in other.threads {
            let mine = self.threads.entry(key).or_default();
            mine.tops.extend(theirs.tops);
            mine.tops.sort_unstable();
            mine.tops.dedup();
            for (place, n) in theirs.cut {
                *mine.cut.entry(place).or_default() += n;
            }
        }
    }

    /// Estimates the copy size from the complete stacks of the same threads.
    pub fn needed(&self) -> Needed {
        let mut needed = Needed::default();
        for thread in self.threads.values() {
            for (place, n) in &thread.cut {
                let sp = place * UNIT;
                let top = thread.tops.iter().filter(|t| **t > sp).min();
                match top.map(|top| (top - sp).next_multiple_of(8)) {
                    Some(size) if size <= LARGEST_COPY => {
                        needed.size = needed.size.max(size);
                        needed.completes += n;
                    }
                    Some(_) => needed.too_large += n,
                    None => needed.unknown += n,
                }
            }
        }
        needed
    }
}
