//! How events of CTF traces are printed: laid out as those of a perf.data, or as the
//! kernel's beside those.

mod batch;
mod header;
mod line;
mod plan;

pub(super) use batch::Batch;
pub(super) use header::text as header;
pub(super) use line::{Printer, note};
