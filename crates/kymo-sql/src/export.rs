//! Tables of a recording among those of others: each row states its host and recording.

use std::borrow::Cow;
use std::sync::Arc;

use kymo_table::{Column, ColumnData, ColumnTable, ColumnType, Role, Unit, WordList};

use crate::schema::{ColumnKind, TableSchema};

/// A table for files that others read.
#[derive(Clone, Copy, Debug)]
pub struct ExportedTable<'a> {
    /// Its name.
    pub name: &'static str,
    /// Its columns.
    pub columns: &'a [Column],
    /// Its rows.
    pub table: &'a ColumnTable,
    /// Column by which they are in order.
    pub sorted: Option<usize>,
    /// Number of the recording: equal for equal hosts, names and times.
    pub identity: i64,
    /// Nanoseconds to add to times for those since 1970, where the recording states it.
    pub utc_offset: Option<u64>,
}

/// Number of a recording: FNV-1a, whose values stay the same in all versions.
pub(crate) fn identity(bytes: &[u8]) -> i64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.cast_signed()
}

fn column(name: &'static str, of: ColumnType, documentation: &'static str) -> Column {
    let unit = match name {
        "ts" => Unit::Time,
        _ if name.ends_with("_ts") => Unit::Time,
        "dur" | "wakeup_delay" | "preempt_delay" => Unit::Duration,
        _ => Unit::None,
    };
    Column {
        name: Cow::Borrowed(name),
        of,
        unit,
        role: if unit == Unit::None { Role::Key } else { Role::Measure },
        nullable: true,
        optional: false,
        is_detail: false,
        documentation,
        group: None,
    }
}

/// Columns of a table, with those of its recording before them.
pub(crate) fn columns(schema: &TableSchema) -> Vec<Column> {
    let host = column("host", ColumnType::Text, "host that was recorded");
    let recording = column("recording_id", ColumnType::Integer, "number of the recording");
    let own = schema.columns.iter().map(|c| {
        let of = match c.kind {
            ColumnKind::Real => ColumnType::Number,
            ColumnKind::Text => ColumnType::Text,
            ColumnKind::Row | ColumnKind::Small | ColumnKind::Integer => ColumnType::Integer,
        };
        column(c.name, of, c.documentation)
    });
    [host, recording].into_iter().chain(own).collect()
}

/// A table with host and recording in each row.
pub(crate) fn with_identity(table: &ColumnTable, host: &str, identity: i64) -> ColumnTable {
    let mut words = WordList::default();
    let code = words.intern(host);
    let hosts = ColumnData::Texts { codes: vec![code; table.rows], words: Arc::new(words) };
    let mut ids = ColumnData::integers();
    (0..table.rows).for_each(|_| ids.push_integer(Some(identity)));
    let columns = [hosts, ids].into_iter().chain(table.columns.iter().cloned()).collect();
    ColumnTable { columns, rows: table.rows }
}
