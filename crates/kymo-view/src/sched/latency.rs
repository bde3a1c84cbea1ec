//! `kymo sched latency`: a table of delays by task.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::str::FromStr;

use kymo_analysis::tasks::{DelayStats, LatencyRow, LatencyTable, LongestDelay, WaitCause};
use serde_json::{Value, json};

use crate::Ledger;
use crate::histogram::{HISTOGRAMS, write_histogram};
use crate::units::{Millis, Seconds, TimeUnits, shown, write_more};

/// Columns that rows are sorted by, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyColumn {
    /// Run time.
    Runtime,
    /// Number of runs.
    Switch,
    /// Mean delay.
    Avg,
    /// Longest delay.
    Max,
    /// Delay that 99 of 100 do not exceed.
    P99,
    /// Runs on another CPU than the one before.
    Migrations,
    /// Thread id.
    Pid,
}

impl FromStr for LatencyColumn {
    type Err = String;

    fn from_str(text: &str) -> Result<LatencyColumn, String> {
        Ok(match text {
            "runtime" => LatencyColumn::Runtime,
            "switch" => LatencyColumn::Switch,
            "avg" => LatencyColumn::Avg,
            "max" => LatencyColumn::Max,
            "p99" => LatencyColumn::P99,
            "migrations" => LatencyColumn::Migrations,
            "pid" => LatencyColumn::Pid,
            _ => {
                let all = "runtime, switch, avg, max, p99, migrations and pid";
                return Err(format!("there is no key {text:?}; there are {all}"));
            }
        })
    }
}

/// The table as it is shown.
pub struct LatencyView<'a> {
    /// What was counted.
    pub table: &'a LatencyTable,
    /// What rows are sorted by.
    pub sort: Vec<LatencyColumn>,
    /// Delays by their causes instead of all together.
    pub causes: bool,
    /// Rows of the text at most.
    pub most: usize,
    /// With histograms of the delays.
    pub histogram: bool,
    /// Units of times.
    pub units: TimeUnits,
    /// The recording as arguments of a command, `-i FILE`, if there is one.
    pub recording: Option<String>,
}

const RULE: &str = "--------------------------------------------------------------------------\
-----------------------------------------------------------------";

impl LatencyView<'_> {
    fn rows(&self) -> Vec<&LatencyRow> {
        let mut rows: Vec<&LatencyRow> = self.table.rows.iter().collect();
        rows.sort_by_cached_key(|row| {
            let keys: Vec<Reverse<u64>> =
                self.sort.iter().map(|c| Reverse(self.key(row, *c))).collect();
            (keys, row.comm.clone(), row.tid)
        });
        rows
    }

    fn key(&self, row: &LatencyRow, column: LatencyColumn) -> u64 {
        match column {
            LatencyColumn::Runtime => self.runtime(row),
            LatencyColumn::Switch => row.switches,
            LatencyColumn::Avg => row.delay.average().unwrap_or(0),
            LatencyColumn::Max => row.delay.max.map_or(0, |m| m.0),
            LatencyColumn::P99 => row.delay.histogram.quantile(0.99).unwrap_or(0),
            LatencyColumn::Migrations => row.migrations,
            LatencyColumn::Pid => u64::from(row.tid),
        }
    }

    /// Time that the kernel accounted, or where it tells of none, time between switches.
    fn runtime(&self, row: &LatencyRow) -> u64 {
        if self.table.has_accounted { row.accounted } else { row.on_cpu }
    }

    /// Writes the answer, the table and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        if let Some(longest) = &self.table.longest {
            self.write_longest(out, longest)?;
        }
        match self.causes {
            true => self.write_causes(out)?,
            false => self.write_delays(out)?,
        }
        if self.histogram {
            self.write_histograms(out)?;
        }
        if self.table.rows.iter().any(|r| r.uncertain > 0) {
            writeln!(out, "  * events were lost in some of its waits, which are left out\n")?;
        }
        if !ledger.is_empty() {
            write!(out, "{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    /// Delays by their cause, and those of the first rows.
    fn write_histograms(&self, out: &mut dyn Write) -> io::Result<()> {
        let total = &self.table.total;
        write_histogram(out, "waits after a wake-up", &total.woken)?;
        write_histogram(out, "waits after a preemption", &total.preempted)?;
        write_histogram(out, "waits of new tasks", &total.new)?;
        for row in self.rows().into_iter().take(HISTOGRAMS) {
            write_histogram(out, &format!("waits of {}", shown(&row.comm)), &row.delay)?;
        }
        writeln!(out)
    }

    fn write_longest(&self, out: &mut dyn Write, longest: &LongestDelay) -> io::Result<()> {
        let wait = &longest.wait;
        let (Some(delay), Some(from), Some(to)) = (wait.delay(), wait.runnable, wait.ended) else {
            return Ok(());
        };
        let why = match wait.cause {
            WaitCause::Preempted => "after it was preempted".to_owned(),
            WaitCause::New => "when it was new".to_owned(),
            _ => match (&longest.waker, wait.woken.and_then(|w| w.by)) {
                (Some(by), Some(tid)) => format!("woken by {}:{tid}", shown(by)),
                _ => "woken".to_owned(),
            },
        };
        let micro = TimeUnits::default();
        writeln!(
            out,
            "\n Longest wait for a CPU: {} ms, {}:{} on CPU {} {why}; {}:{} ran there before it.",
            Millis(delay, micro),
            shown(&longest.comm),
            longest.tid,
            longest.cpu,
            shown(&longest.ran_before),
            longest.ran_before_tid,
        )?;
        let Some(recording) = &self.recording else { return Ok(()) };
        let nano = TimeUnits { nanos: true };
        let (from, to) = (Seconds(from, nano), Seconds(to, nano));
        writeln!(out, " Its events: kymo script {recording} --time {from},{to}")
    }

    fn write_delays(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "\n {RULE}")?;
        writeln!(
            out,
            "  Task                  |   Runtime ms  | Switches | Avg delay ms    | Max delay \
             ms    | Max delay start           | Max delay end          |"
        )?;
        writeln!(out, " {RULE}")?;
        for row in self.rows().into_iter().take(self.most) {
            let (max, start) = row.delay.max.unwrap_or((0, 0));
            writeln!(
                out,
                "{}|{:>11} ms |{:>9} | avg:{:>8} ms | max:{:>8} ms | max start: {:>12} s | \
                 max end: {:>12} s",
                name(row),
                self.rounded(self.runtime(row)),
                row.switches,
                self.rounded(row.delay.average().unwrap_or(0)),
                self.rounded(max),
                Seconds(start, self.units),
                Seconds(start + max, self.units),
            )?;
        }
        self.write_total(out)
    }

    fn write_causes(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "\n {RULE}")?;
        writeln!(
            out,
            "  Task                  |    Woken |  avg ms |  p99 ms |  max ms | Preempted |  avg \
             ms |  p99 ms |  max ms |    New |  max ms | Migrated | Unknown"
        )?;
        writeln!(out, " {RULE}")?;
        for row in self.rows().into_iter().take(self.most) {
            let cells = |d: &DelayStats| {
                let p99 = d.histogram.quantile(0.99).unwrap_or(0);
                let max = d.max.map_or(0, |m| m.0);
                [d.average().unwrap_or(0), p99.min(max), max].map(|n| self.rounded(n))
            };
            let (w, p, n) = (cells(&row.woken), cells(&row.preempted), cells(&row.new));
            writeln!(
                out,
                "{}|{:>9} |{:>8} |{:>8} |{:>8} |{:>10} |{:>8} |{:>8} |{:>8} |{:>7} |{:>8} |{:>9} \
                 |{:>8}",
                name(row),
                row.woken.count,
                w[0],
                w[1],
                w[2],
                row.preempted.count,
                p[0],
                p[1],
                p[2],
                row.new.count,
                n[2],
                row.migrations,
                row.unknown + row.uncertain,
            )?;
        }
        self.write_total(out)
    }

    fn write_total(&self, out: &mut dyn Write) -> io::Result<()> {
        write_more(out, self.table.rows.len(), self.most)?;
        let total = &self.table.total;
        let runtime = self.rounded(self.runtime(total));
        writeln!(out, " {}", &RULE[..113])?;
        writeln!(out, "  TOTAL:                |{runtime:>11} ms |{:>9} |", total.switches)?;
        writeln!(out, " {}\n", &RULE[..51])
    }

    /// Milliseconds, rounded as perf does here.
    fn rounded(&self, nanos: u64) -> String {
        let millis = nanos as f64 / 1e6;
        if self.units.nanos { format!("{millis:.6}") } else { format!("{millis:.3}") }
    }

    /// Writes the table and the ledger as one object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let tasks: Vec<Value> = self.rows().into_iter().map(|r| self.row_json(r)).collect();
        let mut total = self.row_json(&self.table.total);
        if let Some(total) = total.as_object_mut() {
            ["comm", "tid", "pid"].iter().for_each(|key| _ = total.remove(*key));
        }
        let span = self.table.read.span;
        let page = json!({
            "tasks": tasks,
            "total": total,
            "longest": self.table.longest.as_ref().map(longest_json),
            "runtime_from": if self.table.has_accounted { "sched_stat_runtime" } else { "sched_switch" },
            "first_ns": span.map(|s| s.0),
            "last_ns": span.map(|s| s.1),
        });
        writeln!(out, "{page:#}")
    }

    fn row_json(&self, row: &LatencyRow) -> Value {
        let tid = (row.tasks == 1).then_some(row.tid);
        json!({
            "comm": String::from_utf8_lossy(&row.comm),
            "tid": tid,
            "pid": row.pid.filter(|_| tid.is_some()),
            "tasks": row.tasks,
            "runtime_ns": self.runtime(row),
            "on_cpu_ns": row.on_cpu,
            "uncertain_on_cpu_ns": row.uncertain_on_cpu,
            "switches": row.switches,
            "migrations": row.migrations,
            "unknown": row.unknown,
            "uncertain": row.uncertain,
            "delay": delays_json(&row.delay),
            "woken": delays_json(&row.woken),
            "preempted": delays_json(&row.preempted),
            "new": delays_json(&row.new),
        })
    }
}

fn delays_json(d: &DelayStats) -> Value {
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

fn longest_json(l: &LongestDelay) -> Value {
    let cause = match l.wait.cause {
        WaitCause::Woken => "woken",
        WaitCause::Preempted => "preempted",
        WaitCause::New => "new",
        WaitCause::Unknown => "unknown",
    };
    json!({
        "comm": String::from_utf8_lossy(&l.comm),
        "tid": l.tid,
        "cpu": l.cpu,
        "cause": cause,
        "start_ns": l.wait.runnable,
        "end_ns": l.wait.ended,
        "waker": l.waker.as_ref().map(|w| String::from_utf8_lossy(w)),
        "waker_tid": l.wait.woken.and_then(|w| w.by),
        "ran_before": String::from_utf8_lossy(&l.ran_before),
        "ran_before_tid": l.ran_before_tid,
    })
}

/// Name and number of a row, 24 wide.
fn name(row: &LatencyRow) -> String {
    let comm = shown(&row.comm);
    let mark = if row.uncertain > 0 { "*" } else { "" };
    let name = match row.tasks {
        0 | 1 => format!("  {comm}:{}{mark} ", row.tid),
        n => format!("  {comm}:({n}){mark} "),
    };
    format!("{name:<24}")
}
