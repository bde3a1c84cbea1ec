//! Activity of tasks by interval, while scheduler events arrive: time of each on CPU, runnable and
//! blocked, with the cause. For a task that was seen the three add up to the interval.

use std::ops::ControlFlow;

use kymo_events::RecordedEvent;

use crate::losses::LossWindows;
use crate::offcpu::{OffCpuCause, StackRole, StackStore};
use crate::tasks::{SchedReader, SchedStep, SchedTask, TaskId, TaskMachine, Transition};

/// Activity of a task in an interval.
#[derive(Clone, Debug)]
pub struct ActivityRow {
    /// Task.
    pub task: SchedTask,
    /// Nanoseconds on a CPU.
    pub run: u64,
    /// Nanoseconds in which it could have run.
    pub wait: u64,
    /// Nanoseconds in which it could not.
    pub blocked: u64,
    /// Times it was given a CPU.
    pub switches: u64,
    /// Longest wait for a CPU, as far as it lies in the interval.
    pub longest_wait: u64,
    /// State at the end of the interval.
    pub now: ActivityState,
    /// Cause of the longest time blocked, if it was blocked.
    pub cause: Option<OffCpuCause>,
}

/// State of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActivityState {
    /// No event shows it.
    #[default]
    Unknown,
    /// It runs on this CPU.
    Runs(u32),
    /// It waits for a CPU.
    Waits(OffCpuCause),
    /// It waits for something else.
    Blocked(OffCpuCause),
    /// It has ended.
    Ended,
}

/// An interval.
#[derive(Clone, Debug, Default)]
pub struct ActivityInterval {
    /// Its begin, in nanoseconds.
    pub from: u64,
    /// Its end.
    pub to: u64,
    /// Tasks that were seen, idle ones left out; those that ran most first.
    pub rows: Vec<ActivityRow>,
    /// Switches from task to task.
    pub switches: u64,
}

impl ActivityInterval {
    /// Sum over the tasks.
    pub fn sum(&self, of: impl Fn(&ActivityRow) -> u64) -> u64 {
        self.rows.iter().fold(0, |sum, row| sum.saturating_add(of(row)))
    }
}

#[derive(Clone, Debug, Default)]
struct TaskActivity {
    /// The task that has the slot; none while no task was seen in it.
    tid: Option<u32>,
    since: u64,
    state: ActivityState,
    run: u64,
    wait: u64,
    switches: u64,
    longest_wait: u64,
    blocked: Vec<(OffCpuCause, u64)>,
}

impl TaskActivity {
    /// It left its CPU unseen: at an unknown time, so that this time is not counted.
    fn leave_unseen(&mut self, now: u64) {
        if matches!(self.state, ActivityState::Runs(_)) {
            (self.since, self.state) = (now, ActivityState::Unknown);
        }
    }

    /// Accounts the time up to `now`, and changes the state.
    fn change(&mut self, now: u64, state: ActivityState) {
        let time = now.saturating_sub(self.since);
        match self.state {
            ActivityState::Runs(_) => self.run += time,
            ActivityState::Waits(_) => {
                self.wait += time;
                self.longest_wait = self.longest_wait.max(time);
            }
            ActivityState::Blocked(cause) => {
                match self.blocked.iter_mut().find(|(c, _)| *c == cause) {
                    Some((_, sum)) => *sum += time,
                    None => self.blocked.push((cause, time)),
                }
            }
            ActivityState::Unknown | ActivityState::Ended => {}
        }
        (self.since, self.state) = (self.since.max(now), state);
    }
}

/// Tasks while scheduler events come.
#[derive(Debug)]
pub struct TaskActivities {
    reader: SchedReader,
    counting: ActivityCounting,
}

#[derive(Debug, Default)]
struct ActivityCounting {
    slots: Vec<TaskActivity>,
    /// Running task by CPU.
    running: Vec<Option<TaskId>>,
    stacks: StackStore,
    /// Rows of tasks that ended in this interval.
    ended: Vec<ActivityRow>,
    begin: Option<u64>,
    latest: u64,
    switches: u64,
}

impl Default for TaskActivities {
    fn default() -> TaskActivities {
        let reader = SchedReader::new(LossWindows::default());
        TaskActivities { reader, counting: ActivityCounting::default() }
    }
}

impl TaskActivities {
    /// Takes an event; the call chain of a switch shows the cause of the block.
    pub fn event(&mut self, event: &RecordedEvent<'_>) {
        let TaskActivities { reader, counting } = self;
        let _ = reader.event(event, &mut |step, machine| {
            counting.step(step, machine);
            ControlFlow::Continue(())
        });
    }

    /// Time of the newest event.
    pub fn latest(&self) -> u64 {
        self.counting.latest
    }

    /// Ends the interval with the newest event, and begins another.
    pub fn end_interval(&mut self) -> ActivityInterval {
        self.counting.end_interval(self.reader.machine())
    }

    /// The state machine, which counts what did not fit together.
    pub fn machine(&self) -> &TaskMachine {
        self.reader.machine()
    }
}

impl ActivityCounting {
    fn step(&mut self, step: &SchedStep<'_, '_>, machine: &TaskMachine) {
        let now = step.time;
        self.begin.get_or_insert(now);
        self.latest = self.latest.max(now);
        match step.transition {
            Transition::Switch { out, next } => {
                self.switches += 1;
                let cpu = step.cpu as usize;
                if self.running.len() <= cpu {
                    self.running.resize(cpu + 1, None);
                }
                let ran = self.running.get_mut(cpu).and_then(|r| r.replace(next.task));
                if let Some(slot) = ran
                    .filter(|ran| *ran != out.task)
                    .and_then(|ran| self.slots.get_mut(ran.index()))
                    .filter(|slot| slot.state == ActivityState::Runs(step.cpu))
                {
                    slot.leave_unseen(now);
                }
                let state = if out.state.is_runnable() {
                    ActivityState::Waits(OffCpuCause::Preempted)
                } else {
                    let stack = self.stacks.add(step.event, StackRole::Sleeper);
                    ActivityState::Blocked(self.stacks.cause(stack, out.state))
                };
                if let Some(slot) = self.slot(out.task, machine) {
                    slot.change(now, state);
                }
                if machine.ended().contains(&out.task) {
                    self.end_task(out.task, machine);
                }
                if let Some(slot) = self.slot(next.task, machine) {
                    slot.leave_unseen(now);
                    slot.change(now, ActivityState::Runs(step.cpu));
                    slot.switches += 1;
                }
            }
            Transition::Wakeup { task, kind, .. } => {
                let is_new = *kind == crate::tasks::WakeupKind::New;
                let cause = if is_new { OffCpuCause::New } else { OffCpuCause::Woken };
                if let Some(slot) = self.slot(*task, machine)
                    && !matches!(slot.state, ActivityState::Runs(_) | ActivityState::Waits(_))
                {
                    slot.change(now, ActivityState::Waits(cause));
                }
            }
            Transition::Migrate { .. } | Transition::Runtime { .. } => {}
        }
    }

    /// The slot of a task, which another one may have had before.
    fn slot(&mut self, id: TaskId, machine: &TaskMachine) -> Option<&mut TaskActivity> {
        let tid = machine.tasks.get(id)?.tid;
        if self.slots.len() <= id.index() {
            self.slots.resize(id.index() + 1, TaskActivity::default());
        }
        let slot = self.slots.get_mut(id.index())?;
        if slot.tid != Some(tid) {
            *slot = TaskActivity { tid: Some(tid), ..TaskActivity::default() };
        }
        Some(slot)
    }

    fn end_task(&mut self, id: TaskId, machine: &TaskMachine) {
        let Some(slot) = self.slots.get_mut(id.index()) else { return };
        slot.state = ActivityState::Ended;
        let slot = std::mem::take(slot);
        self.ended.extend(machine.tasks.get(id).and_then(|task| row(slot, task)));
    }

    fn end_interval(&mut self, machine: &TaskMachine) -> ActivityInterval {
        let to = self.latest;
        let from = self.begin.replace(to).unwrap_or(to);
        let mut rows = std::mem::take(&mut self.ended);
        for (id, task) in machine.tasks.iter() {
            let Some(slot) = self.slots.get_mut(id.index()) else { continue };
            if slot.tid != Some(task.tid) {
                continue;
            }
            slot.change(to, slot.state);
            let (since, state) = (slot.since, slot.state);
            let done = std::mem::replace(
                slot,
                TaskActivity { tid: Some(task.tid), since, state, ..TaskActivity::default() },
            );
            rows.extend(row(done, task));
        }
        rows.sort_by_key(|r| std::cmp::Reverse((r.run, r.wait, r.blocked)));
        ActivityInterval { from, to, rows, switches: std::mem::take(&mut self.switches) }
    }
}

/// The row of a task; idle ones have none.
fn row(slot: TaskActivity, task: &SchedTask) -> Option<ActivityRow> {
    if task.is_idle() {
        return None;
    }
    let TaskActivity { run, wait, switches, longest_wait, state, blocked, .. } = slot;
    let sum = blocked.iter().map(|(_, time)| time).sum();
    let longest = blocked.iter().max_by_key(|(_, time)| *time);
    Some(ActivityRow {
        task: task.clone(),
        run,
        wait,
        blocked: sum,
        switches,
        longest_wait,
        now: state,
        cause: longest.map(|(cause, _)| *cause),
    })
}
