//! System calls by call and task: numbers, durations, errors, and the waits of the slowest; out of
//! events of any recording.
//!
//! ```text
//! RecordedEvent ─ SyscallDecoder ─► SyscallEvent ─┐
//!               ─ SchedDecoder ─► TaskMachine ────┴► SyscallCounting ─► SyscallTable
//! ```

mod answers;
mod count;
mod decode;
mod notes;
mod stats;
mod thread_abi;

pub use answers::CallNames;
pub(crate) use answers::schemas;
pub use count::{
    CallBlock, CallWaits, SlowCall, SyscallConfig, SyscallTable, SyscallTask, cause_of_call,
    count_syscalls,
};
pub use decode::{COMPAT_CALLS, CallArguments, CallId, CallInfo, SyscallDecoder, SyscallEvent};
pub use notes::syscall_notes;
pub use stats::SyscallStats;

/// Events that are recorded for it.
pub const SYSCALL_EVENTS: [&str; 2] = ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"];

/// Events that tell what calls waited for.
pub const SYSCALL_WAIT_EVENTS: [&str; 3] =
    ["sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new"];
