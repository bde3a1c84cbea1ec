//! Ends of processes and threads as descriptors: pidfds, which poll readable when a task is dead,
//! even before it is reaped.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use crate::descriptors::{EventFlag, readable_fd, wait};
use crate::target;

/// Interval at which tasks without a descriptor are checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A pidfd of one thread (Linux 6.9), as include/uapi/linux/pidfd.h has it: O_EXCL.
const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(0o200);

/// Tasks that are waited for until the last of them has ended.
#[derive(Debug, Default)]
pub struct TaskEnds {
    watched: Vec<OwnedFd>,
    /// Those that the kernel gives no descriptor for.
    polled: Vec<u32>,
    is_any: bool,
}

impl TaskEnds {
    /// Watches whole processes.
    pub fn of_processes(pids: &[u32]) -> TaskEnds {
        TaskEnds::of(pids, &[])
    }

    /// Watches threads.
    pub fn of_threads(tids: &[u32]) -> TaskEnds {
        TaskEnds::of(&[], tids)
    }

    /// Watches whole processes, and threads of others.
    pub fn of(pids: &[u32], tids: &[u32]) -> TaskEnds {
        let is_any = !pids.is_empty() || !tids.is_empty();
        let mut ends = TaskEnds { is_any, ..TaskEnds::default() };
        ends.open(pids, PidfdFlags::empty());
        ends.open(tids, THREAD);
        ends
    }

    fn open(&mut self, ids: &[u32], flags: PidfdFlags) {
        for &id in ids {
            let Some(pid) = Pid::from_raw(id.cast_signed()) else { continue };
            match pidfd_open(pid, flags) {
                Ok(fd) => self.watched.push(fd),
                Err(Errno::SRCH) => {}
                // Kernels before, limits of descriptors, filters of a container.
                Err(_) => self.polled.push(id),
            }
        }
    }

    /// Descriptors that poll readable when one of the tasks has ended.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watched.iter().map(|fd| fd.as_fd())
    }

    /// Waits no longer than until the next look at tasks that have no descriptor.
    pub fn limit(&self, most: Option<Duration>) -> Option<Duration> {
        if self.polled.is_empty() {
            most
        } else {
            Some(most.map_or(LOOK_EVERY, |most| most.min(LOOK_EVERY)))
        }
    }

    /// Whether all of them have ended; never, if there were none.
    ///
    /// # Errors
    /// If the kernel does not let us wait.
    pub fn all_ended(&mut self) -> io::Result<bool> {
        if !self.watched.is_empty() {
            let mut fds: Vec<_> = self.fds().map(readable_fd).collect();
            wait(&mut fds, Duration::ZERO)?;
            let mut ended = fds.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>();
            ended.reverse();
            self.watched.retain(|_| !ended.pop().unwrap_or(false));
        }
        self.polled.retain(|&id| target::is_alive(id));
        Ok(self.is_any && self.watched.is_empty() && self.polled.is_empty())
    }
}

/// A descriptor that polls readable when a child of ours has ended.
pub(crate) fn end_of_child(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => Ok(fd),
        // Linux before 5.3, filters of a container.
        Err(_) => end_by_thread(pid),
    }
}

/// [`end_of_child`] by a thread that waits for the child and leaves the reaping to others.
fn end_by_thread(pid: Pid) -> io::Result<OwnedFd> {
    let flag = EventFlag::new()?;
    let end = flag.as_fd().try_clone_to_owned()?;
    std::thread::Builder::new().name("kymo-child".into()).spawn(move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
        flag.set();
    })?;
    Ok(end)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn sleeper() -> std::process::Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn wait_for(end: BorrowedFd<'_>) -> bool {
        wait(&mut [readable_fd(end)], Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn a_dead_process_that_nobody_reaped_has_ended() {
        let mut child = sleeper();
        let ids = [child.id()];
        let mut all = [TaskEnds::of_processes(&ids), TaskEnds::of_threads(&ids)];
        all.iter_mut().for_each(|ends| assert!(!ends.all_ended().unwrap()));
        let mut polled = TaskEnds { polled: ids.to_vec(), is_any: true, ..TaskEnds::default() };
        assert!(!polled.all_ended().unwrap());
        assert_eq!(polled.limit(None), Some(LOOK_EVERY));
        child.kill().unwrap();
        let by_thread = end_by_thread(Pid::from_raw(child.id().cast_signed()).unwrap()).unwrap();
        assert!(wait_for(by_thread.as_fd()));
        for ends in &mut all {
            assert!(ends.fds().all(wait_for) && ends.all_ended().unwrap());
        }
        assert!(polled.all_ended().unwrap());
        child.wait().unwrap();
        assert!(TaskEnds::of_processes(&ids).all_ended().unwrap(), "gone before it was watched");
        assert!(!TaskEnds::default().all_ended().unwrap(), "nothing was waited for");
    }

    #[test]
    fn a_process_lives_on_without_its_first_thread() {
        // The first thread ends, the other reads until its input ends.
        let source = "import threading, sys, ctypes\n\
             threading.Thread(target=sys.stdin.read).start()\n\
             print(1, flush=True)\n\
             ctypes.CDLL(None).pthread_exit(0)\n";
        let mut python = Command::new("python3");
        python.args(["-c", source]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Without Python there is nothing to try it with.
        let Ok(mut child) = python.spawn() else { return };
        let mut byte = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let begin = std::time::Instant::now();
        while !state().contains(") Z ") {
            assert!(begin.elapsed() < Duration::from_secs(60), "{}", state());
            std::thread::yield_now();
        }
        assert!(target::is_alive(child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!target::is_alive(child.id()));
    }
}
