//! Intervals of tasks as they end: by cause, by stack and waker, in the row of the task.

use super::cause::OffCpuCause;
use super::count::OffCpuCounting;
use super::stack_store::StackNode;
use super::task_slot::PendingWait;
use crate::tasks::{SwitchOut, SwitchOutState, TaskId, Wait, WaitCause};

/// Combinations of cause, stack and waker; more lose waker and stack.
const MAX_CELLS: usize = 1 << 17;

/// State of a task in an interval.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TaskActivity {
    /// It runs on this CPU.
    Running(u32),
    /// It waits; the state in which it left its CPU, where that was seen.
    Waiting(OffCpuCause, Option<SwitchOutState>),
}

/// Certainty of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntervalCertainty {
    /// Begin and end were seen.
    Seen,
    /// Events were lost in it, or a switch is missing: the task may have done something else.
    Uncertain,
    /// A first wait: the task may have run unseen if switches turn out to be missing.
    Undecided,
    /// It had not ended when the recording did.
    Open,
}

/// An interval of a task, as it is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskInterval {
    pub(crate) task: TaskId,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) activity: TaskActivity,
    pub(crate) certainty: IntervalCertainty,
}

impl OffCpuCounting<'_> {
    /// Keeps a run that ends, where intervals are wanted.
    pub(super) fn keep_run(&mut self, out: &SwitchOut, (from, to): (u64, u64), cpu: u32) {
        let Some(kept) = &mut self.intervals else { return };
        let certainty = certainty_of(out.touches_loss);
        let activity = TaskActivity::Running(cpu);
        kept.push(TaskInterval { task: out.task, from, to, activity, certainty });
    }

    /// Keeps a wait, where intervals are wanted.
    fn keep_wait(
        &mut self,
        task: TaskId,
        (cause, state): (OffCpuCause, Option<SwitchOutState>),
        (from, to): (u64, u64),
        certainty: IntervalCertainty,
    ) {
        let Some(kept) = &mut self.intervals else { return };
        let activity = TaskActivity::Waiting(cause, state);
        kept.push(TaskInterval { task, from, to, activity, certainty });
    }

    /// The part of an interval that is selected.
    pub(super) fn part(&self, from: u64, to: u64, cpu: u32) -> Option<(u64, u64)> {
        let selection = self.config.selection;
        selection.cut(from, to).filter(|(from, to)| from <= to && selection.wants_cpu(cpu))
    }

    pub(super) fn see(&mut self, task: TaskId, time: u64) {
        if self.config.selection.wants_time(time)
            && let Some(slot) = self.slot(task)
        {
            slot.see(time);
        }
    }

    pub(super) fn count(
        &mut self,
        task: TaskId,
        cause: OffCpuCause,
        (from, to): (u64, u64),
        pending: Option<&PendingWait>,
        certainty: IntervalCertainty,
    ) {
        let nanos = to - from;
        let state = pending.map(|p| p.state);
        self.keep_wait(task, (cause, state), (from, to), certainty);
        let is_uncertain = certainty == IntervalCertainty::Uncertain;
        let Some(slot) = self.slot(task) else { return };
        let row = &mut slot.row;
        let sum = match (is_uncertain, cause.is_runnable()) {
            (true, _) => &mut row.uncertain,
            (false, true) => &mut row.waiting,
            (false, false) => &mut row.blocked,
        };
        *sum = sum.saturating_add(nanos);
        slot.see(from);
        slot.see(to);
        if certainty == IntervalCertainty::Undecided {
            return;
        }
        self.count_cause(cause, (from, to), is_uncertain);
        if is_uncertain {
            return;
        }
        // A preemption has no waker.
        let waker = pending.and_then(|p| p.waker).filter(|_| !cause.has_no_waker());
        let mut key = (cause, pending.and_then(|p| p.stack), waker);
        if self.cells.len() >= MAX_CELLS && !self.cells.contains_key(&key) {
            self.merged += 1;
            key = (cause, None, None);
        }
        self.cells.entry(key).or_default().add(nanos);
        if self.config.by_task {
            self.count_of_task(task, (key.0, key.1), nanos);
        }
    }

    /// Counts a wait among those of its cause.
    pub(super) fn count_cause(
        &mut self,
        cause: OffCpuCause,
        (from, to): (u64, u64),
        is_uncertain: bool,
    ) {
        let Some(stats) = self.causes.get_mut(cause as usize) else { return };
        if is_uncertain {
            stats.uncertain.0 += 1;
            stats.uncertain.1 = stats.uncertain.1.saturating_add(to - from);
        } else {
            stats.waits.add(to - from, from);
        }
    }

    /// Counts a wait in the row of its task, where that is wanted.
    fn count_of_task(&mut self, task: TaskId, key: (OffCpuCause, Option<StackNode>), nanos: u64) {
        let is_full = self.task_cells >= MAX_CELLS;
        let Some(slot) = self.slot(task) else { return };
        let waits = &mut slot.row.waits;
        let merged = is_full && !waits.contains_key(&key);
        let known = waits.len();
        waits.entry(if merged { (key.0, None) } else { key }).or_default().add(nanos);
        let more = waits.len() - known;
        self.task_cells += more;
        self.merged += u64::from(merged);
    }

    /// Counts what is known of a wait whose end is not in the recording: the block until the
    /// wake-up. Answers the rest of it.
    fn end_unseen(&mut self, id: TaskId) -> Option<(OffCpuCause, u64)> {
        let slot = self.slot(id)?;
        let runnable_since = slot.runnable_since.take();
        let Some(pending) = slot.pending.take() else { return runnable_since };
        let Some(runnable) = pending.runnable() else { return Some((pending.cause, pending.left)) };
        if let Some((from, to)) = self.config.selection.cut(pending.left, runnable)
            && to > from
        {
            let touches = self.losses.touches(from, to);
            self.count(id, pending.cause, (from, to), Some(&pending), certainty_of(touches));
        }
        let is_preempted = pending.state.is_runnable();
        let cause = if is_preempted { pending.cause } else { OffCpuCause::Woken };
        Some((cause, runnable))
    }

    /// The task leaves a CPU that it was not seen to get: it waited and ran meanwhile.
    pub(super) fn run_unseen(&mut self, id: TaskId, time: u64) {
        let Some((cause, from)) = self.end_unseen(id) else { return };
        if let Some((from, to)) = self.config.selection.cut(from, time).filter(|(f, t)| t > f) {
            self.count(id, cause, (from, to), None, IntervalCertainty::Uncertain);
        }
    }

    /// Counts a wait that had not ended when the recording did.
    pub(super) fn leave_open(&mut self, id: TaskId, end: u64) {
        let pending = self.slot(id).and_then(|slot| slot.pending);
        let (stack, state) = (pending.and_then(|p| p.stack), pending.map(|p| p.state));
        let Some((cause, from)) = self.end_unseen(id) else { return };
        let cause = self.stacks.cause_at_end(cause, stack, end.saturating_sub(from));
        let part = self.config.selection.cut(from, end);
        if let Some(part) = part.filter(|(from, to)| to > from) {
            self.keep_wait(id, (cause, state), part, IntervalCertainty::Open);
        }
        if let Some((from, to)) = part.filter(|(from, to)| self.config.by_task && to > from) {
            self.count_of_task(id, (cause, stack), to - from);
        }
        if let (Some((from, to)), Some(stats)) = (part, self.causes.get_mut(cause as usize))
            && to >= from
        {
            stats.open.0 += 1;
            stats.open.1 = stats.open.1.saturating_add(to - from);
        }
    }
}

pub(super) fn certainty_of(is_uncertain: bool) -> IntervalCertainty {
    if is_uncertain { IntervalCertainty::Uncertain } else { IntervalCertainty::Seen }
}

/// The parts of a wait: blocked, and waiting for a CPU.
pub(super) fn parts(
    wait: &Wait,
    cause: Option<OffCpuCause>,
) -> impl Iterator<Item = (OffCpuCause, u64, u64)> {
    let (left, end) = (wait.left, wait.ended);
    let runnable = wait.runnable.or(end);
    let blocked = left.zip(runnable).filter(|(l, runnable)| l.0 < *runnable);
    let blocked = blocked.map(|(l, to)| (cause.unwrap_or(OffCpuCause::Blocked), l.0, to));
    let why = match wait.cause {
        WaitCause::Preempted => cause.filter(|c| c.has_no_waker()).or(Some(OffCpuCause::Preempted)),
        WaitCause::Woken => Some(OffCpuCause::Woken),
        WaitCause::New => Some(OffCpuCause::New),
        WaitCause::Unknown => None,
    };
    // A wake-up that came before the first event of the task counts from where the task is known.
    let waiting = why.zip(wait.runnable).zip(end).filter(|((_, from), to)| from <= to);
    let waiting = waiting.map(|((why, from), to)| (why, from, to));
    blocked.into_iter().chain(waiting)
}
