//! `kymo lock contention --futex`: waits of programs for futexes, with the stacks of who waits and
//! of who wakes.

use std::io::{self, Write};

use kymo_analysis::locks::{FutexRow, FutexTable};
use kymo_analysis::offcpu::StackNode;
use serde_json::{Value, json};

use super::ScaledTime;
use crate::Ledger;
use crate::offcpu::{waits, write_beside};
use crate::units::shown;

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

    fn names(&self, stack: Option<StackNode>) -> Vec<&str> {
        stack.map_or_else(Vec::new, |s| self.table.stacks.names(s))
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
        self.write_pairs(out)?;
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    fn write_pairs(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut cells: Vec<_> =
            self.rows().flat_map(|r| r.cells.iter().map(move |c| (r, c))).collect();
        cells.retain(|(_, cell)| cell.stack.is_some());
        cells.sort_by_key(|(_, cell)| std::cmp::Reverse(cell.total));
        for (n, (row, cell)) in cells.into_iter().take(self.pairs).enumerate() {
            if n == 0 {
                writeln!(out, "\n Who waited, and who woke it (innermost function first)\n")?;
            }
            writeln!(
                out,
                "  {} of {}: {} in {}, at most {}",
                name(row),
                shown(&row.comm),
                ScaledTime(cell.total).to_string().trim_end(),
                waits(cell.count),
                ScaledTime(cell.max).to_string().trim_end(),
            )?;
            let (by, waker) = match &cell.waker {
                Some(waker) => {
                    (format!("woken by {}, in", shown(&waker.comm)), self.names(waker.stack))
                }
                None => ("(by whom is not known)".to_owned(), Vec::new()),
            };
            write_beside(out, &self.names(cell.stack), (&by, &waker))?;
            writeln!(out)?;
        }
        Ok(())
    }

    /// Writes the table as one object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        let futexes: Vec<Value> = self.rows().map(|row| self.row_json(row)).collect();
        let page = json!({
            "futexes": futexes,
            "events": self.table.events,
            "first_ns": self.table.span.map(|s| s.0),
            "last_ns": self.table.span.map(|s| s.1),
            "ledger": ledger.to_json(),
        });
        writeln!(out, "{page:#}")
    }

    fn row_json(&self, row: &FutexRow) -> Value {
        let max = row.waits.max.map(|m| m.0);
        let quantile = |share| row.waits.histogram.quantile(share).map(|q| q.min(max.unwrap_or(q)));
        let cells = row.cells.iter().map(|cell| {
            let waker = cell.waker.as_ref().map(
                |w| json!({"comm": String::from_utf8_lossy(&w.comm), "stack": self.names(w.stack)}),
            );
            json!({
                "stack": self.names(cell.stack),
                "waker": waker,
                "count": cell.count,
                "total_ns": cell.total,
                "max_ns": cell.max,
            })
        });
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
            "not_ended": row.open,
            "stacks": cells.collect::<Vec<_>>(),
        })
    }
}

/// The variable, or the address.
fn name(row: &FutexRow) -> String {
    let variable = row.variable.as_ref().map(|v| shown(v.as_bytes()));
    variable.unwrap_or_else(|| format!("{:#x}", row.address))
}
