//! What requests were for, in words and as a table: files by name or inode, journals, metadata.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};

use kymo_analysis::block_io::{BlockFile, BlockFileRow, BlockOwner};
use serde_json::{Value, json};

use super::{DeviceNames, device_json, device_text, quantile, stats_json};
use crate::units::{Grouped, Size, Span, shown};

/// What is known of a file's name.
#[derive(Clone, Debug, Default)]
pub struct FileName {
    /// A path that is certainly the file's.
    pub path: Option<String>,
    /// It was deleted.
    pub is_deleted: bool,
    /// Where its file system is mounted.
    pub mount: Option<String>,
}

/// Names files, as far as that is known.
pub type FileNames<'a> = &'a dyn Fn(BlockFile) -> FileName;

/// Names devices and files.
#[derive(Clone, Copy)]
pub struct BlockNames<'a> {
    /// Names devices.
    pub devices: DeviceNames<'a>,
    /// Names files.
    pub files: FileNames<'a>,
}

/// The words for what a request was for.
pub(super) fn owner_text(owner: BlockOwner, names: BlockNames<'_>) -> String {
    let file = match owner {
        BlockOwner::File(file) => file,
        BlockOwner::Journal => return "(journal)".to_owned(),
        BlockOwner::Metadata => return "(metadata)".to_owned(),
        BlockOwner::Device => return "(pages of the device)".to_owned(),
        BlockOwner::Several => return "(several files)".to_owned(),
        BlockOwner::Command => return "(flushes, discards)".to_owned(),
        BlockOwner::Unknown => return "(unknown)".to_owned(),
    };
    let name = (names.files)(file);
    let mark = if name.is_deleted { " (deleted)" } else { "" };
    match name.path {
        Some(path) => shown(path.as_bytes()) + mark,
        None => {
            let device = device_text(file.key.device, names.devices);
            format!("inode {} on {device}{mark}", file.key.inode)
        }
    }
}

/// The words for what the requests of a row were for.
fn row_text(row: &BlockFileRow, names: BlockNames<'_>) -> String {
    let text = owner_text(row.owner, names);
    if row.files > 1 { format!("{text}, {} files", Grouped(row.files)) } else { text }
}

/// Rows, the longest time first, with those of deleted files that had the same inode in one.
pub(super) fn merged_deleted(rows: &[BlockFileRow], names: BlockNames<'_>) -> Vec<BlockFileRow> {
    let mut merged: Vec<BlockFileRow> = Vec::new();
    let mut places = HashMap::new();
    for row in rows {
        let nameless = row.owner.file().filter(|file| {
            let name = (names.files)(*file);
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
    merged
}

/// The file as a part of a sentence; nothing where it is not known.
pub(super) fn owner_phrase(owner: BlockOwner, names: BlockNames<'_>) -> String {
    match owner {
        BlockOwner::Unknown | BlockOwner::Command => String::new(),
        BlockOwner::File(_) => format!(" ({})", owner_text(owner, names)),
        _ => format!(" {}", owner_text(owner, names)),
    }
}

/// Rows of files.
pub(super) struct FileTable<'a> {
    pub(super) rows: &'a [&'a BlockFileRow],
    pub(super) names: BlockNames<'a>,
    pub(super) indent: &'a str,
}

impl FileTable<'_> {
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let indent = self.indent;
        writeln!(
            out,
            "{indent}{:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}  {:<10} file",
            "requests", "read", "written", "queue avg", "device avg", "p99", "max", "device"
        )?;
        for row in self.rows {
            let s = &row.stats;
            let time = |nanos: Option<u64>| Span(nanos.unwrap_or(0)).to_string();
            let mark = if s.uncertain > 0 { " *" } else { "" };
            writeln!(
                out,
                "{indent}{:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}  {:<10} {}{mark}",
                s.count,
                Size(row.read),
                Size(row.written),
                time(s.queue.average()),
                time(s.device.average()),
                time(quantile(&s.total, 0.99)),
                time(s.total.max.map(|m| m.0)),
                device_text(row.device, self.names.devices),
                row_text(row, self.names),
            )?;
        }
        Ok(())
    }
}

/// Says how to find the names of inodes.
pub(super) fn write_find_hint(
    out: &mut dyn Write,
    rows: &[&BlockFileRow],
    names: BlockNames<'_>,
) -> io::Result<()> {
    let unnamed = rows.iter().filter_map(|row| row.owner.file()).find_map(|file| {
        let name = (names.files)(file);
        (name.path.is_none() && !name.is_deleted).then_some((file, name.mount))
    });
    let Some((file, mount)) = unnamed else { return Ok(()) };
    let inode = file.key.inode;
    match mount {
        Some(mount) => {
            let mount = shown(mount.as_bytes());
            writeln!(out, "  Names of inodes: --find, or find {mount} -xdev -inum {inode}")
        }
        None => {
            let device = device_text(file.key.device, names.devices);
            writeln!(
                out,
                "  Names of inodes: find MOUNTPOINT -xdev -inum {inode}, where {device} is mounted"
            )
        }
    }
}

/// Members that say what a request was for.
pub(super) fn owner_json(owner: BlockOwner, names: BlockNames<'_>) -> Value {
    let Some(file) = owner.file() else { return json!({"kind": owner.name()}) };
    let name = (names.files)(file);
    let (device, device_name) = device_json(Some(file.key.device), names.devices);
    json!({
        "kind": owner.name(),
        "path": name.path,
        "deleted": name.is_deleted,
        "inode": file.key.inode,
        "incarnation": file.incarnation,
        "device": device,
        "name": device_name,
    })
}

/// A row as an object.
pub(super) fn file_json(row: &BlockFileRow, names: BlockNames<'_>) -> Value {
    let (device, name) = device_json(Some(row.device), names.devices);
    let mut value = stats_json(&row.stats);
    if let Some(members) = value.as_object_mut() {
        members.insert("file".into(), owner_json(row.owner, names));
        members.insert("device".into(), device);
        members.insert("name".into(), name);
        members.insert("read_bytes".into(), row.read.into());
        members.insert("written_bytes".into(), row.written.into());
    }
    value
}
