//! First waits of tasks: those of a task that was not seen to leave a CPU before.
//!
//! Where a recording has all switches, such a wait is what it seems. Where switches are missing
//! (of other tasks, say), the task may have run unseen in it. Which of both holds is known when
//! the first switch does not fit, so the first waits are counted when that is decided.

use super::cause::OffCpuCause;
use super::count::OffCpuCounting;
use super::intervals::IntervalCertainty;
use crate::tasks::{SchedTask, TaskId};

/// First waits that are kept: once this many were kept, no switch is taken to be missing.
const MOST: usize = 1 << 12;

/// A first wait, which is in the row of its task as waiting.
#[derive(Clone, Debug)]
pub(super) struct FirstWait {
    owner: WaitOwner,
    comm: Vec<u8>,
    tid: u32,
    cause: OffCpuCause,
    from: u64,
    to: u64,
}

/// Row that a wait is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitOwner {
    Live(TaskId),
    /// By place among the tasks that ended.
    Ended(usize),
    /// It has no row of its own.
    Crowded,
}

/// First waits until it is known whether switches are missing.
#[derive(Debug, Default)]
pub(super) enum FirstWaits {
    #[default]
    None,
    Undecided(Vec<FirstWait>),
    /// Switches are missing.
    Partial,
    /// No switch seems to be missing.
    Whole,
}

impl FirstWaits {
    /// Certainty of a first wait that ends now.
    pub(super) fn certainty(&self) -> IntervalCertainty {
        match self {
            FirstWaits::None | FirstWaits::Undecided(_) => IntervalCertainty::Undecided,
            FirstWaits::Partial => IntervalCertainty::Uncertain,
            FirstWaits::Whole => IntervalCertainty::Seen,
        }
    }
}

impl OffCpuCounting<'_> {
    /// Keeps a first wait until it is known what it is; it is in the row of its task.
    pub(super) fn keep_first(
        &mut self,
        (id, task): (TaskId, &SchedTask),
        (cause, from, to): (OffCpuCause, u64, u64),
    ) {
        if let FirstWaits::None = self.first_waits {
            self.first_waits = FirstWaits::Undecided(Vec::new());
        }
        let FirstWaits::Undecided(waits) = &mut self.first_waits else { return };
        let (owner, comm, tid) = (WaitOwner::Live(id), task.comm().to_vec(), task.tid);
        waits.push(FirstWait { owner, comm, tid, cause, from, to });
        if waits.len() >= MOST {
            self.decide(false);
        }
    }

    /// A task has ended: its row is at `place` among those of tasks that ended, if it has one.
    pub(super) fn move_first(&mut self, id: TaskId, place: Option<usize>) {
        let FirstWaits::Undecided(waits) = &mut self.first_waits else { return };
        let owner = place.map_or(WaitOwner::Crowded, WaitOwner::Ended);
        waits.iter_mut().filter(|w| w.owner == WaitOwner::Live(id)).for_each(|w| w.owner = owner);
    }

    /// Counts the first waits; those that end later are known to be the same.
    #[cold]
    pub(super) fn decide(&mut self, is_partial: bool) {
        let known = if is_partial { FirstWaits::Partial } else { FirstWaits::Whole };
        let waits = match std::mem::replace(&mut self.first_waits, known) {
            FirstWaits::None => return,
            FirstWaits::Undecided(waits) => waits,
            decided => {
                self.first_waits = decided;
                return;
            }
        };
        let by_task = self.config.by_task;
        for FirstWait { owner, comm, tid, cause, from, to } in waits {
            let nanos = to - from;
            let row = match owner {
                WaitOwner::Live(id) => self.slot(id).map(|slot| &mut slot.row),
                WaitOwner::Ended(place) => self.ended.get_mut(place),
                WaitOwner::Crowded => Some(&mut self.crowded),
            };
            if is_partial {
                if let Some(row) = row {
                    row.waiting = row.waiting.saturating_sub(nanos);
                    row.uncertain = row.uncertain.saturating_add(nanos);
                }
                self.count_cause(cause, (from, to), true);
                continue;
            }
            let has_row = owner != WaitOwner::Crowded;
            if let Some(row) = row.filter(|_| by_task && has_row) {
                let known = row.waits.len();
                row.waits.entry((cause, None)).or_default().add(nanos);
                let more = row.waits.len() - known;
                self.task_cells += more;
            }
            self.count_cause(cause, (from, to), false);
            self.cells.entry((cause, None, None)).or_default().add(nanos);
            if !cause.is_idle() {
                self.keep_longest((cause, from, to), (&comm, tid));
            }
        }
    }
}
