//! Typed tables as Parquet files.
//!
//! [`table_to_parquet`] writes any flat table of `kymo-table` in the layout that other engines read
//! without options: signed integers, text, zstd, dictionaries, statistics. [`ParquetTable::parse`]
//! reads what it wrote, from files that are not trusted.
//!
//! # Schema version 1
//! | column type | Parquet |
//! |---|---|
//! | integer | INT64; of keys above 2^63 (addresses, hashes) the same bits, below 0 |
//! | number | DOUBLE |
//! | boolean | BOOLEAN |
//! | text, word | BYTE_ARRAY, STRING; UTF-8 |
//!
//! Columns that may be null are OPTIONAL. `GROUP.NAME` becomes `GROUP_NAME`. The footer's key-value
//! metadata have `kymo.schema` (the version), `kymo.table`, and for each column `kymo.doc.NAME` and,
//! if it has one, `kymo.unit.NAME`.
#![forbid(unsafe_code)]

mod columns;
mod hybrid;
mod page;
mod read;
mod thrift;
mod values;
mod write;

pub use columns::{ColumnsConfig, columns_to_parquet};
pub use read::ParquetTable;
pub use values::{ColumnValues, ReadTableError};
pub use write::{WriteTableError, table_to_parquet};

/// Version of the layout, as `kymo.schema` states it.
pub const SCHEMA_VERSION: &str = "1";

/// Most rows of a table that is read: a file may claim any number.
pub const MOST_ROWS: usize = 1_000_000;
