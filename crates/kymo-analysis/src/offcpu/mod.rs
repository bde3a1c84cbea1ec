//! Off-CPU analysis: waits between two runs by cause and stack, with the stack of the waker.
//!
//! ```text
//! sched_switch + stack ─► stack, cause ─┐
//! sched_waking + stack ─► waker ────────┴► wait (begin, runnable, end) ─► cells, tasks, causes
//! ```
//!
//! A wait of a task that blocked has two parts: until it could run it is blocked, from there on
//! it waits for a CPU.

mod answers;
mod cause;
mod count;
mod first_waits;
mod futex_use;
mod intervals;
mod notes;
mod recorded_waits;
mod stack_store;
mod switch_records;
mod table;
mod task_slot;
mod task_times;
mod wait_path;

pub(crate) use answers::schemas;
pub use cause::{OffCpuCause, StackFacts, ThrottleEvidence};
pub(crate) use count::OffCpuReader;
pub use count::{OffCpuConfig, count_off_cpu};
pub use futex_use::FutexUse;
pub(crate) use intervals::{IntervalCertainty, TaskActivity, TaskInterval};
pub use notes::off_cpu_notes;
pub use recorded_waits::{FUTEX_CALL, RecordedWaits, WaitScope, WaitTable, count_recorded_waits};
pub use stack_store::{StackNode, StackRole, StackStore};
pub use switch_records::{count_switch_records, prefers_switch_records};
pub use table::{
    CauseStats, CellKey, LongestWait, OffCpuCell, OffCpuRow, OffCpuTable, TaskWaits, WakerId,
    WakerInfo,
};
pub use task_times::{TaskTime, TaskTimes, TaskTimesError, count_task_times, has_switch_records};
pub use wait_path::WaitPath;

/// Events that are recorded for it, the first ones of which it cannot do without.
pub const OFF_CPU_EVENTS: [&str; 5] = [
    "sched:sched_switch",
    "sched:sched_waking",
    "sched:sched_wakeup",
    "sched:sched_wakeup_new",
    "sched:sched_process_fork",
];
