//! Which units can hold an entry of a given name, without parsing them: a name
//! is stored once in `.debug_str`, and every entry called so has its offset in
//! four bytes. Looking for those bytes is as fast as memory is; a false hit
//! costs one unit parsed in vain.

use gimli::Section as _;
use memchr::memmem;

use super::unit::Dwarf;

/// More places of a name than these are not looked for one by one.
const PLACES: usize = 12;

impl<'s> Dwarf<'s> {
    /// Units that can have a function or variable called `name`, with generic
    /// arguments or not, ascending. All units where that cannot be told.
    pub(super) fn units_naming(&self, name: &str) -> Vec<usize> {
        let all = || (0..self.units()).collect();
        let indexed = !self.dwarf.debug_str_offsets.reader().is_empty();
        if indexed || name.is_empty() || self.dwarf.sup().is_some() {
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
            needles.push(match self.sections.endian {
                gimli::RunTimeEndian::Little => offset.to_le_bytes().to_vec(),
                gimli::RunTimeEndian::Big => offset.to_be_bytes().to_vec(),
            });
        }
        // Short names stand in the entry itself.
        needles.push([name.as_bytes(), b"\0"].concat());
        needles.push([name.as_bytes(), b"<"].concat());
        self.units_with(info, &needles)
    }

    /// Units other than its own that refer to the entry at `offset`.
    pub(super) fn units_referring(&self, offset: usize) -> Vec<usize> {
        let Ok(offset) = u32::try_from(offset) else { return Vec::new() };
        let needle = match self.sections.endian {
            gimli::RunTimeEndian::Little => offset.to_le_bytes(),
            gimli::RunTimeEndian::Big => offset.to_be_bytes(),
        };
        self.units_with(self.dwarf.debug_info.reader().slice(), &[needle.to_vec()])
    }

    fn units_with(&self, info: &[u8], needles: &[Vec<u8>]) -> Vec<usize> {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(8);
        let starts = self.starts.as_slice();
        let share = info.len().div_ceil(threads).max(1 << 20);
        let mut units: Vec<usize> = std::thread::scope(|scope| {
            let parts: Vec<_> = (0..info.len())
                .step_by(share)
                .map(|from| scope.spawn(move || units_in(starts, info, from, share, needles)))
                .collect();
            parts.into_iter().filter_map(|p| p.join().ok()).flatten().collect()
        });
        units.sort_unstable();
        units.dedup();
        units
    }
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
