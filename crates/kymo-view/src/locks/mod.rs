//! Output of `kymo lock`: waits for locks as text laid out as perf's.

mod columns;
mod contention;
mod futex;
mod pairs;
mod report;

pub use columns::LockField;
pub use contention::ContentionView;
pub use futex::FutexView;
pub use report::{LockReportView, write_lock_info};

use std::fmt;

/// A duration with two digits and a unit, as perf shows it: `25.10 us`.
pub(crate) struct ScaledTime(pub(crate) u64);

impl fmt::Display for ScaledTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // perf divides numbers of 32 bits: others are rounded otherwise.
        let nanos = self.0 as f32;
        let units: [(f32, &str); 5] =
            [(3.6e12, "h "), (6e10, "m "), (1e9, "s "), (1e6, "ms"), (1e3, "us")];
        let text = match units.iter().find(|(base, _)| nanos > *base) {
            Some((base, unit)) => format!("{:.2} {unit}", nanos / base),
            None => format!("{} ns", self.0),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::ScaledTime;

    #[test]
    fn durations_have_perfs_units() {
        let text = [999, 9475, 25_098, 3_310_000, 2_000_000_000, 90_000_000_000]
            .map(|n| ScaledTime(n).to_string());
        assert_eq!(text, ["999 ns", "9.48 us", "25.10 us", "3.31 ms", "2.00 s ", "1.50 m "]);
        assert_eq!(format!("{:>12}", ScaledTime(25_098)), "    25.10 us");
    }
}
