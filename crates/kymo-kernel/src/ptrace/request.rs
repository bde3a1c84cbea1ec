//! The requests of ptrace(2) and wait(2), with values in place of words of memory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::time::Duration;

/// Way to restart a stopped task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    /// With a signal, or none (0).
    Signal(i32),
    /// It stays stopped by job control until SIGCONT.
    Listen,
}

/// System call that created a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadOrigin {
    /// By fork(2) or vfork(2): a process.
    Fork,
    /// By clone(2) with flags of its own: a thread, mostly.
    Clone,
}

/// A system call at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallStop {
    /// Its ABI: `AUDIT_ARCH_…`.
    pub architecture: u32,
    /// Its number in that ABI.
    pub number: i64,
    /// Registers of its arguments.
    pub args: [u64; 6],
    /// Address of the instruction behind the call.
    pub instruction: u64,
    /// The stack pointer.
    pub stack: u64,
}

/// At which side of a call a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallSide {
    /// At its beginning.
    Enter(CallStop),
    /// At its end.
    Leave {
        /// The result, or the negative number of the error.
        result: i64,
        /// Whether it is an error.
        is_error: bool,
    },
    /// At neither.
    None,
}

/// A signal that is about to be delivered: its siginfo_t as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalInfo {
    /// The signal.
    pub signal: i32,
    /// Bytes of `siginfo_t`; none where the kernel gave none.
    pub bytes: Vec<u8>,
}

/// Status of a task by wait(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitStatus {
    Exited(i32),
    Killed { signal: i32, with_core: bool },
    Stopped { signal: i32, event: i32 },
}

/// Options of the tasks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) follow: bool,
}

impl Options {
    fn bits(self) -> libc::c_long {
        let follow = if self.follow {
            libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE
        } else {
            0
        };
        libc::c_long::from(
            libc::PTRACE_O_TRACESYSGOOD
                | libc::PTRACE_O_TRACEEXEC
                | libc::PTRACE_O_TRACEEXIT
                | follow,
        )
    }
}

/// A request whose arguments are numbers.
fn number_request(request: libc::c_uint, tid: u32, data: libc::c_long) -> io::Result<()> {
    // SAFETY: the requests that this is called with (SEIZE, INTERRUPT, SYSCALL, LISTEN, DETACH)
    // take no pointers; the kernel checks that the task is ours.
    let result = unsafe { libc::ptrace(request, tid as libc::pid_t, 0 as libc::c_long, data) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(super) fn seize(tid: u32, options: Options) -> io::Result<()> {
    number_request(libc::PTRACE_SEIZE, tid, options.bits())
}

pub(super) fn interrupt(tid: u32) -> io::Result<()> {
    number_request(libc::PTRACE_INTERRUPT, tid, 0)
}

pub(super) fn restart(tid: u32, how: Restart) -> io::Result<()> {
    match how {
        Restart::Signal(signal) => {
            number_request(libc::PTRACE_SYSCALL, tid, libc::c_long::from(signal))
        }
        Restart::Listen => number_request(libc::PTRACE_LISTEN, tid, 0),
    }
}

pub(super) fn detach(tid: u32, signal: i32) -> io::Result<()> {
    number_request(libc::PTRACE_DETACH, tid, libc::c_long::from(signal))
}

pub(super) fn kill(pid: u32, signal: i32) -> io::Result<()> {
    // SAFETY: no memory is involved, and the process is a traced one that was not reaped.
    if unsafe { libc::kill(pid as libc::pid_t, signal) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

pub(super) fn event_message(tid: u32) -> io::Result<u64> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: GETEVENTMSG writes one unsigned long to `message`, a live local.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_GETEVENTMSG,
            tid as libc::pid_t,
            0 as libc::c_long,
            &raw mut message,
        )
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(message) }
}

/// Bytes of `struct ptrace_syscall_info`: include/uapi/linux/ptrace.h.
const CALL_INFO: usize = 88;

pub(super) fn call_info(tid: u32) -> io::Result<CallSide> {
    let mut info = [0u8; CALL_INFO];
    // SAFETY: GET_SYSCALL_INFO writes at most CALL_INFO bytes to `info`, a live local.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_GET_SYSCALL_INFO,
            tid as libc::pid_t,
            CALL_INFO,
            info.as_mut_ptr(),
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(parse_call_info(&info))
}

/// The fields of `struct ptrace_syscall_info`.
fn parse_call_info(info: &[u8; CALL_INFO]) -> CallSide {
    let word = |at: usize| {
        info.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_ne_bytes(*b))
    };
    let architecture =
        info.get(4..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b));
    match info[0] {
        libc::PTRACE_SYSCALL_INFO_ENTRY => CallSide::Enter(CallStop {
            architecture,
            number: word(24).cast_signed(),
            args: std::array::from_fn(|n| word(32 + 8 * n)),
            instruction: word(8),
            stack: word(16),
        }),
        libc::PTRACE_SYSCALL_INFO_EXIT => {
            CallSide::Leave { result: word(24).cast_signed(), is_error: info[32] != 0 }
        }
        _ => CallSide::None,
    }
}

/// Bytes of `siginfo_t`.
const SIGNAL_INFO: usize = 128;

pub(super) fn signal_info(tid: u32, signal: i32) -> SignalInfo {
    const { assert!(size_of::<libc::siginfo_t>() == SIGNAL_INFO) };
    let mut bytes = vec![0u8; SIGNAL_INFO];
    // SAFETY: GETSIGINFO writes one siginfo_t, which `bytes` has the size of.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_GETSIGINFO,
            tid as libc::pid_t,
            0 as libc::c_long,
            bytes.as_mut_ptr(),
        )
    };
    if result == -1 {
        bytes.clear();
    }
    SignalInfo { signal, bytes }
}

/// Result of wait(2) for all traced tasks.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnyTask {
    /// One stopped or ended, with the system time of its process so far.
    Stopped(u32, WaitStatus, Duration),
    /// None did.
    Running,
    /// No task is left.
    Gone,
}

/// The status of any traced task that stopped or ended.
pub(super) fn wait_any() -> io::Result<AnyTask> {
    match wait(-1, libc::WNOHANG) {
        Ok(Some((tid, status, system))) => Ok(AnyTask::Stopped(tid, status, system)),
        Ok(None) => Ok(AnyTask::Running),
        Err(e) if e.raw_os_error() == Some(libc::ECHILD) => Ok(AnyTask::Gone),
        Err(e) => Err(e),
    }
}

/// Waits for a stop of one task, or its end.
pub(super) fn wait_for(tid: u32) -> io::Result<WaitStatus> {
    wait(tid as libc::pid_t, 0)?
        .map(|(_, status, _)| status)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ECHILD))
}

fn wait(pid: libc::pid_t, options: i32) -> io::Result<Option<(u32, WaitStatus, Duration)>> {
    loop {
        let mut status = 0;
        // SAFETY: `rusage` is plain numbers, for which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        let options = options | libc::__WALL;
        // SAFETY: the pointers are to live locals.
        match unsafe { libc::wait4(pid, &raw mut status, options, &raw mut usage) } {
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            0 => return Ok(None),
            tid => {
                let system = Duration::from_secs(usage.ru_stime.tv_sec as u64)
                    + Duration::from_micros(usage.ru_stime.tv_usec as u64);
                return Ok(Some((tid as u32, parse_status(status), system)));
            }
        }
    }
}

fn parse_status(status: i32) -> WaitStatus {
    if libc::WIFEXITED(status) {
        WaitStatus::Exited(libc::WEXITSTATUS(status))
    } else if libc::WIFSIGNALED(status) {
        WaitStatus::Killed { signal: libc::WTERMSIG(status), with_core: libc::WCOREDUMP(status) }
    } else {
        WaitStatus::Stopped { signal: libc::WSTOPSIG(status), event: status >> 16 }
    }
}

/// SIGCHLD as a descriptor, blocked in this thread meanwhile.
#[derive(Debug)]
pub(super) struct ChildSignals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl ChildSignals {
    pub(super) fn listen() -> io::Result<ChildSignals> {
        // SAFETY: `sigset_t` is plain data, for which zero is a value; all pointers are to live
        // locals, and -1 requests a new descriptor.
        let (fd, before) = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGCHLD);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            (libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK), before)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave this descriptor to us alone.
        Ok(ChildSignals { fd: unsafe { OwnedFd::from_raw_fd(fd) }, before })
    }

    /// Takes what has come: the tasks are asked next.
    pub(super) fn clear(&self) {
        let mut info = [0u8; 128];
        while rustix::io::read(&self.fd, &mut info).is_ok_and(|n| n > 0) {}
    }
}

impl AsFd for ChildSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for ChildSignals {
    fn drop(&mut self) {
        // SAFETY: the mask is one that the system gave us.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_wait_are_taken_apart() {
        assert_eq!(parse_status(3 << 8), WaitStatus::Exited(3));
        assert_eq!(parse_status(9), WaitStatus::Killed { signal: 9, with_core: false });
        assert_eq!(parse_status(0x8b), WaitStatus::Killed { signal: 11, with_core: true });
        let stop = WaitStatus::Stopped { signal: 5, event: libc::PTRACE_EVENT_EXEC };
        assert_eq!(parse_status(libc::PTRACE_EVENT_EXEC << 16 | 5 << 8 | 0x7f), stop);
    }

    #[test]
    fn both_sides_of_a_call_are_taken_apart() {
        let mut info = [0u8; CALL_INFO];
        info[0] = libc::PTRACE_SYSCALL_INFO_ENTRY;
        info[4..8].copy_from_slice(&0xc000_003e_u32.to_ne_bytes());
        info[24..32].copy_from_slice(&257u64.to_ne_bytes());
        info[72..80].copy_from_slice(&6u64.to_ne_bytes());
        let CallSide::Enter(call) = parse_call_info(&info) else { panic!() };
        assert_eq!((call.architecture, call.number, call.args[5]), (0xc000_003e, 257, 6));
        info[0] = libc::PTRACE_SYSCALL_INFO_EXIT;
        info[24..32].copy_from_slice(&(-2i64).to_ne_bytes());
        info[32] = 1;
        assert_eq!(parse_call_info(&info), CallSide::Leave { result: -2, is_error: true });
    }
}
