//! Runs of tasks with the waits before them: what paths are found in. Its memory is bounded;
//! where it is full, the older half is forgotten.

use rustc_hash::FxHashMap;

use super::path::{PathTask, PathTaskId};
use super::work_items::WorkItems;
use crate::offcpu::OffCpuCause;
use crate::tasks::{SwitchOutState, WaitCause, WakeupContext};

/// Runs kept at a time; about 80 bytes each.
const MAX_RUNS: usize = 1 << 20;
/// Most tasks that are distinguished.
const MAX_TASKS: usize = 1 << 18;

/// Waker of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WokenBy {
    pub(super) task: Option<PathTaskId>,
    pub(super) context: WakeupContext,
    /// Whether the task that ran there is who wakes.
    pub(super) is_followed: bool,
    pub(super) time: u64,
    pub(super) cpu: u32,
}

/// A run of a task, and the wait before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskRun {
    pub(super) task: PathTaskId,
    /// Time at which the task left its CPU before, the CPU, and its state.
    pub(super) left: Option<(u64, u32, SwitchOutState)>,
    /// Since when it could run.
    pub(super) runnable: Option<u64>,
    pub(super) cause: WaitCause,
    /// It left its CPU as a kernel thread without work.
    pub(super) is_idle: bool,
    pub(super) woken: Option<WokenBy>,
    /// `None`: it had not run yet.
    pub(super) begin: Option<u64>,
    /// `None`: it still ran.
    pub(super) end: Option<u64>,
    pub(super) cpu: u32,
    /// A switch is missing: when it began or ended is not known.
    pub(super) is_unseen: bool,
}

impl TaskRun {
    /// Time by which runs of a task are in order.
    fn order(&self) -> u64 {
        self.begin.unwrap_or(u64::MAX)
    }
}

/// Runs of all tasks.
#[derive(Debug, Default)]
pub(super) struct RunHistory {
    runs: Vec<TaskRun>,
    /// Number of the first run that is kept.
    base: u32,
    by_task: Vec<Vec<u32>>,
    by_cpu: Vec<Vec<u32>>,
    pub(super) tasks: Vec<PathTask>,
    pub(super) items: WorkItems,
    /// Before this time runs were forgotten.
    pub(super) forgotten: Option<u64>,
    /// Tasks that were blocked at the start of a live capture: since when, and the cause.
    pub(super) blocked: FxHashMap<PathTaskId, (u64, OffCpuCause)>,
    /// Tasks there was no room for.
    pub(super) crowded: u64,
}

impl RunHistory {
    /// A new task.
    pub(super) fn add_task(&mut self, task: PathTask) -> Option<PathTaskId> {
        if self.tasks.len() >= MAX_TASKS {
            self.crowded += 1;
            return None;
        }
        self.tasks.push(task);
        self.by_task.push(Vec::new());
        Some(PathTaskId(self.tasks.len() as u32 - 1))
    }

    pub(super) fn task_mut(&mut self, id: PathTaskId) -> Option<&mut PathTask> {
        self.tasks.get_mut(id.0 as usize)
    }

    /// The cause of a block that began before a live capture, of a task that left its CPU then.
    pub(super) fn cause_at_start(&self, task: PathTaskId, left: u64) -> Option<OffCpuCause> {
        self.blocked.get(&task).filter(|(since, _)| *since == left).map(|(_, cause)| *cause)
    }

    /// Keeps a run.
    pub(super) fn push(&mut self, run: TaskRun) {
        if self.runs.len() >= MAX_RUNS {
            self.forget(MAX_RUNS / 2);
        }
        let number = self.base.wrapping_add(self.runs.len() as u32);
        let cpu = run.cpu as usize;
        if let Some(list) = self.by_task.get_mut(run.task.0 as usize) {
            list.push(number);
        }
        if run.begin.is_some() {
            if self.by_cpu.len() <= cpu {
                self.by_cpu.resize_with(cpu + 1, Vec::new);
            }
            if let Some(list) = self.by_cpu.get_mut(cpu) {
                list.push(number);
            }
        }
        self.runs.push(run);
    }

    /// Forgets the oldest runs.
    fn forget(&mut self, count: usize) {
        let count = count.min(self.runs.len());
        let last = self.runs.drain(..count).filter_map(|r| r.begin).max();
        self.forgotten = self.forgotten.max(last);
        self.base = self.base.wrapping_add(count as u32);
        let (base, kept) = (self.base, self.runs.len() as u32);
        let lists = self.by_task.iter_mut().chain(&mut self.by_cpu);
        lists.for_each(|list| list.retain(|n| n.wrapping_sub(base) < kept));
    }

    fn run(&self, number: u32) -> Option<&TaskRun> {
        self.runs.get(number.wrapping_sub(self.base) as usize)
    }

    /// Whether the next run makes it forget others.
    pub(super) fn is_full(&self) -> bool {
        self.runs.len() >= MAX_RUNS
    }

    /// The last run of a task.
    pub(super) fn last_run(&mut self, task: PathTaskId) -> Option<&mut TaskRun> {
        let number = *self.by_task.get(task.0 as usize)?.last()?;
        self.runs.get_mut(number.wrapping_sub(self.base) as usize)
    }

    /// Nanoseconds that a task ran within a span.
    pub(super) fn ran(&self, task: PathTaskId, (from, to): (u64, u64)) -> u64 {
        let numbers = self.by_task.get(task.0 as usize).map_or(&[][..], Vec::as_slice);
        let length = |run: &TaskRun| {
            let (begin, end) = (run.begin?.max(from), run.end.unwrap_or(to).min(to));
            Some(end.saturating_sub(begin))
        };
        numbers.iter().filter_map(|n| length(self.run(*n)?)).sum()
    }

    /// A task's run by its place among those of the task.
    pub(super) fn run_of(&self, task: PathTaskId, at: usize) -> Option<&TaskRun> {
        self.run(*self.by_task.get(task.0 as usize)?.get(at)?)
    }

    /// Number of runs of a task that begin before a time.
    pub(super) fn runs_before(&self, task: PathTaskId, time: u64) -> usize {
        let list = self.by_task.get(task.0 as usize).map_or(&[][..], Vec::as_slice);
        list.partition_point(|n| self.run(*n).is_some_and(|r| r.order() < time))
    }

    /// Start of the first run after the last idle wait of a kernel thread before a time; 0 if it
    /// was not idle before.
    pub(super) fn awake_since(&self, task: PathTaskId, time: u64) -> u64 {
        let runs = (0..self.runs_before(task, time)).rev().map_while(|at| self.run_of(task, at));
        runs.filter(|run| run.is_idle).find_map(|run| run.begin).unwrap_or(0)
    }

    /// Whether switches of a CPU are missing between two times.
    pub(super) fn has_gap(&self, cpu: u32, (from, to): (u64, u64)) -> bool {
        self.runs_on(cpu, (from, to)).any(|run| run.is_unseen)
    }

    /// Runs on a CPU between two times, the last ones first. A longer list would not be read; and a
    /// path may have many waits.
    fn runs_on(&self, cpu: u32, (from, to): (u64, u64)) -> impl Iterator<Item = &TaskRun> {
        let list = self.by_cpu.get(cpu as usize).map_or(&[][..], Vec::as_slice);
        let end = list.partition_point(|n| self.run(*n).is_some_and(|r| r.order() < to));
        let runs = list.iter().take(end).rev().take(4096).map_while(move |n| self.run(*n));
        runs.take_while(move |run| run.end.unwrap_or(to).min(to) > from)
    }

    /// Returns the task other than `without` that ran longest on a CPU between two times.
    pub(super) fn ran_on(
        &self,
        cpu: u32,
        (from, to): (u64, u64),
        without: PathTaskId,
    ) -> Option<PathTaskId> {
        let mut sums: Vec<(PathTaskId, u64)> = Vec::new();
        for run in self.runs_on(cpu, (from, to)) {
            let (begin, until) = (run.order(), run.end.unwrap_or(to).min(to));
            let ran = until.saturating_sub(begin.max(from));
            let known = sums.iter().position(|(task, _)| *task == run.task);
            let at = known.unwrap_or(sums.len());
            if at == sums.len() && at < 64 {
                sums.push((run.task, 0));
            }
            if let Some((_, sum)) = sums.get_mut(at) {
                *sum += ran;
            }
        }
        let others = sums.into_iter().filter(|(task, ran)| *task != without && *ran > 0);
        others.max_by_key(|(_, ran)| *ran).map(|(task, _)| task)
    }
}
