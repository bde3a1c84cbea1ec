//! Checked reading of the parts that describe: straight from the file through
//! a small window, or from a section that was unpacked.

use kymo_model::Endian;

use super::Damage;
use crate::RecordingBytes;
use crate::text::text;

/// Bytes per read of the file.
const WINDOW: usize = 64 << 10;
/// The largest single text; the kallsyms of a large kernel is some 20 MiB.
pub(super) const MAX_TEXT: u64 = 256 << 20;
/// The longest name.
const MAX_NAME: usize = 4096;

type Result<T> = std::result::Result<T, Damage>;

/// Bytes and a position among them.
pub(super) struct SectionReader<'f> {
    file: Option<&'f RecordingBytes>,
    buf: Vec<u8>,
    /// Offset in the file of `buf[0]`; of an unpacked section, where that begins.
    base: u64,
    pos: usize,
    /// Offset of the end, in the measure of `base`.
    end: u64,
    endian: Endian,
}

impl<'f> SectionReader<'f> {
    /// The bytes of `file` from `at` up to `end`.
    pub(super) fn file(
        file: &'f RecordingBytes,
        at: u64,
        end: u64,
        endian: Endian,
    ) -> SectionReader<'f> {
        SectionReader { file: Some(file), buf: Vec::new(), base: at, pos: 0, end, endian }
    }

    /// Bytes that were at `base` in the file.
    pub(super) fn memory(bytes: Vec<u8>, base: u64, endian: Endian) -> SectionReader<'f> {
        let end = base + bytes.len() as u64;
        SectionReader { file: None, buf: bytes, base, pos: 0, end, endian }
    }

    pub(super) fn set_endian(&mut self, endian: Endian) {
        self.endian = endian;
    }

    /// Offset of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.pos as u64
    }

    pub(super) fn left(&self) -> u64 {
        self.end.saturating_sub(self.offset())
    }

    pub(super) fn damage(&self, what: impl Into<String>) -> Damage {
        Damage { offset: self.offset(), what: what.into() }
    }

    /// Makes `n` bytes stand in the buffer at `pos`.
    fn want(&mut self, n: usize) -> Result<()> {
        if n as u64 > self.left() {
            return Err(self.damage(format!("{n} bytes are needed, {} are left", self.left())));
        }
        if self.buf.len() - self.pos >= n {
            return Ok(());
        }
        let Some(file) = self.file else { return Err(self.damage("unpacked section ends")) };
        let at = self.offset();
        self.buf.drain(..self.pos);
        (self.base, self.pos) = (at, 0);
        let aim = (n.max(WINDOW) as u64).min(self.left()) as usize;
        while self.buf.len() < n {
            let have = self.buf.len();
            // Grown step by step: a size that lies costs no more than what is there.
            self.buf.resize(aim.min(have + (4 << 20)), 0);
            let got = file
                .read_at(&mut self.buf[have..], at + have as u64)
                .map_err(|e| self.damage(format!("read: {e}")))?;
            self.buf.truncate(have + got);
            if got == 0 {
                return Err(self.damage(format!("{n} bytes are needed, {have} are there")));
            }
        }
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.want(N)?;
        let bytes = self.buf.get(self.pos..).and_then(|b| b.first_chunk::<N>()).copied();
        self.pos += N;
        bytes.ok_or_else(|| self.damage("short read"))
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        Ok(self.endian.u16(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(self.endian.u32(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(self.endian.u64(self.array()?))
    }

    /// `n` bytes.
    pub(super) fn take(&mut self, n: u64, what: &str) -> Result<&[u8]> {
        if n > MAX_TEXT {
            return Err(self.damage(format!("{what} of {n} bytes, at most {MAX_TEXT} are read")));
        }
        if n > self.left() {
            return Err(self.damage(format!("{what} of {n} bytes, {} are left", self.left())));
        }
        self.want(n as usize)?;
        let at = self.pos;
        self.pos += n as usize;
        Ok(self.buf.get(at..self.pos).unwrap_or(&[]))
    }

    /// `n` bytes of text; NULs at its end do not count.
    pub(super) fn text(&mut self, n: u64, what: &str) -> Result<String> {
        self.take(n, what).map(text)
    }

    /// Text after its 64-bit size.
    pub(super) fn sized(&mut self, what: &str) -> Result<String> {
        let n = self.u64()?;
        self.text(n, what)
    }

    /// Text up to a NUL.
    pub(super) fn cstr(&mut self, what: &str) -> Result<String> {
        let have = self.left().min(MAX_NAME as u64) as usize;
        self.want(have)?;
        let bytes = self.buf.get(self.pos..self.pos + have).unwrap_or(&[]);
        let Some(end) = bytes.iter().position(|b| *b == 0) else {
            return Err(self.damage(format!("{what} has no end within {have} bytes")));
        };
        let name = text(bytes.get(..end).unwrap_or(&[]));
        self.pos += end + 1;
        Ok(name)
    }

    /// A fixed word of the format.
    pub(super) fn expect(&mut self, word: &str) -> Result<()> {
        let n = word.len() + 1;
        self.want(n)?;
        let bytes = self.buf.get(self.pos..self.pos + n).unwrap_or(&[]);
        if bytes.strip_suffix(b"\0") != Some(word.as_bytes()) {
            let found = bytes.escape_ascii().to_string();
            return Err(self.damage(format!("{word:?} should be here, not \"{found}\"")));
        }
        self.pos += n;
        Ok(())
    }
}
