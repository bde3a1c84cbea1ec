//! `kymo io latency`: histograms of queue and device times, by device and operation.

use std::io::{self, Write};

use kymo_analysis::block_io::{BlockRow, BlockTable};
use kymo_analysis::tasks::DelayStats;
use serde_json::{Value, json};

use super::files::{FileTable, file_json, merged_deleted, write_find_hint};
use super::{
    BlockNames, delay_json, device_json, device_text, halves_json, quantile, stats_json,
    write_answer,
};
use crate::Ledger;
use crate::units::{Grouped, Size, Span, shown};

/// Width of the longest bar.
const BAR: u64 = 24;

/// The histograms as they are shown.
pub struct LatencyHistograms<'a> {
    /// What was counted.
    pub table: &'a BlockTable,
    /// Names devices and files.
    pub names: BlockNames<'a>,
    /// Devices and operations that are shown at most.
    pub entries: usize,
    /// Tasks that waited that are shown at most.
    pub waiters: usize,
    /// Files that are shown at most.
    pub files: usize,
    /// The recording as arguments of a command, `-i FILE`.
    pub recording: String,
}

impl LatencyHistograms<'_> {
    /// Writes the answer, the histograms, who waited, and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        write_answer(out, self.table, self.names, &self.recording)?;
        for row in self.table.rows.iter().take(self.entries) {
            self.write_row(out, row)?;
        }
        let more = self.table.rows.len().saturating_sub(self.entries);
        if more > 0 {
            writeln!(out, "\n  ... and {more} more (--entries)")?;
        }
        self.write_files(out)?;
        self.write_waiters(out)?;
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    fn write_row(&self, out: &mut dyn Write, row: &BlockRow) -> io::Result<()> {
        let s = &row.stats;
        let mut more = String::new();
        for (count, what) in [
            (s.errors, "failed"),
            (s.requeues, "requeued"),
            (s.uncertain, "uncertain: events lost"),
        ] {
            if count > 0 {
                more += &format!(", {} {what}", Grouped(count));
            }
        }
        writeln!(
            out,
            "\n  {} {}: {} requests, {}{more}",
            device_text(row.device, self.names.devices),
            row.op.name(),
            Grouped(s.count),
            Size(s.bytes)
        )?;
        for (name, d) in [("queue", &s.queue), ("device", &s.device), ("both", &s.total)] {
            let text = |nanos: Option<u64>| Span(nanos.unwrap_or(0)).to_string();
            writeln!(
                out,
                "    {name:<7} avg {:>9}  p50 {:>9}  p90 {:>9}  p99 {:>9}  max {:>9}",
                text(d.average()),
                text(quantile(d, 0.5)),
                text(quantile(d, 0.9)),
                text(quantile(d, 0.99)),
                text(d.max.map(|m| m.0)),
            )?;
        }
        write_histograms(out, &s.queue, &s.device)
    }

    fn write_files(&self, out: &mut dyn Write) -> io::Result<()> {
        let files = &self.table.files;
        if !self.table.read.has_owners || files.is_empty() || self.files == 0 {
            return Ok(());
        }
        writeln!(out, "\n  What they were for:")?;
        let files = merged_deleted(files, self.names);
        let shown: Vec<_> = files.iter().take(self.files).collect();
        FileTable { rows: &shown, names: self.names, indent: "    " }.write(out)?;
        if files.len() > self.files {
            writeln!(out, "    ... and {} more (--files)", files.len() - self.files)?;
        }
        write_find_hint(out, &shown, self.names)
    }

    fn write_waiters(&self, out: &mut dyn Write) -> io::Result<()> {
        let waiters = &self.table.waiters;
        if waiters.is_empty() || self.waiters == 0 {
            return Ok(());
        }
        writeln!(out, "\n  Tasks that waited until a request was done:")?;
        writeln!(
            out,
            "    {:<24} {:<10} {:>8} {:>10} {:>10} {:>10} {:>10}",
            "task", "device", "waits", "total", "avg", "p99", "max"
        )?;
        for w in waiters.iter().take(self.waiters) {
            writeln!(
                out,
                "    {:<24} {:<10} {:>8} {:>10} {:>10} {:>10} {:>10}",
                format!("{}:{}", shown(&w.comm), w.tid.unwrap_or(0)),
                w.device.map(|d| device_text(d, self.names.devices)).unwrap_or_default(),
                w.waits.count,
                Span(w.waits.total),
                Span(w.waits.average().unwrap_or(0)),
                Span(quantile(&w.waits, 0.99).unwrap_or(0)),
                Span(w.waits.max.map_or(0, |m| m.0)),
            )?;
        }
        if waiters.len() > self.waiters {
            writeln!(out, "    ... and {} more (--waiters)", waiters.len() - self.waiters)?;
        }
        Ok(())
    }

    /// Writes the same as one object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let rows = self.table.rows.iter().map(|row| {
            let (device, name) = device_json(Some(row.device), self.names.devices);
            let mut value = stats_json(&row.stats);
            if let Some(members) = value.as_object_mut() {
                members.insert("device".into(), device);
                members.insert("name".into(), name);
                members.insert("op".into(), row.op.name().into());
            }
            value
        });
        let waiters = self.table.waiters.iter().map(|w| {
            let (device, name) = device_json(w.device, self.names.devices);
            json!({
                "comm": String::from_utf8_lossy(&w.comm),
                "tid": w.tid,
                "pid": w.pid,
                "device": device,
                "name": name,
                "waits": delay_json(&w.waits),
            })
        });
        let span = self.table.read.span;
        let page = json!({
            "rows": rows.collect::<Vec<Value>>(),
            "waiters": waiters.collect::<Vec<Value>>(),
            "files": self.table.read.has_owners.then(|| {
                self.table.files.iter().map(|f| file_json(f, self.names)).collect::<Vec<Value>>()
            }),
            "halves": halves_json(self.table),
            "first_ns": span.map(|s| s.0),
            "last_ns": span.map(|s| s.1),
        });
        writeln!(out, "{page:#}")
    }
}

/// Both histograms beside each other, a row for each doubling that occurs.
fn write_histograms(
    out: &mut dyn Write,
    queue: &DelayStats,
    device: &DelayStats,
) -> io::Result<()> {
    // What never waits has no histogram of it.
    let waits = queue.max.is_some_and(|(max, _)| max > 0);
    let a = if waits { queue.histogram.doublings() } else { Vec::new() };
    let b = device.histogram.doublings();
    let begins = || a.iter().chain(&b).filter(|(_, n)| *n > 0).map(|(begin, _)| *begin);
    let (Some(first), Some(last)) = (begins().min(), begins().max()) else { return Ok(()) };
    let most = a.iter().chain(&b).map(|(_, n)| *n).max().unwrap_or(1).max(1);
    let bar = |n: u64| "█".repeat((n * BAR).div_ceil(most) as usize);
    let of = |all: &[(u64, u64)], begin| all.iter().find(|(b, _)| *b == begin).map_or(0, |d| d.1);
    writeln!(
        out,
        "\n    {:>9}   {:>9}   {:>8} {:<24}   {:>8}",
        "from", "to", "queue", "", "device"
    )?;
    let next = |begin: u64| if begin == 0 { 16 } else { begin.saturating_mul(2) };
    let rows =
        std::iter::successors(Some(first), |begin| Some(next(*begin)).filter(|n| *n <= last));
    let mut is_gap = false;
    for begin in rows.take(65) {
        let (q, d) = (of(&a, begin), of(&b, begin));
        if q + d == 0 {
            is_gap = true;
            continue;
        }
        if std::mem::take(&mut is_gap) {
            writeln!(out, "          ...")?;
        }
        let line = format!(
            "    {:>9} - {:>9} | {q:>8} {:<24} | {d:>8} {}",
            Span(begin).to_string(),
            Span(next(begin)).to_string(),
            bar(q),
            bar(d)
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
