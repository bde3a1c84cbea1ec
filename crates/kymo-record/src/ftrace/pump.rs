//! Moves ring pages from where the kernel keeps them to where they go, without
//! looking at them: `trace_pipe_raw` → pipe → file or socket, by splice(2).

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use kymo_kernel::descriptors::{self, SpliceMode, Spliced};

/// Asked for as the pipe's room; the kernel may grant less.
const PIPE_BYTES: usize = 1 << 20;
/// Rounds of one sweep, so that a ring that fills as fast as it is emptied cannot
/// keep the mover from looking at anything else.
const ROUNDS: usize = 64;

/// Receiver of pages.
pub(crate) trait Sink {
    /// Whether there is room now. Pages that wait do so in the kernel's ring,
    /// which counts what it must drop.
    fn ready(&mut self) -> io::Result<bool> {
        Ok(true)
    }
    /// Takes `len` bytes, whole pages, out of the pipe.
    fn pipe(&mut self, stream: usize, pipe: &OwnedFd, len: usize) -> io::Result<()>;
    /// Takes whole pages from memory.
    fn bytes(&mut self, stream: usize, pages: &[u8]) -> io::Result<()>;
    /// Called at least once a second.
    fn attend(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Failed side of the pipe.
#[derive(Debug)]
pub(crate) enum PumpError {
    /// The ring could not be read; nothing was lost by that.
    Ring(io::Error),
    /// The pages did not get to their place.
    Sink(io::Error),
}

/// One CPU's ring.
#[derive(Debug)]
pub(crate) struct CpuRing {
    /// `trace_pipe_raw` (or `snapshot_raw`), opened without blocking.
    pub(crate) raw: File,
    /// Stream of the file that it feeds.
    pub(crate) stream: usize,
}

/// Rings, and the pipe between them and the sink.
#[derive(Debug)]
pub(crate) struct Pump {
    sources: Vec<CpuRing>,
    read: OwnedFd,
    write: OwnedFd,
    room: usize,
    page: usize,
    /// The kernel moves no pages here: they are copied.
    copying: bool,
}

impl Pump {
    pub(crate) fn new(sources: Vec<CpuRing>, page: usize) -> io::Result<Pump> {
        let (read, write) = descriptors::pipe()?;
        let room = descriptors::set_pipe_size(&write, PIPE_BYTES)?;
        // A page of the pipe holds one sub-buffer at most.
        let room = (room / page).max(1) * page;
        Ok(Pump { sources, read, write, room, page, copying: false })
    }

    /// File descriptors that become readable when a ring is filled to its `buffer_percent`.
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sources.iter().map(|s| s.raw.as_fd())
    }

    /// Moves full pages until there are none (or for long enough). Gives the bytes.
    pub(crate) fn sweep(&mut self, sink: &mut impl Sink) -> Result<u64, PumpError> {
        let mut total = 0;
        for _ in 0..ROUNDS {
            let mut moved = 0;
            for i in 0..self.sources.len() {
                if !sink.ready().map_err(PumpError::Sink)? {
                    return Ok(total + moved);
                }
                moved += self.move_pages(i, sink)? as u64;
            }
            total += moved;
            if moved == 0 {
                break;
            }
        }
        Ok(total)
    }

    /// Moves the pages of one ring, up to the pipe's room. Returns the bytes.
    fn move_pages(&mut self, i: usize, sink: &mut impl Sink) -> Result<usize, PumpError> {
        let Some(source) = self.sources.get(i) else { return Ok(0) };
        if self.copying {
            // Splice gives only full pages, read would also give begun ones: those
            // are left for the end, so that the ring can fill them.
            return Ok(0);
        }
        let mode = SpliceMode { nonblocking: true, more: false };
        let spliced = descriptors::splice(&source.raw, &self.write, None, self.room, mode);
        match spliced {
            Ok(Spliced::Moved(n)) => {
                if n > 0 {
                    sink.pipe(source.stream, &self.read, n).map_err(PumpError::Sink)?;
                }
                Ok(n)
            }
            Ok(Spliced::WouldBlock | Spliced::Interrupted) => Ok(0),
            Err(e) if descriptors::is_unsupported(&e) => {
                self.copying = true;
                Ok(0)
            }
            Err(e) => Err(PumpError::Ring(e)),
        }
    }

    /// Moves the current pages of each ring, about `most` bytes at most: while tracing continues
    /// there is always more.
    pub(crate) fn once(&mut self, sink: &mut impl Sink, most: u64) -> Result<u64, PumpError> {
        let mut total = 0;
        for i in 0..self.sources.len() {
            let mut taken = 0;
            while taken < most {
                let n = self.move_pages(i, sink)? as u64;
                taken += n;
                if n == 0 {
                    break;
                }
            }
            total += taken + self.begun(i, sink, if self.copying { most } else { 1 })?;
        }
        Ok(total)
    }

    /// The begun pages, once no more events come. Gives the bytes.
    pub(crate) fn last(&mut self, sink: &mut impl Sink) -> Result<u64, PumpError> {
        let mut total = self.sweep(sink)?;
        for i in 0..self.sources.len() {
            total += self.begun(i, sink, u64::MAX)?;
        }
        Ok(total)
    }

    /// Copies pages that may be begun, about `most` bytes.
    fn begun(&mut self, i: usize, sink: &mut impl Sink, most: u64) -> Result<u64, PumpError> {
        let Some(source) = self.sources.get_mut(i) else { return Ok(0) };
        let mut page = vec![0; self.page];
        let mut total = 0;
        while total < most {
            let n = match source.raw.read(&mut page) {
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(PumpError::Ring(e)),
            };
            if n == 0 {
                break;
            }
            page.get_mut(n..).unwrap_or_default().fill(0);
            sink.bytes(source.stream, &page).map_err(PumpError::Sink)?;
            total += page.len() as u64;
        }
        Ok(total)
    }
}
