//! Events of a trace.dat as `trace-cmd report` lays them out, or as JSON lines.

mod batch;
mod header;
mod line;

pub(crate) use batch::{TraceCmdBatch, TraceCmdFeed};
pub use header::{trace_cmd_cpus, trace_cmd_header};
pub use line::TraceCmdOptions;
pub(crate) use line::time as write_time;
pub(crate) use line::{TraceCmdRenderer, TraceCmdStarts, trace_cmd_notes};
