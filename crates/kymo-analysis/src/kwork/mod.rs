//! Work of the kernel outside tasks: durations and latencies of interrupts, softirqs and work
//! items, and the tasks that they delay, from the events of any recording.
//!
//! ```text
//! RecordedEvent ─ KworkDecoder ─► KworkEvent ─ KworkMachine ─► KworkStep ─► tables, lines
//! ```

mod answers;
mod cpu_usage;
mod decode;
mod machine;
mod notes;
mod read;
mod table;

pub(crate) use answers::schemas;
pub use answers::{KworkTimes, is_kwork_named, kwork_line_columns};
pub use cpu_usage::{CpuShare, CpuUsage, TaskShare};
pub use decode::{KworkDecoder, KworkEvent, KworkKind, KworkPhase};
pub use machine::{KworkCounts, KworkInterval, KworkMachine, KworkStart, KworkStep};
pub use notes::kwork_notes;
pub use read::{KworkConfig, KworkLine, KworkRead, read_kwork};
pub use table::{DelayedTask, KworkRow, KworkTable};
