//! `kymo lock contention`: waits for locks of the kernel by caller, lock or task.

use std::collections::BTreeMap;
use std::io::{self, Write};

use kymo_analysis::locks::{ContentionTable, LockEvents, LockGroup, LockRow, lock_type};
use kymo_model::UntrustedText;
use serde_json::{Value, json};

use super::ScaledTime;
use super::columns::{LockColumn, sorted};
use super::pairs::{PairList, cells_json};
use crate::Ledger;
use crate::units::{shown, write_more};

/// The table as it is shown.
pub struct ContentionView<'a> {
    /// What was counted.
    pub table: &'a ContentionTable,
    /// What rows are.
    pub group: LockGroup,
    /// Columns of numbers.
    pub columns: Vec<LockColumn>,
    /// What rows are sorted by.
    pub key: LockColumn,
    /// Rows at most.
    pub entries: usize,
    /// Stacks below their rows.
    pub stacks: bool,
    /// Stacks beside those of wakers at most.
    pub pairs: usize,
    /// Separator of CSV.
    pub separator: Option<String>,
    /// The recording as arguments of a command, `-i FILE`; empty: events that nobody can read again.
    pub recording: String,
}

impl ContentionView<'_> {
    fn rows(&self) -> Vec<&LockRow> {
        let mut rows = sorted(&self.table.rows, self.key);
        rows.truncate(self.entries);
        rows
    }

    /// Writes the answer, the table and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        if let Some(separator) = &self.separator {
            return self.write_csv(out, separator, ledger);
        }
        write_answer(out, self.table, |row| self.name(row))?;
        for column in &self.columns {
            write!(out, "{:>width$} ", column.title(), width = column.width())?;
        }
        match self.group {
            LockGroup::Caller => writeln!(out, "  {:>10}   caller\n", "type")?,
            LockGroup::Task => writeln!(out, "  {:>10}   comm\n", "pid")?,
            LockGroup::Address => writeln!(out, "  {:>16}   symbol\n", "address")?,
        }
        for row in self.rows() {
            for column in &self.columns {
                write!(out, "{} ", column.cell(row))?;
            }
            let mark = if row.uncertain > 0 { " *" } else { "" };
            match self.group {
                LockGroup::Caller => {
                    writeln!(out, "  {:>10}   {}{mark}", lock_type(row.flags), row.caller.name)?;
                }
                LockGroup::Task => writeln!(out, "  {:>10}   {}{mark}", row.tid, shown(&row.comm))?,
                LockGroup::Address => {
                    let symbol = row.symbol.as_deref().unwrap_or("");
                    let of = lock_type(row.flags);
                    writeln!(out, "  {:016x}   {symbol} ({of}){mark}", row.address)?;
                }
            }
            if self.stacks && self.group == LockGroup::Caller {
                for frame in &row.caller.frames {
                    let name = frame.symbol.as_ref().map_or(String::new(), |_| frame.text());
                    writeln!(out, "\t\t\t{:#x}  {name}", frame.ip)?;
                }
            }
        }
        write_more(out, self.table.rows.len(), self.entries)?;
        if self.table.rows.iter().any(|r| r.uncertain > 0) {
            writeln!(out, "\n * events were lost in some of its waits, which are in no time")?;
        }
        let cells = self.rows().into_iter().flat_map(|row| {
            let of = self.name(row);
            row.cells.iter().map(move |cell| (of.clone(), cell))
        });
        let stacks = &self.table.stacks;
        PairList { stacks, cells: cells.collect(), most: self.pairs }.write_text(out)?;
        self.write_next(out)?;
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    /// The commands that split the rows of callers further.
    fn write_next(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.group != LockGroup::Caller || self.table.rows.is_empty() {
            return Ok(());
        }
        let (input, after) = match self.recording.is_empty() {
            true => (String::new(), " -- COMMAND"),
            false => (format!(" {}", self.recording), ""),
        };
        writeln!(out, "\n Where to look next")?;
        for (what, flags) in [("which locks:", "-l"), ("which tasks:", "-t"), ("stacks:", "-v")] {
            writeln!(out, "  {what:<13} kymo lock contention{input} {flags}{after}")?;
        }
        Ok(())
    }

    /// What a row is of.
    fn name(&self, row: &LockRow) -> String {
        match self.group {
            LockGroup::Caller => format!("{} ({})", row.caller.name, lock_type(row.flags)),
            LockGroup::Task => format!("{}:{}", shown(&row.comm), row.tid),
            LockGroup::Address => {
                let symbol = row.symbol.as_deref().map_or(String::new(), |s| format!("{s}, "));
                format!("the lock {:x} ({symbol}{})", row.address, lock_type(row.flags))
            }
        }
    }

    /// Writes rows as perf's `-x` does; the ledger stands in comments.
    fn write_csv(&self, out: &mut dyn Write, separator: &str, ledger: &Ledger) -> io::Result<()> {
        let last: &[&str] = match self.group {
            LockGroup::Caller => &["type", "caller"],
            LockGroup::Task => &["pid", "comm"],
            LockGroup::Address => &["address", "symbol", "type"],
        };
        let titles: Vec<&str> =
            self.columns.iter().map(|c| c.title()).chain(last.iter().copied()).collect();
        let between = format!("{separator} ");
        let name = |text: &[u8]| UntrustedText::new(text).to_csv_field(separator).into_owned();
        writeln!(out, "# output: {}", titles.join(&between))?;
        for row in self.rows() {
            let mut cells: Vec<String> =
                self.columns.iter().map(|c| c.value(row).to_string()).collect();
            match self.group {
                LockGroup::Caller => {
                    let caller = name(row.caller.name.as_bytes());
                    cells.extend([lock_type(row.flags).to_owned(), caller]);
                }
                LockGroup::Task => cells.extend([row.tid.to_string(), name(&row.comm)]),
                LockGroup::Address => cells.extend([
                    format!("{:x}", row.address),
                    name(row.symbol.clone().unwrap_or_default().as_bytes()),
                    lock_type(row.flags).to_owned(),
                ]),
            }
            writeln!(out, "{}", cells.join(&between))?;
        }
        if !ledger.is_empty() {
            write!(out, "{}", ledger.to_text("# "))?;
        }
        Ok(())
    }

    /// Writes the rows as one object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let rows: Vec<Value> = self.rows().into_iter().map(|r| self.row_json(r)).collect();
        let table = self.table;
        let page = json!({
            "group": match self.group {
                LockGroup::Caller => "caller",
                LockGroup::Task => "task",
                LockGroup::Address => "address",
            },
            "locks": rows,
            "events": table.events,
            "no_begin": table.no_begin,
            "no_end": table.no_end,
            "first_ns": table.span.map(|s| s.0),
            "last_ns": table.span.map(|s| s.1),
        });
        writeln!(out, "{page:#}")
    }

    fn row_json(&self, row: &LockRow) -> Value {
        let group = self.group;
        let max = row.waits.max.map(|m| m.0);
        let quantile = |share| row.waits.histogram.quantile(share).map(|q| q.min(max.unwrap_or(q)));
        let frames = row.caller.frames.iter();
        let stack: Vec<Value> = frames
            .map(|f| {
                json!({
                    "ip": format!("{:#x}", f.ip),
                    "sym": f.symbol.as_ref().map(|s| &s.0),
                    "symoff": f.symbol.as_ref().map(|s| s.1),
                })
            })
            .collect();
        let is_lockdep = self.table.of == LockEvents::Lockdep;
        let (by_task, by_address) = (group == LockGroup::Task, group == LockGroup::Address);
        json!({
            "caller": (group == LockGroup::Caller).then_some(&row.caller.name),
            "class": is_lockdep.then_some(&row.caller.name),
            "stack": (group == LockGroup::Caller).then_some(stack),
            "tid": by_task.then_some(row.tid),
            "comm": by_task.then(|| String::from_utf8_lossy(&row.comm).into_owned()),
            "address": by_address.then(|| format!("{:#x}", row.address)),
            "symbol": row.symbol.as_ref().filter(|_| by_address),
            "type": (!by_task && !is_lockdep).then(|| lock_type(row.flags)),
            "contended": row.contended,
            "acquired": row.acquired,
            "total_ns": row.waits.total,
            "average_ns": row.waits.average(),
            "min_ns": row.min,
            "p50_ns": quantile(0.5),
            "p99_ns": quantile(0.99),
            "max_ns": max,
            "max_start_ns": row.waits.max.map(|m| m.1),
            "uncertain": row.uncertain,
            "not_ended": row.open,
            "stacks": cells_json(&row.cells, &self.table.stacks),
        })
    }
}

/// The sentence with the answer; `name` says what a row is of.
pub(super) fn write_answer(
    out: &mut dyn Write,
    table: &ContentionTable,
    name: impl Fn(&LockRow) -> String,
) -> io::Result<()> {
    let (mut count, mut total) = (0, 0u64);
    for row in &table.rows {
        count += row.waits.count;
        total = total.saturating_add(row.waits.total);
    }
    // Several rows may have one name: callers are told apart by the stacks above them, too.
    let mut named: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for row in &table.rows {
        let sum = named.entry(name(row)).or_default();
        *sum = (sum.0.saturating_add(row.waits.total), sum.1 + row.waits.count);
    }
    let most = named.into_iter().filter(|(_, sum)| sum.1 > 0).max_by_key(|(_, sum)| sum.0);
    let Some((most, (most_total, _))) = most else {
        return writeln!(out, "\n No wait for a lock of the kernel was recorded.\n");
    };
    let waits = if count == 1 { "wait" } else { "waits" };
    writeln!(
        out,
        "\n {count} {waits} for locks of the kernel took {}; most of it {} by {}.\n",
        ScaledTime(total).to_string().trim_end(),
        ScaledTime(most_total).to_string().trim_end(),
        most,
    )
}
