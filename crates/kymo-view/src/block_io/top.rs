//! `kymo io top`: requests by process, by file or by device.

use std::io::{self, Write};

use kymo_analysis::block_io::{BlockGrouping, BlockNames, BlockTable};
use kymo_table::{Answer, Table, TableRow, TextColumn, TextLayout};

use super::files::{write_files, write_find_hint};
use super::{device_name, span, write_answer};
use crate::Ledger;
use crate::units::Size;

/// The table as it is shown.
pub struct BlockTop<'a> {
    /// Counted requests.
    pub table: &'a BlockTable,
    /// Its answer, with deleted files of one inode in one row.
    pub answer: &'a Answer,
    /// Names devices and files.
    pub names: BlockNames<'a>,
    /// Grouping of the rows.
    pub by: BlockGrouping,
    /// Rows at most.
    pub entries: usize,
    /// Columns of the screen, if there is one.
    pub columns: Option<usize>,
    /// The recording as arguments of a command, `-i FILE`.
    pub recording: String,
}

impl BlockTop<'_> {
    /// Writes the answer, the table and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        write_answer(out, self.table, self.names, &self.recording)?;
        writeln!(out)?;
        let rows = match self.by {
            BlockGrouping::Process => self.answer.table("processes"),
            BlockGrouping::File => self.answer.table("files"),
            BlockGrouping::Device => self.answer.table("devices"),
        };
        let first = rows.first(self.entries);
        let task = |r: TableRow<'_>| format!("{}:{}{}", r.text("comm"), r.number("tid"), r.mark());
        match self.by {
            BlockGrouping::Process => {
                write_rows(out, first, ("process", &task), "device", self.columns)?;
            }
            BlockGrouping::Device => {
                let device = |r: TableRow<'_>| device_name(r) + r.mark();
                write_rows(out, first, ("device", &device), "", self.columns)?;
            }
            BlockGrouping::File => {
                write_files(out, first, "  ", self.columns)?;
                write_find_hint(out, first)?;
            }
        }
        if rows.rows.len() > self.entries {
            writeln!(out, "  ... and {} more (--entries)", rows.rows.len() - self.entries)?;
        }
        if self.table.devices.iter().any(|d| d.stats.uncertain > 0) {
            writeln!(out, "  * some of them have no times: see the notes")?;
        }
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }
}

/// Columns of rows with all numbers.
const ROWS_WIDTH: usize = 112;

/// Writes rows with their title and label; `device` is the title of the column of devices, if
/// there is one.
fn write_rows(
    out: &mut dyn Write,
    rows: Table<'_>,
    (title, label): (&str, &dyn Fn(TableRow<'_>) -> String),
    device: &str,
    screen: Option<usize>,
) -> io::Result<()> {
    let has_device = !device.is_empty();
    let is_narrow = screen.is_some_and(|columns| columns < ROWS_WIDTH);
    let mut columns = vec![
        TextColumn::left(title, if is_narrow { 22 } else { 24 }, label),
        TextColumn::left(device, 10, |r| if has_device { device_name(r) } else { String::new() }),
        TextColumn::number("requests", 8, "count"),
        TextColumn::right("read", 10, |r| Size(r.number("read_bytes")).to_string()),
        TextColumn::right("written", 10, |r| Size(r.number("written_bytes")).to_string()),
        span("queue avg", "queue.average_ns"),
        span("device avg", "device_time.average_ns"),
    ];
    if !is_narrow {
        columns.push(span("p99", "total.p99_ns"));
    }
    columns.push(span("max", "total.max_ns"));
    let layout = TextLayout { indent: "  ", gap: " ", end: "", columns };
    layout.write_head(out)?;
    writeln!(out, "  {}", "-".repeat(ROWS_WIDTH - 2))?;
    layout.write_rows(out, rows)
}
