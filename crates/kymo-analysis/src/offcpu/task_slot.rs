//! State of a task while it lives.

use crate::tasks::SwitchOutState;

use super::cause::OffCpuCause;
use super::stack_store::StackNode;
use super::table::{OffCpuRow, WakerId};

/// A wait that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingWait {
    /// Time at which the task left its CPU.
    pub(super) left: u64,
    pub(super) state: SwitchOutState,
    pub(super) cause: OffCpuCause,
    pub(super) stack: Option<StackNode>,
    /// Time from which it could run, by the first wake-up.
    pub(super) woken: Option<u64>,
    pub(super) waker: Option<WakerId>,
}

impl PendingWait {
    /// Since when the task could run, as far as was seen.
    pub(super) fn runnable(&self) -> Option<u64> {
        // Who woke it while it still ran has no wake-up behind the switch.
        let early = self.woken.is_none() && self.waker.is_some();
        if self.state.is_runnable() || early { Some(self.left) } else { self.woken }
    }
}

/// A task.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskSlot {
    /// Its first and last moment.
    pub(super) seen: Option<(u64, u64)>,
    pub(super) row: OffCpuRow,
    pub(super) pending: Option<PendingWait>,
    /// Since when it can run, where it was not seen to leave a CPU.
    pub(super) runnable_since: Option<(OffCpuCause, u64)>,
    /// A `sched_waking` came since it ran.
    pub(super) waking: bool,
    /// Waker that came while it still ran.
    pub(super) early_waker: Option<WakerId>,
}

impl TaskSlot {
    /// Notes that the recording has the task.
    #[inline]
    pub(super) fn see(&mut self, time: u64) {
        let (first, last) = self.seen.unwrap_or((time, time));
        self.seen = Some((first.min(time), last.max(time)));
    }

    /// Its row, with what is missing in it.
    pub(super) fn finish(self) -> OffCpuRow {
        let wall = self.seen.map_or(0, |(first, last)| last - first);
        let missing = wall.abs_diff(self.row.sum());
        OffCpuRow { wall, missing, tasks: 1, ..self.row }
    }
}
