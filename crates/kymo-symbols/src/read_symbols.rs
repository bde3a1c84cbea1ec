//! The symbols of a binary out of the files that [`Finder`] finds: a few of them
//! without reading all of a file, or all of them.

use std::path::Path;

use kymo_debuginfo::{Coverings, Elf, LazyElf};
use kymo_kernel::mapped::MappedFile;

use crate::files::{Binary, Finder, open};
use crate::problem::Problem;

/// Larger files are not looked through.
const LIMIT: u64 = 4 << 30;

/// Maps a regular file; anything else (a device, a FIFO) is not opened.
fn map(path: &Path) -> Option<MappedFile> {
    MappedFile::open(path).ok().filter(|map| map.bytes().len() as u64 <= LIMIT)
}

/// Looks up a few places of a binary, given as ascending file offsets, without
/// reading all of it. `None` where [`table`] knows more.
pub(crate) fn names(files: &Finder, binary: &Binary<'_>, offsets: &[u64]) -> Option<Coverings> {
    let pages = open(&files.binary(binary)?)?;
    let elf = LazyElf::parse(&pages).ok()?;
    // Segments may lie in another order than the file.
    let mut addresses: Vec<(u64, usize)> =
        offsets.iter().enumerate().filter_map(|(i, o)| elf.vaddr(*o).map(|a| (a, i))).collect();
    addresses.sort_unstable();
    let (addresses, order): (Vec<u64>, Vec<usize>) = addresses.into_iter().unzip();
    let mut found = if elf.has_symtab() {
        elf.covering(&addresses)
    } else {
        match files.symbols(binary) {
            Some(separate) => LazyElf::parse(&open(&separate)?).ok()?.covering(&addresses),
            None if elf.has_mini() || elf.has_go_functions() => return None,
            None => elf.covering(&addresses),
        }
    };
    elf.add_dynamic(&addresses, &mut found);
    elf.add_plt(&addresses, &mut found);
    let mut places = vec![None; offsets.len()];
    for (at, place) in order.into_iter().zip(found.places) {
        if let Some(slot) = places.get_mut(at) {
            *slot = place;
        }
    }
    Some(Coverings { places, ..found })
}

/// Bytes of a binary's symbols in the file that [`table`] reads.
pub(crate) fn symbol_bytes(files: &Finder, binary: &Binary<'_>) -> u64 {
    let of = |path: &Path| LazyElf::parse(&open(path)?).ok().map(|elf| elf.symbol_bytes());
    let own = files.binary(binary).and_then(|path| of(&path)).unwrap_or(0);
    let separate = || files.symbols(binary).and_then(|path| of(&path)).unwrap_or(0);
    if own > 0 { own } else { separate() }
}

/// All of a binary's symbols, from wherever the best ones are.
pub(crate) fn table(files: &Finder, binary: &Binary<'_>) -> Option<Elf> {
    let place = files.binary(binary);
    let map = place.as_deref().and_then(map);
    let Some((place, map)) = place.zip(map) else {
        // Without the binary its debug file alone may still tell.
        return Elf::parse(self::map(&files.symbols(binary)?)?.bytes()).ok();
    };
    let mut elf = Elf::parse(map.bytes()).ok()?;
    if elf.has_symtab {
        return Some(elf);
    }
    let separate = files.symbols(binary).and_then(|p| self::map(&p));
    if let Some(debug) = separate.and_then(|map| Elf::parse(map.bytes()).ok()) {
        let own = std::mem::replace(&mut elf.symbols, debug.symbols);
        elf.symbols.merge(&own);
        elf.has_symtab = true;
        return Some(elf);
    }
    match Elf::mini(map.bytes()) {
        Ok(Some(mut mini)) => {
            // What the dynamic table names is left out of the packed one.
            mini.merge(&std::mem::take(&mut elf.symbols));
            elf.symbols = mini;
        }
        Ok(None) => {}
        Err(e) => {
            let path = place.display().to_string();
            files.note(Problem::Unusable { path, why: e.to_string() });
        }
    }
    Some(elf)
}
