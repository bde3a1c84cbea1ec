//! `--vars`: which variables are accessible at a place, and where in the
//! function each of them is alive.

use super::Result;
use super::die::Walk;
use super::finder::{FindError, Finder, Located, Site};
use super::location::{Alive, Loc};
use super::scope::Seen;
use crate::probe::Description;

/// A place and its variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceVariables {
    /// The place.
    pub place: Located,
    /// Variables of the function, in the order of their text.
    pub locals: Vec<Variable>,
    /// Variables of the unit, if asked for.
    pub externs: Vec<Variable>,
}

/// A variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variable {
    /// Its type; none if unknown.
    pub kind: Option<String>,
    /// Its name.
    pub name: String,
    /// Whether it can be read at the place.
    pub accessible: bool,
    /// Spans from the function's entry where it is alive.
    pub alive: Vec<(u64, u64)>,
}

impl<'s> Finder<'_, 's> {
    /// Variables at the places of a description.
    pub fn variables(
        &mut self,
        d: &Description,
        externs: bool,
    ) -> std::result::Result<Vec<PlaceVariables>, FindError> {
        let mut places = Vec::new();
        for site in self.sites(d)? {
            let place = self.describe_place(&site, d)?;
            let locals = self.locals(&site)?;
            let externs = if externs { self.externs(&site)? } else { Vec::new() };
            places.push(PlaceVariables { place, locals, externs });
        }
        Ok(places)
    }

    fn locals(&self, site: &Site<'s>) -> Result<Vec<Variable>> {
        let mut all = Vec::new();
        for seen in self.dwarf.variables_at(&site.scope, site.addr)? {
            all.extend(self.variable(site, &seen)?);
        }
        all.sort();
        all.dedup();
        Ok(all)
    }

    fn variable(&self, site: &Site<'s>, seen: &Seen<'s>) -> Result<Option<Variable>> {
        let Some(name) = self.dwarf.name(&seen.die)? else { return Ok(None) };
        let values = self.values(site)?;
        let entry = self.dwarf.entry(&seen.die)?;
        let accessible = matches!(values.context.locate(&seen.die, &entry)?, Some(loc) if !matches!(loc, Loc::Gone(_)));
        let base = values.context.entry.unwrap_or(0);
        let alive = match values.context.alive(&seen.die)? {
            Some(Alive::Spans(spans)) => spans,
            Some(Alive::Scope) => self.enclosing(site, seen)?,
            None => Vec::new(),
        };
        let alive =
            alive.into_iter().map(|(a, b)| (a.wrapping_sub(base), b.wrapping_sub(base))).collect();
        Ok(Some(Variable { kind: self.dwarf.type_text(&seen.die)?, name, accessible, alive }))
    }

    /// Spans of the block that a variable is declared in.
    fn enclosing(&self, site: &Site<'s>, seen: &Seen<'s>) -> Result<Vec<(u64, u64)>> {
        let unit = site.scope.unit.clone();
        let mut spans = self.dwarf.spans(&unit, &self.dwarf.entry(&site.scope)?)?;
        let mut blocks: Vec<(isize, Vec<(u64, u64)>)> = Vec::new();
        unit.walk(site.scope.offset, &mut |e| {
            blocks.retain(|b| b.0 < e.depth());
            if e.offset() == seen.die.offset {
                if let Some((_, inner)) = blocks.last() {
                    spans.clone_from(inner);
                }
                return Ok(Walk::Stop);
            }
            if matches!(e.tag(), gimli::DW_TAG_lexical_block | gimli::DW_TAG_inlined_subroutine) {
                blocks.push((e.depth(), self.dwarf.spans(&unit, e)?));
                return Ok(Walk::Into);
            }
            Ok(Walk::Past)
        })?;
        Ok(spans)
    }

    fn externs(&self, site: &Site<'s>) -> Result<Vec<Variable>> {
        let unit = site.scope.unit.clone();
        let mut all = Vec::new();
        unit.walk(unit.inner.header.root_offset(), &mut |e| {
            if e.tag() == gimli::DW_TAG_variable {
                let die = unit.die(e.offset());
                let seen = Seen { die, depth: 1, inlined: false, parameter: false };
                if let Some(v) = self.variable(site, &seen)?.filter(|v| v.accessible) {
                    all.push(Variable { alive: Vec::new(), ..v });
                }
            }
            Ok(if e.tag() == gimli::DW_TAG_namespace { Walk::Into } else { Walk::Past })
        })?;
        all.sort();
        all.dedup();
        Ok(all)
    }

    /// Why a variable is at none of the places: what there is instead, and where
    /// in the function it is alive.
    pub(super) fn why_missing(
        &self,
        site: &Site<'s>,
        arg: &crate::probe::Arg,
        why: String,
    ) -> Result<String> {
        let crate::probe::ArgValue::Variable { name, .. } = &arg.value else { return Ok(why) };
        let locals = self.locals(site)?;
        let Some(variable) = locals.iter().find(|v| v.name == *name) else {
            let mut names: Vec<&str> =
                locals.iter().filter(|v| v.accessible).map(|v| v.name.as_str()).collect();
            names.dedup();
            return Ok(if names.is_empty() {
                why
            } else {
                format!("{why}; there are {}", names.join(", "))
            });
        };
        // Elsewhere it helps only if it is the place that is wrong.
        if !why.contains("optimised out") && !why.contains("cannot be read here") {
            return Ok(why);
        }
        let values = self.values(site)?;
        let base = values.context.entry.unwrap_or(0);
        let lines = self.dwarf.lines(&site.scope.unit)?;
        let declared = self.dwarf.number(&site.scope, gimli::DW_AT_decl_line)?.unwrap_or(0);
        let mut near: Vec<(u64, u32)> = Vec::new();
        for (from, to) in &variable.alive {
            for row in
                lines.rows.iter().filter(|r| r.is_stmt && !r.end && u64::from(r.line) > declared)
            {
                let offset = row.addr.wrapping_sub(base);
                if (*from..*to).contains(&offset) {
                    near.push((row.addr.abs_diff(site.addr), row.line));
                }
            }
        }
        near.sort_unstable();
        near.dedup_by_key(|n| n.1);
        let relative: Vec<String> =
            near.iter().take(3).map(|n| (u64::from(n.1) - declared).to_string()).collect();
        Ok(match relative.len() {
            0 => why,
            _ => format!("{why}; it is alive at line {} of the function", relative.join(", ")),
        })
    }
}
