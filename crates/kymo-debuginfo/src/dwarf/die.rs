//! Entries of the debugging information: their attributes, also those they
//! inherit from what they are copies of, and walks over the tree.

use std::rc::Rc;

use gimli::{DwAt, DwTag, UnitOffset};

use super::unit::{Dwarf, Unit};
use super::{Entry, Reader, Result, Value};

/// An entry: its unit and place.
#[derive(Clone)]
pub(crate) struct Die<'s> {
    pub(super) unit: Rc<Unit<'s>>,
    pub(super) offset: UnitOffset,
}

impl PartialEq for Die<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.unit.index == other.unit.index && self.offset == other.offset
    }
}

/// What a walk does behind an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
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

/// The same of a whole unit.
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

impl<'s> Unit<'s> {
    pub(super) fn die(self: &Rc<Self>, offset: UnitOffset) -> Die<'s> {
        Die { unit: self.clone(), offset }
    }

    /// Visits what is below `root`, in the order of the file.
    pub(super) fn walk(
        &self,
        root: UnitOffset,
        visit: &mut dyn FnMut(&Entry<'s>) -> Result<Walk>,
    ) -> Result<()> {
        self.walk_tags(root, |_| true, visit)
    }

    /// The same, passing over entries of other tags (and what is below them)
    /// without reading them: most of a unit are types.
    pub(super) fn walk_tags(
        &self,
        root: UnitOffset,
        wanted: fn(DwTag) -> bool,
        visit: &mut dyn FnMut(&Entry<'s>) -> Result<Walk>,
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
                Walk::Past
            } else {
                raw.skip_attributes(abbreviation.attributes())?;
                continue;
            };
            match step {
                Walk::Stop => return Ok(()),
                Walk::Into => {}
                Walk::Past if abbreviation.has_children() => {
                    match entry.attr_value(gimli::DW_AT_sibling) {
                        Some(Value::UnitRef(next)) if next > offset => {
                            raw = self.inner.entries_raw(Some(next))?;
                            base = depth;
                        }
                        _ => past = Some(depth),
                    }
                }
                Walk::Past => {}
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
    pub(super) fn entry(&self, die: &Die<'s>) -> Result<Entry<'s>> {
        Ok(die.unit.inner.entry(die.offset)?)
    }

    /// The entry that an attribute refers to.
    pub(super) fn follow(&self, unit: &Rc<Unit<'s>>, value: Value<'s>) -> Result<Option<Die<'s>>> {
        match value {
            Value::UnitRef(offset) => Ok(Some(unit.die(offset))),
            Value::DebugTypesRef(signature) => self.type_of_signature(unit, signature),
            other => match unit.global(&other) {
                Some(offset) => self.die_at(offset).map(Some),
                None => Ok(None),
            },
        }
    }

    pub(super) fn reference(
        &self,
        die: &Die<'s>,
        entry: &Entry<'s>,
        at: DwAt,
    ) -> Result<Option<Die<'s>>> {
        match entry.attr_value(at) {
            Some(value) => self.follow(&die.unit, value),
            None => Ok(None),
        }
    }

    /// What an entry is a copy or the definition of.
    pub(super) fn origin(&self, die: &Die<'s>, entry: &Entry<'s>) -> Result<Option<Die<'s>>> {
        match self.reference(die, entry, gimli::DW_AT_abstract_origin)? {
            Some(origin) => Ok(Some(origin)),
            None => self.reference(die, entry, gimli::DW_AT_specification),
        }
    }

    /// An attribute of the entry or of what it is a copy of, with the unit that
    /// the value is to be read in.
    pub(super) fn inherited(
        &self,
        die: &Die<'s>,
        at: DwAt,
    ) -> Result<Option<(Rc<Unit<'s>>, Value<'s>)>> {
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

    pub(super) fn string(&self, unit: &Unit<'s>, value: Value<'s>) -> Option<&'s [u8]> {
        unit.dwarf.attr_string(&unit.inner, value).ok().map(|r| r.slice())
    }

    /// The name of an entry, its own or inherited.
    pub(super) fn name(&self, die: &Die<'s>) -> Result<Option<String>> {
        let Some((unit, value)) = self.inherited(die, gimli::DW_AT_name)? else { return Ok(None) };
        Ok(self.string(&unit, value).map(|b| String::from_utf8_lossy(b).into_owned()))
    }

    pub(super) fn number(&self, die: &Die<'s>, at: DwAt) -> Result<Option<u64>> {
        Ok(self.inherited(die, at)?.and_then(|(_, v)| unsigned(&v)))
    }

    /// The entry of the type.
    pub(super) fn type_of(&self, die: &Die<'s>) -> Result<Option<Die<'s>>> {
        match self.inherited(die, gimli::DW_AT_type)? {
            Some((unit, value)) => self.follow(&unit, value),
            None => Ok(None),
        }
    }

    /// Spans of code of an entry of `unit`.
    pub(super) fn spans(&self, unit: &Unit<'s>, entry: &Entry<'s>) -> Result<Vec<(u64, u64)>> {
        let mut spans = Vec::new();
        let mut ranges = die_ranges(&unit.dwarf, &unit.inner, entry)?;
        while let Some(range) = ranges.next()? {
            if range.begin < range.end {
                spans.push((range.begin, range.end));
            }
        }
        Ok(spans)
    }

    pub(super) fn covers(&self, unit: &Unit<'s>, entry: &Entry<'s>, pc: u64) -> Result<bool> {
        let has = entry
            .attrs()
            .iter()
            .any(|a| matches!(a.name(), gimli::DW_AT_low_pc | gimli::DW_AT_ranges));
        Ok(has && self.spans(unit, entry)?.iter().any(|(a, b)| (*a..*b).contains(&pc)))
    }

    /// Where an entry is entered: its stated entry, else its first address.
    pub(super) fn entry_pc(&self, unit: &Unit<'s>, entry: &Entry<'s>) -> Result<Option<u64>> {
        if let Some(value) = entry.attr_value(gimli::DW_AT_entry_pc) {
            if let Some(addr) = unit.dwarf.attr_address(&unit.inner, value)? {
                return Ok(Some(addr));
            }
            if let Some(offset) = unsigned(&value) {
                let base = self.low_pc(unit, entry)?;
                let first = self.spans(unit, entry)?.first().map(|s| s.0);
                return Ok(base.or(first).map(|b| b.wrapping_add(offset)));
            }
        }
        match self.low_pc(unit, entry)? {
            Some(low) => Ok(Some(low)),
            None => Ok(self.spans(unit, entry)?.first().map(|s| s.0)),
        }
    }

    pub(super) fn low_pc(&self, unit: &Unit<'s>, entry: &Entry<'s>) -> Result<Option<u64>> {
        match entry.attr_value(gimli::DW_AT_low_pc) {
            Some(value) => Ok(unit.dwarf.attr_address(&unit.inner, value)?),
            None => Ok(None),
        }
    }
}

/// A number in any form that has one.
pub(super) fn unsigned(value: &Value<'_>) -> Option<u64> {
    match value {
        Value::FileIndex(n) => Some(*n),
        other => other.udata_value(),
    }
}
