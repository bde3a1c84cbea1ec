//! The ABI of threads whose recording has numbers of calls and no mappings: by what the kernel
//! states when a program is executed, else by the width of arguments.

use rustc_hash::FxHashMap;

/// Entries of calls after which a program of 64 bits has had an address in a register.
const TELLING_CALLS: u32 = 24;
/// Threads that are distinguished at most.
const MOST_THREADS: usize = 1 << 16;

/// Numbers of calls of x86-64, and of i386.
mod number {
    pub(super) const EXECVE: i64 = 59;
    pub(super) const EXECVEAT: i64 = 322;
    pub(super) const EXECVE_OF_I386: i64 = 11;
    pub(super) const EXECVEAT_OF_I386: i64 = 358;
    /// `fork`, `clone`, `vfork`, `clone3`.
    pub(super) const BIRTHS_OF_I386: [i64; 4] = [2, 120, 190, 435];
}

/// Facts about a thread.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadAbi {
    /// Entries of calls so far, and whether an argument was wider than 32 bits.
    calls: u32,
    is_wide: bool,
    /// Number of the call that it is in.
    entered: Option<i64>,
    is_32_bit: Option<bool>,
}

/// ABIs of threads, at the present place of a recording.
#[derive(Debug)]
pub(super) struct ThreadAbis {
    threads: FxHashMap<u32, ThreadAbi>,
    /// Numbers are those of x86-64, whose kernels run programs of i386.
    is_x86_64: bool,
}

impl ThreadAbis {
    pub(super) fn new(is_x86_64: bool) -> ThreadAbis {
        ThreadAbis { threads: FxHashMap::default(), is_x86_64 }
    }

    fn thread(&mut self, tid: Option<u32>) -> Option<&mut ThreadAbi> {
        let tid = tid?;
        if self.threads.len() >= MOST_THREADS && !self.threads.contains_key(&tid) {
            return None;
        }
        Some(self.threads.entry(tid).or_default())
    }

    /// A call begins, with its arguments where they are read: whether it is one of a program of
    /// 32 bits.
    pub(super) fn enter(
        &mut self,
        tid: Option<u32>,
        number: i64,
        words: Option<&[u64; 6]>,
    ) -> Option<bool> {
        let thread = self.thread(tid)?;
        if let Some(words) = words {
            thread.calls = thread.calls.saturating_add(1);
            thread.is_wide |= words.iter().any(|word| *word > u64::from(u32::MAX));
        }
        thread.entered = Some(number);
        thread.is_32_bit
    }

    /// A call ends: whether the number is one of a program of 32 bits.
    pub(super) fn exit(&mut self, tid: Option<u32>, number: i64, result: i64) -> Option<bool> {
        use number::{BIRTHS_OF_I386, EXECVE, EXECVE_OF_I386, EXECVEAT, EXECVEAT_OF_I386};
        if !self.is_x86_64 {
            if let Some(thread) = self.thread(tid) {
                thread.entered = None;
            }
            return None;
        }
        let is_birth = result == 0 && BIRTHS_OF_I386.contains(&number);
        if is_birth && tid.is_some_and(|tid| !self.threads.contains_key(&tid)) {
            // The first event of a thread is the return from the call that created it.
            let creates = |t: &ThreadAbi| t.is_32_bit == Some(true) && t.entered == Some(number);
            if self.threads.values().any(creates)
                && let Some(child) = self.thread(tid)
            {
                child.is_32_bit = Some(true);
            }
        }
        let thread = self.thread(tid)?;
        let entered = thread.entered.take();
        if result == 0 {
            // The kernel reports the return from `execve` under its number in the ABI of the new
            // program.
            let was_32_bit = thread.is_32_bit == Some(true);
            let executes = match entered {
                Some(EXECVE | EXECVEAT) if !was_32_bit => true,
                Some(EXECVE_OF_I386 | EXECVEAT_OF_I386) => was_32_bit,
                _ => false,
            };
            let is_32_bit = match number {
                EXECVE_OF_I386 => Some(true),
                EXECVE => Some(false),
                _ => None,
            };
            if executes && is_32_bit.is_some() {
                *thread = ThreadAbi { is_32_bit, ..ThreadAbi::default() };
            }
        }
        let is_32_bit = thread.is_32_bit;
        if is_32_bit == Some(true)
            && BIRTHS_OF_I386.contains(&number)
            && let Ok(child @ 1..) = u32::try_from(result)
            && let Some(child) = self.thread(Some(child))
        {
            child.is_32_bit.get_or_insert(true);
        }
        is_32_bit
    }

    /// Whether a thread is of a program of 32 bits, where that is known.
    pub(super) fn of(&self, tid: Option<u32>) -> Option<bool> {
        self.threads.get(&tid?)?.is_32_bit
    }

    /// Number of threads that may be of programs of 32 bits.
    pub(super) fn doubtful(&self) -> u64 {
        let is_doubtful = |thread: &&ThreadAbi| {
            thread.is_32_bit.is_none() && thread.calls >= TELLING_CALLS && !thread.is_wide
        };
        self.threads.values().filter(is_doubtful).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Option<&[u64; 6]> = Some(&[1; 6]);
    const WIDE: Option<&[u64; 6]> = Some(&[1 << 40; 6]);

    #[test]
    fn the_return_from_execve_tells_the_abi() {
        let mut abis = ThreadAbis::new(true);
        let tid = Some(7);
        assert_eq!(abis.enter(tid, 59, WIDE), None);
        // It failed; and munmap has the same number.
        assert_eq!(abis.exit(tid, 59, -2), None);
        assert_eq!(abis.enter(tid, 11, WIDE), None);
        assert_eq!(abis.exit(tid, 11, 0), None);
        assert_eq!(abis.enter(tid, 59, WIDE), None);
        assert_eq!(abis.exit(tid, 11, 0), Some(true));
        assert_eq!(abis.enter(tid, 20, NARROW), Some(true));
        assert_eq!(abis.exit(tid, 20, 7), Some(true));
        // A child that runs before its parent returns, and one that does so later.
        assert_eq!(abis.enter(tid, 120, NARROW), Some(true));
        assert_eq!(abis.exit(Some(8), 120, 0), Some(true));
        assert_eq!(abis.exit(tid, 120, 9), Some(true));
        assert_eq!(abis.enter(Some(9), 3, NARROW), Some(true));
        // A thread of another program, whose first event is a return from getresgid.
        assert_eq!(abis.exit(Some(10), 120, 0), None);
        // Back to 64 bits.
        assert_eq!(abis.enter(Some(8), 11, NARROW), Some(true));
        assert_eq!(abis.exit(Some(8), 59, 0), Some(false));
        assert_eq!((abis.of(Some(8)), abis.of(Some(11)), abis.of(None)), (Some(false), None, None));
        assert_eq!(abis.doubtful(), 0);
    }

    #[test]
    fn narrow_arguments_alone_are_a_doubt() {
        for is_x86_64 in [true, false] {
            let mut abis = ThreadAbis::new(is_x86_64);
            for _ in 0..TELLING_CALLS {
                assert_eq!(abis.enter(Some(1), 20, NARROW), None);
                assert_eq!(abis.exit(Some(1), 20, 0), None);
                let _ = abis.enter(Some(2), 20, WIDE);
            }
            assert_eq!(abis.doubtful(), 1);
        }
    }
}
