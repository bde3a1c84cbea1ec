//! Critical path of a recorded command or process, as sums: the waits of a thread are replaced by
//! what the thread that ended them did meanwhile.

use rustc_hash::FxHashMap;

use super::cause::OffCpuCause;
use super::futex_use::FutexUse;
use super::stack_store::{StackNode, StackStore};

/// Waits of which the path is made; a recording with more has no path.
const MAX_WAITS: usize = 1 << 19;
/// Waits within waits that are followed.
const MAX_DEPTH: u32 = 256;
/// Parts of a path.
const MAX_PARTS: usize = 1 << 22;
/// Nanoseconds between two attempts at the same thing.
const RETRY: u64 = 200_000;
/// Nanoseconds between the closing of a task's files and its end.
const CLOSING: u64 = 2_000_000;

/// Time from the start to the end by where the path through who woke whom spent it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitPath {
    /// On a CPU, in nanoseconds.
    pub running: u64,
    /// Able to run, without a CPU.
    pub without_cpu: u64,
    /// Running or not: records of switches are missing.
    pub uncertain: u64,
    /// Blocked, by cause and stack, where the path ends.
    pub blocked: FxHashMap<(OffCpuCause, Option<StackNode>), u64>,
    /// Number of threads whose paths these are.
    pub threads: u64,
    /// Waits for another thread of the recording that the path replaces by what that thread did.
    pub through: FxHashMap<(OffCpuCause, Option<StackNode>), u64>,
}

impl WaitPath {
    /// All its time.
    pub fn total(&self) -> u64 {
        let blocked = self.blocked.values().fold(0u64, |a, b| a.saturating_add(*b));
        let others = self.running.saturating_add(self.without_cpu).saturating_add(self.uncertain);
        others.saturating_add(blocked)
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

impl WaitPath {
    /// Time in which threads of the recording waited for locks that others of them held, and the
    /// stack with most of it. Waits within waits are part of both.
    pub fn locks(&self, stacks: &StackStore) -> Option<(u64, StackNode)> {
        let locks = self.through.iter().filter_map(|((cause, stack), nanos)| {
            let stack = (*stack).filter(|_| *cause == OffCpuCause::Futex)?;
            (FutexUse::of(stacks.names(stack)) == FutexUse::Lock).then_some((*nanos, stack))
        });
        let mut all = 0u64;
        let most = locks.inspect(|(nanos, _)| all = all.saturating_add(*nanos)).max();
        most.map(|(_, stack)| (all.min(self.total()), stack))
    }

    /// Time in which a server that was there before may have had nothing to do, with the cause and
    /// the stack of most of it.
    pub fn idle(&self, stacks: &StackStore) -> Option<(u64, OffCpuCause, Option<StackNode>)> {
        /// Functions that wait for new connections.
        const ACCEPT: [&str; 3] = ["inet_csk_accept", "unix_accept", "vsock_accept"];
        let accepts =
            |stack: &StackNode| stacks.names(*stack).iter().any(|name| ACCEPT.contains(name));
        let idle = self.blocked.iter().filter(|((cause, stack), _)| {
            cause.may_be_idle()
                || *cause == OffCpuCause::Socket && stack.as_ref().is_some_and(accepts)
        });
        let mut all = 0u64;
        let most = idle
            .inspect(|(_, nanos)| all = all.saturating_add(**nanos))
            .max_by_key(|((cause, stack), nanos)| (**nanos, *cause, *stack));
        most.map(|((cause, stack), _)| (all, *cause, *stack))
    }

    /// Adds the path of another thread.
    fn add(&mut self, other: WaitPath) {
        self.running = self.running.saturating_add(other.running);
        self.without_cpu = self.without_cpu.saturating_add(other.without_cpu);
        self.uncertain = self.uncertain.saturating_add(other.uncertain);
        self.threads += other.threads;
        for (sums, parts) in
            [(&mut self.blocked, other.blocked), (&mut self.through, other.through)]
        {
            for (key, nanos) in parts {
                let sum = sums.entry(key).or_default();
                *sum = sum.saturating_add(nanos);
            }
        }
    }
}

/// Time of a thread off its CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathWait {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) cause: OffCpuCause,
    pub(super) stack: Option<StackNode>,
    /// Time of the wake-up, and the waking thread, unless that was an interrupt.
    pub(super) woken: Option<(u64, Option<u32>)>,
    /// It was off its CPU when the recording ended.
    pub(super) is_open: bool,
    /// It may have run meanwhile: a record of a switch is missing.
    pub(super) is_uncertain: bool,
    /// Thread that ended the last of the attempts that this wait was one of.
    pub(super) retried_until: Option<u32>,
}

impl PathWait {
    /// Wait for a futex that is over because its time was.
    fn is_timed_out(&self) -> bool {
        self.cause == OffCpuCause::Futex && matches!(self.woken, Some((_, None)))
    }
}

#[derive(Debug, Default)]
struct PathThread {
    waits: Vec<PathWait>,
    /// First of the waits with a time limit that are attempts at the same thing.
    attempts_from: usize,
    /// Time of its creation, and the creating thread.
    birth: Option<(u64, u32)>,
    exit: Option<u64>,
    process: Option<u32>,
}

impl PathThread {
    /// Adds the next wait. Those that were over by their time limit and were directly tried again
    /// are one with that which another thread ended: so a lock is taken that its owner is asked
    /// to give up every few milliseconds, as Python's.
    fn add(&mut self, wait: PathWait) {
        if wait.cause == OffCpuCause::Futex {
            if !self.is_next_attempt(&wait) {
                self.attempts_from = self.waits.len();
            }
            if let Some((_, Some(waker))) = wait.woken {
                let attempts = self.waits.get_mut(self.attempts_from..).unwrap_or_default();
                for attempt in attempts.iter_mut().filter(|w| w.is_timed_out()) {
                    attempt.retried_until = Some(waker);
                }
                self.attempts_from = self.waits.len() + 1;
            }
        }
        self.waits.push(wait);
    }

    /// Whether the last wait was over by its time limit, and the thread did little since.
    fn is_next_attempt(&self, wait: &PathWait) -> bool {
        let mut ready = 0u64;
        for last in self.waits.iter().rev() {
            if !last.cause.is_runnable() {
                let since = wait.from.saturating_sub(last.to);
                return last.is_timed_out() && since.saturating_sub(ready) <= RETRY;
            }
            ready = ready.saturating_add(last.to.saturating_sub(last.from));
        }
        false
    }
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
    /// Position, in the list of all, of the part whose wait it replaces.
    of: Option<usize>,
}

/// Parts that are still to be followed, and those of whose waits they are parts.
#[derive(Debug, Default)]
struct PathParts {
    next: Vec<PathPart>,
    followed: Vec<PathPart>,
}

impl PathParts {
    /// Whether a thread is one of those that wait for the part that was followed last.
    fn waits_already(&self, tid: u32) -> bool {
        let mut at = self.followed.last();
        while let Some(part) = at {
            if part.tid == tid {
                return true;
            }
            at = part.of.and_then(|n| self.followed.get(n));
        }
        false
    }
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
            self.threads.entry(tid).or_default().add(wait);
        }
        self.waits += 1;
    }

    /// The path back from the end of a thread to the time `from`.
    pub(super) fn path(&self, tid: u32, from: u64, end: u64) -> Option<WaitPath> {
        if self.waits > MAX_WAITS {
            return None;
        }
        let to = self.threads.get(&tid)?.exit.map_or(end, |exit| exit.min(end));
        let mut path = WaitPath { threads: 1, ..WaitPath::default() };
        let mut parts = PathParts::default();
        parts.next.push(PathPart { tid, from, to, depth: 0, of: None });
        while let Some(part) = parts.next.pop() {
            if parts.followed.len() >= MAX_PARTS {
                return None;
            }
            parts.followed.push(part);
            self.follow(part, &mut path, &mut parts);
        }
        Some(path)
    }

    /// The paths of several threads, as one.
    pub(super) fn paths(&self, tids: &[u32], from: u64, end: u64) -> Option<WaitPath> {
        let mut all = WaitPath::default();
        for tid in tids {
            // Whatever was there before a thread is not its time.
            let birth = self.threads.get(tid).and_then(|thread| thread.birth);
            let from = birth.map_or(from, |(birth, _)| birth.max(from));
            all.add(self.path(*tid, from, end)?);
        }
        (all.threads > 0).then_some(all)
    }

    fn follow(&self, part: PathPart, path: &mut WaitPath, parts: &mut PathParts) {
        let PathPart { tid, mut from, to, depth, .. } = part;
        let of = parts.followed.len().checked_sub(1);
        let Some(thread) = self.threads.get(&tid) else { return };
        // Before a thread was there, the path is that of the one that made it.
        if let Some((birth, parent)) = thread.birth.filter(|(birth, _)| *birth > from) {
            let birth = birth.min(to);
            if self.threads.contains_key(&parent) && depth < MAX_DEPTH {
                parts.next.push(PathPart { tid: parent, from, to: birth, depth: depth + 1, of });
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
            if wait.is_uncertain {
                path.uncertain += end - begin;
                continue;
            }
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
            // A thread that is killed was woken by one that waited for it.
            let may = |next: &u32| {
                self.threads.contains_key(next) && (wait.to < to || !parts.waits_already(*next))
            };
            match self.cause_of(tid, wait, woken, &may).filter(|_| depth < MAX_DEPTH) {
                Some(tid) => {
                    *path.through.entry(key).or_default() += woken - begin;
                    parts.next.push(PathPart { tid, from: begin, to: woken, depth: depth + 1, of });
                }
                None => *path.blocked.entry(key).or_default() += woken - begin,
            }
        }
        path.running += to.saturating_sub(at);
    }

    /// The thread of the recording, of those that may be it, for which a thread waited until
    /// `woken`.
    fn cause_of(
        &self,
        tid: u32,
        wait: &PathWait,
        woken: u64,
        may: &dyn Fn(&u32) -> bool,
    ) -> Option<u32> {
        let waker = wait.woken.and_then(|(_, waker)| waker).or(wait.retried_until);
        if let Some(waker) = waker.filter(|waker| *waker != tid).filter(may) {
            return Some(waker);
        }
        let process = self.threads.get(&tid)?.process.unwrap_or(tid);
        let child = match wait.cause {
            OffCpuCause::Child | OffCpuCause::Vfork | OffCpuCause::Signal if wait.is_open => {
                self.live_child(process, woken)
            }
            // A wrapper waits for a signal: that its child ended, or that its time is over.
            OffCpuCause::Child | OffCpuCause::Vfork | OffCpuCause::Signal => {
                let ended = self.ended_child(process, wait.from, woken);
                ended.or_else(|| self.live_child(process, woken))
            }
            // The other end of a terminal or pipe closes shortly before the child ends.
            OffCpuCause::Poll if !wait.is_open => {
                self.ended_child(process, wait.from, woken.saturating_add(CLOSING))
            }
            _ => None,
        };
        child.filter(may)
    }

    /// The child of a process that ended last between two times.
    fn ended_child(&self, process: u32, from: u64, to: u64) -> Option<u32> {
        let ends = self.ends.get(&process)?;
        let last = ends.partition_point(|(time, _)| *time <= to).checked_sub(1)?;
        ends.get(last).filter(|(time, _)| *time > from).map(|(_, child)| *child)
    }

    /// The youngest child of a process that lives at a time.
    fn live_child(&self, process: u32, time: u64) -> Option<u32> {
        let lives = |child: &&u32| {
            self.threads.get(child).is_some_and(|c| {
                c.birth.is_none_or(|(birth, _)| birth <= time)
                    && c.exit.is_none_or(|exit| exit > time)
            })
        };
        self.children.get(&process)?.iter().rev().find(lives).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(from: u64, to: u64, cause: OffCpuCause, woken: Option<(u64, Option<u32>)>) -> PathWait {
        PathWait {
            from,
            to,
            cause,
            stack: None,
            woken,
            is_open: false,
            is_uncertain: false,
            retried_until: None,
        }
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

    /// A lock whose owner is asked to give it up: attempts with a time limit until it does.
    #[test]
    fn attempts_with_a_time_limit_lead_to_the_thread_that_ended_the_last() {
        let mut history = PathHistory::default();
        let ms = 1_000_000;
        let timed_out = |from, to| wait(from, to, OffCpuCause::Futex, Some((to, None)));
        history.waited(1, timed_out(0, 5 * ms));
        // It was preempted between two attempts.
        history.waited(1, wait(5 * ms, 6 * ms, OffCpuCause::Preempted, None));
        history.waited(1, timed_out(6 * ms + 10, 11 * ms));
        let ended = wait(11 * ms + 10, 20 * ms, OffCpuCause::Futex, Some((20 * ms, Some(2))));
        history.waited(1, ended);
        // It ran between: another attempt, which nothing but its time ended.
        history.waited(1, timed_out(25 * ms, 30 * ms));
        history.waited(2, wait(3 * ms, 4 * ms, OffCpuCause::Disk, Some((4 * ms, None))));
        let path = history.path(1, 0, 30 * ms).unwrap();
        let blocked = |cause| path.blocked.get(&(cause, None)).copied();
        assert_eq!(blocked(OffCpuCause::Futex), Some(5 * ms));
        assert_eq!(blocked(OffCpuCause::Disk), Some(ms));
        assert_eq!(path.without_cpu, ms);
        assert_eq!(path.total(), 30 * ms);
    }

    /// `timeout` waits for a signal; a terminal closes when its program ends.
    #[test]
    fn wrappers_lead_to_their_children_by_signals_and_polls() {
        for cause in [OffCpuCause::Signal, OffCpuCause::Poll] {
            let mut history = PathHistory::default();
            let task = |tid, ppid| kymo_model::Task { pid: tid, ppid, tid, ptid: ppid, time: 0 };
            history.born(&task(1, 99), 0);
            let ms = |n: u64| n * 1_000_000;
            history.born(&task(2, 1), ms(10));
            // The time limit ends the first wait, the end of the child the second one.
            history.waited(1, wait(ms(10), ms(50), cause, Some((ms(50), None))));
            history.waited(1, wait(ms(50), ms(100), cause, Some((ms(100), None))));
            history.waited(2, wait(ms(10), ms(95), OffCpuCause::Disk, Some((ms(95), None))));
            history.exited(&task(2, 1), ms(100));
            let path = history.path(1, 0, ms(100)).unwrap();
            let of_child = ms(if cause == OffCpuCause::Signal { 85 } else { 45 });
            assert_eq!(path.blocked.get(&(OffCpuCause::Disk, None)), Some(&of_child), "{cause:?}");
        }
    }

    /// `timeout` ends the sleep of the grandchild for which its child waits.
    #[test]
    fn a_thread_that_is_killed_does_not_wait_for_the_one_that_kills_it() {
        let mut history = PathHistory::default();
        let task = |tid, ppid| kymo_model::Task { pid: tid, ppid, tid, ptid: ppid, time: 0 };
        history.born(&task(1, 99), 0);
        history.born(&task(2, 1), 10);
        history.born(&task(3, 2), 20);
        history.waited(1, wait(10, 100, OffCpuCause::Signal, Some((100, None))));
        history.waited(2, wait(20, 110, OffCpuCause::Child, Some((110, Some(1)))));
        history.waited(3, wait(20, 105, OffCpuCause::Sleep, Some((105, Some(1)))));
        history.exited(&task(3, 2), 107);
        history.exited(&task(2, 1), 112);
        let path = history.path(1, 0, 115).unwrap();
        assert_eq!(path.blocked.get(&(OffCpuCause::Child, None)), None);
        assert_eq!(path.blocked.get(&(OffCpuCause::Sleep, None)), Some(&80));
        assert_eq!(path.total(), 115);
    }
}
