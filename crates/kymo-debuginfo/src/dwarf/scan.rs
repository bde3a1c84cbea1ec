//! Fast scan for the function names of a unit: each abbreviation becomes a short list of steps, in
//! which everything of fixed size is one jump. Only names are read.
//!
//! It is as careful as the slow way: anything unsupported is an error, and the unit is then assumed
//! to hold anything.

use std::sync::Arc;

use gimli::{DebugInfoOffset, Reader as _, Section as _};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::die::unit_ranges;
use super::forms::{Bytes, Get, Size, Texts, UNSUPPORTED, Value, get, size_of};
use super::line_files::LineTable;
use super::sections::Sections;
use super::unit::Dwarf;
use super::{Reader, Result};

/// A function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'s> {
    /// Its own name.
    pub(super) name: Value<'s>,
    /// Linkage name.
    pub(super) linkage: Value<'s>,
    pub(super) declaration: bool,
    /// Whether its language has no scopes, so that a declaration means nothing.
    pub(super) is_c: bool,
}

/// Attributes of the unit's root entry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Root {
    pub(super) language: u64,
    /// Offset of its line table.
    pub(super) lines: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Name,
    Linkage,
    Declaration,
    Sibling,
    Language,
    Lines,
    StrOffsetsBase,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Pass(Size),
    Keep(What, Get),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryKind {
    Root,
    Function,
    Type,
    /// Namespaces and blocks, in which functions may be.
    Scope,
    Other,
}

#[derive(Clone, Copy, Debug)]
struct Abbreviation {
    code: u64,
    kind: EntryKind,
    children: bool,
    /// The size of an entry of which nothing is kept; `u32::MAX` if that differs
    /// from entry to entry.
    fixed: u32,
    steps: (u32, u32),
}

/// The abbreviations of the unit that was read last; one for each thread.
#[derive(Default)]
pub(super) struct Scanner {
    /// Address of the section in memory: each split unit has one of its own.
    at: Option<(usize, usize)>,
    encoding: Option<gimli::Encoding>,
    abbreviations: Vec<Abbreviation>,
    steps: Vec<Step>,
    /// Results for strings, by their offsets in `.debug_str`: names recur often.
    pub(super) known: FxHashMap<u64, bool>,
}

/// A unit, as sections and places.
pub(super) struct Scanned<'s> {
    pub(super) dwarf: Arc<gimli::Dwarf<Reader<'s>>>,
    pub(super) header: gimli::UnitHeader<Reader<'s>>,
}

/// Steps of an entry; real ones have a dozen.
const MOST_STEPS: usize = 256;

fn kind_of(tag: gimli::DwTag) -> EntryKind {
    match tag {
        gimli::DW_TAG_compile_unit
        | gimli::DW_TAG_partial_unit
        | gimli::DW_TAG_skeleton_unit
        | gimli::DW_TAG_type_unit => EntryKind::Root,
        gimli::DW_TAG_subprogram => EntryKind::Function,
        gimli::DW_TAG_structure_type
        | gimli::DW_TAG_class_type
        | gimli::DW_TAG_union_type
        | gimli::DW_TAG_enumeration_type => EntryKind::Type,
        gimli::DW_TAG_namespace | gimli::DW_TAG_module | gimli::DW_TAG_lexical_block => {
            EntryKind::Scope
        }
        _ => EntryKind::Other,
    }
}

/// Use of an attribute, if any.
fn wanted(kind: EntryKind, children: bool, attribute: u16) -> Option<What> {
    Some(match (gimli::DwAt(attribute), kind) {
        (gimli::DW_AT_sibling, _) if children => What::Sibling,
        (gimli::DW_AT_name, EntryKind::Function) => What::Name,
        (gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name, EntryKind::Function) => {
            What::Linkage
        }
        (gimli::DW_AT_declaration, EntryKind::Function) => What::Declaration,
        (gimli::DW_AT_language, EntryKind::Root) => What::Language,
        (gimli::DW_AT_stmt_list, EntryKind::Root) => What::Lines,
        (gimli::DW_AT_str_offsets_base, EntryKind::Root) => What::StrOffsetsBase,
        _ => return None,
    })
}

impl<'s> Scanned<'s> {
    /// From its first entry on; places count from the header.
    fn bytes(&self) -> Bytes<'s> {
        let info = self.dwarf.debug_info.reader();
        let start = self.header.debug_info_offset().map_or(0, |o| o.0);
        let end = start.saturating_add(self.header.length_including_self());
        let mut b = Bytes::at(info, self.header.root_offset().0);
        b.bytes = info.slice().get(start..end.min(info.len())).unwrap_or_default();
        b
    }
}

impl Scanner {
    /// Reads the abbreviations of a unit, if they are not those of the last one.
    fn prepare(&mut self, unit: &Scanned<'_>) -> Result<()> {
        let section = unit.dwarf.debug_abbrev.reader();
        let offset = unit.header.debug_abbrev_offset().0;
        let at = Some((section.slice().as_ptr() as usize, offset));
        let encoding = unit.header.encoding();
        if self.at == at && self.encoding == Some(encoding) {
            return Ok(());
        }
        self.clear();
        let mut b = Bytes::at(section, offset);
        while self.abbreviate(&mut b, encoding)? {}
        // Compilers number them from 1 on; else they are searched.
        self.abbreviations.sort_by_key(|a| a.code);
        self.at = at;
        self.encoding = Some(encoding);
        Ok(())
    }

    fn clear(&mut self) {
        self.at = None;
        self.abbreviations.clear();
        self.steps.clear();
    }

    /// Reads one abbreviation; `false` behind the last one.
    fn abbreviate(&mut self, b: &mut Bytes<'_>, encoding: gimli::Encoding) -> Result<bool> {
        let code = b.leb()?;
        if code == 0 {
            return Ok(false);
        }
        let tag = u16::try_from(b.leb()?).map_err(|_| UNSUPPORTED)?;
        let children = b.u8()? != 0;
        let kind = kind_of(gimli::DwTag(tag));
        let first = self.steps.len();
        loop {
            let (attribute, form) = (b.leb()?, b.leb()?);
            if attribute == 0 && form == 0 {
                break;
            }
            let form = u16::try_from(form).map_err(|_| UNSUPPORTED)?;
            if gimli::DwForm(form) == gimli::DW_FORM_implicit_const {
                b.skip_leb()?;
            }
            let what = u16::try_from(attribute).ok().and_then(|a| wanted(kind, children, a));
            self.push(first, what, form, encoding)?;
        }
        // Entries could otherwise be made to take as long as they like.
        if self.steps.len() - first > MOST_STEPS {
            return Err(UNSUPPORTED.into());
        }
        let fixed = match self.steps.get(first..) {
            Some([]) => 0,
            Some([Step::Pass(Size::Fixed(count))]) => *count,
            _ => u32::MAX,
        };
        let fixed = if kind == EntryKind::Other && !children { fixed } else { u32::MAX };
        let steps = (first as u32, self.steps.len() as u32);
        self.abbreviations.push(Abbreviation { code, kind, children, fixed, steps });
        Ok(true)
    }

    /// Reads a unit's root entry. Of its abbreviations, only the first ones are read.
    pub(super) fn root(&mut self, unit: &Scanned<'_>) -> Result<Root> {
        self.clear();
        let mut entry = unit.bytes();
        let code = entry.leb()?;
        let offset = unit.header.debug_abbrev_offset().0;
        let mut b = Bytes::at(unit.dwarf.debug_abbrev.reader(), offset);
        let missing = gimli::Error::InvalidAbbreviationCode(code);
        loop {
            if !self.abbreviate(&mut b, unit.header.encoding())? {
                return Err(missing.into());
            }
            let last = self.abbreviations.last().copied().filter(|a| a.code == code);
            if let Some(a) = last {
                let kept = self.keep(a, &mut entry)?;
                return Ok(Root { language: kept.language, lines: kept.lines });
            }
        }
    }

    /// Reads an entry.
    fn keep<'s>(&self, a: Abbreviation, b: &mut Bytes<'s>) -> Result<Kept<'s>> {
        let mut kept = Kept::default();
        let (from, to) = a.steps;
        for step in self.steps.get(from as usize..to as usize).unwrap_or_default() {
            match *step {
                Step::Pass(size) => b.pass(size)?,
                Step::Keep(what, get) => {
                    kept.take(what, b.value(get)?);
                    // What is not looked at need not be read to its end.
                    if what == What::Sibling && a.kind == EntryKind::Other {
                        break;
                    }
                }
            }
        }
        Ok(kept)
    }

    fn push(
        &mut self,
        first: usize,
        what: Option<What>,
        form: u16,
        encoding: gimli::Encoding,
    ) -> Result<()> {
        let size = size_of(form, encoding).ok_or(UNSUPPORTED)?;
        let step = match (what, size) {
            (Some(what), size) => Step::Keep(what, get(form, size)?),
            (None, Size::Fixed(count)) => {
                if self.steps.len() > first
                    && let Some(Step::Pass(Size::Fixed(before))) = self.steps.last_mut()
                {
                    *before = before.saturating_add(count);
                    return Ok(());
                }
                Step::Pass(Size::Fixed(count))
            }
            (None, size) => Step::Pass(size),
        };
        self.steps.push(step);
        Ok(())
    }

    fn abbreviation(&self, code: u64) -> Option<Abbreviation> {
        let dense = usize::try_from(code).ok()?.checked_sub(1)?;
        match self.abbreviations.get(dense) {
            Some(found) if found.code == code => Some(*found),
            _ => {
                let at = self.abbreviations.binary_search_by_key(&code, |a| a.code).ok()?;
                self.abbreviations.get(at).copied()
            }
        }
    }

    /// Visits functions of a unit in the order of the file.
    pub(super) fn scan<'s>(
        &mut self,
        unit: &Scanned<'s>,
        visit: &mut dyn FnMut(&Entry<'s>, &Texts<'_, 's>),
    ) -> Result<Root> {
        self.prepare(unit)?;
        let mut b = unit.bytes();
        let mut texts = Texts::new(&unit.dwarf, unit.header.encoding());
        let mut root = Root::default();
        let mut is_c = false;
        let mut depth = 0usize;
        // Entries deeper than this are below one that is passed over.
        let mut past = usize::MAX;
        while b.at < b.bytes.len() {
            let offset = b.at;
            let code = b.leb()?;
            if code == 0 {
                // Zeroes may pad the end of a unit.
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    break;
                }
                continue;
            }
            let a = self.abbreviation(code).ok_or(gimli::Error::InvalidAbbreviationCode(code))?;
            if depth <= past {
                past = usize::MAX;
            }
            if a.fixed != u32::MAX {
                b.skip(a.fixed as usize)?;
                continue;
            }
            let seen = self.keep(a, &mut b)?;
            if a.kind == EntryKind::Root && depth == 0 {
                root = Root { language: seen.language, lines: seen.lines };
                texts.base = seen.base.unwrap_or(texts.base);
                is_c = super::unit::is_c_language(root.language);
            }
            if past == usize::MAX && a.kind == EntryKind::Function {
                let entry = Entry {
                    name: seen.name,
                    linkage: seen.linkage,
                    declaration: seen.declaration,
                    is_c,
                };
                visit(&entry, &texts);
            }
            if !a.children {
                if depth == 0 {
                    break;
                }
                continue;
            }
            let enters = match a.kind {
                EntryKind::Root | EntryKind::Scope => true,
                EntryKind::Function | EntryKind::Type => !is_c,
                EntryKind::Other => false,
            };
            if !enters {
                match seen.sibling {
                    Some(next) if next > offset => {
                        b.at = next;
                        continue;
                    }
                    Some(_) => return Err(gimli::Error::OffsetOutOfBounds(offset as u64).into()),
                    None if past == usize::MAX => past = depth,
                    None => {}
                }
            }
            depth += 1;
        }
        Ok(root)
    }
}

/// All units, for several threads.
pub(super) struct Units<'d, 's> {
    sections: &'s Sections<'s>,
    dwarf: &'d Arc<gimli::Dwarf<Reader<'s>>>,
    starts: &'d [usize],
    skeletons: &'d [usize],
    shared: usize,
}

impl<'s> Dwarf<'s> {
    pub(super) fn scanned(&self) -> Units<'_, 's> {
        Units {
            sections: self.sections,
            dwarf: &self.dwarf,
            starts: &self.starts,
            skeletons: &self.skeletons,
            shared: self.shared_base(),
        }
    }
}

impl<'s> Units<'_, 's> {
    /// Unit number `index` as it stands in the file.
    fn stored(&self, index: usize) -> Result<Scanned<'s>> {
        let missing = gimli::Error::NoEntryAtGivenOffset(index as u64);
        let start = self.starts.get(index).copied().ok_or(missing)?;
        let sup = self.dwarf.sup.as_ref().filter(|_| start >= self.shared);
        let (dwarf, base) = sup.map_or((self.dwarf, 0), |sup| (sup, self.shared));
        let header = dwarf.unit_header(DebugInfoOffset(start - base))?;
        Ok(Scanned { dwarf: dwarf.clone(), header })
    }

    /// Unit number `index`: of a skeleton what was split off it, if that is there.
    pub(super) fn unit(&self, index: usize) -> Result<Scanned<'s>> {
        let stored = self.stored(index)?;
        if self.skeletons.binary_search(&index).is_err() {
            return Ok(stored);
        }
        let skeleton = stored.dwarf.unit(stored.header)?;
        let place = (index, self.starts.len());
        Ok(match self.sections.split_off(&stored.dwarf, &skeleton, place)? {
            Some(split) => Scanned { dwarf: split.dwarf, header: split.unit.header },
            None => Scanned { dwarf: stored.dwarf, header: skeleton.header },
        })
    }

    /// Whether a unit is read in the binary's own sections.
    pub(super) fn is_main(&self, unit: &Scanned<'s>) -> bool {
        Arc::ptr_eq(&unit.dwarf, self.dwarf)
    }

    /// Offset of a unit's line table, if it has one.
    pub(super) fn lines(
        &self,
        index: usize,
        scanner: &mut Scanner,
    ) -> Result<Option<LineTable<'s>>> {
        // Of a split unit the skeleton has it.
        let unit = self.stored(index)?;
        let offset = scanner.root(&unit)?.lines;
        let address_size = unit.header.encoding().address_size;
        Ok(offset.map(|offset| LineTable { dwarf: unit.dwarf, offset, address_size }))
    }

    /// Spans of code of a unit.
    pub(super) fn ranges(&self, index: usize) -> Result<Vec<(u64, u64)>> {
        let stored = self.stored(index)?;
        let unit = stored.dwarf.unit(stored.header)?;
        let mut ranges = unit_ranges(&stored.dwarf, &unit)?;
        let mut spans = Vec::new();
        while let Some(range) = ranges.next()? {
            if range.begin < range.end {
                spans.push((range.begin, range.end));
            }
        }
        Ok(spans)
    }

    /// Results of `of` for each unit, in their order; runs on several threads.
    pub(super) fn each<T: Send>(&self, of: impl Fn(usize, &mut Scanner) -> T + Sync) -> Vec<T> {
        // Neighbours together, so that pages can be given back.
        const TOGETHER: usize = 32;
        let chunks: Vec<usize> = (0..self.starts.len()).step_by(TOGETHER).collect();
        let of_chunk = |scanner: &mut Scanner, first: usize| {
            let last = first.saturating_add(TOGETHER).min(self.starts.len());
            let found: Vec<T> = (first..last).map(|index| of(index, scanner)).collect();
            self.forget(first, last);
            found
        };
        let parts: Vec<Vec<T>> =
            chunks.into_par_iter().map_init(Scanner::default, of_chunk).collect();
        parts.into_iter().flatten().collect()
    }

    fn forget(&self, first: usize, last: usize) {
        let info = self.dwarf.debug_info.reader();
        let at = |index: usize| self.starts.get(index).copied().unwrap_or(info.len());
        if let (Some(pages), Some(read)) =
            (self.sections.pages, info.slice().get(at(first)..at(last).min(info.len())))
        {
            pages.forget(read);
        }
    }
}

/// Kept attributes of an entry.
#[derive(Default)]
struct Kept<'s> {
    name: Value<'s>,
    linkage: Value<'s>,
    declaration: bool,
    sibling: Option<usize>,
    language: u64,
    lines: Option<u64>,
    base: Option<u64>,
}

impl<'s> Kept<'s> {
    fn take(&mut self, what: What, value: Value<'s>) {
        let number = if let Value::Number(n) = value { Some(n) } else { None };
        match what {
            What::Name => self.name = value,
            What::Linkage => self.linkage = value,
            What::Declaration => self.declaration = number != Some(0),
            What::Sibling => self.sibling = number.and_then(|n| usize::try_from(n).ok()),
            What::Language => self.language = number.unwrap_or(0),
            What::Lines => self.lines = number,
            What::StrOffsetsBase => self.base = number,
        }
    }
}
