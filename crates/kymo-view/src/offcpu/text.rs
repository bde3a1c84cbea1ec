//! Waits as text: the answer, causes, the tree of stacks, tasks, where to look next.

use std::io::{self, Write};

use kymo_analysis::offcpu::{CauseStats, OffCpuCause, OffCpuRow};

use super::OffCpuView;
use super::pairs::waits;
use crate::units::{Millis, Seconds, Span, TimeUnits, shown};
use crate::{Ledger, percent};

impl OffCpuView<'_> {
    /// Writes the answer, the tables, the tree and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&mut self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        let total = self.table.total.clone();
        self.write_answer(out, &total)?;
        self.write_causes(out, &total)?;
        if self.tasks {
            self.write_tasks(out)?;
        }
        self.write_next(out)?;
        let totals = self.table.causes.iter().map(|(cause, c)| (cause.is_idle(), c.waits.total));
        let (mut whole, mut idle) = (0u64, 0);
        for (is_idle, total) in totals {
            *(if is_idle { &mut idle } else { &mut whole }) += total;
        }
        let leave_idle = whole > 0 && idle > 0;
        if whole + idle > 0 {
            let begin =
                if self.inverted { "the function that waits" } else { "the outermost caller" };
            let without = if leave_idle { ", without idle kernel threads" } else { "" };
            writeln!(out, " Stacks, from {begin} on, in percent of the time off CPU{without}\n")?;
            self.write_tree(out, if leave_idle { whole } else { whole + idle }, leave_idle)?;
        }
        self.write_pairs(out)?;
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    fn write_answer(&self, out: &mut dyn Write, total: &OffCpuRow) -> io::Result<()> {
        let Some((cause, stats)) = self.largest() else {
            return writeln!(out, "\n No task was off CPU and came back.\n");
        };
        let off = total.waiting.saturating_add(total.blocked);
        let tasks = match total.tasks {
            1 => "1 task was".to_owned(),
            n => format!("{n} tasks were"),
        };
        let idle = self.table.causes.iter().find(|(c, _)| c.is_idle() && c != cause);
        let most = match idle {
            Some((_, idle)) if idle.waits.total > 0 => {
                format!("{} of it idle kernel threads, most of the rest", Span(idle.waits.total))
            }
            _ => "most of it".to_owned(),
        };
        writeln!(
            out,
            "\n {tasks} off CPU for {} of {} ({:.1}%); {most} {}: {} in {}.\n",
            Span(off),
            Span(total.wall),
            percent(off, total.wall),
            cause.text().replace(": ", " on ").replace("CPU on ", "CPU, "),
            Span(stats.waits.total),
            waits(stats.waits.count),
        )
    }

    /// The cause that most time went to; threads without work have it only where there is no other.
    fn largest(&self) -> Option<&(OffCpuCause, CauseStats)> {
        let waited = self.table.causes.iter().filter(|(_, c)| c.waits.count > 0);
        waited.max_by_key(|(cause, c)| (!cause.is_idle(), c.waits.total))
    }

    fn write_causes(&self, out: &mut dyn Write, total: &OffCpuRow) -> io::Result<()> {
        let open = self.table.causes.iter().any(|(_, c)| c.open.0 > 0);
        let extra = if open { "      Not ended" } else { "" };
        writeln!(
            out,
            "  {:<33} {:>12} {:>7} {:>9} {:>10} {:>10} {:>10}{extra}",
            "Time", "Total ms", "Wall", "Count", "p50 ms", "p99 ms", "Max ms"
        )?;
        let rule = "-".repeat(97 + extra.len());
        writeln!(out, "  {rule}")?;
        let share = |nanos| format!("{:.1}%", percent(nanos, total.wall));
        let running = Millis(total.running, self.units);
        writeln!(out, "  {:<33} {running:>12} {:>7}", "running", share(total.running))?;
        let mut lost = false;
        for (cause, stats) in self.table.causes.iter().filter(|(_, c)| !c.is_empty()) {
            let max = stats.waits.max.map_or(0, |m| m.0);
            let quantile = |share| stats.waits.histogram.quantile(share).unwrap_or(0).min(max);
            lost |= stats.uncertain.0 > 0;
            let mark = if stats.uncertain.0 > 0 { "*" } else { "" };
            write!(
                out,
                "  {:<33} {:>12} {:>7} {:>9} {:>10} {:>10} {:>10}",
                format!("{}{mark}", cause.text()),
                Millis(stats.waits.total, self.units),
                share(stats.waits.total),
                stats.waits.count,
                Millis(quantile(0.5), self.units),
                Millis(quantile(0.99), self.units),
                Millis(max, self.units),
            )?;
            match stats.open.0 {
                0 => writeln!(out)?,
                n => {
                    writeln!(out, " {:>14}", format!("{}:{}", n, Millis(stats.open.1, self.units)))?
                }
            }
        }
        writeln!(out, "  {rule}")?;
        let sum = total.sum();
        writeln!(out, "  {:<33} {:>12} {:>7}\n", "together", Millis(sum, self.units), share(sum))?;
        if lost {
            let (mut count, mut nanos) = (0, 0);
            for (_, c) in &self.table.causes {
                count += c.uncertain.0;
                nanos += c.uncertain.1;
            }
            let nanos = Millis(nanos, self.units);
            writeln!(
                out,
                "  * left out, for events are missing in them: {} ({nanos} ms)\n",
                waits(count)
            )?;
        }
        if open {
            let what = "waits that had not ended when the recording did: number:time until then";
            writeln!(out, "  Not ended: {what}\n")?;
        }
        Ok(())
    }

    fn write_tasks(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "  {:<26} {:>12} {:>12} {:>12} {:>12} {:>9}",
            "Task", "Wall ms", "Running ms", "Waiting ms", "Blocked ms", "Unsure ms"
        )?;
        writeln!(out, "  {}", "-".repeat(88))?;
        for row in &self.table.rows {
            let name = match row.tasks {
                1 => format!("{}:{}", shown(&row.comm), row.tid),
                n => format!("{}:({n})", shown(&row.comm)),
            };
            writeln!(
                out,
                "  {name:<26} {:>12} {:>12} {:>12} {:>12} {:>9}",
                Millis(row.wall, self.units),
                Millis(row.running, self.units),
                Millis(row.waiting, self.units),
                Millis(row.blocked, self.units),
                Millis(row.uncertain, self.units),
            )?;
        }
        writeln!(out)
    }

    fn write_next(&self, out: &mut dyn Write) -> io::Result<()> {
        let all = &self.table.longest;
        let most = self.largest().and_then(|(cause, _)| all.iter().find(|l| l.cause == *cause));
        let Some(longest) = most.or(all.first()) else { return Ok(()) };
        let nano = TimeUnits { nanos: true };
        writeln!(out, " Where to look next")?;
        writeln!(
            out,
            "  Longest of it: {} ms off the CPU, {}:{}, {}",
            Millis(longest.to - longest.from, self.units),
            shown(&longest.comm),
            longest.tid,
            longest.cause.text(),
        )?;
        let (from, to) = (Seconds(longest.from, nano), Seconds(longest.to, nano));
        let file = &self.recording;
        if file.is_empty() {
            return writeln!(out);
        }
        writeln!(out, "  its events:   kymo script {file} --time {from},{to}")?;
        writeln!(out, "  its task:     kymo offcpu report {file} --tid {}", longest.tid)?;
        match self.largest().map(|(cause, _)| cause) {
            Some(OffCpuCause::Preempted | OffCpuCause::Woken) => {
                writeln!(out, "  who ran:      kymo sched latency {file} --causes")
            }
            Some(OffCpuCause::Futex) => {
                writeln!(out, "  which futex:  kymo lock contention --futex -- COMMAND")
            }
            Some(OffCpuCause::Mutex | OffCpuCause::Rwsem | OffCpuCause::KernelLock) => {
                writeln!(out, "  which lock:   kymo lock contention -l -- COMMAND")
            }
            _ => Ok(()),
        }?;
        writeln!(out)
    }
}
