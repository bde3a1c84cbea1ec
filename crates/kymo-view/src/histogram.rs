//! Distribution of durations: quantiles, and a row of blocks for each doubling.

use std::io::{self, Write};

use kymo_table::{Cell, TableRow};

use crate::units::{Grouped, Span};

/// Blocks of the longest row.
const BAR: u64 = 40;
/// Rows of a table that histograms are shown of.
pub(crate) const HISTOGRAMS: usize = 5;

/// Doublings of durations in a cell: begin and number.
pub(crate) fn doublings(cell: &Cell) -> Vec<(u64, u64)> {
    let Cell::List(all) = cell else { return Vec::new() };
    let pair = |pair: &Cell| match pair {
        Cell::List(pair) => Some((pair.first()?.number()?, pair.get(1)?.number()?)),
        _ => None,
    };
    all.iter().filter_map(pair).collect()
}

/// Writes the histogram of durations, with a title; `group` is the prefix of their columns.
pub(crate) fn write_histogram(
    out: &mut dyn Write,
    title: &str,
    row: TableRow<'_>,
    group: &str,
) -> io::Result<()> {
    let name = |column: &str| format!("{group}{column}");
    let span = |column: &str| Span(row.number(&name(column)));
    if row.number(&name("count")) == 0 {
        return Ok(());
    }
    let count = Grouped(row.number(&name("count")));
    writeln!(out, "\n  {title}: {count} of {} together", span("total_ns"))?;
    writeln!(
        out,
        "    avg {}  p50 {}  p90 {}  p99 {}  max {}",
        span("average_ns"),
        span("p50_ns"),
        span("p90_ns"),
        span("p99_ns"),
        span("max_ns")
    )?;
    let rows = doublings(row.cell(&name("histogram")));
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
