//! Owners of requests, in words and as a table: files by name or inode, journals, metadata.

use std::io::{self, Write};

use kymo_analysis::block_io::{BlockNames, BlockOwner};
use kymo_table::{Table, TableRow, TextColumn, TextLayout};

use super::{device_name, device_text, span};
use crate::units::{Grouped, Size, shown};

/// The words for a request that was not for one file.
fn kind_text(kind: &str) -> &'static str {
    match kind {
        "journal" => "(journal)",
        "metadata" => "(metadata)",
        "device" => "(pages of the device)",
        "several" => "(several files)",
        "command" => "(flushes, discards)",
        _ => "(unknown)",
    }
}

fn file_text(path: Option<&str>, (inode, device): (u64, &str), is_deleted: bool) -> String {
    let mark = if is_deleted { " (deleted)" } else { "" };
    match path {
        Some(path) => shown(path.as_bytes()) + mark,
        None => format!("inode {inode} on {device}{mark}"),
    }
}

/// The words for what a request was for.
pub(super) fn owner_text(owner: BlockOwner, names: BlockNames<'_>) -> String {
    let Some(file) = owner.file() else { return kind_text(owner.name()).to_owned() };
    let name = (names.files)(file);
    let device = device_text(file.key.device, names.devices);
    file_text(name.path.as_deref(), (file.key.inode, &device), name.is_deleted)
}

/// The words for what the requests of a row were for.
fn row_text(row: TableRow<'_>) -> String {
    let Some(file) = row.table("file").rows().next() else { return String::new() };
    let text = match &*file.text("kind") {
        "file" => {
            let path = file.has("path").then(|| file.text("path"));
            let of = (file.number("inode"), &*device_name(file));
            file_text(path.as_deref(), of, *file.cell("deleted") == true.into())
        }
        kind => kind_text(kind).to_owned(),
    };
    match row.number("files") {
        0 | 1 => text,
        files => format!("{text}, {} files", Grouped(files)),
    }
}

/// The file as a part of a sentence; nothing where it is not known.
pub(super) fn owner_phrase(owner: BlockOwner, names: BlockNames<'_>) -> String {
    match owner {
        BlockOwner::Unknown | BlockOwner::Command => String::new(),
        BlockOwner::File(_) => format!(" ({})", owner_text(owner, names)),
        _ => format!(" {}", owner_text(owner, names)),
    }
}

/// Columns from which rows of files have all numbers.
const FILES_WIDTH: usize = 120;

/// Writes rows of files; `screen` is its columns.
pub(super) fn write_files(
    out: &mut dyn Write,
    rows: Table<'_>,
    indent: &str,
    screen: Option<usize>,
) -> io::Result<()> {
    let mut columns = vec![
        TextColumn::number("requests", 8, "count"),
        TextColumn::right("read", 10, |r| Size(r.number("read_bytes")).to_string()),
        TextColumn::right("written", 10, |r| Size(r.number("written_bytes")).to_string()),
        span("queue avg", "queue.average_ns"),
        span("device avg", "device_time.average_ns"),
    ];
    if screen.is_none_or(|columns| columns >= FILES_WIDTH) {
        columns.push(span("p99", "total.p99_ns"));
    }
    columns.extend([
        span("max", "total.max_ns"),
        TextColumn::left("device", 10, device_name).after(" "),
        TextColumn::left("file", 0, |r| {
            let mark = if r.number("uncertain") > 0 { " *" } else { "" };
            format!("{}{mark}", row_text(r))
        }),
    ]);
    let layout = TextLayout { indent, gap: " ", end: "", columns };
    layout.write_head(out)?;
    layout.write_rows(out, rows)
}

/// Says how to find the names of inodes.
pub(super) fn write_find_hint(out: &mut dyn Write, rows: Table<'_>) -> io::Result<()> {
    let unnamed = rows.rows().filter_map(|row| row.table("file").rows().next()).find(|file| {
        let is_deleted = *file.cell("deleted") == true.into();
        file.has("inode") && !file.has("path") && !is_deleted
    });
    let Some(file) = unnamed else { return Ok(()) };
    let inode = file.number("inode");
    if file.has("mount") {
        let mount = file.text("mount");
        writeln!(out, "  Names of inodes: --find, or find {mount} -xdev -inum {inode}")
    } else {
        let device = device_name(file);
        writeln!(
            out,
            "  Names of inodes: find MOUNTPOINT -xdev -inum {inode}, where {device} is mounted"
        )
    }
}
