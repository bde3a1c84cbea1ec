//! How durations are spread: quantiles, and a row of blocks for each doubling.

use std::io::{self, Write};

use kymo_analysis::tasks::DelayStats;

use crate::units::{Grouped, Span};

/// Blocks of the longest row.
const BAR: u64 = 40;
/// Pieces of a table that histograms are shown of.
pub(crate) const HISTOGRAMS: usize = 5;

/// Writes the histogram of durations, with a title.
pub(crate) fn write_histogram(out: &mut dyn Write, title: &str, d: &DelayStats) -> io::Result<()> {
    let (Some((max, _)), Some(average)) = (d.max, d.average()) else { return Ok(()) };
    let quantile = |share| Span(d.histogram.quantile(share).map_or(max, |q| q.min(max)));
    writeln!(out, "\n  {title}: {} of {} together", Grouped(d.count), Span(d.total))?;
    writeln!(
        out,
        "    avg {}  p50 {}  p90 {}  p99 {}  max {}",
        Span(average),
        quantile(0.5),
        quantile(0.9),
        quantile(0.99),
        Span(max)
    )?;
    let rows = d.histogram.doublings();
    let most = rows.iter().map(|(_, n)| *n).max().unwrap_or(1).max(1);
    let mut is_gap = false;
    for (begin, count) in rows {
        if count == 0 {
            is_gap = true;
            continue;
        }
        if std::mem::take(&mut is_gap) {
            writeln!(out, "          ...")?;
        }
        let end = if begin == 0 { 16 } else { begin.saturating_mul(2) };
        let bar = "█".repeat(count.saturating_mul(BAR).div_ceil(most) as usize);
        let (from, to) = (Span(begin).to_string(), Span(end).to_string());
        writeln!(out, "    {from:>9} - {to:>9} | {count:>8} {bar}")?;
    }
    Ok(())
}
