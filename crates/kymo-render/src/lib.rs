//! Events and samples as lines of text and JSON, system calls as strace's words.
//!
//! [`perf_script`] renders the records of a perf.data as perf script does, [`trace_cmd`] the
//! events of a trace.dat as trace-cmd report does, [`ctf`] those of CTF traces, [`timeline`]
//! the last two merged; [`program_event`] those of programs, live and from files.
//! [`render_in_order`] has batches of events rendered by several threads
//! and their text put out in order. [`syscalls`] turns the entry and exit events of system
//! calls into one line a call.
//!
//! Nothing here reads files or the traced machine: what a renderer needs to know beside the
//! bytes of an event is given to it, or asked of the caller through a trait.
#![forbid(unsafe_code)]

pub mod ctf;
mod enum_names;
mod error;
mod event_lines;
mod number;
mod ordered_pool;
pub mod perf_ctf;
pub mod perf_script;
mod perf_trace;
pub mod program_event;
mod start_cache;
pub mod syscalls;
pub mod timeline;
pub mod trace_cmd;

pub use enum_names::{EnumNames, EnumValues};
pub use error::{FieldSpecError, RenderError};
pub use event_lines::EventLines;
pub use ordered_pool::{OrderedJob, OrderedWorker, render_in_order};
pub use perf_trace::PerfTraceOptions;
