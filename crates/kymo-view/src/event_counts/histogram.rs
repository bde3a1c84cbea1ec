//! Buckets as lines of bars.

use std::fmt::Display;
use std::io::{self, Write};

use kymo_programs::HistogramBucket;

/// Width of the longest bar.
const BAR: u64 = 40;

/// Writes the buckets from the first that is not empty to the last.
pub(super) fn write_bars<T: Display>(
    out: &mut dyn Write,
    buckets: &[HistogramBucket],
    shown: impl Fn(i64) -> T,
) -> io::Result<()> {
    let first = buckets.iter().position(|b| b.count > 0).unwrap_or(buckets.len());
    let last = buckets.iter().rposition(|b| b.count > 0).map_or(first, |last| last + 1);
    let used = buckets.get(first..last).unwrap_or_default();
    let most = used.iter().map(|b| b.count).max().unwrap_or(1).max(1);
    let mut is_gap = false;
    for bucket in used {
        if bucket.count == 0 {
            is_gap = true;
            continue;
        }
        if std::mem::take(&mut is_gap) {
            writeln!(out, "           ...")?;
        }
        let end = |value: Option<i64>| value.map_or(String::new(), |v| shown(v).to_string());
        let (from, to) = if bucket.is_single {
            (String::new(), end(bucket.from))
        } else {
            (end(bucket.from), end(bucket.to))
        };
        let dash = if bucket.is_single { ' ' } else { '-' };
        let len = (u128::from(bucket.count) * u128::from(BAR)).div_ceil(u128::from(most));
        let bar = "█".repeat(len as usize);
        writeln!(out, "    {from:>10} {dash} {to:>10} | {:>9} {bar}", bucket.count)?;
    }
    Ok(())
}

/// Merges buckets into doublings.
pub(super) fn by_doublings(buckets: &[HistogramBucket]) -> Vec<HistogramBucket> {
    let mut doublings: Vec<HistogramBucket> = Vec::new();
    for bucket in buckets {
        let from = match bucket.from {
            Some(from) if from > 1 => Some(1i64 << from.ilog2()),
            from => from,
        };
        match doublings.last_mut() {
            Some(last) if last.from == from && from.is_some() => last.count += bucket.count,
            _ => {
                let to = match from {
                    Some(from) if from > 1 => from.checked_mul(2),
                    _ => bucket.to,
                };
                doublings.push(HistogramBucket { from, to, ..*bucket });
            }
        }
        if let Some(last) = doublings.last_mut() {
            last.is_single = from.is_some_and(|from| from < 2);
        }
    }
    doublings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighths_become_doublings() {
        let bucket = |from: i64, to: i64, count: u64| HistogramBucket {
            from: Some(from),
            to: Some(to),
            is_single: to == from + 1,
            count,
        };
        let fine = [bucket(0, 1, 1), bucket(1, 2, 2), bucket(2, 3, 3), bucket(3, 4, 4)];
        let fine = [&fine[..], &[bucket(4, 5, 5), bucket(7, 8, 6), bucket(16, 18, 7)]].concat();
        let coarse: Vec<(i64, i64, u64)> = by_doublings(&fine)
            .iter()
            .map(|b| (b.from.unwrap_or(-1), b.to.unwrap_or(-1), b.count))
            .collect();
        assert_eq!(coarse, [(0, 1, 1), (1, 2, 2), (2, 4, 7), (4, 8, 11), (16, 32, 7)]);
    }
}
