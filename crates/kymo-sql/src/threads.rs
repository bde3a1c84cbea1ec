//! Threads, processes and CPUs: numbers that stay the same where the kernel uses an id again.

use kymo_events::TaskInfo;
use rustc_hash::FxHashMap;

use crate::build::{Put, TableBuilder};

/// CPUs of a recording in `ucpu`.
const CPUS: u32 = 8192;

/// Number of a CPU that is unique across recordings.
pub(crate) fn ucpu(machine: u32, cpu: u32) -> u32 {
    machine.saturating_mul(CPUS).saturating_add(cpu)
}

#[derive(Clone, Debug, Default)]
struct Thread {
    tid: u32,
    name: Vec<u8>,
    upid: Option<u32>,
    parent: Option<u32>,
    start: Option<u64>,
    end: Option<u64>,
    machine: u32,
}

#[derive(Clone, Debug)]
struct Process {
    pid: u32,
    machine: u32,
    main: Option<u32>,
}

/// Threads of all recordings.
#[derive(Debug, Default)]
pub(crate) struct ThreadNumbers {
    threads: Vec<Thread>,
    processes: Vec<Process>,
    by_tid: FxHashMap<u32, u32>,
    by_pid: FxHashMap<u32, u32>,
    /// Threads that ended last of each id.
    ended: FxHashMap<u32, u32>,
    machine: u32,
}

impl ThreadNumbers {
    /// Begins a recording, whose ids are its own.
    pub(crate) fn begin(&mut self, machine: u32) {
        self.machine = machine;
        self.by_tid.clear();
        self.by_pid.clear();
        self.ended.clear();
        let idle = self.add(0);
        if let Some(thread) = self.threads.get_mut(idle as usize) {
            thread.name = b"swapper".to_vec();
        }
    }

    fn add(&mut self, tid: u32) -> u32 {
        let utid = self.threads.len() as u32;
        self.threads.push(Thread { tid, machine: self.machine, ..Thread::default() });
        self.by_tid.insert(tid, utid);
        utid
    }

    /// Number of the thread that has an id now.
    #[inline]
    pub(crate) fn of_tid(&mut self, tid: u32) -> u32 {
        match self.by_tid.get(&tid) {
            Some(utid) => *utid,
            None => self.add(tid),
        }
    }

    /// Number of a task, with what the recording states of it now.
    #[inline]
    pub(crate) fn of_task(&mut self, task: &TaskInfo) -> Option<u32> {
        let tid = task.tid?;
        let mut utid = self.of_tid(tid);
        if tid == 0 {
            return Some(utid);
        }
        // What exited is scheduled once more, under its name; another name is of another thread.
        if task.is_named
            && let Some(thread) = self.threads.get(utid as usize)
            && thread.end.is_some()
            && !thread.name.is_empty()
            && thread.name != task.comm()
        {
            self.ended.insert(tid, utid);
            utid = self.add(tid);
        }
        let pid = task.pid.and_then(|pid| Some((pid, self.threads.get(utid as usize)?.upid)));
        let utid = match pid {
            Some((pid, Some(upid))) if self.is_pid(upid, pid) => utid,
            // The number is another thread's now.
            Some((pid, Some(_))) => {
                let utid = self.add(tid);
                self.set_process(utid, tid, pid);
                utid
            }
            Some((pid, None)) => {
                self.set_process(utid, tid, pid);
                utid
            }
            None => utid,
        };
        if task.is_named
            && let Some(thread) = self.threads.get_mut(utid as usize)
            && thread.name != task.comm()
        {
            thread.name = task.comm().to_vec();
        }
        Some(utid)
    }

    fn is_pid(&self, upid: u32, pid: u32) -> bool {
        self.processes.get(upid as usize).is_some_and(|process| process.pid == pid)
    }

    fn set_process(&mut self, utid: u32, tid: u32, pid: u32) {
        let is_main = tid == pid;
        let known = self.by_pid.get(&pid).copied().filter(|upid| {
            // The main thread of a process that ended is not the one of a new process.
            let main = self.processes.get(*upid as usize).and_then(|process| process.main);
            !is_main || main.is_none_or(|main| main == utid)
        });
        let upid = known.unwrap_or_else(|| {
            let upid = self.processes.len() as u32;
            self.processes.push(Process { pid, machine: self.machine, main: None });
            self.by_pid.insert(pid, upid);
            upid
        });
        if let Some(process) = self.processes.get_mut(upid as usize).filter(|_| is_main) {
            process.main = Some(utid);
        }
        if let Some(thread) = self.threads.get_mut(utid as usize) {
            thread.upid = Some(upid);
        }
    }

    /// A thread is created; its id may have been another one's.
    pub(crate) fn start(&mut self, tid: u32, parent: Option<u32>, time: u64) {
        // Two events tell of one birth.
        let is_unused = |thread: &Thread| thread.name.is_empty() && thread.end.is_none();
        // What was seen of it before the event of its creation is of an older one.
        let known = self.by_tid.get(&tid).copied();
        let utid = match known.and_then(|utid| Some((utid, self.threads.get(utid as usize)?))) {
            Some((utid, thread)) if is_unused(thread) => utid,
            _ => self.add(tid),
        };
        if let Some(thread) = self.threads.get_mut(utid as usize) {
            thread.start.get_or_insert(time);
            thread.parent = thread.parent.or(parent);
        }
    }

    /// A thread exits: it is seen until it is switched out for the last time.
    pub(crate) fn exit(&mut self, utid: Option<u32>, time: u64) {
        if let Some(thread) = utid.and_then(|utid| self.threads.get_mut(utid as usize))
            && thread.tid != 0
        {
            thread.end = Some(time);
        }
    }

    /// A thread ends.
    pub(crate) fn end(&mut self, tid: u32, time: u64) {
        if tid != 0
            && let Some(utid) = self.by_tid.remove(&tid)
            && let Some(thread) = self.threads.get_mut(utid as usize)
        {
            thread.end = Some(time);
            self.ended.insert(tid, utid);
        }
    }

    /// Number of the thread that had an id at a time that is not long ago; nothing where none was
    /// seen.
    pub(crate) fn at(&self, tid: u32, time: u64) -> Option<u32> {
        let ended = self.ended.get(&tid).copied().filter(|utid| {
            let end = self.threads.get(*utid as usize).and_then(|thread| thread.end);
            end.is_some_and(|end| time <= end)
        });
        ended.or_else(|| self.by_tid.get(&tid).copied())
    }

    /// Process of a thread, as far as it is recorded until now.
    pub(crate) fn process(&self, utid: u32) -> Option<u32> {
        self.threads.get(utid as usize)?.upid
    }

    /// The last name of a thread.
    pub(crate) fn name(&self, utid: u32) -> &[u8] {
        self.threads.get(utid as usize).map_or(&[], |thread| &thread.name)
    }

    /// Bytes in memory, about.
    pub(crate) fn size(&self) -> usize {
        self.threads.len() * (size_of::<Thread>() + 48) + self.processes.len() * 48
    }

    /// Fills the tables of threads and processes.
    pub(crate) fn fill(&self, threads: &mut TableBuilder, processes: &mut TableBuilder) {
        let name = |thread: &Thread| -> Option<Vec<u8>> {
            (!thread.name.is_empty()).then(|| thread.name.clone())
        };
        for thread in &self.threads {
            let process = thread.upid.and_then(|upid| self.processes.get(upid as usize));
            let text = name(thread);
            threads.row([
                Put::Small(thread.tid),
                text.as_deref().map_or(Put::Null, Put::Bytes),
                thread.start.into(),
                thread.end.into(),
                thread.upid.into(),
                process.map_or(Put::Null, |process| (process.pid == thread.tid).into()),
                (thread.tid == 0).into(),
                Put::Small(thread.machine),
            ]);
        }
        for process in &self.processes {
            let main = process.main.and_then(|utid| self.threads.get(utid as usize));
            let parent = main.and_then(|thread| self.threads.get(thread.parent? as usize)?.upid);
            let text = main.and_then(name);
            processes.row([
                Put::Small(process.pid),
                text.as_deref().map_or(Put::Null, Put::Bytes),
                main.and_then(|thread| thread.start).into(),
                main.and_then(|thread| thread.end).into(),
                parent.into(),
                Put::Small(process.machine),
            ]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(pid: Option<u32>, tid: u32, name: &str) -> TaskInfo {
        TaskInfo::new(pid, Some(tid), name.as_bytes())
    }

    #[test]
    fn ids_that_are_used_again_are_other_threads() {
        let mut threads = ThreadNumbers::default();
        threads.begin(0);
        assert_eq!(threads.of_tid(0), 0);
        let first = threads.of_task(&task(Some(7), 7, "one"));
        assert_eq!(threads.of_task(&task(Some(7), 7, "renamed")), first);
        assert_eq!(threads.of_task(&task(None, 7, "renamed")), first);
        // By its end, by a start, by another process.
        assert_eq!(threads.at(7, 50), first);
        threads.end(7, 100);
        assert_eq!((threads.at(7, 50), threads.at(7, 150), threads.at(9, 50)), (first, None, None));
        let second = threads.of_task(&task(Some(7), 7, "two"));
        assert_ne!(second, first);
        assert_eq!((threads.at(7, 100), threads.at(7, 101)), (first, second));
        threads.start(7, first, 200);
        let third = threads.of_task(&task(None, 7, "three"));
        assert!(third != second && third != first);
        let fourth = threads.of_task(&task(Some(7), 7, "three"));
        assert_eq!(fourth, third);
        let fifth = threads.of_task(&task(Some(8), 7, "five"));
        assert!(![first, second, third].contains(&fifth));
        assert_eq!(threads.name(fifth.unwrap()), b"five");
        // One that exits is scheduled once more; then the number is another one's.
        threads.exit(fifth, 300);
        assert_eq!(threads.of_task(&task(Some(8), 7, "five")), fifth);
        let sixth = threads.of_task(&task(Some(8), 7, "six"));
        assert!(sixth > fifth);
        threads.start(7, first, 400);
        threads.start(7, first, 401);
        let seventh = threads.of_task(&task(None, 7, "seven"));
        assert_eq!(seventh, sixth.map(|sixth| sixth + 1));
        let upids: Vec<_> = threads.threads.iter().map(|thread| thread.upid).collect();
        assert_eq!(upids, [None, Some(0), Some(1), Some(2), Some(3), Some(3), None]);
        // Another machine has its own.
        threads.begin(1);
        assert_ne!(threads.of_tid(7), fifth.unwrap());
        assert_ne!(threads.of_tid(0), 0);
    }
}
