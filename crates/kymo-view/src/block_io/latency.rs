//! `kymo io latency`: histograms of queue and device times, by device and operation.

use std::io::{self, Write};

use kymo_analysis::block_io::{BlockNames, BlockTable};
use kymo_model::by_number;
use kymo_table::{Answer, TableRow, TextColumn, TextLayout};

use super::files::{write_files, write_find_hint};
use super::{device_name, span, write_answer};
use crate::Ledger;
use crate::histogram::doublings;
use crate::units::{Grouped, Size, Span};

/// Width of the longest bar.
const BAR: u64 = 24;

/// The histograms as they are shown.
pub struct LatencyHistograms<'a> {
    /// Counted requests.
    pub table: &'a BlockTable,
    /// Its answer, with deleted files of one inode in one row.
    pub answer: &'a Answer,
    /// Names devices and files.
    pub names: BlockNames<'a>,
    /// Devices and operations that are shown at most.
    pub entries: usize,
    /// Columns of the screen, if there is one.
    pub columns: Option<usize>,
    /// Tasks that waited that are shown at most.
    pub waiters: usize,
    /// Files that are shown at most.
    pub files: usize,
    /// The recording as arguments of a command, `-i FILE`.
    pub recording: String,
}

impl LatencyHistograms<'_> {
    /// Writes the answer, the histograms, who waited, and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        write_answer(out, self.table, self.names, &self.recording)?;
        let rows = self.answer.table("rows");
        for (n, row) in rows.first(self.entries).rows().enumerate() {
            write_row(out, row)?;
            // A screen has room for one.
            if n == 0 || self.columns.is_none() {
                write_histograms(out, row, self.columns.map_or(usize::MAX, |_| SCREEN_ROWS))?;
            }
        }
        let more = rows.rows.len().saturating_sub(self.entries);
        if more > 0 {
            writeln!(out, "\n  ... and {more} more (--entries)")?;
        }
        self.write_files(out)?;
        self.write_waiters(out)?;
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    fn write_files(&self, out: &mut dyn Write) -> io::Result<()> {
        let files = self.answer.table("files");
        if files.rows.is_empty() || self.files == 0 {
            return Ok(());
        }
        writeln!(out, "\n  Files")?;
        write_files(out, files.first(self.files), "    ", self.columns)?;
        if files.rows.len() > self.files {
            writeln!(out, "    ... and {} more (--files)", files.rows.len() - self.files)?;
        }
        write_find_hint(out, files.first(self.files))
    }

    fn write_waiters(&self, out: &mut dyn Write) -> io::Result<()> {
        let waiters = self.answer.table("waiters");
        if waiters.rows.is_empty() || self.waiters == 0 {
            return Ok(());
        }
        let layout = TextLayout {
            indent: "    ",
            gap: " ",
            end: "",
            columns: vec![
                TextColumn::left("task", 24, |r| format!("{}:{}", r.text("comm"), r.number("tid"))),
                TextColumn::left("device", 10, device_name),
                TextColumn::number("waits", 8, "waits.count"),
                span("total", "waits.total_ns"),
                span("avg", "waits.average_ns"),
                span("p99", "waits.p99_ns"),
                span("max", "waits.max_ns"),
            ],
        };
        writeln!(out, "\n  Tasks that waited for requests")?;
        layout.write_head(out)?;
        layout.write_rows(out, waiters.first(self.waiters))?;
        if waiters.rows.len() > self.waiters {
            writeln!(out, "    ... and {} more (--waiters)", waiters.rows.len() - self.waiters)?;
        }
        Ok(())
    }
}

fn write_row(out: &mut dyn Write, row: TableRow<'_>) -> io::Result<()> {
    let mut more = String::new();
    for (name, what) in [
        ("errors", "failed"),
        ("requeues", "requeued"),
        ("uncertain", "without times: events lost, or several requests alike"),
    ] {
        if row.number(name) > 0 {
            more += &format!(", {} {what}", Grouped(row.number(name)));
        }
    }
    writeln!(
        out,
        "\n  {} {}: {} {}, {}{more}",
        device_name(row),
        row.text("op"),
        Grouped(row.number("count")),
        by_number(row.number("count"), "request", "requests"),
        Size(row.number("bytes"))
    )?;
    for (name, group) in [("queue", "queue"), ("device", "device_time"), ("both", "total")] {
        let text = |of: &str| Span(row.number(&format!("{group}.{of}"))).to_string();
        writeln!(
            out,
            "    {name:<7} avg {:>9}  p50 {:>9}  p90 {:>9}  p99 {:>9}  max {:>9}",
            text("average_ns"),
            text("p50_ns"),
            text("p90_ns"),
            text("p99_ns"),
            text("max_ns"),
        )?;
    }
    Ok(())
}

/// Rows of the histograms on a screen.
const SCREEN_ROWS: usize = 8;

/// Both histograms beside each other, a row for each doubling that occurs. Where these are more than
/// `most_rows`, the shortest durations are one row.
fn write_histograms(out: &mut dyn Write, row: TableRow<'_>, most_rows: usize) -> io::Result<()> {
    // What never waits has no histogram of it.
    let waits = row.number("queue.max_ns") > 0;
    let a = if waits { doublings(row.cell("queue.histogram")) } else { Vec::new() };
    let b = doublings(row.cell("device_time.histogram"));
    let begins = || a.iter().chain(&b).filter(|(_, n)| *n > 0).map(|(begin, _)| *begin);
    let (Some(first), Some(last)) = (begins().min(), begins().max()) else { return Ok(()) };
    let of = |all: &[(u64, u64)], begin| all.iter().find(|(b, _)| *b == begin).map_or(0, |d| d.1);
    writeln!(
        out,
        "\n    {:>9}   {:>9}   {:>8} {:<24}   {:>8}",
        "from", "to", "queue", "", "device"
    )?;
    let next = |begin: u64| if begin == 0 { 16 } else { begin.saturating_mul(2) };
    let begins =
        std::iter::successors(Some(first), |begin| Some(next(*begin)).filter(|n| *n <= last));
    let rows = begins.take(65).map(|begin| (begin, next(begin), of(&a, begin), of(&b, begin)));
    let mut rows: Vec<_> = rows.filter(|(.., q, d)| q + d > 0).collect();
    let merged = rows.len().saturating_sub(most_rows.max(1));
    if merged > 0 {
        let (shorter, longer) = rows.split_at(merged + 1);
        let sum = |(from, _, q, d): (u64, u64, u64, u64), row: &(u64, u64, u64, u64)| {
            (from, row.1, q + row.2, d + row.3)
        };
        let one = shorter.iter().fold((first, first, 0, 0), sum);
        rows = std::iter::once(one).chain(longer.iter().copied()).collect();
    }
    let most = rows.iter().map(|(.., q, d)| *q.max(d)).max().unwrap_or(1).max(1);
    let bar = |n: u64| "█".repeat((n * BAR).div_ceil(most) as usize);
    let mut end = first;
    for (begin, to, q, d) in rows {
        if begin != end {
            writeln!(out, "          ...")?;
        }
        end = to;
        let line = format!(
            "    {:>9} - {:>9} | {q:>8} {:<24} | {d:>8} {}",
            Span(begin).to_string(),
            Span(to).to_string(),
            bar(q),
            bar(d)
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
