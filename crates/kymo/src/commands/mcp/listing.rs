//! The recordings of a directory, as its user would name them: a session is one recording, not its
//! parts, and a source tree with a trace somewhere below is none.

use std::fs::{self, DirEntry, Metadata};
use std::path::Path;
use std::time::UNIX_EPOCH;

use anyhow::Context as _;
use kymo_files::RecordingFormat;
use serde_json::{Value, json};

/// Entries of a directory that are read.
const MOST_ENTRIES: usize = 10_000;
/// Traces that lie beside each other in one recording.
const MOST_TRACES: usize = 64;

/// Rows of the recordings in a directory, the newest first. The row of the directory itself, if it
/// is a recording, is named `.`.
pub(super) fn recordings(directory: &Path) -> anyhow::Result<Vec<Value>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    if let Some(format) = format_of_directory(directory, false) {
        return Ok(vec![row(".", format, fs::metadata(directory).ok().as_ref()).1]);
    }
    let mut rows: Vec<_> = entries.take(MOST_ENTRIES).flatten().filter_map(row_of).collect();
    rows.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// Time of the last change and the row of an entry that is a recording.
fn row_of(entry: DirEntry) -> Option<(Option<u64>, Value)> {
    let (name, path) = (entry.file_name(), entry.path());
    let name = name.to_string_lossy();
    // Hidden entries belong to other programs: `.git`, caches.
    if name.starts_with('.') {
        return None;
    }
    let meta = fs::metadata(&path).ok()?;
    let format =
        if meta.is_dir() { format_of_directory(&path, true) } else { RecordingFormat::of(&path) };
    Some(row(&name, format?, Some(&meta)))
}

/// Format of a directory that is one recording. Readers accept any directory with traces below it,
/// at any depth; a listing takes only the layouts that recorders write, and reads little:
///
/// - a CTF trace, or a directory of `perf record --threads`;
/// - a session: the kernel's recording in `kernel`, those of programs in `ust`;
/// - `trace.dat` in a directory of `kymo listen` or `kymo boot record`, if `holds_file`: the
///   directory that is listed may hold it as one recording of several;
/// - traces beside each other, with nothing else.
fn format_of_directory(directory: &Path, holds_file: bool) -> Option<RecordingFormat> {
    let is = |name: &str, format| RecordingFormat::of(&directory.join(name)) == Some(format);
    let is_file = |name: &str| fs::metadata(directory.join(name)).is_ok_and(|meta| meta.is_file());
    let holds = |name: &str, format| is_file(name) && is(name, format);
    if holds("data", RecordingFormat::PerfData) {
        Some(RecordingFormat::PerfData)
    } else if holds("kernel/trace.dat", RecordingFormat::TraceDat)
        || holds_file && holds("trace.dat", RecordingFormat::TraceDat)
    {
        Some(RecordingFormat::Session)
    } else if holds("metadata", RecordingFormat::Ctf)
        || holds("kernel/metadata", RecordingFormat::Ctf)
        || is("ust", RecordingFormat::Ctf)
        || are_all_traces(directory)
    {
        Some(RecordingFormat::Ctf)
    } else {
        None
    }
}

/// Whether a directory has traces and nothing else.
fn are_all_traces(directory: &Path) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return false };
    let mut count = 0;
    for entry in entries {
        count += 1;
        let is_trace = |entry: DirEntry| {
            fs::metadata(entry.path().join("metadata")).is_ok_and(|m| m.is_file())
        };
        if count > MOST_TRACES || !entry.is_ok_and(is_trace) {
            return false;
        }
    }
    count > 0
}

fn row(name: &str, format: RecordingFormat, meta: Option<&Metadata>) -> (Option<u64>, Value) {
    let format = match format {
        RecordingFormat::PerfData => "perf.data",
        RecordingFormat::TraceDat => "trace.dat",
        RecordingFormat::Ctf => "CTF",
        RecordingFormat::Session => "session",
    };
    let changed = meta.and_then(|meta| meta.modified().ok());
    let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let nanos = changed.and_then(|time| u64::try_from(time.as_nanos()).ok());
    let row = json!({
        "name": name, "format": format,
        "bytes": meta.filter(|meta| meta.is_file()).map(Metadata::len),
        "changed": nanos.map(kymo_sql::utc_text),
    });
    (nanos, row)
}
