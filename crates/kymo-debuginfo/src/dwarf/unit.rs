//! The debugging information as a whole and its units, of which only the last
//! few that were asked for are kept parsed.

use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{DebugInfoOffset, Section as _, UnitOffset};
use rustc_hash::FxHashMap;

use super::budget::{MemoryBudget, MemoryCharge};
use super::companions::SplitUnit;
use super::die::Die;
use super::function::UnitFunctions;
use super::index::Index;
use super::lines::LineTable;
use super::sections::Sections;
use super::span_set::SpanSet;
use super::type_units::TypeUnits;
use super::{Reader, Result, Value};

/// Units kept parsed. One needs some 100 KiB; a search visits one at a time.
const KEPT: usize = 24;

/// Bytes touched before they are given back.
const GIVE_BACK: usize = 8 << 20;

/// Debugging information, borrowed from [`Sections`].
pub struct Dwarf<'s> {
    pub(super) sections: &'s Sections<'s>,
    pub(super) dwarf: Arc<gimli::Dwarf<Reader<'s>>>,
    /// Offsets of the units, ascending: in `.debug_info`, and after its end in that of the file
    /// shared with other binaries.
    pub(super) starts: Vec<usize>,
    /// Units of which most is in another file.
    pub(super) skeletons: Vec<usize>,
    pub(super) index: Option<Index<'s>>,
    pub(super) type_units: RefCell<TypeUnits<'s>>,
    /// Memory that answers take.
    pub(super) budget: MemoryBudget,
    /// Part of it that belongs to no unit.
    own_memory: RefCell<MemoryCharge>,
    /// Long lists of spans, by unit and offset.
    pub(super) long_lists: RefCell<FxHashMap<(usize, usize), SpanSet>>,
    kept: RefCell<VecDeque<Rc<DwarfUnit<'s>>>>,
}

/// A parsed unit.
pub struct DwarfUnit<'s> {
    /// Its header, abbreviations and line program.
    pub inner: gimli::Unit<Reader<'s>>,
    /// Sections of its attributes.
    pub(super) dwarf: Arc<gimli::Dwarf<Reader<'s>>>,
    /// Sections of its line table, if they are others.
    pub(super) lines_in: Option<Arc<gimli::Dwarf<Reader<'s>>>>,
    /// Its place in the order of units.
    pub index: usize,
    /// Offset, counted through all files.
    pub(super) start: usize,
    /// Offset of its file.
    base: usize,
    /// Offset of the file shared with other binaries, if it is present.
    shared: Option<usize>,
    /// Whether other units share it.
    pub(super) partial: bool,
    /// Whether its language has no nested functions, namespaces or overloads.
    pub is_c: bool,
    /// Whether the linker optimised across units, which then refer to each other.
    pub(super) lto: bool,
    pub(super) lines: OnceCell<Rc<LineTable>>,
    pub(super) functions: OnceCell<Rc<UnitFunctions<'s>>>,
}

impl<'s> Dwarf<'s> {
    /// Reads where the units are, and nothing else.
    pub fn new(sections: &'s Sections<'s>) -> Result<Dwarf<'s>> {
        let mut dwarf = Dwarf::with_sections(sections, None);
        dwarf.find_units()?;
        Ok(dwarf)
    }

    /// Reads the units from an index of these sections.
    pub fn with_index(sections: &'s Sections<'s>, index: Index<'s>) -> Dwarf<'s> {
        let mut dwarf = Dwarf::with_sections(sections, Some(index));
        dwarf.starts = index.starts();
        dwarf.skeletons = index.skeletons();
        dwarf
    }

    fn with_sections(sections: &'s Sections<'s>, index: Option<Index<'s>>) -> Dwarf<'s> {
        let endian = sections.endian;
        let mut dwarf = sections.dwarf.borrow(|bytes| gimli::EndianSlice::new(bytes, endian));
        if let Some(shared) = sections.opened.shared(endian) {
            dwarf.set_sup(shared);
        }
        let (starts, skeletons) = (Vec::new(), Vec::new());
        let (dwarf, kept) = (Arc::new(dwarf), RefCell::default());
        let type_units = RefCell::default();
        let (budget, long_lists) = (MemoryBudget::default(), RefCell::default());
        let own_memory = RefCell::new(budget.open());
        Dwarf {
            sections,
            dwarf,
            starts,
            skeletons,
            index,
            type_units,
            budget,
            own_memory,
            long_lists,
            kept,
        }
    }

    fn find_units(&mut self) -> Result<()> {
        let (dwarf, sections) = (&self.dwarf, self.sections);
        let mut starts = Vec::new();
        let mut skeletons = Vec::new();
        let mut headers = dwarf.units();
        let info = dwarf.debug_info.reader().slice();
        let may_split = !dwarf.debug_addr.reader().is_empty();
        let mut given_back = 0;
        while let Some(header) = headers.next()? {
            if let Some(offset) = header.debug_info_offset() {
                if may_split && is_skeleton(dwarf, &header)? {
                    skeletons.push(starts.len());
                }
                starts.push(offset.0);
                // Headers are spread over all of the section.
                if offset.0 - given_back > GIVE_BACK
                    && let (Some(pages), Some(read)) =
                        (sections.pages, info.get(given_back..offset.0))
                {
                    pages.forget(read);
                    given_back = offset.0;
                }
            }
        }
        let mut headers = dwarf.sup().map(gimli::Dwarf::units);
        while let Some(header) = headers.as_mut().map_or(Ok(None), |h| h.next())? {
            starts.extend(header.debug_info_offset().map(|offset| info.len() + offset.0));
        }
        (self.starts, self.skeletons) = (starts, skeletons);
        Ok(())
    }

    /// Counts bytes of an answer; an error, if they are too many.
    pub fn charge(&self, bytes: usize) -> Result<()> {
        self.own_memory.borrow_mut().add(bytes)
    }

    /// Bytes that are kept of units and answers.
    #[cfg(test)]
    pub(super) fn memory_used(&self) -> usize {
        self.budget.used()
    }

    /// Architecture of the binary.
    pub fn architecture(&self) -> object::Architecture {
        self.sections.architecture
    }

    /// Note on debugging information in missing files.
    pub fn absent_text(&self) -> Option<String> {
        self.sections.absent_text()
    }

    /// Number of units.
    pub fn units(&self) -> usize {
        self.starts.len()
    }

    /// Unit number `index`; behind all of them those with types that were asked for by
    /// signature.
    pub fn unit(&self, index: usize) -> Result<Rc<DwarfUnit<'s>>> {
        let mut kept = self.kept.borrow_mut();
        let at = kept.iter().position(|u| u.index == index);
        if let Some(unit) = at.and_then(|at| kept.remove(at)) {
            kept.push_front(unit.clone());
            return Ok(unit);
        }
        let unit = Rc::new(self.parse(index)?);
        kept.truncate(KEPT - 1);
        kept.push_front(unit.clone());
        Ok(unit)
    }

    fn parse(&self, index: usize) -> Result<DwarfUnit<'s>> {
        let behind = index.checked_sub(self.units()).and_then(|n| Some((n, self.type_unit(n)?)));
        if let Some((number, found)) = behind {
            let inner = found.dwarf.unit(found.header)?;
            let start = number.wrapping_mul(SPLIT_ROOM).wrapping_add(TYPES);
            return Ok(DwarfUnit::new(inner, found.dwarf, index, start));
        }
        let missing = gimli::Error::NoEntryAtGivenOffset(index as u64);
        let mut start = self.starts.get(index).copied().ok_or(missing)?;
        let shared = self.shared_base();
        let (mut dwarf, mut base) = (self.dwarf.clone(), 0);
        if let (Some(sup), true) = (&self.dwarf.sup, start >= shared) {
            (dwarf, base) = (sup.clone(), shared);
        }
        let header = dwarf.unit_header(DebugInfoOffset(start - base))?;
        let mut inner = dwarf.unit(header)?;
        let mut lines_in = None;
        if self.skeletons.binary_search(&index).is_ok()
            && let Some(split) = self.split_off(&inner, index)?
        {
            lines_in = Some(std::mem::replace(&mut dwarf, split.dwarf));
            inner = split.unit;
            start = index.wrapping_mul(SPLIT_ROOM).wrapping_add(SPLIT);
            let own = inner.header.debug_info_offset().map_or(0, |o| o.0);
            base = start.saturating_sub(own);
        }
        let shared = self.dwarf.sup().map(|_| shared);
        Ok(DwarfUnit { lines_in, base, shared, ..DwarfUnit::new(inner, dwarf, index, start) })
    }

    /// Split unit of a skeleton, if its file is present.
    pub(super) fn split_off(
        &self,
        skeleton: &gimli::Unit<Reader<'s>>,
        index: usize,
    ) -> Result<Option<SplitUnit<'s>>> {
        self.sections.split_off(&self.dwarf, skeleton, (index, self.starts.len()))
    }

    /// Offset of the file shared with other binaries.
    pub(super) fn shared_base(&self) -> usize {
        self.dwarf.debug_info.reader().len()
    }

    /// The entry at an offset counted through all files.
    pub(super) fn die_at(&self, offset: usize) -> Result<Die<'s>> {
        let missing = gimli::Error::NoEntryAtGivenOffset(offset as u64);
        let index = match (offset.checked_sub(TYPES), offset.checked_sub(SPLIT)) {
            (Some(behind), _) => self.units().saturating_add(behind / SPLIT_ROOM),
            (_, Some(behind)) => behind / SPLIT_ROOM,
            _ => self.starts.partition_point(|s| *s <= offset).checked_sub(1).ok_or(missing)?,
        };
        let unit = self.unit(index)?;
        let inside = UnitOffset(offset.checked_sub(unit.start).ok_or(missing)?);
        Ok(Die { unit, offset: inside })
    }
}

/// Split units are counted from here on, each with its room. That is behind all
/// that a section can hold.
const SPLIT: usize = 1 << 60;
const SPLIT_ROOM: usize = 1 << 36;
/// Likewise units with types.
const TYPES: usize = 1 << 62;

fn is_skeleton(
    dwarf: &gimli::Dwarf<Reader<'_>>,
    header: &gimli::UnitHeader<Reader<'_>>,
) -> Result<bool> {
    Ok(match header.type_() {
        gimli::UnitType::Skeleton(_) => true,
        // Before version 5 only the unit's entry says it.
        gimli::UnitType::Compilation if header.version() < 5 => {
            let abbreviations = dwarf.abbreviations(header)?;
            let root = header.entry(&abbreviations, header.root_offset())?;
            root.has_attr(gimli::DW_AT_GNU_dwo_id)
        }
        _ => false,
    })
}

fn is_partial(unit: &gimli::Unit<Reader<'_>>) -> bool {
    let root = unit.entry(unit.header.root_offset());
    root.is_ok_and(|root| root.tag() == gimli::DW_TAG_partial_unit)
}

fn is_c(unit: &gimli::Unit<Reader<'_>>) -> bool {
    let Ok(root) = unit.entry(unit.header.root_offset()) else { return false };
    match root.attr_value(gimli::DW_AT_language) {
        Some(gimli::AttributeValue::Language(l)) => is_c_language(u64::from(l.0)),
        _ => false,
    }
}

/// Whether a language has no nested functions, namespaces or overloads.
pub(super) fn is_c_language(language: u64) -> bool {
    u16::try_from(language).is_ok_and(|l| {
        matches!(
            gimli::DwLang(l),
            gimli::DW_LANG_C89
                | gimli::DW_LANG_C
                | gimli::DW_LANG_C99
                | gimli::DW_LANG_C11
                | gimli::DW_LANG_C17
                | gimli::DW_LANG_Mips_Assembler
        )
    })
}

/// GCC says so in the name it gives itself.
fn is_lto<'s>(dwarf: &gimli::Dwarf<Reader<'s>>, unit: &gimli::Unit<Reader<'s>>) -> bool {
    let Ok(root) = unit.entry(unit.header.root_offset()) else { return false };
    let producer =
        root.attr_value(gimli::DW_AT_producer).and_then(|v| dwarf.attr_string(unit, v).ok());
    producer.is_some_and(|p| memchr::memmem::find(p.slice(), b"-flto").is_some())
}

impl<'s> DwarfUnit<'s> {
    /// A unit that stands for itself.
    fn new(
        inner: gimli::Unit<Reader<'s>>,
        dwarf: Arc<gimli::Dwarf<Reader<'s>>>,
        index: usize,
        start: usize,
    ) -> DwarfUnit<'s> {
        DwarfUnit {
            is_c: is_c(&inner),
            lto: is_lto(&dwarf, &inner),
            partial: is_partial(&inner),
            inner,
            dwarf,
            lines_in: None,
            index,
            start,
            base: 0,
            shared: None,
            lines: OnceCell::new(),
            functions: OnceCell::new(),
        }
    }

    /// Target of a reference, counted through all files.
    pub(super) fn global(&self, value: &Value<'_>) -> Option<usize> {
        match value {
            Value::UnitRef(offset) => self.start.checked_add(offset.0),
            Value::DebugInfoRef(offset) => self.base.checked_add(offset.0),
            Value::DebugInfoRefSup(offset) => self.shared?.checked_add(offset.0),
            _ => None,
        }
    }

    /// Directory that it was compiled in; empty where it is not stated.
    pub fn comp_dir(&self) -> String {
        self.inner.comp_dir.map(|d| d.to_string_lossy().into_owned()).unwrap_or_default()
    }
}
