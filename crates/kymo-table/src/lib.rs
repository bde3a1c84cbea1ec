//! Typed tables: the form in which an answer leaves an analysis, and its renderers.
//!
//! An analysis declares its columns once ([`ColumnSet`]): name, type, unit, role, documentation and
//! the expression that computes the cell. Everything else follows from the declaration: JSON and
//! its schema, the reference page, CSV, `--sort`, `--columns` and `--limit`, plain text. Layouts
//! of text that other programs fix, such as perf's, name their columns ([`TextLayout`]).
#![forbid(unsafe_code)]

mod answer;
mod cell;
mod cell_value;
mod column;
mod column_set;
mod columnar;
mod csv;
mod json;
mod layout;
mod order;
mod plain;
mod row_writer;
mod schema;
pub mod units;

pub use answer::{Answer, Table, TableRow, check_columns};
pub use cell::Cell;
pub use cell_value::{CellValue, Name};
pub use column::{Column, ColumnType, Role, Unit};
pub use column_set::ColumnSet;
pub use columnar::{ColumnData, ColumnTable, ColumnValue, RowSet, WordList, text_of};
pub use layout::{TextColumn, TextLayout};
pub use order::{SortAlias, SortKeys};
pub use row_writer::{RowFormat, RowWriter};
pub use schema::AnswerSchema;
