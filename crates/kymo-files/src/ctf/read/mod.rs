//! Reading traces in CTF 1.8: a directory with `metadata` and a file for each
//! stream, or a directory of such directories. Memory does not grow with the files: each
//! stream is seen through a window.
//!
//! Nothing in the files is believed. A damaged packet costs what is in it; the
//! rest is read, and [`Ctf::damage`] and [`CtfReadStats::damaged`] tell.

mod bits;
mod clock;
mod compile;
mod compile_paths;
mod compile_v2;
mod curve;
mod directory;
mod event;
mod json;
mod layout;
mod merge;
mod metadata;
mod monotonic;
mod packet;
mod packet_events;
mod run;
mod size;
mod stream;
mod trace;
mod tsdl;
mod walk;
mod window;

use std::path::{Path, PathBuf};

use super::types::Metadata;
use crate::RecordingBytes;

pub use bits::DecodeError;
pub use curve::Agreement;
pub use event::{Body, CtfEvent, Packed, Reader};
pub(crate) use json::{LOG_LEVELS, RECORD_SEPARATOR};
pub use layout::{FixedField, Stored};
pub(crate) use merge::Walk;
pub use merge::{CtfSelect, Piece};
pub use monotonic::NotMonotonic;
pub use packet_events::{PacketEvent, PacketReader};
pub use run::{Run, Short};
pub use trace::{Class, Trace};
pub use tsdl::MetadataError;
pub use walk::{FieldInfo, Group, Part, TaskField, Visit};

/// The most damaged places that are kept; all are counted.
const MAX_DAMAGE: usize = 16;

/// Counts of what was read, and of what can make a result wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CtfReadStats {
    /// Events delivered.
    pub events: u64,
    /// Packets read.
    pub packets: u64,
    /// Events that the tracer discarded, as it counted them.
    pub lost: u64,
    /// Packets before which it did.
    pub lost_places: u64,
    /// Events that it had discarded when the first packets of streams ended; some or all
    /// of them perhaps before the trace begins.
    pub lost_at_start: u64,
    /// Packets that are missing by their numbers.
    pub lost_packets: u64,
    /// Places where they are.
    pub lost_packet_places: u64,
    /// Events with a time before that of the one before them in their stream.
    pub out_of_order: u64,
    /// Packets that state another identity (uuid) than the metadata.
    pub foreign_packets: u64,
    /// The first damaged places.
    pub damaged: Vec<CtfDamage>,
    /// All damaged places.
    pub damaged_places: u64,
}

impl CtfReadStats {
    fn damage(&mut self, file: &str, offset: u64, what: String) {
        self.damaged_places += 1;
        if self.damaged.len() < MAX_DAMAGE {
            self.damaged.push(CtfDamage { file: file.to_owned(), offset, what });
        }
    }
}

/// Damage in a stream, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} at offset {offset}: {what}")]
pub struct CtfDamage {
    /// The file, below the directory that was opened.
    pub file: String,
    /// Offset in it.
    pub offset: u64,
    /// Description of the damage.
    pub what: String,
}

/// A recording cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CtfReadError {
    #[error("{path}: {error}")]
    Io { path: String, error: std::io::Error },
    #[error("{path} is not a CTF trace and contains none: there is no metadata")]
    NoTrace { path: String },
    #[error("{path}, {error}")]
    Metadata { path: String, error: MetadataError },
    #[error("{path}: {what}")]
    Types { path: String, what: String },
    #[error(
        "the clocks of {first} and {other} count from different origins ({first_origin} and \
         {other_origin}), and how these relate is not known: name one trace at a time"
    )]
    Origins { first: String, other: String, first_origin: String, other_origin: String },
}

/// Time base of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Nanoseconds of the clock itself, which all traces share; of `CLOCK_MONOTONIC` where the
    /// tracer states the relation of its ticks to it.
    Clock,
    /// Nanoseconds since 1970.
    Real,
}

/// A trace in memory, or wherever its bytes are.
#[derive(Debug)]
pub struct CtfTraceBytes {
    /// Name of the trace; empty where there is one.
    pub name: String,
    /// Its metadata.
    pub metadata: RecordingBytes,
    /// Files of its streams, with their names.
    pub streams: Vec<(String, RecordingBytes)>,
}

/// Files of a trace, with their bytes where these are not behind the paths.
struct TraceFiles {
    name: String,
    metadata: (PathBuf, Option<RecordingBytes>),
    streams: Vec<(PathBuf, Option<RecordingBytes>)>,
}

/// Opened traces.
#[derive(Debug)]
pub struct Ctf {
    name: String,
    traces: Vec<Trace>,
    streams: Vec<Vec<stream::Part>>,
    times: Times,
    damage: Vec<String>,
    classes: Vec<(u32, u32, u32)>,
}

impl Ctf {
    /// Whether a directory is a trace or holds some.
    pub fn is_in(path: &Path) -> bool {
        path.is_dir() && directory::has_trace(path)
    }

    /// Opens the trace of a directory, or all in its sub-directories, and reads their metadata.
    /// The metadata file of a trace stands for its directory.
    pub fn open(path: impl AsRef<Path>) -> Result<Ctf, CtfReadError> {
        Ctf::open_all(&[path.as_ref().to_owned()])
    }

    /// Opens several directories.
    pub fn open_all(paths: &[PathBuf]) -> Result<Ctf, CtfReadError> {
        let mut directories: Vec<PathBuf> = Vec::new();
        let mut broken: Vec<(PathBuf, &str)> = Vec::new();
        let mut top: Vec<&Path> = Vec::new();
        for path in paths {
            let path = match path.parent().filter(|_| path.is_file()) {
                Some(directory) if directory.as_os_str().is_empty() => Path::new("."),
                Some(directory) => directory,
                None => path,
            };
            let found = directory::traces(path);
            let path_text = || path.display().to_string();
            if found.traces.is_empty() {
                return Err(match found.broken.first() {
                    Some((broken, why)) => CtfReadError::Types {
                        path: broken.display().to_string(),
                        what: (*why).to_owned(),
                    },
                    None => CtfReadError::NoTrace { path: path_text() },
                });
            }
            broken.extend(found.broken);
            // A directory may be named twice, and within another.
            directories.extend(
                found.traces.into_iter().filter(|f| !directories.contains(f)).collect::<Vec<_>>(),
            );
            top.push(path);
        }
        let below = |directory: &Path| match *top {
            [one] => directory.strip_prefix(one).unwrap_or(directory).display().to_string(),
            _ => directory.display().to_string(),
        };
        let found = directories.iter().map(|directory| TraceFiles {
            name: below(directory),
            metadata: (directory.join("metadata"), None),
            streams: directory::files(directory).into_iter().map(|path| (path, None)).collect(),
        });
        let names: Vec<String> = top.iter().map(|p| p.display().to_string()).collect();
        let broken = broken.iter().map(|(path, why)| format!("{}: {why}", below(path)));
        Ctf::of_traces(names.join(", "), broken.collect(), found)
    }

    /// Traces whose metadata and streams are bytes; `name` is for messages.
    ///
    /// # Errors
    /// If no trace has metadata that can be read.
    pub fn from_bytes(
        name: &str,
        traces: impl IntoIterator<Item = CtfTraceBytes>,
    ) -> Result<Ctf, CtfReadError> {
        let traces = traces.into_iter().map(|trace| TraceFiles {
            metadata: (Path::new(&trace.name).join("metadata"), Some(trace.metadata)),
            streams: trace.streams.into_iter().map(|(n, b)| (n.into(), Some(b))).collect(),
            name: trace.name,
        });
        Ctf::of_traces(name.to_owned(), Vec::new(), traces)
    }

    fn of_traces(
        name: String,
        broken: Vec<String>,
        found: impl IntoIterator<Item = TraceFiles>,
    ) -> Result<Ctf, CtfReadError> {
        let mut traces: Vec<Trace> = Vec::new();
        let (mut files, mut unread, mut classes) = (Vec::new(), Vec::new(), Vec::new());
        for TraceFiles { name, metadata: (path, bytes), streams } in found {
            let bytes = bytes.map_or_else(|| RecordingBytes::open(&path), Ok);
            let trace = match trace::open(&path, bytes, name, classes.len() as u32) {
                Ok(trace) => trace,
                // The others can still be read.
                Err(e) => {
                    unread.push(e);
                    continue;
                }
            };
            let number = traces.len();
            for (k, kind) in trace.metadata.streams.iter().enumerate() {
                classes.extend((0..kind.events.len()).map(|e| (number as u32, k as u32, e as u32)));
            }
            traces.push(trace);
            let part = |(path, bytes)| stream::Part { path, bytes, trace: number };
            files.extend(streams.into_iter().map(part));
        }
        if traces.is_empty()
            && let Some(error) = unread.pop()
        {
            return Err(error);
        }
        let streams = directory::streams(files, &traces);
        let mut damage: Vec<String> = unread.iter().map(ToString::to_string).collect();
        damage.extend(broken);
        for t in &traces {
            let name = if t.name.is_empty() { String::new() } else { format!("{}: ", t.name) };
            damage.extend(t.damage.iter().map(|d| format!("{name}{d}")));
        }
        let mut ctf = Ctf { name, traces, streams, times: Times::Clock, damage, classes };
        ctf.read_anchors();
        ctf.check_origins()?;
        ctf.set_times(if ctf.one_clock() { Times::Clock } else { Times::Real });
        Ok(ctf)
    }

    /// A trace whose packets are not in files: they are handed to a [`PacketReader`].
    pub fn in_memory(name: &str, metadata: Metadata) -> Result<Ctf, CtfReadError> {
        let fail = |what: compile::CompileError| CtfReadError::Types {
            path: name.to_owned(),
            what: what.to_string(),
        };
        let trace = trace::compile(metadata, String::new(), 0).map_err(fail)?;
        let mut classes = Vec::new();
        for (k, kind) in trace.metadata.streams.iter().enumerate() {
            classes.extend((0..kind.events.len()).map(|e| (0, k as u32, e as u32)));
        }
        let damage = trace.damage.clone();
        let (name, traces, streams) = (name.to_owned(), vec![trace], Vec::new());
        Ok(Ctf { name, traces, streams, times: Times::Clock, damage, classes })
    }

    /// Name of the directory in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The traces.
    pub fn traces(&self) -> &[Trace] {
        &self.traces
    }

    /// The files with events, and the place of each one's trace.
    pub fn files(&self) -> impl Iterator<Item = (&Path, usize)> {
        self.streams.iter().flatten().map(|p| (p.path.as_path(), p.trace))
    }

    /// Time base: the clock's own if there is only one.
    pub fn times(&self) -> Times {
        self.times
    }

    /// Damage outside of the streams.
    pub fn damage(&self) -> &[String] {
        &self.damage
    }

    /// Parts of the metadata that are ignored.
    pub fn remarks(&self) -> impl Iterator<Item = &str> {
        self.traces.iter().flat_map(|t| t.remarks.iter().map(String::as_str))
    }

    /// Number of event classes, over all traces.
    pub fn class_count(&self) -> usize {
        self.classes.len()
    }

    /// A kind of event by its place.
    pub fn class(&self, number: u32) -> Option<Class<'_>> {
        let (trace, kind, event) = *self.classes.get(number as usize)?;
        let of = self.traces.get(trace as usize)?;
        let stream = of.metadata.streams.get(kind as usize)?;
        let programs = &of.streams.get(kind as usize)?.programs;
        let program = programs.events.get(event as usize)?.as_ref().ok();
        let event = stream.events.get(event as usize)?;
        Some(Class { trace: trace as usize, stream: stream.id, event, program })
    }
}

/// Directories that were meant to be traces and are none, with the reasons.
pub(crate) fn unreadable_traces(directory: &Path) -> Vec<String> {
    let broken = directory::traces(directory).broken;
    broken.iter().map(|(path, why)| format!("{}: {why}", path.display())).collect()
}

/// Why a directory that holds no readable trace was meant to be one; nothing if it was not.
pub(crate) fn why_unreadable(directory: &Path) -> Option<String> {
    unreadable_traces(directory).into_iter().next()
}

/// Whether a file is the metadata of a trace by its name and text.
pub(crate) fn is_metadata_file(path: &Path) -> bool {
    metadata::is_metadata_file(path)
}

/// Whether a file begins as the metadata of a trace do.
pub(crate) fn is_metadata(begin: &[u8]) -> bool {
    metadata::is_metadata(begin)
}
