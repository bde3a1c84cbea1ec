//! Copies of functions: out of line and inlined ones, and the name of what an
//! entry is a copy of.

use std::collections::BTreeSet;
use std::rc::Rc;

use rustc_hash::FxHashSet;

use super::Result;
use super::die::{Die, WalkStep};
use super::function::DwarfFunction;
use super::unit::{Dwarf, DwarfUnit};

impl<'s> Dwarf<'s> {
    /// The name of the function that `die` is, or is a copy of.
    pub fn readable_name(&self, die: &Die<'s>) -> Result<String> {
        let mut current = die.clone();
        for _ in 0..8 {
            let functions = self.functions(&current.unit)?;
            if !current.unit.is_c
                && let Some(f) = functions.all.iter().find(|f| f.offset == current.offset)
            {
                return Ok(f.readable());
            }
            let entry = self.entry(&current)?;
            match self.origin(&current, &entry)? {
                Some(next) => current = next,
                None => break,
            }
        }
        Ok(self.name(&current)?.unwrap_or_default())
    }

    /// Copies of an abstract function: out of line and inlined, in the order of
    /// the file; of Rust and C++, and of units that others share, also those in other
    /// units.
    pub fn copies(&self, origin: &Die<'s>) -> Result<Vec<Die<'s>>> {
        let mut found = Vec::new();
        self.copies_in(&origin.unit, origin, &mut found)?;
        if !origin.unit.is_c || origin.unit.lto || origin.unit.partial {
            for index in self.units_referring(origin.unit.start + origin.offset.0) {
                if index != origin.unit.index {
                    let unit = self.unit(index)?;
                    self.copies_in(&unit, origin, &mut found)?;
                }
            }
        }
        Ok(found)
    }

    /// Names of all functions that have inlined copies, as the linker calls them where that is
    /// stated.
    pub fn inlined_functions(&self) -> Result<BTreeSet<String>> {
        let mut origins = FxHashSet::default();
        for index in 0..self.units() {
            let unit = self.unit(index)?;
            unit.walk_tags(unit.inner.header.root_offset(), holds_code, &mut |e| {
                if e.tag() == gimli::DW_TAG_inlined_subroutine {
                    let value = e.attr_value(gimli::DW_AT_abstract_origin);
                    origins.extend(value.and_then(|v| unit.global(&v)));
                }
                Ok(WalkStep::Into)
            })?;
        }
        let mut names = BTreeSet::new();
        for index in 0..self.units() {
            let unit = self.unit(index)?;
            let inlined = |offset: usize| origins.contains(&(unit.start + offset));
            let functions = self.functions(&unit)?;
            let of_copies = functions.all.iter().filter(|f| inlined(f.offset.0));
            names.extend(of_copies.map(DwarfFunction::stored_name));
        }
        Ok(names)
    }

    fn copies_in(
        &self,
        unit: &Rc<DwarfUnit<'s>>,
        origin: &Die<'s>,
        found: &mut Vec<Die<'s>>,
    ) -> Result<()> {
        let global = origin.unit.start + origin.offset.0;
        let own = self.entry(origin)?;
        let decl = own.attr_value(gimli::DW_AT_decl_line).and_then(|v| super::die::unsigned(&v));
        let file = own.attr_value(gimli::DW_AT_decl_file).and_then(|v| super::die::unsigned(&v));
        unit.walk_tags(unit.inner.header.root_offset(), holds_code, &mut |e| {
            let value = e.attr_value(gimli::DW_AT_abstract_origin);
            let Some(target) = value.and_then(|v| unit.global(&v)) else {
                return Ok(WalkStep::Into);
            };
            let inlined = e.tag() == gimli::DW_TAG_inlined_subroutine;
            if target == global && (inlined || e.tag() == gimli::DW_TAG_subprogram) {
                let call = |at| e.attr_value(at).and_then(|v| super::die::unsigned(&v));
                // A copy that claims to be called from its own declaration is
                // half of a function that was split in two.
                let split = inlined
                    && call(gimli::DW_AT_call_line).is_some()
                    && call(gimli::DW_AT_call_line) == decl
                    && call(gimli::DW_AT_call_file) == file;
                if !split {
                    found.push(unit.die(e.offset()));
                }
            }
            Ok(WalkStep::Into)
        })
    }
}

/// Entries below which there is code.
fn holds_code(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_subprogram
            | gimli::DW_TAG_inlined_subroutine
            | gimli::DW_TAG_lexical_block
            | gimli::DW_TAG_namespace
            | gimli::DW_TAG_module
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
            | gimli::DW_TAG_try_block
            | gimli::DW_TAG_catch_block
    )
}
