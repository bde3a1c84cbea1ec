//! The table of `-c`: calls with their counts, errors and times.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

/// Order of the table's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountOrder {
    /// The longest time first.
    #[default]
    Time,
    /// The most calls first.
    Calls,
    /// The most errors first.
    Errors,
    /// By name.
    Name,
}

#[derive(Debug, Default)]
struct CallCount {
    calls: u64,
    errors: u64,
    time: Duration,
}

/// Calls by number and name: the order of rows that are equal.
#[derive(Debug, Default)]
pub(super) struct CallCounts(BTreeMap<(i64, String), CallCount>);

impl CallCounts {
    pub(super) fn add(&mut self, call: (i64, &str), is_error: bool, time: Duration) {
        let count = self.0.entry((call.0, call.1.to_owned())).or_default();
        count.calls += 1;
        count.errors += u64::from(is_error);
        count.time = count.time.saturating_add(time);
    }

    pub(super) fn write(&self, order: CountOrder, out: &mut Vec<u8>) {
        let mut rows: Vec<_> = self.0.iter().collect();
        // Rows that are equal stay in the order of their numbers.
        match order {
            CountOrder::Time => rows.sort_by_key(|row| std::cmp::Reverse(row.1.time)),
            CountOrder::Calls => rows.sort_by_key(|row| std::cmp::Reverse(row.1.calls)),
            CountOrder::Errors => rows.sort_by_key(|row| std::cmp::Reverse(row.1.errors)),
            CountOrder::Name => rows.sort_by_key(|row| &row.0.1),
        }
        let total: Duration = self.0.values().map(|count| count.time).sum();
        let calls: u64 = self.0.values().map(|count| count.calls).sum();
        let errors: u64 = self.0.values().map(|count| count.errors).sum();
        let rule = "------ ----------- ----------- --------- --------- ----------------\n";
        out.extend_from_slice(b"% time     seconds  usecs/call     calls    errors syscall\n");
        out.extend_from_slice(rule.as_bytes());
        for ((_, name), count) in rows {
            let share = match total.as_nanos() {
                0 => 0.0,
                all => 100.0 * count.time.as_nanos() as f64 / all as f64,
            };
            row(out, share, count, name);
        }
        out.extend_from_slice(rule.as_bytes());
        row(out, 100.0, &CallCount { calls, errors, time: total }, "total");
    }
}

fn row(out: &mut Vec<u8>, share: f64, count: &CallCount, name: &str) {
    let each = count.time.as_micros() / u128::from(count.calls.max(1));
    let errors = if count.errors > 0 { count.errors.to_string() } else { String::new() };
    let seconds = count.time.as_secs_f64();
    let calls = count.calls;
    let _ = writeln!(out, "{share:6.2} {seconds:11.6} {each:11} {calls:9} {errors:>9} {name}");
}
