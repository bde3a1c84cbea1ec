//! A connection to SQLite that reads tables, writes nothing, and keeps to limits.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kymo_table::Cell;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::statement::refusal;
use crate::{TableDeclaration, TableSource, functions, heap, virtual_table};

/// Longest query, in bytes.
const LONGEST_QUERY: i32 = 1 << 20;
/// Instructions of SQLite's machine between two looks at the clock.
const BETWEEN_LOOKS: i32 = 20_000;

/// Limits of queries.
#[derive(Clone, Copy, Debug)]
pub struct QueryLimits {
    /// Time of a query.
    pub time: Option<Duration>,
    /// Bytes of memory that SQLite takes.
    pub memory: u64,
}

/// A query failed.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// SQLite reports it.
    #[error("{0}")]
    Sql(String),
    /// It is refused.
    #[error("{0}")]
    Refused(String),
    /// It takes longer than allowed.
    #[error("stopped after {} s (--time-limit)", .0.as_secs_f64())]
    Time(Duration),
    /// It was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// It takes more memory than allowed.
    #[error("stopped: the query needs more than {} MiB of memory (--memory-limit)", .0 >> 20)]
    Memory(u64),
    /// The result cannot be written.
    #[error(transparent)]
    Output(#[from] io::Error),
}

impl From<rusqlite::Error> for QueryError {
    fn from(error: rusqlite::Error) -> QueryError {
        match error {
            rusqlite::Error::SqliteFailure(_, Some(text)) => QueryError::Sql(text),
            rusqlite::Error::SqlInputError { msg, sql, offset, .. } => {
                let before = usize::try_from(offset).ok().and_then(|at| sql.get(..at));
                let line = before.map_or(1, |text| text.matches('\n').count() + 1);
                let near = before.and_then(|text| sql.get(text.len()..)).unwrap_or_default();
                let near: String = near.chars().take_while(|c| *c != '\n').take(30).collect();
                if near.is_empty() {
                    QueryError::Sql(msg)
                } else {
                    QueryError::Sql(format!("line {line}, at `{near}`: {msg}"))
                }
            }
            other => QueryError::Sql(other.to_string()),
        }
    }
}

/// Takes the rows of a result.
pub trait ResultSink {
    /// A statement's result begins, with these columns.
    ///
    /// # Errors
    /// If it cannot be written.
    fn begin(&mut self, columns: &[String]) -> io::Result<()>;

    /// A row.
    ///
    /// # Errors
    /// If it cannot be written.
    fn row(&mut self, cells: Vec<Cell>) -> io::Result<()>;

    /// The statement's result ends.
    ///
    /// # Errors
    /// If it cannot be written.
    fn end(&mut self) -> io::Result<()>;
}

/// State that callbacks of SQLite share.
#[derive(Default)]
struct Watch {
    deadline: Option<Instant>,
    refused: Option<String>,
}

/// Tables that queries read.
pub struct Database {
    connection: Connection,
    limits: QueryLimits,
    watch: Arc<Mutex<Watch>>,
    interrupted: Arc<AtomicBool>,
}

fn lock(watch: &Mutex<Watch>) -> MutexGuard<'_, Watch> {
    watch.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Database {
    /// A database without tables. The limit on memory holds for all of the process.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn open(limits: QueryLimits) -> Result<Database, QueryError> {
        heap::limit_heap(limits.memory);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_in_memory_with_flags(flags)?;
        // A value may take an eighth of the memory.
        let longest = i32::try_from(limits.memory / 8).unwrap_or(i32::MAX).max(LONGEST_QUERY);
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, longest)?;
        connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, LONGEST_QUERY)?;
        connection.set_limit(Limit::SQLITE_LIMIT_EXPR_DEPTH, 200)?;
        connection.set_limit(Limit::SQLITE_LIMIT_COMPOUND_SELECT, 100)?;
        connection.set_limit(Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000)?;
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        functions::add(&connection, limits.memory / 16)?;
        Ok(Database { connection, limits, watch: Arc::default(), interrupted: Arc::default() })
    }

    /// A query stops when this becomes true.
    #[must_use]
    pub fn interrupted_by(mut self, flag: Arc<AtomicBool>) -> Database {
        self.interrupted = flag;
        self
    }

    /// Adds a table.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn add_table(
        &self,
        declaration: TableDeclaration,
        source: Arc<dyn TableSource>,
    ) -> Result<(), QueryError> {
        Ok(virtual_table::add(&self.connection, declaration, source)?)
    }

    /// Adds a function of integers that makes text.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn add_text_function(
        &self,
        name: &str,
        arguments: i32,
        function: impl Fn(&[Option<i64>]) -> Result<Option<String>, String> + Send + 'static,
    ) -> Result<(), QueryError> {
        let flags = rusqlite::functions::FunctionFlags::SQLITE_UTF8
            | rusqlite::functions::FunctionFlags::SQLITE_INNOCUOUS;
        self.connection.create_scalar_function(name, arguments, flags, move |context| {
            let given = (0..context.len()).map(|n| match context.get_raw(n) {
                ValueRef::Integer(n) => Some(n),
                _ => None,
            });
            let given: Vec<Option<i64>> = given.collect();
            function(&given).map_err(|text| rusqlite::Error::UserFunctionError(text.into()))
        })?;
        Ok(())
    }

    /// Adds views, and permits nothing but reading from here on. `functions` gets the name of
    /// each function that a statement calls, before it runs.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn seal(
        &mut self,
        views: &[String],
        functions: Box<dyn Fn(&str) + Send>,
    ) -> Result<(), QueryError> {
        for view in views {
            self.connection.execute_batch(view)?;
        }
        let watch = self.watch.clone();
        self.connection.authorizer(Some(move |context: AuthContext<'_>| {
            if let AuthAction::Function { function_name } = context.action {
                functions(function_name);
            }
            match refused_action(&context.action) {
                None => Authorization::Allow,
                Some(what) => {
                    lock(&watch).refused.get_or_insert_with(|| {
                        format!("{what} is refused: queries read recordings and change nothing")
                    });
                    Authorization::Deny
                }
            }
        }))?;
        let watch = self.watch.clone();
        let interrupted = self.interrupted.clone();
        let is_over = move || {
            interrupted.load(Ordering::Relaxed)
                || lock(&watch).deadline.is_some_and(|end| Instant::now() >= end)
        };
        self.connection.progress_handler(BETWEEN_LOOKS, Some(is_over))?;
        Ok(())
    }

    /// Time at which the present query is stopped.
    pub fn deadline(&self) -> Option<Instant> {
        lock(&self.watch).deadline
    }

    /// Time that each run may take.
    pub fn time_limit(&self) -> Option<Duration> {
        self.limits.time
    }

    /// Runs statements one after the other, and hands their rows on.
    ///
    /// # Errors
    /// If a statement is refused, wrong, or over a limit; or the result cannot be written.
    pub fn run(&self, sql: &str, sink: &mut dyn ResultSink) -> Result<(), QueryError> {
        if let Some(what) = refusal(sql) {
            return Err(QueryError::Refused(what));
        }
        {
            let mut watch = lock(&self.watch);
            watch.deadline = self.limits.time.map(|time| Instant::now() + time);
            watch.refused = None;
        }
        let mut batch = rusqlite::Batch::new(&self.connection, sql);
        loop {
            let statement = rusqlite::fallible_iterator::FallibleIterator::next(&mut batch);
            let Some(mut statement) = statement.map_err(|error| self.failure(error))? else {
                return Ok(());
            };
            let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
            let columns = names.len();
            // VACUUM and the like, which no authorizer is asked about.
            if columns == 0 {
                let what = "a statement without rows is refused: queries read recordings and \
                            change nothing";
                return Err(QueryError::Refused(what.to_owned()));
            }
            sink.begin(&names)?;
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next().map_err(|error| self.failure(error))? {
                let mut cells = Vec::with_capacity(columns);
                for column in 0..columns {
                    cells.push(cell(row.get_ref(column).map_err(|error| self.failure(error))?));
                }
                sink.row(cells)?;
            }
            sink.end()?;
        }
    }

    fn failure(&self, error: rusqlite::Error) -> QueryError {
        let watch = lock(&self.watch);
        let code = error.sqlite_error_code();
        match (code, &watch.refused) {
            _ if self.interrupted.load(Ordering::Relaxed) => QueryError::Interrupted,
            (Some(ErrorCode::OperationInterrupted), _) => {
                QueryError::Time(self.limits.time.unwrap_or_default())
            }
            (Some(ErrorCode::OutOfMemory), _) => QueryError::Memory(self.limits.memory),
            (Some(ErrorCode::AuthorizationForStatementDenied), Some(what)) => {
                QueryError::Refused(what.clone())
            }
            (_, Some(what)) if error.to_string().contains("not authorized") => {
                QueryError::Refused(what.clone())
            }
            _ => error.into(),
        }
    }
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(n) => Cell::Int(n),
        ValueRef::Real(n) => Cell::Float(n),
        ValueRef::Text(text) => Cell::Text(text.into()),
        ValueRef::Blob(bytes) => {
            let digits: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            Cell::Text(format!("x'{digits}'").into_bytes().into())
        }
    }
}

/// Name of an action beyond reading.
fn refused_action(action: &AuthAction<'_>) -> Option<String> {
    Some(match action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => return None,
        AuthAction::Function { function_name } => {
            let name = function_name.to_ascii_lowercase();
            let is_known = !matches!(&*name, "load_extension" | "fts3_tokenizer" | "sqlite_log");
            if is_known {
                return None;
            }
            format!("{name}()")
        }
        AuthAction::Pragma { pragma_name, .. } => format!("PRAGMA {pragma_name}"),
        AuthAction::Attach { .. } => "ATTACH".to_owned(),
        AuthAction::Detach { .. } => "DETACH".to_owned(),
        AuthAction::Insert { .. } => "a statement that writes".to_owned(),
        AuthAction::Update { .. } => "UPDATE".to_owned(),
        AuthAction::Delete { .. } => "DELETE".to_owned(),
        AuthAction::Transaction { .. } | AuthAction::Savepoint { .. } => "a transaction".to_owned(),
        AuthAction::Analyze { .. } => "ANALYZE".to_owned(),
        AuthAction::Reindex { .. } => "REINDEX".to_owned(),
        AuthAction::AlterTable { .. } => "ALTER TABLE".to_owned(),
        _ => "CREATE or DROP".to_owned(),
    })
}
