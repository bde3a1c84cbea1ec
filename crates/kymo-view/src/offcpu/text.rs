//! Waits as text: the answer, causes, the tree of stacks, tasks, where to look next.

use std::io::{self, Write};

use kymo_analysis::offcpu::{CauseStats, OffCpuCause, OffCpuRow};
use kymo_table::{TextColumn, TextLayout};

use super::OffCpuView;
use super::pairs::waits;
use crate::screen_lines::most_of_it;
use crate::units::{Millis, Seconds, Span, TimeUnits, shown};
use crate::{Ledger, percent};

/// Causes on a screen; the others are one row.
const SCREEN_CAUSES: usize = 9;
/// Columns of causes with all numbers.
const CAUSES_WIDTH: usize = 114;

impl OffCpuView<'_> {
    /// Writes the answer, the tables, the tree and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&mut self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        let total = self.table.total.clone();
        self.write_answer(out, &total)?;
        self.write_causes(out, &total)?;
        if self.tasks > 0 {
            self.write_tasks(out)?;
        }
        self.write_next(out)?;
        let totals = self.table.causes.iter().map(|(cause, c)| (cause.is_idle(), c.waits.total));
        let (mut whole, mut idle) = (0u64, 0);
        for (is_idle, total) in totals {
            *(if is_idle { &mut idle } else { &mut whole }) += total;
        }
        let leave_idle = whole > 0 && idle > 0;
        if let Some(most) = self.stack_lines {
            self.write_stack_lines(out, most, leave_idle)?;
        } else if whole + idle > 0 {
            let begin = if self.inverted { "function that waits" } else { "outermost caller" };
            let without = if leave_idle { ", without idle kernel threads" } else { "" };
            writeln!(out, " Stacks, {begin} first, in percent of the time off CPU{without}\n")?;
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
                let idle = idle.waits.total;
                let most = most_of_it(stats.waits.total, off.saturating_sub(idle));
                let most = most.replace("of it", "of the rest");
                format!("{} of it idle kernel threads, {most}", Span(idle))
            }
            _ => most_of_it(stats.waits.total, off).to_owned(),
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
        let causes = self.answer.table("causes");
        // A screen has the causes that most time went to.
        let most = if self.columns.is_some() { SCREEN_CAUSES } else { usize::MAX };
        let mut totals: Vec<u64> = causes.rows().map(|row| row.number("total_ns")).collect();
        totals.sort_unstable_by(|a, b| b.cmp(a));
        // One cause alone takes no more lines than the row that would stand for it.
        let is_folded = totals.len() > most.saturating_add(1);
        let least = totals.get(most).filter(|_| is_folded).map_or(0, |total| total + 1);
        let (shown, others): (Vec<_>, Vec<_>) =
            causes.rows().partition(|row| row.number("total_ns") >= least);
        let is_narrow = self.columns.is_some_and(|columns| columns < CAUSES_WIDTH);
        let has_open = causes.any("not_ended");
        let share = |nanos| format!("{:.1}%", percent(nanos, total.wall));
        let millis = |nanos| Millis(nanos, self.units).to_string();
        let ms = |title, width, name: &'static str| {
            TextColumn::right(title, width, move |r| millis(r.number(name)))
        };
        let mut columns = vec![
            TextColumn::left("Time", 33, |r| format!("{}{}", r.text("words"), r.mark())),
            ms("Total ms", 12, "total_ns"),
            TextColumn::right("Wall", 7, |r| share(r.number("total_ns"))),
            TextColumn::number("Count", 9, "count"),
        ];
        if !(has_open && is_narrow) {
            columns.push(ms("p50 ms", 10, "p50_ns"));
        }
        columns.extend([ms("p99 ms", 10, "p99_ns"), ms("Max ms", 10, "max_ns")]);
        let open_width = if is_narrow { 11 } else { 14 };
        if has_open {
            columns.push(TextColumn::right("Not ended", open_width, |r| {
                match r.number("not_ended") {
                    0 => String::new(),
                    n => format!("{n}:{}", millis(r.number("not_ended_ns"))),
                }
            }));
        }
        let layout = TextLayout { indent: "  ", gap: " ", end: "", columns };
        layout.write_head(out)?;
        let rule = "-".repeat(match (has_open, is_narrow) {
            (true, false) => CAUSES_WIDTH - 2,
            (true, true) => 98,
            (false, _) => 97,
        });
        writeln!(out, "  {rule}")?;
        let running = Millis(total.running, self.units);
        writeln!(out, "  {:<33} {running:>12} {:>7}", "running", share(total.running))?;
        for row in shown {
            let mut line = Vec::new();
            layout.write_row(&mut line, row)?;
            out.write_all(line.trim_ascii_end())?;
            writeln!(out)?;
        }
        if !others.is_empty() {
            let sum = |name: &str| others.iter().map(|row| row.number(name)).sum::<u64>();
            let (title, nanos) = (format!("{} other causes", others.len()), sum("total_ns"));
            let (total, share) = (millis(nanos), share(nanos));
            writeln!(out, "  {title:<33} {total:>12} {share:>7} {:>9}", sum("count"))?;
        }
        writeln!(out, "  {rule}")?;
        let sum = total.sum();
        writeln!(out, "  {:<33} {:>12} {:>7}\n", "together", Millis(sum, self.units), share(sum))?;
        if causes.any("uncertain") {
            let nanos = Millis(causes.total("uncertain_ns"), self.units);
            writeln!(
                out,
                "  * excluded because of missing events: {} ({nanos} ms)",
                waits(causes.total("uncertain"))
            )?;
        }
        if has_open {
            let what = "waits that had not ended when the recording did: number:time until then";
            writeln!(out, "  Not ended: {what}")?;
        }
        if causes.any("uncertain") || has_open {
            writeln!(out)?;
        }
        Ok(())
    }

    fn write_tasks(&self, out: &mut dyn Write) -> io::Result<()> {
        let ms = |title, width, name: &'static str| {
            TextColumn::right(title, width, move |r| Millis(r.number(name), self.units).to_string())
        };
        let layout = TextLayout {
            indent: "  ",
            gap: " ",
            end: "",
            columns: vec![
                TextColumn::left("Task", 26, |r| match r.number("tasks") {
                    1 => format!("{}:{}", r.text("comm"), r.number("tid")),
                    n => format!("{}:({n})", r.text("comm")),
                }),
                ms("Wall ms", 12, "wall_ns"),
                ms("Running ms", 12, "running_ns"),
                ms("Waiting ms", 12, "waiting_ns"),
                ms("Blocked ms", 12, "blocked_ns"),
                ms("Unsure ms", 9, "uncertain_ns"),
            ],
        };
        layout.write_head(out)?;
        writeln!(out, "  {}", "-".repeat(88))?;
        let tasks = self.answer.table("tasks");
        layout.write_rows(out, tasks.first(self.tasks))?;
        if tasks.rows.len() > self.tasks {
            writeln!(out, "  ... and {} more", tasks.rows.len() - self.tasks)?;
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
            "  longest wait: {} ms, {}:{}, {}",
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
                writeln!(out, "  other tasks:  kymo sched latency {file} --causes")
            }
            Some(OffCpuCause::Futex) => {
                writeln!(out, "  futexes:      kymo lock contention --futex -- COMMAND")
            }
            Some(OffCpuCause::Mutex | OffCpuCause::Rwsem | OffCpuCause::KernelLock) => {
                writeln!(out, "  locks:        kymo lock contention -l -- COMMAND")
            }
            _ => Ok(()),
        }?;
        writeln!(out)
    }
}
