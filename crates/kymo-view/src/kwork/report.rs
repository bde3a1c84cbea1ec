//! `kymo kwork report` and `latency`: tables of run times and of delays, and whom interrupts
//! and softirqs held up.

use std::io::{self, Write};

use kymo_analysis::kwork::KworkTimes;
use kymo_table::{Answer, Table, TableRow, TextColumn, TextLayout};

use super::{RULE_WIDTH, cut_name};
use crate::histogram::{HISTOGRAMS, write_histogram};
use crate::table_style::write_trimmed;
use crate::units::{Grouped, RoundedMillis, Seconds, Span, TimeUnits, write_more};
use crate::{Ledger, TableStyle};

/// The answer as it is shown.
pub struct KworkReport<'a> {
    /// The answer.
    pub answer: &'a Answer,
    /// Run times or delays.
    pub times: KworkTimes,
    /// With a summary behind the table.
    pub summary: bool,
    /// Tasks that were held up that are shown at most.
    pub delayed: usize,
    /// Rows at most.
    pub most: usize,
    /// With histograms of the first rows.
    pub histogram: bool,
    /// Layout of the tables.
    pub style: TableStyle,
    /// Units of times.
    pub units: TimeUnits,
    /// The recording as arguments of a command, `-i FILE`.
    pub recording: String,
}

impl KworkReport<'_> {
    /// Name of a column of the times.
    fn of(&self, name: &str) -> String {
        match self.times {
            KworkTimes::Runtime => format!("runtime.{name}"),
            KworkTimes::Delay => format!("delay.{name}"),
        }
    }

    /// Writes the answer, the tables and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        let rows = self.answer.table("rows");
        self.write_answer(out, rows)?;
        self.write_rows(out, rows)?;
        for row in rows.rows().take(if self.histogram { HISTOGRAMS } else { 0 }) {
            let title = format!("{} on CPU {}", row.text("name"), row.number("cpu"));
            write_histogram(out, &title, row, &self.of(""))?;
        }
        if self.times == KworkTimes::Runtime {
            self.write_delayed(out)?;
        }
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    fn write_answer(&self, out: &mut dyn Write, rows: Table<'_>) -> io::Result<()> {
        let max = |row: &TableRow<'_>| row.number(&self.of("max_ns"));
        let seen = rows.rows().filter(|row| row.has(&self.of("max_ns")));
        let Some(row) = seen.max_by_key(max) else { return Ok(()) };
        let (name, cpu, max) = (row.text("name"), row.number("cpu"), max(&row));
        match self.times {
            KworkTimes::Runtime => {
                writeln!(
                    out,
                    "\n {} in {} interrupts, softirqs and work items; the longest: {}, {name} on CPU {cpu}.",
                    Span(rows.total("runtime.total_ns")),
                    Grouped(rows.total("runtime.count")),
                    Span(max),
                )?;
                if let Some(task) = self.answer.table("held_up").rows().next() {
                    writeln!(
                        out,
                        " Most held up by interrupts and softirqs: {}:{}, {} in {} of them.",
                        task.text("comm"),
                        task.number("tid"),
                        Span(task.number("total_ns")),
                        Grouped(task.number("count"))
                    )?;
                }
            }
            KworkTimes::Delay => writeln!(
                out,
                "\n Longest wait of a softirq or work item: {}, {name} on CPU {cpu}.",
                Span(max),
            )?,
        }
        if self.recording.is_empty() {
            return Ok(());
        }
        let (nano, from) = (TimeUnits { nanos: true }, row.number(&self.of("max_start_ns")));
        let (from, to) = (Seconds(from, nano), Seconds(from + max, nano));
        writeln!(out, " Its events: kymo script {} --time {from},{to}", self.recording)
    }

    fn millis(&self, nanos: u64) -> String {
        format!("{} ms", RoundedMillis(nanos, self.units))
    }

    fn write_rows(&self, out: &mut dyn Write, rows: Table<'_>) -> io::Result<()> {
        writeln!(out)?;
        match self.style {
            TableStyle::Kymo => {
                self.write_kymo_rows(out, rows)?;
                if self.summary {
                    writeln!(out)?;
                    self.write_summary(out, rows)?;
                }
            }
            TableStyle::Perf => {
                self.write_perf_rows(out, rows)?;
                if self.summary {
                    self.write_summary(out, rows)?;
                    writeln!(out, " {}", "-".repeat(RULE_WIDTH))?;
                }
            }
        }
        if rows.any("uncertain") {
            writeln!(out, "  * events were lost in some of them, which are left out")?;
        }
        Ok(())
    }

    fn write_kymo_rows(&self, out: &mut dyn Write, rows: Table<'_>) -> io::Result<()> {
        let (first_title, max_title, first) = match self.times {
            KworkTimes::Runtime => ("Total ms", "Max ms", self.of("total_ns")),
            KworkTimes::Delay => ("Avg delay ms", "Max delay ms", self.of("average_ns")),
        };
        let (count, max, start) = (self.of("count"), self.of("max_ns"), self.of("max_start_ns"));
        let (first, max, start) = (first.as_str(), max.as_str(), start.as_str());
        let millis = |nanos| RoundedMillis(nanos, self.units).to_string();
        let seconds = |time| Seconds(time, self.units).to_string();
        let layout = TextLayout {
            indent: "  ",
            gap: " ",
            end: "",
            columns: vec![
                TextColumn::left("Name", 30, |r| {
                    format!("{}{}", cut_name(&r.text("name")), r.mark())
                }),
                TextColumn::number("CPU", 4, "cpu"),
                TextColumn::number("Count", 8, &count),
                TextColumn::right(first_title, 12, |r| millis(r.number(first))),
                TextColumn::right(max_title, 12, |r| millis(r.number(max))),
                TextColumn::right("Start of max s", 14, |r| seconds(r.number(start))),
                TextColumn::right("End of max s", 12, |r| seconds(r.number(start) + r.number(max))),
            ],
        };
        layout.write_ruled_head(out)?;
        layout.write_rows(out, rows.first(self.most))?;
        write_more(out, rows.rows.len(), self.most)
    }

    fn write_perf_rows(&self, out: &mut dyn Write, rows: Table<'_>) -> io::Result<()> {
        let (total, what, first) = match self.times {
            KworkTimes::Runtime => ("Total Runtime", "runtime", self.of("total_ns")),
            KworkTimes::Delay => ("Avg delay", "delay", self.of("average_ns")),
        };
        let (count, max, start) = (self.of("count"), self.of("max_ns"), self.of("max_start_ns"));
        let (max, start) = (&max, &start);
        let seconds = |time| format!("{} s", Seconds(time, self.units));
        let layout = TextLayout {
            indent: "  ",
            gap: " | ",
            end: " |",
            columns: vec![
                TextColumn::left("Kwork Name", 30, |r| {
                    format!("{}{}", cut_name(&r.text("name")), r.mark())
                }),
                TextColumn::left("Cpu", 4, |r| format!("{:04}", r.number("cpu"))),
                TextColumn::right(total, 13, |r| self.millis(r.number(&first))).titled_left(),
                TextColumn::number("Count", 9, &count).titled_left(),
                TextColumn::right(format!("Max {what}"), 13, |r| self.millis(r.number(max)))
                    .titled_left(),
                TextColumn::right(format!("Max {what} start"), 19, |r| seconds(r.number(start)))
                    .titled_left(),
                TextColumn::right(format!("Max {what} end"), 19, |r| {
                    seconds(r.number(start) + r.number(max))
                })
                .titled_left(),
            ],
        };
        let rule = "-".repeat(RULE_WIDTH);
        layout.write_head(out)?;
        writeln!(out, " {rule}")?;
        layout.write_rows(out, rows.first(self.most))?;
        write_more(out, rows.rows.len(), self.most)?;
        writeln!(out, " {rule}")
    }

    fn write_summary(&self, out: &mut dyn Write, rows: Table<'_>) -> io::Result<()> {
        let (total, facts) = (rows.total(&self.of("total_ns")), self.answer.facts());
        let span = facts.number("last_ns") - facts.number("first_ns");
        let load = kymo_analysis::percent(total, span);
        let millis = |nanos| RoundedMillis(nanos, self.units);
        writeln!(out, "  Total count            : {:>9}", rows.total(&self.of("count")))?;
        // perf 7.2 shows the hundredth of it.
        writeln!(out, "  Total runtime   (msec) : {:>9} ({load:.3}% of a CPU)", millis(total))?;
        writeln!(out, "  Total time span (msec) : {:>9}", millis(span))
    }

    fn write_delayed(&self, out: &mut dyn Write) -> io::Result<()> {
        let tasks = self.answer.table("held_up");
        if tasks.rows.is_empty() || self.delayed == 0 {
            return Ok(());
        }
        let task = |r: TableRow<'_>| format!("{}:{}", r.text("comm"), r.number("tid"));
        let millis = |r: TableRow<'_>, name| RoundedMillis(r.number(name), self.units).to_string();
        writeln!(out, "\n  Tasks that interrupts and softirqs held up:")?;
        match self.style {
            TableStyle::Kymo => {
                let layout = TextLayout {
                    indent: "  ",
                    gap: " ",
                    end: "",
                    columns: vec![
                        TextColumn::left("Task", 26, task),
                        TextColumn::number("Count", 8, "count"),
                        TextColumn::right("Held up ms", 12, |r| millis(r, "total_ns")),
                        TextColumn::right("Longest ms", 12, |r| millis(r, "max_ns")),
                        TextColumn::left("  Longest by", 30, |r| {
                            format!("  {}", r.text("longest_by"))
                        }),
                    ],
                };
                write_trimmed(out, &layout, tasks.first(self.delayed))?;
            }
            TableStyle::Perf => {
                let layout = TextLayout {
                    indent: "  ",
                    gap: " | ",
                    end: "",
                    columns: vec![
                        TextColumn::left("Task", 24, task),
                        TextColumn::right("Held up", 13, |r| self.millis(r.number("total_ns")))
                            .titled_left(),
                        TextColumn::number("Count", 9, "count").titled_left(),
                        TextColumn::right("Longest", 13, |r| self.millis(r.number("max_ns")))
                            .titled_left(),
                        TextColumn::left("Longest by", 0, |r| r.text("longest_by")),
                    ],
                };
                layout.write_head(out)?;
                writeln!(out, " {}", "-".repeat(84))?;
                layout.write_rows(out, tasks.first(self.delayed))?;
            }
        }
        if tasks.rows.len() > self.delayed {
            writeln!(out, "  ... and {} more (--held-up)", tasks.rows.len() - self.delayed)?;
        }
        Ok(())
    }
}
