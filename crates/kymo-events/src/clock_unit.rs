//! Units of the clocks of recordings: only nanoseconds are times.

/// Unit in which a clock of the kernel's trace rings counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockUnit {
    /// Nanoseconds.
    Nanoseconds,
    /// Cycles of a counter of the CPU.
    Cycles,
    /// Events that were recorded.
    Events,
    /// Ticks of the timer interrupt, 10 ms each.
    Ticks,
}

impl ClockUnit {
    /// Unit of a clock by its name in `trace_clock`; the kernel's other clocks, and those it does
    /// not have yet, count nanoseconds.
    pub fn of_trace_clock(name: &str) -> ClockUnit {
        match name {
            "counter" => ClockUnit::Events,
            "uptime" => ClockUnit::Ticks,
            "x86-tsc" | "ppc-tb" | "s390-tod" => ClockUnit::Cycles,
            _ => ClockUnit::Nanoseconds,
        }
    }

    /// Whether its values are times in nanoseconds.
    pub fn is_time(self) -> bool {
        self == ClockUnit::Nanoseconds
    }

    /// Its name in messages.
    pub fn text(self) -> &'static str {
        match self {
            ClockUnit::Nanoseconds => "nanoseconds",
            ClockUnit::Cycles => "CPU cycles",
            ClockUnit::Events => "events",
            ClockUnit::Ticks => "timer ticks of 10 ms",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those whose `in_ns` is 0 in the kernel's list.
    #[test]
    fn clocks_that_only_count_are_no_times() {
        let counts = ["counter", "uptime", "x86-tsc", "ppc-tb", "s390-tod"];
        assert!(counts.iter().all(|name| !ClockUnit::of_trace_clock(name).is_time()));
        let times = ["local", "global", "perf", "mono", "mono_raw", "boot", "tai"];
        assert!(times.iter().all(|name| ClockUnit::of_trace_clock(name).is_time()));
    }
}
