//! The ring's pages of one CPU, read or moved.
//!
//! `trace_pipe_raw` hands out whole ring pages (sub-buffers). [`RawPipe::read`] copies one out,
//! also one that is not full yet; [`PageMover`] moves full ones to a file with splice(2), without a
//! copy. So a recorder moves while it runs and reads the rest at the end.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};

use super::dir::TraceDir;
use super::error::FtraceError;

/// Pages that a pipe is asked to hold.
const PAGES_A_MOVE: usize = 64;

/// One CPU's ring. Reading takes the pages out of the ring.
#[derive(Debug)]
pub struct RawPipe {
    file: File,
    path: PathBuf,
    cpu: u32,
    page_size: usize,
}

impl TraceDir {
    /// Opens one CPU's ring for reading without waiting. While it is open the
    /// instance cannot be removed.
    pub fn raw_pipe(&self, cpu: u32) -> Result<RawPipe, FtraceError> {
        let path = self.path(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        let file = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(&path)
            .map_err(|error| FtraceError::Pipe { path: path.clone(), error })?;
        Ok(RawPipe { file, path, cpu, page_size: self.page_size() })
    }

    /// Bytes of one ring page: the machine's page, or the sub-buffer's size
    /// where the kernel (6.8) has one.
    pub fn page_size(&self) -> usize {
        match self.read_number("buffer_subbuf_size_kb") {
            Ok(kb @ 1..=16_384) => kb as usize * 1024,
            _ => rustix::param::page_size(),
        }
    }

    /// Sets the fill level in percent at which a waiting reader is woken: 0 wakes at the first
    /// event, 100 when the ring is full. Kernels before 4.20 wake at the first event.
    pub fn set_wake_percent(&self, percent: u8) -> Result<(), FtraceError> {
        self.set("buffer_percent", &percent.to_string())
    }
}

impl RawPipe {
    /// CPU of the ring.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Buffer size that [`read`](RawPipe::read) requires, in bytes.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Copies the next page out: how many bytes, or `None` if the ring is empty
    /// now. A page that is still being filled is given as far as it goes; what
    /// is added to it later comes in a page of its own.
    pub fn read(&mut self, page: &mut [u8]) -> Result<Option<usize>, FtraceError> {
        loop {
            match rustix::io::read(&self.file, &mut *page) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(None),
                Ok(n) => return Ok(Some(n)),
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.error(e)),
            }
        }
    }

    fn error(&self, e: Errno) -> FtraceError {
        FtraceError::Pipe { path: self.path.clone(), error: e.into() }
    }
}

impl AsFd for RawPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Moving pages failed on one of the two sides.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The ring could not be read; nothing was lost.
    #[error(transparent)]
    From(FtraceError),
    /// The file or socket did not take them.
    #[error("{left} bytes of ring pages could not be written: {error}")]
    To {
        /// Bytes that had left the ring and are lost.
        left: usize,
        /// The system's reason.
        error: io::Error,
    },
}

/// A kernel pipe through which ring pages go to a file or a socket.
#[derive(Debug)]
pub struct PageMover {
    read: OwnedFd,
    write: OwnedFd,
    room: usize,
}

impl PageMover {
    /// Makes the pipe, as large as the system grants.
    pub fn new(page_size: usize) -> io::Result<PageMover> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // Refused beyond pipe-max-size and for users with many pipes: then it
        // keeps its 16 pages.
        let _ = rustix::pipe::fcntl_setpipe_size(&write, PAGES_A_MOVE * page_size);
        let room = rustix::pipe::fcntl_getpipe_size(&write)?;
        let room = (room / page_size).max(1) * page_size;
        Ok(PageMover { read, write, room })
    }

    /// Moves full pages from `from` to `to` (at its own position): how many
    /// bytes. 0 means that no full page is there now. On an error of `to` what
    /// was in the pipe is lost; the pages have left the ring.
    pub fn move_pages(&self, from: &RawPipe, to: BorrowedFd<'_>) -> Result<usize, MoveError> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let taken = loop {
            match rustix::pipe::splice(from, None, &self.write, None, self.room, flags) {
                Ok(n) => break n,
                Err(Errno::AGAIN) => return Ok(0),
                Err(Errno::INTR) => {}
                Err(e) => return Err(MoveError::From(from.error(e))),
            }
        };
        let mut left = taken;
        while left > 0 {
            match rustix::pipe::splice(&self.read, None, to, None, left, SpliceFlags::MOVE) {
                Ok(0) => return Err(MoveError::To { left, error: Errno::PIPE.into() }),
                Ok(n) => left -= n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(MoveError::To { left, error: e.into() }),
            }
        }
        Ok(taken)
    }
}

/// Waits until one of the descriptors can be read, at most for `most`. Which
/// ones can, in their order; none after the time.
pub fn wait_readable(fds: &[BorrowedFd<'_>], most: Option<Duration>) -> io::Result<Vec<bool>> {
    let time = most.map(|d| rustix::time::Timespec {
        tv_sec: d.as_secs() as _,
        tv_nsec: d.subsec_nanos().into(),
    });
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    match rustix::event::poll(&mut polled, time.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    Ok(polled.iter().map(|p| !p.revents().is_empty()).collect())
}
