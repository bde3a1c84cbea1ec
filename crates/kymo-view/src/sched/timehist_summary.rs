//! Text of the summary of `kymo sched timehist`: run and wait times by task, idle times by CPU.

use std::io::{self, Write};

use kymo_analysis::percent;
use kymo_table::{Answer, TableRow, TextColumn, TextLayout};

use crate::units::{Millis, TimeUnits, write_more};

/// Rule below the titles, as wide as perf's.
const RULE_WIDTH: usize = 117;

/// The summary as it is shown.
pub struct TimehistSummary<'a> {
    /// The answer.
    pub answer: &'a Answer,
    /// Times of waiting instead of those of running.
    pub waits: bool,
    /// Columns of the screen, if there is one.
    pub columns: Option<usize>,
    /// Rows at most, of tasks that still run and of those that ended.
    pub most: usize,
    /// Units of times.
    pub units: TimeUnits,
}

impl TimehistSummary<'_> {
    fn millis(&self, nanos: u64) -> String {
        Millis(nanos, self.units).to_string()
    }

    fn write_rows(
        &self,
        out: &mut dyn Write,
        layout: &TextLayout<'_>,
        rows: &[TableRow<'_>],
    ) -> io::Result<()> {
        rows.iter().take(self.most).try_for_each(|row| layout.write_row(out, *row))?;
        write_more(out, rows.len(), self.most)
    }

    /// Writes the summary.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let ms = |title, width, name: &'static str| {
            TextColumn::right(title, width, move |r| self.millis(r.number(name)))
                .with_unit("(msec)")
        };
        let is_narrow = self.columns.is_some_and(|columns| columns < RULE_WIDTH);
        let mut columns = vec![TextColumn::right("comm", 30, name)];
        if !is_narrow {
            columns.push(TextColumn::right("parent", 8, |r| {
                if r.has("parent_tid") {
                    r.number("parent_tid").to_string()
                } else {
                    "-".to_owned()
                }
            }));
        }
        columns.extend([
            TextColumn::number("sched-in", 11, "runs").with_unit("(count)"),
            ms("run-time", if is_narrow { 11 } else { 13 }, "run_ns"),
        ]);
        if self.waits {
            columns.extend([
                ms("sleep", 11, "sleep_ns"),
                ms("iowait", 12, "uninterruptible_ns"),
                ms("preempt", 12, "preempted_ns"),
                ms("delay", 12, "wakeup_delay_ns"),
            ]);
        } else {
            columns.extend([
                ms("min-run", 11, "min_run_ns"),
                ms("avg-run", 12, "average_run_ns"),
                ms("max-run", 12, "max_run_ns"),
            ]);
        }
        if !self.waits && !is_narrow {
            columns.extend([
                TextColumn::right("stddev", 8, |r| format!("{:.2}", r.float("run_error_percent")))
                    .with_unit("%"),
                TextColumn::number("  migrations", 8, "migrations"),
            ]);
        }
        let layout = TextLayout { indent: "", gap: "", end: "", columns };
        writeln!(out, "\n{} summary", if self.waits { "Wait-time" } else { "Runtime" })?;
        layout.write_head(out)?;
        let mut units = Vec::new();
        layout.write_units(&mut units)?;
        out.write_all(units.trim_ascii_end())?;
        writeln!(out, "\n{}", "-".repeat(RULE_WIDTH))?;
        let tasks = self.answer.table("tasks");
        let (ended, alive): (Vec<TableRow<'_>>, Vec<_>) =
            tasks.rows().partition(|row| *row.cell("ended") == true.into());
        self.write_rows(out, &layout, &alive)?;
        if !ended.is_empty() {
            writeln!(out, "\nTerminated tasks:")?;
            self.write_rows(out, &layout, &ended)?;
        }
        let facts = self.answer.facts();
        let span = facts.number("span_ns");
        for (n, row) in self.answer.table("idle").rows().enumerate() {
            if n == 0 {
                writeln!(out, "\nIdle stats:")?;
            }
            let (cpu, idle) = (row.number("cpu"), row.number("idle_ns"));
            let share = percent(idle, span.max(1));
            let time = self.millis(idle);
            writeln!(out, "    CPU {cpu:>2} idle for {time:>10}  msec  ({share:>6.2}%)")?;
        }
        let (span, run) = (self.millis(span), self.millis(facts.number("run_ns")));
        writeln!(out, "\n    Total number of unique tasks: {}", tasks.rows.len())?;
        writeln!(out, "Total number of context switches: {}", facts.number("switches"))?;
        writeln!(out, "           Total run time (msec): {run}")?;
        writeln!(out, "    Total scheduling time (msec): {span} (x {})", facts.number("cpus"))
    }
}

fn name(row: TableRow<'_>) -> String {
    let (comm, tid, mark) = (row.text("comm"), row.number("tid"), row.mark());
    if row.has("pid") {
        format!("{comm}[{tid}/{}]{mark}", row.number("pid"))
    } else {
        format!("{comm}[{tid}]{mark}")
    }
}
