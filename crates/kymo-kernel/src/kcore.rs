//! The code of the running kernel, out of `/proc/kcore`: as it is, with all that
//! the kernel patched into itself.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::system_root::system_path;
use kymo_model::{Cursor, Endian};

/// More program headers are no core of a kernel.
const MOST_HEADERS: u16 = 4096;

/// The file that the memory of the running kernel is read from.
pub const PATH: &str = "/proc/kcore";

/// The bytes of the kernel's memory between two addresses.
///
/// # Errors
/// If the file cannot be read, is damaged, or does not have that memory.
pub fn read(start: u64, end: u64) -> io::Result<Vec<u8>> {
    read_from(&system_path(PATH), start, end)
}

fn read_from(path: &Path, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let damaged = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_string());
    let file = File::open(path)?;
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0)?;
    if !head.starts_with(b"\x7fELF\x02") {
        return Err(damaged("not a 64-bit ELF file"));
    }
    let number = |bytes: &[u8], at: usize, size: usize| -> io::Result<u64> {
        let rest = bytes.get(at..).unwrap_or_default();
        let mut cursor = Cursor::new(rest, Endian::NATIVE);
        let value = match size {
            2 => cursor.u16().map(u64::from),
            4 => cursor.u32().map(u64::from),
            _ => cursor.u64(),
        };
        value.map_err(|e| damaged(&e.to_string()))
    };
    let (table, size, count) =
        (number(&head, 32, 8)?, number(&head, 54, 2)?, number(&head, 56, 2)?);
    let mut header = [0; 56];
    if size < header.len() as u64 {
        return Err(damaged("program headers are too short"));
    }
    for n in 0..count.min(u64::from(MOST_HEADERS)) {
        let at = table.saturating_add(n * size);
        file.read_exact_at(&mut header, at)?;
        const LOAD: u64 = 1;
        let (kind, offset) = (number(&header, 0, 4)?, number(&header, 8, 8)?);
        let (vaddr, length) = (number(&header, 16, 8)?, number(&header, 32, 8)?);
        if kind == LOAD && start >= vaddr && end <= vaddr.saturating_add(length) && start < end {
            let size = usize::try_from(end - start).map_err(|_| damaged("too long"))?;
            let mut bytes = vec![0; size];
            file.read_exact_at(&mut bytes, offset.saturating_add(start - vaddr))?;
            return Ok(bytes);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("{start:#x} is not in it")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file of two segments: headers, then `text` for address 0x1000, then
    /// `data` for address 0x8000.
    fn core(text: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..5].copy_from_slice(b"\x7fELF\x02");
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(32, &64u64.to_ne_bytes());
        put(54, &56u16.to_ne_bytes());
        put(56, &2u16.to_ne_bytes());
        let mut offset = 64 + 2 * 56;
        for (address, contents) in [(0x1000, text), (0x8000, data)] {
            bytes.extend(1u32.to_ne_bytes());
            bytes.extend([0; 4]);
            let size = contents.len() as u64;
            let words = [offset, address, 0, size, size, 0];
            bytes.extend(words.map(u64::to_ne_bytes).concat());
            offset += size;
        }
        [&bytes, text, data].concat()
    }

    #[test]
    fn memory_is_found_by_its_address() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kcore");
        std::fs::write(&path, core(b"some text", b"and data")).unwrap();
        assert_eq!(read_from(&path, 0x1005, 0x1009).unwrap(), b"text");
        assert_eq!(read_from(&path, 0x8000, 0x8008).unwrap(), b"and data");
        for (start, end) in [(0x1005, 0x100a), (0x7fff, 0x8001), (0x1005, 0x1005), (5, u64::MAX)] {
            let error = read_from(&path, start, end).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{start:#x}");
        }
        std::fs::write(&path, "no core").unwrap();
        assert!(read_from(&path, 0x1000, 0x1001).is_err());
    }
}
