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

/// What was read, and what could make a result of it wrong.
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

/// Where something in a stream is wrong, and what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} at offset {offset}: {what}")]
pub struct CtfDamage {
    /// The file, below the directory that was opened.
    pub file: String,
    /// Offset in it.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

/// A recording cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CtfReadError {
    #[error("{path}: {error}")]
    Io { path: String, error: std::io::Error },
    #[error("{path} is no CTF trace, and none is in it: there is no metadata")]
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

/// How the times of events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Nanoseconds of the clock itself, which all traces share; of `CLOCK_MONOTONIC` where
    /// the tracer tells how its ticks relate to that.
    Clock,
    /// Nanoseconds since 1970.
    Real,
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

    /// The same for several directories.
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
        let mut traces: Vec<Trace> = Vec::new();
        let (mut read, mut damage, mut classes) = (Vec::new(), Vec::new(), Vec::new());
        for directory in directories {
            let name = below(&directory);
            let trace = match trace::open(&directory, name.clone(), classes.len() as u32) {
                Ok(trace) => trace,
                // The others can still be read.
                Err(e) => {
                    damage.push((name, e));
                    continue;
                }
            };
            let of = traces.len() as u32;
            for (k, kind) in trace.metadata.streams.iter().enumerate() {
                classes.extend((0..kind.events.len()).map(|e| (of, k as u32, e as u32)));
            }
            traces.push(trace);
            read.push(directory);
        }
        if traces.is_empty()
            && let Some((_, error)) = damage.pop()
        {
            return Err(error);
        }
        let streams = directory::streams(&read, &traces);
        let mut damage: Vec<String> = damage.into_iter().map(|(_, e)| e.to_string()).collect();
        damage.extend(broken.iter().map(|(path, why)| format!("{}: {why}", below(path))));
        for t in &traces {
            let name = if t.name.is_empty() { String::new() } else { format!("{}: ", t.name) };
            damage.extend(t.damage.iter().map(|d| format!("{name}{d}")));
        }
        let names: Vec<String> = top.iter().map(|p| p.display().to_string()).collect();
        let name = names.join(", ");
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

    /// What the directory is called in messages.
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

    /// How times are counted: by the clock if there is only one.
    pub fn times(&self) -> Times {
        self.times
    }

    /// What was wrong outside of the streams.
    pub fn damage(&self) -> &[String] {
        &self.damage
    }

    /// What the metadata say that means nothing here.
    pub fn remarks(&self) -> impl Iterator<Item = &str> {
        self.traces.iter().flat_map(|t| t.remarks.iter().map(String::as_str))
    }

    /// How many kinds of events there are, over all traces.
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

/// Why a directory that holds no readable trace was meant to be one; nothing if it was not.
pub(crate) fn why_unreadable(directory: &Path) -> Option<String> {
    let found = directory::traces(directory);
    let (path, why) = found.broken.first()?;
    Some(format!("{}: {why}", path.display()))
}

/// Whether a file is the metadata of a trace by its name and text.
pub(crate) fn is_metadata_file(path: &Path) -> bool {
    metadata::is_metadata_file(path)
}

/// Whether a file begins as the metadata of a trace do.
pub(crate) fn is_metadata(begin: &[u8]) -> bool {
    metadata::is_metadata(begin)
}
