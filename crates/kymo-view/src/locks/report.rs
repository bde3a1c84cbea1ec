//! `kymo lock report` and `kymo lock info`: locks, by what their first waits tell of them.

use std::collections::BTreeMap;
use std::io::{self, Write};

use kymo_analysis::locks::{ContentionTable, LockEvents, LockRow, lock_type};
use serde_json::{Value, json};

use super::columns::{LockColumn, sorted};
use super::contention::write_answer;
use crate::Ledger;
use crate::units::{shown, write_more};

/// Columns of a name at least, and at most: what is longer is cut.
const NAME: (usize, usize) = (20, 40);

/// The tables as they are shown.
pub struct LockReportView<'a> {
    /// What was counted, by lock or by task.
    pub table: &'a ContentionTable,
    /// Rows are tasks.
    pub tasks: bool,
    /// Columns of numbers.
    pub columns: Vec<LockColumn>,
    /// What rows are sorted by.
    pub key: LockColumn,
    /// Rows at most.
    pub entries: usize,
}

impl LockReportView<'_> {
    /// Writes a row for each lock, or task.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        if self.table.of == LockEvents::Contention {
            write_answer(out, self.table, |row| match self.tasks {
                true => format!("{}:{}", shown(&row.comm), row.tid),
                false => format!("the lock of {} ({})", row.caller.name, lock_type(row.flags)),
            })?;
        }
        let rows: Vec<&LockRow> =
            sorted(&self.table.rows, self.key).into_iter().take(self.entries).collect();
        let names: Vec<String> = rows
            .iter()
            .map(|row| match self.tasks {
                true => shown(&row.comm),
                false => row.caller.name.clone(),
            })
            .collect();
        let longest = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
        let name_width = longest.clamp(NAME.0, NAME.1);
        write!(out, "{:>name_width$} ", "Name")?;
        for column in &self.columns {
            write!(out, "{:>width$} ", column.title(), width = column.width())?;
        }
        write!(out, "\n\n")?;
        for (row, name) in rows.into_iter().zip(names) {
            let cut: String = match name.chars().count() > NAME.1 {
                true => name.chars().take(NAME.1 - 3).chain("...".chars()).collect(),
                false => name,
            };
            write!(out, "{cut:>name_width$} ")?;
            for column in &self.columns {
                write!(out, "{} ", column.cell(row))?;
            }
            writeln!(out)?;
        }
        write_more(out, self.table.rows.len(), self.entries)?;
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    fn threads(&self) -> BTreeMap<u32, String> {
        self.table.rows.iter().map(|r| (r.tid, shown(&r.comm))).collect()
    }

    /// Writes the threads that waited, or the locks that were waited for.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_info(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        if self.tasks {
            writeln!(out, "{:>10}: comm", "Thread ID")?;
            for (tid, comm) in self.threads() {
                writeln!(out, "{tid:>10}: {comm}")?;
            }
        } else {
            writeln!(out, "Address of instance: name of class")?;
            for row in sorted(&self.table.rows, LockColumn::Contended) {
                let name = row.symbol.as_deref().unwrap_or(&row.caller.name);
                match self.table.of {
                    LockEvents::Lockdep => writeln!(out, " {:#x}: {name}", row.address)?,
                    LockEvents::Contention => {
                        writeln!(out, " {:#x}: {name} ({})", row.address, lock_type(row.flags))?;
                    }
                }
            }
        }
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    /// Writes the same as one object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_info_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let threads: Vec<Value> = self
            .threads()
            .into_iter()
            .map(|(tid, comm)| json!({"tid": tid, "comm": comm}))
            .collect();
        let is_lockdep = self.table.of == LockEvents::Lockdep;
        let locks: Vec<Value> = sorted(&self.table.rows, LockColumn::Contended)
            .into_iter()
            .map(|row| {
                json!({
                    "address": format!("{:#x}", row.address),
                    "symbol": row.symbol,
                    "caller": (!is_lockdep).then_some(&row.caller.name),
                    "class": is_lockdep.then_some(&row.caller.name),
                    "type": (!is_lockdep).then(|| lock_type(row.flags)),
                })
            })
            .collect();
        let page = match self.tasks {
            true => json!({"threads": threads}),
            false => json!({"locks": locks}),
        };
        writeln!(out, "{page:#}")
    }
}
