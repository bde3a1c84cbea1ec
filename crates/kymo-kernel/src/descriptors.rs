//! Descriptors: waiting for them, pipes and splicing between them, files in memory.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};

pub use rustix::event::{PollFd, PollFlags};

/// Standard output is `/dev/null`, for programs that are started meanwhile, until this is dropped.
#[derive(Debug)]
pub struct MutedStdout(OwnedFd);

impl MutedStdout {
    /// Mutes it.
    ///
    /// # Errors
    /// If a descriptor cannot be had.
    pub fn new() -> io::Result<MutedStdout> {
        let kept = io::stdout().as_fd().try_clone_to_owned()?;
        let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
        replace_stdout(null.as_fd())?;
        Ok(MutedStdout(kept))
    }
}

impl Drop for MutedStdout {
    fn drop(&mut self) {
        // It was the same descriptor before: nothing can be said of an error anyway.
        let _ = replace_stdout(self.0.as_fd());
    }
}

fn replace_stdout(by: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both are numbers of descriptors, the first one open as long as it is borrowed; no
    // value owns that of standard output, whose number stays open.
    if unsafe { libc::dup2(by.as_raw_fd(), libc::STDOUT_FILENO) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A descriptor to wait for until it can be read.
pub fn readable<'a>(fd: &'a impl AsFd) -> PollFd<'a> {
    PollFd::new(fd, PollFlags::IN)
}

/// As [`readable`], of a descriptor that is borrowed already.
pub fn readable_fd(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

/// Waits until one of the descriptors is ready, at most `most`; returns whether one is. A signal
/// ends the waiting.
///
/// # Errors
/// If the kernel refuses.
pub fn wait(fds: &mut [PollFd<'_>], most: Duration) -> io::Result<bool> {
    let time = Timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: most.subsec_nanos().into(),
    };
    match rustix::event::poll(fds, Some(&time)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// The two ends of a pipe, to read from and to write to.
///
/// # Errors
/// If the kernel refuses.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

/// Flag that one thread sets and others poll (eventfd(2)).
#[derive(Debug)]
pub struct EventFlag(OwnedFd);

impl EventFlag {
    /// # Errors
    /// As the kernel gives them: there are too many descriptors.
    pub fn new() -> io::Result<EventFlag> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(EventFlag(rustix::event::eventfd(0, flags)?))
    }

    /// Polls readable from now on.
    pub fn set(&self) {
        // A counter at its end is set, too.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Does not poll readable until it is set again.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for EventFlag {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A descriptor that this program was started with, as a copy that programs it starts do not
/// get.
///
/// # Errors
/// If there is none of this number.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(Errno::BADF.into());
    }
    // SAFETY: the borrow ends with the call, and the kernel refuses a number that is not open.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?)
}

/// Makes a named pipe for this user.
///
/// # Errors
/// If something is there, or the directory is not writable.
pub fn make_named_pipe(path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    Ok(mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?)
}

/// Opens a named pipe to read and to write, without waiting for another side.
///
/// # Errors
/// If there is none, or it is something else.
pub fn open_named_pipe(path: &Path) -> io::Result<OwnedFd> {
    use std::os::unix::fs::FileTypeExt as _;
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path)?;
    if !file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a named pipe"));
    }
    Ok(file.into())
}

/// Whether a descriptor can be read now, be it that it is at its end.
///
/// # Errors
/// If the kernel refuses.
pub fn is_readable(fd: &impl AsFd) -> io::Result<bool> {
    wait(&mut [readable(fd)], Duration::ZERO)
}

/// Asks for room in a pipe; gives the bytes that it has room for.
///
/// # Errors
/// If it is no pipe.
pub fn set_pipe_size(pipe: &OwnedFd, bytes: usize) -> io::Result<usize> {
    let granted = rustix::pipe::fcntl_setpipe_size(pipe, bytes);
    // Users have a limit on all their pipes; what it had before it keeps.
    Ok(granted.or_else(|_| rustix::pipe::fcntl_getpipe_size(pipe))?)
}

/// Mode of [`splice`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpliceMode {
    /// Returns rather than waits where there is nothing, or no room.
    pub nonblocking: bool,
    /// More bytes follow immediately: a socket need not send yet.
    pub more: bool,
}

/// Result of [`splice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spliced {
    /// Number of bytes that were moved; 0 at the end of what is read from.
    Moved(usize),
    /// There was nothing to move, or no room for it.
    WouldBlock,
    /// A signal came before anything was moved.
    Interrupted,
}

/// Moves at most `most` bytes between two descriptors, one of which is a pipe, without copying
/// them; `at` is the place in the file that is written to, and is moved on.
///
/// # Errors
/// If the kernel refuses: [`is_unsupported`] identifies descriptors that cannot be spliced.
pub fn splice(
    from: impl AsFd,
    to: impl AsFd,
    at: Option<&mut u64>,
    most: usize,
    mode: SpliceMode,
) -> io::Result<Spliced> {
    let mut flags = SpliceFlags::MOVE;
    flags.set(SpliceFlags::NONBLOCK, mode.nonblocking);
    flags.set(SpliceFlags::MORE, mode.more);
    match rustix::pipe::splice(from, None, to, at, most, flags) {
        Ok(count) => Ok(Spliced::Moved(count)),
        Err(Errno::AGAIN) => Ok(Spliced::WouldBlock),
        Err(Errno::INTR) => Ok(Spliced::Interrupted),
        Err(e) => Err(e.into()),
    }
}

/// Whether an error of [`splice`] says that these descriptors cannot be spliced.
pub fn is_unsupported(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::NOSYS))
}

/// Opens a file of the kernel so that reading it never waits.
///
/// # Errors
/// If it cannot be opened.
pub fn open_nonblocking(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// A file of this process's open descriptor, written to at its end.
///
/// # Errors
/// If it is not open, or not for writing.
pub fn append_to(descriptor: u32) -> io::Result<File> {
    File::options().append(true).open(format!("/proc/self/fd/{descriptor}"))
}

/// A file that exists in memory only; `name` is for who lists descriptors.
///
/// # Errors
/// If the kernel refuses.
pub fn memory_file(name: &str) -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?))
}

/// The path under which this process finds what a descriptor stands for.
pub fn own_path(fd: impl AsFd) -> PathBuf {
    own_path_of(fd.as_fd().as_raw_fd())
}

/// As [`own_path`], by the descriptor's number.
pub fn own_path_of(fd: i32) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{fd}"))
}

/// Current path of the file behind a descriptor.
///
/// # Errors
/// Where `/proc` is not mounted.
pub fn path_of(fd: impl AsFd) -> io::Result<PathBuf> {
    std::fs::read_link(own_path(fd))
}

/// Has the kernel notice that the other host has vanished while nothing is sent, after
/// so long. What cannot be set is left as it is.
pub fn keep_alive(socket: impl AsFd, after: Duration) {
    let _ = rustix::net::sockopt::set_socket_keepalive(&socket, true);
    let _ = rustix::net::sockopt::set_tcp_keepidle(&socket, after);
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn bytes_go_through_a_pipe_into_a_file() {
        let (read, write) = pipe().unwrap();
        assert!(set_pipe_size(&write, 1 << 16).unwrap() >= 4096);
        let mode = SpliceMode { nonblocking: true, more: false };
        let file = memory_file("kymo-test").unwrap();
        let mut at = 3;
        assert!(!wait(&mut [readable(&read)], Duration::ZERO).unwrap());
        assert_eq!(splice(&read, &file, Some(&mut at), 10, mode).unwrap(), Spliced::WouldBlock);
        File::from(write.try_clone().unwrap()).write_all(b"bytes").unwrap();
        assert!(wait(&mut [readable_fd(read.as_fd())], Duration::from_secs(5)).unwrap());
        assert_eq!(splice(&read, &file, Some(&mut at), 10, mode).unwrap(), Spliced::Moved(5));
        assert_eq!(at, 8);
        assert_eq!(std::fs::read(own_path(&file)).unwrap(), b"\0\0\0bytes");
        assert!(is_unsupported(&splice(&file, &file, None, 1, mode).unwrap_err()));
        drop(write);
        assert_eq!(splice(&read, &file, None, 10, mode).unwrap(), Spliced::Moved(0));
    }

    #[test]
    fn a_fifo_without_a_writer_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600))
            .unwrap();
        let mut text = String::new();
        open_nonblocking(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "");
    }
}
