//! Opened recordings.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::ArrayRef;
use kymo_format::EventFormat;
use kymo_kernel::tracefs::Tracefs;
use kymo_model::Weight;
use kymo_render::syscalls::{errno_name, slowest_arguments, syscall_name, syscall_names};
use kymo_sql::{AnswerWords, Recordings, RecordingsOptions, TableRows};
use kymo_sqlite::{Database, QueryLimits, SqlType};
use kymo_symbols::ResolverOptions;
use kymo_symbols::bundle::Bundle;
use kymo_table::ColumnValue;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::results::Results;
use crate::table::Table;
use crate::work::interruptible;
use crate::{Error, TraceWarning, arrays};

/// Recordings of perf, kymo, trace-cmd and LTTng (perf.data, trace.dat, CTF), as tables.
#[pyclass(module = "kymotrace", frozen, subclass)]
pub(crate) struct Recording {
    recordings: Arc<Recordings>,
    database: Mutex<Database>,
    /// Facts of warnings that have been given.
    warned: Mutex<Vec<String>>,
    paths: Vec<PathBuf>,
}

fn words() -> AnswerWords {
    AnswerWords {
        calls: |architecture| architecture.map_or(syscall_name, syscall_names),
        errors: errno_name,
        arguments: |table, architecture| {
            let tracefs = Tracefs::open().ok();
            slowest_arguments(table, architecture, |name: &str| {
                EventFormat::parse(&tracefs.as_ref()?.event_format("syscalls", name).ok()?).ok()
            })
        },
    }
}

/// Rows of `[from, to)` of a table in the order of a column.
fn range(rows: &TableRows, column: usize, (from, to): (i64, i64)) -> (usize, usize) {
    let table = rows.rows.table();
    let at_least = |time: i64| {
        let (mut low, mut high) = (0, table.rows);
        while low < high {
            let middle = low + (high - low) / 2;
            match table.value(middle, column) {
                ColumnValue::Integer(n) if n >= time => high = middle,
                _ => low = middle + 1,
            }
        }
        low
    };
    let (start, end) = (at_least(from), at_least(to));
    (start, end.saturating_sub(start))
}

impl Recording {
    /// Warns of what makes results of what was read doubtful, once of each.
    fn warn(&self, py: Python<'_>) -> PyResult<()> {
        for note in self.recordings.notes().into_iter().filter(|note| note.weight == Weight::Doubt)
        {
            let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
            let text =
                note.advice.map_or(note.fact.clone(), |advice| format!("{}; {advice}", note.fact));
            if warned.contains(&text) {
                continue;
            }
            warned.push(text.clone());
            drop(warned);
            let category = py.get_type::<TraceWarning>();
            let message = std::ffi::CString::new(text.replace('\0', "\\0"))?;
            PyErr::warn(py, &category, &message, 2)?;
        }
        Ok(())
    }
}

#[pymethods]
impl Recording {
    /// Opens files and directories; each has a `machine_id` of its own.
    #[new]
    #[pyo3(signature = (*paths, memory_limit=4 << 30, time_limit=None, symfs=None))]
    fn new(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        memory_limit: u64,
        time_limit: Option<f64>,
        symfs: Option<PathBuf>,
    ) -> PyResult<Recording> {
        if paths.is_empty() {
            return Err(PyValueError::new_err("no recording is named"));
        }
        let time = match time_limit {
            Some(seconds) => Some(Duration::try_from_secs_f64(seconds).map_err(|_| {
                PyValueError::new_err(format!("time_limit is seconds above 0, not {seconds}"))
            })?),
            None => None,
        };
        let options = RecordingsOptions { memory: memory_limit, words: words() };
        let (recordings, database) = py
            .detach(|| {
                let symbols = |path: &std::path::Path| {
                    let (bundle, no_bundle) = match Bundle::open_beside(path) {
                        Ok(bundle) => (bundle.map(Arc::new), None),
                        Err(error) => (None, Some(error)),
                    };
                    let symfs = symfs.clone();
                    ResolverOptions { symfs, bundle, no_bundle, ..ResolverOptions::default() }
                };
                let recordings = Recordings::open(&paths, symbols, options)?;
                let limits = QueryLimits { time, memory: memory_limit };
                let database = recordings.database(limits)?;
                Ok((recordings, database))
            })
            .map_err(|error: kymo_sql::RecordingsError| Error::new_err(error.to_string()))?;
        let (database, warned) = (Mutex::new(database), Mutex::default());
        Ok(Recording { recordings, database, warned, paths })
    }

    /// The files and directories.
    #[getter]
    fn paths(&self) -> Vec<PathBuf> {
        self.paths.clone()
    }

    /// Names of the tables.
    #[staticmethod]
    fn tables() -> Vec<String> {
        Recordings::reference().into_iter().map(|table| table.name).collect()
    }

    /// Columns of a table: name, type (`int`, `float`, `str`) and meaning.
    #[staticmethod]
    fn columns(table: &str) -> PyResult<Vec<(String, &'static str, String)>> {
        let all = Recordings::reference();
        let Some(table) = all.into_iter().find(|known| known.name == table) else {
            return Err(Error::new_err(format!("there is no table {table}")));
        };
        let of = |of: SqlType| match of {
            SqlType::Integer => "int",
            SqlType::Real => "float",
            SqlType::Text => "str",
        };
        let columns = table.columns.into_iter();
        Ok(columns.map(|(name, kind, documentation)| (name, of(kind), documentation)).collect())
    }

    /// A table; `columns` in that order, and of `time = (from, to)` in nanoseconds of the
    /// recording's clock the rows with `from <= ts < to`.
    #[pyo3(signature = (name, columns=None, time=None))]
    fn table(
        &self,
        py: Python<'_>,
        name: &str,
        columns: Option<Vec<String>>,
        time: Option<(i64, i64)>,
    ) -> PyResult<Table> {
        let all = || -> PyResult<Vec<String>> {
            Ok(Recording::columns(name)?.into_iter().map(|(name, _, _)| name).collect())
        };
        let mut asked = columns.map_or_else(all, Ok)?;
        let count = asked.len();
        if time.is_some() {
            if !all()?.iter().any(|column| column == "ts") {
                return Err(PyValueError::new_err(format!("table {name} has no column ts")));
            }
            asked.push("ts".to_owned());
        }
        let recordings = &self.recordings;
        let flag = recordings.interrupt_flag();
        recordings.set_deadline(None);
        let (rows, arrays) = interruptible(py, &flag, || {
            let rows = recordings.table(name, Some(&asked)).map_err(|e| e.to_string())?;
            let arrays =
                rows.columns.iter().take(count).map(|(name, _, number)| {
                    Ok((name.clone(), arrays::array(&rows.rows, *number)?))
                });
            let arrays: Result<Vec<(String, ArrayRef)>, _> = arrays.collect();
            let arrays = arrays.map_err(|error: arrow_schema::ArrowError| error.to_string())?;
            Ok((rows, arrays))
        })?;
        let table = Table::new(arrays, rows.rows.table().rows)?;
        self.warn(py)?;
        let Some(time) = time else { return Ok(table) };
        let at = rows.columns.last().map(|(_, _, number)| *number);
        let Some(at) = at.filter(|at| rows.rows.sorted() == Some(*at)) else {
            return Err(Error::new_err(format!(
                "{name} is not in the order of ts: choose rows with sql()"
            )));
        };
        let (start, count) = range(&rows, at, time);
        Ok(table.slice(start, count))
    }

    /// Rows of a query in SQL (SQLite's); of several statements those of the last.
    fn sql(&self, py: Python<'_>, query: &str) -> PyResult<Table> {
        let recordings = &self.recordings;
        let flag = recordings.interrupt_flag();
        let (columns, rows) = interruptible(py, &flag, || {
            let database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
            let time = database.time_limit();
            recordings.set_deadline(time.and_then(|time| Instant::now().checked_add(time)));
            let mut results = Results::default();
            database.run(query, &mut results).map_err(|error| error.to_string())?;
            Ok(results.finish())
        })?;
        let table = Table::new(columns, rows)?;
        self.warn(py)?;
        Ok(table)
    }

    /// Warnings and notes on what was read so far: code (see kymo's manual page `kymo-warnings`),
    /// fact, and advice.
    #[getter]
    fn notes(&self) -> Vec<(String, String, Option<String>)> {
        let notes = self.recordings.notes().into_iter();
        notes.map(|note| (note.kind.code().to_owned(), note.fact, note.advice)).collect()
    }

    /// Recordings that are damaged: what can be read of them is in the tables.
    #[getter]
    fn damaged(&self) -> Vec<String> {
        self.recordings.damaged()
    }

    fn __repr__(&self) -> String {
        let paths: Vec<String> = self.paths.iter().map(|path| format!("{path:?}")).collect();
        format!("<kymotrace.Recording of {}>", paths.join(", "))
    }
}
