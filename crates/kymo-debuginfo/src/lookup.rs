//! Names for a handful of addresses of a large ELF file, without reading all
//! of it: one pass over the symbol table, which is neither sorted nor copied;
//! names are read of those symbols only that cover an address. The answers are
//! those of [`SymbolTable`](crate::SymbolTable), which is for many questions.

use kymo_model::BuildId;
use object::read::{Object, ObjectSection, ObjectSymbol, ReadRef};

use crate::elf::{self, DebugLink, ElfError, Load};
use crate::symtab::{Looks, SymbolRank};
use crate::{go, plt};

/// A symbol that covers an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covering {
    /// Its first address.
    pub start: u64,
    /// Name as stored.
    pub name: Vec<u8>,
}

/// The symbols that cover some addresses, each once.
#[derive(Clone, Debug, Default)]
pub struct Coverings {
    /// The symbols.
    pub symbols: Vec<Covering>,
    /// Index of each address's symbol.
    pub places: Vec<Option<u32>>,
}

impl Coverings {
    /// The symbol of the address in this place.
    pub fn get(&self, place: usize) -> Option<&Covering> {
        self.symbols.get((*self.places.get(place)?)? as usize)
    }
}

/// An ELF file of which only what is asked for is read.
#[derive(Debug)]
pub struct LazyElf<'d, R: ReadRef<'d>> {
    file: object::File<'d, R>,
    /// Content of the build-id note.
    pub build_id: Option<BuildId>,
    /// Content of `.gnu_debuglink`.
    pub debuglink: Option<DebugLink>,
    loads: Vec<Load>,
    homes: Vec<elf::Home>,
}

/// Result of the first pass for each address, as starts of symbols; no symbol starts at the highest
/// address.
#[derive(Clone, Copy)]
struct Nearest {
    /// The last symbol that starts at or before the address.
    before: u64,
    /// The last one of those that states a size that reaches the address.
    covering: u64,
}

const NONE: u64 = u64::MAX;

impl<'d, R: ReadRef<'d>> LazyElf<'d, R> {
    /// Reads headers and notes.
    pub fn parse(data: R) -> Result<Self, ElfError> {
        let size = data.len().unwrap_or(0) as usize;
        let file = object::File::parse(data).map_err(|error| ElfError { size, error })?;
        let link = file.gnu_debuglink().ok().flatten();
        Ok(LazyElf {
            build_id: file.build_id().ok().flatten().map(BuildId::new),
            debuglink: link.map(|(name, crc)| DebugLink { name: name.to_vec(), crc }),
            loads: elf::loads(&file),
            homes: elf::homes(&file),
            file,
        })
    }

    /// Whether there is a `.symtab` with symbols.
    pub fn has_symtab(&self) -> bool {
        self.file.symbols().any(|s| elf::function(&s, &self.homes).is_some())
    }

    /// Bytes of the symbols and their names.
    pub fn symbol_bytes(&self) -> u64 {
        let size = |name| self.file.section_by_name(name).map_or(0, |s| s.size());
        [".symtab", ".strtab"].map(size).into_iter().fold(0, u64::saturating_add)
    }

    /// Whether there is DWARF inside.
    pub fn has_dwarf(&self) -> bool {
        let held = |name| self.file.section_by_name(name).and_then(|s| s.file_range());
        held(".debug_info").or(held(".zdebug_info")).is_some_and(|(_, size)| size > 0)
    }

    /// Whether there is code inside: debug files only say where it would be.
    pub fn has_code(&self) -> bool {
        let mut code = self.file.sections().filter(|s| s.kind() == object::SectionKind::Text);
        code.any(|s| s.file_range().is_some_and(|r| r.1 > 0))
    }

    /// Whether names of functions are packed inside ([`Elf::mini`](crate::Elf::mini)).
    pub fn has_mini(&self) -> bool {
        self.has(".gnu_debugdata")
    }

    /// Whether there is the table of functions that Go's runtime needs.
    pub fn has_go_functions(&self) -> bool {
        go::has_functions(&self.file)
    }

    /// Whether there is a section of this name.
    pub fn has(&self, section: &str) -> bool {
        self.file.section_by_name(section).is_some()
    }

    /// The stated virtual address of a place in the file.
    pub fn vaddr(&self, file_offset: u64) -> Option<u64> {
        elf::vaddr(&self.loads, file_offset)
    }

    /// The symbols at `addresses`, which are stated virtual addresses in
    /// ascending order, from `.symtab`, or from `.dynsym` where that is all.
    pub fn covering(&self, addresses: &[u64]) -> Coverings {
        debug_assert!(addresses.is_sorted());
        let found = scan(|| self.file.symbols(), &self.homes, addresses);
        match found {
            Some(found) => found,
            None => {
                scan(|| self.file.dynamic_symbols(), &self.homes, addresses).unwrap_or_else(|| {
                    Coverings { symbols: Vec::new(), places: vec![None; addresses.len()] }
                })
            }
        }
    }

    /// Fills the holes of `found` with dynamic symbols: who strips may leave some of
    /// `.symtab`, without what `.dynsym` names all the same.
    pub fn add_dynamic(&self, addresses: &[u64], found: &mut Coverings) {
        let hole = |(at, place): (usize, &Option<u32>)| place.is_none().then_some(at);
        let holes: Vec<usize> = found.places.iter().enumerate().filter_map(hole).collect();
        let asked: Vec<u64> = holes.iter().filter_map(|at| addresses.get(*at).copied()).collect();
        if asked.is_empty() {
            return;
        }
        let Some(more) = scan(|| self.file.dynamic_symbols(), &self.homes, &asked) else { return };
        let behind = found.symbols.len() as u32;
        found.symbols.extend(more.symbols);
        for (at, place) in holes.into_iter().zip(more.places) {
            if let Some(slot) = found.places.get_mut(at) {
                *slot = place.map(|number| number + behind);
            }
        }
    }

    /// Fills the holes of `found` with entries of the procedure linkage table.
    pub fn add_plt(&self, addresses: &[u64], found: &mut Coverings) {
        let ranges: Vec<(u64, u64)> = [".plt", ".plt.sec"]
            .iter()
            .filter_map(|name| self.file.section_by_name(name))
            .map(|s| (s.address(), s.size()))
            .collect();
        let in_plt = |a: u64| ranges.iter().any(|(start, size)| a.wrapping_sub(*start) < *size);
        if !addresses.iter().zip(&found.places).any(|(a, f)| f.is_none() && in_plt(*a)) {
            return;
        }
        let table = plt::symbols(&self.file);
        let Coverings { symbols, places } = found;
        for (address, hole) in addresses.iter().zip(places).filter(|(_, f)| f.is_none()) {
            let Some((start, _, name)) = table.lookup(*address) else { continue };
            // Addresses ascend: the same entry is the last one.
            if symbols.last().is_none_or(|s| s.start != start) {
                symbols.push(Covering { start, name: name.to_vec() });
            }
            *hole = Some(symbols.len() as u32 - 1);
        }
    }
}

/// `None` when there are no symbols at all.
fn scan<'d, 'f, S, I>(
    symbols: impl Fn() -> I,
    homes: &[elf::Home],
    addresses: &[u64],
) -> Option<Coverings>
where
    S: ObjectSymbol<'d>,
    I: Iterator<Item = S> + 'f,
{
    let pass = |names| {
        let nearest = nearest(symbols(), homes, addresses, names)?;
        let mut starts: Vec<u64> = nearest.iter().flat_map(|n| [n.before, n.covering]).collect();
        starts.sort_unstable();
        starts.dedup();
        let chosen = choose(symbols(), homes, &starts, names);
        Some((nearest, starts, chosen))
    };
    let (nearest, starts, chosen) = match pass(NameReads::Few)? {
        (nearest, starts, Some(chosen)) => (nearest, starts, chosen),
        _ => {
            let (nearest, starts, chosen) = pass(NameReads::All)?;
            (nearest, starts, chosen?)
        }
    };
    // Neighbours have the same answer.
    let mut last = (NONE, 0);
    let mut at = |start: u64| {
        if start == NONE {
            return None;
        }
        if last.0 != start {
            last = (start, starts.binary_search(&start).ok()?);
        }
        Some((last.1 as u32, chosen.get(last.1)?.as_ref()?))
    };
    let answer = |(address, near): (&u64, &Nearest)| {
        let (place, before) = at(near.before)?;
        // One without a size reaches to the next one, or to the end of its section;
        // the last one to the end of its page and one more.
        let reaches = match before.size {
            0 => {
                let last = (before.start | 0xfff).saturating_add(4096);
                (before.next || *address <= last) && *address < before.limit
            }
            size => *address - before.start < size || *address == before.start,
        };
        if reaches { Some(place) } else { Some(at(near.covering)?.0) }
    };
    let mut places: Vec<Option<u32>> = addresses.iter().zip(&nearest).map(answer).collect();
    // Only those are symbols that are an answer.
    let mut number: Vec<Option<u32>> = vec![None; chosen.len()];
    let mut chosen = chosen;
    let mut symbols = Vec::new();
    for place in places.iter_mut().flatten() {
        let at = *place as usize;
        if let (Some(slot), Some(c)) = (number.get_mut(at), chosen.get_mut(at))
            && slot.is_none()
            && let Some(Chosen { start, name, .. }) = c.take()
        {
            *slot = Some(symbols.len() as u32);
            symbols.push(Covering { start, name });
        }
        *place = number.get(at).copied().flatten().unwrap_or(u32::MAX);
    }
    Some(Coverings { symbols, places })
}

/// Whether the names of symbols are read that may be no answer, to leave out those without one.
/// Names are most of a file's symbols, and hardly one is missing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameReads {
    Few,
    All,
}

impl NameReads {
    fn count<'d>(self, symbol: &impl ObjectSymbol<'d>, homes: &[elf::Home]) -> bool {
        match self {
            NameReads::Few => elf::stands_for_code(symbol, homes),
            NameReads::All => elf::function(symbol, homes).is_some(),
        }
    }
}

fn nearest<'d, S: ObjectSymbol<'d>>(
    symbols: impl Iterator<Item = S>,
    homes: &[elf::Home],
    addresses: &[u64],
    names: NameReads,
) -> Option<Vec<Nearest>> {
    let index = Index::new(addresses);
    let mut found = vec![Nearest { before: NONE, covering: NONE }; addresses.len()];
    let mut any = false;
    // Real symbols hardly overlap. A file in which all of them reach over all
    // addresses must not take all day.
    let mut budget = addresses.len().saturating_mul(64).saturating_add(1 << 20);
    for symbol in symbols {
        if !any {
            any = elf::function(&symbol, homes).is_some();
        }
        let (start, size) = (symbol.address(), symbol.size());
        let from = index.first_from(addresses, start);
        let Some(first) = found.get(from) else { continue };
        let later = |old: u64| old == NONE || old < start;
        let end = start.saturating_add(size);
        let covers = addresses.get(from).is_some_and(|a| *a < end || *a == start);
        if !(later(first.before) || covers) || !names.count(&symbol, homes) {
            continue;
        }
        if let Some(first) = found.get_mut(from).filter(|f| later(f.before)) {
            first.before = start;
        }
        for (address, near) in addresses.iter().zip(&mut found).skip(from) {
            if (*address >= end && *address != start) || budget == 0 {
                break;
            }
            budget -= 1;
            if later(near.covering) {
                near.covering = start;
            }
        }
    }
    // The last start before an address may have been noted at an earlier one.
    let mut last = NONE;
    for near in &mut found {
        if near.before == NONE || (last != NONE && last > near.before) {
            near.before = last;
        }
        last = near.before;
    }
    any.then_some(found)
}

struct Chosen {
    start: u64,
    size: u64,
    /// End of its section.
    limit: u64,
    name: Vec<u8>,
    /// There are symbols behind it.
    next: bool,
}

/// Names that perf prefers, for each of `starts`; none where names that were not read have to be.
fn choose<'d, S: ObjectSymbol<'d>>(
    symbols: impl Iterator<Item = S>,
    homes: &[elf::Home],
    starts: &[u64],
    names: NameReads,
) -> Option<Vec<Option<Chosen>>> {
    let index = Index::new(starts);
    let mut best: Vec<Option<Best<S>>> = Vec::new();
    best.resize_with(starts.len(), || None);
    let mut highest = 0;
    let mut last = None;
    for symbol in symbols {
        let start = symbol.address();
        let at = index.first_from(starts, start);
        let Some(slot) = best.get_mut(at).filter(|_| starts.get(at) == Some(&start)) else {
            if start > highest && names.count(&symbol, homes) {
                highest = start;
                last = Some(symbol);
            }
            continue;
        };
        let Some(raw) = elf::function(&symbol, homes) else {
            if names.count(&symbol, homes) {
                return None;
            }
            continue;
        };
        if start >= highest {
            (highest, last) = (start, None);
        }
        let (facts, size, limit) = (SymbolRank::of(&raw), raw.size, raw.limit);
        let mut looks = None;
        if let Some(old) = slot {
            if facts == old.facts {
                let name = old.symbol.name_bytes().unwrap_or_default();
                let held = *old.looks.get_or_insert_with(|| Looks::of(name));
                looks = Some(Looks::of(raw.name)).filter(|looks| *looks > held);
            }
            if facts < old.facts || (facts == old.facts && looks.is_none()) {
                continue;
            }
        }
        *slot = Some(Best { symbol, facts, looks, size, limit });
    }
    let finish = |Best { symbol, size, limit, .. }: Best<S>| Chosen {
        start: symbol.address(),
        size,
        limit,
        name: symbol.name_bytes().unwrap_or_default().to_vec(),
        next: symbol.address() < highest,
    };
    if last.is_some_and(|symbol| elf::function(&symbol, homes).is_none()) {
        return None;
    }
    Some(best.into_iter().map(|slot| slot.map(finish)).collect())
}

/// The best symbol so far.
struct Best<S> {
    symbol: S,
    facts: SymbolRank,
    /// Once they matter.
    looks: Option<Looks>,
    size: u64,
    limit: u64,
}

/// Finds places in a sorted list: most questions are for addresses that are
/// far from all of the list, and a table of pages answers them.
struct Index {
    first: u64,
    /// For each page from `first` on, the place of the first entry in or
    /// behind it.
    pages: Vec<u32>,
}

const PAGE: u32 = 10;
/// A list that spreads over more pages than this is searched.
const MAX_PAGES: u64 = 1 << 20;

impl Index {
    fn new(sorted: &[u64]) -> Index {
        let listed = match sorted {
            [first, .., last] if *last == NONE => (*first, sorted.get(sorted.len() - 2)),
            [first, ..] => (*first, sorted.last()),
            [] => (0, None),
        };
        let (first, last) = (listed.0, listed.1.copied().unwrap_or(listed.0));
        let count = ((last - first.min(last)) >> PAGE) + 2;
        let mut pages = Vec::new();
        if count <= MAX_PAGES {
            let mut at = 0;
            for page in 0..count {
                let begin = first.saturating_add(page << PAGE);
                while sorted.get(at).is_some_and(|a| *a < begin) {
                    at += 1;
                }
                pages.push(at as u32);
            }
        }
        Index { first, pages }
    }

    /// Place of the first entry that is `at` or behind.
    fn first_from(&self, sorted: &[u64], at: u64) -> usize {
        let Some(distance) = at.checked_sub(self.first) else { return 0 };
        let page = (distance >> PAGE) as usize;
        let (from, to) = match (self.pages.get(page), self.pages.get(page + 1)) {
            (Some(from), Some(to)) => (*from as usize, *to as usize),
            (Some(from), None) => (*from as usize, sorted.len()),
            _ => (self.pages.last().map_or(0, |p| *p as usize), sorted.len()),
        };
        from + sorted.get(from..to).unwrap_or_default().partition_point(|a| *a < at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Elf;

    /// Both ways of asking give the same names, everywhere in real files.
    #[test]
    fn the_pass_agrees_with_the_table() {
        let own = std::env::current_exe().unwrap().display().to_string();
        let libc = "/lib/x86_64-linux-gnu/libc.so.6".to_string();
        let mut files = 0;
        for path in [own, "/bin/bash".to_string(), libc] {
            let Ok(bytes) = std::fs::read(&path) else { continue };
            files += 1;
            let mut whole = Elf::parse(&bytes).unwrap();
            whole.symbols.merge(&whole.plt.clone());
            let lazy = LazyElf::parse(bytes.as_slice()).unwrap();
            assert_eq!((lazy.build_id, lazy.has_symtab()), (whole.build_id, whole.has_symtab));
            let code = whole.loads.iter().find(|l| l.executable).unwrap();
            for step in [4096 * 5 + 13, 61] {
                let offsets = (code.offset..code.offset + code.size).step_by(step);
                let addresses: Vec<u64> = offsets.filter_map(|o| lazy.vaddr(o)).collect();
                let mut found = lazy.covering(&addresses);
                lazy.add_dynamic(&addresses, &mut found);
                lazy.add_plt(&addresses, &mut found);
                let mut named = 0;
                for (i, address) in addresses.iter().enumerate() {
                    let table = whole.symbols.lookup(*address);
                    let expected = table.map(|(start, _, n)| (start, n.to_vec()));
                    let found = found.get(i).map(|f| (f.start, f.name.clone()));
                    assert_eq!(found, expected, "{path} {address:#x}");
                    named += usize::from(found.is_some());
                }
                assert!(named > addresses.len() / 10, "{path}: {named}");
            }
        }
        assert!(files > 1);
    }

    #[test]
    fn damaged_files_do_not_panic() {
        let bytes = std::fs::read("/bin/true").unwrap();
        let mut state = 7u32;
        for cut in (0..bytes.len()).step_by(197) {
            let mut broken = bytes[..cut].to_vec();
            for _ in 0..cut.min(10) {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = (state >> 8) as usize % broken.len().min(4096);
                broken[at] = state as u8;
            }
            if let Ok(elf) = LazyElf::parse(broken.as_slice()) {
                let addresses = [0, 0x1000, 0x3000, u64::MAX];
                let mut found = elf.covering(&addresses);
                elf.add_dynamic(&addresses, &mut found);
                elf.add_plt(&addresses, &mut found);
            }
        }
    }
}
