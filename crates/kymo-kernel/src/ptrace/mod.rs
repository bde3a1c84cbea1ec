//! System calls and signals of other tasks by ptrace(2): what an ordinary user may watch of their
//! own programs, each call stopped twice.
//!
//! Tasks are seized, not attached: a job-control stop stays one, and when this process dies the
//! kernel detaches them all and they run on. Every stop is handed out once by
//! [`TracedProcesses::next_stop`], which lets the task of the one before run on.

mod request;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use request::{AnyTask, CallSide, ChildSignals, Options, Restart, WaitStatus};
pub use request::{CallStop, SignalInfo, ThreadOrigin};

use crate::process::GatedChild;
use crate::target;

/// A stop of a task, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskStop {
    /// It begins a system call.
    Enter(CallStop),
    /// A system call returns.
    Leave {
        /// The result, or the negative number of the error.
        result: i64,
        /// Whether the result is an error.
        is_error: bool,
    },
    /// A signal is about to be delivered.
    Signal(SignalInfo),
    /// The task is stopped by job control.
    Stopped(i32),
    /// Another task begins, traced from its first instruction on.
    Started {
        /// The number of the thread that made it.
        parent: u32,
        /// Whether it is a thread of the same process.
        origin: ThreadOrigin,
    },
    /// A new program runs; the thread had this number before.
    Executed {
        /// Number of the thread that called execve(2).
        former: u32,
    },
    /// The task is about to end.
    Exiting,
    /// The task ended with a status.
    Exited(i32),
    /// A signal ended the task; whether it left a core file.
    Killed {
        /// The signal.
        signal: i32,
        /// Whether a core file was written.
        with_core: bool,
    },
}

/// State of a traced task.
#[derive(Debug, Default)]
struct TracedTask {
    /// Way to restart it, if it is stopped.
    stopped: Option<Restart>,
    /// Number of the process that ends tracing with its own end.
    is_main: bool,
    /// System time of its process at the last stop.
    system: Duration,
}

/// Tasks that this thread traces.
#[derive(Debug)]
pub struct TracedProcesses {
    tasks: HashMap<u32, TracedTask>,
    options: Options,
    signals: ChildSignals,
    /// The task whose stop was handed out last.
    last: Option<u32>,
    /// Stops of tasks whose making was not reported yet.
    early: HashMap<u32, WaitStatus>,
    /// Stops to be handed out.
    ready: VecDeque<(u32, TaskStop)>,
}

impl TracedProcesses {
    /// Begins without tasks; with `follow` those that traced tasks make are traced as well.
    ///
    /// # Errors
    /// If the kernel gives no descriptor for signals.
    pub fn new(follow: bool) -> io::Result<TracedProcesses> {
        Ok(TracedProcesses {
            tasks: HashMap::new(),
            options: Options { follow },
            signals: ChildSignals::listen()?,
            last: None,
            early: HashMap::new(),
            ready: VecDeque::new(),
        })
    }

    /// Seizes a command that waits at its gate: its calls come from there on.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn seize_child(&mut self, child: &GatedChild) -> io::Result<()> {
        self.seize(child.pid())?;
        self.tasks.entry(child.pid()).or_default().is_main = true;
        request::interrupt(child.pid())
    }

    /// Seizes all threads of a process.
    ///
    /// # Errors
    /// If the process is gone, or is not ours to trace.
    pub fn seize_process(&mut self, pid: u32) -> io::Result<()> {
        let mut found = 0;
        // Threads may be made meanwhile: until a look finds no other.
        loop {
            let mut is_new = false;
            let threads =
                target::threads_of(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
            for tid in threads {
                if self.tasks.contains_key(&tid) {
                    continue;
                }
                match self.seize(tid) {
                    Ok(()) => (is_new, found) = (true, found + 1),
                    // It ended between the look and now.
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) && tid != pid => {}
                    Err(e) => return Err(e),
                }
            }
            if !is_new || !self.options.follow {
                break;
            }
        }
        if found == 0 {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    }

    fn seize(&mut self, tid: u32) -> io::Result<()> {
        request::seize(tid, self.options)?;
        self.tasks.insert(tid, TracedTask::default());
        // A task that sleeps stops now, so that its call in progress restarts under our eyes.
        request::interrupt(tid).or(Ok(()))
    }

    /// Number of the tasks that are traced.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether no task is left.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The next stop; the task of the one before runs on. `None`: no task has stopped yet, and
    /// the descriptor polls readable when one has.
    ///
    /// # Errors
    /// If the kernel refuses to wait; a task that died meanwhile is no error.
    pub fn next_stop(&mut self) -> io::Result<Option<(u32, TaskStop)>> {
        if let Some(tid) = self.last.take() {
            self.restart(tid);
        }
        loop {
            if let Some((tid, stop)) = self.ready.pop_front() {
                self.last = Some(tid);
                return Ok(Some((tid, stop)));
            }
            self.signals.clear();
            match request::wait_any()? {
                AnyTask::Stopped(tid, status, system) => {
                    self.take(tid, status);
                    if let Some(task) = self.tasks.get_mut(&tid) {
                        task.system = system;
                    }
                }
                AnyTask::Running => return Ok(None),
                AnyTask::Gone => {
                    self.tasks.clear();
                    return Ok(None);
                }
            }
        }
    }

    /// System time of a task's process, as wait4(2) has reported it at the last stop.
    pub fn system_time(&self, tid: u32) -> Duration {
        self.tasks.get(&tid).map_or(Duration::ZERO, |task| task.system)
    }

    fn restart(&mut self, tid: u32) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        if let Some(how) = task.stopped.take() {
            // One that was killed while it was stopped reports its end next.
            let _ = request::restart(tid, how);
        }
    }

    /// Turns what wait(2) reported into stops.
    fn take(&mut self, tid: u32, status: WaitStatus) {
        if !self.tasks.contains_key(&tid) {
            // The stop of a new task may come before the event of its maker.
            if matches!(status, WaitStatus::Stopped { .. }) {
                self.early.insert(tid, status);
            }
            return;
        }
        let stop = match status {
            WaitStatus::Exited(status) => {
                self.tasks.remove(&tid);
                TaskStop::Exited(status)
            }
            WaitStatus::Killed { signal, with_core } => {
                self.tasks.remove(&tid);
                TaskStop::Killed { signal, with_core }
            }
            WaitStatus::Stopped { signal, event } => match self.stopped(tid, signal, event) {
                Some(stop) => stop,
                None => return self.restart(tid),
            },
        };
        self.ready.push_back((tid, stop));
    }

    /// The stop to hand out, if it is more than one of ptrace's own.
    fn stopped(&mut self, tid: u32, signal: i32, event: i32) -> Option<TaskStop> {
        self.set(tid, Restart::Signal(0));
        match event {
            0 if signal == libc::SIGTRAP | 0x80 => match request::call_info(tid).ok()? {
                CallSide::Enter(call) => Some(TaskStop::Enter(call)),
                CallSide::Leave { result, is_error } => Some(TaskStop::Leave { result, is_error }),
                CallSide::None => None,
            },
            0 => {
                self.set(tid, Restart::Signal(signal));
                Some(TaskStop::Signal(request::signal_info(tid, signal)))
            }
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                let child = request::event_message(tid).ok()? as u32;
                self.tasks.entry(child).or_default();
                let origin = match event {
                    libc::PTRACE_EVENT_CLONE => ThreadOrigin::Clone,
                    _ => ThreadOrigin::Fork,
                };
                self.ready.push_back((child, TaskStop::Started { parent: tid, origin }));
                if let Some(status) = self.early.remove(&child) {
                    self.take(child, status);
                }
                None
            }
            libc::PTRACE_EVENT_EXEC => {
                let former = request::event_message(tid).map_or(tid, |former| former as u32);
                if former != tid {
                    // The leader's number is that of the thread that lives on.
                    self.tasks.remove(&former);
                }
                Some(TaskStop::Executed { former })
            }
            libc::PTRACE_EVENT_EXIT => Some(TaskStop::Exiting),
            libc::PTRACE_EVENT_STOP => {
                let is_job_control =
                    [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
                if is_job_control {
                    self.set(tid, Restart::Listen);
                }
                is_job_control.then_some(TaskStop::Stopped(signal))
            }
            _ => None,
        }
    }

    fn task(&mut self, tid: u32) -> &mut TracedTask {
        self.tasks.entry(tid).or_default()
    }

    fn set(&mut self, tid: u32, how: Restart) {
        self.task(tid).stopped = Some(how);
    }

    /// Sends a signal to the command that was started, if it is still traced.
    pub fn signal_child(&self, signal: i32) {
        let main = self.tasks.iter().find(|(_, task)| task.is_main);
        if let Some((pid, _)) = main {
            let _ = request::kill(*pid, libc::SIGCONT);
            let _ = request::kill(*pid, signal);
        }
    }

    /// Lets all tasks run on untraced: those that were traced.
    pub fn detach_all(&mut self) -> Vec<u32> {
        self.last = None;
        let mut detached: Vec<u32> = self.tasks.keys().copied().collect();
        detached.sort_unstable();
        for tid in &detached {
            self.detach(*tid);
        }
        self.tasks.clear();
        self.ready.clear();
        detached
    }

    /// A task must be stopped to be let go.
    fn detach(&mut self, tid: u32) {
        let mut how = self.tasks.get_mut(&tid).and_then(|task| task.stopped.take());
        if how.is_none() && request::interrupt(tid).is_ok() {
            how = match request::wait_for(tid) {
                Ok(WaitStatus::Stopped { signal, event: 0 }) if signal & 0x80 == 0 => {
                    Some(Restart::Signal(signal))
                }
                Ok(WaitStatus::Stopped { .. }) => Some(Restart::Signal(0)),
                Ok(_) | Err(_) => None,
            };
        }
        if let Some(how) = how {
            let signal = match how {
                Restart::Signal(signal) => signal,
                Restart::Listen => 0,
            };
            let _ = request::detach(tid, signal);
        }
    }
}

/// Polls readable when a task may have stopped.
impl AsFd for TracedProcesses {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

impl Drop for TracedProcesses {
    fn drop(&mut self) {
        self.detach_all();
    }
}
