//! The code of the running kernel, out of `/proc/kcore`: as it is, with all that
//! the kernel patched into itself.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use kymo_model::{Cursor, Endian};

/// More program headers are no core of a kernel.
const MOST_HEADERS: u16 = 4096;

/// The bytes of memory between two addresses.
pub(crate) fn read(path: &Path, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let damaged = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_string());
    let file = File::open(path)?;
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0)?;
    if !head.starts_with(b"\x7fELF\x02") {
        return Err(damaged("no ELF file of 64 bits"));
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
    use kymo_debuginfo::Elf;

    #[test]
    fn memory_is_found_by_its_address() {
        // A program file has the same headers.
        let path = Path::new("/proc/self/exe");
        let bytes = std::fs::read(path).unwrap();
        let load = *Elf::parse(&bytes).unwrap().loads.iter().find(|l| l.executable).unwrap();
        let from = load.offset as usize + 100;
        let found = read(path, load.vaddr + 100, load.vaddr + 132).unwrap();
        assert_eq!(found, bytes[from..from + 32]);
        let error = read(path, load.vaddr, load.vaddr + (1 << 40)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(read(Path::new("/proc/self/maps"), 0, 1).is_err());
    }
}
