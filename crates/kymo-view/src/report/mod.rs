//! The report of a profile: as text laid out like perf's `--stdio`, and as JSON.

mod columns;
mod hierarchy;
mod json;
mod text;

pub use json::write_json;
pub use text::ReportWriter;
