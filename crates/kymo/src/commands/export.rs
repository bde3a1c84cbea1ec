//! `kymo export`: tables of recordings as Parquet.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use kymo_kernel::output_file::{Existing, SHARED, write_whole};
use kymo_parquet::{ColumnsConfig, columns_to_parquet};
use kymo_sql::{ExportedTable, Recordings, RecordingsOptions, utc_text};
use kymo_view::Ledger;

use super::sql_words;
use crate::args::symbols::SymbolArgs;
use crate::exit;

/// Flags of `kymo export`.
#[derive(clap::Args)]
#[command(after_help = "\
Writes the tables of `kymo sql`, with leading columns host and recording_id, to files
v1/TABLE/date=YYYY-MM-DD/HOST~RECORDING.parquet, so that other engines can read a table of all hosts
together. Exporting a recording again replaces its files. Times are UTC if the recording has the
time of day (kymo record -k mono), otherwise times of its clock; the metadata key kymo.time states
which.

EXAMPLES
  kymo export perf.data -o fleet
  duckdb -c \"SELECT host, count(*) FROM 'fleet/v1/sched_slice/*/*.parquet' GROUP BY host\"")]
pub(crate) struct Args {
    /// Recordings: perf.data, trace.dat, directories of CTF traces or of sessions
    #[arg(value_name = "RECORDING", required = true)]
    recordings: Vec<PathBuf>,
    /// Output directory
    #[arg(short, long, value_name = "DIR", required = true)]
    output: PathBuf,
    /// Host name [default: the recorded one, or unknown]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Memory limit in MiB for the tables of one recording
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    memory_limit: u64,
    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    symbols: SymbolArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let memory = args.memory_limit.max(1).saturating_mul(1 << 20);
    let (mut notes, mut damaged) = (Vec::new(), Vec::new());
    for path in &args.recordings {
        let options = RecordingsOptions { memory, words: sql_words::words() };
        let symbols = |path: &Path| args.symbols.options(path);
        let recordings = Recordings::open(std::slice::from_ref(path), symbols, options)?;
        let host = args.host.clone().or_else(|| recordings.host());
        let host = host.unwrap_or_else(|| "unknown".to_owned());
        let captured = std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
        let mut failure = None;
        recordings.exported(&host, |table| {
            if failure.is_none() {
                let date = date_of(&table, recordings.span(), captured);
                failure = write(&args.output, &host, &date, &table).err();
            }
            Ok(())
        })?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        notes.extend(recordings.notes());
        damaged.extend(recordings.damaged());
    }
    let ledger = Ledger::from_notes(notes);
    exit::tell(&ledger);
    let damage = (!damaged.is_empty()).then_some("damaged; what can be read is exported");
    Ok(exit::status(damaged.join(", "), damage, &ledger, args.strict))
}

/// Day on which the recording begins, in UTC, or on which its file was last written.
fn date_of(
    table: &ExportedTable<'_>,
    span: Option<(u64, u64)>,
    captured: Option<SystemTime>,
) -> String {
    let begin = span.zip(table.utc_offset).and_then(|(span, offset)| span.0.checked_add(offset));
    let written = captured.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let written = written.and_then(|time| u64::try_from(time.as_nanos()).ok());
    let text = utc_text(begin.or(written).unwrap_or(0));
    text.get(..10).unwrap_or("1970-01-01").to_owned()
}

/// A name that is one part of a path.
fn file_part(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    let name: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    if name.starts_with('.') || name.is_empty() { format!("_{name}") } else { name }
}

fn write(to: &Path, host: &str, date: &str, table: &ExportedTable<'_>) -> anyhow::Result<()> {
    let directory = to.join("v1").join(table.name).join(format!("date={date}"));
    std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let name = format!("{}~{:016x}.parquet", file_part(host), table.identity);
    let path = directory.join(name);
    let offset = table.utc_offset.unwrap_or(0);
    let offset_text = offset.to_string();
    let time = if table.utc_offset.is_some() { "utc" } else { "clock of the recording" };
    let facts = [("kymo.time", time), ("kymo.utc_offset_ns", &*offset_text), ("kymo.host", host)];
    let config = ColumnsConfig {
        name: table.name,
        facts: &facts,
        sorted: table.sorted,
        time_offset: offset.cast_signed(),
    };
    let written = write_whole(&path, SHARED, Existing::Replace, |file| {
        let out = std::io::BufWriter::new(file);
        columns_to_parquet(out, table.columns, table.table, config)
            .map_err(std::io::Error::other)?
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .map(|_| ())
    });
    written.with_context(|| path.display().to_string())
}
