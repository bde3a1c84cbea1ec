//! The tasks of a recording, by the number under which they are drawn.

use kymo_events::TaskInfo;
use rustc_hash::FxHashMap;

use super::span_track::SpanTrack;
use crate::tasks::SwitchOutState;

/// Tasks with tracks of their own.
const MOST: usize = 1 << 16;

/// A task with what it did.
#[derive(Clone, Debug, Default)]
pub struct TrackTask {
    /// Its thread.
    pub tid: u32,
    /// Its process, where known.
    pub pid: Option<u32>,
    /// Its last name.
    pub comm: Vec<u8>,
    /// Its states.
    pub states: SpanTrack,
    /// Its system calls.
    pub calls: SpanTrack,
    /// Events in it.
    pub events: u64,
    /// Since when it is off its CPU, and in which state.
    pub(super) left: Option<(u64, SwitchOutState)>,
    /// Since when it could run, while it does not.
    pub(super) woken: Option<u64>,
    /// The call that it is in, and since when.
    pub(super) call: Option<(u64, u32)>,
}

/// All tasks; one whose thread id is given to another is told apart from that.
#[derive(Debug, Default)]
pub(super) struct TaskList {
    pub(super) tasks: Vec<TrackTask>,
    by_tid: FxHashMap<u32, u32>,
    pub(super) crowded: u64,
}

impl TaskList {
    /// Number of a task.
    #[inline]
    pub(super) fn find(&mut self, info: &TaskInfo) -> Option<u32> {
        // Of what happens while a task ends, perf states -1.
        let tid = info.tid.filter(|tid| *tid != u32::MAX)?;
        let number = match self.by_tid.get(&tid) {
            Some(number) => *number,
            None if self.tasks.len() >= MOST => {
                self.crowded += 1;
                return None;
            }
            None => {
                let number = self.tasks.len() as u32;
                self.tasks.push(TrackTask { tid, ..TrackTask::default() });
                self.by_tid.insert(tid, number);
                number
            }
        };
        let task = self.tasks.get_mut(number as usize)?;
        if tid == 0 {
            if task.comm.is_empty() {
                task.comm = b"<idle>".to_vec();
            }
        } else if (info.is_named || task.comm.is_empty()) && task.comm != info.comm() {
            task.comm = info.comm().to_vec();
        }
        task.pid = info.pid.or(task.pid);
        Some(number)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut TrackTask> {
        self.tasks.get_mut(number as usize)
    }

    /// A thread has ended: what has its number later is another one.
    pub(super) fn end(&mut self, tid: u32) {
        self.by_tid.remove(&tid);
    }
}
