//! The report of a profile: as text laid out like perf's `--stdio`, and as JSON.

mod columns;
mod diff_table;
mod hierarchy;
mod json;
mod text;

pub use diff_table::{DiffComputation, DiffTable, KeyedEntries};
pub use json::write_json;
pub use text::ReportWriter;
