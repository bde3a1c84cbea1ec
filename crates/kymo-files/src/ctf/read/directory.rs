//! Traces in a directory and its sub-directories, and which of their files are parts of
//! one stream.

use std::fs;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use super::metadata::{is_trace, why_unreadable};
use super::stream::{NoHead, Part, read_head};
use super::trace::Trace;
use super::walk::Slots;
use super::window::Window;

/// Directories within directories.
const MAX_DEPTH: usize = 12;
/// Traces of a directory.
const MAX_TRACES: usize = 4096;
/// Directories that are looked into.
const MAX_DIRECTORIES: usize = 1 << 16;

/// The directories that are traces: this one, or those below it, by name.
pub(crate) fn traces(directory: &Path) -> FoundTraces {
    let mut search = Search { most: MAX_TRACES, looked: 0, found: FoundTraces::default() };
    search.look(directory, 0);
    search.found
}

/// Directories that a search met.
#[derive(Debug, Default)]
pub(crate) struct FoundTraces {
    /// The traces.
    pub(crate) traces: Vec<PathBuf>,
    /// Directories that were meant to be traces, with the reason why they are none.
    pub(crate) broken: Vec<(PathBuf, &'static str)>,
}

/// Whether there is any.
pub(crate) fn has_trace(directory: &Path) -> bool {
    let mut search = Search { most: 1, looked: 0, found: FoundTraces::default() };
    search.look(directory, 0);
    !search.found.traces.is_empty()
}

struct Search {
    most: usize,
    looked: usize,
    found: FoundTraces,
}

impl Search {
    fn look(&mut self, directory: &Path, depth: usize) {
        self.looked += 1;
        if self.looked > MAX_DIRECTORIES
            || depth > MAX_DEPTH
            || self.found.traces.len() >= self.most
        {
            return;
        }
        if is_trace(directory) {
            self.found.traces.push(directory.to_owned());
            return;
        }
        // A search for any trace needs no reasons.
        if self.most > 1
            && let Some(why) = why_unreadable(directory)
            && self.found.broken.len() < MAX_TRACES
        {
            self.found.broken.push((directory.to_owned(), why));
        }
        directories(directory).iter().for_each(|f| self.look(f, depth + 1));
    }
}

/// The directories in a directory, by name.
fn directories(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let is_directory = |e: &fs::DirEntry| e.file_type().is_ok_and(|t| t.is_dir());
    let mut below: Vec<PathBuf> =
        entries.flatten().filter(is_directory).map(|e| e.path()).collect();
    below.sort();
    below
}

/// The files of a trace that hold events: all but metadata and hidden ones, by name.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .filter(|e| {
            let name = e.file_name();
            let name = name.to_string_lossy();
            let full = e.metadata().is_ok_and(|m| m.is_file() && m.len() > 0);
            // `metadata.…` are remains of editors and of compressed copies.
            full && name != "metadata" && !name.starts_with('.')
        })
        .map(|e| e.path())
        .collect();
    files.sort();
    files
}

/// Identity of a stream, equal in all its files: trace, stream class, number.
type Identity = ([u8; 16], u64, u64);

/// The streams of all traces, each with its files in the order of their beginnings.
pub(crate) fn streams(files: Vec<Part>, traces: &[Trace]) -> Vec<Vec<Part>> {
    let mut streams: Vec<Vec<(u64, Part)>> = Vec::new();
    let mut known: FxHashMap<Identity, usize> = FxHashMap::default();
    for part in files {
        if let Some(trace) = traces.get(part.trace) {
            let (identity, begin) = identify(trace, &part);
            let part = (begin, part);
            let place = identity.and_then(|i| {
                let next = streams.len();
                Some(*known.entry(i).or_insert(next)).filter(|at| *at < next)
            });
            match place.and_then(|at| streams.get_mut(at)) {
                Some(stream) => stream.push(part),
                None => streams.push(vec![part]),
            }
        }
    }
    let ordered = |mut parts: Vec<(u64, Part)>| {
        parts.sort_by_key(|p| p.0);
        parts.into_iter().map(|p| p.1).collect()
    };
    streams.into_iter().map(ordered).collect()
}

/// Identifies the stream of a file, if its first packet has the identity, and the start time.
fn identify(trace: &Trace, part: &Part) -> (Option<Identity>, u64) {
    let mut window = Window::new(0);
    let opened = part.open().and_then(|bytes| window.open(bytes));
    if opened.and_then(|()| window.want(0, 4096)).is_err() {
        return (None, 0);
    }
    let mut slots = Slots::default();
    let facts = match read_head(trace, window.from(0).0, &mut slots) {
        Ok((facts, ..)) => facts,
        Err(NoHead::Short | NoHead::Bad(_)) => return (None, 0),
    };
    let begin = facts.begin.unwrap_or(0);
    // Traces without an identity are distinguished by their order.
    let own = (part.trace as u128).to_be_bytes();
    let identity = facts.instance.map(|number| (trace.metadata.uuid.unwrap_or(own), number));
    (identity.map(|(uuid, number)| (uuid, facts.stream_id.unwrap_or(0), number)), begin)
}
