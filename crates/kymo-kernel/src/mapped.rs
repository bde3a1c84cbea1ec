//! Files mapped for reading: debugging information is hundreds of megabytes, of
//! which a question touches a few. Only regular files are mapped.

mod guard;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use guard::Guard;

/// A file's bytes, as they are when they are touched.
#[derive(Debug)]
pub struct MappedFile {
    // Before the map: what is not mapped any more must not be guarded.
    guard: Guard,
    map: memmap2::Mmap,
}

impl MappedFile {
    /// Maps a regular file; nothing else is opened ([`regular_file`](crate::regular_file)).
    pub fn open(path: &Path) -> io::Result<MappedFile> {
        MappedFile::of(&crate::regular_file::open(path)?)
    }

    /// Maps a regular file that is open.
    pub fn of(file: &File) -> io::Result<MappedFile> {
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        // SAFETY: the mapping is read-only, so nothing this process
        // does changes it. Another process could write to the file or cut it
        // short: binaries and debug files are replaced by new files (as linkers
        // and package managers do), not rewritten in place, and recorders add to
        // recordings and write no record twice; of one that is cut short
        // meanwhile the guard makes zeros.
        let map = unsafe { memmap2::Mmap::map(file)? };
        let guard = Guard::new(map.as_ptr() as usize, map.len().next_multiple_of(4096));
        Ok(MappedFile { guard, map })
    }

    /// Whether the file was cut short while it was read: what was gone reads as zeros.
    pub fn was_cut(&self) -> bool {
        self.guard.was_cut()
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Has the kernel read a part that is needed soon, as far as it is not in memory; does not wait
    /// for it.
    pub fn expect(&self, part: Range<usize>) {
        let end = part.end.min(self.map.len());
        if part.start < end {
            // Advice that is not taken costs time and nothing else.
            let _ = self.map.advise_range(memmap2::Advice::WillNeed, part.start, end - part.start);
        }
    }

    /// Gives back the memory of a part that was read through and is not needed soon: an access has
    /// it read again.
    pub fn forget(&self, part: &[u8]) {
        const PAGE: usize = 4096;
        let Some(start) = (part.as_ptr() as usize).checked_sub(self.map.as_ptr() as usize) else {
            return;
        };
        let from = start.next_multiple_of(PAGE);
        let to = start.saturating_add(part.len()).min(self.map.len()) / PAGE * PAGE;
        if from >= to {
            return;
        }
        // SAFETY: the pages are of a read-only mapping of a file, inside of it,
        // and nothing was written to them: dropping them loses nothing, and
        // references to them stay valid, as the kernel reads the file again.
        let advised = unsafe {
            self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, from, to - from)
        };
        // Advice that is not taken costs memory and nothing else.
        let _ = advised;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_reads_as_zeros() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![7u8; 50_000]).unwrap();
        let (whole, map) =
            (MappedFile::open(file.path()).unwrap(), MappedFile::open(file.path()).unwrap());
        assert_eq!(map.bytes()[49_999], 7);
        file.as_file().set_len(10_000).unwrap();
        assert!(!map.was_cut());
        assert_eq!((map.bytes()[9_999], map.bytes()[40_000]), (7, 0));
        assert_eq!(map.bytes().iter().map(|b| u64::from(*b)).sum::<u64>(), 70_000);
        assert!(map.was_cut() && !whole.was_cut());
    }

    #[test]
    fn forgotten_pages_are_read_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
        std::fs::write(file.path(), &bytes).unwrap();
        let map = MappedFile::open(file.path()).unwrap();
        assert_eq!(map.bytes(), bytes);
        map.forget(&map.bytes()[10..90_000]);
        map.forget(b"not of the file");
        assert_eq!(map.bytes(), bytes);
        assert!(MappedFile::open(Path::new("/dev/null")).is_err());
    }
}
