//! Histograms as lines of bars.

use std::io::Write as _;

use crate::value::HistogramBucket;

/// Characters of the longest bar.
const WIDTH: u64 = 52;

/// The buckets from the first that is not empty to the last.
pub(super) fn used_buckets(buckets: &[HistogramBucket]) -> &[HistogramBucket] {
    let first = buckets.iter().position(|b| b.count > 0).unwrap_or(buckets.len());
    let last = buckets.iter().rposition(|b| b.count > 0).map_or(first, |last| last + 1);
    buckets.get(first..last).unwrap_or_default()
}

/// Lines of a histogram.
pub(super) fn write_bars(out: &mut Vec<u8>, buckets: &[HistogramBucket]) {
    let used = used_buckets(buckets);
    let largest = used.iter().map(|b| b.count).max().unwrap_or(0).max(1);
    for bucket in used {
        let len = (u128::from(bucket.count) * u128::from(WIDTH) / u128::from(largest)) as usize;
        let (label, bar, width) = (label(bucket), "@".repeat(len), WIDTH as usize);
        let _ = writeln!(out, "{label:<16}{:>8} |{bar:<width$}|", bucket.count);
    }
}

fn label(bucket: &HistogramBucket) -> String {
    match (bucket.from, bucket.to) {
        (None, None) => "(..., ...)".into(),
        (None, Some(to)) => format!("(..., {})", limit(to)),
        (Some(from), _) if bucket.is_single => format!("[{}]", limit(from)),
        (Some(from), Some(to)) => format!("[{}, {})", limit(from), limit(to)),
        (Some(from), None) => format!("[{}, ...)", limit(from)),
    }
}

/// A number in the largest unit that divides it.
fn limit(value: i64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let (mut value, mut unit) = (value, 0);
    while value != 0 && value % 1024 == 0 && unit + 1 < UNITS.len() {
        value /= 1024;
        unit += 1;
    }
    format!("{value}{}", UNITS.get(unit).unwrap_or(&""))
}
