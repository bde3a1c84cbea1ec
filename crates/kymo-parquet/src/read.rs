//! Parquet → columns: what [`crate::table_to_parquet`] writes of columns without times.
//!
//! A reader of its own, because the file is not trusted: memory is bounded by the bytes of the file
//! and by the limits below, whatever the file claims.

use kymo_table::{Column, ColumnType};

use crate::page::{ChunkReader, PageCodec};
use crate::thrift::{Thrift, ThriftReader};
use crate::values::{ColumnValues, MOST_BYTES, ReadTableError};
use crate::{MOST_ROWS, SCHEMA_VERSION};

const MAGIC: &[u8; 4] = b"PAR1";
/// Longest footer that is read, in bytes.
const LONGEST_FOOTER: usize = 1 << 20;

/// Table that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct ParquetTable {
    /// Key-value metadata.
    pub facts: Vec<(String, String)>,
    /// Number of rows.
    pub rows: usize,
    columns: Vec<(String, ColumnValues)>,
}

impl ParquetTable {
    /// Reads a table that has these columns at least.
    ///
    /// # Errors
    /// If the file is not such a table, or above the limits.
    pub fn parse(
        bytes: &[u8],
        name: &str,
        columns: &[Column],
    ) -> Result<ParquetTable, ReadTableError> {
        let footer = footer(bytes)?;
        let facts: Vec<(String, String)> = footer
            .list(5)
            .iter()
            .filter_map(|pair| Some((pair.text(1)?.to_owned(), pair.text(2)?.to_owned())))
            .collect();
        let fact = |key: &str| facts.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone());
        match fact("kymo.schema") {
            None => return Err(ReadTableError::Foreign),
            Some(version) if version != SCHEMA_VERSION => {
                return Err(ReadTableError::Version(version));
            }
            Some(_) => {}
        }
        let found = fact("kymo.table").unwrap_or_default();
        if found != name {
            return Err(ReadTableError::Table { found, expected: name.to_owned() });
        }
        let claimed = footer.int(3).ok_or(ReadTableError::Format("row count"))?;
        let rows = usize::try_from(claimed).ok().filter(|rows| *rows <= MOST_ROWS);
        let rows = rows.ok_or(ReadTableError::Rows(claimed))?;
        let mut table = ParquetTable { facts, rows, columns: Vec::new() };
        let mut budget = MOST_BYTES;
        for column in columns.iter().filter(|c| !c.is_detail) {
            let values = read_column(bytes, &footer, column, rows, &mut budget)?;
            table.columns.push((column.name.replace('.', "_"), values));
        }
        Ok(table)
    }

    /// Value of the key-value metadata.
    pub fn fact(&self, key: &str) -> Option<&str> {
        self.facts.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    fn column(&self, name: &str) -> Option<&ColumnValues> {
        self.columns.iter().find(|(known, _)| known == name).map(|(_, values)| values)
    }

    /// Integer of a row.
    pub fn integer(&self, name: &str, row: usize) -> Option<i64> {
        match self.column(name)? {
            ColumnValues::Integer(rows) => *rows.get(row)?,
            _ => None,
        }
    }

    /// Number of a row.
    pub fn number(&self, name: &str, row: usize) -> Option<f64> {
        match self.column(name)? {
            ColumnValues::Number(rows) => *rows.get(row)?,
            _ => None,
        }
    }

    /// Yes or no of a row.
    pub fn boolean(&self, name: &str, row: usize) -> Option<bool> {
        match self.column(name)? {
            ColumnValues::Boolean(rows) => *rows.get(row)?,
            _ => None,
        }
    }

    /// Text of a row.
    pub fn text(&self, name: &str, row: usize) -> Option<&str> {
        match self.column(name)? {
            ColumnValues::Text { rows, texts } => {
                texts.get(usize::try_from((*rows.get(row)?)?).ok()?).map(|text| &**text)
            }
            _ => None,
        }
    }
}

fn footer(bytes: &[u8]) -> Result<Thrift<'_>, ReadTableError> {
    let body = bytes.strip_prefix(MAGIC).ok_or(ReadTableError::Format("magic"))?;
    let body = body.strip_suffix(MAGIC).ok_or(ReadTableError::Format("footer"))?;
    let (body, length) = body.split_last_chunk::<4>().ok_or(ReadTableError::Format("footer"))?;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    let start = body.len().checked_sub(length).filter(|_| length <= LONGEST_FOOTER);
    let rest = start.and_then(|start| body.get(start..)).ok_or(ReadTableError::Format("footer"))?;
    ThriftReader { rest }.structure().ok_or(ReadTableError::Format("footer"))
}

fn read_column(
    bytes: &[u8],
    footer: &Thrift<'_>,
    column: &Column,
    rows: usize,
    budget: &mut usize,
) -> Result<ColumnValues, ReadTableError> {
    let name = column.name.replace('.', "_");
    let missing = || ReadTableError::Schema(name.clone());
    let (physical, mut values) = match column.of {
        ColumnType::Boolean => (0, ColumnValues::Boolean(Vec::new())),
        ColumnType::Integer => (2, ColumnValues::Integer(Vec::new())),
        ColumnType::Number => (5, ColumnValues::Number(Vec::new())),
        ColumnType::Text | ColumnType::Word(_) => {
            (6, ColumnValues::Text { rows: Vec::new(), texts: Vec::new() })
        }
        _ => return Err(missing()),
    };
    // The first element is the table itself; a flat table has its columns after it.
    let mut fields = footer.list(2).iter().skip(1);
    let field = fields.find(|f| f.text(4) == Some(&name)).ok_or_else(missing)?;
    let is_optional = match field.int(3) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(missing()),
    };
    if field.int(1) != Some(physical) {
        return Err(missing());
    }
    let mut left = rows;
    for group in footer.list(4) {
        let damaged = |part| ReadTableError::Column { column: name.clone(), part };
        let rows = group.size(3).filter(|rows| *rows <= left);
        let rows = rows.ok_or_else(|| damaged("row count"))?;
        left -= rows;
        let mut chunks = group.list(1).iter().filter_map(|chunk| chunk.field(3));
        let is_named = |of: &&Thrift<'_>| of.list(3) == [Thrift::Bytes(name.as_bytes())];
        let chunk = chunks.find(is_named).ok_or_else(missing)?;
        let codec = match chunk.int(4) {
            Some(0) => PageCodec::Uncompressed,
            Some(6) => PageCodec::Zstd,
            _ => return Err(damaged("compression")),
        };
        let start = chunk.size(11).or_else(|| chunk.size(9));
        let end = start.zip(chunk.size(7)).and_then(|(start, size)| start.checked_add(size));
        let pages = start.zip(end).and_then(|(start, end)| bytes.get(start..end));
        let pages = pages.ok_or_else(|| damaged("place"))?;
        ChunkReader { column: &name, codec, is_optional, bytes: pages, rows }
            .read(&mut values, budget)?;
    }
    if left > 0 { Err(missing()) } else { Ok(values) }
}
