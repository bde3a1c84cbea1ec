//! Signal trampolines. The kernel has a handler return to the first instruction of a trampoline,
//! which no code called: the address in a chain by frame pointers is that of the trampoline, and
//! the code before it has nothing to do with it. Trampolines are recognized by their code, as
//! debuggers do: names of them are stripped from most C libraries.

use std::os::unix::fs::FileExt as _;

use kymo_debuginfo::{LazyElf, ReadRef};
use kymo_kernel::{regular_file, vdso};

use crate::bundle::{CODE, PIECE};
use crate::dso::{DsoId, DsoKind};
use crate::files::open;
use crate::resolver::Resolver;
use kymo_unwind::BEFORE;

/// The system call `rt_sigreturn` or `sigreturn` with its number.
const CODES: [&[u8]; 6] = [
    // x86-64: mov $15, %rax (glibc, musl) or %eax (Go, bionic); syscall
    b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05",
    b"\xb8\x0f\0\0\0\x0f\x05",
    // i386: mov $173, %eax; int $0x80, and pop %eax; mov $119, %eax; int $0x80
    b"\xb8\xad\0\0\0\xcd\x80",
    b"\x58\xb8\x77\0\0\0\xcd\x80",
    // x86-64 with the number of x32
    b"\x48\xc7\xc0\x01\x02\0\x40\x0f\x05",
    // arm64: mov x8, #139; svc #0
    b"\x68\x11\x80\xd2\x01\0\0\xd4",
];
/// Bytes of the longest of them.
const LONGEST: usize = 9;

fn is_trampoline(code: &[u8]) -> bool {
    CODES.iter().any(|c| code.starts_with(c))
}

impl Resolver {
    /// Which of these places of a binary (as for [`Resolver::symbols_of`]) are where
    /// a signal handler returns to.
    pub fn trampolines(&self, id: DsoId, places: &[u64]) -> Vec<bool> {
        let none = || vec![false; places.len()];
        let Some(dso) = self.get(id) else { return none() };
        if dso.kind == DsoKind::Vdso {
            let Some(own) = vdso::own() else { return none() };
            let at = |p: &u64| usize::try_from(*p).ok().and_then(|p| own.get(p..));
            return places.iter().map(|p| at(p).is_some_and(is_trampoline)).collect();
        }
        if dso.kind != DsoKind::File {
            return none();
        }
        let Some(path) = self.files().binary(&dso.binary()) else { return none() };
        if let Some(pieces) = open(&path).and_then(|pages| pieces(&pages)) {
            return places.iter().map(|p| is_trampoline(piece(&pieces, *p))).collect();
        }
        let Ok(file) = regular_file::open(&path) else { return none() };
        let mut code = [0; LONGEST];
        let mut at = |p: u64| file.read_exact_at(&mut code, p).is_ok() && is_trampoline(&code);
        places.iter().map(|p| at(*p)).collect()
    }
}

/// The pieces of code in a bundle's binary.
fn pieces<'d, R: ReadRef<'d>>(binary: R) -> Option<Vec<u8>> {
    use object::read::{Object as _, ObjectSection as _};
    LazyElf::parse(binary).ok().filter(|elf| elf.has(CODE))?;
    let file = object::File::parse(binary).ok()?;
    Some(file.section_by_name(CODE)?.data().ok()?.to_vec())
}

/// The code at a place, as far as the pieces have it.
fn piece(pieces: &[u8], place: u64) -> &[u8] {
    let pieces: &[[u8; 8 + PIECE]] = pieces.as_chunks().0;
    let offset = |p: &[u8; 8 + PIECE]| p.first_chunk().map_or(0, |o| u64::from_le_bytes(*o));
    let found = pieces.binary_search_by_key(&place, offset).ok();
    found.and_then(|n| pieces.get(n)?.get(8 + BEFORE..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ResolverOptions;

    /// The C library in this test's own program has exactly one.
    #[test]
    fn the_trampoline_of_the_c_library_is_found() {
        let mut resolver = Resolver::new(ResolverOptions::default());
        let exe = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&exe).unwrap();
        let code = CODES[0];
        let id = resolver.dso(exe.to_str().unwrap(), None, 1);
        let all = 0..(bytes.len() - LONGEST) as u64;
        let like: Vec<u64> = all.filter(|p| bytes[*p as usize..].starts_with(code)).collect();
        // Some of them are constants of this file.
        let mut named =
            |p: &u64| resolver.symbol(id, *p).map(|(s, o)| (resolver.name(s).to_string(), o));
        let places: Vec<(u64, String)> =
            like.iter().filter_map(|p| Some((*p, named(p).filter(|n| n.1 == 0)?.0))).collect();
        let [(place, name)] = &places[..] else { panic!("{places:?}") };
        assert_eq!(name, "__restore_rt");
        let around = [place - 1, *place, place + 1, 0, u64::MAX];
        assert_eq!(resolver.trampolines(id, &around), [false, true, false, false, false]);
    }
}
