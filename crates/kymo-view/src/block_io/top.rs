//! `kymo io top`: requests by process and device.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::str::FromStr;

use kymo_analysis::block_io::{BlockProcess, BlockTable};
use serde_json::{Value, json};

use super::{
    DeviceNames, device_json, device_text, halves_json, quantile, stats_json, write_answer,
};
use crate::Ledger;
use crate::units::{Size, Span, shown};

/// Columns that rows are sorted by, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockColumn {
    /// Queue and device time together.
    Total,
    /// Number of requests.
    Count,
    /// Bytes.
    Bytes,
    /// Time in queues.
    Queue,
    /// Time with driver and device.
    Device,
    /// The longest request.
    Max,
}

impl FromStr for BlockColumn {
    type Err = String;

    fn from_str(text: &str) -> Result<BlockColumn, String> {
        Ok(match text {
            "total" => BlockColumn::Total,
            "count" => BlockColumn::Count,
            "bytes" => BlockColumn::Bytes,
            "queue" => BlockColumn::Queue,
            "device" => BlockColumn::Device,
            "max" => BlockColumn::Max,
            _ => {
                return Err(format!(
                    "there is no key {text:?}; there are total, count, bytes, queue, device and max"
                ));
            }
        })
    }
}

/// The table as it is shown.
pub struct BlockTop<'a> {
    /// What was counted.
    pub table: &'a BlockTable,
    /// Names devices.
    pub names: DeviceNames<'a>,
    /// What rows are sorted by.
    pub sort: BlockColumn,
    /// Rows at most.
    pub entries: usize,
    /// The recording as a word of a command line.
    pub recording: String,
}

impl BlockTop<'_> {
    fn rows(&self) -> Vec<&BlockProcess> {
        let mut rows: Vec<&BlockProcess> = self.table.processes.iter().collect();
        rows.sort_by_key(|p| {
            let s = &p.stats;
            Reverse(match self.sort {
                BlockColumn::Total => s.total.total,
                BlockColumn::Count => s.count,
                BlockColumn::Bytes => s.bytes,
                BlockColumn::Queue => s.queue.total,
                BlockColumn::Device => s.device.total,
                BlockColumn::Max => s.total.max.map_or(0, |m| m.0),
            })
        });
        rows
    }

    /// Writes the answer, the table and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        write_answer(out, self.table, self.names, &self.recording)?;
        let rows = self.rows();
        writeln!(
            out,
            "\n  {:<24} {:<10} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "process",
            "device",
            "requests",
            "read",
            "written",
            "queue avg",
            "device avg",
            "p99",
            "max"
        )?;
        writeln!(out, "  {}", "-".repeat(110))?;
        for p in rows.iter().take(self.entries) {
            let s = &p.stats;
            let mark = if s.uncertain > 0 { "*" } else { "" };
            let time = |nanos: Option<u64>| Span(nanos.unwrap_or(0)).to_string();
            writeln!(
                out,
                "  {:<24} {:<10} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
                format!("{}:{}{mark}", shown(&p.comm), p.tid.unwrap_or(0)),
                p.device.map(|d| device_text(d, self.names)).unwrap_or_default(),
                s.count,
                Size(p.read),
                Size(p.written),
                time(s.queue.average()),
                time(s.device.average()),
                time(quantile(&s.total, 0.99)),
                time(s.total.max.map(|m| m.0)),
            )?;
        }
        if rows.len() > self.entries {
            writeln!(out, "  ... and {} more (--entries)", rows.len() - self.entries)?;
        }
        if rows.iter().any(|p| p.stats.uncertain > 0) {
            writeln!(out, "  * events were lost in some of them, which have no times")?;
        }
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    /// Writes the same as one object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        let row = |p: &&BlockProcess| {
            let (device, name) = device_json(p.device, self.names);
            let mut value = stats_json(&p.stats);
            if let Some(members) = value.as_object_mut() {
                members.insert("comm".into(), String::from_utf8_lossy(&p.comm).into());
                members.insert("tid".into(), p.tid.into());
                members.insert("pid".into(), p.pid.into());
                members.insert("device".into(), device);
                members.insert("name".into(), name);
                members.insert("read_bytes".into(), p.read.into());
                members.insert("written_bytes".into(), p.written.into());
            }
            value
        };
        let span = self.table.read.span;
        let page = json!({
            "processes": self.rows().iter().map(row).collect::<Vec<Value>>(),
            "halves": halves_json(self.table),
            "first_ns": span.map(|s| s.0),
            "last_ns": span.map(|s| s.1),
            "ledger": ledger.to_json(),
        });
        writeln!(out, "{page:#}")
    }
}
