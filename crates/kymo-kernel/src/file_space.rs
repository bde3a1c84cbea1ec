//! The space of files: holes in them, ranges that are taken out of them, their limits.

use std::fs::File;
use std::io;

use rustix::fs::{FallocateFlags, fallocate};

/// Flag of open(2) for a file that is written and read past the page cache (`O_DIRECT`).
pub const UNCACHED: i32 = libc::O_DIRECT;

/// Takes a range out of a file; what follows moves down.
///
/// # Errors
/// If the file system cannot do it.
pub fn collapse_range(file: &File, at: u64, len: u64) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::COLLAPSE_RANGE, at, len)?)
}

/// Makes a hole of a range; the file keeps its size.
///
/// # Errors
/// If the file system cannot do it.
pub fn punch_hole(file: &File, at: u64, len: u64) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len)?)
}

/// Whether the file system would fill the space before what is written with zeros.
///
/// # Errors
/// If it cannot be asked.
pub fn is_without_holes(file: &File) -> io::Result<bool> {
    const MSDOS: u64 = 0x4d44;
    const EXFAT: u64 = 0x2011_bab0;
    let kind = rustix::fs::fstatfs(file)?.f_type;
    Ok([MSDOS, EXFAT].contains(&(kind as u64)))
}

/// `ulimit -f`, past which a write would end this process.
pub fn file_size_limit() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    limit.current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use super::*;

    #[test]
    fn a_hole_reads_as_zeros() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 16384], 0).unwrap();
        assert!(!is_without_holes(&file).unwrap() && file_size_limit() >= 16384);
        let before = file.metadata().unwrap().blocks();
        if punch_hole(&file, 4096, 8192).is_ok() {
            let mut byte = [1];
            file.read_exact_at(&mut byte, 5000).unwrap();
            assert_eq!((byte, file.metadata().unwrap().len()), ([0], 16384));
            assert!(file.metadata().unwrap().blocks() <= before);
        }
        if collapse_range(&file, 0, 4096).is_ok() {
            assert_eq!(file.metadata().unwrap().len(), 12288);
        }
    }
}
