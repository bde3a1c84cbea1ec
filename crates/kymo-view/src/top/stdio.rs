//! Text of `kymo top --stdio`, laid out as perf's: a line that begins with `PerfTop:`, a rule,
//! the rows.

use std::io::{self, Write};

use kymo_model::format_width;

use super::page::TopPage;
use crate::percent;

/// Parts of the first line other than the samples.
#[derive(Clone, Debug, Default)]
pub struct TopHeader {
    /// Samples a second.
    pub rate: f64,
    /// Records lost since the page before, and in all.
    pub lost: (u64, u64),
    /// The sampling frequency and the event: `4000Hz cpu-clock`.
    pub event: String,
    /// Target of the samples: `all, 2 CPUs`.
    pub target: String,
}

/// Columns of numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct StdioColumns {
    /// The share with callees before the own one.
    pub children: bool,
    /// Samples.
    pub samples: bool,
    /// Sums of periods.
    pub period: bool,
}

/// Writes a page.
///
/// # Errors
/// If it cannot be written.
pub fn write_stdio(
    out: &mut dyn Write,
    header: &TopHeader,
    page: &TopPage,
    columns: StdioColumns,
) -> io::Result<()> {
    let TopHeader { rate, lost, event, target } = header;
    let kernel = percent(page.sums.kernel, page.sums.samples);
    writeln!(
        out,
        "\n   PerfTop:{rate:8.0} irqs/sec  kernel:{kernel:4.1}%  exact:  0.0% lost: {}/{} drop: \
         0/0 [{event}],  ({target})",
        lost.0, lost.1
    )?;
    writeln!(out, "{}\n", "-".repeat(79))?;
    let mut widths = vec![0; page.titles.len()];
    for line in &page.lines {
        for (width, cell) in widths.iter_mut().zip(&line.cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    // The last column is not filled up.
    if let Some(last) = widths.last_mut() {
        *last = 0;
    }
    for line in &page.lines {
        if columns.children {
            write!(out, " {:8.2}%", line.total)?;
        }
        write!(out, " {:8.2}%", line.own)?;
        if page.has_off_cpu {
            write!(out, " {:>9}", line.off_cpu_text())?;
        }
        if columns.samples {
            write!(out, " {:>8}", line.samples)?;
        }
        if columns.period {
            write!(out, " {:>14}", line.period)?;
        }
        for (cell, width) in line.cells.iter().zip(&widths) {
            let width = format_width(*width);
            write!(out, "  {cell:<width$}")?;
        }
        writeln!(out)?;
    }
    out.flush()
}
