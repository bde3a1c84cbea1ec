//! `kymo lock report` and `kymo lock info`: locks, by what their first waits tell of them.

use std::io::{self, Write};

use kymo_analysis::locks::LockEvents;
use kymo_table::{Answer, TableRow, TextColumn, TextLayout};

use super::columns::LockField;
use super::contention::write_answer;
use crate::Ledger;
use crate::units::write_more;

/// Columns of a name at least, and at most: what is longer is cut.
const NAME: (usize, usize) = (20, 40);

/// The answer as it is shown.
pub struct LockReportView<'a> {
    /// The answer, by lock or by task.
    pub answer: &'a Answer,
    /// Events that it is of.
    pub of: LockEvents,
    /// Columns of numbers.
    pub fields: &'a [LockField],
    /// Rows at most.
    pub most: usize,
}

impl LockReportView<'_> {
    /// Writes a row for each lock, or task.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        let is_tasks = self.answer.facts().text("group") == "task";
        let all = self.answer.table("locks");
        if self.of == LockEvents::Contention {
            write_answer(out, all, |row| {
                if is_tasks {
                    format!("{}:{}", row.text("comm"), row.number("tid"))
                } else {
                    format!("the lock of {} ({})", row.text("first"), row.text("type"))
                }
            })?;
        }
        let rows = all.first(self.most);
        let name = |row: TableRow<'_>| row.text(if is_tasks { "comm" } else { "first" });
        let longest = rows.rows().map(|row| name(row).chars().count()).max().unwrap_or(0);
        let cut = |row: TableRow<'_>| {
            let name = name(row);
            if name.chars().count() > NAME.1 {
                name.chars().take(NAME.1 - 3).chain("...".chars()).collect()
            } else {
                name
            }
        };
        let mut columns = vec![TextColumn::right("Name", longest.clamp(NAME.0, NAME.1), cut)];
        columns.extend(self.fields.iter().map(|field| field.text()));
        let layout = TextLayout { indent: "", gap: " ", end: " ", columns };
        layout.write_head(out)?;
        writeln!(out)?;
        layout.write_rows(out, rows)?;
        write_more(out, all.rows.len(), self.most)?;
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }
}

/// Writes the threads that waited, or the locks that were waited for.
///
/// # Errors
/// If writing fails.
pub fn write_lock_info(out: &mut dyn Write, answer: &Answer, ledger: &Ledger) -> io::Result<()> {
    if answer.facts().has("threads") {
        writeln!(out, "{:>10}: comm", "Thread ID")?;
        for row in answer.table("threads").rows() {
            writeln!(out, "{:>10}: {}", row.number("tid"), row.text("comm"))?;
        }
    } else {
        writeln!(out, "Address of instance: name of class")?;
        for row in answer.table("locks").rows() {
            let name = ["symbol", "caller", "class"].into_iter().find(|name| row.has(name));
            let name = name.map(|name| row.text(name)).unwrap_or_default();
            let of =
                if row.has("type") { format!(" ({})", row.text("type")) } else { String::new() };
            writeln!(out, " {}: {name}{of}", row.text("address"))?;
        }
    }
    if !ledger.is_empty() {
        write!(out, "\n{}", ledger.to_text(""))?;
    }
    Ok(())
}
