//! A task, and the table of those that are alive.

use kymo_events::{RecordedEvent, TaskComm, TaskInfo};

use super::decode::{TaskRef, WakeupContext};
use super::switch_state::SwitchOutState;
use super::thread_map::ThreadMap;
use super::wait::Wait;

/// Tasks that are known at a time; of more only the number is kept.
const MOST_TASKS: usize = 1 << 18;

/// Slot of a task in the table; taken by another task some time after it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// The slot as an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// State of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskState {
    /// Not yet seen in the recording.
    #[default]
    Unknown,
    /// It runs on this CPU.
    Running(u32),
    /// It waits for a CPU.
    Runnable,
    /// It waits for something else.
    Blocked,
    /// It has ended.
    Dead,
}

/// Wake-up that made a task runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// Time.
    pub time: u64,
    /// On which CPU its waker was.
    pub cpu: u32,
    /// Thread that ran there: the waker, unless an interrupt came upon it.
    pub by: Option<u32>,
    /// Context of the wake-up.
    pub context: WakeupContext,
    /// Whether it was its first.
    pub is_new: bool,
}

/// Switch of a task away from its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SwitchedOut {
    pub(super) time: u64,
    pub(super) state: SwitchOutState,
    /// It had been woken already, while it still ran: `sched_waking` may come before the
    /// `sched_switch` of the sleep that it ends.
    pub(super) woken_before: bool,
}

/// A task.
#[derive(Clone, Debug, Default)]
pub struct SchedTask {
    /// Its thread id; 0 for the idle tasks.
    pub tid: u32,
    /// Its process, name, as far as known.
    pub info: TaskInfo,
    /// State of the task.
    pub state: TaskState,
    /// CPU that it ran on last, or runs on.
    pub cpu: Option<u32>,
    /// Its parent.
    pub parent: Option<u32>,
    /// The wait before its present run.
    pub(super) wait: Wait,
    pub(super) left: Option<SwitchedOut>,
    /// The first wake-up since it left.
    pub(super) woken: Option<Wakeup>,
    /// A wake-up that came while it ran.
    pub(super) woken_running: bool,
    /// A `sched_waking` that came since it ran: no other one comes before it runs again.
    pub(super) waking: bool,
    /// It has begun to exit.
    pub(super) exits: bool,
    /// The name that its events state.
    stated: TaskComm,
    is_named: bool,
}

impl SchedTask {
    /// Whether it is the idle task of a CPU.
    pub fn is_idle(&self) -> bool {
        self.tid == 0
    }

    /// The process, where the recording has it, and it differs from the thread.
    pub fn process(&self) -> Option<u32> {
        self.info.pid.filter(|pid| *pid != self.tid)
    }

    /// Its name.
    pub fn comm(&self) -> &[u8] {
        self.info.comm()
    }

    /// Replaces the facts about the task by those that the recording has now.
    pub fn with_info(&self, info: TaskInfo) -> SchedTask {
        SchedTask { info, ..self.clone() }
    }

    /// Takes the name that an event states. What the recording says of the task beside its
    /// events is asked for only if that is another than the last one.
    #[inline]
    fn rename(&mut self, comm: TaskComm, event: &RecordedEvent<'_>) {
        if !self.is_named || self.stated != comm {
            self.learn_name(comm, event);
        }
    }

    #[cold]
    fn learn_name(&mut self, comm: TaskComm, event: &RecordedEvent<'_>) {
        (self.stated, self.is_named) = (comm, true);
        let told = event.thread(self.tid);
        // A child whose parent has no name is called by its parent's number.
        let has_name = told.is_named && !told.comm().starts_with(b":");
        self.info = match has_name || comm.is_empty() {
            // perf knows more of workers of the kernel than their events tell.
            true => told,
            false => TaskInfo::new(told.pid, Some(self.tid), &comm.padded()[..comm.len()]),
        };
        if self.is_idle() {
            self.info = TaskInfo::new(Some(0), Some(0), b"<idle>");
        }
    }
}

/// The tasks that are alive, and those that ended just now.
#[derive(Debug, Default)]
pub struct TaskTable {
    tasks: Vec<SchedTask>,
    by_tid: ThreadMap,
    /// Idle tasks by CPU.
    idle: Vec<Option<TaskId>>,
    free: Vec<TaskId>,
    /// Tasks that ended: their slots are free when the next event comes.
    pub(super) ended: Vec<TaskId>,
    /// Events of tasks that there was no room for.
    pub(super) crowded_out: u64,
}

impl TaskTable {
    /// A task by its slot.
    #[inline]
    pub fn get(&self, id: TaskId) -> Option<&SchedTask> {
        self.tasks.get(id.index())
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: TaskId) -> Option<&mut SchedTask> {
        self.tasks.get_mut(id.index())
    }

    /// All that are alive.
    pub fn iter(&self) -> impl Iterator<Item = (TaskId, &SchedTask)> {
        let idle = self.idle.iter().flatten().copied();
        let mut ids: Vec<TaskId> = self.by_tid.values().chain(idle).collect();
        ids.sort_by_key(|id| id.0);
        ids.into_iter().filter_map(|id| Some((id, self.get(id)?)))
    }

    /// The task that an event names, by the name it has there. `cpu` distinguishes idle tasks.
    #[inline]
    pub(super) fn find(
        &mut self,
        task: &TaskRef,
        cpu: u32,
        event: &RecordedEvent<'_>,
    ) -> Option<TaskId> {
        let known = match task.tid {
            0 => self.idle.get(cpu as usize).copied().flatten(),
            tid => self.by_tid.get(tid),
        };
        let id = match known {
            Some(id) => id,
            None => self.insert(task.tid, cpu)?,
        };
        if let Some(t) = self.tasks.get_mut(id.index()) {
            t.rename(task.comm, event);
        }
        Some(id)
    }

    #[cold]
    fn insert(&mut self, tid: u32, cpu: u32) -> Option<TaskId> {
        let task = SchedTask { tid, ..SchedTask::default() };
        let id = match self.free.pop() {
            Some(id) => id,
            None if self.tasks.len() >= MOST_TASKS => {
                self.crowded_out += 1;
                return None;
            }
            None => {
                self.tasks.push(SchedTask::default());
                TaskId(self.tasks.len() as u32 - 1)
            }
        };
        if let Some(slot) = self.get_mut(id) {
            *slot = task;
        }
        if tid != 0 {
            self.by_tid.insert(tid, id);
            return Some(id);
        }
        let at = cpu as usize;
        if self.idle.len() <= at {
            self.idle.resize(at + 1, None);
        }
        if let Some(slot) = self.idle.get_mut(at) {
            *slot = Some(id);
        }
        Some(id)
    }

    /// A thread that is alive.
    pub fn find_thread(&self, tid: u32) -> Option<&SchedTask> {
        self.get(self.by_tid(tid)?)
    }

    /// Slot of a thread that is alive.
    pub(crate) fn by_tid(&self, tid: u32) -> Option<TaskId> {
        self.by_tid.get(tid)
    }

    /// Ends a task whose thread id has another owner: it had begun to exit, and who gets the CPU
    /// now has another name.
    #[inline]
    pub(super) fn end_exited(&mut self, next: &TaskRef) {
        let Some(id) = self.by_tid.get(next.tid) else { return };
        let Some(task) = self.get(id).filter(|task| task.exits) else { return };
        let is_off = !matches!(task.state, TaskState::Running(_));
        if is_off && !next.comm.is_empty() && task.stated != next.comm {
            self.end(id);
        }
    }

    /// Takes a task out of the table; its slot is free when the next event comes.
    pub(super) fn end(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id.index()) else { return };
        task.state = TaskState::Dead;
        if self.by_tid.get(task.tid) == Some(id) {
            self.by_tid.remove(task.tid);
        }
        self.ended.push(id);
    }

    #[inline]
    pub(super) fn forget_ended(&mut self) {
        if !self.ended.is_empty() {
            self.free.append(&mut self.ended);
        }
    }
}
