//! The vdso: a file that exists only in memory. This process's own copy serves for a
//! recording of the same kernel.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The bytes of this process's vdso.
pub fn own() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|l| l.ends_with("[vdso]"))?;
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_an_elf_file() {
        assert!(super::own().is_some_and(|bytes| bytes.starts_with(b"\x7fELF")));
    }
}
