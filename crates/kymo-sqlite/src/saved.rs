//! Tables as a file of SQLite's.

use std::path::Path;
use std::sync::Arc;

use kymo_table::ColumnValue;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql, params_from_iter};

use crate::virtual_table::create_statement;
use crate::{LoadedTable, QueryError, TableDeclaration};

struct SavedValue<'a>(ColumnValue<'a>);

impl ToSql for SavedValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            ColumnValue::Null => ValueRef::Null,
            ColumnValue::Integer(n) => ValueRef::Integer(n),
            ColumnValue::Real(n) => ValueRef::Real(n),
            ColumnValue::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// Writes tables and views into a new, empty file.
///
/// # Errors
/// If writing fails.
pub fn save(
    path: &Path,
    tables: &[(TableDeclaration, Arc<LoadedTable>)],
    views: &[String],
) -> Result<(), QueryError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(path, flags)?;
    // The file is new: where writing fails, all of it is thrown away.
    connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")?;
    let transaction = connection.transaction()?;
    for (declaration, loaded) in tables {
        transaction.execute_batch(&create_statement(declaration))?;
        let columns = declaration.columns.len();
        let values = vec!["?"; columns].join(",");
        let insert = format!("INSERT INTO \"{}\" VALUES ({values})", declaration.name);
        let mut insert = transaction.prepare(&insert)?;
        let table = loaded.table();
        for row in 0..table.rows {
            let values = (0..columns).map(|column| SavedValue(table.value(row, column)));
            insert.execute(params_from_iter(values))?;
        }
    }
    for view in views {
        transaction.execute_batch(view)?;
    }
    transaction.commit()?;
    connection.close().map_err(|(_, error)| QueryError::from(error))
}
