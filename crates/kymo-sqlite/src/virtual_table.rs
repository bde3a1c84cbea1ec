//! Virtual tables: what SQLite calls to read a table.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int};
use std::sync::Arc;

use kymo_table::ColumnValue;
use rusqlite::types::{Null, ValueRef};
use rusqlite::vtab::{
    Context, DistinctMode, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig,
    VTabConnection, VTabCursor, sqlite3_vtab, sqlite3_vtab_cursor,
};
use rusqlite::{Connection, Error, Result};

use crate::scan::{Bound, Comparison, Scan, ScanPlan};
use crate::{TableDeclaration, TableSource};

/// A table and its source.
struct Entry {
    declaration: TableDeclaration,
    source: Arc<dyn TableSource>,
}

/// A table as a connection knows it.
#[repr(C)]
struct QueriedTable {
    base: sqlite3_vtab,
    entry: Arc<Entry>,
}

#[repr(C)]
struct Cursor {
    base: sqlite3_vtab_cursor,
    entry: Arc<Entry>,
    scan: Option<Scan>,
}

/// Adds a table to a connection, by its name.
pub(crate) fn add(
    connection: &Connection,
    declaration: TableDeclaration,
    source: Arc<dyn TableSource>,
) -> Result<()> {
    let name = declaration.name.clone();
    let module: &'static Module<'static, QueriedTable> = const { &Module::eponymous_only_module() };
    connection.create_module(name.as_str(), module, Some(Arc::new(Entry { declaration, source })))
}

/// `CREATE TABLE` of a declaration, by which SQLite learns of columns.
pub(crate) fn create_statement(declaration: &TableDeclaration) -> String {
    let columns = declaration.columns.iter().map(|(name, of)| format!("\"{name}\" {}", of.name()));
    let columns: Vec<String> = columns.collect();
    format!("CREATE TABLE \"{}\"({})", declaration.name, columns.join(", "))
}

fn failed(message: impl Into<String>) -> Error {
    Error::ModuleError(message.into())
}

// SAFETY: the struct is `repr(C)` and its first member is `sqlite3_vtab`.
unsafe impl VTab<'_> for QueriedTable {
    type Aux = Arc<Entry>;
    type Cursor = Cursor;

    fn connect(
        db: &mut VTabConnection,
        aux: Option<&Self::Aux>,
        _module_name: &[u8],
        _database_name: &[u8],
        _table_name: &[u8],
        _args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let entry = aux.ok_or_else(|| failed("a table without a source"))?.clone();
        db.config(VTabConfig::Innocuous)?;
        let create = CString::new(create_statement(&entry.declaration))?;
        Ok((Cow::Owned(create), QueriedTable { base: sqlite3_vtab::default(), entry }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let declaration = &self.entry.declaration;
        self.entry.source.want(info.col_used());
        let mut plan = ScanPlan::default();
        let mut rows = 1e6;
        let mut used = Vec::new();
        for (number, constraint) in info.constraints().enumerate() {
            let comparison = match constraint.operator() {
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ => Comparison::Equal,
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GT => Comparison::Above,
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GE => Comparison::AtLeast,
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LT => Comparison::Below,
                IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LE => Comparison::AtMost,
                _ => continue,
            };
            let Ok(column) = usize::try_from(constraint.column()) else { continue };
            // Other collations find more texts equal.
            let is_binary = || info.collation(number).is_ok_and(|c| c == "BINARY");
            if !constraint.is_usable() || !is_binary() {
                continue;
            }
            let is_sorted = declaration.sorted == Some(column);
            rows *= match comparison {
                Comparison::Equal if is_sorted => 1e-6,
                Comparison::Equal => 1e-2,
                _ => 0.25,
            };
            plan.tests.push((column, comparison));
            used.push(number);
        }
        for (value, number) in used.into_iter().enumerate() {
            info.constraint_usage(number).set_argv_index(value as c_int + 1);
        }
        let keys: Vec<(usize, bool)> = info
            .order_bys()
            .map(|key| {
                (usize::try_from(key.column()).unwrap_or(usize::MAX), key.is_order_by_desc())
            })
            .collect();
        let are_columns = keys.iter().all(|(column, _)| *column < declaration.columns.len());
        match info.distinct() {
            // Only together, in any order.
            DistinctMode::Grouped | DistinctMode::Distinct if are_columns && keys.len() <= 4 => {
                plan.groups = keys.iter().map(|(column, _)| *column).collect();
            }
            _ => {
                if let [(column, false)] = *keys
                    && declaration.sorted == Some(column)
                {
                    plan.order = Some(column);
                }
            }
        }
        if !plan.groups.is_empty() || plan.order.is_some() {
            info.set_order_by_consumed(true);
        }
        let rows = f64::max(rows, 1.0);
        info.set_estimated_rows(rows as i64);
        info.set_estimated_cost(rows + 1.0);
        info.set_idx_str(&plan.to_text());
        Ok(true)
    }

    fn open(&mut self) -> Result<Cursor> {
        let entry = self.entry.clone();
        Ok(Cursor { base: sqlite3_vtab_cursor::default(), entry, scan: None })
    }
}

// SAFETY: the struct is `repr(C)` and its first member is `sqlite3_vtab_cursor`.
unsafe impl VTabCursor for Cursor {
    fn filter(&mut self, _number: c_int, plan: Option<&str>, args: &Filters<'_>) -> Result<()> {
        let plan = ScanPlan::from_text(plan.unwrap_or_default());
        let bounds: Vec<Bound> = args
            .iter()
            .map(|value| match value {
                ValueRef::Null => Bound::Null,
                ValueRef::Integer(n) => Bound::Integer(n),
                ValueRef::Real(n) => Bound::Real(n),
                ValueRef::Text(text) => match std::str::from_utf8(text) {
                    Ok(text) => Bound::Text(text.to_owned()),
                    Err(_) => Bound::Other,
                },
                ValueRef::Blob(_) => Bound::Other,
            })
            .collect();
        let loaded = self.entry.source.open().map_err(failed)?;
        self.scan = Some(Scan::new(loaded, &plan, &bounds));
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        if let Some(scan) = &mut self.scan {
            scan.advance();
        }
        Ok(())
    }

    fn eof(&self) -> bool {
        self.scan.as_ref().is_none_or(|scan| scan.is_over)
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        let column = usize::try_from(column).unwrap_or(usize::MAX);
        let value = match &self.scan {
            Some(scan) => scan.loaded.table.value(scan.row, column),
            None => ColumnValue::Null,
        };
        match value {
            ColumnValue::Null => context.set_result(Null),
            ColumnValue::Integer(n) => context.set_result(n),
            ColumnValue::Real(n) => context.set_result(n),
            ColumnValue::Text(text) => context.set_result(text),
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.scan.as_ref().map_or(0, |scan| scan.row as i64))
    }
}
