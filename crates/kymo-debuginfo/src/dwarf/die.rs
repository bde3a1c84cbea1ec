//! Entries of the debugging information: their attributes, also those they
//! inherit from what they are copies of, and walks over the tree.

use std::ops::ControlFlow;
use std::rc::Rc;

use gimli::{DwAt, DwTag, UnitOffset};

use super::span_set::SpanSet;
use super::unit::{Dwarf, DwarfUnit};
use super::{DwarfError, Entry, Reader, Result, Value};

/// An entry: its unit and place.
#[derive(Clone)]
pub struct Die<'s> {
    /// Unit it is in.
    pub unit: Rc<DwarfUnit<'s>>,
    /// Offset in the unit.
    pub offset: UnitOffset,
}

impl PartialEq for Die<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.unit.index == other.unit.index && self.offset == other.offset
    }
}

/// Next step of a walk after an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkStep {
    /// Go on with its children.
    Into,
    /// Go on behind its children.
    Past,
    /// Stop.
    Stop,
}

/// Spans of code of an entry. gimli adds a size to a first address unseen, which panics where
/// overflows are looked for: such an entry ends behind all addresses and is damaged.
pub(super) fn die_ranges<'s>(
    dwarf: &gimli::Dwarf<Reader<'s>>,
    unit: &gimli::Unit<Reader<'s>>,
    entry: &Entry<'s>,
) -> Result<gimli::RangeIter<Reader<'s>>> {
    if let Some(gimli::AttributeValue::Udata(size)) = entry.attr_value(gimli::DW_AT_high_pc)
        && let Some(low) = entry.attr_value(gimli::DW_AT_low_pc)
        && let Some(low) = dwarf.attr_address(unit, low)?
        && low.checked_add(size).is_none()
    {
        return Err(gimli::Error::AddressOverflow.into());
    }
    Ok(dwarf.die_ranges(unit, entry)?)
}

/// Address ranges of a whole unit.
pub(super) fn unit_ranges<'s>(
    dwarf: &gimli::Dwarf<Reader<'s>>,
    unit: &gimli::Unit<Reader<'s>>,
) -> Result<gimli::RangeIter<Reader<'s>>> {
    let mut cursor = unit.entries();
    cursor.next_dfs()?;
    die_ranges(dwarf, unit, cursor.current().ok_or(gimli::Error::MissingUnitDie)?)
}

/// Copies of copies end after these; longer chains are loops.
const CHAIN: usize = 16;

impl<'s> DwarfUnit<'s> {
    /// The entry at an offset.
    pub fn die(self: &Rc<Self>, offset: UnitOffset) -> Die<'s> {
        Die { unit: self.clone(), offset }
    }

    /// Visits what is below `root`, in the order of the file.
    pub fn walk(
        &self,
        root: UnitOffset,
        visit: &mut dyn FnMut(&Entry<'s>) -> Result<WalkStep>,
    ) -> Result<()> {
        self.walk_tags(root, |_| true, visit)
    }

    /// Visits the entries of `wanted` tags below `root`, skipping others (and what is below them)
    /// without reading them: most of a unit are types.
    pub fn walk_tags(
        &self,
        root: UnitOffset,
        wanted: fn(DwTag) -> bool,
        visit: &mut dyn FnMut(&Entry<'s>) -> Result<WalkStep>,
    ) -> Result<()> {
        let mut raw = self.inner.entries_raw(Some(root))?;
        let mut base = 0isize;
        let mut entry = Entry::null();
        // Entries deeper than this are below one that was passed over.
        let mut past: Option<isize> = None;
        if !raw.read_entry(&mut entry)? || !entry.has_children() {
            return Ok(());
        }
        while !raw.is_empty() && raw.next_depth() + base > 0 {
            let depth = raw.next_depth() + base;
            let offset = raw.next_offset();
            let Some(abbreviation) = raw.read_abbreviation()? else { continue };
            if past.is_some_and(|p| depth > p) {
                raw.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            past = None;
            let step = if wanted(abbreviation.tag()) {
                entry.tag = abbreviation.tag();
                entry.has_children = abbreviation.has_children();
                entry.offset = offset;
                entry.depth = depth;
                raw.read_attributes(abbreviation.attributes(), &mut entry.attrs)?;
                visit(&entry)?
            } else if abbreviation.has_children() {
                read_sibling(&mut raw, abbreviation, &mut entry)?;
                entry.offset = offset;
                WalkStep::Past
            } else {
                raw.skip_attributes(abbreviation.attributes())?;
                continue;
            };
            match step {
                WalkStep::Stop => return Ok(()),
                WalkStep::Into => {}
                WalkStep::Past if abbreviation.has_children() => {
                    match entry.attr_value(gimli::DW_AT_sibling) {
                        Some(Value::UnitRef(next)) if next > offset => {
                            raw = self.inner.entries_raw(Some(next))?;
                            base = depth;
                        }
                        _ => past = Some(depth),
                    }
                }
                WalkStep::Past => {}
            }
        }
        Ok(())
    }
}

/// Reads of an entry only where its next sibling is.
fn read_sibling<'s>(
    raw: &mut gimli::EntriesRaw<'_, Reader<'s>>,
    abbreviation: &gimli::Abbreviation,
    entry: &mut Entry<'s>,
) -> Result<()> {
    entry.attrs.clear();
    let specs = abbreviation.attributes();
    let at = specs.iter().position(|s| s.name() == gimli::DW_AT_sibling).unwrap_or(specs.len());
    let (before, rest) = specs.split_at(at);
    raw.skip_attributes(before)?;
    if let Some((sibling, rest)) = rest.split_first() {
        entry.attrs.push(raw.read_attribute(*sibling)?);
        raw.skip_attributes(rest)?;
    }
    Ok(())
}

impl<'s> Dwarf<'s> {
    /// Attributes of an entry.
    pub fn entry(&self, die: &Die<'s>) -> Result<Entry<'s>> {
        Ok(die.unit.inner.entry(die.offset)?)
    }

    /// The entry that an attribute refers to.
    pub(super) fn follow(
        &self,
        unit: &Rc<DwarfUnit<'s>>,
        value: Value<'s>,
    ) -> Result<Option<Die<'s>>> {
        match value {
            Value::UnitRef(offset) => Ok(Some(unit.die(offset))),
            Value::DebugTypesRef(signature) => self.type_of_signature(unit, signature),
            other => match unit.global(&other) {
                Some(offset) => self.die_at(offset).map(Some),
                None => Ok(None),
            },
        }
    }

    /// The entry that an attribute of an entry refers to.
    pub fn reference(&self, die: &Die<'s>, entry: &Entry<'s>, at: DwAt) -> Result<Option<Die<'s>>> {
        match entry.attr_value(at) {
            Some(value) => self.follow(&die.unit, value),
            None => Ok(None),
        }
    }

    /// Entry that this one is a copy or the definition of.
    pub fn origin(&self, die: &Die<'s>, entry: &Entry<'s>) -> Result<Option<Die<'s>>> {
        match self.reference(die, entry, gimli::DW_AT_abstract_origin)? {
            Some(origin) => Ok(Some(origin)),
            None => self.reference(die, entry, gimli::DW_AT_specification),
        }
    }

    /// An attribute of the entry or of what it is a copy of, with the unit that
    /// the value is to be read in.
    pub fn inherited(
        &self,
        die: &Die<'s>,
        at: DwAt,
    ) -> Result<Option<(Rc<DwarfUnit<'s>>, Value<'s>)>> {
        let mut die = die.clone();
        for _ in 0..CHAIN {
            let entry = self.entry(&die)?;
            if let Some(value) = entry.attr_value(at) {
                return Ok(Some((die.unit, value)));
            }
            match self.origin(&die, &entry)? {
                Some(next) => die = next,
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Text of an attribute of `unit`.
    pub fn string(&self, unit: &DwarfUnit<'s>, value: Value<'s>) -> Option<&'s [u8]> {
        unit.dwarf.attr_string(&unit.inner, value).ok().map(|r| r.slice())
    }

    /// The name of an entry, its own or inherited.
    pub fn name(&self, die: &Die<'s>) -> Result<Option<String>> {
        let Some((unit, value)) = self.inherited(die, gimli::DW_AT_name)? else { return Ok(None) };
        Ok(self.string(&unit, value).map(|b| String::from_utf8_lossy(b).into_owned()))
    }

    /// Number of an attribute, the entry's own or inherited.
    pub fn number(&self, die: &Die<'s>, at: DwAt) -> Result<Option<u64>> {
        Ok(self.inherited(die, at)?.and_then(|(_, v)| unsigned(&v)))
    }

    /// The entry of the type.
    pub fn type_of(&self, die: &Die<'s>) -> Result<Option<Die<'s>>> {
        match self.inherited(die, gimli::DW_AT_type)? {
            Some((unit, value)) => self.follow(&unit, value),
            None => Ok(None),
        }
    }

    /// Shows each span of code of an entry of `unit` until it is enough.
    pub(super) fn each_span(
        &self,
        unit: &DwarfUnit<'s>,
        entry: &Entry<'s>,
        visit: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut ranges = die_ranges(&unit.dwarf, &unit.inner, entry)?;
        while let Some(range) = ranges.next()? {
            if range.begin < range.end && visit(range.begin, range.end).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Spans of code of an entry of `unit`.
    pub fn spans(&self, unit: &DwarfUnit<'s>, entry: &Entry<'s>) -> Result<Vec<(u64, u64)>> {
        const MOST: usize = super::budget::LIMIT / size_of::<(u64, u64)>();
        let mut spans = Vec::new();
        self.each_span(unit, entry, &mut |begin, end| {
            spans.push((begin, end));
            if spans.len() > MOST { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if spans.len() > MOST {
            return Err(DwarfError::TooMuchMemory { limit: super::budget::LIMIT });
        }
        Ok(spans)
    }

    /// Offset of an entry's range list, if it has one.
    pub(super) fn span_list(
        &self,
        unit: &DwarfUnit<'s>,
        entry: &Entry<'s>,
    ) -> Result<Option<usize>> {
        let Some(value) = entry.attr_value(gimli::DW_AT_ranges) else { return Ok(None) };
        Ok(unit.dwarf.attr_ranges_offset(&unit.inner, value)?.map(|offset| offset.0))
    }

    /// Whether the code of an entry of `unit` covers an address.
    pub fn covers(&self, unit: &DwarfUnit<'s>, entry: &Entry<'s>, pc: u64) -> Result<bool> {
        /// A longer list is read once and kept, since many entries may share it.
        const SHORT: usize = 64;
        let has = entry
            .attrs()
            .iter()
            .any(|a| matches!(a.name(), gimli::DW_AT_low_pc | gimli::DW_AT_ranges));
        if !has {
            return Ok(false);
        }
        let (mut hit, mut seen) = (false, 0);
        self.each_span(unit, entry, &mut |begin, end| {
            hit = (begin..end).contains(&pc);
            seen += 1;
            if hit || seen > SHORT { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if hit || seen <= SHORT {
            return Ok(hit);
        }
        let Some(list) = self.span_list(unit, entry)? else { return Ok(false) };
        let key = (unit.index, list);
        if let Some(known) = self.long_lists.borrow().get(&key) {
            return Ok(known.contains(pc));
        }
        let spans = self.spans(unit, entry)?;
        self.charge(spans.len() * size_of::<(u64, u64)>())?;
        let set = SpanSet::new(spans);
        let hit = set.contains(pc);
        self.long_lists.borrow_mut().insert(key, set);
        Ok(hit)
    }

    fn first_span(&self, unit: &DwarfUnit<'s>, entry: &Entry<'s>) -> Result<Option<u64>> {
        let mut first = None;
        self.each_span(unit, entry, &mut |begin, _| {
            first = Some(begin);
            ControlFlow::Break(())
        })?;
        Ok(first)
    }

    /// Highest end of the spans of an entry of `unit`.
    pub(super) fn last_end(&self, unit: &DwarfUnit<'s>, entry: &Entry<'s>) -> Result<Option<u64>> {
        let mut last = None;
        self.each_span(unit, entry, &mut |_, end| {
            last = last.max(Some(end));
            ControlFlow::Continue(())
        })?;
        Ok(last)
    }

    /// Entry address: the stated one, else the first address.
    pub fn entry_pc(&self, unit: &DwarfUnit<'s>, entry: &Entry<'s>) -> Result<Option<u64>> {
        if let Some(value) = entry.attr_value(gimli::DW_AT_entry_pc) {
            if let Some(addr) = unit.dwarf.attr_address(&unit.inner, value)? {
                return Ok(Some(addr));
            }
            if let Some(offset) = unsigned(&value) {
                let base = self.low_pc(unit, entry)?;
                let first = self.first_span(unit, entry)?;
                return Ok(base.or(first).map(|b| b.wrapping_add(offset)));
            }
        }
        match self.low_pc(unit, entry)? {
            Some(low) => Ok(Some(low)),
            None => self.first_span(unit, entry),
        }
    }

    pub(super) fn low_pc(&self, unit: &DwarfUnit<'s>, entry: &Entry<'s>) -> Result<Option<u64>> {
        match entry.attr_value(gimli::DW_AT_low_pc) {
            Some(value) => Ok(unit.dwarf.attr_address(&unit.inner, value)?),
            None => Ok(None),
        }
    }
}

/// A number in any form that has one.
pub fn unsigned(value: &Value<'_>) -> Option<u64> {
    match value {
        Value::FileIndex(n) => Some(*n),
        other => other.udata_value(),
    }
}
