//! System calls with their arguments, results and durations, in strace's words.
//!
//! [`numbers`](syscall_number) and `errno` name calls and errors, `arguments` and `flags` say
//! what an argument is, `details` is what was found out about arguments beside their numbers,
//! `memory` is what they point to, `lines` pairs a call's entry with its exit, `summary` counts,
//! `waits` keeps the slowest and what they waited for. [`strace`] writes calls whose task stands still.

mod arguments;
mod classes;
mod descriptor_calls;
mod descriptor_changes;
mod details;
mod errno;
mod flags;
mod lines;
mod memory;
mod numbers;
mod recorded_arguments;
pub mod strace;
mod summary;
mod waits;

pub use arguments::CallDescriptions;
pub use classes::{syscall_class, syscall_classes};
pub use details::{CallMemory, TaskInspector};
pub use errno::errno_name;
pub use lines::{SampledCall, SyscallFormats, SyscallLines, SyscallStyle};
pub use numbers::{
    COMPAT_CALLS, SyscallNames, all_syscalls, compat_numbers, near_syscalls, syscall_name,
    syscall_names, syscall_number, syscalls_matching,
};
pub use recorded_arguments::slowest_arguments;
pub use summary::{SummaryGrouping, SummaryStyle};
pub use waits::{SlowestCall, WaitFormats};
