//! Running the command that is measured, and the signals that end measuring.
//!
//! [`GatedChild`] forks and keeps the child from executing the command until
//! the events are attached. [`Signals`] turns signals into something that can
//! be polled, so that no code ever runs in a handler.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};

use crate::descriptors;
use crate::system_root::system_path;
use crate::task_ends;
use crate::terminal_output;

/// The command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no command.
    #[error("no command was given")]
    Empty,
    /// A NUL byte within an argument.
    #[error("argument {0:?} holds a NUL byte")]
    Nul(OsString),
    /// No process could be made.
    #[error("cannot fork: {0}")]
    Fork(io::Error),
    /// exec(2) failed.
    #[error("cannot run {command:?}: {error}")]
    Exec {
        /// The command's name.
        command: String,
        /// Why.
        error: io::Error,
    },
}

impl SpawnError {
    /// The exit status a shell gives for it: 127 for not found, 126 for not executable.
    pub fn shell_status(&self) -> u8 {
        match self {
            SpawnError::Exec { error, .. } if error.kind() == io::ErrorKind::NotFound => 127,
            _ => 126,
        }
    }
}

/// Resource usage of a process (`struct rusage`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time in user space.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
    /// Peak resident memory in KiB.
    pub max_rss_kib: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Switches because it waited.
    pub voluntary_switches: u64,
    /// Switches because its time was up.
    pub involuntary_switches: u64,
}

/// End of a child.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// Its status.
    pub status: ExitStatus,
    /// Resource usage of the child and its waited-for children.
    pub usage: Usage,
}

impl Exit {
    /// The exit status to pass on: the command's own, or 128 + the signal's
    /// number as a shell has it.
    pub fn code(&self) -> u8 {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => code as u8,
            (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
            (None, None) => 1,
        }
    }
}

/// A command that has been forked and waits at a gate before exec. Dropping it
/// before [`release`](GatedChild::release) ends it without running anything.
#[derive(Debug)]
pub struct GatedChild {
    pid: i32,
    command: String,
    gate: Option<OwnedFd>,
    exec_error: OwnedFd,
    end: OwnedFd,
    exit: Option<Exit>,
}

impl GatedChild {
    /// Forks. The child has the signals of [`Signals`] unblocked and SIGPIPE
    /// at its default; descriptors are inherited unless close-on-exec. A command
    /// that is not there is said now, before its caller has made any file for it.
    pub fn spawn(command: &[OsString]) -> Result<GatedChild, SpawnError> {
        let name = command.first().ok_or(SpawnError::Empty)?;
        let program = executable(name).map_err(|error| SpawnError::Exec {
            command: name.to_string_lossy().into_owned(),
            error,
        })?;
        // With a slash the path is not searched for: each try would be a call of the command.
        let has_slash = program.as_os_str().as_bytes().contains(&b'/');
        let program = if has_slash { program } else { Path::new(".").join(program) };
        let program = CString::new(program.into_os_string().into_vec())
            .map_err(|_| SpawnError::Nul(name.clone()))?;
        let args: Vec<CString> = command
            .iter()
            .map(|a| CString::new(a.clone().into_vec()).map_err(|_| SpawnError::Nul(a.clone())))
            .collect::<Result<_, _>>()?;
        let mut argv: Vec<*const libc::c_char> = args.iter().map(|a| a.as_ptr()).collect();
        argv.push(std::ptr::null());
        let fork_error = |e: rustix::io::Errno| SpawnError::Fork(e.into());
        let (gate_read, gate_write) = pipe_with(PipeFlags::CLOEXEC).map_err(fork_error)?;
        let (error_read, error_write) = pipe_with(PipeFlags::CLOEXEC).map_err(fork_error)?;
        let unblock = signal_set(&Signal::ALL);
        // SAFETY: everything the child needs exists before the fork, and it calls only
        // async-signal-safe functions until it execs or exits, so it is sound even if other
        // threads of this process held locks.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(SpawnError::Fork(io::Error::last_os_error())),
            0 => child(&program, &argv, &gate_read, gate_write, &error_write, &unblock),
            // Without a way to see its end it is not started: the closed gate ends it.
            pid => Ok(GatedChild {
                pid,
                command: name.to_string_lossy().into_owned(),
                gate: Some(gate_write),
                exec_error: error_read,
                end: task_ends::end_of_child(pid).map_err(SpawnError::Fork)?,
                exit: None,
            }),
        }
    }

    /// Lets the command, and all that it starts, run on these CPUs only.
    ///
    /// # Errors
    /// If none of them is online, or a number is larger than the kernel's.
    pub fn pin(&self, cpus: &[u32]) -> io::Result<()> {
        let mut set = rustix::thread::CpuSet::new();
        for cpu in cpus {
            let cpu = usize::try_from(*cpu).unwrap_or(usize::MAX);
            if cpu >= rustix::thread::CpuSet::MAX_CPU {
                return Err(io::Error::from(io::ErrorKind::InvalidInput));
            }
            set.set(cpu);
        }
        Ok(rustix::thread::sched_setaffinity(rustix::process::Pid::from_raw(self.pid), &set)?)
    }

    /// The process id, also that of its first thread.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// The command's name as given.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Lets the child execute the command, and waits until it does. Failing
    /// that, the child is gone and the error says why.
    pub fn release(&mut self) -> Result<(), SpawnError> {
        let Some(gate) = self.gate.take() else { return Ok(()) };
        let exec = |error: io::Error| SpawnError::Exec { command: self.command.clone(), error };
        rustix::io::write(&gate, &[1]).map_err(|e| exec(e.into()))?;
        drop(gate);
        let mut errno = [0u8; 4];
        let n = loop {
            match rustix::io::read(&self.exec_error, &mut errno) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other.map_err(|e| exec(e.into()))?,
            }
        };
        // The pipe closes on exec; only a failed exec writes to it.
        if n == 0 {
            return Ok(());
        }
        let error = exec(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)));
        let _ = self.wait();
        Err(error)
    }

    /// Opens the gate without waiting: for who traces the child, which runs only as far as the
    /// tracer lets it.
    ///
    /// # Errors
    /// If the child is gone.
    pub fn open_gate(&mut self) -> Result<(), SpawnError> {
        let Some(gate) = self.gate.take() else { return Ok(()) };
        let exec = |error: io::Error| SpawnError::Exec { command: self.command.clone(), error };
        rustix::io::write(&gate, &[1]).map_err(|e| exec(e.into()))?;
        Ok(())
    }

    /// Why a child that has ended did not become the command, if it did not.
    pub fn exec_error(&self) -> Option<SpawnError> {
        let mut errno = [0u8; 4];
        let n = rustix::io::read(&self.exec_error, &mut errno).ok()?;
        (n == errno.len()).then(|| SpawnError::Exec {
            command: self.command.clone(),
            error: io::Error::from_raw_os_error(i32::from_ne_bytes(errno)),
        })
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> io::Result<Exit> {
        loop {
            match self.wait4(0) {
                Ok(Some(exit)) => return Ok(exit),
                Ok(None) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Status of the child, if it has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        self.wait4(libc::WNOHANG)
    }

    /// Sends a signal, unless it has been waited for.
    pub fn kill(&self, signal: i32) -> io::Result<()> {
        if self.exit.is_some() {
            return Ok(());
        }
        // SAFETY: no memory is involved; the process has not been waited for, so its id is its own.
        if unsafe { libc::kill(self.pid, signal) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn wait4(&mut self, options: i32) -> io::Result<Option<Exit>> {
        if self.exit.is_some() {
            return Ok(self.exit);
        }
        let mut status = 0;
        // SAFETY: `rusage` is plain numbers, for which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live locals of the types the call fills in.
        match unsafe { libc::wait4(self.pid, &raw mut status, options, &raw mut usage) } {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(None),
            _ => {
                let status = ExitStatus::from_raw(status);
                self.exit = Some(Exit { status, usage: usage_of(&usage) });
                Ok(self.exit)
            }
        }
    }
}

/// Bytes of a script's first line that the kernel looks at.
const SCRIPT_LINE: u64 = 256;

/// The binary that runs when a command is called by this name: of a script its interpreter.
pub fn program_of(name: &OsStr) -> Option<PathBuf> {
    let path = executable(name).ok()?;
    let mut begin = Vec::new();
    std::fs::File::open(&path).ok()?.take(SCRIPT_LINE).read_to_end(&mut begin).ok()?;
    let Some(line) = begin.strip_prefix(b"#!") else { return Some(path) };
    let line = line.split(|b| *b == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    let interpreter = Path::new(OsStr::from_bytes(words.next()?));
    match interpreter.file_name()?.as_bytes() {
        b"env" => executable(OsStr::from_bytes(words.find(|w| !w.starts_with(b"-"))?)).ok(),
        _ => Some(interpreter.to_owned()),
    }
}

/// The file of a command that runs as another user or group than this process, whose events the
/// kernel ends then; of root it does not.
pub fn set_id_program(name: &OsStr) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt as _;
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let path = executable(name).ok()?;
    let meta = std::fs::metadata(&path).ok()?;
    let user =
        meta.mode() & libc::S_ISUID != 0 && meta.uid() != rustix::process::geteuid().as_raw();
    let group =
        meta.mode() & libc::S_ISGID != 0 && meta.gid() != rustix::process::getegid().as_raw();
    (user || group).then_some(path)
}

/// File that `execvp` will find; only the kernel knows whether it can execute it.
fn executable(name: &OsStr) -> io::Result<PathBuf> {
    let executable = |path: &Path| {
        rustix::fs::access(path, rustix::fs::Access::EXEC_OK)?;
        // A directory has that permission, too.
        if std::fs::metadata(path)?.is_dir() {
            Err(io::Error::from_raw_os_error(libc::EACCES))
        } else {
            Ok(path.to_owned())
        }
    };
    if name.as_bytes().contains(&b'/') {
        return executable(Path::new(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut error = io::Error::from_raw_os_error(libc::ENOENT);
    for directory in std::env::split_paths(&path) {
        match executable(&directory.join(name)) {
            Ok(path) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => error = e,
            Err(_) => {}
        }
    }
    Err(error)
}

/// Polls readable once the command has ended.
impl AsFd for GatedChild {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

impl Drop for GatedChild {
    fn drop(&mut self) {
        // A closed gate makes a waiting child exit; a running command is left alone.
        if self.gate.take().is_some() {
            let _ = self.wait();
        }
    }
}

/// The child's side: waits for the gate, then becomes the command. Recorders see its calls from
/// the gate on, so all that can be done before is.
fn child(
    program: &CStr,
    argv: &[*const libc::c_char],
    gate: &OwnedFd,
    gate_write: OwnedFd,
    error: &OwnedFd,
    unblock: &libc::sigset_t,
) -> ! {
    // The child's own copy would keep the gate from ever closing.
    drop(gate_write);
    // SAFETY: dup2, signal and sigaction are called with valid arguments.
    unsafe {
        if let Some(output) = terminal_output::of_command() {
            libc::dup2(output.as_raw_fd(), libc::STDOUT_FILENO);
        }
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        // One that arrives between here and exec must end the command, not be handed on.
        for signal in Signal::ALL {
            let mut now: libc::sigaction = std::mem::zeroed();
            let is_known = libc::sigaction(signal.number(), std::ptr::null(), &raw mut now);
            if is_known == 0 && now.sa_sigaction != libc::SIG_IGN {
                libc::signal(signal.number(), libc::SIG_DFL);
            }
        }
    }
    let mut byte = [0u8; 1];
    let opened = loop {
        match rustix::io::read(gate, &mut byte) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other == Ok(1),
        }
    };
    // SAFETY: sigprocmask, execvp, write and _exit are called with valid arguments: `argv` is a
    // NULL-terminated array of NUL-terminated strings made before the fork.
    unsafe {
        if opened {
            libc::sigprocmask(libc::SIG_UNBLOCK, unblock, std::ptr::null_mut());
            libc::execvp(program.as_ptr(), argv.as_ptr());
            let errno = *libc::__errno_location();
            libc::write(error.as_raw_fd(), (&raw const errno).cast(), 4);
        }
        libc::_exit(127)
    }
}

/// Resource usage of this process so far, over all its threads.
pub fn own_usage() -> Usage {
    // SAFETY: `rusage` is plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live local of the type the call fills in. The call cannot fail
    // for this process.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    usage_of(&usage)
}

fn usage_of(r: &libc::rusage) -> Usage {
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
    };
    Usage {
        user: time(r.ru_utime),
        system: time(r.ru_stime),
        max_rss_kib: r.ru_maxrss as u64,
        minor_faults: r.ru_minflt as u64,
        major_faults: r.ru_majflt as u64,
        voluntary_switches: r.ru_nvcsw as u64,
        involuntary_switches: r.ru_nivcsw as u64,
    }
}

/// The signals that mean something to a measuring tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the system's")]
pub enum Signal {
    Int,
    Term,
    Hup,
    Quit,
    Usr1,
    Usr2,
    Winch,
    Alarm,
    FileSize,
    Stop,
    Continue,
}

impl Signal {
    /// All of them.
    pub const ALL: [Signal; 11] = [
        Signal::Int,
        Signal::Term,
        Signal::Hup,
        Signal::Quit,
        Signal::Usr1,
        Signal::Usr2,
        Signal::Winch,
        Signal::Alarm,
        Signal::FileSize,
        Signal::Stop,
        Signal::Continue,
    ];

    /// Its number.
    pub fn number(self) -> i32 {
        match self {
            Signal::Int => libc::SIGINT,
            Signal::Term => libc::SIGTERM,
            Signal::Hup => libc::SIGHUP,
            Signal::Quit => libc::SIGQUIT,
            Signal::Usr1 => libc::SIGUSR1,
            Signal::Usr2 => libc::SIGUSR2,
            Signal::Winch => libc::SIGWINCH,
            Signal::Alarm => libc::SIGALRM,
            Signal::FileSize => libc::SIGXFSZ,
            Signal::Stop => libc::SIGTSTP,
            Signal::Continue => libc::SIGCONT,
        }
    }

    /// Whether it asks the program to end.
    pub fn is_end(self) -> bool {
        matches!(self, Signal::Int | Signal::Term | Signal::Hup | Signal::Quit)
    }
}

/// Code of signals of the kernel itself (include/uapi/asm-generic/siginfo.h).
const SI_KERNEL: i32 = 0x80;

/// Signals as a descriptor. They are blocked in the calling thread, and in threads that it starts,
/// from when this is made until it is dropped (SIGUSR2 and SIGXFSZ, if among them, are ignored from
/// then on). A thread that ran before, and does not block them, hands on those that it gets.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    set: libc::sigset_t,
    before: libc::sigset_t,
    actions: Vec<(i32, libc::sigaction)>,
    /// The last one came from the keys of a terminal.
    is_typed: AtomicBool,
}

/// The last signal that [`hand_on`] sent on came from the keys of a terminal.
static HANDED_ON_TYPED: AtomicBool = AtomicBool::new(false);

/// Blocks a signal in the thread that got it, and sends it to the process anew: in the end all
/// threads block it, and the descriptor has it. The kernel lets no thread but the first one send
/// the information of another sender (`do_rt_sigqueueinfo`), so that its origin is kept aside.
extern "C" fn hand_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel calls this with SA_SIGINFO, so `info` is the signal's and `context` the
    // thread's ucontext_t, whose mask it takes over on return. sigaddset, getpid and kill are
    // async-signal-safe, errno is put back.
    unsafe {
        let errno = *libc::__errno_location();
        let own = libc::getpid();
        let code = (*info).si_code;
        if code == SI_KERNEL || (*info).si_pid() != own {
            HANDED_ON_TYPED.store(code == SI_KERNEL, Ordering::Relaxed);
        }
        let context = context.cast::<libc::ucontext_t>();
        libc::sigaddset(&raw mut (*context).uc_sigmask, signal);
        libc::kill(own, signal);
        *libc::__errno_location() = errno;
    }
}

/// Has [`hand_on`] called for signals that are not ignored; gives what was done before.
fn hand_on_from_other_threads(signals: &[Signal]) -> Vec<(i32, libc::sigaction)> {
    let mut actions = Vec::new();
    for number in signals.iter().map(|s| s.number()) {
        // SAFETY: `sigaction` is plain data, for which zero is a value; the pointers are to live
        // locals, and the handler is one of the form that SA_SIGINFO states.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(number, std::ptr::null(), &raw mut before) != 0
                || before.sa_sigaction == libc::SIG_IGN
            {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = hand_on;
            action.sa_sigaction = handler as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            if libc::sigaction(number, &raw const action, std::ptr::null_mut()) == 0 {
                actions.push((number, before));
            }
        }
    }
    actions
}

impl Signals {
    /// Blocks `signals` and listens for them. One that was ignored when the
    /// program started (nohup) stays ignored.
    pub fn listen(signals: &[Signal]) -> io::Result<Signals> {
        let set = signal_set(signals);
        // SAFETY: `sigset_t` is plain data, for which zero is a value.
        let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live locals.
        let status = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &raw mut before) };
        if status != 0 {
            return Err(io::Error::from_raw_os_error(status));
        }
        // SAFETY: -1 asks for a new descriptor; the set is a live local.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let actions = hand_on_from_other_threads(signals);
        // SAFETY: the kernel just gave this descriptor to us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Signals { fd, set, before, actions, is_typed: AtomicBool::new(false) })
    }

    /// The next signal that arrived, if any; never waits.
    pub fn next(&self) -> io::Result<Option<Signal>> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        loop {
            match rustix::io::read(&self.fd, &mut info) {
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            }
            // Number, error, code and sender: `struct signalfd_siginfo` of signalfd(2).
            let [a, b, c, d, _, _, _, _, e, f, g, h, i, j, k, l, ..] = info;
            let number = i32::from_ne_bytes([a, b, c, d]);
            let code = i32::from_ne_bytes([e, f, g, h]);
            let is_own = u32::from_ne_bytes([i, j, k, l]) == std::process::id();
            let is_typed = code == SI_KERNEL || is_own && HANDED_ON_TYPED.load(Ordering::Relaxed);
            self.is_typed.store(is_typed, Ordering::Relaxed);
            if let Some(&signal) = Signal::ALL.iter().find(|s| s.number() == number) {
                return Ok(Some(signal));
            }
        }
    }
}

impl Signals {
    /// Whether the last signal came from the keys of a terminal, which sends it to a command in
    /// the foreground as well.
    pub fn is_typed(&self) -> bool {
        self.is_typed.load(Ordering::Relaxed)
    }

    /// Whether the last signal has reached a command, too: its keys were typed, and the command is
    /// still in the process group that the terminal sends them to.
    pub fn has_reached(&self, command: &GatedChild) -> bool {
        let group = rustix::process::getpgid(rustix::process::Pid::from_raw(command.pid));
        self.is_typed() && group.is_ok_and(|group| group == rustix::process::getpgrp())
    }

    /// Ends a command that still runs when its observation is over, by SIGTERM. One that keys have
    /// asked to end does so in its own way: many end immediately at a second signal, without what
    /// they do at the first one.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn end_command(&self, command: &mut GatedChild) -> io::Result<Exit> {
        if command.try_wait()?.is_none() && !self.has_reached(command) {
            let _ = command.kill(Signal::Term.number());
        }
        self.wait_for_end(command)
    }

    /// Waits for the end of a command that was asked to end; a further signal sends it SIGTERM.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn wait_for_end(&self, command: &mut GatedChild) -> io::Result<Exit> {
        loop {
            if let Some(exit) = command.try_wait()? {
                return Ok(exit);
            }
            self.wait(Some(command), None)?;
            while let Some(signal) = self.next()? {
                if signal.is_end() {
                    let _ = command.kill(Signal::Term.number());
                }
            }
        }
    }

    /// Waits until a signal arrives or the command ends, at most for `most`.
    pub fn wait(&self, command: Option<&GatedChild>, most: Option<Duration>) -> io::Result<()> {
        let mut fds = vec![descriptors::readable(&self.fd)];
        fds.extend(command.map(descriptors::readable));
        descriptors::wait(&mut fds, most.unwrap_or(Duration::MAX))?;
        Ok(())
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the set is the one that was listened to; ignoring a signal takes no memory,
        // and actions and mask are those the system gave us.
        unsafe {
            for (number, before) in &self.actions {
                libc::sigaction(*number, before, std::ptr::null_mut());
            }
            // One that came too late to be read would kill now: a write that failed for
            // the file's size has said so, and there is nothing left to dump.
            for late in [libc::SIGXFSZ, libc::SIGUSR2] {
                if libc::sigismember(&raw const self.set, late) == 1 {
                    libc::signal(late, libc::SIG_IGN);
                }
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}

/// Makes writes beyond the limit of a file's size fail (setrlimit(2), `RLIMIT_FSIZE`) rather than
/// end the process.
pub fn outlive_file_limit() {
    // SAFETY: ignoring a signal takes no memory.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

fn signal_set(signals: &[Signal]) -> libc::sigset_t {
    // SAFETY: `sigset_t` is plain data, and both calls write only to it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, signal.number());
        }
        set
    }
}

/// Lets a process that was stopped go on.
///
/// # Errors
/// If there is none, or it is not to be touched.
pub fn continue_process(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    Ok(rustix::process::kill_process(pid, rustix::process::Signal::CONT)?)
}

/// Ends this process by `signal` with its default action, so that its parent sees the cause (a
/// shell stops its loop on Ctrl-C).
pub fn die_by(signal: Signal) -> ! {
    die_by_number(signal.number())
}

/// Ends this process by the signal that has ended its command, without a core of its own: the
/// parent sees what it would see of the command.
pub fn die_as_killed(number: i32) -> ! {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is a live local.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
    }
    die_by_number(number)
}

fn die_by_number(number: i32) -> ! {
    // SAFETY: no handler is installed, only the default one; the set is a live local, and plain
    // data, for which zero is a value.
    unsafe {
        libc::signal(number, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, number);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(number);
    }
    std::process::exit(128_i32.wrapping_add(number))
}

/// Lets this thread run before all ordinary ones as soon as it has something to
/// do (`SCHED_FIFO` with this priority, 1 to 99). Processes it starts are ordinary.
pub fn hurry(priority: u8) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority.into() };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: 0 is this thread, and the pointer is to a live local that the call reads.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The monotonic clock.
pub fn monotonic() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}

/// Raises the soft limit of open files to the hard one; returns whether it rose.
pub fn raise_open_file_limit() -> io::Result<bool> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live local of the type the call fills in.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } < 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur >= limit.rlim_max {
        return Ok(false);
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the pointer is to a live local that the call reads.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(true)
}

/// This thread at the highest niceness that it may have; dropping it gives the old one back.
#[derive(Debug)]
pub struct PreferredThread {
    before: i32,
}

impl PreferredThread {
    /// None without the privilege (`CAP_SYS_NICE`).
    pub fn new() -> Option<PreferredThread> {
        let before = rustix::process::getpriority_process(None).ok()?;
        rustix::process::setpriority_process(None, -20).ok()?;
        Some(PreferredThread { before })
    }
}

impl Drop for PreferredThread {
    fn drop(&mut self) {
        // Lowering is always allowed.
        let _ = rustix::process::setpriority_process(None, self.before);
    }
}

/// Whether this thread has a capability, by its number of capabilities(7), in effect.
pub(crate) fn has_capability(bit: u32) -> bool {
    let status = std::fs::read_to_string(system_path("/proc/self/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> bit & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(list: &[&str]) -> Vec<OsString> {
        list.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_command_runs_only_once_released() {
        let mut child = GatedChild::spawn(&args(&["sh", "-c", "exit 7"])).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(child.try_wait().unwrap().is_none());
        child.release().unwrap();
        assert_eq!(child.wait().unwrap().code(), 7);
    }

    #[test]
    fn a_command_that_is_not_there_is_named() {
        for missing in ["no-such-command-here", "/nonexistent/command"] {
            let e = GatedChild::spawn(&args(&[missing])).unwrap_err();
            assert!(e.to_string().contains(missing), "{e}");
            assert_eq!(e.shell_status(), 127);
        }
        for refused in ["/etc/passwd", "/etc"] {
            let e = GatedChild::spawn(&args(&[refused])).unwrap_err();
            assert_eq!(e.shell_status(), 126);
        }
        assert!(matches!(GatedChild::spawn(&[]), Err(SpawnError::Empty)));
    }

    #[test]
    fn what_only_the_kernel_finds_wrong_is_said_at_the_release() {
        use std::os::unix::fs::PermissionsExt as _;

        let script = std::env::temp_dir().join(format!("kymo-interpreter-{}", std::process::id()));
        std::fs::write(&script, "#!/nonexistent/interpreter\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut child = GatedChild::spawn(&[script.clone().into()]).unwrap();
        let e = child.release().unwrap_err();
        std::fs::remove_file(&script).unwrap();
        assert_eq!(e.shell_status(), 127);
    }

    #[test]
    fn an_unreleased_child_is_gone_after_drop() {
        let child = GatedChild::spawn(&args(&["sleep", "1000"])).unwrap();
        let pid = child.pid();
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_signal_gives_128_and_its_number() {
        let mut child = GatedChild::spawn(&args(&["sleep", "1000"])).unwrap();
        child.release().unwrap();
        child.kill(libc::SIGTERM).unwrap();
        assert_eq!(child.wait().unwrap().code(), 143);
    }

    #[test]
    fn signals_are_read_not_handled() {
        let signals = Signals::listen(&[Signal::Usr2]).unwrap();
        assert_eq!(signals.next().unwrap(), None);
        // SAFETY: sends a signal to this thread, where it is blocked.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
        assert_eq!(signals.next().unwrap(), Some(Signal::Usr2));
    }

    #[test]
    fn a_thread_that_ran_before_hands_signals_on() {
        let (done, ending) = std::sync::mpsc::channel::<()>();
        let before = [(), ()].map(|()| std::thread::spawn(std::thread::park));
        let reader = std::thread::spawn(move || ending.recv().is_err());
        let signals = Signals::listen(&[Signal::Usr1]).unwrap();
        // A thread that is not the first one gets it.
        let thread = std::os::unix::thread::JoinHandleExt::as_pthread_t(&before[0]);
        // SAFETY: the thread runs until it is unparked below.
        assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
        signals.wait(None, Some(Duration::from_secs(60))).unwrap();
        assert_eq!(signals.next().unwrap(), Some(Signal::Usr1));
        for _ in 0..10 {
            // SAFETY: sends a signal to this process; other tests of it do not listen for it.
            assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) }, 0);
            signals.wait(None, Some(Duration::from_secs(60))).unwrap();
            assert_eq!(signals.next().unwrap(), Some(Signal::Usr1));
        }
        drop((signals, done));
        assert!(reader.join().unwrap());
        for thread in before {
            thread.thread().unpark();
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_signal_right_after_the_release_ends_the_command() {
        let _signals = Signals::listen(&[Signal::Term]).unwrap();
        let mut child = GatedChild::spawn(&args(&["sleep", "1000"])).unwrap();
        child.kill(libc::SIGTERM).unwrap();
        let _ = child.release();
        assert_eq!(child.wait().unwrap().code(), 143);
    }
}
