//! Output of `kymo syscalls`: text with the columns of `perf trace -s`, and JSON (docs/json.md).

use std::cmp::Reverse;
use std::io::{self, Write};
use std::str::FromStr;

use kymo_analysis::percent;
use kymo_analysis::syscalls::{
    CallId, CallWaits, SlowCall, SyscallStats, SyscallTable, SyscallTask,
};
use kymo_analysis::tasks::WakeupContext;
use serde_json::{Value, json};

use crate::Ledger;
use crate::histogram::{HISTOGRAMS, write_histogram};
use crate::units::{Grouped, Millis, Seconds, Span, TimeUnits, grouped_count, shown, write_more};

/// What tables are shown.
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

/// Columns that calls are sorted by, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallColumn {
    /// Time together.
    Total,
    /// Number.
    Calls,
    /// Number of those that failed.
    Errors,
    /// Mean time.
    Avg,
    /// 99th percentile.
    P99,
    /// The longest.
    Max,
}

impl FromStr for SyscallColumn {
    type Err = String;

    fn from_str(text: &str) -> Result<SyscallColumn, String> {
        Ok(match text {
            "total" => SyscallColumn::Total,
            "calls" => SyscallColumn::Calls,
            "errors" => SyscallColumn::Errors,
            "avg" => SyscallColumn::Avg,
            "p99" => SyscallColumn::P99,
            "max" => SyscallColumn::Max,
            _ => {
                return Err(format!(
                    "there is no key {text:?}; there are total, calls, errors, avg, p99 and max"
                ));
            }
        })
    }
}

/// The table as it is shown.
pub struct SyscallView<'a> {
    /// What was counted.
    pub table: &'a SyscallTable,
    /// Which tables.
    pub mode: SummaryMode,
    /// What calls are sorted by.
    pub sort: SyscallColumn,
    /// Rows of threads that are shown at most.
    pub threads: usize,
    /// Rows of calls of the text at most.
    pub most: usize,
    /// With numbers by error.
    pub errno_summary: bool,
    /// With histograms of the calls that took most time.
    pub histogram: bool,
    /// Units of times.
    pub units: TimeUnits,
    /// The recording as arguments of a command, `-i FILE`.
    pub recording: String,
    /// Name of an error.
    pub errno_name: fn(i32) -> Option<&'static str>,
    /// Text of the arguments of each of the slowest calls.
    pub arguments: Vec<String>,
}

impl SyscallView<'_> {
    /// Writes the answer, the tables and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        self.write_answer(out)?;
        match self.mode {
            SummaryMode::Total => {
                self.write_calls(out, &self.table.calls)?;
                self.write_threads(out)?;
            }
            SummaryMode::Thread => {
                writeln!(out, "\n Summary of events:")?;
                let all: u64 = self.table.tasks.iter().map(|t| t.events).sum();
                for task in &self.table.tasks {
                    let share = percent(task.events, all);
                    let (name, events) = (thread_name(task), task.events);
                    writeln!(out, "\n {name}, {events} events, {share:.1}%")?;
                    self.write_calls(out, &task.calls)?;
                }
            }
        }
        if self.histogram {
            for (call, stats) in self.table.calls.iter().take(HISTOGRAMS) {
                write_histogram(out, self.table.name(*call), &stats.durations)?;
            }
        }
        self.write_slowest(out)?;
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    fn write_answer(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some((call, most)) = self.table.calls.first() else { return Ok(()) };
        let count: u64 = self.table.calls.iter().map(|(_, s)| s.durations.count).sum();
        let failed: u64 = self.table.calls.iter().map(|(_, s)| s.failed()).sum();
        let name = self.table.name(*call);
        writeln!(
            out,
            "\n {} of {}, {} of them failed; most time in {name}: {} in {}.",
            grouped_count(count, "system call", "system calls"),
            grouped_count(self.table.tasks.len() as u64, "thread", "threads"),
            Grouped(failed),
            Span(most.durations.total),
            grouped_count(most.durations.count, "call", "calls"),
        )?;
        let Some(slow) = self.table.slowest.first() else { return Ok(()) };
        writeln!(
            out,
            " The slowest: {} of {}:{}, {}: {}.",
            self.table.name(slow.call),
            shown(slow.task.comm()),
            slow.task.tid.unwrap_or(0),
            Span(slow.duration),
            spent_on(slow)
        )?;
        if self.recording.is_empty() {
            return Ok(());
        }
        let nano = TimeUnits { nanos: true };
        let (from, to) = (Seconds(slow.start, nano), Seconds(slow.start + slow.duration, nano));
        writeln!(out, " Its events: kymo script {} --time {from},{to}", self.recording)
    }

    fn sorted<'r>(&self, calls: &'r [(CallId, SyscallStats)]) -> Vec<&'r (CallId, SyscallStats)> {
        let mut rows: Vec<_> = calls.iter().collect();
        rows.sort_by_cached_key(|(id, s)| {
            let key = match self.sort {
                SyscallColumn::Total => s.durations.total,
                SyscallColumn::Calls => s.durations.count,
                SyscallColumn::Errors => s.failed(),
                SyscallColumn::Avg => s.durations.average().unwrap_or(0),
                SyscallColumn::P99 => s.quantile(0.99).unwrap_or(0),
                SyscallColumn::Max => s.durations.max.map_or(0, |m| m.0),
            };
            (Reverse(key), Reverse(s.durations.total), self.table.name(*id).to_owned())
        });
        rows
    }

    fn write_calls(&self, out: &mut dyn Write, calls: &[(CallId, SyscallStats)]) -> io::Result<()> {
        let has_waits = self.table.sched.switches > 0;
        let head =
            |a: &str, b: &str| if has_waits { format!(" {a:>9} {b:>9}") } else { String::new() };
        writeln!(
            out,
            "\n   {:<15} {:>8} {:>7} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8}{}",
            "syscall",
            "calls",
            "errors",
            "total",
            "min",
            "avg",
            "p50",
            "p99",
            "max",
            "stddev",
            head("blocked", "runnable")
        )?;
        let ms = "(msec)";
        writeln!(
            out,
            "   {:<15} {:>8} {:>7} {ms:>10} {ms:>9} {ms:>9} {ms:>9} {ms:>9} {ms:>9} {:>8}{}",
            "",
            "",
            "",
            "(%)",
            head(ms, ms)
        )?;
        let rule = |n| "-".repeat(n);
        let nine = rule(9);
        writeln!(
            out,
            "   {} {} {} {} {nine} {nine} {nine} {nine} {nine} {}{}",
            rule(15),
            rule(8),
            rule(7),
            rule(10),
            rule(8),
            head(&nine, &nine)
        )?;
        let mut is_marked = false;
        for (id, s) in self.sorted(calls).into_iter().take(self.most) {
            let mark = if s.uncertain > 0 { "*" } else { "" };
            is_marked |= s.uncertain > 0;
            let time = |nanos: Option<u64>| self.millis(nanos.unwrap_or(0));
            let waits = head(&self.millis(s.blocked), &self.millis(s.runnable));
            writeln!(
                out,
                "   {:<15} {:>8} {:>7} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7.2}%{waits}",
                format!("{}{mark}", shown(self.table.name(*id).as_bytes())),
                s.durations.count,
                s.failed(),
                self.millis(s.durations.total),
                time(s.min),
                time(s.durations.average()),
                time(s.quantile(0.5)),
                time(s.quantile(0.99)),
                time(s.durations.max.map(|m| m.0)),
                s.relative_error(),
            )?;
            if self.errno_summary {
                for (error, count) in &s.errors {
                    writeln!(out, "{:>35}: {count}", self.error_name(*error))?;
                }
            }
        }
        write_more(out, calls.len(), self.most)?;
        if is_marked {
            writeln!(out, "   * events were lost in some of them, which are left out")?;
        }
        Ok(())
    }

    fn millis(&self, nanos: u64) -> String {
        // Rounded, as perf does here.
        let millis = nanos as f64 / 1e6;
        if self.units.nanos { format!("{millis:.6}") } else { format!("{millis:.3}") }
    }

    fn error_name(&self, error: i32) -> String {
        (self.errno_name)(error).map_or_else(|| error.to_string(), str::to_owned)
    }

    fn write_threads(&self, out: &mut dyn Write) -> io::Result<()> {
        let tasks = &self.table.tasks;
        if tasks.len() < 2 || self.threads == 0 {
            return Ok(());
        }
        writeln!(
            out,
            "\n   {:<24} {:>8} {:>7} {:>10} {:>10}  most time in",
            "thread", "calls", "errors", "total", "blocked"
        )?;
        writeln!(out, "   {}", "-".repeat(80))?;
        for task in tasks.iter().take(self.threads) {
            let sum = |of: fn(&SyscallStats) -> u64| task.calls.iter().map(|(_, s)| of(s)).sum();
            let most = task.calls.first().map_or("", |(id, _)| self.table.name(*id));
            let (count, failed): (u64, u64) =
                (sum(|s| s.durations.count), sum(SyscallStats::failed));
            let (total, blocked) = (sum(|s| s.durations.total), sum(|s| s.blocked));
            writeln!(
                out,
                "   {:<24} {count:>8} {failed:>7} {:>10} {:>10}  {most}",
                thread_name(task),
                Millis(total, self.units),
                Millis(blocked, self.units),
            )?;
        }
        if tasks.len() > self.threads {
            writeln!(out, "   ... and {} more (--threads)", tasks.len() - self.threads)?;
        }
        Ok(())
    }

    fn write_slowest(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.table.slowest.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n   The slowest calls:")?;
        for (slow, arguments) in self.table.slowest.iter().zip(&self.arguments) {
            writeln!(
                out,
                "   {:>17} {:>10} {}:{} {}({}) = {}",
                Seconds(slow.start, self.units),
                Span(slow.duration).to_string(),
                shown(slow.task.comm()),
                slow.task.tid.unwrap_or(0),
                shown(self.table.name(slow.call).as_bytes()),
                shown(arguments.as_bytes()),
                self.result(slow.result),
            )?;
            writeln!(out, "   {:>28} {}", "", spent_on(slow))?;
        }
        Ok(())
    }

    fn result(&self, result: i64) -> String {
        match result {
            -4095..0 => format!("-1 {}", self.error_name(-result as i32)),
            0x1_0000_0000.. => format!("{result:#x}"),
            _ => result.to_string(),
        }
    }

    /// Writes the tables and the ledger as one object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let t = self.table;
        let calls = |calls: &[(CallId, SyscallStats)]| -> Vec<Value> {
            self.sorted(calls).into_iter().map(|(id, s)| self.stats_json(*id, s)).collect()
        };
        let tasks = t.tasks.iter().map(|task| {
            json!({
                "comm": String::from_utf8_lossy(&task.comm),
                "tid": task.tid,
                "pid": task.pid,
                "events": task.events,
                "calls": calls(&task.calls),
            })
        });
        let slowest = t.slowest.iter().zip(&self.arguments);
        let slowest = slowest.map(|(slow, arguments)| self.slow_json(slow, arguments));
        let page = json!({
            "calls": calls(&t.calls),
            "threads": tasks.collect::<Vec<Value>>(),
            "slowest": slowest.collect::<Vec<Value>>(),
            "halves": {
                "open_at_end": t.open_at_end,
                "entries_only": t.entries,
                "exits_only": t.exits,
                "uncertain": t.touching_loss,
            },
            "first_ns": t.span.map(|s| s.0),
            "last_ns": t.span.map(|s| s.1),
        });
        writeln!(out, "{page:#}")
    }

    fn stats_json(&self, id: CallId, s: &SyscallStats) -> Value {
        let errors = s.errors.iter();
        let errors: serde_json::Map<String, Value> =
            errors.map(|(e, n)| (self.error_name(*e), (*n).into())).collect();
        let has_waits = self.table.sched.switches > 0;
        json!({
            "syscall": self.table.name(id),
            "count": s.durations.count,
            "errors": s.failed(),
            "errnos": errors,
            "total_ns": s.durations.total,
            "min_ns": s.min,
            "average_ns": s.durations.average(),
            "p50_ns": s.quantile(0.5),
            "p90_ns": s.quantile(0.9),
            "p99_ns": s.quantile(0.99),
            "max_ns": s.durations.max.map(|m| m.0),
            "max_start_ns": s.durations.max.map(|m| m.1),
            "stddev_percent": s.relative_error(),
            "blocked_ns": has_waits.then_some(s.blocked),
            "runnable_ns": has_waits.then_some(s.runnable),
            "uncertain": s.uncertain,
        })
    }

    fn slow_json(&self, slow: &SlowCall, arguments: &str) -> Value {
        let blocks = slow.waits.blocks.iter().map(|b| {
            let waker = b.woken_by.as_ref().map(|(comm, tid, context)| {
                json!({
                    "comm": String::from_utf8_lossy(comm),
                    "tid": tid,
                    "context": context_name(*context),
                })
            });
            json!({
                "cause": b.cause.code(),
                "duration_ns": b.nanos,
                "woken_by": waker,
                "stack": b.stack,
            })
        });
        let failed = (-4095..0).contains(&slow.result);
        json!({
            "syscall": self.table.name(slow.call),
            "start_ns": slow.start,
            "duration_ns": slow.duration,
            "cpu": slow.cpu,
            "comm": String::from_utf8_lossy(slow.task.comm()),
            "tid": slow.task.tid,
            "pid": slow.task.pid,
            "arguments": arguments,
            "ret": slow.result,
            "errno": failed.then(|| self.error_name(-slow.result as i32)),
            "blocked": blocks.collect::<Vec<Value>>(),
            "runnable_ns": slow.waits.runnable,
        })
    }
}

fn thread_name(task: &SyscallTask) -> String {
    match task.tid {
        Some(tid) => format!("{} ({tid})", shown(&task.comm)),
        None => shown(&task.comm),
    }
}

fn context_name(context: WakeupContext) -> &'static str {
    match context {
        WakeupContext::HardIrq => "irq",
        context => context.code(),
    }
}

fn spent_on(slow: &SlowCall) -> String {
    call_time_words(&slow.waits, slow.duration)
}

/// What a call's time went to, in words.
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
    parts.push(match *waits == CallWaits::default() {
        true => "no wait in the recording".to_owned(),
        false => format!("running {}", Span(rest)),
    });
    parts.join(", ")
}
