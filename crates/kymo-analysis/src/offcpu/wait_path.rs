//! Critical path of a recorded command or process, as sums: the waits of a thread are replaced by
//! what the thread that ended them did meanwhile.

use rustc_hash::FxHashMap;

use super::cause::OffCpuCause;
use super::stack_store::StackNode;

/// Waits of which the path is made; a recording with more has no path.
const MAX_WAITS: usize = 1 << 19;
/// Waits within waits that are followed.
const MAX_DEPTH: u32 = 256;
/// Parts of a path.
const MAX_PARTS: usize = 1 << 22;

/// Time from the start to the end by where the path through who woke whom spent it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitPath {
    /// On a CPU, in nanoseconds.
    pub running: u64,
    /// Able to run, without a CPU.
    pub without_cpu: u64,
    /// Blocked, by cause and stack, where the path ends.
    pub blocked: FxHashMap<(OffCpuCause, Option<StackNode>), u64>,
    /// Waits for another thread of the recording that the path replaces by what that thread did.
    pub through: FxHashMap<(OffCpuCause, Option<StackNode>), u64>,
}

impl WaitPath {
    /// All its time.
    pub fn total(&self) -> u64 {
        let blocked = self.blocked.values().fold(0u64, |a, b| a.saturating_add(*b));
        self.running.saturating_add(self.without_cpu).saturating_add(blocked)
    }

    /// Blocked time by cause, the most first.
    pub fn causes(&self) -> Vec<(OffCpuCause, u64)> {
        let mut sums: FxHashMap<OffCpuCause, u64> = FxHashMap::default();
        for ((cause, _), nanos) in &self.blocked {
            let sum = sums.entry(*cause).or_default();
            *sum = sum.saturating_add(*nanos);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(cause, nanos)| (std::cmp::Reverse(*nanos), *cause));
        sums
    }

    /// The stack in which most time of a cause was spent.
    pub fn stack(&self, cause: OffCpuCause) -> Option<StackNode> {
        let of = self.blocked.iter().filter(|((c, _), _)| *c == cause);
        of.max_by_key(|((_, stack), nanos)| (**nanos, *stack)).and_then(|((_, stack), _)| *stack)
    }
}

/// Time of a thread off its CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathWait {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) cause: OffCpuCause,
    pub(super) stack: Option<StackNode>,
    /// When it was woken, and the thread that did it, unless that was an interrupt.
    pub(super) woken: Option<(u64, Option<u32>)>,
    /// It was off its CPU when the recording ended.
    pub(super) is_open: bool,
}

#[derive(Debug, Default)]
struct PathThread {
    waits: Vec<PathWait>,
    /// When it was made, by which thread.
    birth: Option<(u64, u32)>,
    exit: Option<u64>,
    process: Option<u32>,
}

/// Threads over time, as far as the path needs them.
#[derive(Debug, Default)]
pub(super) struct PathHistory {
    threads: FxHashMap<u32, PathThread>,
    /// Processes by parent, in the order of their births.
    children: FxHashMap<u32, Vec<u32>>,
    /// Ends of processes by parent, in the order of time.
    ends: FxHashMap<u32, Vec<(u64, u32)>>,
    waits: usize,
}

/// Part of the path that is still to be followed: a thread between two times.
#[derive(Clone, Copy, Debug)]
struct PathPart {
    tid: u32,
    from: u64,
    to: u64,
    depth: u32,
}

impl PathHistory {
    pub(super) fn born(&mut self, task: &kymo_model::Task, time: u64) {
        // A number that is used again is another thread.
        let thread = self.threads.entry(task.tid).or_default();
        if time > 0 {
            self.waits -= thread.waits.len();
            *thread = PathThread::default();
            thread.birth = Some((time, task.ptid));
        }
        thread.process = Some(task.pid);
        if task.pid == task.tid && task.ppid != task.pid {
            self.children.entry(task.ppid).or_default().push(task.pid);
        }
    }

    pub(super) fn exited(&mut self, task: &kymo_model::Task, time: u64) {
        self.threads.entry(task.tid).or_default().exit = Some(time);
        if task.pid == task.tid {
            self.ends.entry(task.ppid).or_default().push((time, task.pid));
        }
    }

    pub(super) fn waited(&mut self, tid: u32, wait: PathWait) {
        if self.waits < MAX_WAITS {
            self.threads.entry(tid).or_default().waits.push(wait);
        }
        self.waits += 1;
    }

    /// The path back from the end of a thread to the time `from`.
    pub(super) fn path(&self, tid: u32, from: u64, end: u64) -> Option<WaitPath> {
        if self.waits > MAX_WAITS {
            return None;
        }
        let to = self.threads.get(&tid)?.exit.map_or(end, |exit| exit.min(end));
        let mut path = WaitPath::default();
        let mut parts = vec![PathPart { tid, from, to, depth: 0 }];
        let mut followed = 0;
        while let Some(part) = parts.pop() {
            followed += 1;
            if followed > MAX_PARTS {
                return None;
            }
            self.follow(part, &mut path, &mut parts);
        }
        Some(path)
    }

    fn follow(&self, part: PathPart, path: &mut WaitPath, parts: &mut Vec<PathPart>) {
        let PathPart { tid, mut from, to, depth } = part;
        let Some(thread) = self.threads.get(&tid) else { return };
        // Before a thread was there, the path is that of the one that made it.
        if let Some((birth, parent)) = thread.birth.filter(|(birth, _)| *birth > from) {
            let birth = birth.min(to);
            if self.threads.contains_key(&parent) && depth < MAX_DEPTH {
                parts.push(PathPart { tid: parent, from, to: birth, depth: depth + 1 });
            }
            from = birth;
        }
        let mut at = from;
        let first = thread.waits.partition_point(|w| w.to <= from);
        for wait in thread.waits.get(first..).unwrap_or_default() {
            if wait.from >= to {
                break;
            }
            let (begin, end) = (wait.from.max(at), wait.to.min(to));
            if begin >= end {
                continue;
            }
            path.running += begin - at;
            at = end;
            if wait.cause.is_runnable() {
                path.without_cpu += end - begin;
                continue;
            }
            let woken = wait.woken.map_or(end, |(time, _)| time.clamp(begin, end));
            path.without_cpu += end - woken;
            if woken == begin {
                continue;
            }
            let key = (wait.cause, wait.stack);
            match self.cause_of(tid, wait, woken).filter(|_| depth < MAX_DEPTH) {
                Some(next) => {
                    *path.through.entry(key).or_default() += woken - begin;
                    parts.push(PathPart { tid: next, from: begin, to: woken, depth: depth + 1 });
                }
                None => *path.blocked.entry(key).or_default() += woken - begin,
            }
        }
        path.running += to.saturating_sub(at);
    }

    /// The thread of the recording for which a thread waited until `woken`.
    fn cause_of(&self, tid: u32, wait: &PathWait, woken: u64) -> Option<u32> {
        let waker = wait.woken.and_then(|(_, waker)| waker).filter(|waker| *waker != tid);
        if let Some(waker) = waker.filter(|waker| self.threads.contains_key(waker)) {
            return Some(waker);
        }
        let is_child = matches!(wait.cause, OffCpuCause::Child | OffCpuCause::Vfork);
        let may_be_child = is_child || wait.is_open && wait.cause == OffCpuCause::Signal;
        if !may_be_child {
            return None;
        }
        let process = self.threads.get(&tid)?.process.unwrap_or(tid);
        if wait.is_open {
            let children = self.children.get(&process)?.iter().rev();
            let lives = |child: &&u32| self.threads.get(child).is_some_and(|c| c.exit.is_none());
            return children.copied().find(|child| lives(&child));
        }
        let ends = self.ends.get(&process)?;
        let last = ends.partition_point(|(time, _)| *time <= woken).checked_sub(1)?;
        ends.get(last).filter(|(time, _)| *time > wait.from).map(|(_, child)| *child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(from: u64, to: u64, cause: OffCpuCause, woken: Option<(u64, Option<u32>)>) -> PathWait {
        PathWait { from, to, cause, stack: None, woken, is_open: false }
    }

    /// A shell waits for a child that writes to a disk; a helper sleeps all the time.
    #[test]
    fn the_path_leads_through_a_child_and_never_to_an_idle_thread() {
        let mut history = PathHistory::default();
        let task = |tid, ppid| kymo_model::Task { pid: tid, ppid, tid, ptid: ppid, time: 0 };
        history.born(&task(1, 99), 0);
        history.born(&task(2, 1), 20);
        history.waited(1, wait(20, 100, OffCpuCause::Child, Some((95, None))));
        history.waited(2, wait(20, 30, OffCpuCause::New, None));
        history.waited(2, wait(40, 85, OffCpuCause::Disk, Some((80, None))));
        history.exited(&task(2, 1), 94);
        history.waited(3, wait(0, 100, OffCpuCause::Futex, None));
        let path = history.path(1, 0, 110).unwrap();
        let want = |pairs: &[(OffCpuCause, u64)]| {
            pairs.iter().map(|(cause, nanos)| ((*cause, None), *nanos)).collect()
        };
        let running = 20 + 10 + 10 + 10;
        assert_eq!((path.running, path.without_cpu), (running, 10 + 5 + 5));
        assert_eq!(path.blocked, want(&[(OffCpuCause::Disk, 40)]));
        assert_eq!(path.through, want(&[(OffCpuCause::Child, 75)]));
        assert_eq!(path.total(), 110);
    }
}
