//! Restartable sequences of AArch64. Other CPUs see stores in any order here: a barrier stands
//! before each commit of an event. A pair of words at a multiple of 16 bytes is stored by one
//! instruction, so that an interrupted thread has stored both or none.

use std::arch::asm;

use super::{AREA_SHIFT, Piece, Rseq, TRIES};

/// Two words that are stored by one instruction.
pub(crate) type Pair = [u64; 2];

#[inline(always)]
pub(crate) fn pair(first: u64, second: u64) -> Pair {
    [first, second]
}

/// A restartable sequence around the instructions given: they run only on the expected
/// CPU with `pos` as expected, and the store of the time and the commit follow them.
///
/// What makes it sound: rseq_cs is this thread's own word; the instructions make no call
/// and use no stack; the abort handler carries the signature that glibc registered;
/// rseq_cs is cleared at the end, so that it never points into an unloaded library.
macro_rules! sequence {
    ($($body:literal),+;
     ($own:expr, $cpu:expr, $head:expr, $expected:expr, $next:expr, $time:expr, $status:ident)
     $($operands:tt)*) => {
        asm!(
            ".pushsection __rseq_cs, \"aw\", %progbits",
            ".balign 32",
            "66:",
            ".long 0, 0",
            ".quad 77f, 88f - 77f, 99f",
            ".popsection",
            "adrp {tmp}, 66b",
            "add {tmp}, {tmp}, :lo12:66b",
            "str {tmp}, [{own}, #8]",
            "77:",
            "ldr {tmp:w}, [{own}, #4]",
            "cmp {tmp:w}, {cpu:w}",
            "b.ne 55f",
            "ldr {tmp}, [{head}]",
            "cmp {tmp}, {expected}",
            "b.ne 55f",
            $($body,)+
            "str {time}, [{head}, #24]",
            "dmb ish",
            "stp {next}, {count}, [{head}]",
            "88:",
            "mov {status:w}, #0",
            "b 44f",
            ".pushsection __rseq_failure, \"ax\", %progbits",
            // An instruction that breaks, the signature of struct rseq.
            ".inst 0xd428bc00",
            "99:",
            "b 55f",
            ".popsection",
            "55:",
            "mov {status:w}, #1",
            "44:",
            "str xzr, [{own}, #8]",
            $($operands)*
            tmp = out(reg) _,
            own = in(reg) $own,
            cpu = in(reg) $cpu,
            head = in(reg) $head,
            expected = in(reg) $expected,
            time = in(reg) $time,
            next = in(reg) $next[0],
            count = in(reg) $next[1],
            status = out(reg) $status,
            options(nostack),
        )
    };
}

/// A restartable sequence around instructions of which the last is the commit: they find in
/// `{tmp}` the distance from an address in the area of CPU 0 to the same in the area of the CPU.
/// Begins again when it was interrupted, a few times. Sound as [`sequence!`] is.
macro_rules! on_cpu {
    ($($body:literal),+;
     ($own:expr, $cpus:expr, $tries:ident)
     $($operands:tt)*) => {
        asm!(
            ".pushsection __rseq_cs, \"aw\", %progbits",
            ".balign 32",
            "66:",
            ".long 0, 0",
            ".quad 77f, 88f - 77f, 99f",
            ".popsection",
            "33:",
            "adrp {tmp}, 66b",
            "add {tmp}, {tmp}, :lo12:66b",
            "str {tmp}, [{own}, #8]",
            "77:",
            "ldr {tmp:w}, [{own}, #4]",
            "cmp {tmp:w}, {cpus:w}",
            "b.hs 55f",
            "lsl {tmp}, {tmp}, #{shift}",
            $($body,)+
            "88:",
            "b 44f",
            ".pushsection __rseq_failure, \"ax\", %progbits",
            // An instruction that breaks, the signature of struct rseq.
            ".inst 0xd428bc00",
            "99:",
            "b 34f",
            ".popsection",
            "34:",
            "subs {tries:w}, {tries:w}, #1",
            "b.ne 33b",
            "55:",
            "mov {tries:w}, wzr",
            "44:",
            "str xzr, [{own}, #8]",
            $($operands)*
            tmp = out(reg) _,
            own = in(reg) $own,
            cpus = in(reg) $cpus,
            tries = inout(reg) $tries,
            shift = const AREA_SHIFT,
            options(nostack),
        )
    };
}

/// Addresses of the C library's `__rseq_offset` and `__rseq_size`, null if it has none.
pub(super) fn registration() -> (*const isize, *const u32) {
    let (offset, size): (*const isize, *const u32);
    // SAFETY: reads two addresses from the table of symbols' addresses; they are null if the
    // C library has no such symbols.
    unsafe {
        asm!(
            ".weak __rseq_offset",
            ".weak __rseq_size",
            "adrp {0}, :got:__rseq_offset",
            "ldr {0}, [{0}, :got_lo12:__rseq_offset]",
            "adrp {1}, :got:__rseq_size",
            "ldr {1}, [{1}, :got_lo12:__rseq_size]",
            out(reg) offset,
            out(reg) size,
            options(nostack, preserves_flags),
        );
    }
    (offset, size)
}

impl Rseq {
    /// This thread's struct rseq.
    #[inline(always)]
    fn own(self) -> *mut u8 {
        let thread: *mut u8;
        // SAFETY: reads the thread pointer.
        unsafe {
            asm!(
                "mrs {thread}, tpidr_el0",
                thread = out(reg) thread,
                options(nostack, preserves_flags, nomem, pure),
            );
        }
        thread.wrapping_offset(self.offset)
    }

    /// The CPU this thread runs on at the moment.
    #[inline(always)]
    pub fn cpu(self) -> u32 {
        let cpu: u32;
        // SAFETY: reads the member cpu_id of this thread's struct rseq, which lies at this offset
        // from the thread pointer for as long as the thread lives.
        unsafe {
            asm!(
                "ldr {cpu:w}, [{own}, #4]",
                cpu = out(reg) cpu,
                own = in(reg) self.own(),
                options(nostack, preserves_flags, readonly),
            );
        }
        cpu
    }

    /// If this thread is on `cpu` and `head` (an area header) still holds `expected`: stores
    /// `first` and copies `words` × 8 bytes after it to `to`, the time to `head + 24` and then, as
    /// the commit, `next` to `head`. Returns whether that happened.
    ///
    /// # Safety
    /// `head` is an area header, aligned to 16 bytes; `to` is valid for writes of `8 + 8 * words`
    /// bytes that no reader reads before the commit, `from` for reads of `8 * words`.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "the operands of one sequence")]
    pub(crate) unsafe fn commit(
        self,
        cpu: u32,
        head: *mut u8,
        expected: u64,
        next: Pair,
        time: u64,
        to: *mut u8,
        first: u64,
        from: *const u8,
        words: usize,
    ) -> bool {
        let status: u32;
        // SAFETY: the memory is the caller's promise; see `sequence!` for the rest.
        unsafe {
            sequence!(
                "stur {first}, [{rest}, #-8]",
                "cbz {words}, 33f",
                "22:",
                "sub {words}, {words}, #1",
                "ldr {tmp}, [{from}, {words}, lsl #3]",
                "str {tmp}, [{rest}, {words}, lsl #3]",
                "cbnz {words}, 22b",
                "33:";
                (self.own(), cpu, head, expected, next, time, status)
                rest = in(reg) to.wrapping_add(8),
                first = in(reg) first,
                from = in(reg) from,
                words = inout(reg) words => _,
            );
        }
        status == 0
    }

    /// Adds to a word of the CPU's area, given by its address in the area of CPU 0. False if
    /// this thread has no sequences, or the CPU none of the areas, or it was interrupted too often:
    /// then nothing has been added.
    ///
    /// # Safety
    /// In each of the areas of `cpus` CPUs, [`AREA_SHIFT`] apart, the word can be written.
    #[inline(always)]
    pub(crate) unsafe fn add(self, word: *mut u8, cpus: u32, n: u64) -> bool {
        let mut tries = TRIES;
        // SAFETY: the memory is the caller's promise; see `sequence!` for the rest.
        unsafe {
            on_cpu!(
                "ldr {sum}, [{word}, {tmp}]",
                "add {sum}, {sum}, {n}",
                "str {sum}, [{word}, {tmp}]";
                (self.own(), cpus, tries)
                word = in(reg) word,
                n = in(reg) n,
                sum = out(reg) _,
            );
        }
        tries != 0
    }

    /// Adds to two words in one sequence, the first at a multiple of 16 bytes, and makes two
    /// others, the one after the other, as large as `largest`, if they are less. As [`Rseq::add`],
    /// but that the latter may have happened alone.
    ///
    /// # Safety
    /// As [`Rseq::add`], of all four words.
    #[inline(always)]
    pub(crate) unsafe fn add_pair(
        self,
        pair: *mut u8,
        cpus: u32,
        n: Pair,
        others: *mut u8,
        largest: [u64; 2],
    ) -> bool {
        let mut tries = TRIES;
        // SAFETY: the memory is the caller's promise; see `sequence!` for the rest.
        unsafe {
            on_cpu!(
                "add {at}, {others}, {tmp}",
                "ldr {sum}, [{at}]",
                "cmp {sum}, {first}",
                "b.hs 22f",
                "str {first}, [{at}]",
                "22:",
                "ldr {sum}, [{at}, #8]",
                "cmp {sum}, {second}",
                "b.hs 23f",
                "str {second}, [{at}, #8]",
                "23:",
                "add {at}, {pair}, {tmp}",
                "ldp {tmp}, {sum}, [{at}]",
                "add {tmp}, {tmp}, {n}",
                "add {sum}, {sum}, {m}",
                "stp {tmp}, {sum}, [{at}]";
                (self.own(), cpus, tries)
                pair = in(reg) pair,
                n = in(reg) n[0],
                m = in(reg) n[1],
                others = in(reg) others,
                first = in(reg) largest[0],
                second = in(reg) largest[1],
                at = out(reg) _,
                sum = out(reg) _,
            );
        }
        tries != 0
    }

    /// As [`Rseq::commit`], with two pieces that are copied upwards, the second after the first.
    ///
    /// # Safety
    /// `head` is an area header, aligned to 16 bytes; both pieces are valid for what they copy, and
    /// the bytes they overwrite are unused before the commit.
    pub(crate) unsafe fn commit_two(
        self,
        cpu: u32,
        head: *mut u8,
        expected: u64,
        next: Pair,
        time: u64,
        pieces: &[Piece; 2],
    ) -> bool {
        let status: u32;
        // SAFETY: the memory is the caller's promise; see `sequence!` for the rest.
        unsafe {
            sequence!(
                "ldp {to}, {from}, [{pieces}]",
                "ldr {words}, [{pieces}, #16]",
                "22:",
                "ldr {tmp}, [{from}], #8",
                "str {tmp}, [{to}], #8",
                "subs {words}, {words}, #1",
                "b.ne 22b",
                "ldp {to}, {from}, [{pieces}, #24]",
                "ldr {words}, [{pieces}, #40]",
                "23:",
                "ldr {tmp}, [{from}], #8",
                "str {tmp}, [{to}], #8",
                "subs {words}, {words}, #1",
                "b.ne 23b";
                (self.own(), cpu, head, expected, next, time, status)
                pieces = in(reg) pieces.as_ptr(),
                to = out(reg) _,
                from = out(reg) _,
                words = out(reg) _,
            );
        }
        status == 0
    }
}
