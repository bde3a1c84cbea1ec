//! The state machine of tasks and CPUs: events of the scheduler in, transitions out.
//!
//! Memory is that of the tasks that live at a time. Halves of intervals whose other half is not
//! in the recording are counted (`SchedCounts`), and are no intervals.

use kymo_events::{BlockedThread, RecordedEvent, TaskComm};
use rustc_hash::FxHashSet;

use super::decode::{SchedEvent, TaskRef, WakeupContext, WakeupKind};
use super::switch_state::SwitchOutState;
use super::task::{SchedTask, SwitchedOut, TaskId, TaskState, TaskTable, Wakeup};
use super::wait::{Wait, WaitCause};
use crate::losses::{LossWindows, MOST_CPUS};

/// A CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    current: Option<TaskId>,
    /// Time of its last switch.
    switched: Option<u64>,
    /// Time of its last event.
    last_event: Option<u64>,
    /// Events were lost since its last switch: who runs is not known by that.
    doubtful: bool,
}

/// Switches seen, and events that do not match each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedCounts {
    /// Events.
    pub events: u64,
    /// Switches between tasks.
    pub switches: u64,
    /// Switches away from a task that the CPU had not switched to.
    pub mismatched: u64,
    /// Mismatched switches whose CPU was idle, as far as was seen.
    pub mismatched_idle: u64,
    /// Mismatched switches whose CPU ran a task that is not recorded, as far as was seen.
    pub mismatched_unrecorded: u64,
    /// Runs that begin before the recording, or out of nothing.
    pub no_begin: u64,
    /// Runs of tasks that slept, and that no wake-up in the recording made runnable.
    pub no_wakeup: u64,
    /// Waits for a CPU that had not ended when the recording did.
    pub no_end: u64,
    /// Events older than one before them on the same CPU.
    pub backwards: u64,
    /// Events without a time or CPU, or of a CPU that cannot be.
    pub unplaced: u64,
    /// Events of tasks not attributed (table limit reached).
    pub crowded_out: u64,
    /// Intervals while which events were lost.
    pub touching_loss: u64,
    /// Wake-ups of any kind.
    pub wakeups: u64,
    /// Whether an idle task or a thread of the kernel left a CPU: a recording of some tasks has no
    /// such event.
    pub has_kernel_tasks: bool,
}

/// Names by which threads of the kernel begin that run on every machine.
const KERNEL_THREADS: [&[u8]; 4] = [b"kworker/", b"ksoftirqd/", b"migration/", b"rcu_"];

impl SchedCounts {
    /// Mismatched switches that neither an idle CPU nor a choice of tasks explains.
    pub fn unexplained(&self) -> u64 {
        self.mismatched.saturating_sub(self.mismatched_idle + self.mismatched_unrecorded)
    }

    /// Whether the switches of all tasks seem to be recorded. A recording of the ftrace ring of some
    /// tasks has switches from idle tasks to these, too, but the CPUs run others between them.
    pub fn is_of_all_tasks(&self) -> bool {
        self.has_kernel_tasks && self.unexplained().saturating_mul(10) <= self.switches
    }
}

/// A task leaves a CPU.
#[derive(Clone, Copy, Debug)]
pub struct SwitchOut {
    /// Task that leaves the CPU.
    pub task: TaskId,
    /// In which state.
    pub state: SwitchOutState,
    /// Since when it ran, where that is known.
    pub since: Option<u64>,
    /// The wait before this run.
    pub wait: Wait,
    /// Events were lost while it ran.
    pub touches_loss: bool,
}

/// Run whose end is not in the recording: the next switch of its CPU is away from another task.
#[derive(Clone, Copy, Debug)]
pub struct RunWithoutEnd {
    /// The task that ran.
    pub task: TaskId,
    /// Start of the run.
    pub since: u64,
    /// The wait before this run.
    pub wait: Wait,
}

/// A task gets a CPU.
#[derive(Clone, Copy, Debug)]
pub struct SwitchIn {
    /// Task that gets the CPU.
    pub task: TaskId,
    /// The wait that ends.
    pub wait: Wait,
}

/// Change that an event makes.
#[derive(Clone, Copy, Debug)]
pub enum Transition {
    /// A CPU changes hands.
    Switch {
        /// Task that leaves the CPU.
        out: SwitchOut,
        /// Task that gets the CPU.
        next: SwitchIn,
    },
    /// A task is woken.
    Wakeup {
        /// Task that is woken.
        task: TaskId,
        /// By whom: who ran where the event happened.
        by: Option<TaskId>,
        /// Kind of the event.
        kind: WakeupKind,
    },
    /// A task gets another run queue.
    Migrate {
        /// Task that moves.
        task: TaskId,
        /// In whom the event happened.
        by: Option<TaskId>,
        /// From this CPU.
        from: Option<u32>,
        /// To this one.
        to: Option<u32>,
    },
    /// Time on the CPU is accounted.
    Runtime {
        /// Task on the CPU.
        task: TaskId,
        /// Nanoseconds.
        runtime: u64,
    },
}

/// Tasks and CPUs at the time of the last event.
#[derive(Debug, Default)]
pub struct TaskMachine {
    /// The tasks.
    pub tasks: TaskTable,
    /// Switches seen, and events that do not match each other.
    pub counts: SchedCounts,
    cpus: Vec<Cpu>,
    /// Spans in which events were lost, as far as they begin before the last event.
    losses: LossWindows,
    /// The last event made a transition.
    has_told: bool,
    /// Threads that are recorded, where that is known of a recording of some tasks.
    recorded: Option<FxHashSet<u32>>,
    run_without_end: Option<RunWithoutEnd>,
}

impl TaskMachine {
    /// `losses`: spans in which events were lost, as the events' source finds them.
    pub fn new(losses: LossWindows) -> TaskMachine {
        TaskMachine { losses, ..TaskMachine::default() }
    }

    /// Takes note that the recording is of some tasks, among them this thread: switches between
    /// others are not in it.
    pub fn note_recorded(&mut self, tid: u32) {
        let _ = self.recorded.get_or_insert_default().insert(tid);
    }

    /// Takes note that the events of a thread are over: the kernel ends them before its last switch.
    pub fn note_end_of_recorded(&mut self, tid: u32) {
        if let Some(recorded) = &mut self.recorded {
            let _ = recorded.remove(&tid);
        }
    }

    /// Takes note of a thread that is blocked when the events start: its wait counts from then on.
    /// `event`: the first one, which has not been applied.
    pub(crate) fn note_blocked(
        &mut self,
        thread: &BlockedThread,
        time: u64,
        event: &RecordedEvent<'_>,
    ) -> Option<TaskId> {
        let task = TaskRef { tid: thread.tid, comm: TaskComm::new(&thread.comm) };
        let id = self.tasks.find(&task, thread.cpu.unwrap_or(0), event)?;
        let known = self.tasks.get_mut(id)?;
        let state = SwitchOutState::Blocked(thread.state);
        known.left = Some(SwitchedOut { time, state, woken_before: false });
        (known.state, known.cpu) = (TaskState::Blocked, thread.cpu);
        known.info.pid = known.info.pid.or(thread.pid);
        Some(id)
    }

    /// Whether all switches and wake-ups of a task should be in the recording.
    fn is_recorded(&self, id: TaskId) -> bool {
        let tid = self.tasks.get(id).map(|task| task.tid);
        self.recorded.as_ref().is_none_or(|recorded| tid.is_some_and(|tid| recorded.contains(&tid)))
    }

    /// Tasks that ended since the last transition; they are gone after the next one.
    #[inline]
    pub fn ended(&self) -> &[TaskId] {
        &self.tasks.ended
    }

    /// Number of CPUs seen: the highest and all below it.
    pub fn cpu_count(&self) -> usize {
        self.cpus.len()
    }

    /// The task that a CPU runs, where that is known.
    pub fn current(&self, cpu: u32) -> Option<TaskId> {
        self.cpus.get(cpu as usize)?.current
    }

    /// The run of the last event's CPU, if the event shows that it ended unseen.
    pub fn run_without_end(&self) -> Option<&RunWithoutEnd> {
        self.run_without_end.as_ref()
    }

    /// The task that a CPU runs, and since when, where no event was lost since.
    pub(crate) fn running_since(&self, cpu: u32) -> Option<(TaskId, u64)> {
        let slot = self.cpus.get(cpu as usize).filter(|slot| !slot.doubtful)?;
        slot.current.zip(slot.switched)
    }

    /// Takes an event.
    #[inline]
    pub fn apply(&mut self, sched: &SchedEvent, event: &RecordedEvent<'_>) -> Option<Transition> {
        self.apply_at(sched, event, (event.time, event.cpu()))
    }

    /// Takes an event whose time and CPU have been read.
    #[inline(always)]
    pub(super) fn apply_at(
        &mut self,
        sched: &SchedEvent,
        event: &RecordedEvent<'_>,
        (time, cpu): (Option<u64>, Option<u32>),
    ) -> Option<Transition> {
        // Who takes note of tasks that ended does so with a transition.
        if std::mem::take(&mut self.has_told) {
            self.tasks.forget_ended();
        }
        self.run_without_end = None;
        let transition = self.take(sched, event, (time, cpu));
        self.has_told = transition.is_some();
        transition
    }

    #[inline(always)]
    fn take(
        &mut self,
        sched: &SchedEvent,
        event: &RecordedEvent<'_>,
        (time, cpu): (Option<u64>, Option<u32>),
    ) -> Option<Transition> {
        let (Some(time), Some(cpu)) = (time, cpu.filter(|c| *c < MOST_CPUS)) else {
            self.counts.unplaced += 1;
            return None;
        };
        self.counts.events += 1;
        self.arrive(cpu, time, event.lost.is_some());
        match sched {
            SchedEvent::Switch { prev, state, next } => {
                self.switch((prev, *state, next), (time, cpu), event)
            }
            SchedEvent::Wakeup { kind, task, context } => {
                self.wakeup((*kind, task, *context), (time, cpu), event)
            }
            SchedEvent::Migrate { task, from, to } => {
                let task = self.tasks.find(task, cpu, event)?;
                let by = self.who_runs(cpu, event);
                Some(Transition::Migrate { task, by, from: *from, to: *to })
            }
            SchedEvent::Runtime { task, runtime } => {
                let task = self.tasks.find(task, cpu, event)?;
                Some(Transition::Runtime { task, runtime: *runtime })
            }
            SchedEvent::Fork { parent, child } => {
                self.replace_used(child.tid);
                let id = self.tasks.find(child, cpu, event)?;
                if let Some(task) = self.tasks.get_mut(id) {
                    task.parent = Some(parent.tid);
                }
                None
            }
            SchedEvent::Exit { task } => {
                let id = self.tasks.find(task, cpu, event)?;
                if let Some(task) = self.tasks.get_mut(id) {
                    task.exits = true;
                }
                None
            }
        }
    }

    /// Takes note of events that were lost before this one, which need not be of the scheduler:
    /// who runs on its CPU may have changed. To be called with each event that is read beside
    /// those that `apply` takes.
    #[inline]
    pub fn note_loss(&mut self, event: &RecordedEvent<'_>) {
        if event.lost.is_none() {
            return;
        }
        if let (Some(time), Some(cpu)) = (event.time, event.cpu().filter(|c| *c < MOST_CPUS)) {
            self.arrive(cpu, time, true);
        }
    }

    /// Takes note of time and losses of a CPU.
    #[inline]
    fn arrive(&mut self, cpu: u32, time: u64, lost: bool) {
        let at = cpu as usize;
        if self.cpus.len() <= at {
            self.cpus.resize(at + 1, Cpu::default());
        }
        let Some(slot) = self.cpus.get_mut(at) else { return };
        let before = slot.last_event.replace(time);
        self.counts.backwards += u64::from(before.is_some_and(|t| t > time));
        slot.doubtful |= lost;
    }

    #[inline]
    fn switch(
        &mut self,
        (prev, state, next): (&TaskRef, SwitchOutState, &TaskRef),
        (time, cpu): (u64, u32),
        event: &RecordedEvent<'_>,
    ) -> Option<Transition> {
        self.counts.switches += 1;
        let out = self.tasks.find(prev, cpu, event);
        self.tasks.end_exited(next);
        let next = self.tasks.find(next, cpu, event);
        let slot = self.cpus.get_mut(cpu as usize)?;
        let (before, switched) = (slot.current, slot.switched.replace(time));
        (slot.current, slot.doubtful) = (next, false);
        let (out, next) = (out?, next?);
        if !self.counts.has_kernel_tasks {
            let task = self.tasks.get(out);
            self.counts.has_kernel_tasks = task.is_some_and(|task| {
                task.is_idle() || KERNEL_THREADS.iter().any(|name| task.comm().starts_with(name))
            });
        }
        let matches = before == Some(out);
        if let Some(before) = before.filter(|_| !matches) {
            self.counts.mismatched += 1;
            let was_idle = self.tasks.get(before).is_some_and(SchedTask::is_idle);
            if self.is_recorded(before) {
                self.counts.mismatched_idle += u64::from(was_idle);
            } else {
                self.counts.mismatched_unrecorded += 1;
            }
            // It left unseen: what is known of it is over.
            if let Some(task) = self.tasks.get_mut(before) {
                let wait = std::mem::take(&mut task.wait);
                self.run_without_end =
                    switched.map(|since| RunWithoutEnd { task: before, since, wait });
                (task.state, task.left, task.woken) = (TaskState::Unknown, None, None);
            }
        }
        let since = switched.filter(|t| matches && *t <= time);
        self.counts.no_begin += u64::from(since.is_none() && self.is_recorded(out));
        let out = self.switch_out(out, state, since, (time, cpu))?;
        let next = self.switch_in(next, cpu, time)?;
        if matches!(state, SwitchOutState::Dead(_)) {
            self.tasks.end(out.task);
        }
        Some(Transition::Switch { out, next })
    }

    #[inline]
    fn switch_out(
        &mut self,
        id: TaskId,
        state: SwitchOutState,
        since: Option<u64>,
        (time, cpu): (u64, u32),
    ) -> Option<SwitchOut> {
        let task = self.tasks.get_mut(id)?;
        let is_idle = task.is_idle();
        task.state = if state.is_runnable() { TaskState::Runnable } else { TaskState::Blocked };
        let woken_before = std::mem::take(&mut task.woken_running);
        task.left = Some(SwitchedOut { time, state, woken_before });
        // Where it began this run may not have been seen.
        task.cpu = Some(cpu);
        task.woken = None;
        task.waking = false;
        // Of a run whose begin is not known the wait before it is not, either.
        let wait = std::mem::take(&mut task.wait);
        let wait = if since.is_some() { wait } else { Wait::default() };
        let touches_loss = self.losses.touches(since.unwrap_or(time), time);
        self.counts.touching_loss += u64::from(touches_loss && !is_idle);
        Some(SwitchOut { task: id, state, since, wait, touches_loss })
    }

    #[inline]
    fn switch_in(&mut self, id: TaskId, cpu: u32, time: u64) -> Option<SwitchIn> {
        let is_recorded = self.is_recorded(id);
        let task = self.tasks.get_mut(id)?;
        let (left, woken) = (task.left.take(), task.woken.take());
        let mut wait = Wait::ended(left, woken, time);
        let slept = left.is_some_and(|l| !l.state.is_runnable());
        let is_unwoken = slept && wait.cause == WaitCause::Unknown;
        self.counts.no_wakeup += u64::from(is_unwoken && is_recorded);
        wait.is_migrated = left.is_some() && task.cpu.is_some_and(|c| c != cpu);
        wait.touches_loss = self.losses.touches(wait.begin().unwrap_or(time), time);
        self.counts.touching_loss += u64::from(wait.touches_loss && !task.is_idle());
        task.state = TaskState::Running(cpu);
        task.cpu = Some(cpu);
        task.wait = wait;
        (task.woken_running, task.waking) = (false, false);
        Some(SwitchIn { task: id, wait })
    }

    #[inline]
    fn wakeup(
        &mut self,
        (kind, task, context): (WakeupKind, &TaskRef, WakeupContext),
        (time, cpu): (u64, u32),
        event: &RecordedEvent<'_>,
    ) -> Option<Transition> {
        self.counts.wakeups += 1;
        if kind == WakeupKind::New {
            self.replace_used(task.tid);
        }
        let id = self.tasks.find(task, cpu, event)?;
        let by = self.who_runs(cpu, event);
        let by_tid = by.and_then(|b| Some(self.tasks.get(b)?.tid));
        let task = self.tasks.get_mut(id)?;
        let is_new = kind == WakeupKind::New;
        if matches!(task.state, TaskState::Running(_)) {
            task.woken_running = true;
        } else {
            // It is wanted awake a second time: it ran and slept meanwhile, unseen.
            if kind == WakeupKind::Waking && std::mem::replace(&mut task.waking, true) {
                (task.left, task.woken) = (None, None);
            }
            if task.woken.is_none() {
                task.woken = Some(Wakeup { time, cpu, by: by_tid, context, is_new });
            }
            task.state = TaskState::Runnable;
        }
        Some(Transition::Wakeup { task: id, by, kind })
    }

    /// A thread id that is given to a new task: what had it has ended unseen.
    fn replace_used(&mut self, tid: u32) {
        let Some(id) = self.tasks.by_tid(tid) else { return };
        let Some(task) = self.tasks.get(id) else { return };
        if task.left.is_none() && task.cpu.is_none() {
            return;
        }
        self.cpus.iter_mut().filter(|c| c.current == Some(id)).for_each(|c| c.current = None);
        self.tasks.end(id);
    }

    /// The task that an event happened in.
    fn who_runs(&mut self, cpu: u32, event: &RecordedEvent<'_>) -> Option<TaskId> {
        let known = self.cpus.get(cpu as usize).filter(|slot| !slot.doubtful);
        if let Some(id) = known.and_then(|slot| slot.current) {
            return Some(id);
        }
        // Its CPU has not switched yet, or the switch was not seen.
        let info = event.task();
        let task = TaskRef { tid: info.tid?, comm: TaskComm::new(info.comm()) };
        self.tasks.find(&task, cpu, event)
    }

    /// Ends: what waits now has no end in the recording.
    pub fn finish(&mut self) {
        self.tasks.forget_ended();
        let waits = |t: &SchedTask| t.state == TaskState::Runnable && !t.is_idle();
        self.counts.no_end = self.tasks.iter().filter(|(_, t)| waits(t)).count() as u64;
        self.counts.crowded_out = self.tasks.crowded_out;
    }
}
