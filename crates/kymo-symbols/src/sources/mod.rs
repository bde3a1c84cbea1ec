//! Functions, inlined copies and lines of the addresses of a recording: out of
//! DWARF, wherever [`Finder`] finds it, and out of the cache on disk, where what
//! an earlier run found stands by build-id. Binaries are worked on in parallel, and
//! each distinct address once.

mod kernel;
mod stored;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kymo_debuginfo::dwarf::inlines::{Answers, Inlines, SourceFrame, TextId};
use kymo_debuginfo::dwarf::{Pages, Sections};
use kymo_debuginfo::{LazyElf, demangle};
use kymo_kernel::mapped::MappedFile;
use kymo_model::BuildId;
use rayon::prelude::*;

use crate::cache::{CacheError, SymbolCache};
use crate::compressed_modules;
use crate::debug_files::DebugCompanions;
use crate::dso::{DsoId, DsoKind};
use crate::files::{Binary, Finder, open};
use crate::problem::Problem;
use crate::resolver::Resolver;

/// Source positions of the addresses of several binaries.
#[derive(Debug, Default)]
pub struct Sources {
    answers: Answers,
    /// Number of the first address of each binary, in the order asked.
    first: Vec<usize>,
    readable: Vec<OnceLock<Box<str>>>,
    no_demangle: bool,
}

impl Sources {
    /// The frames of an address, innermost first: all but the last one are inlined.
    /// None where there is no debugging information. Both places are those of
    /// what was asked.
    pub fn frames(&self, binary: usize, address: usize) -> &[SourceFrame] {
        self.first.get(binary).map_or(&[], |first| self.answers.frames(first + address))
    }

    /// Readable name of a function; empty if unknown.
    pub fn function(&self, id: TextId) -> &str {
        let raw = self.answers.text(id);
        match self.readable.get(id.0 as usize) {
            Some(readable) if !self.no_demangle => readable.get_or_init(|| demangle(raw).into()),
            _ => raw,
        }
    }

    /// A text as the debugging information has it.
    pub fn stored(&self, id: TextId) -> &str {
        self.answers.text(id)
    }

    /// Path of a source file; empty if unknown.
    pub fn file(&self, id: TextId) -> &str {
        self.answers.text(id)
    }
}

impl Resolver {
    /// The source of many addresses, as for [`Resolver::symbols_of`].
    pub fn sources_of(&self, wanted: &[(DsoId, Vec<u64>)]) -> Sources {
        let cache = SymbolCache::of_user();
        let found: Vec<Answers> = wanted
            .par_iter()
            .with_max_len(1)
            .map(|(id, addresses)| {
                let Some(dso) = self.get(*id) else { return Answers::default() };
                match dso.kind {
                    DsoKind::File => {
                        of_file(self.files(), &dso.binary(), addresses, cache.as_ref())
                    }
                    DsoKind::Kernel | DsoKind::Module => {
                        kernel::of_kernel(self, *id, addresses, cache.as_ref())
                    }
                    _ => Answers::default(),
                }
            })
            .collect();
        let mut sources = Sources { no_demangle: self.options().no_demangle, ..Sources::default() };
        for ((_, addresses), found) in wanted.iter().zip(&found) {
            sources.first.push(sources.answers.len());
            append(&mut sources.answers, found, 0..addresses.len());
        }
        sources.readable.resize_with(sources.answers.texts().len(), OnceLock::new);
        sources
    }
}

impl Resolver {
    /// Source positions of offsets in a binary for a bundle, in the format of the cache.
    pub(crate) fn lines_of(&self, id: DsoId, offsets: &[u64]) -> Option<Vec<u8>> {
        let dso = self.get(id).filter(|d| d.kind == DsoKind::File)?;
        let binary = dso.binary();
        let pages = open(&self.files().binary(&binary)?)?;
        let elf = LazyElf::parse(&pages).ok()?;
        let mut addresses: Vec<u64> = offsets.iter().filter_map(|o| elf.vaddr(*o)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let id = elf.build_id.or(binary.build_id);
        let cache = SymbolCache::of_user();
        let files = self.files();
        let found = match bundled(files, &binary) {
            Some(bundled) => answer(&bundled, &addresses),
            None => From { files, name: binary.path, id, dwarf: &|| files.dwarf(&binary) }
                .of_addresses(&addresses, cache.as_ref()),
        };
        let any = (0..found.len()).any(|n| !found.frames(n).is_empty());
        any.then(|| stored::merge(None, &addresses, &found))
    }
}

impl Resolver {
    /// The source files that the code of functions is of, as they were called when it was
    /// compiled. `functions`: first address and first address behind, as the file has them.
    pub(crate) fn source_files(&self, id: DsoId, functions: &[(u64, u64)]) -> Vec<String> {
        /// Number of addresses beyond which only every second one is used, and so on.
        const MOST: u64 = 1 << 20;
        let Some(dso) = self.get(id).filter(|d| d.kind == DsoKind::File) else { return Vec::new() };
        let Some(path) = self.files().dwarf(&dso.binary()) else { return Vec::new() };
        let size = |all: u64, f: &(u64, u64)| all.saturating_add(f.1.saturating_sub(f.0));
        let step = (functions.iter().fold(0, size) / MOST + 1) as usize;
        let places = functions.iter().flat_map(|(start, end)| (*start..*end).step_by(step));
        let mut addresses: Vec<u64> = places.collect();
        addresses.sort_unstable();
        addresses.dedup();
        // Its error was reported when its lines were read.
        let Ok(found) = read(self.files(), &path, dso.binary().path, &addresses) else {
            return Vec::new();
        };
        let frames = (0..found.len()).flat_map(|n| found.frames(n));
        let mut ids: Vec<TextId> = frames.map(|f| f.file).collect();
        ids.sort_by_key(|id| id.0);
        ids.dedup();
        let mut names: Vec<String> = ids.iter().map(|id| found.text(*id).to_owned()).collect();
        names.retain(|name| !name.is_empty());
        names.sort();
        names
    }
}

/// Appends answers of `from` in these places; a place out of range is an empty answer.
fn append(to: &mut Answers, from: &Answers, places: impl Iterator<Item = usize>) {
    let texts: Vec<TextId> = from.texts().map(|t| to.intern(t)).collect();
    let id = |t: TextId| texts.get(t.0 as usize).copied().unwrap_or_default();
    for place in places {
        let frames = from.frames(place).iter();
        to.push(frames.map(|f| SourceFrame { function: id(f.function), file: id(f.file), ..*f }));
    }
}

/// The source of places of a file, given as ascending offsets.
fn of_file(
    files: &Finder,
    binary: &Binary<'_>,
    offsets: &[u64],
    cache: Option<&SymbolCache>,
) -> Answers {
    let elf = files.binary(binary).and_then(|path| open(&path));
    let elf = elf.as_ref().and_then(|pages| LazyElf::parse(pages).ok());
    let Some(elf) = elf else { return Answers::default() };
    if let Some(bundled) = bundled(files, binary) {
        return in_order(offsets, |o| elf.vaddr(o), |addresses| answer(&bundled, addresses));
    }
    let from = From {
        files,
        name: binary.path,
        id: elf.build_id.or(binary.build_id),
        dwarf: &|| files.dwarf(binary),
    };
    in_order(offsets, |o| elf.vaddr(o), |addresses| from.of_addresses(addresses, cache))
}

/// Answers for places that become addresses in another order: segments may lie in
/// another one than the file.
fn in_order(
    places: &[u64],
    address: impl Fn(u64) -> Option<u64>,
    find: impl FnOnce(&[u64]) -> Answers,
) -> Answers {
    let mut addresses: Vec<(u64, usize)> =
        places.iter().enumerate().filter_map(|(i, p)| address(*p).map(|a| (a, i))).collect();
    addresses.sort_unstable();
    let (addresses, order): (Vec<u64>, Vec<usize>) = addresses.into_iter().unzip();
    let found = find(&addresses);
    let mut at = vec![usize::MAX; places.len()];
    for (found_at, number) in order.into_iter().enumerate() {
        if let Some(slot) = at.get_mut(number) {
            *slot = found_at;
        }
    }
    let mut answers = Answers::default();
    append(&mut answers, &found, at.into_iter());
    answers
}

/// Lines of a binary in the bundle: `None` if it does not contain the binary.
fn bundled(files: &Finder, binary: &Binary<'_>) -> Option<Vec<u8>> {
    Some(files.bundled(binary, "lines")?.unwrap_or_default())
}

fn answer(stored: &[u8], addresses: &[u64]) -> Answers {
    let mut answers = Answers::default();
    if let Some(known) = stored::Stored::of(stored) {
        known.answer(addresses, &mut answers);
    }
    answers
}

/// Source of a binary's source positions.
struct From<'a> {
    files: &'a Finder,
    /// Name of the binary.
    name: &'a Path,
    /// Its build-id.
    id: Option<BuildId>,
    /// The file with DWARF.
    dwarf: &'a dyn Fn() -> Option<PathBuf>,
}

impl From<'_> {
    /// The source of stated virtual addresses, which ascend: out of the cache what is
    /// in there, the rest out of DWARF.
    fn of_addresses(&self, addresses: &[u64], cache: Option<&SymbolCache>) -> Answers {
        let place = cache.zip(self.id);
        let tell = |error: CacheError| {
            self.files.note(Problem::Cache { why: error.to_string() });
        };
        let payload = place.and_then(|(cache, id)| {
            cache.load(stored::KIND, id).unwrap_or_else(|e| {
                tell(e);
                None
            })
        });
        let known = payload.as_deref().and_then(|bytes| {
            let known = stored::Stored::of(bytes);
            if known.is_none() {
                let path = self.name.display();
                let why = format!("the cache entry of {path} is inconsistent; it is rebuilt");
                self.files.note(Problem::Cache { why });
            }
            known
        });
        let missing: Vec<u64> = match &known {
            Some(known) => addresses.iter().copied().filter(|a| known.find(*a).is_none()).collect(),
            None => addresses.to_vec(),
        };
        let fresh = (!missing.is_empty()).then(|| self.of_dwarf(&missing)).flatten();
        let Some(fresh) = fresh else {
            // All is known, or nothing more can be.
            return answer(
                payload.as_deref().filter(|_| known.is_some()).unwrap_or_default(),
                addresses,
            );
        };
        let whole = stored::merge(known.as_ref(), &missing, &fresh);
        if let Some((cache, id)) = place.filter(|_| fresh.damage.is_empty()) {
            let label = self.name.display().to_string();
            cache.store(stored::KIND, id, &label, &whole).unwrap_or_else(tell);
        }
        answer(&whole, addresses)
    }

    /// Asks the debugging information; `None` if there is none.
    fn of_dwarf(&self, addresses: &[u64]) -> Option<Answers> {
        let path = (self.dwarf)()?;
        let damaged = |why: String| {
            self.files.note(Problem::DebugInfo { path: path.display().to_string(), why });
        };
        match read(self.files, &path, self.name, addresses) {
            Ok(answers) => {
                answers.damage.iter().cloned().for_each(damaged);
                Some(answers)
            }
            Err(why) => {
                damaged(why);
                None
            }
        }
    }
}

/// A mapped file whose unneeded parts are released.
struct Mapped(MappedFile);

impl Pages for Mapped {
    fn forget(&self, part: &[u8]) {
        self.0.forget(part);
    }
}

fn read(files: &Finder, path: &Path, binary: &Path, addresses: &[u64]) -> Result<Answers, String> {
    let map = Mapped(compressed_modules::map(path).map_err(|e| e.to_string())?);
    let companions = DebugCompanions::new(binary, Some(path)).asking(files);
    let bytes = map.0.bytes();
    let sections = Sections::load(bytes, None).and_then(|s| s.with_companions(bytes, &companions));
    let mut sections = sections.map_err(|e| e.to_string())?;
    sections.pages = Some(&map);
    let mut answers = Inlines::new(&sections).resolve(addresses);
    if let Some(absent) = sections.absent_text() {
        answers.note(absent);
    }
    if map.0.was_cut() {
        answers.note("it was cut short while it was read".into());
    }
    Ok(answers)
}
