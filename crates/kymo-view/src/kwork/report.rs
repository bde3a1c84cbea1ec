//! `kymo kwork report` and `latency`: tables of run times and of delays, and whom interrupts
//! and softirqs held up.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::str::FromStr;

use kymo_analysis::kwork::{DelayedTask, KworkRow, KworkTable};
use kymo_analysis::tasks::DelayStats;
use serde_json::{Value, json};

use super::{RULE_WIDTH, counts_json, cut_name};
use crate::Ledger;
use crate::histogram::{HISTOGRAMS, write_histogram};
use crate::units::{Grouped, Seconds, Span, TimeUnits, shown, write_more};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KworkReportKind {
    /// Times from begin to end.
    Runtime,
    /// Times from raise to begin.
    Delay,
}

/// Columns that rows are sorted by, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KworkColumn {
    /// All run times together (`report`).
    Runtime,
    /// Mean delay (`latency`).
    Avg,
    /// The longest.
    Max,
    /// How many.
    Count,
}

impl FromStr for KworkColumn {
    type Err = String;

    fn from_str(text: &str) -> Result<KworkColumn, String> {
        Ok(match text {
            "runtime" => KworkColumn::Runtime,
            "avg" => KworkColumn::Avg,
            "max" => KworkColumn::Max,
            "count" => KworkColumn::Count,
            _ => {
                return Err(format!(
                    "there is no key {text:?}; there are runtime, avg, max and count"
                ));
            }
        })
    }
}

/// The table as it is shown.
pub struct KworkReport<'a> {
    /// What was counted.
    pub table: &'a KworkTable,
    /// Run times or delays.
    pub kind: KworkReportKind,
    /// What rows are sorted by.
    pub sort: Vec<KworkColumn>,
    /// Only rows with this name.
    pub name: Option<String>,
    /// With a summary behind the table.
    pub summary: bool,
    /// Tasks that were held up that are shown at most.
    pub delayed: usize,
    /// Rows of the text at most.
    pub most: usize,
    /// With histograms of the first rows.
    pub histogram: bool,
    /// Units of times.
    pub units: TimeUnits,
    /// The recording as arguments of a command, `-i FILE`.
    pub recording: String,
}

impl KworkReport<'_> {
    fn stats<'r>(&self, row: &'r KworkRow) -> &'r DelayStats {
        match self.kind {
            KworkReportKind::Runtime => &row.runtime,
            KworkReportKind::Delay => &row.delay,
        }
    }

    fn rows(&self) -> Vec<&KworkRow> {
        let bare = |row: &KworkRow| {
            let name = row.name.rsplit_once(':').map_or(row.name.as_str(), |(name, _)| name);
            name.trim_start_matches("(s)").trim_start_matches("(w)").to_owned()
        };
        let named = |row: &&KworkRow| {
            self.name.as_ref().is_none_or(|name| row.name == *name || bare(row) == *name)
        };
        let counts = |row: &&KworkRow| self.stats(row).count > 0 || row.uncertain > 0;
        let mut rows: Vec<&KworkRow> =
            self.table.rows.iter().filter(counts).filter(named).collect();
        rows.sort_by_cached_key(|row| {
            let stats = self.stats(row);
            let key = |column: &KworkColumn| match column {
                KworkColumn::Runtime => stats.total,
                KworkColumn::Avg => stats.average().unwrap_or(0),
                KworkColumn::Max => stats.max.map_or(0, |m| m.0),
                KworkColumn::Count => stats.count,
            };
            let keys: Vec<Reverse<u64>> = self.sort.iter().map(|c| Reverse(key(c))).collect();
            (keys, row.name.clone(), row.cpu, row.id)
        });
        rows
    }

    /// Writes the answer, the tables and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        let rows = self.rows();
        self.write_answer(out, &rows)?;
        self.write_rows(out, &rows)?;
        for row in rows.iter().take(if self.histogram { HISTOGRAMS } else { 0 }) {
            let title = format!("{} on CPU {}", row.name, row.cpu);
            write_histogram(out, &title, self.stats(row))?;
        }
        if self.kind == KworkReportKind::Runtime {
            self.write_delayed(out)?;
        }
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    fn write_answer(&self, out: &mut dyn Write, rows: &[&KworkRow]) -> io::Result<()> {
        let longest = rows.iter().filter_map(|row| Some((self.stats(row).max?, row)));
        let Some(((max, from), row)) = longest.max_by_key(|((max, _), _)| *max) else {
            return Ok(());
        };
        match self.kind {
            KworkReportKind::Runtime => {
                let total = rows.iter().map(|r| r.runtime.total).sum();
                let count = rows.iter().map(|r| r.runtime.count).sum();
                writeln!(
                    out,
                    "\n {} in {} interrupts, softirqs and work items; the longest: {}, {} on CPU {}.",
                    Span(total),
                    Grouped(count),
                    Span(max),
                    row.name,
                    row.cpu
                )?;
                if let Some(task) = self.table.delayed.first() {
                    writeln!(
                        out,
                        " Most held up by interrupts and softirqs: {}:{}, {} in {} of them.",
                        shown(&task.comm),
                        task.tid,
                        Span(task.held_up.total),
                        Grouped(task.held_up.count)
                    )?;
                }
            }
            KworkReportKind::Delay => writeln!(
                out,
                "\n Longest wait of a softirq or work item: {}, {} on CPU {}.",
                Span(max),
                row.name,
                row.cpu
            )?,
        }
        if self.recording.is_empty() {
            return Ok(());
        }
        let nano = TimeUnits { nanos: true };
        let (from, to) = (Seconds(from, nano), Seconds(from + max, nano));
        writeln!(out, " Its events: kymo script {} --time {from},{to}", self.recording)
    }

    fn millis(&self, nanos: u64) -> String {
        let millis = nanos as f64 / 1e6;
        if self.units.nanos { format!("{millis:.6}") } else { format!("{millis:.3}") }
    }

    fn write_rows(&self, out: &mut dyn Write, rows: &[&KworkRow]) -> io::Result<()> {
        let rule = "-".repeat(RULE_WIDTH);
        let (total, what) = match self.kind {
            KworkReportKind::Runtime => ("Total Runtime", "runtime"),
            KworkReportKind::Delay => ("Avg delay", "delay"),
        };
        let (max, start, end) =
            (format!("Max {what}"), format!("Max {what} start"), format!("Max {what} end"));
        writeln!(
            out,
            "\n  {:<30} | {:<4} | {total:<13} | {:<9} | {max:<13} | {start:<19} | {end:<19} |",
            "Kwork Name", "Cpu", "Count"
        )?;
        writeln!(out, " {rule}")?;
        for row in rows.iter().take(self.most) {
            let stats = self.stats(row);
            let first = match self.kind {
                KworkReportKind::Runtime => stats.total,
                KworkReportKind::Delay => stats.average().unwrap_or(0),
            };
            let (max, start) = stats.max.unwrap_or((0, 0));
            let mark = if row.uncertain > 0 { "*" } else { "" };
            writeln!(
                out,
                "  {:<30} | {:04} | {:>10} ms | {:>9} | {:>10} ms | {:>17} s | {:>17} s |",
                format!("{}{mark}", cut_name(&row.name)),
                row.cpu,
                self.millis(first),
                stats.count,
                self.millis(max),
                Seconds(start, self.units),
                Seconds(start + max, self.units),
            )?;
        }
        write_more(out, rows.len(), self.most)?;
        writeln!(out, " {rule}")?;
        if self.summary {
            self.write_summary(out, rows)?;
            writeln!(out, " {rule}")?;
        }
        if rows.iter().any(|row| row.uncertain > 0) {
            writeln!(out, "  * events were lost in some of them, which are left out")?;
        }
        Ok(())
    }

    fn write_summary(&self, out: &mut dyn Write, rows: &[&KworkRow]) -> io::Result<()> {
        let total: u64 = rows.iter().map(|row| self.stats(row).total).sum();
        let count: u64 = rows.iter().map(|row| self.stats(row).count).sum();
        let span = self.table.read.span.map_or(0, |(first, last)| last - first);
        let load = if span == 0 { 0.0 } else { total as f64 * 100.0 / span as f64 };
        writeln!(out, "  Total count            : {count:>9}")?;
        // perf 7.2 shows the hundredth of it.
        writeln!(
            out,
            "  Total runtime   (msec) : {:>9} ({load:.3}% of a CPU)",
            self.millis(total)
        )?;
        writeln!(out, "  Total time span (msec) : {:>9}", self.millis(span))
    }

    fn write_delayed(&self, out: &mut dyn Write) -> io::Result<()> {
        let tasks = &self.table.delayed;
        if tasks.is_empty() || self.delayed == 0 {
            return Ok(());
        }
        writeln!(out, "\n  Tasks that interrupts and softirqs held up:")?;
        writeln!(
            out,
            "  {:<24} | {:<13} | {:<9} | {:<13} | Longest by",
            "Task", "Held up", "Count", "Longest"
        )?;
        writeln!(out, " {}", "-".repeat(84))?;
        for task in tasks.iter().take(self.delayed) {
            writeln!(
                out,
                "  {:<24} | {:>10} ms | {:>9} | {:>10} ms | {}",
                format!("{}:{}", shown(&task.comm), task.tid),
                self.millis(task.held_up.total),
                task.held_up.count,
                self.millis(task.held_up.max.map_or(0, |m| m.0)),
                task.longest_by,
            )?;
        }
        if tasks.len() > self.delayed {
            writeln!(out, "  ... and {} more", tasks.len() - self.delayed)?;
        }
        Ok(())
    }

    /// Writes the table and the ledger as one object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let row = |row: &&KworkRow| {
            json!({
                "kind": row.kind.name(),
                "name": row.name,
                "cpu": row.cpu,
                "id": row.id,
                "runtime": stats_json(&row.runtime),
                "delay": stats_json(&row.delay),
                "uncertain": row.uncertain,
            })
        };
        let task = |task: &DelayedTask| {
            let mut value = stats_json(&task.held_up);
            if let Some(members) = value.as_object_mut() {
                members.insert("comm".into(), String::from_utf8_lossy(&task.comm).into());
                members.insert("tid".into(), task.tid.into());
                members.insert("longest_by".into(), task.longest_by.as_str().into());
            }
            value
        };
        let span = self.table.read.span;
        let page = json!({
            "rows": self.rows().iter().map(row).collect::<Vec<Value>>(),
            "held_up": self.table.delayed.iter().map(task).collect::<Vec<Value>>(),
            "halves": counts_json(&self.table.read.machine.counts),
            "first_ns": span.map(|s| s.0),
            "last_ns": span.map(|s| s.1),
        });
        writeln!(out, "{page:#}")
    }
}

fn stats_json(d: &DelayStats) -> Value {
    let max = d.max.map(|m| m.0);
    let quantile = |share| d.histogram.quantile(share).map(|q| q.min(max.unwrap_or(q)));
    json!({
        "count": d.count,
        "total_ns": d.total,
        "average_ns": d.average(),
        "p50_ns": quantile(0.5),
        "p99_ns": quantile(0.99),
        "max_ns": max,
        "max_start_ns": d.max.map(|m| m.1),
    })
}
