//! Locks that tasks wait for: those of the kernel by `lock:contention_begin` and
//! `lock:contention_end`, those of programs by system calls of futexes.

mod answers;
mod caller;
mod contention;
mod futex;
mod lock_row;
mod lockdep;
mod notes;
mod wait_pairs;

pub(crate) use answers::schemas;
pub use contention::{ContentionConfig, ContentionTable, LockGroup, USUAL_STACK, count_contention};
pub use futex::{FUTEX_EVENTS, FutexRow, FutexTable, count_futexes};
pub use lock_row::{LockCaller, LockFrame, LockRow, lock_type};
pub use lockdep::count_lockdep;
pub use notes::{contention_notes, futex_notes};
pub use wait_pairs::{LockWaker, WaitCell};

/// Events of waits for locks of the kernel.
pub const CONTENTION_EVENTS: [&str; 2] = ["lock:contention_begin", "lock:contention_end"];

/// Event that names the waker of a task that sleeps for a lock.
pub const RELEASE_EVENT: &str = "sched:sched_waking";

/// Events that kernels with lock debugging (lockdep) have beside.
pub const LOCKDEP_EVENTS: [&str; 4] =
    ["lock:lock_acquire", "lock:lock_acquired", "lock:lock_contended", "lock:lock_release"];

/// Events that locks were counted of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockEvents {
    /// [`CONTENTION_EVENTS`]: waits alone.
    #[default]
    Contention,
    /// [`LOCKDEP_EVENTS`]: every lock that was taken.
    Lockdep,
}
