//! Summary of `kymo sched timehist`: run and wait times by task, idle times by CPU.

use std::io::{self, Write};

use kymo_analysis::tasks::{IdleTime, RuntimeRow};
use serde_json::{Value, json};

use crate::units::{Millis, TimeUnits, shown};

/// What was counted.
pub struct TimehistSummary {
    /// Rows of tasks, longest run time first.
    pub rows: Vec<RuntimeRow>,
    /// Idle times by CPU; nothing where only some tasks were asked for.
    pub idle: Vec<IdleTime>,
    /// Nanoseconds that the summary is of.
    pub span: u64,
    /// Number of CPUs.
    pub cpus: usize,
    /// Times of waiting instead of those of running.
    pub waits: bool,
    /// Units of times.
    pub units: TimeUnits,
}

impl TimehistSummary {
    fn millis(&self, nanos: u64) -> String {
        Millis(nanos, self.units).to_string()
    }

    fn switches(&self) -> u64 {
        let idle: u64 = self.idle.iter().map(|i| i.idle.count).sum();
        idle + self.rows.iter().map(|r| r.runs.count).sum::<u64>()
    }

    fn run_time(&self) -> u64 {
        self.rows.iter().map(|r| r.runs.total).sum()
    }

    /// Writes the summary.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let (title, columns, unit) = match self.waits {
            true => ("Wait", ["run-time", "sleep", "iowait", "preempt", "delay"], "(msec)"),
            false => ("Run", ["run-time", "min-run", "avg-run", "max-run", "stddev"], "%"),
        };
        let title = if self.waits { format!("{title}-time") } else { format!("{title}time") };
        writeln!(out, "\n{title} summary")?;
        let last = if self.waits { 12 } else { 8 };
        let more = if self.waits { "" } else { "  migrations" };
        let [a, b, c, d, e] = columns;
        writeln!(
            out,
            "{:>30}  parent   sched-in{a:>13}{b:>11}{c:>12}{d:>12}{e:>last$}{more}",
            "comm"
        )?;
        let ms = "(msec)";
        writeln!(out, "{:>49}{ms:>13}{ms:>11}{ms:>12}{ms:>12}{unit:>last$}", "(count)")?;
        writeln!(out, "{}", "-".repeat(117))?;
        let (alive, ended): (Vec<_>, Vec<_>) = self.rows.iter().partition(|r| !r.has_ended);
        alive.into_iter().try_for_each(|row| self.write_row(out, row))?;
        if !ended.is_empty() {
            writeln!(out, "\nTerminated tasks:")?;
            ended.into_iter().try_for_each(|row| self.write_row(out, row))?;
        }
        self.write_idle(out)?;
        writeln!(out, "\n    Total number of unique tasks: {}", self.rows.len())?;
        writeln!(out, "Total number of context switches: {}", self.switches())?;
        writeln!(out, "           Total run time (msec): {}", self.millis(self.run_time()))?;
        let span = self.millis(self.span);
        writeln!(out, "    Total scheduling time (msec): {span} (x {})", self.cpus)
    }

    fn write_row(&self, out: &mut dyn Write, row: &RuntimeRow) -> io::Result<()> {
        let mark = if row.uncertain > 0 { "*" } else { "" };
        let name = match row.process {
            Some(pid) => format!("{}[{}/{pid}]{mark}", shown(&row.comm), row.tid),
            None => format!("{}[{}]{mark}", shown(&row.comm), row.tid),
        };
        let parent = row.parent.map_or("-".to_owned(), |p| p.to_string());
        let ms = |n| self.millis(n);
        let runs = &row.runs;
        write!(out, "{name:>30}{parent:>8}{:>11}{:>13}", runs.count, ms(runs.total))?;
        match self.waits {
            true => writeln!(
                out,
                "{:>11}{:>12}{:>12}{:>12}",
                ms(row.sleep),
                ms(row.uninterruptible),
                ms(row.preempted),
                ms(row.delay)
            ),
            false => writeln!(
                out,
                "{:>11}{:>12}{:>12}{:>8.2}{:>8}",
                ms(runs.min),
                ms(runs.average()),
                ms(runs.max),
                runs.error_percent(),
                row.migrations
            ),
        }
    }

    fn write_idle(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.idle.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nIdle stats:")?;
        for i in &self.idle {
            let share = i.idle.total as f64 * 100.0 / self.span.max(1) as f64;
            let time = self.millis(i.idle.total);
            writeln!(out, "    CPU {:>2} idle for {time:>10}  msec  ({share:>6.2}%)", i.cpu)?;
        }
        Ok(())
    }

    /// The summary as an object.
    pub fn to_json(&self) -> Value {
        let task = |r: &RuntimeRow| {
            json!({
                "comm": String::from_utf8_lossy(&r.comm),
                "tid": r.tid,
                "pid": r.process,
                "parent_tid": r.parent,
                "ended": r.has_ended,
                "runs": r.runs.count,
                "run_ns": r.runs.total,
                "min_run_ns": r.runs.min,
                "average_run_ns": r.runs.average(),
                "max_run_ns": r.runs.max,
                "run_error_percent": r.runs.error_percent(),
                "sleep_ns": r.sleep,
                "uninterruptible_ns": r.uninterruptible,
                "preempted_ns": r.preempted,
                "wakeup_delay_ns": r.delay,
                "migrations": r.migrations,
                "uncertain": r.uncertain,
            })
        };
        let idle =
            |i: &IdleTime| json!({"cpu": i.cpu, "count": i.idle.count, "idle_ns": i.idle.total});
        json!({
            "type": "summary",
            "tasks": self.rows.iter().map(task).collect::<Vec<_>>(),
            "idle": self.idle.iter().map(idle).collect::<Vec<_>>(),
            "switches": self.switches(),
            "run_ns": self.run_time(),
            "span_ns": self.span,
            "cpus": self.cpus,
        })
    }
}
