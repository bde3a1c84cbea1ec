//! `kymo io top`: requests by process, by file or by device.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::str::FromStr;

use kymo_analysis::block_io::{BlockDeviceRow, BlockFileRow, BlockProcess, BlockStats, BlockTable};
use serde_json::{Value, json};

use super::files::{FileTable, file_json, merged_deleted, write_find_hint};
use super::{
    BlockNames, device_json, device_text, halves_json, quantile, stats_json, write_answer,
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

impl BlockColumn {
    fn of(self, s: &BlockStats) -> u64 {
        match self {
            BlockColumn::Total => s.total.total,
            BlockColumn::Count => s.count,
            BlockColumn::Bytes => s.bytes,
            BlockColumn::Queue => s.queue.total,
            BlockColumn::Device => s.device.total,
            BlockColumn::Max => s.total.max.map_or(0, |m| m.0),
        }
    }
}

/// What rows are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockGrouping {
    /// A thread and a device.
    #[default]
    Process,
    /// A file and a device.
    File,
    /// A device.
    Device,
}

impl FromStr for BlockGrouping {
    type Err = String;

    fn from_str(text: &str) -> Result<BlockGrouping, String> {
        Ok(match text {
            "process" => BlockGrouping::Process,
            "file" => BlockGrouping::File,
            "device" => BlockGrouping::Device,
            _ => return Err(format!("{text:?} is none of process, file and device")),
        })
    }
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
    /// Names devices and files.
    pub names: BlockNames<'a>,
    /// What rows are of.
    pub by: BlockGrouping,
    /// What rows are sorted by.
    pub sort: BlockColumn,
    /// Rows at most.
    pub entries: usize,
    /// The recording as arguments of a command, `-i FILE`.
    pub recording: String,
}

impl BlockTop<'_> {
    fn sorted<'t, T>(&self, rows: &'t [T], stats: fn(&T) -> &BlockStats) -> Vec<&'t T> {
        let mut rows: Vec<&T> = rows.iter().collect();
        rows.sort_by_key(|row| Reverse(self.sort.of(stats(row))));
        rows
    }

    fn processes(&self) -> Vec<&BlockProcess> {
        self.sorted(&self.table.processes, |p| &p.stats)
    }

    fn files(&self) -> Vec<&BlockFileRow> {
        self.sorted(&self.table.files, |f| &f.stats)
    }

    fn devices(&self) -> Vec<&BlockDeviceRow> {
        self.sorted(&self.table.devices, |d| &d.stats)
    }

    /// Writes the answer, the table and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        write_answer(out, self.table, self.names, &self.recording)?;
        writeln!(out)?;
        let count = match self.by {
            BlockGrouping::Process => self.write_processes(out)?,
            BlockGrouping::File => self.write_files(out)?,
            BlockGrouping::Device => self.write_devices(out)?,
        };
        if count > self.entries {
            writeln!(out, "  ... and {} more (--entries)", count - self.entries)?;
        }
        if self.table.devices.iter().any(|d| d.stats.uncertain > 0) {
            writeln!(out, "  * some of them have no times: the notes tell why")?;
        }
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    fn write_head(&self, out: &mut dyn Write, first: &str, device: &str) -> io::Result<()> {
        writeln!(
            out,
            "  {first:<24} {device:<10} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "requests", "read", "written", "queue avg", "device avg", "p99", "max"
        )?;
        writeln!(out, "  {}", "-".repeat(110))
    }

    fn write_row(&self, out: &mut dyn Write, row: &ShownRow<'_>) -> io::Result<()> {
        let s = row.stats;
        let mark = if s.uncertain > 0 { "*" } else { "" };
        let time = |nanos: Option<u64>| Span(nanos.unwrap_or(0)).to_string();
        writeln!(
            out,
            "  {:<24} {:<10} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            format!("{}{mark}", row.label),
            row.device,
            s.count,
            Size(row.read),
            Size(row.written),
            time(s.queue.average()),
            time(s.device.average()),
            time(quantile(&s.total, 0.99)),
            time(s.total.max.map(|m| m.0)),
        )
    }

    fn write_processes(&self, out: &mut dyn Write) -> io::Result<usize> {
        self.write_head(out, "process", "device")?;
        let rows = self.processes();
        for p in rows.iter().take(self.entries) {
            let device = p.device.map(|d| device_text(d, self.names.devices)).unwrap_or_default();
            let label = format!("{}:{}", shown(&p.comm), p.tid.unwrap_or(0));
            let (read, written) = (p.read, p.written);
            self.write_row(out, &ShownRow { label, device, read, written, stats: &p.stats })?;
        }
        Ok(rows.len())
    }

    fn write_files(&self, out: &mut dyn Write) -> io::Result<usize> {
        let merged = merged_deleted(&self.table.files, self.names);
        let rows = self.sorted(&merged, |f| &f.stats);
        let shown = rows.get(..self.entries.min(rows.len())).unwrap_or_default();
        FileTable { rows: shown, names: self.names, indent: "  " }.write(out)?;
        write_find_hint(out, shown, self.names)?;
        Ok(rows.len())
    }

    fn write_devices(&self, out: &mut dyn Write) -> io::Result<usize> {
        self.write_head(out, "device", "")?;
        let rows = self.devices();
        for d in rows.iter().take(self.entries) {
            let label = device_text(d.device, self.names.devices);
            let (device, read, written) = (String::new(), d.read, d.written);
            self.write_row(out, &ShownRow { label, device, read, written, stats: &d.stats })?;
        }
        Ok(rows.len())
    }

    /// Writes the same as one object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let process = |p: &&BlockProcess| {
            let (device, name) = device_json(p.device, self.names.devices);
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
        let of_device = |d: &&BlockDeviceRow| {
            let (device, name) = device_json(Some(d.device), self.names.devices);
            let mut value = stats_json(&d.stats);
            if let Some(members) = value.as_object_mut() {
                members.insert("device".into(), device);
                members.insert("name".into(), name);
                members.insert("read_bytes".into(), d.read.into());
                members.insert("written_bytes".into(), d.written.into());
            }
            value
        };
        let (key, rows): (&str, Vec<Value>) = match self.by {
            BlockGrouping::Process => ("processes", self.processes().iter().map(process).collect()),
            BlockGrouping::File => {
                ("files", self.files().iter().map(|f| file_json(f, self.names)).collect())
            }
            BlockGrouping::Device => ("devices", self.devices().iter().map(of_device).collect()),
        };
        let span = self.table.read.span;
        let page = json!({
            key: rows,
            "halves": halves_json(self.table),
            "first_ns": span.map(|s| s.0),
            "last_ns": span.map(|s| s.1),
        });
        writeln!(out, "{page:#}")
    }
}

/// A row as it is shown.
struct ShownRow<'a> {
    label: String,
    device: String,
    read: u64,
    written: u64,
    stats: &'a BlockStats,
}
