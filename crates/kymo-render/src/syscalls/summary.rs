//! `-s`: how often each call was made, how often it failed, and how long it took.

use std::io::Write as _;
use std::time::Duration;

use kymo_model::format_width;
use rustc_hash::FxHashMap;

/// Calls by number.
#[derive(Default)]
pub(super) struct SyscallSummary {
    calls: FxHashMap<i64, SummaryRow>,
}

#[derive(Clone)]
struct SummaryRow {
    name: String,
    calls: u64,
    errors: u64,
    total: Duration,
    min: Duration,
    max: Duration,
}

impl SyscallSummary {
    /// Counts a call that returned.
    pub(super) fn count(&mut self, number: i64, name: &str, failed: bool, took: Duration) {
        let row = self.calls.entry(number).or_insert_with(|| SummaryRow {
            name: name.to_owned(),
            calls: 0,
            errors: 0,
            total: Duration::ZERO,
            min: Duration::MAX,
            max: Duration::ZERO,
        });
        row.calls += 1;
        row.errors += u64::from(failed);
        row.total += took;
        row.min = row.min.min(took);
        row.max = row.max.max(took);
    }

    /// The table, the longest total first, and the sum of all.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut rows: Vec<&SummaryRow> = self.calls.values().collect();
        rows.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
        let width = rows.iter().map(|r| r.name.len()).max().unwrap_or(0).max(12);
        let width = format_width(width);
        let _ = writeln!(
            out,
            "{:<width$} {:>9} {:>8} {:>12} {:>10} {:>10} {:>10}",
            "syscall", "calls", "errors", "total (ms)", "min (ms)", "avg (ms)", "max (ms)"
        );
        let rule = |n: usize| "-".repeat(n);
        let (a, b, c, d) = (rule(width), rule(9), rule(8), rule(12));
        let _ = writeln!(out, "{a} {b} {c} {d} {0} {0} {0}", rule(10));
        let ms = |d: Duration| format!("{:.3}", d.as_secs_f64() * 1e3);
        for r in &rows {
            let avg = r.total / u32::try_from(r.calls).unwrap_or(u32::MAX).max(1);
            let _ = writeln!(
                out,
                "{:<width$} {:>9} {:>8} {:>12} {:>10} {:>10} {:>10}",
                r.name,
                r.calls,
                r.errors,
                ms(r.total),
                ms(r.min),
                ms(avg),
                ms(r.max)
            );
        }
        let calls: u64 = rows.iter().map(|r| r.calls).sum();
        let errors: u64 = rows.iter().map(|r| r.errors).sum();
        let total: Duration = rows.iter().map(|r| r.total).sum();
        let _ = writeln!(out, "{:<width$} {calls:>9} {errors:>8} {:>12}", "total", ms(total));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_summed() {
        let mut s = SyscallSummary::default();
        s.count(0, "read", false, Duration::from_micros(10));
        s.count(0, "read", true, Duration::from_micros(30));
        s.count(1, "write", false, Duration::from_millis(2));
        let mut out = Vec::new();
        s.write(&mut out);
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(rows[2], ["write", "1", "0", "2.000", "2.000", "2.000", "2.000"]);
        assert_eq!(rows[3], ["read", "2", "1", "0.040", "0.010", "0.020", "0.030"]);
        assert_eq!(rows[4], ["total", "3", "1", "2.040"]);
    }
}
