//! The walk backwards: from the end of a path through waits to their wakers.

use super::history::{RunHistory, TaskRun, WokenBy};
use super::path::{CriticalPath, PathKind, PathSegment, PathTaskId, StackPlace};
use super::wake_source::WakeSource;
use crate::losses::LossWindows;
use crate::offcpu::OffCpuCause;
use crate::tasks::{SwitchOutState, WaitCause, WakeupContext};

/// Wake-ups behind each other that are followed.
const MAX_DEPTH: u32 = 256;
/// Segments of a path; what is before them is left out.
const MAX_SEGMENTS: usize = 1 << 18;

/// Finds the critical path of a task between two times.
pub(super) fn find_path(
    history: &RunHistory,
    losses: &LossWindows,
    task: PathTaskId,
    (from, to): (u64, u64),
) -> CriticalPath {
    let mut walk = PathWalk { history, losses, segments: Vec::new() };
    walk.resolve(task, (from, to.max(from)), None, 0);
    let mut segments = walk.segments;
    segments.reverse();
    let left_out = segments.first().map_or(0, |s| s.from - from);
    CriticalPath { task, from, to: to.max(from), segments, left_out }
}

struct PathWalk<'h> {
    history: &'h RunHistory,
    losses: &'h LossWindows,
    /// From the end to the start.
    segments: Vec<PathSegment>,
}

impl PathWalk<'_> {
    fn is_full(&self) -> bool {
        self.segments.len() >= MAX_SEGMENTS
    }

    /// Adds what a task did between two times, from the end to the start. `ends` is the event with
    /// which it ended there.
    fn resolve(
        &mut self,
        task: PathTaskId,
        (from, to): (u64, u64),
        ends: Option<StackPlace>,
        depth: u32,
    ) {
        if depth == 0 || depth >= MAX_DEPTH || !self.history.items.has(task) {
            return self.resolve_task(task, (from, to), ends, depth);
        }
        let awake = self.history.awake_since(task, to);
        let item = self.history.items.last_of(task, (awake, to));
        if let Some(item) = item.filter(|i| i.queued.0 > from && i.queued.0 < to) {
            // Before its work was queued a worker did nothing for it.
            let (queued, cpu) = item.queued;
            self.resolve_task(task, (queued, to), ends, depth);
            let queuing = StackPlace { time: queued, cpu, is_switch: false };
            return match item.by {
                Some(by) => self.resolve(by, (from, queued), Some(queuing), depth + 1),
                None => {
                    let source = WakeSource::HardIrq;
                    self.add_idle(task, (from, queued), source, Some(queuing), depth);
                }
            };
        }
        self.resolve_task(task, (from, to), ends, depth);
    }

    fn resolve_task(
        &mut self,
        task: PathTaskId,
        (from, to): (u64, u64),
        ends: Option<StackPlace>,
        depth: u32,
    ) {
        let mut until = to;
        let mut ends = ends;
        // The run with this number is the next to look at; runs from it on begin at `until` or
        // later.
        let mut next = self.history.runs_before(task, until);
        while until > from && !self.is_full() {
            let before = next.checked_sub(1).and_then(|at| self.history.run_of(task, at));
            if let Some(run) = before.filter(|r| r.end.is_none_or(|end| end >= until)) {
                let (run, begin) = (*run, run.begin.unwrap_or(until).max(from).min(until));
                self.add_run(&run, (begin, until), ends, depth);
                (until, ends) = (begin, None);
                next -= 1;
                continue;
            }
            let wait = self.history.run_of(task, next).copied();
            let reached = match wait {
                Some(run) => self.resolve_wait(&run, next == 0, (from, until), depth),
                None => until,
            };
            let ran_until = before.and_then(|r| r.end).unwrap_or(from).clamp(from, reached);
            if reached > ran_until {
                // No event shows its state.
                let segment = self.segment((ran_until, reached), task, PathKind::Unknown, depth);
                self.add(segment);
            }
            until = ran_until;
            ends = wait.and_then(|r| r.left).map(|(time, cpu, _)| switch_at(time, cpu));
        }
    }

    /// Adds a run. If its start was not seen, the wait cannot be split: where its wake-up is known,
    /// the wait for a CPU, which was idle; else the block.
    fn add_run(&mut self, run: &TaskRun, span: (u64, u64), ends: Option<StackPlace>, depth: u32) {
        let is_blocked = run.is_unseen && run.woken.is_none() && run.begin == run.left.map(|l| l.0);
        let (kind, place) = match run.left.filter(|_| is_blocked) {
            Some((time, cpu, state)) => {
                let cause = OffCpuCause::of_state(state);
                (PathKind::Blocked(cause, WakeSource::Unseen), Some(switch_at(time, cpu)))
            }
            None => (PathKind::Running, ends),
        };
        let segment = self.segment(span, run.task, kind, depth);
        let is_unsplit = run.is_unseen;
        self.add(PathSegment { cpu: Some(run.cpu), place, is_unsplit, ..segment });
    }

    /// Adds the wait before a run as far as it is between two times; answers how far it reaches.
    /// `is_first`: the task did nothing before.
    fn resolve_wait(
        &mut self,
        run: &TaskRun,
        is_first: bool,
        (from, to): (u64, u64),
        depth: u32,
    ) -> u64 {
        let mut until = to;
        let left = run.left;
        let stack = left.map(|(time, cpu, _)| switch_at(time, cpu));
        let runnable = run.runnable.map(|t| t.max(from));
        if let Some(runnable) = runnable.filter(|t| *t < until) {
            let cause = match run.cause {
                WaitCause::New => OffCpuCause::New,
                WaitCause::Preempted => OffCpuCause::Preempted,
                WaitCause::Woken | WaitCause::Unknown => OffCpuCause::Woken,
            };
            // Of a task that was seen on no CPU, switches may not be recorded, as those of others.
            let never_ran = is_first && run.begin.is_none() && left.is_none();
            let is_unseen = never_ran && self.history.has_gap(run.cpu, (runnable, until));
            let kind = if is_unseen { PathKind::Unknown } else { PathKind::Waiting(cause) };
            let segment = self.segment((runnable, until), run.task, kind, depth);
            let instead = self.history.ran_on(run.cpu, (runnable, until), run.task);
            let instead = instead.filter(|_| !is_unseen);
            let cpu = Some(run.cpu);
            self.add(PathSegment { cpu, instead, place: stack, ..segment });
            until = runnable;
        }
        if run.is_idle && depth > 0 {
            // It had no work: what it did before is none of that which the path waited for.
            match run.woken.filter(|w| w.is_followed && w.task.is_some()) {
                Some(woken) => self.follow(&woken, (from, until), depth),
                None => {
                    let source = wake_source_of(run);
                    let wake = run.woken.map(|w| wake_up_at(&w));
                    self.add_idle(run.task, (from, until), source, wake, depth);
                }
            }
            return from;
        }
        let begin = match (left, run.cause, run.woken) {
            (Some((left, ..)), ..) => left.max(from),
            // It was not there before: its parent made it.
            (None, WaitCause::New, Some(woken)) => {
                self.follow(&woken, (from, until), depth);
                return from;
            }
            // It has slept since before the recording began.
            (None, WaitCause::Woken, Some(_)) if is_first && self.history.forgotten.is_none() => {
                from
            }
            _ => return until,
        };
        if until > begin && !self.is_full() {
            self.resolve_block(run, (begin, until), depth);
        }
        begin.min(until)
    }

    /// Adds a time in which a task was blocked.
    fn resolve_block(&mut self, run: &TaskRun, (from, to): (u64, u64), depth: u32) {
        if let Some(woken) = run.woken.filter(|w| w.is_followed && w.task.is_some())
            && depth < MAX_DEPTH
        {
            return self.follow(&woken, (from, to), depth);
        }
        let source = wake_source_of(run);
        let state = run.left.map_or(SwitchOutState::Blocked(b'S'), |l| l.2);
        let left = run.left.map(|l| l.0);
        let known = left.and_then(|left| self.history.cause_at_start(run.task, left));
        // The stacks tell more, later.
        let cause = known.unwrap_or(OffCpuCause::of_state(state));
        let segment = self.segment((from, to), run.task, PathKind::Blocked(cause, source), depth);
        let place = run.left.map(|(time, cpu, _)| switch_at(time, cpu));
        self.add(PathSegment {
            // That switch was before the recording.
            place: place.filter(|_| known.is_none()),
            wake_place: run.woken.map(|w| wake_up_at(&w)),
            ..segment
        });
    }

    /// Adds the time until an interrupt gave work to a kernel thread.
    fn add_idle(
        &mut self,
        task: PathTaskId,
        span: (u64, u64),
        source: WakeSource,
        wake_place: Option<StackPlace>,
        depth: u32,
    ) {
        let kind = PathKind::Blocked(OffCpuCause::IdleWorker, source);
        let segment = self.segment(span, task, kind, depth);
        self.add(PathSegment { wake_place, ..segment });
    }

    fn follow(&mut self, woken: &WokenBy, span: (u64, u64), depth: u32) {
        match woken.task.filter(|_| depth < MAX_DEPTH && woken.is_followed) {
            Some(waker) => {
                // At the end of a span that is cut it was not at the wake-up yet.
                let ends = (span.1 >= woken.time).then(|| wake_up_at(woken));
                self.resolve(waker, span, ends, depth + 1);
            }
            None => {
                let task = woken.task.unwrap_or(PathTaskId(u32::MAX));
                let segment = self.segment(span, task, PathKind::Unknown, depth);
                self.add(segment);
            }
        }
    }

    fn segment(
        &self,
        (from, to): (u64, u64),
        task: PathTaskId,
        kind: PathKind,
        depth: u32,
    ) -> PathSegment {
        PathSegment {
            from,
            to,
            task,
            kind,
            cpu: None,
            depth,
            instead: None,
            stack: None,
            line: None,
            touches_loss: self.losses.touches(from, to),
            is_unsplit: false,
            place: None,
            wake_place: None,
        }
    }

    fn add(&mut self, segment: PathSegment) {
        if segment.to > segment.from {
            self.segments.push(segment);
        }
    }
}

/// Returns the source of the wake-up that ended the block before a run.
fn wake_source_of(run: &TaskRun) -> WakeSource {
    match run.woken {
        Some(woken) => WakeSource::of(woken.context, &[], true),
        None if run.begin.is_none() => WakeSource::NotEnded,
        None => WakeSource::Unseen,
    }
}

fn switch_at(time: u64, cpu: u32) -> StackPlace {
    StackPlace { time, cpu, is_switch: true }
}

fn wake_up_at(woken: &WokenBy) -> StackPlace {
    StackPlace { time: woken.time, cpu: woken.cpu, is_switch: false }
}

/// Whether a wake-up's context alone says that the task that ran there woke.
pub(super) fn is_of_task(context: WakeupContext) -> bool {
    context == WakeupContext::Task
}
