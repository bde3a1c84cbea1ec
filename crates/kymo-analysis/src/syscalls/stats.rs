//! Durations of calls, with their mean and how far they spread.

use std::collections::BTreeMap;

use crate::tasks::DelayStats;

/// Calls of one kind.
#[derive(Clone, Debug, Default)]
pub struct SyscallStats {
    /// Durations and number of calls.
    pub durations: DelayStats,
    /// The shortest.
    pub min: Option<u64>,
    /// Calls that failed, by error; those that a signal makes the kernel restart, too.
    pub errors: BTreeMap<i32, u64>,
    /// Nanoseconds in which they waited for something.
    pub blocked: u64,
    /// Nanoseconds in which they waited for a CPU.
    pub runnable: u64,
    /// Calls in which events were lost; they are in no other number.
    pub uncertain: u64,
    /// Mean, and sum of the squares of the distances from it.
    mean: f64,
    squares: f64,
}

impl SyscallStats {
    /// Counts a call.
    #[inline]
    pub fn add(&mut self, nanos: u64, from: u64, error: Option<i32>) {
        self.durations.add(nanos, from);
        self.min = Some(self.min.map_or(nanos, |min| min.min(nanos)));
        if let Some(error) = error {
            *self.errors.entry(error).or_default() += 1;
        }
        let distance = nanos as f64 - self.mean;
        self.mean += distance / self.durations.count as f64;
        self.squares += distance * (nanos as f64 - self.mean);
    }

    /// Takes over what another one counted.
    pub fn merge(&mut self, other: &SyscallStats) {
        let (a, b) = (self.durations.count as f64, other.durations.count as f64);
        if b > 0.0 {
            let distance = other.mean - self.mean;
            self.mean += distance * b / (a + b);
            self.squares += other.squares + distance * distance * a * b / (a + b);
        }
        self.durations.merge(&other.durations);
        self.min = self.min.into_iter().chain(other.min).min();
        for (error, count) in &other.errors {
            *self.errors.entry(*error).or_default() += count;
        }
        self.blocked = self.blocked.saturating_add(other.blocked);
        self.runnable = self.runnable.saturating_add(other.runnable);
        self.uncertain += other.uncertain;
    }

    /// Number of calls that failed.
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Standard error of the mean in percent of it, which perf calls stddev.
    pub fn relative_error(&self) -> f64 {
        let count = self.durations.count as f64;
        if count < 2.0 || self.mean <= 0.0 {
            return 0.0;
        }
        100.0 * (self.squares / (count - 1.0) / count).sqrt() / self.mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_statistics_are_those_of_all_calls() {
        let values = [3u64, 900, 17, 17, 40_000, 2, 5];
        let mut all = SyscallStats::default();
        let (mut a, mut b) = (SyscallStats::default(), SyscallStats::default());
        for (n, value) in values.into_iter().enumerate() {
            all.add(value, 0, Some(4).filter(|_| value == 17));
            let part = if n < 3 { &mut a } else { &mut b };
            part.add(value, 0, Some(4).filter(|_| value == 17));
        }
        a.merge(&b);
        a.merge(&SyscallStats::default());
        assert!((a.relative_error() - all.relative_error()).abs() < 1e-9);
        assert_eq!((a.min, a.failed(), a.durations.count), (Some(2), 2, 7));
        let mean = values.iter().sum::<u64>() as f64 / 7.0;
        let squares: f64 = values.iter().map(|v| (*v as f64 - mean).powi(2)).sum();
        let expected = 100.0 * (squares / 6.0 / 7.0).sqrt() / mean;
        assert!((all.relative_error() - expected).abs() < 1e-9);
        let mut one = SyscallStats::default();
        assert_eq!((one.relative_error(), one.durations.quantile(0.5)), (0.0, None));
        one.add(1000, 0, None);
        assert_eq!((one.relative_error(), one.durations.quantile(0.5)), (0.0, Some(1000)));
    }
}
