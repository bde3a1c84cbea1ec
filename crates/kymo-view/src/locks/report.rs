//! `kymo lock report` and `kymo lock info`: locks, by what their first waits tell of them.

use std::collections::BTreeMap;
use std::io::{self, Write};

use kymo_analysis::locks::{ContentionTable, LockEvents, lock_type};
use serde_json::{Value, json};

use super::columns::{LockColumn, sorted};
use crate::Ledger;
use crate::units::shown;

/// Longest name of a lock; more is cut, as in perf.
const NAME: usize = 19;

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
        write!(out, "{:>20} ", "Name")?;
        for column in &self.columns {
            write!(out, "{:>width$} ", column.title(), width = column.width())?;
        }
        write!(out, "\n\n")?;
        for row in sorted(&self.table.rows, self.key).into_iter().take(self.entries) {
            let name = match self.tasks {
                true => shown(&row.comm),
                false => row.caller.name.clone(),
            };
            let cut: String = match name.chars().count() > NAME {
                true => name.chars().take(NAME - 3).chain("...".chars()).collect(),
                false => name,
            };
            write!(out, "{cut:>20} ")?;
            for column in &self.columns {
                write!(out, "{} ", column.cell(row))?;
            }
            writeln!(out)?;
        }
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
    pub fn write_info_json(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
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
            true => json!({"threads": threads, "ledger": ledger.to_json()}),
            false => json!({"locks": locks, "ledger": ledger.to_json()}),
        };
        writeln!(out, "{page:#}")
    }
}
