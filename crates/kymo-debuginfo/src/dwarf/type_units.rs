//! Types that stand in units of their own (`-fdebug-types-section`): entries refer to
//! them by signatures. In version 5 such units lie among the others, in version 4 in
//! `.debug_types`, and with split units in the split file or its package.

use std::rc::Rc;
use std::sync::Arc;

use gimli::{DebugTypeSignature, Section as _, UnitOffset, UnitType};
use rustc_hash::FxHashMap;

use super::die::Die;
use super::unit::{Dwarf, DwarfUnit};
use super::{Reader, Result};

/// A unit with a type.
#[derive(Clone)]
pub(super) struct TypeUnit<'s> {
    pub(super) dwarf: Arc<gimli::Dwarf<Reader<'s>>>,
    pub(super) header: gimli::UnitHeader<Reader<'s>>,
    /// Its entry in the unit.
    at: UnitOffset,
}

/// Key of a signature: the address of the file's information in memory, and the signature.
type Signature = (usize, u64);

/// Type units found so far.
#[derive(Default)]
pub(super) struct TypeUnits<'s> {
    /// Headers of the files that were read last.
    files: Vec<(usize, FxHashMap<u64, TypeUnit<'s>>)>,
    /// Numbers of units that were asked for; none where there is no such unit.
    known: FxHashMap<Signature, Option<usize>>,
    units: Vec<TypeUnit<'s>>,
}

/// Files whose headers are kept.
const KEPT: usize = 4;
/// Types that are asked for in one search.
const MOST: usize = 1 << 20;

/// The place of a file's information in memory: it stays there while it is open.
fn place_of(dwarf: &gimli::Dwarf<Reader<'_>>) -> usize {
    let info = dwarf.debug_info.reader().slice();
    let types = dwarf.debug_types.reader().slice();
    if info.is_empty() { types.as_ptr() as usize } else { info.as_ptr() as usize }
}

/// All units with types of a file, up to the first that is damaged.
fn headers<'s>(dwarf: &Arc<gimli::Dwarf<Reader<'s>>>) -> FxHashMap<u64, TypeUnit<'s>> {
    let mut found = FxHashMap::default();
    let mut add = |header: gimli::UnitHeader<Reader<'s>>| {
        if let UnitType::Type { type_signature, type_offset }
        | UnitType::SplitType { type_signature, type_offset } = header.type_()
        {
            let unit = TypeUnit { dwarf: dwarf.clone(), header, at: type_offset };
            // The linker keeps one of each; of several the first counts.
            found.entry(type_signature.0).or_insert(unit);
        }
    };
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        add(header);
    }
    let mut units = dwarf.type_units();
    while let Ok(Some(header)) = units.next() {
        add(header);
    }
    found
}

impl<'s> Dwarf<'s> {
    /// The entry of the type with a signature, as `unit` means it.
    pub(super) fn type_of_signature(
        &self,
        unit: &Rc<DwarfUnit<'s>>,
        signature: DebugTypeSignature,
    ) -> Result<Option<Die<'s>>> {
        let key = (place_of(&unit.dwarf), signature.0);
        let known = self.type_units.borrow().known.get(&key).copied();
        let number = match known {
            Some(number) => number,
            None => {
                let found = self.find_type_unit(unit, signature)?;
                let mut all = self.type_units.borrow_mut();
                let number = found.filter(|_| all.units.len() < MOST).map(|found| {
                    all.units.push(found);
                    all.units.len() - 1
                });
                all.known.insert(key, number);
                number
            }
        };
        let Some(found) = number.and_then(|n| Some((n, self.type_unit(n)?))) else {
            return Ok(None);
        };
        let unit = self.unit(self.units().saturating_add(found.0))?;
        Ok(Some(unit.die(found.1.at)))
    }

    /// Unit number `number` of those that were asked for.
    pub(super) fn type_unit(&self, number: usize) -> Option<TypeUnit<'s>> {
        self.type_units.borrow().units.get(number).cloned()
    }

    /// The type of this name and kind in `.debug_types`, which is searched wholly.
    pub(super) fn type_of_name(&self, name: &str, tag: gimli::DwTag) -> Result<Option<Die<'s>>> {
        let mut units = self.dwarf.type_units();
        while let Some(header) = units.next()? {
            let UnitType::Type { type_signature, type_offset } = header.type_() else { continue };
            let unit = self.dwarf.unit(header)?;
            let entry = unit.entry(type_offset)?;
            let stated = entry.attr_value(gimli::DW_AT_name);
            let stated = stated.and_then(|v| self.dwarf.attr_string(&unit, v).ok());
            if entry.tag() == tag && stated.is_some_and(|n| n.slice() == name.as_bytes()) {
                // Any unit of the binary means the same by a signature.
                return self.type_of_signature(&self.unit(0)?, type_signature);
            }
        }
        Ok(None)
    }

    fn find_type_unit(
        &self,
        unit: &Rc<DwarfUnit<'s>>,
        signature: DebugTypeSignature,
    ) -> Result<Option<TypeUnit<'s>>> {
        // In a package each type is found by the package's own table.
        if let Some(dwarf) = self.sections.packed_type(&self.dwarf, signature)? {
            let dwarf = Arc::new(dwarf);
            return Ok(headers(&dwarf).remove(&signature.0));
        }
        let place = place_of(&unit.dwarf);
        let mut all = self.type_units.borrow_mut();
        if let Some((_, headers)) = all.files.iter().find(|f| f.0 == place) {
            return Ok(headers.get(&signature.0).cloned());
        }
        let headers = headers(&unit.dwarf);
        let found = headers.get(&signature.0).cloned();
        if all.files.len() >= KEPT {
            all.files.remove(0);
        }
        all.files.push((place, headers));
        Ok(found)
    }
}
