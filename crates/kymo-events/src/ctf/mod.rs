//! Events of CTF traces: the task an event belongs to, and its values as text and JSON.

mod kernel_functions;
mod task;
mod value_text;

pub(crate) use kernel_functions::KernelFunctions;
pub use task::{EventTask, TraceOwners};
pub use value_text::{ValueJson, ValueText, quoted, write_number, write_printable};
