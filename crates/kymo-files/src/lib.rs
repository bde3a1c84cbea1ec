//! Readers and writers of trace formats: perf.data in [`perfdata`], trace.dat in [`tracedat`], CTF
//! in [`ctf`], each with `read` and `write` that mirror each other; [`RecordingFormat`]
//! distinguishes them by their first bytes. [`Timeline`] puts recordings of the kernel and of
//! programs on one time. [`perf_config`] is perf's configuration file; [`stack_file`] are profiles
//! of pprof and folded stacks.
//!
//! Nothing here interprets what the records mean: they are handed on as bytes with their event and
//! time.
#![forbid(unsafe_code)]

pub mod ctf;
mod damage;
mod machine;
mod merge_heap;
pub mod perf_config;
pub mod perfdata;
mod read_tally;
mod recording_bytes;
mod recording_format;
pub mod stack_file;
mod text;
mod timeline;
pub mod tracedat;

pub use machine::Machine;
pub use read_tally::bytes_read;
pub use recording_bytes::RecordingBytes;
pub use recording_format::RecordingFormat;
pub use timeline::{Moment, Stats, Timeline, TimelineError, TimelineSelect, TimelineWalk};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ExamplesOfReadme;
