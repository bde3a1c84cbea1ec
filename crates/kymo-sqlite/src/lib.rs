//! SQLite over tables of columns: read-only, with limits on time and memory.
//!
//! [`Database`] answers queries on tables that a [`TableSource`] hands over when a query first
//! reads them, and only with the columns that it reads. Conditions on a column (`=`, `IN`, ranges),
//! `GROUP BY` and `DISTINCT` are evaluated on columns (`scan.rs`), before SQLite sees a row.
//!
//! This crate is the home of the unsafe code that SQLite needs: virtual tables, whose traits are
//! unsafe (`virtual_table.rs`), and the limit on its memory, which has no safe wrapper (`heap.rs`).

mod database;
mod functions;
mod heap;
mod saved;
mod scan;
mod statement;
mod virtual_table;

pub use database::{Database, QueryError, QueryLimits, ResultSink};
pub use functions::{HIST_HELP, P_HELP};
pub use saved::save;
pub use scan::LoadedTable;
pub use statement::is_complete;

use std::sync::Arc;

/// Type of a column in SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlType {
    /// 64-bit integer.
    Integer,
    /// Real number.
    Real,
    /// Text.
    Text,
}

impl SqlType {
    /// The type's name.
    pub fn name(self) -> &'static str {
        match self {
            SqlType::Integer => "INTEGER",
            SqlType::Real => "REAL",
            SqlType::Text => "TEXT",
        }
    }
}

/// Declaration of a table.
#[derive(Clone, Debug)]
pub struct TableDeclaration {
    /// Its name.
    pub name: String,
    /// Names and types of its columns.
    pub columns: Vec<(String, SqlType)>,
    /// Column whose values do not fall from row to row, usually.
    pub sorted: Option<usize>,
}

/// Source of a table's rows.
pub trait TableSource: Send + Sync {
    /// States the columns, as bits, that a statement will read; the last bit stands for all
    /// columns from there on. Comes before `open`.
    fn want(&self, columns: u64);

    /// The rows, with the columns that statements read.
    ///
    /// # Errors
    /// If they cannot be had, in words for the user.
    fn open(&self) -> Result<Arc<LoadedTable>, String>;
}
