//! Times between two events: histogram and percentiles, by key if asked for, the slowest with
//! their times, and events that found no partner.

use std::io::{self, Write};

use kymo_programs::{HistogramBucket, ProgramValue};

use super::histogram::{by_doublings, write_bars};
use super::text::CountRow;
use super::{EventCounts, events_of, key_text, quantile};
use crate::units::{Grouped, Seconds, Span, TimeUnits, grouped_count};

/// The slowest that are shown.
const SLOWEST: usize = 5;

/// Numbers of one key.
pub(super) struct LatencyRow<'a> {
    pub keys: &'a [ProgramValue],
    pub buckets: &'a [HistogramBucket],
    pub count: u64,
    pub average: u64,
    pub max: u64,
}

impl LatencyRow<'_> {
    /// At most a bucket above the truth, and never above the largest.
    pub(super) fn quantile(&self, share: f64) -> u64 {
        quantile(self.buckets, share).map_or(0, |q| u64::try_from(q).unwrap_or(0)).min(self.max)
    }
}

/// One of the slowest.
pub(super) struct SlowLatency<'a> {
    pub nanos: u64,
    /// End time, by the monotonic clock.
    pub end_ns: u64,
    /// The key that joins both events, then those of `--by`.
    pub keys: &'a [ProgramValue],
}

impl EventCounts<'_> {
    /// Rows, the one with the most time first.
    pub(super) fn latency_rows(&self) -> Vec<LatencyRow<'_>> {
        let find = |name: &str, keys: &[ProgramValue]| {
            let mut entries = self.map(name).entries.iter();
            entries.find(|(k, _)| k == keys).map(|(_, value)| value)
        };
        let mut rows: Vec<LatencyRow<'_>> = self
            .result()
            .entries
            .iter()
            .filter_map(|(keys, value)| {
                let ProgramValue::Histogram(buckets) = value else { return None };
                let max = find("@max", keys).and_then(ProgramValue::number).unwrap_or(0);
                let average = match find("@stats", keys) {
                    Some(ProgramValue::Statistics(_, average, _)) => average.number().unwrap_or(0),
                    _ => 0,
                };
                Some(LatencyRow {
                    keys,
                    buckets,
                    count: events_of(buckets),
                    average: u64::try_from(average).unwrap_or(0),
                    max: u64::try_from(max).unwrap_or(0),
                })
            })
            .filter(|row| row.count > 0)
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse(u128::from(row.average) * u128::from(row.count)));
        rows
    }

    /// The shortest median of all keys, in nanoseconds.
    pub fn shortest_median(&self) -> Option<u64> {
        self.latency_rows().iter().map(|row| row.quantile(0.5)).min()
    }

    /// The slowest of all CPUs.
    pub(super) fn slowest(&self) -> Vec<SlowLatency<'_>> {
        let number = |value: Option<&ProgramValue>| {
            value.and_then(ProgramValue::number).and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
        };
        let slow = self.map("@worst").entries.iter().filter_map(|(_, value)| match value {
            ProgramValue::Tuple(parts) => Some(SlowLatency {
                nanos: number(parts.first()),
                end_ns: number(parts.get(1)),
                keys: parts.get(2..).unwrap_or_default(),
            }),
            _ => None,
        });
        let mut slow: Vec<SlowLatency<'_>> = slow.filter(|s| s.end_ns > 0).collect();
        slow.sort_by_key(|s| std::cmp::Reverse(s.nanos));
        slow.truncate(SLOWEST);
        slow
    }

    /// Events without a partner: not ended, begun again before an end, ended without beginning.
    pub(super) fn unpaired(&self) -> [(&'static str, u64); 3] {
        [
            ("had not ended", self.map("@begin").entries.len() as u64),
            ("began again before an end", self.number("@again")),
            ("ended without a beginning", self.number("@alone")),
        ]
    }

    pub(super) fn write_latency(&self, out: &mut dyn Write, text: &str) -> io::Result<()> {
        let rows = self.latency_rows();
        let count: u64 = rows.iter().map(|row| row.count).sum();
        let (name, seconds) = (text.trim(), self.elapsed_ns as f64 / 1e9);
        match rows.as_slice() {
            [] => writeln!(out, "No latency of {name} in {seconds:.3} s.")?,
            [row] if self.keys.is_empty() => {
                writeln!(
                    out,
                    "{} of {name} in {seconds:.3} s:\navg {}, p50 {}, p90 {}, p99 {}, max {}.\n",
                    grouped_count(count, "latency", "latencies"),
                    Span(row.average),
                    Span(row.quantile(0.5)),
                    Span(row.quantile(0.9)),
                    Span(row.quantile(0.99)),
                    Span(row.max)
                )?;
                let span = |value: i64| Span(u64::try_from(value).unwrap_or(0)).to_string();
                write_bars(out, &by_doublings(row.buckets), span)?;
            }
            rows => {
                let latencies = grouped_count(count, "latency", "latencies");
                writeln!(out, "{latencies} of {name} in {seconds:.3} s.")?;
                self.write_latency_table(out, rows)?;
            }
        }
        self.write_slowest(out)?;
        let unpaired: Vec<String> = self
            .unpaired()
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| format!("{} {what}", Grouped(*count)))
            .collect();
        match unpaired.as_slice() {
            [] => Ok(()),
            some => writeln!(out, "\nNot counted: {}.", some.join(", ")),
        }
    }

    fn write_latency_table(&self, out: &mut dyn Write, rows: &[LatencyRow<'_>]) -> io::Result<()> {
        let most = if self.top == 0 { usize::MAX } else { self.top };
        let table: Vec<CountRow<'_>> = rows
            .iter()
            .take(most)
            .map(|row| {
                let times = [
                    row.average,
                    row.quantile(0.5),
                    row.quantile(0.9),
                    row.quantile(0.99),
                    row.max,
                ];
                let mut numbers = vec![Grouped(row.count).to_string()];
                numbers.extend(times.iter().map(|t| Span(*t).to_string()));
                CountRow { numbers, keys: row.keys }
            })
            .collect();
        self.write_table(out, &["count", "avg", "p50", "p90", "p99", "max"], &table)?;
        match rows.len().saturating_sub(most) {
            0 => Ok(()),
            more => writeln!(out, "  ... and {more} more (--top)"),
        }
    }

    fn write_slowest(&self, out: &mut dyn Write) -> io::Result<()> {
        let slowest = self.slowest();
        if slowest.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nThe slowest, each with the time of its end (monotonic clock):")?;
        for slow in slowest {
            let keys: Vec<String> = slow.keys.iter().map(key_text).collect();
            let nano = TimeUnits { nanos: true };
            writeln!(
                out,
                "    {:>9}  {:>18}  {}",
                Span(slow.nanos).to_string(),
                Seconds(slow.end_ns, nano),
                keys.join("  ")
            )?;
        }
        Ok(())
    }
}
