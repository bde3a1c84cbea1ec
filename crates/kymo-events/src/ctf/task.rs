//! Task of a CTF event: from contexts of the event, or the environment of its trace.

use kymo_files::ctf::read::{Ctf, FieldInfo, TaskField, Trace};
use kymo_files::ctf::types::EnvValue;

use crate::trace_dat::TaskName;

/// Bytes of a task's name that are kept.
const LONG: usize = 32;

/// The task of an event, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventTask {
    comm: [u8; LONG],
    len: usize,
    /// Whether the name is known.
    pub named: bool,
    /// Whether it is that of the process, which threads may have changed.
    of_process: bool,
    /// Process id, if the event or its trace says it.
    pub pid: Option<u32>,
    /// Thread id, likewise.
    pub tid: Option<u32>,
}

impl EventTask {
    /// Its name; empty if it is not known.
    pub fn comm(&self) -> &[u8] {
        self.comm.get(..self.len).unwrap_or(&[])
    }

    /// Another name from now on.
    pub fn name(&mut self, comm: &[u8]) {
        let comm = comm.get(..LONG).unwrap_or(comm);
        if let Some(place) = self.comm.get_mut(..comm.len()) {
            place.copy_from_slice(comm);
            (self.len, self.named, self.of_process) = (comm.len(), true, false);
        }
    }

    /// Takes the name that the kernel has for the thread, unless the event says it. Numbers
    /// of another pid namespace are others' there: the process must have its name.
    pub fn rename(&mut self, find: impl Fn(i32) -> Option<TaskName>) {
        if !self.of_process || self.tid == self.pid {
            return;
        }
        let of = |n: Option<u32>| find(i32::try_from(n?).ok()?);
        if of(self.pid).is_some_and(|process| process.as_bytes() == self.comm())
            && let Some(thread) = of(self.tid)
        {
            self.name(thread.as_bytes());
        }
    }

    /// Takes note of a number in a context. `false`: it says nothing of the task.
    #[inline]
    pub fn number(&mut self, field: &FieldInfo, value: u64) -> bool {
        field.task.is_some_and(|of| self.number_of(of, value))
    }

    /// Sets the number that a context field of this kind holds.
    #[inline]
    pub fn number_of(&mut self, of: TaskField, value: u64) -> bool {
        let value = value as u32;
        match of {
            TaskField::Pid => self.pid = Some(value),
            TaskField::Tid => self.tid = Some(value),
            // As the tracer's own namespace numbers them, if it says that, too.
            TaskField::VirtualPid => self.pid = self.pid.or(Some(value)),
            TaskField::VirtualTid => self.tid = self.tid.or(Some(value)),
            TaskField::Name => return false,
        }
        true
    }
}

/// Task of events without contexts, for traces of one process.
#[derive(Clone, Debug, Default)]
pub struct TraceOwners {
    tasks: Vec<EventTask>,
}

impl TraceOwners {
    /// Reads what the environments of the traces say.
    pub fn new(ctf: &Ctf) -> TraceOwners {
        TraceOwners { tasks: ctf.traces().iter().map(of).collect() }
    }

    /// Known facts about the task of all events of a trace. The process is not included: a context
    /// comes first.
    #[inline]
    pub fn get(&self, trace: u32) -> EventTask {
        self.tasks.get(trace as usize).copied().unwrap_or_default()
    }
}

fn of(trace: &Trace) -> EventTask {
    let mut task = EventTask::default();
    if let Some(EnvValue::Text(name)) = trace.metadata().env("procname") {
        task.name(name.as_bytes());
        task.of_process = true;
    }
    if let Some(EnvValue::Int(pid)) = trace.metadata().env("vpid") {
        task.pid = u32::try_from(*pid).ok();
    }
    task
}
