//! CPUs and the busiest tasks over time, as spans that fit a drawing: what is shorter than a part of
//! its width is added up there.

use std::ops::ControlFlow;

use kymo_events::{EventSource, ReadOptions, SourceError};
use rustc_hash::FxHashMap;

use crate::tasks::{
    SchedRead, SchedSelection, SchedStep, TaskId, TaskMachine, Transition, Wait, read_sched,
};

/// Wake-ups that are kept at most.
const MOST_WAKEUPS: usize = 20_000;
/// CPUs that have a lane at most.
const MOST_CPUS: u32 = 4096;

/// Options of drawing.
#[derive(Clone, Debug, Default)]
pub struct TimechartConfig {
    /// Selection of time, CPUs and tasks.
    pub selection: SchedSelection,
    /// Tasks that have a lane, at most.
    pub tasks: usize,
    /// Parts of the width.
    pub parts: usize,
}

/// A state over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneState {
    /// Running; of a CPU's lane, the task's place among the lanes of tasks, if it has one.
    Running(Option<usize>),
    /// Waiting for a CPU.
    Runnable,
    /// Waiting for something else.
    Blocked,
}

/// A span that is at least as long as a part of the width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSpan {
    /// Begin.
    pub from: u64,
    /// End.
    pub to: u64,
    /// State of the lane.
    pub state: LaneState,
}

/// Spans of a CPU or a task.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// Long spans, in the order of their ends.
    pub spans: Vec<LaneSpan>,
    /// Nanoseconds that it ran in short spans, by part of the width.
    pub short: Vec<u64>,
    /// All nanoseconds that it ran.
    pub runtime: u64,
}

/// A task's lane.
#[derive(Clone, Debug)]
pub struct TaskLane {
    /// Its name.
    pub comm: Vec<u8>,
    /// Its thread id.
    pub tid: u32,
    /// Its spans.
    pub lane: Lane,
}

/// A task wakes another; both have lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneWakeup {
    /// Time.
    pub time: u64,
    /// Lane of the waker.
    pub from: usize,
    /// Lane of the woken task.
    pub to: usize,
}

/// All lanes.
#[derive(Debug)]
pub struct Timechart {
    /// Begin and end.
    pub span: (u64, u64),
    /// Lanes of CPUs, by number.
    pub cpus: Vec<Lane>,
    /// Lanes of tasks, those that ran longest first.
    pub tasks: Vec<TaskLane>,
    /// Tasks that ran and have no lane.
    pub more_tasks: usize,
    /// Wake-ups between tasks that have lanes.
    pub wakeups: Vec<LaneWakeup>,
    /// Further wake-ups.
    pub more_wakeups: u64,
    /// Scheduler events that were read.
    pub read: SchedRead,
}

impl Timechart {
    /// Reads a recording twice: which tasks run longest is known after the first time.
    ///
    /// # Errors
    /// If reading fails.
    pub fn read(source: &EventSource, config: &TimechartConfig) -> Result<Timechart, SourceError> {
        let mut sums = Collector::new(config, (0, u64::MAX), FxHashMap::default());
        let first = read_sched(source, ReadOptions::default(), |step, machine| {
            sums.step(step, machine);
            ControlFlow::Continue(())
        })?;
        let span = first.span.unwrap_or_default();
        let mut longest: Vec<(u32, u64)> = std::mem::take(&mut sums.runtimes).into_iter().collect();
        longest.sort_by(|a, b| (b.1, a.0).cmp(&(a.1, b.0)));
        let more_tasks = longest.len().saturating_sub(config.tasks);
        longest.truncate(config.tasks);
        let places = longest.iter().enumerate().map(|(place, (task, _))| (*task, place)).collect();
        let mut lanes = Collector::new(config, span, places);
        lanes.tasks.resize_with(longest.len(), Lane::default);
        let read = read_sched(source, ReadOptions::default(), |step, machine| {
            lanes.step(step, machine);
            ControlFlow::Continue(())
        })?;
        lanes.finish(&read.machine);
        let tasks = longest.iter().zip(std::mem::take(&mut lanes.tasks)).map(|((id, _), lane)| {
            TaskLane { comm: lanes.names.get(id).cloned().unwrap_or_default(), tid: *id, lane }
        });
        Ok(Timechart {
            span,
            cpus: lanes.cpus,
            tasks: tasks.collect(),
            more_tasks,
            wakeups: lanes.wakeups,
            more_wakeups: lanes.more_wakeups,
            read,
        })
    }
}

/// Puts transitions into lanes.
struct Collector<'a> {
    config: &'a TimechartConfig,
    span: (u64, u64),
    /// Lanes of tasks; in the first pass none.
    places: FxHashMap<u32, usize>,
    /// Last names of tasks that have lanes.
    names: FxHashMap<u32, Vec<u8>>,
    /// Task that each CPU runs, and since when.
    running: Vec<Option<(TaskId, u64)>>,
    runtimes: FxHashMap<u32, u64>,
    cpus: Vec<Lane>,
    tasks: Vec<Lane>,
    wakeups: Vec<LaneWakeup>,
    more_wakeups: u64,
}

impl<'a> Collector<'a> {
    fn new(
        config: &'a TimechartConfig,
        span: (u64, u64),
        places: FxHashMap<u32, usize>,
    ) -> Collector<'a> {
        Collector {
            config,
            span,
            places,
            names: FxHashMap::default(),
            running: Vec::new(),
            runtimes: FxHashMap::default(),
            cpus: Vec::new(),
            tasks: Vec::new(),
            wakeups: Vec::new(),
            more_wakeups: 0,
        }
    }

    fn step(&mut self, step: &SchedStep<'_, '_>, machine: &TaskMachine) {
        let selection = &self.config.selection;
        match step.transition {
            Transition::Switch { out, next } if step.cpu < MOST_CPUS => {
                let cpu = step.cpu as usize;
                if self.running.len() <= cpu {
                    self.running.resize(cpu + 1, None);
                }
                let before = self.running[cpu].replace((next.task, step.time));
                let since = before.filter(|(task, _)| *task == out.task).map(|(_, since)| since);
                if let Some(since) = since.or(out.since) {
                    self.ran(machine, (out.task, step.cpu), since, step.time);
                }
                self.waited(machine, next.task, &next.wait);
            }
            Transition::Wakeup { task, by: Some(by), .. } if selection.wants_time(step.time) => {
                let place = |id: &TaskId| self.places.get(&machine.tasks.get(*id)?.tid);
                let places = place(by).zip(place(task));
                let Some((from, to)) = places else { return };
                if self.wakeups.len() == MOST_WAKEUPS {
                    self.more_wakeups += 1;
                } else {
                    self.wakeups.push(LaneWakeup { time: step.time, from: *from, to: *to });
                }
            }
            _ => {}
        }
    }

    /// Runs that have not ended go to the end.
    fn finish(&mut self, machine: &TaskMachine) {
        for (cpu, running) in std::mem::take(&mut self.running).into_iter().enumerate() {
            if let Some((task, since)) = running {
                self.ran(machine, (task, cpu as u32), since, self.span.1);
            }
        }
    }

    fn ran(&mut self, machine: &TaskMachine, (id, cpu): (TaskId, u32), from: u64, to: u64) {
        let selection = &self.config.selection;
        let Some(task) = machine.tasks.get(id).filter(|task| !task.is_idle()) else { return };
        if !selection.wants_task(task) || !selection.wants_cpu(cpu) {
            return;
        }
        let Some((from, to)) = selection.cut(from, to) else { return };
        // Ids of tasks that ended are given to others.
        *self.runtimes.entry(task.tid).or_default() += to.saturating_sub(from);
        let place = self.places.get(&task.tid).copied();
        if place.is_some() {
            self.names.insert(task.tid, task.comm().to_vec());
        }
        if self.span.1 == u64::MAX {
            // The first pass: how long the whole is, is not known yet.
            return;
        }
        let cpu = cpu as usize;
        if self.cpus.len() <= cpu {
            self.cpus.resize_with(cpu + 1, Lane::default);
        }
        let span = LaneSpan { from, to, state: LaneState::Running(place) };
        let (whole, parts) = (self.span, self.config.parts);
        self.cpus[cpu].add(span, whole, parts);
        if let Some(lane) = place.and_then(|place| self.tasks.get_mut(place)) {
            lane.add(span, whole, parts);
        }
    }

    fn waited(&mut self, machine: &TaskMachine, id: TaskId, wait: &Wait) {
        let selection = &self.config.selection;
        let place = machine.tasks.get(id).and_then(|task| self.places.get(&task.tid));
        let lane = place.and_then(|place| self.tasks.get_mut(*place));
        let (Some(lane), Some(end)) = (lane, wait.ended) else { return };
        let runnable = wait.runnable.unwrap_or(end);
        let states = [
            (wait.left.map(|(time, _)| time), runnable, LaneState::Blocked),
            (wait.runnable, end, LaneState::Runnable),
        ];
        for (from, to, state) in states {
            let cut = from.filter(|from| *from < to).and_then(|from| selection.cut(from, to));
            if let Some((from, to)) = cut {
                lane.add(LaneSpan { from, to, state }, self.span, self.config.parts);
            }
        }
    }
}

impl Lane {
    fn add(&mut self, span: LaneSpan, (begin, end): (u64, u64), parts: usize) {
        let (from, to) = (span.from.clamp(begin, end), span.to.clamp(begin, end));
        let part = (end.saturating_sub(begin) / parts.max(1) as u64).max(1);
        let is_run = matches!(span.state, LaneState::Running(_));
        if is_run {
            self.runtime += to.saturating_sub(from);
        }
        if to.saturating_sub(from) >= part {
            self.spans.push(LaneSpan { from, to, state: span.state });
        } else if is_run {
            self.short.resize(parts.max(1), 0);
            let place = usize::try_from((from - begin) / part).unwrap_or(usize::MAX);
            let place = place.min(self.short.len().saturating_sub(1));
            if let Some(sum) = self.short.get_mut(place) {
                *sum += to.saturating_sub(from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_spans_are_added_up_in_their_part() {
        let mut lane = Lane::default();
        let run = |from, to| LaneSpan { from, to, state: LaneState::Running(None) };
        // Ten parts of 100 ns.
        for (from, to) in [(1000, 1250), (1310, 1320), (1350, 1380), (1990, 2500)] {
            lane.add(run(from, to), (1000, 2000), 10);
        }
        lane.add(LaneSpan { from: 1400, to: 1410, state: LaneState::Blocked }, (1000, 2000), 10);
        assert_eq!(lane.spans, [run(1000, 1250)]);
        assert_eq!(lane.short, [0, 0, 0, 40, 0, 0, 0, 0, 0, 10]);
        assert_eq!(lane.runtime, 300);
    }
}
