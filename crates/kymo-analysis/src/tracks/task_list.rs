//! The tasks of a recording, by the number under which they are drawn.

use kymo_events::TaskInfo;
use rustc_hash::FxHashMap;

use super::program_spans::ThreadSpans;
use super::span_track::SpanTrack;

/// Tasks with tracks of their own.
const MOST: usize = 1 << 16;

/// Names of one task that are kept.
const MOST_NAMES: usize = 64;

/// A task with what it did.
#[derive(Clone, Debug, Default)]
pub struct TrackTask {
    /// Its thread.
    pub tid: u32,
    /// Its process, where known.
    pub pid: Option<u32>,
    /// Its last name.
    pub comm: Vec<u8>,
    /// Its names before that, and until when it had them.
    pub old_names: Vec<(u64, Vec<u8>)>,
    /// Its states.
    pub states: SpanTrack,
    /// Its system calls.
    pub calls: SpanTrack,
    /// Spans that its program marks.
    pub spans: ThreadSpans,
    /// Events in it.
    pub events: u64,
    /// It runs, or can: a wake-up ends no wait.
    pub(super) is_awake: bool,
    /// The call that it is in, and since when.
    pub(super) call: Option<(u64, u32)>,
    /// As it was stated last.
    stated: TaskInfo,
}

impl TrackTask {
    /// Its name at a time.
    pub fn name_at(&self, time: u64) -> &[u8] {
        let old = self.old_names.iter().find(|(until, _)| time < *until);
        old.map_or(&self.comm, |(_, name)| name)
    }
}

/// All tasks; one whose thread id is given to another is a separate entry.
#[derive(Debug, Default)]
pub(super) struct TaskList {
    pub(super) tasks: Vec<TrackTask>,
    by_tid: FxHashMap<u32, u32>,
    /// Thread and number of the task that was found last: many events of one follow each other.
    last: Option<(u32, u32)>,
    pub(super) crowded: u64,
}

impl TaskList {
    /// Number of a task.
    #[inline]
    pub(super) fn find(&mut self, info: &TaskInfo, now: u64) -> Option<u32> {
        // Of what happens while a task ends, perf states -1: a task of its own.
        let tid = info.tid?;
        let last = self.last.filter(|last| last.0 == tid).map(|last| last.1);
        let number = match last.or_else(|| self.by_tid.get(&tid).copied()) {
            Some(number) => number,
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
        self.last = Some((tid, number));
        let task = self.tasks.get_mut(number as usize)?;
        if task.stated == *info {
            return Some(number);
        }
        task.stated = *info;
        if tid == 0 {
            if task.comm.is_empty() {
                task.comm = b"<idle>".to_vec();
            }
        } else if (info.is_named || task.comm.is_empty()) && task.comm != info.comm() {
            let old = std::mem::replace(&mut task.comm, info.comm().to_vec());
            if !old.is_empty() && task.old_names.len() < MOST_NAMES {
                task.old_names.push((now, old));
            }
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
        self.last = None;
    }
}
