//! `-s`: how often each call was made, how often it failed, and how long it took.

use std::cmp::Reverse;
use std::io::Write as _;

use kymo_analysis::syscalls::SyscallStats;
use kymo_model::CompactSort as _;
use kymo_model::format_width;
use rustc_hash::FxHashMap;

use super::errno::errno_name;

/// Calls by number.
#[derive(Default)]
pub(super) struct SyscallSummary {
    calls: FxHashMap<i64, (String, SyscallStats)>,
    /// With numbers by error.
    by_error: bool,
}

impl SyscallSummary {
    /// `by_error`: with numbers by error.
    pub(super) fn new(by_error: bool) -> SyscallSummary {
        SyscallSummary { by_error, ..SyscallSummary::default() }
    }

    /// Counts a call that returned.
    pub(super) fn count(&mut self, number: i64, name: &str, error: Option<i32>, nanos: u64) {
        let row = self.calls.entry(number);
        row.or_insert_with(|| (name.to_owned(), SyscallStats::default())).1.add(nanos, 0, error);
    }

    /// The table, the longest total first, and the sum of all.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut rows: Vec<&(String, SyscallStats)> = self.calls.values().collect();
        rows.compact_sort_by_key(|(name, s)| (Reverse(s.durations.total), name));
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(12);
        let width = format_width(width);
        let _ = writeln!(
            out,
            "{:<width$} {:>9} {:>8} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}",
            "syscall",
            "calls",
            "errors",
            "total (ms)",
            "min (ms)",
            "avg (ms)",
            "p50 (ms)",
            "p99 (ms)",
            "max (ms)",
            "stddev"
        );
        let rule = |n: usize| "-".repeat(n);
        let (a, b, c, d) = (rule(width), rule(9), rule(8), rule(12));
        let _ = writeln!(out, "{a} {b} {c} {d} {0} {0} {0} {0} {0} {c}", rule(10));
        let ms = |nanos: Option<u64>| format!("{:.3}", nanos.unwrap_or(0) as f64 / 1e6);
        for (name, s) in &rows {
            let _ = writeln!(
                out,
                "{name:<width$} {:>9} {:>8} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>7.2}%",
                s.durations.count,
                s.failed(),
                ms(Some(s.durations.total)),
                ms(s.min),
                ms(s.durations.average()),
                ms(s.quantile(0.5)),
                ms(s.quantile(0.99)),
                ms(s.durations.max.map(|m| m.0)),
                s.relative_error(),
            );
            for (error, count) in s.errors.iter().filter(|_| self.by_error) {
                let name = errno_name(*error).map_or_else(|| error.to_string(), str::to_owned);
                let _ = writeln!(out, "{:>1$}: {count}", name, format_width(width + 19));
            }
        }
        let calls: u64 = rows.iter().map(|(_, s)| s.durations.count).sum();
        let errors: u64 = rows.iter().map(|(_, s)| s.failed()).sum();
        let total = rows.iter().fold(0u64, |sum, (_, s)| sum.saturating_add(s.durations.total));
        let _ = writeln!(out, "{:<width$} {calls:>9} {errors:>8} {:>12}", "total", ms(Some(total)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_summed() {
        let mut s = SyscallSummary::new(true);
        s.count(0, "read", None, 10_000);
        s.count(0, "read", Some(4), 30_000);
        s.count(1, "write", None, 2_000_000);
        let mut out = Vec::new();
        s.write(&mut out);
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        let times = ["2.000", "2.000", "2.000", "2.000", "2.000", "2.000"];
        assert_eq!(rows[2], [&["write", "1", "0"][..], &times, &["0.00%"]].concat());
        let times = ["0.040", "0.010", "0.020", "0.010", "0.030", "0.030", "50.00%"];
        assert_eq!(rows[3], [&["read", "2", "1"][..], &times].concat());
        assert_eq!(rows[4], ["EINTR:", "1"]);
        assert_eq!(rows[5], ["total", "3", "1", "2.040"]);
    }
}
