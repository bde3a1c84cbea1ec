//! Values of columns that were read, and reasons why a file is not read.

use crate::{MOST_ROWS, SCHEMA_VERSION};

/// Bytes of all pages together, decompressed.
pub(crate) const MOST_BYTES: usize = 256 << 20;

/// A file is not a table that can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadTableError {
    /// Not Parquet, or cut.
    #[error("not a Parquet file: the {0} is missing or damaged")]
    Format(&'static str),
    /// Parquet of another program.
    #[error("not a table of kymo: `kymo.schema` is not in its metadata")]
    Foreign,
    /// Another version of the layout.
    #[error("schema version {0:?}; this version of kymo reads {SCHEMA_VERSION:?}")]
    Version(String),
    /// Another table.
    #[error("table {found:?} instead of {expected:?}")]
    Table {
        /// Table of the file.
        found: String,
        /// Table that is read.
        expected: String,
    },
    /// A column is missing, or of another type.
    #[error("column {0} is missing or not of its type")]
    Schema(String),
    /// More rows than are read.
    #[error("{0} rows are too many (at most {MOST_ROWS})")]
    Rows(i64),
    /// More bytes than are read.
    #[error("its pages take more than {MOST_BYTES} bytes")]
    TooLarge,
    /// A column is damaged, or encoded in a way that kymo does not write.
    #[error("column {column}: its {part} is damaged or not supported")]
    Column {
        /// Column.
        column: String,
        /// Part of the column.
        part: &'static str,
    },
}

/// Values of a column, one for each row; none where it is null.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnValues {
    /// INT64.
    Integer(Vec<Option<i64>>),
    /// DOUBLE.
    Number(Vec<Option<f64>>),
    /// BOOLEAN.
    Boolean(Vec<Option<bool>>),
    /// STRING.
    Text {
        /// Numbers of the texts.
        rows: Vec<Option<u32>>,
        /// The texts.
        texts: Vec<Box<str>>,
    },
}
