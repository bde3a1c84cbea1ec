//! Which units can hold an entry of a given name, without parsing them: a name is stored once in
//! `.debug_str`, and every entry called so has its offset in four bytes. Looking for those bytes is
//! as fast as memory is; a false hit costs the parsing of one unit.

use gimli::Section as _;
use memchr::memmem;

use super::forms::Value;
use super::names::{last_name, without_generics};
use super::scan::Scanner;
use super::unit::Dwarf;
use super::{Reader, Result};
use kymo_model::glob::{glob_match, is_glob};

/// More places of a name than these are not looked for one by one.
const PLACES: usize = 12;

impl<'s> Dwarf<'s> {
    /// Units that can have a function that `pattern` means. `entry` gives the
    /// address of a function: the unit there says where its name is stored.
    pub fn units_for(
        &self,
        pattern: &str,
        entry: &dyn Fn(&str) -> Option<u64>,
    ) -> Result<Vec<usize>> {
        if let Some(index) = &self.index {
            return self.with_link_time_units(pattern, index.functions(pattern));
        }
        let name = last_name(pattern);
        if is_glob(pattern) {
            let units = self.units_matching(None, &|stored| glob_match(&name, stored));
            return self.with_link_time_units(pattern, units);
        }
        // Names by index (`strx`) stand nowhere to be searched for: all are read.
        if !self.can_search() {
            let units = self.units_matching(Some(pattern), &|stored| name == stored);
            return self.with_link_time_units(pattern, units);
        }
        let units = self.units_of_name(&name, entry)?;
        self.with_link_time_units(pattern, units)
    }

    /// Units with a function whose own name, with generic arguments or not, is wanted,
    /// or that the linker calls `linkage`.
    fn units_matching(
        &self,
        linkage: Option<&str>,
        wanted: &(dyn Fn(&str) -> bool + Sync),
    ) -> Vec<usize> {
        let units = self.scanned();
        let holds = |index: usize, scanner: &mut Scanner| -> Result<bool> {
            let mut known = std::mem::take(&mut scanner.known);
            let mut hit = false;
            let unit = units.unit(index)?;
            // Split units have strings of their own.
            let common = units.is_main(&unit);
            let matches = |name: &[u8]| {
                std::str::from_utf8(name).is_ok_and(|name| {
                    wanted(name) || (name.contains('<') && wanted(&without_generics(name)))
                })
            };
            let scanned = scanner.scan(&unit, &mut |entry, texts| {
                if hit || (entry.is_c && entry.declaration) {
                    return;
                }
                let test = || texts.text(entry.name).is_some_and(matches);
                hit = match entry.name {
                    Value::Str(at) if common => *known.entry(at).or_insert_with(test),
                    _ => test(),
                };
                hit |= linkage.is_some_and(|l| texts.text(entry.linkage) == Some(l.as_bytes()));
            });
            scanner.known = known;
            scanned.map(|_| hit)
        };
        // What cannot be read may hold anything.
        let hits = units.each(|index, scanner| holds(index, scanner).unwrap_or(true));
        hits.iter().enumerate().filter(|(_, hit)| **hit).map(|(index, _)| index).collect()
    }

    /// Adds units to those of the named functions: where the linker optimized across units, code is
    /// in other units than the names.
    fn with_link_time_units(&self, pattern: &str, units: Vec<usize>) -> Result<Vec<usize>> {
        let mut needles = Vec::new();
        for index in &units {
            let unit = self.unit(*index)?;
            if !unit.lto && !unit.partial {
                continue;
            }
            let functions = self.functions(&unit)?;
            for f in functions.all.iter().filter(|f| f.matches(pattern)) {
                needles.extend(self.referring(unit.start + f.offset.0));
            }
        }
        if needles.is_empty() {
            return Ok(units);
        }
        let mut all = self.units_with(&needles);
        all.extend(units);
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    fn units_of_name(&self, name: &str, entry: &dyn Fn(&str) -> Option<u64>) -> Result<Vec<usize>> {
        if let Some(offset) = self.stored_at(name, entry)? {
            let mut needles = vec![self.needle(offset)];
            needles.extend(inline_needles(name));
            return Ok(self.units_with(&needles));
        }
        Ok(self.units_naming(name))
    }

    /// Offset in `.debug_str` of a function's name, by the unit of its code. The linker keeps one
    /// copy of each string. Only for C, whose functions have one name.
    fn stored_at(&self, name: &str, entry: &dyn Fn(&str) -> Option<u64>) -> Result<Option<u32>> {
        let whole = self.dwarf.sup().is_none() && self.skeletons.is_empty();
        let Some(addr) = entry(name).filter(|_| self.can_search() && whole) else {
            return Ok(None);
        };
        let Some(index) = self.unit_by_aranges(addr) else { return Ok(None) };
        let unit = self.unit(index)?;
        if !unit.is_c {
            return Ok(None);
        }
        let functions = self.functions(&unit)?;
        let Some(f) = functions.all.iter().find(|f| f.name == name.as_bytes()) else {
            return Ok(None);
        };
        let strings = self.dwarf.debug_str.reader().slice();
        // Names are slices of the section, or of the entry itself.
        let at = (f.name.as_ptr() as usize).checked_sub(strings.as_ptr() as usize);
        Ok(at.filter(|at| *at < strings.len()).and_then(|at| u32::try_from(at).ok()))
    }

    /// Whether names are stored in a way that can be searched for.
    fn can_search(&self) -> bool {
        self.parts().all(|(part, _)| part.debug_str_offsets.reader().is_empty())
    }

    /// The binary's own information and the one shared with other binaries, each
    /// with where it begins.
    fn parts(&self) -> impl Iterator<Item = (&gimli::Dwarf<Reader<'s>>, usize)> {
        let own: &gimli::Dwarf<_> = &self.dwarf;
        std::iter::once((own, 0)).chain(self.dwarf.sup().map(|sup| (sup, self.shared_base())))
    }

    /// Bytes of a reference to the entry at an offset counted through all files.
    fn referring(&self, offset: usize) -> Option<Vec<u8>> {
        let base = self.dwarf.sup().map_or(0, |_| self.shared_base());
        let own = if base > 0 && offset >= base { offset - base } else { offset };
        u32::try_from(own).ok().map(|own| self.needle(own))
    }

    fn needle(&self, offset: u32) -> Vec<u8> {
        match self.sections.endian {
            gimli::RunTimeEndian::Little => offset.to_le_bytes().to_vec(),
            gimli::RunTimeEndian::Big => offset.to_be_bytes().to_vec(),
        }
    }

    /// Units that can have a function or variable called `name`, with generic arguments or not,
    /// ascending. All units where that is unknown.
    pub(super) fn units_naming(&self, name: &str) -> Vec<usize> {
        let all = || (0..self.units()).collect();
        if name.is_empty() || !self.can_search() {
            return all();
        }
        let mut needles: Vec<Vec<u8>> = Vec::new();
        for (part, _) in self.parts() {
            let places = places_of(name, part.debug_str.reader().slice());
            if places.len() > PLACES {
                return all();
            }
            for place in places {
                // Units of the 64-bit format store eight bytes that begin or end so.
                let Ok(offset) = u32::try_from(place) else { return all() };
                needles.push(self.needle(offset));
            }
        }
        // Short names stand in the entry itself.
        needles.extend(inline_needles(name));
        let mut units = self.units_with(&needles);
        units.extend(self.skeletons.iter().filter(|index| self.split_names(**index, name)));
        units.sort_unstable();
        units.dedup();
        units
    }

    /// Whether what was split off a unit has a string `name`. What cannot be
    /// opened has to be visited, to say so.
    fn split_names(&self, index: usize, name: &str) -> bool {
        let strings = || -> Result<Option<[&'s [u8]; 2]>> {
            let start = self.starts.get(index).copied().unwrap_or_default();
            let header = self.dwarf.unit_header(gimli::DebugInfoOffset(start))?;
            let split = self.split_off(&self.dwarf.unit(header)?, index)?;
            let both = |d: &gimli::Dwarf<Reader<'s>>| {
                [d.debug_str.reader().slice(), d.debug_info.reader().slice()]
            };
            Ok(split.map(|s| both(&s.dwarf)))
        };
        match strings() {
            Ok(Some(strings)) => strings.iter().any(|s| !places_of(name, s).is_empty()),
            _ => true,
        }
    }

    /// Units other than its own that refer to the entry at `offset`.
    pub(super) fn units_referring(&self, offset: usize) -> Vec<usize> {
        let Some(needle) = self.referring(offset) else { return Vec::new() };
        self.units_with(&[needle])
    }

    /// Units with one of these byte strings, ascending.
    fn units_with(&self, needles: &[Vec<u8>]) -> Vec<usize> {
        let mut units = Vec::new();
        for (part, base) in self.parts() {
            let first = self.starts.partition_point(|s| *s < base);
            let starts: Vec<usize> =
                self.starts.iter().skip(first).map(|start| start - base).collect();
            let found = self.units_in_part(part.debug_info.reader().slice(), &starts, needles);
            units.extend(found.into_iter().map(|unit| unit + first));
        }
        units.dedup();
        units
    }

    fn units_in_part(&self, info: &[u8], starts: &[usize], needles: &[Vec<u8>]) -> Vec<usize> {
        let pages = self.sections.pages;
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(8);
        let share = info.len().div_ceil(threads).max(WINDOW);
        let mut units: Vec<usize> = std::thread::scope(|scope| {
            let parts: Vec<_> = (0..info.len())
                .step_by(share)
                .map(|from| {
                    scope.spawn(move || {
                        let end = from.saturating_add(share).min(info.len());
                        let mut units = Vec::new();
                        for window in (from..end).step_by(WINDOW) {
                            units.extend(units_in(
                                starts,
                                info,
                                window,
                                WINDOW.min(end - window),
                                needles,
                            ));
                            if let (Some(pages), Some(read)) =
                                (pages, info.get(window..end.min(window + WINDOW)))
                            {
                                pages.forget(read);
                            }
                        }
                        units
                    })
                })
                .collect();
            parts.into_iter().filter_map(|p| p.join().ok()).flatten().collect()
        });
        units.sort_unstable();
        units.dedup();
        units
    }
}

/// Offsets of strings that are `name`, or that followed by generic arguments; not many more than
/// [`PLACES`] of them.
fn places_of(name: &str, strings: &[u8]) -> Vec<usize> {
    let ends = |at: &usize| matches!(strings.get(at + name.len()), Some(0 | b'<'));
    memmem::find_iter(strings, name).filter(ends).take(PLACES + 1).collect()
}

/// Searched in one pass, and then released.
const WINDOW: usize = 4 << 20;

/// A name that stands in the entry itself.
fn inline_needles(name: &str) -> [Vec<u8>; 2] {
    [[name.as_bytes(), b"\0"].concat(), [name.as_bytes(), b"<"].concat()]
}

/// Units with a needle that begins in `info[from..from + share]`.
fn units_in(
    starts: &[usize],
    info: &[u8],
    from: usize,
    share: usize,
    needles: &[Vec<u8>],
) -> Vec<usize> {
    let longest = needles.iter().map(Vec::len).max().unwrap_or(0);
    let end = from.saturating_add(share).saturating_add(longest).min(info.len());
    let Some(part) = info.get(from..end) else { return Vec::new() };
    let mut units = Vec::new();
    for needle in needles {
        let finder = memmem::Finder::new(needle);
        let mut at = 0;
        while let Some(hit) = part.get(at..).and_then(|rest| finder.find(rest)) {
            let offset = from + at + hit;
            let next = starts.partition_point(|s| *s <= offset);
            if next > 0 {
                units.push(next - 1);
            }
            // One hit is enough for a unit: go on behind it.
            at = match starts.get(next) {
                Some(start) => start.saturating_sub(from).max(at + hit + 1),
                None => break,
            };
        }
    }
    units
}
