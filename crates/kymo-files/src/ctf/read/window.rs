//! The part of a file that is in memory.

use std::io;

use crate::RecordingBytes;

#[derive(Debug, Default)]
pub(crate) struct Window {
    file: Option<RecordingBytes>,
    bytes: Vec<u8>,
    /// Offset of the bytes in the file.
    at: u64,
    /// Bytes of the file.
    len: u64,
    /// Bytes per read.
    step: usize,
}

impl Window {
    pub(crate) fn new(step: usize) -> Window {
        Window { step: step.max(4096), ..Window::default() }
    }

    /// Goes to the beginning of another file.
    pub(crate) fn open(&mut self, file: RecordingBytes) -> io::Result<()> {
        self.len = file.size()?;
        self.file = Some(file);
        self.bytes.clear();
        self.at = 0;
        Ok(())
    }

    /// Gives file and memory back.
    pub(crate) fn close(&mut self) {
        let step = self.step;
        *self = Window { step, ..Window::default() };
    }

    /// Bytes of the file.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// End offset of the bytes in memory.
    pub(crate) fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    /// The bytes in memory from an offset on and the distance of the first of them from
    /// it: 0, unless the offset lies before what is in memory.
    #[inline]
    pub(crate) fn from(&self, offset: u64) -> (&[u8], u64) {
        match offset.checked_sub(self.at) {
            Some(skip) => (self.bytes.get(skip as usize..).unwrap_or(&[]), 0),
            None => (&self.bytes, self.at - offset),
        }
    }

    /// Loads `count` bytes from an offset on into memory, or up to the end of the file, and
    /// releases those before. More may be read than requested.
    pub(crate) fn want(&mut self, offset: u64, count: usize) -> io::Result<()> {
        let to = offset.saturating_add(count as u64).min(self.len);
        if offset >= self.at && to <= self.end() {
            return Ok(());
        }
        let keep = match offset.checked_sub(self.at) {
            Some(skip) if offset <= self.end() => skip as usize,
            _ => self.bytes.len(),
        };
        self.bytes.drain(..keep.min(self.bytes.len()));
        self.at = offset;
        let have = self.bytes.len();
        let rest = self.len.saturating_sub(self.end());
        let more = rest.min(count.max(self.step).saturating_sub(have) as u64) as usize;
        self.bytes.resize(have + more, 0);
        let place = self.bytes.get_mut(have..).unwrap_or(&mut []);
        let read = match &self.file {
            Some(file) => file.read_at(place, self.at + have as u64)?,
            None => 0,
        };
        let filled = have + read;
        // It may have become shorter.
        if filled < self.bytes.len() {
            self.bytes.truncate(filled);
            self.len = self.end();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn it_slides_and_ends_with_the_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..20_000u32).map(|n| (n % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        let mut w = Window::new(0);
        w.open(RecordingBytes::open(file.path()).unwrap()).unwrap();
        assert_eq!((w.len(), w.end()), (20_000, 0));
        w.want(0, 10).unwrap();
        assert_eq!((w.from(5).0, w.end()), (&bytes[5..4096], 4096));
        w.want(4000, 200).unwrap();
        assert_eq!((w.from(4000).0, w.from(3990).1), (&bytes[4000..8096], 10));
        w.want(19_990, 100).unwrap();
        assert_eq!((w.from(19_990).0, w.end()), (&bytes[19_990..], 20_000));
        file.as_file().set_len(10_000).unwrap();
        w.want(9_000, 5000).unwrap();
        assert_eq!((w.from(9_000).0, w.len()), (&bytes[9_000..10_000], 10_000));
    }
}
