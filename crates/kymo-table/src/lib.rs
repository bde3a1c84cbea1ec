//! Typed tables: the form in which an answer leaves an analysis, and its renderers.
//!
//! An analysis declares its columns once ([`Columns`]): name, type, unit, role, documentation and
//! the expression that computes the cell. Everything else follows from the declaration: JSON and
//! its schema, the reference page, CSV, `--sort`, `--columns` and `--limit`, plain text. Layouts
//! of text that other programs fix, such as perf's, name their columns ([`Layout`]).
#![forbid(unsafe_code)]

mod answer;
mod cell;
mod column;
mod csv;
mod json;
mod layout;
mod order;
mod plain;
mod schema;
pub mod units;

pub use answer::{Answer, Row, Table, check_columns};
pub use cell::{Cell, CellValue, Name};
pub use column::{Column, Columns, Role, Type, Unit};
pub use layout::{Layout, TextColumn};
pub use order::{SortAlias, SortKeys};
pub use schema::AnswerSchema;
