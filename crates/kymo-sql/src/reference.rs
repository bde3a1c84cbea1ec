//! Reference of tables.

use kymo_sqlite::SqlType;

/// A table, for its reference.
#[derive(Clone, Debug)]
pub struct TableReference {
    /// Its name.
    pub name: String,
    /// Meaning of its rows.
    pub documentation: String,
    /// Name, type and documentation of its columns.
    pub columns: Vec<(String, SqlType, String)>,
}
