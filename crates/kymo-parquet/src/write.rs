//! Tables → Parquet.

use std::sync::Arc;

use kymo_table::{Cell, Column, ColumnType, Role, Table, Unit};
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};

use crate::SCHEMA_VERSION;

/// Rows of a row group.
pub(crate) const ROW_GROUP: usize = 122_880;
/// Level of zstd.
const LEVEL: i32 = 3;

/// A table cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteTableError {
    /// A column of lists, maps or rows.
    #[error("column {0}: lists, maps and tables within a table have no column in Parquet")]
    Nested(String),
    /// Two columns of one name.
    #[error("column {0}: duplicate name")]
    Duplicate(String),
    /// An integer that is not a key and above the range.
    #[error("column {column}, row {row}: {value} is above {}, the largest INT64", i64::MAX)]
    Range {
        /// Column.
        column: String,
        /// Row, from 0.
        row: usize,
        /// Value.
        value: u64,
    },
    /// Text that is not UTF-8.
    #[error("column {column}, row {row}: not UTF-8: {text}")]
    Utf8 {
        /// Column.
        column: String,
        /// Row, from 0.
        row: usize,
        /// Text, escaped.
        text: String,
    },
    /// A cell without a value, or of another type than its column.
    #[error("column {column}, row {row}: not a value of type {expected}")]
    Cell {
        /// Column.
        column: String,
        /// Row, from 0.
        row: usize,
        /// Type of the column.
        expected: &'static str,
    },
    /// The encoder failed.
    #[error("cannot encode the table")]
    Encoder(#[from] ParquetError),
}

/// Columns of a table that are written, with their names.
pub(crate) struct Layout<'a> {
    columns: Vec<(usize, String, &'a Column)>,
}

impl<'a> Layout<'a> {
    pub(crate) fn new(columns: &'a [Column]) -> Result<Layout<'a>, WriteTableError> {
        let mut chosen: Vec<(usize, String, &Column)> = Vec::new();
        for (at, column) in columns.iter().enumerate().filter(|(_, c)| !c.is_detail) {
            let name = column.name.replace('.', "_");
            if physical(&column.of).is_none() {
                return Err(WriteTableError::Nested(name));
            }
            if chosen.iter().any(|(_, known, _)| *known == name) {
                return Err(WriteTableError::Duplicate(name));
            }
            chosen.push((at, name, column));
        }
        Ok(Layout { columns: chosen })
    }

    pub(crate) fn schema(&self, table: &str) -> Result<Type, ParquetError> {
        let fields = self.columns.iter().map(|(_, name, column)| {
            let of = physical(&column.of).unwrap_or(Physical::INT64);
            let text = (of == Physical::BYTE_ARRAY).then_some(LogicalType::String);
            let repetition =
                if column.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
            let field = Type::primitive_type_builder(name, of)
                .with_repetition(repetition)
                .with_logical_type(text)
                .build()?;
            Ok(Arc::new(field))
        });
        let fields = fields.collect::<Result<_, ParquetError>>()?;
        Type::group_type_builder(table).with_fields(fields).build()
    }

    pub(crate) fn properties(
        &self,
        table: &str,
        facts: &[(&str, &str)],
    ) -> Result<WriterProperties, ParquetError> {
        let mut pairs = vec![
            KeyValue::new("kymo.schema".to_owned(), SCHEMA_VERSION.to_owned()),
            KeyValue::new("kymo.table".to_owned(), table.to_owned()),
        ];
        pairs.extend(facts.iter().map(|(k, v)| KeyValue::new((*k).to_owned(), (*v).to_owned())));
        let level = ZstdLevel::try_new(LEVEL)?;
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_created_by(concat!("kymo ", env!("CARGO_PKG_VERSION")).to_owned());
        for (_, name, column) in &self.columns {
            pairs.push(KeyValue::new(format!("kymo.doc.{name}"), column.documentation.to_owned()));
            if let Some(unit) = unit_word(column.unit) {
                pairs.push(KeyValue::new(format!("kymo.unit.{name}"), unit.to_owned()));
            }
            // Times and durations hardly repeat, and differ little from row to row.
            if matches!(column.unit, Unit::Time | Unit::Duration)
                && physical(&column.of) == Some(Physical::INT64)
            {
                let path = ColumnPath::from(name.as_str());
                properties = properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
            }
        }
        Ok(properties.set_key_value_metadata(Some(pairs)).build())
    }
}

fn unit_word(unit: Unit) -> Option<&'static str> {
    match unit {
        Unit::None => None,
        Unit::Duration => Some("ns"),
        Unit::Time => Some("ns of the recording's clock"),
        Unit::Bytes => Some("bytes"),
        Unit::Percent => Some("percent"),
    }
}

fn physical(of: &ColumnType) -> Option<Physical> {
    match of {
        ColumnType::Integer => Some(Physical::INT64),
        ColumnType::Number => Some(Physical::DOUBLE),
        ColumnType::Boolean => Some(Physical::BOOLEAN),
        ColumnType::Text | ColumnType::Word(_) => Some(Physical::BYTE_ARRAY),
        ColumnType::List(_) | ColumnType::Map(_) | ColumnType::Table(_) | ColumnType::Record(_) => {
            None
        }
    }
}

/// Encodes a table. `facts` are further key-value metadata.
///
/// # Errors
/// If a column or a cell has no counterpart in Parquet: nothing is rounded or replaced.
pub fn table_to_parquet(
    name: &str,
    table: Table<'_>,
    facts: &[(&str, &str)],
) -> Result<Vec<u8>, WriteTableError> {
    let layout = Layout::new(table.columns)?;
    let schema = Arc::new(layout.schema(name)?);
    let properties = Arc::new(layout.properties(name, facts)?);
    let mut file = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    for (number, rows) in table.rows.chunks(ROW_GROUP).enumerate() {
        let mut group = file.next_row_group()?;
        for (at, name, column) in &layout.columns {
            let chunk = Chunk { name, column, rows, at: *at, first: number * ROW_GROUP };
            match column.of {
                ColumnType::Integer => chunk.write::<Int64Type>(&mut group, |c, r| chunk.int(c, r)),
                ColumnType::Number => chunk.write::<DoubleType>(&mut group, |c, r| match c {
                    Cell::Float(n) => Ok(*n),
                    _ => Err(chunk.mismatch(r, "number")),
                }),
                ColumnType::Boolean => chunk.write::<BoolType>(&mut group, |c, r| match c {
                    Cell::Bool(yes) => Ok(*yes),
                    _ => Err(chunk.mismatch(r, "boolean")),
                }),
                _ => chunk.write::<ByteArrayType>(&mut group, |c, r| chunk.text(c, r)),
            }?;
        }
        group.close()?;
    }
    Ok(file.into_inner()?)
}

/// Column of a row group.
struct Chunk<'a> {
    name: &'a str,
    column: &'a Column,
    rows: &'a [Vec<Cell>],
    at: usize,
    /// Number of the first row.
    first: usize,
}

impl Chunk<'_> {
    fn mismatch(&self, row: usize, expected: &'static str) -> WriteTableError {
        WriteTableError::Cell { column: self.name.to_owned(), row, expected }
    }

    fn int(&self, cell: &Cell, row: usize) -> Result<i64, WriteTableError> {
        match cell {
            Cell::Int(n) => Ok(*n),
            Cell::Unsigned(n) if self.column.role == Role::Key => Ok(n.cast_signed()),
            Cell::Unsigned(n) => i64::try_from(*n).map_err(|_| WriteTableError::Range {
                column: self.name.to_owned(),
                row,
                value: *n,
            }),
            _ => Err(self.mismatch(row, "integer")),
        }
    }

    fn text(&self, cell: &Cell, row: usize) -> Result<ByteArray, WriteTableError> {
        let Cell::Text(bytes) = cell else { return Err(self.mismatch(row, "text")) };
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(ByteArray::from(text)),
            Err(_) => Err(WriteTableError::Utf8 {
                column: self.name.to_owned(),
                row,
                text: bytes.escape_ascii().to_string(),
            }),
        }
    }

    fn write<T: DataType>(
        &self,
        group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
        value: impl Fn(&Cell, usize) -> Result<T::T, WriteTableError>,
    ) -> Result<(), WriteTableError> {
        let mut values = Vec::with_capacity(self.rows.len());
        let mut levels = Vec::with_capacity(if self.column.nullable { self.rows.len() } else { 0 });
        for (number, row) in self.rows.iter().enumerate() {
            let cell = row.get(self.at).unwrap_or(&Cell::Null);
            if self.column.nullable {
                levels.push(i16::from(*cell != Cell::Null));
                if *cell == Cell::Null {
                    continue;
                }
            }
            values.push(value(cell, self.first + number)?);
        }
        let Some(mut writer) = group.next_column()? else {
            return Err(ParquetError::General("no column left to write".to_owned()).into());
        };
        let levels = self.column.nullable.then_some(&*levels);
        writer.typed::<T>().write_batch(&values, levels, None)?;
        Ok(writer.close()?)
    }
}
