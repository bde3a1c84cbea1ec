//! Chunked reading: a window over the file that moves forward, of bounded size.
//! What lies before the window can be handed over as a block. The window is of a
//! buffer that the file is read into, or of the mapped file itself.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::sync::Arc;

use super::block::{BLOCK as CHUNK, Block, Origin, Pool, forget, hand_over};
use super::{FileMapping, PerfDataReadError};
use crate::RecordingBytes;

/// Bytes by which a window of a mapped file grows: giving pages back costs a call.
const STEP: usize = 4 << 20;
/// So far ahead of it a disk is asked: what an unwinder touches comes one page at a time else.
const AHEAD: usize = 32 << 20;

/// Input that is read sequentially.
pub(super) enum InputFile {
    /// A file, which may be a pipe.
    File(File),
    /// Bytes, and the place of the next one.
    Bytes(RecordingBytes, u64),
}

impl InputFile {
    /// The file, where it is one.
    pub(super) fn as_file(&self) -> Option<&File> {
        match self {
            InputFile::File(file) => Some(file),
            InputFile::Bytes(bytes, _) => bytes.file(),
        }
    }

    /// Its bytes for another reader, whose place in them is its own.
    pub(super) fn bytes(&self) -> io::Result<RecordingBytes> {
        match self {
            InputFile::File(file) => file.try_clone().map(RecordingBytes::from_file),
            InputFile::Bytes(bytes, _) => Ok(bytes.clone()),
        }
    }

    /// Whether it can be read again.
    pub(super) fn is_regular(&self) -> bool {
        match self {
            InputFile::File(file) => file.metadata().is_ok_and(|m| m.is_file()),
            InputFile::Bytes(..) => true,
        }
    }
}

impl Read for InputFile {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            InputFile::File(file) => file.read(buf),
            InputFile::Bytes(bytes, at) => {
                let read = bytes.read_uncounted(buf, *at)?;
                *at += read as u64;
                Ok(read)
            }
        }
    }
}

impl Seek for InputFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (bytes, at) = match self {
            InputFile::File(file) => return file.seek(to),
            InputFile::Bytes(bytes, at) => (bytes, at),
        };
        let target = match to {
            SeekFrom::Start(target) => Some(target),
            SeekFrom::End(by) => bytes.size()?.checked_add_signed(by),
            SeekFrom::Current(by) => at.checked_add_signed(by),
        };
        *at = target.ok_or(ErrorKind::InvalidInput)?;
        Ok(*at)
    }
}

/// The file behind a recording and a window of what was read of it.
pub(super) struct Input {
    pub(super) file: InputFile,
    buf: Vec<u8>,
    /// Instead of the buffer; the window's places count from `base` on.
    map: Option<Arc<dyn FileMapping>>,
    base: usize,
    /// End of the range that was announced as needed soon.
    expected: usize,
    start: usize,
    end: usize,
    /// Offset in the file of `buf[start]`.
    offset: u64,
    /// Reading must not go past this offset.
    limit: u64,
    eof: bool,
}

impl Input {
    pub(super) fn new(file: InputFile) -> Input {
        Input {
            file,
            buf: Vec::new(),
            map: None,
            base: 0,
            expected: 0,
            start: 0,
            end: 0,
            offset: 0,
            limit: u64::MAX,
            eof: false,
        }
    }

    /// Takes the bytes from the mapped file from the next [`restart`](Self::restart) on.
    pub(super) fn map(&mut self, map: Arc<dyn FileMapping>) {
        self.map = Some(map);
    }

    /// Whether a mapped file became shorter while it was read.
    pub(super) fn was_cut(&self) -> bool {
        self.map.as_ref().is_some_and(|map| map.was_cut())
    }

    /// Forgets the window; the file was positioned at `offset` by the caller.
    pub(super) fn restart(&mut self, offset: u64, limit: u64) {
        (self.start, self.end, self.eof) = (0, 0, false);
        (self.offset, self.limit) = (offset, limit);
        self.base = usize::try_from(offset).unwrap_or(usize::MAX);
        self.expected = self.base;
    }

    /// Offset in the file of the next unread byte.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes in the window.
    #[inline]
    pub(super) fn window(&self) -> &[u8] {
        match &self.map {
            None => &self.buf[self.start..self.end],
            Some(map) => {
                let window = self.base + self.start..self.base + self.end;
                map.bytes().get(window).unwrap_or_default()
            }
        }
    }

    /// Start of the window in the buffer.
    #[inline]
    pub(super) fn position(&self) -> usize {
        self.start
    }

    /// Hands over everything before the window.
    pub(super) fn hand_over(&mut self, pool: &Arc<Pool>) -> Block {
        if let Some(map) = &self.map {
            let block = Block::mapped(map, self.base..self.base + self.start);
            self.base += self.start;
            self.end -= self.start;
            self.start = 0;
            return block;
        }
        let origin = Origin::From(self.offset - self.start as u64);
        let block = hand_over(&mut self.buf, self.start, self.start..self.end, origin, pool);
        self.end -= self.start;
        self.start = 0;
        block
    }

    /// Makes the window at least `need` bytes long; `false` when the file ends
    /// before that.
    #[inline]
    pub(super) fn want(&mut self, need: usize) -> Result<bool, PerfDataReadError> {
        if self.end - self.start >= need {
            return Ok(true);
        }
        self.fill(need)
    }

    #[cold]
    fn fill(&mut self, need: usize) -> Result<bool, PerfDataReadError> {
        if let Some(map) = &self.map {
            if self.start > 0 {
                // It was not handed out.
                forget(&**map, &(self.base..self.base + self.start));
            }
            self.base += self.start;
            let whole = usize::try_from(self.limit).unwrap_or(usize::MAX).min(map.bytes().len());
            let there = whole.saturating_sub(self.base);
            (self.start, self.end) = (0, need.max(STEP).min(there));
            let ahead = self.base.saturating_add(AHEAD).min(whole);
            if self.expected + STEP <= ahead || ahead == whole && self.expected < whole {
                map.expect(self.expected.max(self.base)..ahead);
                self.expected = ahead;
            }
            return Ok(self.end >= need);
        }
        self.buf.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buf.len() < need.max(CHUNK) {
            self.buf.resize(need.max(CHUNK), 0);
        }
        while self.end < need && !self.eof {
            let at = self.offset + self.end as u64;
            let room = (self.buf.len() - self.end) as u64;
            let take = room.min(self.limit.saturating_sub(at)) as usize;
            if take == 0 {
                self.eof = true;
                break;
            }
            match self.file.read(&mut self.buf[self.end..self.end + take]) {
                Ok(0) => self.eof = true,
                Ok(n) => self.end += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(PerfDataReadError::Io { offset: at, error }),
            }
        }
        Ok(self.end >= need)
    }

    /// Moves past `n` bytes of the window.
    #[inline]
    pub(super) fn consume(&mut self, n: usize) {
        let n = n.min(self.end - self.start);
        self.start += n;
        self.offset += n as u64;
    }

    /// Moves past `n` bytes, reading and dropping what is not in the window;
    /// returns how many there were.
    pub(super) fn skip(&mut self, n: u64) -> Result<u64, PerfDataReadError> {
        let mut left = n;
        while left > 0 {
            let step = left.min(CHUNK as u64) as usize;
            self.want(step)?;
            let have = step.min(self.end - self.start);
            if have == 0 {
                break;
            }
            self.consume(have);
            left -= have as u64;
        }
        Ok(n - left)
    }

    /// Takes `n` bytes out, growing only as bytes arrive; fewer at the end of
    /// the file.
    pub(super) fn take(&mut self, n: u64) -> Result<Vec<u8>, PerfDataReadError> {
        let mut out = Vec::new();
        while (out.len() as u64) < n {
            let step = (n - out.len() as u64).min(CHUNK as u64) as usize;
            self.want(step)?;
            let have = step.min(self.end - self.start);
            if have == 0 {
                break;
            }
            out.extend_from_slice(&self.window()[..have]);
            self.consume(have);
        }
        Ok(out)
    }
}
