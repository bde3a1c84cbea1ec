//! The symbols of a binary out of the files that [`Finder`] finds: a few of them
//! without reading all of a file, or all of them.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use kymo_debuginfo::{Coverings, Elf, LazyElf};

use crate::files::{Binary, Finder, open};
use crate::resolver::Problem;

/// Larger files are not read into memory.
const LIMIT: u64 = 4 << 30;

/// Reads a regular file; anything else (a device, a FIFO) is not touched.
fn read(path: &Path) -> Option<Vec<u8>> {
    let meta = std::fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > LIMIT {
        return None;
    }
    let mut bytes = Vec::with_capacity(meta.len() as usize);
    File::open(path).ok()?.take(LIMIT).read_to_end(&mut bytes).ok()?;
    Some(bytes)
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
    let mut found = match elf.has_symtab() {
        true => elf.covering(&addresses),
        false => match files.symbols(binary) {
            Some(separate) => LazyElf::parse(&open(&separate)?).ok()?.covering(&addresses),
            None if elf.has_mini() => return None,
            None => elf.covering(&addresses),
        },
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

/// All of a binary's symbols, from wherever the best ones are.
pub(crate) fn table(files: &Finder, binary: &Binary<'_>) -> Option<Elf> {
    let place = files.binary(binary);
    let bytes = place.as_deref().and_then(read);
    let Some((place, bytes)) = place.zip(bytes) else {
        // Without the binary its debug file alone may still tell.
        return Elf::parse(&read(&files.symbols(binary)?)?).ok();
    };
    let mut elf = Elf::parse(&bytes).ok()?;
    if elf.has_symtab {
        return Some(elf);
    }
    if let Some(debug) = files.symbols(binary).and_then(|p| Elf::parse(&read(&p)?).ok()) {
        let own = std::mem::replace(&mut elf.symbols, debug.symbols);
        elf.symbols.merge(&own);
        elf.has_symtab = true;
        return Some(elf);
    }
    match Elf::mini(&bytes) {
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
