//! A row of waits for locks: of a caller, a lock, a task.

use std::sync::Arc;

use super::wait_pairs::WaitCell;
use crate::tasks::DelayStats;

/// Frame of a wait's stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockFrame {
    /// Address.
    pub ip: u64,
    /// Function that it is in, and how far from its begin.
    pub symbol: Option<(String, u64)>,
    /// Whether it is of the kernel.
    pub kernel: bool,
}

impl LockFrame {
    /// `function+0x12`.
    pub fn text(&self) -> String {
        match &self.symbol {
            Some((name, 0)) => name.clone(),
            Some((name, offset)) => format!("{name}+{offset:#x}"),
            None => format!("{:#x}", self.ip),
        }
    }
}

/// Waiter for a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockCaller {
    /// The first function that is no lock, with the distance from its begin.
    pub name: String,
    /// Addresses of the stack without locks.
    pub key: Arc<[u64]>,
    /// The stack, innermost first.
    pub frames: Vec<LockFrame>,
}

/// Waits for locks that count together.
#[derive(Clone, Debug, Default)]
pub struct LockRow {
    /// Address of the lock of its first wait.
    pub address: u64,
    /// Symbol at the address.
    pub symbol: Option<String>,
    /// `flags` of the first wait's `contention_begin`.
    pub flags: u64,
    /// First waiter.
    pub caller: LockCaller,
    /// Thread of the first wait.
    pub tid: u32,
    /// Its name.
    pub comm: Vec<u8>,
    /// Number of acquisitions; those after a wait alone, where only waits are recorded.
    pub acquired: u64,
    /// Waits that began.
    pub contended: u64,
    /// Waits that ended, in which nothing was lost.
    pub waits: DelayStats,
    /// The shortest of them.
    pub min: Option<u64>,
    /// Waits in which events were lost.
    pub uncertain: u64,
    /// Waits that had not ended when the recording did.
    pub open: u64,
    /// Waits by stack and waker, the largest total first, if the recording has wake-ups.
    pub cells: Vec<WaitCell>,
}

impl LockRow {
    /// Takes in a wait that ended.
    pub(super) fn add_wait(&mut self, nanos: u64, from: u64) {
        self.waits.add(nanos, from);
        self.min = Some(self.min.map_or(nanos, |min| min.min(nanos)));
    }
}

impl LockRow {
    /// Takes in what another row of the same name counts; stacks of waits stay apart.
    pub(super) fn merge(&mut self, row: &LockRow) {
        self.acquired += row.acquired;
        self.contended += row.contended;
        self.waits.merge(&row.waits);
        self.min = [self.min, row.min].into_iter().flatten().min();
        self.uncertain += row.uncertain;
        self.open += row.open;
        self.cells.extend_from_slice(&row.cells);
    }
}

/// Type of a lock, by `flags` of `contention_begin`, in perf's words.
pub fn lock_type(flags: u64) -> &'static str {
    // LCB_F_SPIN, READ, WRITE, RT, PERCPU, MUTEX.
    match flags & 0x3f {
        0 => "semaphore",
        0x01 => "spinlock",
        0x03 => "rwlock:R",
        0x05 => "rwlock:W",
        0x02 => "rwsem:R",
        0x04 => "rwsem:W",
        0x08 => "rt-mutex",
        0x0a => "rwlock-rt:R",
        0x0c => "rwlock-rt:W",
        0x12 => "pcpu-sem:R",
        0x14 => "pcpu-sem:W",
        0x20 | 0x21 => "mutex",
        _ => "unknown",
    }
}
