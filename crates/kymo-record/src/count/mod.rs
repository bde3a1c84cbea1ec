//! Counting events: of a command, of tasks, of cgroups, of the machine. [`count`] does it
//! by its [`CountOptions`] and gives readings to a [`CountSink`].
//!
//! `counters.rs` opens (as recordings do, by `open/`) and reads, `rows.rs` sums and scales,
//! `repeat.rs` makes mean and spread of several runs, `metrics.rs` derives numbers, `recording.rs`
//! writes counts into a perf.data and `report.rs` reads them from one, `session.rs` runs the
//! command and keeps the time, `trust.rs` warns about what can make the result wrong. Nothing here
//! prints.

mod counters;
mod error;
mod metrics;
mod options;
mod recording;
mod repeat;
mod report;
mod rows;
mod session;
mod trust;

pub use counters::Count;
pub use error::CountError;
pub use options::{CountOptions, CountTarget, CountedEvent, StartDelay, default_events};
pub use recording::CountFileOptions;
pub use repeat::Spread;
pub use report::{CountFileError, CountFileFacts, CountFileReading, read_counts};
pub use session::{CountReading, CountResult, CountSink, CountSummary, Repetition, count};

pub use crate::open::Cgroup;
