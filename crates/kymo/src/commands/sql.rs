//! `kymo sql`: queries in SQL on recordings.

pub(crate) mod prompt;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kymo_sql::{Recordings, RecordingsOptions, TableReference, TableView, VIEWS};
use kymo_sqlite::{Database, QueryLimits, ResultSink};
use kymo_table::{Cell, RowFormat, RowWriter};
use kymo_view::Ledger;

use super::sql_words;
use crate::args::symbols::SymbolArgs;
use crate::exit;

/// Longest text of a query.
const LONGEST_QUERY: u64 = 1 << 20;

/// Flags of `kymo sql`.
#[derive(clap::Args)]
#[command(after_help = "\
Without a query, kymo reads statements from a prompt if it has a terminal (.help explains it), and
lists the tables otherwise; --tables also lists their columns. Names follow Perfetto where it has an
equivalent; results of other commands are tables, too. kymo reads only the tables and columns that
the query uses. With several recordings, each keeps its own clock and has its own machine_id.

Functions in addition to SQLite's: p(x, 0.99), a quantile; hist(x), a histogram as JSON; stack(id),
the functions of a callsite; to_utc(ts), if the recording has the time of day. Integers of 2^63 and
more (addresses, hashes) appear as negative numbers with the same bits: write them in hexadecimal.

EXAMPLES
  kymo sql trace.dat 'SELECT name, count(*) FROM ftrace_event GROUP BY name ORDER BY 2 DESC'
  kymo sql perf.data 'SELECT thread_name, p(wakeup_delay, 0.99) FROM sched_slice GROUP BY 1'
  kymo sql --json perf.data 'SELECT comm, blocked_ns FROM offcpu'
  kymo sql trace.dat --save trace.sqlite")]
pub(crate) struct Args {
    /// Recordings (perf.data, trace.dat, directories of CTF traces or of sessions), then the query
    #[arg(value_name = "RECORDING... [QUERY]", required_unless_present = "tables")]
    words: Vec<OsString>,
    /// File with the query; `-`: standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print one JSON object per row, each on one line
    #[arg(long)]
    json: bool,
    /// Print comma-separated values
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Write all event tables to a new SQLite file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// List the tables and describe their columns
    #[arg(long)]
    tables: bool,
    /// Time limit of a query in seconds; 0: none
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    time_limit: u64,
    /// Memory limit in MiB, for tables and query separately
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    memory_limit: u64,
    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    symbols: SymbolArgs,
}

/// Rows of results to the standard output.
struct Rows<W>(RowWriter<W>);

impl<W: Write> ResultSink for Rows<W> {
    fn begin(&mut self, columns: &[String]) -> io::Result<()> {
        self.0.begin(columns)
    }

    fn row(&mut self, cells: Vec<Cell>) -> io::Result<()> {
        self.0.row(cells)
    }

    fn end(&mut self) -> io::Result<()> {
        self.0.end()
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (paths, query) = args.words()?;
    let is_prompt = args.has_prompt();
    if args.tables || query.is_none() && args.save.is_none() && !is_prompt {
        return list_tables(&args);
    }
    let interrupts = if is_prompt { Some(prompt::Interrupts::listen()?) } else { None };
    let memory = args.memory_limit.max(1).saturating_mul(1 << 20);
    let options = RecordingsOptions { memory, words: sql_words::words() };
    if let Some(path) = paths.first().filter(|_| !is_prompt) {
        crate::progress::begin(path.display());
    }
    let recordings = Recordings::open(&paths, |path| args.symbols.options(path), options)?;
    let time = (args.time_limit > 0).then(|| Duration::from_secs(args.time_limit));
    let database = recordings.database(QueryLimits { time, memory })?;
    let format = match (args.json, args.csv) {
        (true, _) => RowFormat::Json,
        (_, true) => RowFormat::Csv,
        _ => RowFormat::Text,
    };
    let queries = Queries { recordings: recordings.clone(), database, time };
    if let Some(interrupts) = interrupts {
        prompt::run(&recordings, interrupts, format, |query, format| {
            let mut out = crate::streams::stdout();
            queries.run(query, &mut out, format)?;
            out.flush().context("standard output")
        })?;
        let ledger = Ledger::from_notes(recordings.notes());
        return Ok(end(&recordings, &ledger, args.strict));
    }
    let mut out = super::analysis::stdout();
    if let Some(query) = &query {
        queries.run(query, &mut out, format)?;
    }
    if let Some(path) = &args.save {
        queries.set_deadline();
        save(&recordings, path)?;
    }
    let ledger = Ledger::from_notes(recordings.notes());
    if format == RowFormat::Text && !ledger.is_empty() {
        write!(out, "\n{}", ledger.to_text(""))?;
    }
    out.flush()?;
    drop(out);
    Ok(end(&recordings, &ledger, args.strict))
}

fn end(recordings: &Recordings, ledger: &Ledger, strict: bool) -> ExitCode {
    let damaged = recordings.damaged();
    let damage = (!damaged.is_empty()).then_some("damaged; what can be read is in the tables");
    exit::status(damaged.join(", "), damage, ledger, strict)
}

/// Queries on recordings, each with the limit on time.
struct Queries {
    recordings: Arc<Recordings>,
    database: Database,
    time: Option<Duration>,
}

impl Queries {
    fn set_deadline(&self) {
        let deadline = self.time.and_then(|time| Instant::now().checked_add(time));
        self.recordings.set_deadline(deadline);
    }

    /// Runs statements and writes their rows.
    fn run(&self, query: &str, out: &mut dyn Write, format: RowFormat) -> anyhow::Result<()> {
        self.set_deadline();
        let mut rows = Rows(RowWriter::new(out, format));
        let result = self.database.run(query, &mut rows);
        let _ = rows.0.finish()?;
        Ok(result?)
    }
}

impl Args {
    /// Whether statements come from a prompt: on a terminal, where only recordings are named.
    pub(crate) fn has_prompt(&self) -> bool {
        let is_terminal = io::stdin().is_terminal() && crate::streams::stdout().is_terminal();
        let is_other = self.tables || self.save.is_some() || self.file.is_some();
        is_terminal && !is_other && self.query_word().is_none()
    }

    /// The last word, unless it is a file or the query is in one.
    fn query_word(&self) -> Option<&OsString> {
        let is_alone = self.words.len() == 1;
        let last = self.words.last().filter(|_| self.file.is_none())?;
        (!Path::new(last).exists() && (!is_alone || is_query(last))).then_some(last)
    }

    /// Recordings and the query.
    fn words(&self) -> anyhow::Result<(Vec<PathBuf>, Option<String>)> {
        let mut words = self.words.clone();
        let query = if let Some(path) = &self.file {
            Some(read_query(path)?)
        } else if self.query_word().is_some() {
            let last = words.pop().unwrap_or_default().into_string();
            Some(last.map_err(|_| anyhow::anyhow!("the query is not UTF-8"))?)
        } else {
            None
        };
        if words.is_empty() && !self.tables {
            bail!("no recording is named: kymo sql RECORDING 'QUERY'");
        }
        Ok((words.into_iter().map(PathBuf::from).collect(), query))
    }
}

/// Whether a word that is not a file is a query rather than the name of one.
fn is_query(word: &std::ffi::OsStr) -> bool {
    word.to_str().is_some_and(|text| text.contains(char::is_whitespace))
}

fn read_query(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = |file: &mut dyn io::Read, text: &mut String| {
        file.take(LONGEST_QUERY + 1).read_to_string(text)
    };
    let result = if path.as_os_str() == "-" {
        read(&mut io::stdin().lock(), &mut text)
    } else {
        std::fs::File::open(path).and_then(|mut file| read(&mut file, &mut text))
    };
    result.with_context(|| path.display().to_string())?;
    if text.len() as u64 > LONGEST_QUERY {
        bail!("{}: a query is at most {LONGEST_QUERY} bytes long", path.display());
    }
    Ok(text)
}

fn save(recordings: &std::sync::Arc<Recordings>, path: &Path) -> anyhow::Result<()> {
    if path.symlink_metadata().is_ok() {
        bail!("{}: the file exists; remove it, or choose another name", path.display());
    }
    let tables = recordings.all_tables()?;
    let views: Vec<String> = VIEWS.iter().map(TableView::statement).collect();
    let saved = kymo_sqlite::save(path, &tables, &views);
    if saved.is_err() {
        // It is not whole.
        let _ = std::fs::remove_file(path);
    }
    saved.with_context(|| path.display().to_string())
}

fn list_tables(args: &Args) -> anyhow::Result<ExitCode> {
    let mut out = super::analysis::stdout();
    for table in Recordings::reference() {
        if args.tables {
            write_columns(&mut out, &table)?;
        } else {
            write_table(&mut out, &table)?;
        }
    }
    for view in &VIEWS {
        write_view(&mut out, view, args.tables)?;
    }
    if !args.tables {
        writeln!(out, "Columns: kymo sql --tables")?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn write_table(out: &mut impl Write, table: &TableReference) -> io::Result<()> {
    writeln!(out, "{:<24}  {}", table.name, table.documentation)
}

fn write_view(out: &mut impl Write, view: &TableView, has_columns: bool) -> io::Result<()> {
    if has_columns {
        return writeln!(out, "{}: {}", view.name, view.documentation);
    }
    writeln!(out, "{:<24}  {}", view.name, view.documentation)
}

fn write_columns(out: &mut impl Write, table: &TableReference) -> io::Result<()> {
    writeln!(out, "{}: {}", table.name, table.documentation)?;
    for (name, of, documentation) in &table.columns {
        writeln!(out, "    {name:<24} {:<8} {documentation}", of.name())?;
    }
    Ok(())
}
