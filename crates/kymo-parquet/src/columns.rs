//! Tables by column → Parquet, row group by row group.

use std::io::Write;
use std::sync::Arc;

use kymo_table::{Column, ColumnTable, ColumnType, ColumnValue, Unit};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};

use crate::write::{Layout, ROW_GROUP, WriteTableError};

/// Facts on a table that is written by column.
#[derive(Clone, Copy, Debug, Default)]
pub struct ColumnsConfig<'a> {
    /// Its name.
    pub name: &'a str,
    /// Further key-value metadata.
    pub facts: &'a [(&'a str, &'a str)],
    /// Column by which rows are in order.
    pub sorted: Option<usize>,
    /// Added to values of columns that are times.
    pub time_offset: i64,
}

/// Writes a table by column; `columns` declare integers, real numbers and texts.
///
/// # Errors
/// If a column has no counterpart in Parquet, or writing fails.
pub fn columns_to_parquet<W: Write + Send>(
    out: W,
    columns: &[Column],
    table: &ColumnTable,
    config: ColumnsConfig<'_>,
) -> Result<W, WriteTableError> {
    let layout = Layout::new(columns)?;
    let schema = Arc::new(layout.schema(config.name)?);
    let mut properties = layout.properties(config.name, config.facts)?;
    if let Some(sorted) = config.sorted {
        let column =
            SortingColumn { column_idx: sorted as i32, descending: false, nulls_first: false };
        properties = WriterProperties::into_builder(properties)
            .set_sorting_columns(Some(vec![column]))
            .build();
    }
    let mut file = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    for first in (0..table.rows).step_by(ROW_GROUP) {
        let rows = first..table.rows.min(first + ROW_GROUP);
        let mut group = file.next_row_group()?;
        for (at, column) in columns.iter().enumerate() {
            let values = rows.clone().map(|row| table.value(row, at));
            let offset = if column.unit == Unit::Time { config.time_offset } else { 0 };
            match column.of {
                ColumnType::Number => {
                    write::<DoubleType>(&mut group, column, values, |v| match v {
                        ColumnValue::Real(n) => Some(n),
                        _ => None,
                    })
                }
                ColumnType::Text | ColumnType::Word(_) => {
                    write::<ByteArrayType>(&mut group, column, values, |v| match v {
                        ColumnValue::Text(text) => Some(ByteArray::from(text)),
                        _ => None,
                    })
                }
                _ => write::<Int64Type>(&mut group, column, values, |v| match v {
                    ColumnValue::Integer(n) => Some(n.wrapping_add(offset)),
                    _ => None,
                }),
            }?;
        }
        group.close()?;
    }
    Ok(file.into_inner()?)
}

fn write<'t, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    column: &Column,
    cells: impl Iterator<Item = ColumnValue<'t>>,
    of: impl Fn(ColumnValue<'t>) -> Option<T::T>,
) -> Result<(), WriteTableError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for cell in cells {
        let value = of(cell);
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    if !column.nullable && values.len() < levels.len() {
        return Err(WriteTableError::Cell {
            column: column.name.to_string(),
            row: levels.iter().position(|level| *level == 0).unwrap_or(0),
            expected: "not null",
        });
    }
    let Some(mut writer) = group.next_column()? else {
        return Err(ParquetError::General("no column left to write".to_owned()).into());
    };
    let levels = column.nullable.then_some(&*levels);
    writer.typed::<T>().write_batch(&values, levels, None)?;
    Ok(writer.close()?)
}
