//! Making an index: one fast pass over all units by several threads, and then
//! sorting what they found.

use gimli::Section as _;
use rayon::prelude::*;

use super::super::Result;
use super::super::forms::{Texts, Value};
use super::super::names::without_generics;
use super::super::scan::{Scanner, Units};
use super::super::unit::Dwarf;
use super::marks;
use super::table::{Table, Writer, hash};

/// Outline of a unit.
#[derive(Default)]
struct Outline<'s> {
    unread: bool,
    /// Names of functions, by their places in `.debug_str`, or as they are.
    stored: Vec<u64>,
    named: Vec<&'s [u8]>,
    linkage: Vec<u64>,
    files: Vec<u64>,
    ranges: Vec<(u64, u64)>,
}

/// A name and the units with a function called so.
struct Named {
    hash: u64,
    name: String,
    units: Vec<u32>,
}

impl<'s> Dwarf<'s> {
    /// Makes an index of all units.
    pub fn build_index(&self) -> Vec<u8> {
        let units = self.scanned();
        let by_table = self.aranges();
        let known = |index: usize| by_table.binary_search_by_key(&(index as u32), |r| r.2).is_ok();
        let outlines = units.each(|index, scanner| {
            let mut outline = Outline::default();
            if self_contained(&units, index, scanner, known(index), &mut outline).is_err() {
                outline.unread = true;
            }
            outline
        });
        let mut w = Writer::default();
        for (index, outline) in outlines.iter().enumerate() {
            let start = self.starts.get(index).copied().unwrap_or_default() as u64;
            w.table(Table::Starts).extend(start.to_le_bytes());
            if outline.unread {
                w.table(Table::Unread).extend((index as u32).to_le_bytes());
            }
        }
        for index in &self.skeletons {
            w.table(Table::Skeletons).extend((*index as u32).to_le_bytes());
        }
        self.names(&outlines, &mut w);
        lists(&outlines, &mut w);
        let own = outlines.iter().zip(0u32..);
        let own = own.flat_map(|(o, unit)| o.ranges.iter().map(move |r| (r.0, r.1, unit)));
        let mut ranges: Vec<(u64, u64, u32)> = by_table.into_iter().chain(own).collect();
        ranges.sort_unstable();
        for (start, end, unit) in ranges {
            let row = w.table(Table::Ranges);
            row.extend(start.to_le_bytes());
            row.extend(end.to_le_bytes());
            row.extend(unit.to_le_bytes());
        }
        w.finish(marks(self.sections).map(|m| m.1))
    }

    /// Spans in `.debug_aranges`, by unit.
    fn aranges(&self) -> Vec<(u64, u64, u32)> {
        let mut all = Vec::new();
        let mut headers = self.dwarf.debug_aranges.headers();
        while let Ok(Some(header)) = headers.next() {
            let start = header.debug_info_offset().0;
            let Ok(unit) = self.starts.binary_search(&start) else { continue };
            let mut entries = header.entries();
            while let Ok(Some(e)) = entries.next() {
                if e.length() > 0 {
                    let end = e.address().saturating_add(e.length());
                    all.push((e.address(), end, unit as u32));
                }
            }
        }
        all.sort_unstable_by_key(|r| r.2);
        all
    }

    fn names(&self, outlines: &[Outline<'s>], w: &mut Writer) {
        let units = || outlines.iter().zip(0u32..);
        let mut stored: Vec<(u64, u32)> =
            units().flat_map(|(o, unit)| o.stored.iter().map(move |at| (*at, unit))).collect();
        stored.par_sort_unstable();
        let strings = self.dwarf.debug_str.reader().slice();
        let text = |at: u64| {
            let rest = strings.get(usize::try_from(at).ok()?..)?;
            rest.get(..memchr::memchr(0, rest)?)
        };
        let named = |name: &[u8], units: Vec<u32>| {
            let name = without_generics(&String::from_utf8_lossy(name));
            Named { hash: hash(name.as_bytes()), name, units }
        };
        let groups: Vec<&[(u64, u32)]> = stored.chunk_by(|a, b| a.0 == b.0).collect();
        let mut all: Vec<Named> = groups
            .into_par_iter()
            .filter_map(|group| {
                let name = text(group.first()?.0)?;
                Some(named(name, group.iter().map(|g| g.1).collect()))
            })
            .collect();
        all.extend(units().flat_map(|(o, unit)| o.named.iter().map(move |n| named(n, vec![unit]))));
        all.par_sort_unstable_by(|a, b| (a.hash, &a.name).cmp(&(b.hash, &b.name)));
        for same in all.chunk_by(|a, b| a.name == b.name) {
            let Some(first) = same.first() else { continue };
            let mut units: Vec<u32> = same.iter().flat_map(|n| n.units.iter().copied()).collect();
            units.sort_unstable();
            units.dedup();
            let text = w.text(first.name.as_bytes());
            let list = w.list(units.into_iter());
            let row = w.table(Table::Names);
            row.extend(first.hash.to_le_bytes());
            row.extend(text);
            row.extend(list);
        }
    }
}

/// Names for the linker, and files.
fn lists(outlines: &[Outline<'_>], w: &mut Writer) {
    let units = || outlines.iter().zip(0u32..);
    let mut linkage: Vec<(u64, u32)> =
        units().flat_map(|(o, unit)| o.linkage.iter().map(move |h| (*h, unit))).collect();
    linkage.par_sort_unstable();
    linkage.dedup();
    for (hash, unit) in linkage {
        let row = w.table(Table::Linkage);
        row.extend(hash.to_le_bytes());
        row.extend(unit.to_le_bytes());
    }
    let mut files: Vec<(u64, u32)> =
        units().flat_map(|(o, unit)| o.files.iter().map(move |h| (*h, unit))).collect();
    files.par_sort_unstable();
    files.dedup();
    for same in files.chunk_by(|a, b| a.0 == b.0) {
        let list = w.list(same.iter().map(|f| f.1));
        let row = w.table(Table::Files);
        row.extend(same.first().map_or(0, |f| f.0).to_le_bytes());
        row.extend(list);
    }
}

/// Reads everything of a unit that goes into the index.
fn self_contained<'s>(
    units: &Units<'_, 's>,
    index: usize,
    scanner: &mut Scanner,
    has_ranges: bool,
    outline: &mut Outline<'s>,
) -> Result<()> {
    if !has_ranges {
        outline.ranges = units.ranges(index)?;
    }
    if let Some(table) = units.lines(index, scanner)? {
        let texts = Texts::new(&table.dwarf, table.encoding());
        table.files(&mut |file| {
            if let Some(name) = texts.text(file.name) {
                let last = name.rsplit(|b| *b == b'/').next().unwrap_or(name);
                outline.files.push(hash(last));
            }
        })?;
        outline.files.sort_unstable();
        outline.files.dedup();
    }
    let unit = units.unit(index)?;
    let common = units.is_main(&unit);
    scanner.scan(&unit, &mut |entry, texts| {
        if entry.is_c && entry.declaration {
            return;
        }
        match entry.name {
            Value::Str(at) if common => outline.stored.push(at),
            name => outline.named.extend(texts.text(name)),
        }
        if let Some(name) = texts.text(entry.linkage) {
            outline.linkage.push(hash(name));
        }
    })?;
    outline.stored.sort_unstable();
    outline.stored.dedup();
    outline.linkage.sort_unstable();
    outline.linkage.dedup();
    Ok(())
}
