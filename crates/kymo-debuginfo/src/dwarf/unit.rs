//! The debugging information as a whole and its units, of which only the last
//! few that were asked for are kept parsed.

use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use gimli::{DebugInfoOffset, UnitOffset};

use super::function::Functions;
use super::lines::Lines;
use super::sections::Sections;
use super::{Reader, Result};

/// Units kept parsed. One needs some 100 KiB; a search visits one at a time.
const KEPT: usize = 24;

/// Bytes touched before they are given back.
const GIVE_BACK: usize = 8 << 20;

/// Debugging information, borrowed from [`Sections`].
pub struct Dwarf<'s> {
    pub(super) sections: &'s Sections<'s>,
    pub(super) dwarf: gimli::Dwarf<Reader<'s>>,
    /// Where units begin in `.debug_info`, ascending.
    pub(super) starts: Vec<usize>,
    kept: RefCell<VecDeque<Rc<Unit<'s>>>>,
}

/// A parsed unit.
pub(crate) struct Unit<'s> {
    pub(super) inner: gimli::Unit<Reader<'s>>,
    /// Its place in the order of units.
    pub(super) index: usize,
    /// Where it begins in `.debug_info`.
    pub(super) start: usize,
    /// Whether its language has no nested functions, namespaces or overloads.
    pub(super) is_c: bool,
    /// Whether the linker optimised across units, which then refer to each other.
    pub(super) lto: bool,
    pub(super) lines: OnceCell<Rc<Lines>>,
    pub(super) functions: OnceCell<Rc<Functions<'s>>>,
}

impl<'s> Dwarf<'s> {
    /// Reads where the units are, and nothing else.
    pub fn new(sections: &'s Sections<'s>) -> Result<Dwarf<'s>> {
        let endian = sections.endian;
        let dwarf = sections.dwarf.borrow(|bytes| gimli::EndianSlice::new(bytes, endian));
        let mut starts = Vec::new();
        let mut headers = dwarf.units();
        let info = gimli::Section::reader(&dwarf.debug_info).slice();
        let mut given_back = 0;
        while let Some(header) = headers.next()? {
            if let Some(offset) = header.debug_info_offset() {
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
        Ok(Dwarf { sections, dwarf, starts, kept: RefCell::default() })
    }

    /// How many units there are.
    pub fn units(&self) -> usize {
        self.starts.len()
    }

    /// Unit number `index`.
    pub(super) fn unit(&self, index: usize) -> Result<Rc<Unit<'s>>> {
        let mut kept = self.kept.borrow_mut();
        let at = kept.iter().position(|u| u.index == index);
        if let Some(unit) = at.and_then(|at| kept.remove(at)) {
            kept.push_front(unit.clone());
            return Ok(unit);
        }
        let start = self
            .starts
            .get(index)
            .copied()
            .ok_or(gimli::Error::NoEntryAtGivenOffset(index as u64))?;
        let header = self.dwarf.unit_header(DebugInfoOffset(start))?;
        let inner = self.dwarf.unit(header)?;
        let is_c = is_c(&inner);
        let lto = is_lto(&self.dwarf, &inner);
        let unit = Rc::new(Unit {
            inner,
            index,
            start,
            is_c,
            lto,
            lines: OnceCell::new(),
            functions: OnceCell::new(),
        });
        kept.truncate(KEPT - 1);
        kept.push_front(unit.clone());
        Ok(unit)
    }

    /// The unit that covers an offset of `.debug_info`, and the offset in it.
    pub(super) fn unit_at(&self, offset: usize) -> Result<(Rc<Unit<'s>>, UnitOffset)> {
        let after = self.starts.partition_point(|s| *s <= offset);
        let index =
            after.checked_sub(1).ok_or(gimli::Error::NoEntryAtGivenOffset(offset as u64))?;
        let unit = self.unit(index)?;
        let inside = UnitOffset(offset - unit.start);
        Ok((unit, inside))
    }
}

fn is_c(unit: &gimli::Unit<Reader<'_>>) -> bool {
    let Ok(root) = unit.entry(unit.header.root_offset()) else { return false };
    match root.attr_value(gimli::DW_AT_language) {
        Some(gimli::AttributeValue::Language(l)) => matches!(
            l,
            gimli::DW_LANG_C89
                | gimli::DW_LANG_C
                | gimli::DW_LANG_C99
                | gimli::DW_LANG_C11
                | gimli::DW_LANG_C17
                | gimli::DW_LANG_Mips_Assembler
        ),
        _ => false,
    }
}

/// GCC says so in the name it gives itself.
fn is_lto<'s>(dwarf: &gimli::Dwarf<Reader<'s>>, unit: &gimli::Unit<Reader<'s>>) -> bool {
    let Ok(root) = unit.entry(unit.header.root_offset()) else { return false };
    let producer =
        root.attr_value(gimli::DW_AT_producer).and_then(|v| dwarf.attr_string(unit, v).ok());
    producer.is_some_and(|p| memchr::memmem::find(p.slice(), b"-flto").is_some())
}

impl Unit<'_> {
    pub(super) fn comp_dir(&self) -> String {
        self.inner.comp_dir.map(|d| d.to_string_lossy().into_owned()).unwrap_or_default()
    }
}
