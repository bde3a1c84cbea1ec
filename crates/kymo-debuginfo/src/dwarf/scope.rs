//! Scopes around an address: function, inlined copies, lexical blocks; and which variable a name
//! refers to there.

use super::die::{Die, WalkStep};
use super::unit::Dwarf;
use super::{Entry, Result};

/// A variable or parameter seen from a place.
#[derive(Clone)]
pub struct VisibleVariable<'s> {
    /// Its entry.
    pub die: Die<'s>,
    /// Depth of its entry below the scope.
    pub depth: isize,
    /// It belongs to a function inlined into the one that was asked about.
    pub inlined: bool,
    /// Whether it is a parameter.
    pub parameter: bool,
}

impl<'s> Dwarf<'s> {
    /// The function at `pc` and the inlined copies in it, outermost first.
    pub fn chain_at(&self, function: &Die<'s>, pc: u64) -> Result<Vec<Die<'s>>> {
        let unit = function.unit.clone();
        let mut chain = vec![function.clone()];
        unit.walk(function.offset, &mut |e| {
            if !scope_tag(e.tag()) || !self.covers(&unit, e, pc)? {
                return Ok(WalkStep::Past);
            }
            if e.tag() == gimli::DW_TAG_inlined_subroutine {
                chain.push(unit.die(e.offset()));
            }
            Ok(WalkStep::Into)
        })?;
        Ok(chain)
    }

    /// Variables and parameters in scope at `pc` below `scope`, in the order of
    /// the file.
    pub fn variables_at(&self, scope: &Die<'s>, pc: u64) -> Result<Vec<VisibleVariable<'s>>> {
        let unit = scope.unit.clone();
        let mut seen = Vec::new();
        let mut inlines: Vec<isize> = Vec::new();
        unit.walk(scope.offset, &mut |e| {
            inlines.retain(|d| *d < e.depth());
            let parameter = e.tag() == gimli::DW_TAG_formal_parameter;
            if parameter || e.tag() == gimli::DW_TAG_variable {
                let die = unit.die(e.offset());
                seen.push(VisibleVariable {
                    die,
                    depth: e.depth(),
                    inlined: !inlines.is_empty(),
                    parameter,
                });
                return Ok(WalkStep::Past);
            }
            if !scope_tag(e.tag()) || !self.covers(&unit, e, pc)? {
                return Ok(WalkStep::Past);
            }
            if e.tag() == gimli::DW_TAG_inlined_subroutine {
                inlines.push(e.depth());
            }
            Ok(WalkStep::Into)
        })?;
        Ok(seen)
    }

    /// The variable that `name` means at `pc`: the innermost of the function
    /// itself, then of functions inlined into it there.
    pub fn variable_at(
        &self,
        scope: &Die<'s>,
        name: &str,
        pc: u64,
    ) -> Result<Option<VisibleVariable<'s>>> {
        let mut best: Option<VisibleVariable<'s>> = None;
        for seen in self.variables_at(scope, pc)? {
            if self.name(&seen.die)?.as_deref() != Some(name) {
                continue;
            }
            let better =
                best.as_ref().is_none_or(|b| (b.inlined, -b.depth) >= (seen.inlined, -seen.depth));
            if better {
                best = Some(seen);
            }
        }
        Ok(best)
    }

    /// A variable of the unit itself, or of its namespaces.
    pub fn global(&self, scope: &Die<'s>, name: &str) -> Result<Option<Die<'s>>> {
        let unit = scope.unit.clone();
        let last = name.rsplit("::").next().unwrap_or(name);
        let mut path: Vec<(isize, String)> = Vec::new();
        let mut found: Option<Die<'s>> = None;
        unit.walk(unit.inner.header.root_offset(), &mut |e| {
            path.retain(|p| p.0 < e.depth());
            let die = unit.die(e.offset());
            match e.tag() {
                gimli::DW_TAG_namespace => {
                    let own = self.name(&die)?.unwrap_or_default();
                    path.push((e.depth(), own));
                    Ok(WalkStep::Into)
                }
                gimli::DW_TAG_variable if self.name(&die)?.as_deref() == Some(last) => {
                    let mut full: Vec<&str> = path.iter().map(|p| p.1.as_str()).collect();
                    full.push(last);
                    if !super::names::path_matches(name, &full.join("::")) {
                        return Ok(WalkStep::Past);
                    }
                    // A definition is better than the declaration before it.
                    let defined = has_place(e);
                    if defined || found.is_none() {
                        found = Some(die);
                    }
                    Ok(if defined { WalkStep::Stop } else { WalkStep::Past })
                }
                _ => Ok(WalkStep::Past),
            }
        })?;
        Ok(found)
    }
}

/// Entries that variables are in.
fn scope_tag(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_lexical_block
            | gimli::DW_TAG_inlined_subroutine
            | gimli::DW_TAG_try_block
            | gimli::DW_TAG_catch_block
            | gimli::DW_TAG_with_stmt
            | gimli::DW_TAG_entry_point
    )
}

fn has_place(entry: &Entry<'_>) -> bool {
    entry.has_attr(gimli::DW_AT_location) || entry.has_attr(gimli::DW_AT_const_value)
}
