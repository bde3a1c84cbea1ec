//! Answers about block requests as tables.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::str::FromStr;

use kymo_table::{Answer, AnswerSchema, ColumnSet, Name};

use super::names::{BlockNames, FileName};
use super::{
    BlockDevice, BlockDeviceRow, BlockFile, BlockFileRow, BlockOwner, BlockProcess, BlockRequest,
    BlockRow, BlockStats, BlockTable, BlockWaiter,
};
use crate::tasks::delay_columns;

/// Grouping of the rows of `top`.
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

/// Data that cells need besides the row.
struct Context<'a> {
    names: BlockNames<'a>,
    by: BlockGrouping,
    /// Deleted files that had the same inode are in one row.
    merges_deleted: bool,
}

impl Context<'_> {
    fn device(&self, device: Option<BlockDevice>) -> Option<String> {
        (self.names.devices)(device?)
    }
}

fn stats_columns<'a, C: 'a>() -> ColumnSet<'a, BlockStats, C> {
    let times = || delay_columns(true).with_details();
    ColumnSet::new()
        .sum("count", "completed requests", |s: &BlockStats, _: &C| s.count)
        .sum("bytes", "their bytes", |s, _| s.bytes)
        .group(
            "queue",
            "times from the first event of a request until it is issued to the driver",
            times(),
            |s, _| &s.queue,
        )
        .group("device_time", "times from there to completion", times(), |s, _| &s.device)
        .group("total", "sum of both", times(), |s, _| &s.total)
        .sum("requeues", "number of requeues by drivers", |s, _| s.requeues)
        .sum("errors", "requests that failed", |s, _| s.errors)
        .sum(
            "uncertain",
            "requests with lost events, or indistinguishable from others; they have no times",
            |s, _| s.uncertain,
        )
}

const DEVICE: &str = "numbers of the device (`254,0`)";
const NAME: &str = "its name (`vda`); null if unknown or of another machine";
const OPS: &[&str] = &["read", "write", "discard", "flush", "other"];

fn row_columns<'a>() -> ColumnSet<'a, BlockRow, Context<'a>> {
    ColumnSet::new()
        .key("device", DEVICE, |r: &BlockRow, _: &Context<'_>| r.device.to_string())
        .key("name", NAME, |r, c| c.device(Some(r.device)))
        .key("op", "operation", |r, _| r.op.name())
        .of(OPS)
        .inline(stats_columns(), |r, _| &r.stats)
}

fn waiter_columns<'a>() -> ColumnSet<'a, BlockWaiter, Context<'a>> {
    ColumnSet::new()
        .key("comm", "name of the task", |w: &BlockWaiter, _: &Context<'_>| Name(w.comm.clone()))
        .key("tid", "its thread", |w, _| w.tid)
        .key("pid", "its process", |w, _| w.pid)
        .key("device", DEVICE, |w, _| w.device.map(|d| d.to_string()))
        .key("name", NAME, |w, c| c.device(w.device))
        .group(
            "waits",
            "uninterruptible sleep of the task, ended by a completion",
            delay_columns(true).with_details(),
            |w, _| &w.waits,
        )
}

fn process_columns<'a>() -> ColumnSet<'a, BlockProcess, Context<'a>> {
    ColumnSet::new()
        .key("comm", "name of the task", |p: &BlockProcess, _: &Context<'_>| Name(p.comm.clone()))
        .key("tid", "its thread; null in a row for several", |p, _| p.tid)
        .key("pid", "its process", |p, _| p.pid)
        .key("device", DEVICE, |p, _| p.device.map(|d| d.to_string()))
        .key("name", NAME, |p, c| c.device(p.device))
        .sum("read_bytes", "bytes read", |p, _| p.read)
        .sum("written_bytes", "bytes written", |p, _| p.written)
        .inline(stats_columns(), |p, _| &p.stats)
}

fn device_columns<'a>() -> ColumnSet<'a, BlockDeviceRow, Context<'a>> {
    ColumnSet::new()
        .key("device", DEVICE, |d: &BlockDeviceRow, _: &Context<'_>| d.device.to_string())
        .key("name", NAME, |d, c| c.device(Some(d.device)))
        .sum("read_bytes", "bytes read", |d, _| d.read)
        .sum("written_bytes", "bytes written", |d, _| d.written)
        .inline(stats_columns(), |d, _| &d.stats)
}

type NamedOwner = (BlockOwner, FileName);

fn named(owner: BlockOwner, c: &Context<'_>) -> NamedOwner {
    (owner, owner.file().map(c.names.files).unwrap_or_default())
}

fn owner_columns<'a>() -> ColumnSet<'a, NamedOwner, Context<'a>> {
    fn file(o: &NamedOwner) -> Option<BlockFile> {
        o.0.file()
    }
    ColumnSet::new()
        .key(
            "kind",
            "`journal` and `metadata` of a file system; `device`: pages of the block device \
             itself; `several`: several files in one request; `command`: a flush or discard; \
             `unknown`: not certain",
            |o: &NamedOwner, _: &Context<'_>| o.0.name(),
        )
        .of(&["file", "journal", "metadata", "device", "several", "command", "unknown"])
        .key("inode", "for `file`: its inode", |o, _| Some(file(o)?.key.inode))
        .left_out()
        .key("device", "numbers of the device of its file system", |o, _| {
            Some(file(o)?.key.device.to_string())
        })
        .left_out()
        .key("name", "name of that device, if known", |o, c| c.device(Some(file(o)?.key.device)))
        .left_out()
        .key(
            "incarnation",
            "number of earlier files in the recording with the same inode number",
            |o, _| Some(file(o)?.incarnation),
        )
        .left_out()
        .measure("path", "its path, if known and still valid", |o, _| o.1.path.clone())
        .left_out()
        .measure("deleted", "whether it was deleted", |o, _| file(o).map(|_| o.1.is_deleted))
        .left_out()
        .detail("mount", "mount point of its file system", |o, _| o.1.mount.clone())
}

fn file_columns<'a>() -> ColumnSet<'a, BlockFileRow, Context<'a>> {
    ColumnSet::new()
        .record(
            "file",
            "file of the requests",
            owner_columns(),
            |f: &BlockFileRow, c: &Context<'_>, each| each(&named(f.owner, c)),
        )
        .detail("files", "number of files", |f, _| f.files)
        .key("device", DEVICE, |f, _| f.device.to_string())
        .key("name", NAME, |f, c| c.device(Some(f.device)))
        .sum("read_bytes", "bytes read", |f, _| f.read)
        .sum("written_bytes", "bytes written", |f, _| f.written)
        .inline(stats_columns(), |f, _| &f.stats)
}

/// Rows of files, the longest time first; with those of deleted files that had the same inode in
/// one where that is chosen.
fn each_file(rows: &[BlockFileRow], c: &Context<'_>, each: &mut dyn FnMut(&BlockFileRow)) {
    if !c.merges_deleted {
        return rows.iter().for_each(each);
    }
    let mut merged: Vec<BlockFileRow> = Vec::new();
    let mut places = HashMap::new();
    for row in rows {
        let nameless = row.owner.file().filter(|file| {
            let name = (c.names.files)(*file);
            name.is_deleted && name.path.is_none()
        });
        let place =
            nameless.map(|file| places.entry((file.key, row.device)).or_insert(merged.len()));
        match place.and_then(|place| merged.get_mut(*place)) {
            Some(first) => first.merge(row),
            None => merged.push(row.clone()),
        }
    }
    merged.sort_by_key(|row| Reverse(row.stats.total.total));
    merged.iter().for_each(each);
}

fn read_columns<'a>() -> ColumnSet<'a, BlockTable, Context<'a>> {
    let halves = ColumnSet::new()
        .sum("open_at_end", "requests still in flight", |t: &BlockTable, _: &Context<'_>| {
            t.read.machine.counts.open_at_end
        })
        .sum("completions_only", "completions of requests with an unrecorded start", |t, _| {
            t.read.machine.counts.completions_only
        })
        .sum("merged", "requests merged into others", |t, _| t.read.machine.counts.merged)
        .sum("uncertain", "requests with lost events, or indistinguishable from others", |t, _| {
            t.read.machine.counts.touching_loss
        })
        .sum(
            "alike",
            "concurrent requests for the same sectors, which completions do not distinguish",
            |t, _| t.read.machine.counts.alike,
        );
    ColumnSet::new()
        .group("halves", "incomplete requests", halves, |t, _| t)
        .measure("first_ns", "time of the first event", |t: &BlockTable, _| {
            t.read.span.map(|s| s.0)
        })
        .measure("last_ns", "time of the last event", |t, _| t.read.span.map(|s| s.1))
}

fn latency_columns<'a>() -> ColumnSet<'a, BlockTable, Context<'a>> {
    ColumnSet::new()
        .table(
            "rows",
            "one row per device and operation, longest time first",
            row_columns(),
            |t: &BlockTable, _: &Context<'_>, each| t.rows.iter().for_each(each),
        )
        .table("waiters", "waiting tasks", waiter_columns(), |t, _, each| {
            t.waiters.iter().for_each(each);
        })
        .optional_table(
            "files",
            "one row per file and device; null if the recording lacks the events",
            file_columns(),
            |t, c, each| {
                each_file(&t.files, c, each);
                t.read.has_owners
            },
        )
        .inline(read_columns(), |t, _| t)
}

fn top_columns<'a>() -> ColumnSet<'a, BlockTable, Context<'a>> {
    ColumnSet::new()
        .optional_table(
            "processes",
            "one row per thread and device",
            process_columns(),
            |t: &BlockTable, c: &Context<'_>, each| {
                t.processes.iter().for_each(each);
                c.by == BlockGrouping::Process
            },
        )
        .left_out()
        .optional_table(
            "files",
            "with `--by file`: one row per file and device",
            file_columns(),
            |t, c, each| {
                each_file(&t.files, c, each);
                c.by == BlockGrouping::File
            },
        )
        .left_out()
        .optional_table(
            "devices",
            "with `--by device`: one row per device",
            device_columns(),
            |t, c, each| {
                t.devices.iter().for_each(each);
                c.by == BlockGrouping::Device
            },
        )
        .left_out()
        .inline(read_columns(), |t, _| t)
}

impl BlockTable {
    /// The answer of `latency`. `merges_deleted`: deleted files that had the same inode are in one
    /// row.
    pub fn latency(&self, names: BlockNames<'_>, merges_deleted: bool) -> Answer {
        let context = Context { names, by: BlockGrouping::default(), merges_deleted };
        Answer::of("io_latency", latency_columns(), self, &context)
    }

    /// The answer of `top`.
    pub fn top(&self, names: BlockNames<'_>, by: BlockGrouping, merges_deleted: bool) -> Answer {
        Answer::of("io_top", top_columns(), self, &Context { names, by, merges_deleted })
    }
}

/// Request with what a line of it needs.
pub struct BlockLine<'a> {
    /// The request.
    pub request: &'a BlockRequest,
    /// CPU where it was completed.
    pub cpu: u32,
    /// Whether the recording has the events of files.
    pub has_owners: bool,
}

fn line_columns<'a>() -> ColumnSet<'a, BlockLine<'a>, Context<'a>> {
    ColumnSet::new()
        .key("type", "`request`", |_: &BlockLine<'_>, _: &Context<'_>| "request")
        .of(&["request"])
        .key("device", DEVICE, |l, _| l.request.device.to_string())
        .key("name", NAME, |l, c| c.device(Some(l.request.device)))
        .key("op", "operation", |l, _| l.request.op.name())
        .of(OPS)
        .key("sector", "first sector", |l, _| l.request.sector)
        .sum("bytes", "bytes", |l, _| l.request.bytes)
        .measure("start_ns", "first event", |l, _| l.request.start)
        .measure("inserted_ns", "time of queueing; null: issued directly to the driver", |l, _| {
            l.request.inserted
        })
        .measure("issued_ns", "time of the last issue to the driver", |l, _| l.request.issued)
        .measure("completed_ns", "time of completion", |l, _| l.request.completed)
        .sum("queue_ns", "time until it was issued to the driver", |l, _| l.request.queue_time())
        .sum("device_ns", "time in driver and device", |l, _| l.request.device_time())
        .record(
            "file",
            "as in `io top --by file`, without paths; null if the recording lacks the events",
            owner_columns(),
            |l, c, each| {
                if l.has_owners {
                    each(&named(l.request.owner, c));
                }
            },
        )
        .measure("cpu", "CPU where it was completed", |l, _| l.cpu)
        .key("comm", "name of the task", |l, _| Name(l.request.task.comm().to_vec()))
        .key("tid", "its thread", |l, _| l.request.task.tid)
        .key("pid", "its process", |l, _| l.request.task.pid)
        .sum("requeues", "number of requeues by the driver", |l, _| l.request.requeues)
        .measure("error", "0, or a negative error number", |l, _| l.request.error)
        .measure(
            "uncertain",
            "whether events were lost during it, or its completion may belong to another request",
            |l, _| l.request.is_uncertain,
        )
}

impl BlockLine<'_> {
    /// Writes the request as a line of JSON.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(
        &self,
        out: &mut dyn std::io::Write,
        names: BlockNames<'_>,
    ) -> std::io::Result<()> {
        let context = Context { names, by: BlockGrouping::default(), merges_deleted: false };
        line_columns().write_json_line(out, self, &context)
    }
}

/// Definitions of these answers.
pub(crate) fn schemas() -> [AnswerSchema; 3] {
    [
        AnswerSchema::of("io_latency", "kymo io latency --json", "", latency_columns()),
        AnswerSchema::of("io_timehist", "kymo io timehist --json", "", line_columns()).lines(),
        AnswerSchema::of("io_top", "kymo io top --json", "", top_columns()),
    ]
}
