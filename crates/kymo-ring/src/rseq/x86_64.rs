//! Restartable sequences of x86-64.

use std::arch::asm;
use std::arch::x86_64::{__m128i, _mm_set_epi64x};

use super::{AREA_SHIFT, Piece, Rseq, TRIES};

/// A restartable sequence around the instructions given: they run only on the expected
/// CPU with `pos` as expected, and the store of the time and the commit follow them.
///
/// What makes it sound: rseq_cs is this thread's own word; the instructions make no call
/// and use no stack; the abort handler carries the signature that glibc registered;
/// rseq_cs is cleared at the end, so that it never points into an unloaded library.
macro_rules! sequence {
    ($($body:literal),+;
     ($offset:expr, $cpu:expr, $head:expr, $expected:expr, $next:expr, $time:expr, $status:ident)
     $($operands:tt)*) => {
        asm!(
            ".pushsection __rseq_cs, \"aw\", @progbits",
            ".balign 32",
            "66:",
            ".long 0, 0",
            ".quad 77f, 88f - 77f, 99f",
            ".popsection",
            "lea {tmp}, [rip + 66b]",
            "mov qword ptr fs:[{offset} + 8], {tmp}",
            "77:",
            "cmp dword ptr fs:[{offset} + 4], {cpu:e}",
            "jne 55f",
            "cmp qword ptr [{head}], {expected}",
            "jne 55f",
            $($body,)+
            "mov qword ptr [{head} + 24], {time}",
            "movaps xmmword ptr [{head}], {next}",
            "88:",
            "xor {status:e}, {status:e}",
            "jmp 44f",
            ".pushsection __rseq_failure, \"ax\", @progbits",
            // An invalid instruction whose operand is the signature 0x53053053.
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "99:",
            "jmp 55f",
            ".popsection",
            "55:",
            "mov {status:e}, 1",
            "44:",
            "mov qword ptr fs:[{offset} + 8], 0",
            $($operands)*
            tmp = out(reg) _,
            offset = in(reg) $offset,
            cpu = in(reg) $cpu,
            head = in(reg) $head,
            expected = in(reg) $expected,
            time = in(reg) $time,
            next = in(xmm_reg) $next,
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
     ($offset:expr, $cpus:expr, $tries:ident)
     $($operands:tt)*) => {
        asm!(
            ".pushsection __rseq_cs, \"aw\", @progbits",
            ".balign 32",
            "66:",
            ".long 0, 0",
            ".quad 77f, 88f - 77f, 99f",
            ".popsection",
            "33:",
            "lea {tmp}, [rip + 66b]",
            "mov qword ptr fs:[{offset} + 8], {tmp}",
            "77:",
            "mov {tmp:e}, dword ptr fs:[{offset} + 4]",
            "cmp {tmp:e}, {cpus:e}",
            "jae 55f",
            "shl {tmp}, {shift}",
            $($body,)+
            "88:",
            "44:",
            "mov qword ptr fs:[{offset} + 8], 0",
            ".pushsection __rseq_failure, \"ax\", @progbits",
            // An invalid instruction whose operand is the signature 0x53053053.
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "99:",
            "dec {tries:e}",
            "jnz 33b",
            "55:",
            "xor {tries:e}, {tries:e}",
            "jmp 44b",
            ".popsection",
            $($operands)*
            tmp = out(reg) _,
            offset = in(reg) $offset,
            cpus = in(reg) $cpus,
            tries = inout(reg) $tries,
            shift = const AREA_SHIFT,
            options(nostack),
        )
    };
}

/// Two words that are stored by one instruction.
pub(crate) type Pair = __m128i;

#[inline(always)]
pub(crate) fn pair(first: u64, second: u64) -> Pair {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_set_epi64x(second as i64, first as i64) }
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
            "mov {0}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {1}, qword ptr [rip + __rseq_size@GOTPCREL]",
            out(reg) offset,
            out(reg) size,
            options(nostack, preserves_flags),
        );
    }
    (offset, size)
}

impl Rseq {
    /// The CPU this thread runs on at the moment.
    #[inline(always)]
    pub fn cpu(self) -> u32 {
        let cpu: u32;
        // SAFETY: reads the member cpu_id of this thread's struct rseq, which lies at this offset
        // from the thread pointer for as long as the thread lives.
        unsafe {
            asm!(
                "mov {cpu:e}, dword ptr fs:[{offset} + 4]",
                cpu = out(reg) cpu,
                offset = in(reg) self.offset,
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
                "mov qword ptr [{to}], {first}",
                "test {words}, {words}",
                "jz 33f",
                "22:",
                "mov {tmp}, qword ptr [{from} + {words} * 8 - 8]",
                "mov qword ptr [{to} + {words} * 8], {tmp}",
                "dec {words}",
                "jnz 22b",
                "33:";
                (self.offset, cpu, head, expected, next, time, status)
                to = in(reg) to,
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
                "add qword ptr [{word} + {tmp}], {n}";
                (self.offset, cpus, tries)
                word = in(reg) word,
                n = in(reg) n,
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
                "cmp qword ptr [{others} + {tmp}], {first}",
                "jae 22f",
                "mov qword ptr [{others} + {tmp}], {first}",
                "22:",
                "cmp qword ptr [{others} + {tmp} + 8], {second}",
                "jae 23f",
                "mov qword ptr [{others} + {tmp} + 8], {second}",
                "23:",
                "movdqa {sum}, xmmword ptr [{pair} + {tmp}]",
                "paddq {sum}, {n}",
                "movdqa xmmword ptr [{pair} + {tmp}], {sum}";
                (self.offset, cpus, tries)
                pair = in(reg) pair,
                n = in(xmm_reg) n,
                others = in(reg) others,
                first = in(reg) largest[0],
                second = in(reg) largest[1],
                sum = out(xmm_reg) _,
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
                "mov {to}, qword ptr [{pieces}]",
                "mov {from}, qword ptr [{pieces} + 8]",
                "mov {words}, qword ptr [{pieces} + 16]",
                "22:",
                "mov {tmp}, qword ptr [{from}]",
                "mov qword ptr [{to}], {tmp}",
                "add {from}, 8",
                "add {to}, 8",
                "dec {words}",
                "jnz 22b",
                "mov {to}, qword ptr [{pieces} + 24]",
                "mov {from}, qword ptr [{pieces} + 32]",
                "mov {words}, qword ptr [{pieces} + 40]",
                "23:",
                "mov {tmp}, qword ptr [{from}]",
                "mov qword ptr [{to}], {tmp}",
                "add {from}, 8",
                "add {to}, 8",
                "dec {words}",
                "jnz 23b";
                (self.offset, cpu, head, expected, next, time, status)
                pieces = in(reg) pieces.as_ptr(),
                to = out(reg) _,
                from = out(reg) _,
                words = out(reg) _,
            );
        }
        status == 0
    }
}
