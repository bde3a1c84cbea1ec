//! Where the symbols of a binary may be: the binary itself, perf's cache of
//! build-ids, and separate debug files by build-id and by debug link.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use kymo_debuginfo::{Coverings, DebugLink, Elf, ElfError, LazyElf};
use kymo_model::BuildId;

use crate::pages::Pages;

/// What came of looking for a binary.
#[derive(Debug)]
pub(crate) enum Found {
    Elf(Box<Elf>),
    Missing,
    /// The file there now has another build-id than the one recorded.
    Changed {
        path: PathBuf,
    },
    /// It is there, but not readable as ELF.
    Unusable {
        path: PathBuf,
        why: String,
    },
}

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

fn under(symfs: Option<&Path>, path: &Path) -> PathBuf {
    match symfs {
        Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
        None => path.to_path_buf(),
    }
}

fn matches(elf: &Elf, wanted: Option<BuildId>) -> bool {
    same(elf.build_id, wanted)
}

fn same(stated: Option<BuildId>, wanted: Option<BuildId>) -> bool {
    match (wanted, stated) {
        // The kernel records at most 20 bytes, zero-padded where shorter.
        (Some(w), Some(have)) => {
            let (w, have) = (w.as_bytes(), have.as_bytes());
            w == have || w.strip_prefix(have).is_some_and(|rest| rest.iter().all(|b| *b == 0))
        }
        (Some(w), None) => w.as_bytes().iter().all(|b| *b == 0),
        (None, _) => true,
    }
}

/// The symbols at places of a binary, given as ascending file offsets.
pub(crate) enum Names {
    Found(Coverings),
    /// The file is not what it should be: [`binary`] knows where else to look,
    /// and what to say.
    Unclear,
}

/// Looks up a few places without reading all of the file.
pub(crate) fn names(
    path: &Path,
    wanted: Option<BuildId>,
    symfs: Option<&Path>,
    offsets: &[u64],
) -> Names {
    let place = under(symfs, path);
    let Some(cache) = open(&place) else { return Names::Unclear };
    let Ok(elf) = LazyElf::parse(&cache) else { return Names::Unclear };
    if !same(elf.build_id, wanted) {
        return Names::Unclear;
    }
    // Segments may lie in another order than the file.
    let mut addresses: Vec<(u64, usize)> =
        offsets.iter().enumerate().filter_map(|(i, o)| elf.vaddr(*o).map(|a| (a, i))).collect();
    addresses.sort_unstable();
    let (addresses, order): (Vec<u64>, Vec<usize>) = addresses.into_iter().unzip();
    let separate = match elf.has_symtab() {
        true => None,
        false => debug_places(&place, elf.build_id, elf.debuglink.as_ref(), symfs)
            .into_iter()
            .find_map(|p| covering_in(&p, elf.build_id, &addresses)),
    };
    let mut found = separate.unwrap_or_else(|| elf.covering(&addresses));
    elf.add_plt(&addresses, &mut found);
    let mut places = vec![None; offsets.len()];
    for (at, place) in order.into_iter().zip(found.places) {
        if let Some(slot) = places.get_mut(at) {
            *slot = place;
        }
    }
    Names::Found(Coverings { places, ..found })
}

fn open(path: &Path) -> Option<Pages> {
    let meta = std::fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > LIMIT {
        return None;
    }
    Some(Pages::new(File::open(path).ok()?, meta.len()))
}

fn covering_in(path: &Path, id: Option<BuildId>, addresses: &[u64]) -> Option<Coverings> {
    let cache = open(path)?;
    let elf = LazyElf::parse(&cache).ok()?;
    (same(elf.build_id, id) && elf.has_symtab()).then(|| elf.covering(addresses))
}

/// Finds the binary at `path` and gives it the best symbols there are.
pub(crate) fn binary(path: &Path, wanted: Option<BuildId>, symfs: Option<&Path>) -> Found {
    let place = under(symfs, path);
    let on_disk = read(&place).map(|bytes| Elf::parse(&bytes));
    let mut result = match on_disk {
        Some(Ok(elf)) if matches(&elf, wanted) => Found::Elf(Box::new(elf)),
        Some(Ok(_)) => Found::Changed { path: place.clone() },
        Some(Err(ElfError { error, .. })) => {
            Found::Unusable { path: place.clone(), why: error.to_string() }
        }
        None => Found::Missing,
    };
    if !matches!(result, Found::Elf(_))
        && let Some(id) = wanted
        && let Some(elf) = cached(id)
    {
        result = Found::Elf(Box::new(elf));
    }
    match &mut result {
        Found::Elf(elf) if !elf.has_symtab => {
            if let Some(debug) = debug_file(&place, elf, symfs) {
                elf.symbols = debug.symbols;
                elf.has_symtab = true;
            }
        }
        Found::Elf(_) => {}
        // Without the binary its debug file alone still has the symbols.
        _ => {
            if let Some(debug) = wanted.and_then(|id| by_build_id(id, symfs)) {
                result = Found::Elf(Box::new(debug));
            }
        }
    }
    result
}

fn split(id: BuildId) -> Option<(String, String)> {
    let hex = id.to_string();
    (hex.len() > 2).then(|| (hex[..2].to_string(), hex[2..].to_string()))
}

fn parse_matching(path: &Path, id: Option<BuildId>) -> Option<Elf> {
    Elf::parse(&read(path)?).ok().filter(|e| e.has_symtab && matches(e, id))
}

/// perf keeps copies of recorded binaries under `~/.debug`.
fn cached(id: BuildId) -> Option<Elf> {
    let (head, tail) = split(id)?;
    let home = PathBuf::from(std::env::var_os("HOME")?);
    let path = home.join(".debug/.build-id").join(head).join(tail).join("elf");
    Elf::parse(&read(&path)?).ok().filter(|e| matches(e, Some(id)))
}

fn build_id_place(id: BuildId, symfs: Option<&Path>) -> Option<PathBuf> {
    let (head, tail) = split(id)?;
    let path = Path::new("/usr/lib/debug/.build-id").join(head).join(format!("{tail}.debug"));
    Some(under(symfs, &path))
}

fn by_build_id(id: BuildId, symfs: Option<&Path>) -> Option<Elf> {
    parse_matching(&build_id_place(id, symfs)?, Some(id))
}

fn debug_file(binary: &Path, elf: &Elf, symfs: Option<&Path>) -> Option<Elf> {
    debug_places(binary, elf.build_id, elf.debuglink.as_ref(), symfs)
        .iter()
        .find_map(|p| parse_matching(p, elf.build_id))
}

/// Where a separate debug file may be. A build-id that differs refuses a file
/// of the right name.
fn debug_places(
    binary: &Path,
    id: Option<BuildId>,
    link: Option<&DebugLink>,
    symfs: Option<&Path>,
) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = Vec::new();
    places.extend(id.and_then(|id| build_id_place(id, symfs)));
    let name = link
        .and_then(|link| std::str::from_utf8(&link.name).ok())
        .filter(|name| !name.contains('/'));
    if let (Some(name), Some(folder)) = (name, binary.parent()) {
        let global = under(symfs, Path::new("/usr/lib/debug"));
        places.push(folder.join(name));
        places.push(folder.join(".debug").join(name));
        places.push(global.join(folder.strip_prefix("/").unwrap_or(folder)).join(name));
    }
    places.retain(|p| p != binary);
    places
}
