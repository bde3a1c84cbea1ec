//! Counts: causes, stacks with their wakers, tasks.

use rustc_hash::FxHashMap;

use crate::tasks::{DelayStats, SchedRead, WakeupContext};

use super::cause::OffCpuCause;
use super::stack_store::{StackNode, StackStore};

/// Number of a waker with its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WakerId(pub u32);

/// Cause, stack and waker.
pub type CellKey = (OffCpuCause, Option<StackNode>, Option<WakerId>);

/// Waits of a task by cause and stack.
pub type TaskWaits = FxHashMap<(OffCpuCause, Option<StackNode>), OffCpuCell>;

/// Task or interrupt that ends waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WakerInfo {
    /// Name of the task that ran there; empty for an interrupt.
    pub comm: Vec<u8>,
    /// Context of the wake-up.
    pub context: WakeupContext,
    /// Its stack.
    pub stack: Option<StackNode>,
}

/// Waits of one cause.
#[derive(Clone, Debug, Default)]
pub struct CauseStats {
    /// Those that are complete, and in which nothing was lost.
    pub waits: DelayStats,
    /// Number of those in which events were lost, or whose end was not seen, and their
    /// nanoseconds.
    pub uncertain: (u64, u64),
    /// Number of those that had not ended when the recording did, and their nanoseconds to
    /// its end.
    pub open: (u64, u64),
}

impl CauseStats {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.waits.count + self.uncertain.0 + self.open.0 == 0
    }

    /// Takes in those of another task.
    pub(super) fn merge(&mut self, other: &CauseStats) {
        let sum = |a: (u64, u64), b: (u64, u64)| (a.0 + b.0, a.1.saturating_add(b.1));
        self.waits.merge(&other.waits);
        self.uncertain = sum(self.uncertain, other.uncertain);
        self.open = sum(self.open, other.open);
    }
}

/// Waits of one cause in one stack that one waker's stack ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffCpuCell {
    /// Number of them.
    pub count: u64,
    /// Nanoseconds together.
    pub total: u64,
    /// The longest.
    pub max: u64,
}

/// A task.
#[derive(Clone, Debug, Default)]
pub struct OffCpuRow {
    /// Name.
    pub comm: Vec<u8>,
    /// Thread.
    pub tid: u32,
    /// Its process, where known.
    pub pid: Option<u32>,
    /// Number of tasks: one, but in the row of those there was no room for.
    pub tasks: u64,
    /// Nanoseconds from its first to its last moment in the recording.
    pub wall: u64,
    /// Nanoseconds on a CPU.
    pub running: u64,
    /// Nanoseconds that it waited for a CPU.
    pub waiting: u64,
    /// Nanoseconds that it was blocked.
    pub blocked: u64,
    /// Nanoseconds of runs and waits in which events were lost, or that cannot be split because a
    /// switch is missing.
    pub uncertain: u64,
    /// Nanoseconds that nothing accounts for.
    pub missing: u64,
    /// Its waits by cause and stack, where these are asked for: those in which nothing was
    /// lost, and those that had not ended when the recording did.
    pub waits: TaskWaits,
}

impl OffCpuCell {
    /// Counts a wait.
    pub(super) fn add(&mut self, nanos: u64) {
        self.count += 1;
        self.total = self.total.saturating_add(nanos);
        self.max = self.max.max(nanos);
    }

    /// Takes in the numbers of another one.
    pub(super) fn merge(&mut self, other: &OffCpuCell) {
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.max = self.max.max(other.max);
    }
}

impl OffCpuRow {
    /// Takes in the numbers of another row.
    pub(super) fn merge(&mut self, other: &OffCpuRow) {
        self.tasks += other.tasks;
        self.wall = self.wall.saturating_add(other.wall);
        self.running = self.running.saturating_add(other.running);
        self.waiting = self.waiting.saturating_add(other.waiting);
        self.blocked = self.blocked.saturating_add(other.blocked);
        self.uncertain = self.uncertain.saturating_add(other.uncertain);
        self.missing = self.missing.saturating_add(other.missing);
        for (key, other) in &other.waits {
            self.waits.entry(*key).or_default().merge(other);
        }
    }

    /// Nanoseconds that are accounted for.
    pub fn sum(&self) -> u64 {
        let all = [self.running, self.waiting, self.blocked, self.uncertain];
        all.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }
}

/// The longest wait.
#[derive(Clone, Debug)]
pub struct LongestWait {
    /// Cause.
    pub cause: OffCpuCause,
    /// Name of the task.
    pub comm: Vec<u8>,
    /// The task.
    pub tid: u32,
    /// Time at which it began.
    pub from: u64,
    /// Time at which it ended.
    pub to: u64,
}

/// Waits by cause, stack and task.
#[derive(Debug)]
pub struct OffCpuTable {
    /// By cause, in the order of [`OffCpuCause::ALL`].
    pub causes: Vec<(OffCpuCause, CauseStats)>,
    /// Waits by cause, stack and waker, the largest total first.
    pub cells: Vec<(CellKey, OffCpuCell)>,
    /// Tasks, the longest off CPU first.
    pub rows: Vec<OffCpuRow>,
    /// All tasks together.
    pub total: OffCpuRow,
    /// The longest wait of each cause that has any, the longest first.
    pub longest: Vec<LongestWait>,
    /// The stacks.
    pub stacks: StackStore,
    /// The wakers.
    pub wakers: Vec<WakerInfo>,
    /// Switches away from selected tasks, and how many of them have a stack.
    pub switches: (u64, u64),
    /// Waits that began before the recording, or unseen.
    pub no_begin: u64,
    /// Waits in progress at the start of a live capture, counted from then on.
    pub began_before: u64,
    /// Tasks whose times do not add up to those from their first to their last moment.
    pub unbalanced: u64,
    /// Ended tasks that are in one row together.
    pub crowded: u64,
    /// Waits no longer distinguished by stack and waker.
    pub merged: u64,
    /// Scheduler events that were read.
    pub read: SchedRead,
}

impl OffCpuTable {
    /// A waker.
    pub fn waker(&self, id: WakerId) -> Option<&WakerInfo> {
        self.wakers.get(id.0 as usize)
    }
}
