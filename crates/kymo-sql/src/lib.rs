//! Recordings as tables, for SQL ([`Recordings::database`]) and Parquet.
//!
//! ```text
//! RecordedEvent ─ utids, stacks, spans ─► TableBuilder ─► ColumnTable ─► kymo-sqlite | kymo-parquet
//!               ─ timelines ─► slices (depth, parent), counters ──────┘
//! answers of kymo-analysis ─► cells ──────────────────────────┘
//! ```
//!
//! Tables have the names and columns of Perfetto where it has them (`schema.rs`). A recording is
//! read when a query first needs a table, once for all tables and columns that the query needs.
#![forbid(unsafe_code)]

mod answers;
mod build;
mod clocks;
mod export;
mod notes;
mod read;
mod recordings;
mod reference;
mod schema;
mod slices;
mod stacks;
mod threads;
mod timelines;
mod trace_marker;
mod utc;

pub use answers::{AnswerWords, CallName};
pub use export::ExportedTable;
pub use recordings::{Recordings, RecordingsError, RecordingsOptions, TableRows};
pub use reference::TableReference;
pub use schema::{TableView, VIEWS};
pub use utc::utc_text;
