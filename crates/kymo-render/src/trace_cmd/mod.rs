//! Events of the kernel's rings as `trace-cmd report` lays them out, or as JSON lines.

mod batch;
mod header;
mod kernel_line;
mod line;
mod open_function;
mod unrendered;

pub(crate) use batch::{TraceCmdBatch, TraceCmdFeed};
pub use header::{trace_cmd_cpus, trace_cmd_header};
pub(crate) use kernel_line::{KernelLine, TraceCmdStarts, write_lost_json, write_lost_text};
pub(crate) use line::{TraceCmdRenderer, trace_cmd_notes};
pub(crate) use open_function::OpenFunction;
pub(crate) use unrendered::Unrendered;

/// Form of the lines of a trace.dat.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceCmdOptions {
    /// Lines are JSON objects.
    pub json: bool,
    /// Lines have the flags of events.
    pub latency: bool,
    /// Times are in nanoseconds.
    pub ns: bool,
}
