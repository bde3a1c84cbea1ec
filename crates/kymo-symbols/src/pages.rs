//! A file of which only the touched parts are in memory: large pieces are read
//! when the first byte of one is asked for. Nothing is mapped, so a file that
//! shrinks meanwhile is an error and not a signal.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use kymo_debuginfo::ReadRef;

/// Bytes from the start of one piece to that of the next.
const PIECE: u64 = 32 << 10;
/// Bytes that a piece holds of the next one: hardly a name is longer, so hardly
/// one lies in two pieces.
const OVERLAP: u64 = 4096;
/// Ranges larger than a piece; a file that needs more of them lies.
const MAX_WIDE: usize = 256;
/// Bytes of the longest name.
const LONGEST_NAME: u64 = 256 << 10;

/// The file.
#[derive(Debug)]
pub(crate) struct Pages {
    file: File,
    len: u64,
    pieces: Vec<OnceLock<Option<Box<[u8]>>>>,
    wide: OnceLock<Box<Wide>>,
}

/// A range that no piece holds whole.
#[derive(Debug)]
struct Wide {
    start: u64,
    bytes: Box<[u8]>,
    next: OnceLock<Box<Wide>>,
}

impl Pages {
    /// Pages of a file of at most `len` bytes.
    pub(crate) fn new(file: File, len: u64) -> Pages {
        let mut pieces = Vec::new();
        pieces.resize_with(len.div_ceil(PIECE) as usize, OnceLock::new);
        Pages { file, len, pieces, wide: OnceLock::new() }
    }

    /// The file, without what was read of it.
    pub(crate) fn into_file(self) -> File {
        self.file
    }

    fn load(&self, start: u64, size: u64) -> Option<Box<[u8]>> {
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        self.file.read_exact_at(&mut bytes, start).ok()?;
        Some(bytes.into_boxed_slice())
    }

    /// The piece that an offset lies in, and where in the file it begins.
    fn piece(&self, offset: u64) -> Option<(u64, &[u8])> {
        let start = offset / PIECE * PIECE;
        let slot = self.pieces.get((offset / PIECE) as usize)?;
        let size = (PIECE + OVERLAP).min(self.len - start);
        let bytes = slot.get_or_init(|| self.load(start, size)).as_ref()?;
        Some((start, bytes))
    }

    fn wide(&self, offset: u64, size: u64) -> Option<&[u8]> {
        let end = offset.checked_add(size).filter(|end| *end <= self.len)?;
        let (mut slot, mut count, mut sum) = (&self.wide, 0, 0);
        while let Some(wide) = slot.get() {
            let held = wide.bytes.len() as u64;
            if wide.start <= offset && end <= wide.start + held {
                return slice(wide.start, &wide.bytes, offset, size);
            }
            (slot, count, sum) = (&wide.next, count + 1, sum + held);
        }
        // No honest file needs more than its own size.
        if count >= MAX_WIDE || sum.saturating_add(size) > self.len.saturating_mul(2) {
            return None;
        }
        let bytes = self.load(offset, size)?;
        let wide =
            slot.get_or_init(|| Box::new(Wide { start: offset, bytes, next: OnceLock::new() }));
        slice(wide.start, &wide.bytes, offset, size)
    }
}

fn slice(start: u64, bytes: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let from = usize::try_from(offset.checked_sub(start)?).ok()?;
    bytes.get(from..from.checked_add(usize::try_from(size).ok()?)?)
}

impl<'a> ReadRef<'a> for &'a Pages {
    fn len(self) -> Result<u64, ()> {
        Ok(self.len)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size == 0 {
            return Ok(&[]);
        }
        let near = self.piece(offset).and_then(|(start, bytes)| slice(start, bytes, offset, size));
        near.or_else(|| self.wide(offset, size)).ok_or(())
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let size = range.end.checked_sub(range.start).ok_or(())?;
        let (start, bytes) = self.piece(range.start).ok_or(())?;
        let held = (bytes.len() as u64).saturating_sub(range.start - start);
        let near = slice(start, bytes, range.start, held.min(size)).ok_or(())?;
        if let Ok(found) = near.read_bytes_at_until(0..near.len() as u64, delimiter) {
            return Ok(found);
        }
        if held >= size {
            return Err(());
        }
        // A name of more than `OVERLAP` bytes: so much is enough for any.
        let wide = self.read_bytes_at(range.start, size.min(LONGEST_NAME))?;
        wide.read_bytes_at_until(0..wide.len() as u64, delimiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_is_what_the_file_holds() {
        let path = std::env::temp_dir().join(format!("kymo-pages-{}", std::process::id()));
        let size = 3 * PIECE as usize + 100;
        let mut bytes: Vec<u8> = (0..size).map(|i| 1 + (i * 7 % 251) as u8).collect();
        // One name across the end of the first piece and its overlap, one that never ends.
        bytes[PIECE as usize + 5000] = 0;
        std::fs::write(&path, &bytes).unwrap();
        let pages = Pages::new(File::open(&path).unwrap(), size as u64);
        std::fs::remove_file(&path).unwrap();
        let at = |from: usize, len: usize| (&pages).read_bytes_at(from as u64, len as u64);
        for (from, len) in [
            (0, 10),
            (PIECE as usize - 5, 10),
            (PIECE as usize - 5, 5000),
            (7, 2 * PIECE as usize),
            (9, 2 * PIECE as usize - 9),
            (size - 1, 1),
            (size, 0),
        ] {
            assert_eq!(at(from, len), Ok(&bytes[from..from + len]), "{from} {len}");
        }
        assert_eq!(at(size - 1, 2), Err(()));
        assert_eq!(at(usize::MAX, 2), Err(()));
        let name = |from: u64| (&pages).read_bytes_at_until(from..size as u64, 0);
        let end = PIECE as usize + 5000;
        assert_eq!(name(PIECE - 10), Ok(&bytes[PIECE as usize - 10..end]));
        assert_eq!(name(PIECE + 10), Ok(&bytes[PIECE as usize + 10..end]));
        assert_eq!(name(2 * PIECE), Err(()));
        // A file that lies about its tables does not make us read it many times.
        let more = (0..1000).filter(|i| at(20 + i, 2 * PIECE as usize).is_ok()).count();
        assert!(more < 3, "{more}");
    }
}
