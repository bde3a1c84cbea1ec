//! Which units can hold an entry of a given name, without parsing them: a name
//! is stored once in `.debug_str`, and every entry called so has its offset in
//! four bytes. Looking for those bytes is as fast as memory is; a false hit
//! costs one unit parsed in vain.

use gimli::Section as _;
use memchr::memmem;

use super::Result;
use super::names::last_name;
use super::unit::Dwarf;
use crate::probe::is_glob;

/// More places of a name than these are not looked for one by one.
const PLACES: usize = 12;

impl<'s> Dwarf<'s> {
    /// Units that can have a function that `pattern` means. `entry` gives the
    /// address of a function: the unit there says where its name is stored.
    pub(super) fn units_for(
        &self,
        pattern: &str,
        entry: &dyn Fn(&str) -> Option<u64>,
    ) -> Result<Vec<usize>> {
        if is_glob(pattern) {
            return Ok((0..self.units()).collect());
        }
        let name = last_name(pattern);
        let units = self.units_of_name(&name, entry)?;
        self.with_link_time_units(pattern, units)
    }

    /// Where the linker optimised across units, code is in other units than the
    /// names: those that refer to the named functions are added.
    fn with_link_time_units(&self, pattern: &str, units: Vec<usize>) -> Result<Vec<usize>> {
        let mut needles = Vec::new();
        for index in &units {
            let unit = self.unit(*index)?;
            if !unit.lto {
                continue;
            }
            let functions = self.functions(&unit)?;
            for f in functions.all.iter().filter(|f| f.matches(pattern)) {
                let offset = u32::try_from(unit.start + f.offset.0).unwrap_or(u32::MAX);
                needles.push(self.needle(offset));
            }
        }
        if needles.is_empty() {
            return Ok(units);
        }
        let mut all = self.units_with(self.dwarf.debug_info.reader().slice(), &needles);
        all.extend(units);
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    fn units_of_name(&self, name: &str, entry: &dyn Fn(&str) -> Option<u64>) -> Result<Vec<usize>> {
        if let Some(offset) = self.stored_at(name, entry)? {
            let mut needles = vec![self.needle(offset)];
            needles.extend(inline_needles(name));
            return Ok(self.units_with(self.dwarf.debug_info.reader().slice(), &needles));
        }
        Ok(self.units_naming(name))
    }

    /// Where in `.debug_str` the name of a function is, by the unit of its code.
    /// The linker keeps one copy of each string. Only for C, whose functions
    /// have one name.
    fn stored_at(&self, name: &str, entry: &dyn Fn(&str) -> Option<u64>) -> Result<Option<u32>> {
        let Some(addr) = entry(name).filter(|_| self.can_search()) else { return Ok(None) };
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
        self.dwarf.debug_str_offsets.reader().is_empty() && self.dwarf.sup().is_none()
    }

    fn needle(&self, offset: u32) -> Vec<u8> {
        match self.sections.endian {
            gimli::RunTimeEndian::Little => offset.to_le_bytes().to_vec(),
            gimli::RunTimeEndian::Big => offset.to_be_bytes().to_vec(),
        }
    }

    /// Units that can have a function or variable called `name`, with generic
    /// arguments or not, ascending. All units where that cannot be told.
    pub(super) fn units_naming(&self, name: &str) -> Vec<usize> {
        let all = || (0..self.units()).collect();
        if name.is_empty() || !self.can_search() {
            return all();
        }
        let strings = self.dwarf.debug_str.reader().slice();
        let info = self.dwarf.debug_info.reader().slice();
        let ends = |bytes: &[u8], at: usize| matches!(bytes.get(at + name.len()), Some(0 | b'<'));
        let places: Vec<usize> = memmem::find_iter(strings, name)
            .filter(|at| ends(strings, *at))
            .take(PLACES + 1)
            .collect();
        if places.len() > PLACES {
            return all();
        }
        let mut needles: Vec<Vec<u8>> = Vec::new();
        for place in places {
            // Units of the 64-bit format store eight bytes that begin or end so.
            let Ok(offset) = u32::try_from(place) else { return all() };
            needles.push(self.needle(offset));
        }
        // Short names stand in the entry itself.
        needles.extend(inline_needles(name));
        self.units_with(info, &needles)
    }

    /// Units other than its own that refer to the entry at `offset`.
    pub(super) fn units_referring(&self, offset: usize) -> Vec<usize> {
        let Ok(offset) = u32::try_from(offset) else { return Vec::new() };
        self.units_with(self.dwarf.debug_info.reader().slice(), &[self.needle(offset)])
    }

    fn units_with(&self, info: &[u8], needles: &[Vec<u8>]) -> Vec<usize> {
        let starts = self.starts.as_slice();
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

/// Searched at once, and then given back.
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
