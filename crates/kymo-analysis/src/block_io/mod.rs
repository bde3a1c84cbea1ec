//! Requests to block devices: how long they were queued, how long the device took, for whom, and
//! who waited for them; out of events of any recording.
//!
//! ```text
//! RecordedEvent ─ BlockDecoder ─► BlockEvent ─ BlockMachine ─► BlockRequest ─► tables, lines
//!               ─ SchedDecoder ─► TaskMachine ─► waits that a completion ended
//! ```

mod decode;
mod machine;
mod notes;
mod read;
mod table;

pub use decode::{BlockDecoder, BlockDevice, BlockEvent, BlockOp, BlockPhase};
pub use machine::{BlockCounts, BlockMachine, BlockRequest};
pub use notes::block_notes;
pub use read::{BlockConfig, BlockRead, BlockWait, read_block_io};
pub use table::{BlockProcess, BlockRow, BlockStats, BlockTable, BlockWaiter};

/// Events that it cannot do without.
pub const BLOCK_EVENTS: [&str; 2] = ["block:block_rq_issue", "block:block_rq_complete"];

/// Events that tell more: queues, merges, who waited.
pub const BLOCK_MORE_EVENTS: [&str; 7] = [
    "block:block_rq_insert",
    "block:block_rq_requeue",
    "block:block_rq_merge",
    "block:block_getrq",
    "sched:sched_switch",
    "sched:sched_waking",
    "sched:sched_wakeup_new",
];
