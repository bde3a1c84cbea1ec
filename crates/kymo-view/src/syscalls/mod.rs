//! Text of `kymo syscalls`, with the columns of `perf trace -s`.

use std::io::{self, Write};
use std::str::FromStr;

use kymo_analysis::percent;
use kymo_analysis::syscalls::{CallWaits, SlowCall};
use kymo_table::{Answer, Cell, Table, TableRow, TextColumn, TextLayout};

use crate::Ledger;
use crate::histogram::{HISTOGRAMS, write_histogram};
use crate::units::{
    Grouped, Millis, RoundedMillis, Seconds, Span, TimeUnits, grouped_count, shown, write_more,
};

/// Tables that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryMode {
    /// One table of all threads, and one of the threads.
    Total,
    /// A table for each thread.
    Thread,
}

impl FromStr for SummaryMode {
    type Err = String;

    fn from_str(text: &str) -> Result<SummaryMode, String> {
        match text {
            "total" => Ok(SummaryMode::Total),
            "thread" => Ok(SummaryMode::Thread),
            _ => Err(format!("there is no mode {text:?}; there are total and thread")),
        }
    }
}

/// The answer as it is shown.
pub struct SyscallView<'a> {
    /// The answer.
    pub answer: &'a Answer,
    /// Slowest calls with their waits.
    pub slowest: &'a [SlowCall],
    /// Selection of tables.
    pub mode: SummaryMode,
    /// Rows of threads that are shown at most.
    pub threads: usize,
    /// Rows of calls at most.
    pub most: usize,
    /// Columns of the screen, if there is one.
    pub columns: Option<usize>,
    /// With numbers by error.
    pub errno_summary: bool,
    /// With histograms of the calls that took most time.
    pub histogram: bool,
    /// Units of times.
    pub units: TimeUnits,
    /// The recording as arguments of a command, `-i FILE`.
    pub recording: String,
}

/// Columns of the table of calls with all numbers.
const CALLS_WIDTH: usize = 126;

/// Row with the largest total.
fn longest(table: Table<'_>) -> Option<TableRow<'_>> {
    // Of equal ones the first.
    table.rows().rev().max_by_key(|row| row.number("total_ns"))
}

impl SyscallView<'_> {
    /// Writes the answer, the tables and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        let (calls, threads) = (self.answer.table("calls"), self.answer.table("threads"));
        self.write_answer(out, calls)?;
        match self.mode {
            SummaryMode::Total => {
                self.write_calls(out, calls)?;
                self.write_threads(out, threads)?;
            }
            SummaryMode::Thread => {
                writeln!(out, "\n Summary of events:")?;
                let all = threads.total("events");
                for thread in threads.rows() {
                    let (name, events) = (thread_name(thread), thread.number("events"));
                    let share = percent(events, all);
                    writeln!(out, "\n {name}, {events} events, {share:.1}%")?;
                    self.write_calls(out, thread.table("calls"))?;
                }
            }
        }
        if self.histogram {
            let mut rows: Vec<TableRow<'_>> = calls.rows().collect();
            rows.sort_by_key(|row| std::cmp::Reverse(row.number("total_ns")));
            for row in rows.into_iter().take(HISTOGRAMS) {
                write_histogram(out, &row.text("syscall"), row, "")?;
            }
        }
        self.write_slowest(out)?;
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    fn write_answer(&self, out: &mut dyn Write, calls: Table<'_>) -> io::Result<()> {
        let Some(most) = longest(calls) else { return Ok(()) };
        let threads = self.answer.table("threads").rows.len() as u64;
        writeln!(
            out,
            "\n {} of {}, {} of them failed; most time in {}: {} in {}.",
            grouped_count(calls.total("count"), "system call", "system calls"),
            grouped_count(threads, "thread", "threads"),
            Grouped(calls.total("errors")),
            most.text("syscall"),
            Span(most.number("total_ns")),
            grouped_count(most.number("count"), "call", "calls"),
        )?;
        let slowest = self.answer.table("slowest");
        let Some((row, slow)) = slowest.rows().zip(self.slowest).next() else { return Ok(()) };
        writeln!(
            out,
            " The slowest: {} of {}:{}, {}: {}.",
            row.text("syscall"),
            row.text("comm"),
            row.number("tid"),
            Span(slow.duration),
            call_time_words(&slow.waits, slow.duration)
        )?;
        if self.recording.is_empty() {
            return Ok(());
        }
        let nano = TimeUnits { nanos: true };
        let (from, to) = (Seconds(slow.start, nano), Seconds(slow.start + slow.duration, nano));
        writeln!(out, " Its events: kymo script {} --time {from},{to}", self.recording)
    }

    fn write_calls(&self, out: &mut dyn Write, calls: Table<'_>) -> io::Result<()> {
        let ms = |title, width, name: &'static str| {
            TextColumn::right(title, width, move |r| {
                RoundedMillis(r.number(name), self.units).to_string()
            })
        };
        let mut columns = vec![
            TextColumn::left("syscall", 15, |r| format!("{}{}", r.text("syscall"), r.mark())),
            TextColumn::number("calls", 8, "count"),
            TextColumn::number("errors", 7, "errors"),
            ms("total", 10, "total_ns").with_unit("(msec)"),
        ];
        let is_narrow = self.columns.is_some_and(|columns| columns < CALLS_WIDTH);
        if !is_narrow {
            columns.push(ms("min", 9, "min_ns").with_unit("(msec)"));
        }
        columns.push(ms("avg", 9, "average_ns").with_unit("(msec)"));
        if !is_narrow {
            columns.push(ms("p50", 9, "p50_ns").with_unit("(msec)"));
        }
        columns.push(ms("p99", 9, "p99_ns").with_unit("(msec)"));
        columns.push(ms("max", 9, "max_ns").with_unit("(msec)"));
        if !is_narrow {
            let error = |r: TableRow<'_>| format!("{:.2}%", r.float("stddev_percent"));
            columns.push(TextColumn::right("stddev", 8, error).with_unit("(%)"));
        }
        // Of all calls, or of none.
        if self.answer.table("calls").rows().any(|row| row.has("blocked_ns")) {
            columns.push(ms("blocked", 9, "blocked_ns").with_unit("(msec)"));
            columns.push(ms("runnable", 9, "runnable_ns").with_unit("(msec)"));
        }
        let layout = TextLayout { indent: "   ", gap: " ", end: "", columns };
        writeln!(out)?;
        layout.write_head(out)?;
        layout.write_units(out)?;
        layout.write_rules(out)?;
        let shown = calls.first(self.most);
        for row in shown.rows() {
            layout.write_row(out, row)?;
            if let (true, Cell::Map(errors)) = (self.errno_summary, row.cell("errnos")) {
                for (error, count) in errors {
                    writeln!(out, "{error:>35}: {}", count.number().unwrap_or(0))?;
                }
            }
        }
        write_more(out, calls.rows.len(), self.most)?;
        if shown.any("uncertain") {
            writeln!(out, "   * events were lost in some of them, which are left out")?;
        }
        Ok(())
    }

    fn write_threads(&self, out: &mut dyn Write, threads: Table<'_>) -> io::Result<()> {
        if threads.rows.len() < 2 || self.threads == 0 {
            return Ok(());
        }
        let sum = |r: TableRow<'_>, name| r.table("calls").total(name);
        let millis = |nanos| Millis(nanos, self.units).to_string();
        let layout = TextLayout {
            indent: "   ",
            gap: " ",
            end: "",
            columns: vec![
                TextColumn::left("thread", 24, thread_name),
                TextColumn::right("calls", 8, |r| sum(r, "count").to_string()),
                TextColumn::right("errors", 7, |r| sum(r, "errors").to_string()),
                TextColumn::right("total", 10, |r| millis(sum(r, "total_ns"))),
                TextColumn::right("blocked", 10, |r| millis(sum(r, "blocked_ns"))),
                TextColumn::left(" most time in", 0, |r| {
                    let most = longest(r.table("calls"));
                    format!(" {}", most.map(|call| call.text("syscall")).unwrap_or_default())
                }),
            ],
        };
        writeln!(out)?;
        layout.write_head(out)?;
        writeln!(out, "   {}", "-".repeat(80))?;
        layout.write_rows(out, threads.first(self.threads))?;
        if threads.rows.len() > self.threads {
            writeln!(out, "   ... and {} more (--threads)", threads.rows.len() - self.threads)?;
        }
        Ok(())
    }

    fn write_slowest(&self, out: &mut dyn Write) -> io::Result<()> {
        let slowest = self.answer.table("slowest");
        if slowest.rows.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n   Slowest calls")?;
        for (row, slow) in slowest.rows().zip(self.slowest) {
            let result = match slow.result {
                -4095..0 => format!("-1 {}", row.text("errno")),
                0x1_0000_0000.. => format!("{:#x}", slow.result),
                result => result.to_string(),
            };
            writeln!(
                out,
                "   {:>17} {:>10} {}:{} {}({}) = {result}",
                Seconds(slow.start, self.units),
                Span(slow.duration),
                row.text("comm"),
                row.number("tid"),
                row.text("syscall"),
                row.text("arguments"),
            )?;
            writeln!(out, "   {:>28} {}", "", call_time_words(&slow.waits, slow.duration))?;
        }
        Ok(())
    }
}

fn thread_name(thread: TableRow<'_>) -> String {
    if thread.has("tid") {
        format!("{} ({})", thread.text("comm"), thread.number("tid"))
    } else {
        thread.text("comm")
    }
}

/// Breakdown of a call's time, in words.
pub fn call_time_words(waits: &CallWaits, duration: u64) -> String {
    let mut parts = Vec::new();
    for block in &waits.blocks {
        let by = match &block.woken_by {
            Some((comm, tid, context)) => match context.text() {
                Some(interrupt) => format!(" (woken by {interrupt})"),
                None => format!(" (woken by {}:{tid})", shown(comm)),
            },
            None => String::new(),
        };
        let within = block.stack.first().map_or(String::new(), |f| format!(" in {f}"));
        parts.push(format!("{} {}{within}{by}", block.cause.text(), Span(block.nanos)));
    }
    if waits.runnable > 0 {
        parts.push(format!("waiting for a CPU {}", Span(waits.runnable)));
    }
    if waits.unknown > 0 {
        parts.push(format!("waiting or running {} (not recorded which)", Span(waits.unknown)));
    }
    let known = waits.blocked().saturating_add(waits.runnable).saturating_add(waits.unknown);
    let rest = duration.saturating_sub(known);
    parts.push(if *waits == CallWaits::default() {
        "no wait in the recording".to_owned()
    } else {
        format!("running {}", Span(rest))
    });
    parts.join(", ")
}
