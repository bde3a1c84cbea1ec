//! The kernel's clocks: what they show and how finely.

use rustix::time::{ClockId, DynamicClockId, Timespec};

/// A clock, by its name in clock_gettime(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelClock {
    /// Since boot, without suspension, slewed.
    Monotonic,
    /// Since boot, without suspension, as the hardware counts.
    MonotonicRaw,
    /// Since 1970.
    Realtime,
    /// Since boot, with suspension.
    Boottime,
    /// As [`Realtime`](Self::Realtime), without leap seconds.
    Tai,
}

impl KernelClock {
    /// Current time of the clock, in ns; `None` if the kernel does not have it.
    pub fn now(self) -> Option<u64> {
        Some(nanoseconds(match self {
            KernelClock::Tai => rustix::time::clock_gettime_dynamic(DynamicClockId::Tai).ok()?,
            other => rustix::time::clock_gettime(other.id()),
        }))
    }

    /// The nanoseconds between two readings that differ.
    pub fn resolution(self) -> u64 {
        nanoseconds(rustix::time::clock_getres(self.id()))
    }

    fn id(self) -> ClockId {
        match self {
            KernelClock::Monotonic => ClockId::Monotonic,
            KernelClock::MonotonicRaw => ClockId::MonotonicRaw,
            // TAI is the real time with another count of seconds.
            KernelClock::Realtime | KernelClock::Tai => ClockId::Realtime,
            KernelClock::Boottime => ClockId::Boottime,
        }
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    nanoseconds(rustix::time::clock_gettime(ClockId::Monotonic))
}

fn nanoseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_on() {
        let all = [
            KernelClock::Monotonic,
            KernelClock::MonotonicRaw,
            KernelClock::Realtime,
            KernelClock::Boottime,
            KernelClock::Tai,
        ];
        for clock in all {
            let first = clock.now().unwrap();
            assert!(first > 0 && clock.now().unwrap() >= first, "{clock:?}");
            assert!((1..=20_000_000).contains(&clock.resolution()), "{clock:?}");
        }
        let before = monotonic_ns();
        let between = KernelClock::Monotonic.now().unwrap();
        assert!((before..=monotonic_ns()).contains(&between));
    }
}
