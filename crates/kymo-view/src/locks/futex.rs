//! `kymo lock contention --futex`: waits of programs for futexes, with the stacks of who waits and
//! of who wakes.

use std::io::{self, Write};

use kymo_analysis::locks::{FutexRow, FutexTable};
use serde_json::{Value, json};

use super::ScaledTime;
use super::pairs::{PairList, cells_json};
use crate::Ledger;
use crate::offcpu::waits;
use crate::units::{shown, write_more};

/// The table as it is shown.
pub struct FutexView<'a> {
    /// What was counted.
    pub table: &'a FutexTable,
    /// Rows at most.
    pub entries: usize,
    /// Stacks beside those of wakers at most.
    pub pairs: usize,
}

impl FutexView<'_> {
    fn rows(&self) -> impl Iterator<Item = &FutexRow> {
        self.table.rows.iter().take(self.entries)
    }

    /// Writes the answer, the table, the stacks and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        let (mut count, mut total) = (0, 0u64);
        for row in &self.table.rows {
            count += row.waits.count;
            total = total.saturating_add(row.waits.total);
        }
        match self.table.rows.first().filter(|r| r.waits.count > 0) {
            None => writeln!(out, "\n No wait for a futex was recorded.\n")?,
            Some(most) => writeln!(
                out,
                "\n {} for futexes took {}; most of it {} for {} of {}.\n",
                waits(count),
                ScaledTime(total).to_string().trim_end(),
                ScaledTime(most.waits.total).to_string().trim_end(),
                name(most),
                shown(&most.comm),
            )?,
        }
        writeln!(
            out,
            "{:>10} {:>12} {:>12} {:>12} {:>9} {:>10}   {:<18} comm   variable\n",
            "contended", "total wait", "max wait", "avg wait", "timeouts", "pid", "address"
        )?;
        for row in self.rows() {
            let pid = row.pid.map_or("-".to_owned(), |pid| pid.to_string());
            let mark = if row.uncertain > 0 { " *" } else { "" };
            writeln!(
                out,
                "{:>10} {:>12} {:>12} {:>12} {:>9} {pid:>10}   {:<18} {}{mark}{}",
                row.waits.count,
                ScaledTime(row.waits.total),
                ScaledTime(row.waits.max.map_or(0, |m| m.0)),
                ScaledTime(row.waits.average().unwrap_or(0)),
                row.timeouts,
                format!("{:#x}", row.address),
                shown(&row.comm),
                row.variable
                    .as_ref()
                    .map_or(String::new(), |v| format!("   {}", shown(v.as_bytes()))),
            )?;
        }
        write_more(out, self.table.rows.len(), self.entries)?;
        let of = |row: &FutexRow| format!("{} of {}", name(row), shown(&row.comm));
        let cells = self.rows().flat_map(|r| r.cells.iter().map(move |c| (of(r), c)));
        let stacks = &self.table.stacks;
        PairList { stacks, cells: cells.collect(), most: self.pairs }.write_text(out)?;
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    /// Writes the table as one object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let futexes: Vec<Value> = self.rows().map(|row| self.row_json(row)).collect();
        let page = json!({
            "futexes": futexes,
            "events": self.table.events,
            "first_ns": self.table.span.map(|s| s.0),
            "last_ns": self.table.span.map(|s| s.1),
        });
        writeln!(out, "{page:#}")
    }

    fn row_json(&self, row: &FutexRow) -> Value {
        let max = row.waits.max.map(|m| m.0);
        let quantile = |share| row.waits.histogram.quantile(share).map(|q| q.min(max.unwrap_or(q)));
        json!({
            "pid": row.pid,
            "comm": String::from_utf8_lossy(&row.comm),
            "variable": row.variable,
            "address": (!row.is_others).then(|| format!("{:#x}", row.address)),
            "count": row.waits.count,
            "total_ns": row.waits.total,
            "average_ns": row.waits.average(),
            "p50_ns": quantile(0.5),
            "p99_ns": quantile(0.99),
            "max_ns": max,
            "max_start_ns": row.waits.max.map(|m| m.1),
            "timeouts": row.timeouts,
            "interrupted": row.interrupted,
            "not_waited": row.not_waited,
            "wakes": row.wakes,
            "uncertain": row.uncertain,
            "at_least": row.is_at_least,
            "not_ended": row.open,
            "stacks": cells_json(&row.cells, &self.table.stacks),
        })
    }
}

/// The variable, or the address.
fn name(row: &FutexRow) -> String {
    let variable = row.variable.as_ref().map(|v| shown(v.as_bytes()));
    variable.unwrap_or_else(|| format!("{:#x}", row.address))
}
