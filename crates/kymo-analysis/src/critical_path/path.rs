//! A critical path: its segments, and what they add up to by kind and by culprit.

use rustc_hash::FxHashMap;

use super::wake_source::WakeSource;
use crate::offcpu::{OffCpuCause, StackNode, StackStore};
use crate::tasks::{DelayStats, SchedRead};

/// Number of a task of a path; two tasks with one thread id have two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathTaskId(pub u32);

/// A task of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathTask {
    /// Name, the last that it had.
    pub comm: Vec<u8>,
    /// Names that it had before, while it was seen.
    pub old_comms: Vec<Vec<u8>>,
    /// Thread.
    pub tid: u32,
    /// Its process, where known.
    pub pid: Option<u32>,
    /// Its first and last moment in the recording.
    pub seen: (u64, u64),
}

/// Names of one task that are kept.
const MOST_NAMES: usize = 16;

impl PathTask {
    /// Takes another name.
    pub(super) fn rename(&mut self, comm: &[u8]) {
        if self.comm == comm {
            return;
        }
        let before = std::mem::replace(&mut self.comm, comm.to_vec());
        if !before.is_empty() && self.old_comms.len() < MOST_NAMES {
            self.old_comms.push(before);
        }
    }

    /// Whether it has, or had, a name.
    pub(super) fn had_name(&self, comm: &[u8]) -> bool {
        self.comm == comm || self.old_comms.iter().any(|old| old == comm)
    }
}

/// Kind of the time of a path segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathKind {
    /// The task of the segment ran.
    Running,
    /// It could run, and had no CPU.
    Waiting(OffCpuCause),
    /// It was blocked, and no task did anything for its wake-up.
    Blocked(OffCpuCause, WakeSource),
    /// The recording does not tell.
    Unknown,
}

impl PathKind {
    /// A sentence's words.
    pub fn text(self) -> String {
        match self {
            PathKind::Running => "running".to_owned(),
            PathKind::Waiting(cause) => cause.text().to_owned(),
            PathKind::Blocked(cause, source) => match (cause, source) {
                (OffCpuCause::Sleep, WakeSource::Timer | WakeSource::Unseen)
                | (OffCpuCause::Disk | OffCpuCause::PageFault, WakeSource::Disk) => {
                    cause.text().to_owned()
                }
                _ => format!("{}{}", cause.text(), source.text()),
            },
            PathKind::Unknown => "unknown: switches are missing".to_owned(),
        }
    }

    /// Stable word for scripts.
    pub fn code(self) -> &'static str {
        match self {
            PathKind::Running => "running",
            PathKind::Waiting(cause) | PathKind::Blocked(cause, _) => cause.code(),
            PathKind::Unknown => "unknown",
        }
    }

    /// Source of the wake-up that ended it, of a blocked task.
    pub fn ended_by(self) -> Option<WakeSource> {
        match self {
            PathKind::Blocked(_, source) => Some(source),
            _ => None,
        }
    }
}

/// Event whose stack belongs to a segment: time, CPU, and whether it is a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StackPlace {
    pub(super) time: u64,
    pub(super) cpu: u32,
    pub(super) is_switch: bool,
}

/// A part of a path.
#[derive(Clone, Copy, Debug)]
pub struct PathSegment {
    /// Begin.
    pub from: u64,
    /// End.
    pub to: u64,
    /// Task of the segment.
    pub task: PathTaskId,
    /// Kind of the time.
    pub kind: PathKind,
    /// CPU that it ran on, or waited for.
    pub cpu: Option<u32>,
    /// Wake-ups between it and the task of the path; 0: it is that task itself.
    pub depth: u32,
    /// Task that ran on the CPU instead, if this one waited for it.
    pub instead: Option<PathTaskId>,
    /// Stack at its end: where it was switched out or woke the one that waited.
    pub stack: Option<StackNode>,
    /// Line of the program there; see [`PathTable::line`].
    pub(super) line: Option<u32>,
    /// Whether events were lost within it.
    pub touches_loss: bool,
    /// Whether a switch is missing, so that running and waiting are not distinguished in it.
    pub is_unsplit: bool,
    pub(super) place: Option<StackPlace>,
    /// Stack of its wake-up, of a blocked task.
    pub(super) wake_place: Option<StackPlace>,
}

impl PathSegment {
    /// Nanoseconds.
    pub fn nanos(&self) -> u64 {
        self.to - self.from
    }

    /// Whether it may have been otherwise.
    pub fn is_uncertain(&self) -> bool {
        self.touches_loss || self.is_unsplit || self.kind == PathKind::Unknown
    }

    /// Returns the task that used the time: the one that ran instead, else the segment's own.
    pub fn culprit(&self) -> PathTaskId {
        self.instead.unwrap_or(self.task)
    }
}

/// The critical path of a task between two times.
#[derive(Clone, Debug)]
pub struct CriticalPath {
    /// The task.
    pub task: PathTaskId,
    /// Begin.
    pub from: u64,
    /// End.
    pub to: u64,
    /// Its segments by time; they cover it.
    pub segments: Vec<PathSegment>,
    /// Nanoseconds at its start that were not followed, since it has too many segments.
    pub left_out: u64,
}

impl CriticalPath {
    /// Nanoseconds.
    pub fn nanos(&self) -> u64 {
        self.to - self.from
    }
}

/// Time of paths by kind and culprit.
#[derive(Clone, Copy, Debug)]
pub struct PathCulprit {
    /// Kind of the time; all causes of waiting for a CPU are merged.
    pub kind: PathKind,
    /// Task that used the time: the first one of its name.
    pub task: PathTaskId,
    /// Whether several tasks of that name are.
    pub is_several: bool,
    /// Whether they ran while the task of the path waited for the CPU.
    pub ran_instead: bool,
    /// Nanoseconds together.
    pub total: u64,
    /// Number of segments.
    pub count: u64,
    /// The longest of them: number of its path and of its place there.
    pub longest: (usize, usize),
}

/// Line of a program's source at the end of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathLine {
    /// Frame of the program that it is of: 0 is the innermost one.
    pub frame: usize,
    /// Source file.
    pub file: String,
    /// Line in it.
    pub line: u32,
}

/// Spans of a program's events.
#[derive(Clone, Debug, Default)]
pub struct SpanStats {
    /// Those that ended.
    pub spans: DelayStats,
    /// Begins without an end.
    pub no_end: u64,
    /// Ends without a begin.
    pub no_begin: u64,
    /// Events that lack the field that is the key.
    pub no_key: u64,
    /// Spans whose task is not known to the scheduler's events.
    pub no_task: u64,
}

/// Critical paths, and what they are made of.
#[derive(Debug)]
pub struct PathTable {
    /// The paths, the longest first.
    pub paths: Vec<CriticalPath>,
    /// All tasks that paths name.
    pub tasks: Vec<PathTask>,
    /// Spans of a program's events, if those were asked for.
    pub spans: Option<SpanStats>,
    /// Tasks that would have fitted the choice as well.
    pub alternatives: Vec<PathTask>,
    /// Lines of the longest segments.
    pub(super) lines: Vec<PathLine>,
    /// The stacks.
    pub stacks: StackStore,
    /// Events whose stacks were looked for, and found.
    pub stacked: (u64, u64),
    /// Whether the recording has events of queueing the work of kernel workers.
    pub has_work_events: bool,
    /// Whether the command of the path is the first program of its name, for want of better.
    pub is_command_by_name: bool,
    /// Before this time the history was forgotten.
    pub forgotten: Option<u64>,
    /// Waits of the paths in progress at the start of a live capture, counted from then on.
    pub began_before: u64,
    /// Tasks there was no room for.
    pub crowded: u64,
    /// Scheduler events that were read.
    pub read: SchedRead,
}

impl PathTable {
    /// A task.
    pub fn task(&self, id: PathTaskId) -> Option<&PathTask> {
        self.tasks.get(id.0 as usize)
    }

    /// Nanoseconds of all paths.
    pub fn total(&self) -> u64 {
        self.paths.iter().map(CriticalPath::nanos).sum()
    }

    /// Time by kind and culprit, the most first. Culprits of one name are one.
    pub fn culprits(&self) -> Vec<PathCulprit> {
        let mut names: FxHashMap<&[u8], PathTaskId> = FxHashMap::default();
        let mut rows: FxHashMap<(PathKind, PathTaskId, bool), PathCulprit> = FxHashMap::default();
        for (number, path) in self.paths.iter().enumerate() {
            for (at, segment) in path.segments.iter().enumerate() {
                let culprit = segment.culprit();
                let name = self.task(culprit).map_or(&[][..], |t| &t.comm);
                let task = *names.entry(name).or_insert(culprit);
                let kind = match segment.kind {
                    PathKind::Waiting(cause) if cause.is_runnable() => {
                        PathKind::Waiting(OffCpuCause::Woken)
                    }
                    kind => kind,
                };
                let ran_instead = segment.instead.is_some();
                let longest = (number, at);
                let row = rows.entry((kind, task, ran_instead)).or_insert(PathCulprit {
                    kind,
                    task,
                    is_several: false,
                    ran_instead,
                    total: 0,
                    count: 0,
                    longest,
                });
                row.is_several |= culprit != task;
                row.total += segment.nanos();
                row.count += 1;
                if self.segment(row.longest).is_none_or(|l| l.nanos() < segment.nanos()) {
                    row.longest = longest;
                }
            }
        }
        let mut rows: Vec<PathCulprit> = rows.into_values().collect();
        rows.sort_by_key(|r| (std::cmp::Reverse(r.total), r.kind, r.task, r.ran_instead));
        rows
    }

    /// A segment by the number of its path and of its place there.
    pub fn segment(&self, (path, at): (usize, usize)) -> Option<&PathSegment> {
        self.paths.get(path)?.segments.get(at)
    }

    /// Line of the innermost function of the program that has one at the end of a segment, if it
    /// is one of the longest segments.
    pub fn line(&self, segment: &PathSegment) -> Option<&PathLine> {
        self.lines.get(segment.line? as usize)
    }

    /// Places of the longest segments.
    pub fn worst(&self, count: usize) -> Vec<(usize, usize)> {
        let places = |(number, path): (usize, &CriticalPath)| {
            (0..path.segments.len()).map(move |at| (number, at))
        };
        let mut all: Vec<_> = self.paths.iter().enumerate().flat_map(places).collect();
        all.sort_by_key(|p| {
            (std::cmp::Reverse(self.segment(*p).map_or(0, PathSegment::nanos)), *p)
        });
        all.truncate(count);
        all
    }
}
