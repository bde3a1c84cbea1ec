//! Ticks for events: the processor's counter (the time stamp counter of x86-64, AArch64's generic
//! timer) where the kernel itself trusts it, else `CLOCK_MONOTONIC`; and anchors that tie ticks to the kernel's clocks with a bound.

/// Unit of ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockKind {
    /// The processor's counter: the time stamp counter, the generic timer.
    Tsc,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    Monotonic,
}

/// Relation of ticks to the kernel's clocks: the block of 48 bytes in shared files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockFacts {
    /// Unit of ticks.
    pub kind: ClockKind,
    /// Bound of the error of the anchor, nanoseconds.
    pub error_ns: u32,
    /// Ticks per second.
    pub frequency: u64,
    /// Ticks at the anchor.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC` at the anchor, nanoseconds.
    pub monotonic: u64,
    /// `CLOCK_REALTIME` at the anchor, nanoseconds.
    pub realtime: u64,
}

impl ClockFacts {
    /// Bytes in a file.
    pub const SIZE: usize = 48;

    /// The bytes.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        let kind: u32 = match self.kind {
            ClockKind::Tsc => 1,
            ClockKind::Monotonic => 2,
        };
        out[0..4].copy_from_slice(&kind.to_le_bytes());
        out[4..8].copy_from_slice(&self.error_ns.to_le_bytes());
        let words = [self.frequency, self.ticks, self.monotonic, self.realtime];
        for (i, word) in words.iter().enumerate() {
            out[8 + 8 * i..16 + 8 * i].copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// From bytes; `None` if there are too few, the kind is unknown or there are no
    /// ticks in a second.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..Self::SIZE)?;
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let kind = match half(0)? {
            1 => ClockKind::Tsc,
            2 => ClockKind::Monotonic,
            _ => return None,
        };
        let facts = Self {
            kind,
            error_ns: half(4)?,
            frequency: word(8)?,
            ticks: word(16)?,
            monotonic: word(24)?,
            realtime: word(32)?,
        };
        (facts.frequency > 0).then_some(facts)
    }
}

/// Source of a ring's timestamps.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The processor's counter.
    Tsc,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    Monotonic,
    /// The caller's: never goes back. For tests.
    Custom(fn() -> u64),
}

impl Clock {
    /// Now, in ticks.
    #[inline(always)]
    pub fn now(self) -> u64 {
        match self {
            Clock::Tsc => tsc(),
            Clock::Monotonic => monotonic_ns(),
            Clock::Custom(now) => now(),
        }
    }

    /// Now in ticks, `CLOCK_MONOTONIC` at that time, and the bound of the error in ns.
    pub(crate) fn anchor(self, ticks_per_second: u64) -> (u64, u64, u32) {
        match self {
            Clock::Tsc => {
                let before = tsc();
                let monotonic = monotonic_ns();
                let between = tsc().saturating_sub(before);
                let half_ns =
                    u128::from(between / 2) * 1_000_000_000 / u128::from(ticks_per_second.max(1));
                let error = u32::try_from(half_ns + 1).unwrap_or(u32::MAX);
                (before + between / 2, monotonic, error)
            }
            Clock::Monotonic => {
                let now = monotonic_ns();
                (now, now, 0)
            }
            Clock::Custom(now) => {
                let now = now();
                (now, now, 0)
            }
        }
    }

    /// The clock to use on this machine: the counter if the kernel takes its time from it, by the
    /// name of its current clock source, and the CPU reports that it never stops or changes pace.
    pub fn best(kernel_source: &[u8]) -> Self {
        let is_trusted = COUNTER.is_some_and(|name| name.as_bytes() == kernel_source);
        if is_trusted && tsc_is_invariant() { Clock::Tsc } else { Clock::Monotonic }
    }

    /// An anchor to the kernel's clocks, and how fast this clock ticks, measured against
    /// `earlier` if it lies at least a millisecond back, else over two milliseconds
    /// of waiting.
    pub fn facts(self, earlier: Option<(u64, u64)>) -> ClockFacts {
        let kind = if matches!(self, Clock::Tsc) { ClockKind::Tsc } else { ClockKind::Monotonic };
        let realtime_less_monotonic =
            read_clock(CLOCK_REALTIME).wrapping_sub(read_clock(CLOCK_MONOTONIC));
        if kind == ClockKind::Monotonic {
            let now = self.now();
            return ClockFacts {
                kind,
                error_ns: 0,
                frequency: 1_000_000_000,
                ticks: now,
                monotonic: now,
                realtime: now.wrapping_add(realtime_less_monotonic),
            };
        }
        let (t0, m0) = earlier.unwrap_or_else(|| {
            let (ticks, monotonic, _) = self.best_anchor();
            (ticks, monotonic)
        });
        while monotonic_ns().saturating_sub(m0) < 2_000_000 {
            std::hint::spin_loop();
        }
        let (ticks, monotonic, between) = self.best_anchor();
        let elapsed = u128::from(monotonic.saturating_sub(m0).max(1));
        let frequency =
            (u128::from(ticks.saturating_sub(t0)) * 1_000_000_000 + elapsed / 2) / elapsed;
        let frequency = u64::try_from(frequency).unwrap_or(u64::MAX).max(1);
        let half_ns = u128::from(between / 2) * 1_000_000_000 / u128::from(frequency);
        ClockFacts {
            kind,
            error_ns: u32::try_from(half_ns + 1).unwrap_or(u32::MAX),
            frequency,
            ticks,
            monotonic,
            realtime: monotonic.wrapping_add(realtime_less_monotonic),
        }
    }

    /// The tightest of some anchors: ticks, monotonic, ticks between the two readings.
    fn best_anchor(self) -> (u64, u64, u64) {
        let mut best = (0, 0, u64::MAX);
        for _ in 0..8 {
            let before = self.now();
            let monotonic = monotonic_ns();
            let between = self.now().saturating_sub(before);
            if between < best.2 {
                best = (before + between / 2, monotonic, between);
            }
        }
        best
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn tsc() -> u64 {
    // SAFETY: reads a counter; every x86-64 processor has it, and Linux leaves it readable
    // (PR_SET_TSC is the process's own choice).
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The virtual count of the generic timer, which Linux leaves readable.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
fn tsc() -> u64 {
    let ticks: u64;
    // SAFETY: reads a counter, not before what stands before it.
    unsafe {
        std::arch::asm!(
            "isb",
            "mrs {ticks}, cntvct_el0",
            ticks = out(reg) ticks,
            options(nostack, preserves_flags, nomem),
        );
    }
    ticks
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
fn tsc() -> u64 {
    monotonic_ns()
}

/// The kernel's name of the clock source that reads the counter.
const COUNTER: Option<&str> = match () {
    () if cfg!(all(target_arch = "x86_64", not(miri))) => Some("tsc"),
    () if cfg!(all(target_arch = "aarch64", not(miri))) => Some("arch_sys_counter"),
    () => None,
};

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn tsc_is_invariant() -> bool {
    use std::arch::x86_64::__cpuid;
    const INVARIANT: u32 = 1 << 8;
    #[allow(
        unused_unsafe,
        reason = "safe since Rust 1.94, unsafe in the oldest supported compiler"
    )]
    let cpuid = |leaf| {
        // SAFETY: every x86-64 processor has the instruction.
        unsafe { __cpuid(leaf) }
    };
    cpuid(0x8000_0000).eax >= 0x8000_0007 && cpuid(0x8000_0007).edx & INVARIANT != 0
}

/// The generic timer always is: Arm ARM, D12.1.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn tsc_is_invariant() -> bool {
    true
}

const CLOCK_REALTIME: i32 = 0;
const CLOCK_MONOTONIC: i32 = 1;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

fn read_clock(clock: i32) -> u64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: `time` has the layout of struct timespec on 64-bit Linux and lives until the call returns.
    unsafe { clock_gettime(clock, &raw mut time) };
    (time.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(time.nanoseconds as u64)
}

/// Not inlined: writers that read the counter keep their registers.
#[inline(never)]
fn monotonic_ns() -> u64 {
    read_clock(CLOCK_MONOTONIC)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn facts_survive_their_bytes() {
        let facts = Clock::Monotonic.facts(None);
        assert_eq!(ClockFacts::parse(&facts.encode()), Some(facts));

        assert_eq!(ClockFacts::parse(&facts.encode()[..47]), None);
        assert_eq!(ClockFacts::parse(&[0; 48]), None);
    }

    #[test]
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    fn the_counter_maps_to_the_kernels_clock_within_its_bound() {
        let facts = Clock::Tsc.facts(None);
        let ticks = Clock::Tsc.now();
        let after = monotonic_ns();
        let ns = facts.monotonic
            + (u128::from(ticks - facts.ticks) * 1_000_000_000 / u128::from(facts.frequency))
                as u64;
        // `ticks` was read before `after`, and not long before.
        assert!(ns <= after + 1_000 + u64::from(facts.error_ns), "{ns} {after} {facts:?}");
        assert!(ns + 50_000_000 > after, "{ns} {after} {facts:?}");
    }
}
