//! `--vars`: which variables are accessible at a probe point, and where in the function
//! each of them is alive.

use gimli::UnitOffset;
use kymo_debuginfo::dwarf::{
    Liveness, Result, SpanSet, VariableLocation, VisibleVariable, WalkStep,
};

use crate::grammar::{ArgDescription, ArgValue, ProbeDescription};
use crate::point_finder::{CodeSite, PointError, PointFinder, ProbePoint};

/// A probe point and its variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointVariables {
    /// The probe point.
    pub point: ProbePoint,
    /// Variables of the function, in the order of their text.
    pub locals: Vec<SourceVariable>,
    /// Variables of the unit, if asked for.
    pub externs: Vec<SourceVariable>,
}

/// A variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceVariable {
    /// Its type; none if unknown.
    pub kind: Option<String>,
    /// Its name.
    pub name: String,
    /// Whether it can be read at the point.
    pub accessible: bool,
    /// Spans from the function's entry where it is alive.
    pub alive: Vec<(u64, u64)>,
}

/// Most rows of the line table, nearest first, that are asked where a variable is alive.
const NEAR_ROWS: usize = 64;

impl<'s> PointFinder<'_, 's> {
    /// Variables at the points of a description.
    pub fn variables(
        &mut self,
        d: &ProbeDescription,
        externs: bool,
    ) -> std::result::Result<Vec<PointVariables>, PointError> {
        let mut points = Vec::new();
        for site in self.sites(d)? {
            let point = self.describe_point(&site, d)?;
            let locals = self.locals(&site)?;
            let externs = if externs { self.externs(&site)? } else { Vec::new() };
            points.push(PointVariables { point, locals, externs });
        }
        Ok(points)
    }

    /// Parameters of the function at the first point of a description that can be read there, in
    /// the order of their declaration: types and names.
    pub fn parameters(
        &mut self,
        d: &ProbeDescription,
    ) -> std::result::Result<Vec<(String, String)>, PointError> {
        let mut parameters = Vec::new();
        let Some(site) = self.sites(d)?.into_iter().next() else { return Ok(parameters) };
        for seen in self.dwarf.variables_at(&site.scope, site.addr)? {
            if seen.parameter
                && !seen.inlined
                && let Some(variable) = self.variable(&site, &seen)?.filter(|v| v.accessible)
            {
                parameters.extend(variable.kind.map(|kind| (kind, variable.name)));
            }
        }
        Ok(parameters)
    }

    fn locals(&self, site: &CodeSite<'s>) -> Result<Vec<SourceVariable>> {
        let mut all = Vec::new();
        for seen in self.dwarf.variables_at(&site.scope, site.addr)? {
            all.extend(self.variable(site, &seen)?);
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    fn variable(
        &self,
        site: &CodeSite<'s>,
        seen: &VisibleVariable<'s>,
    ) -> Result<Option<SourceVariable>> {
        let Some(name) = self.dwarf.name(&seen.die)? else { return Ok(None) };
        let values = self.values(site)?;
        let entry = self.dwarf.entry(&seen.die)?;
        let accessible = matches!(values.context.locate(&seen.die, &entry)?, Some(loc) if !matches!(loc, VariableLocation::Gone(_)));
        let base = values.context.entry.unwrap_or(0);
        let alive = match values.context.alive(&seen.die)? {
            Some(Liveness::Spans(spans)) => spans,
            Some(Liveness::Scope) => self.enclosing(site, seen)?,
            None => Vec::new(),
        };
        // Many variables may share one list of spans.
        self.dwarf.charge(alive.len() * size_of::<(u64, u64)>() + size_of::<SourceVariable>())?;
        let alive =
            alive.into_iter().map(|(a, b)| (a.wrapping_sub(base), b.wrapping_sub(base))).collect();
        Ok(Some(SourceVariable { kind: self.dwarf.type_text(&seen.die)?, name, accessible, alive }))
    }

    /// Spans of the block that a variable is declared in.
    fn enclosing(
        &self,
        site: &CodeSite<'s>,
        seen: &VisibleVariable<'s>,
    ) -> Result<Vec<(u64, u64)>> {
        let unit = site.scope.unit.clone();
        let mut innermost = site.scope.offset;
        let mut blocks: Vec<(isize, UnitOffset)> = Vec::new();
        unit.walk(site.scope.offset, &mut |e| {
            blocks.retain(|b| b.0 < e.depth());
            if e.offset() == seen.die.offset {
                if let Some((_, inner)) = blocks.last() {
                    innermost = *inner;
                }
                return Ok(WalkStep::Stop);
            }
            if matches!(e.tag(), gimli::DW_TAG_lexical_block | gimli::DW_TAG_inlined_subroutine) {
                blocks.push((e.depth(), e.offset()));
                return Ok(WalkStep::Into);
            }
            Ok(WalkStep::Past)
        })?;
        self.dwarf.spans(&unit, &self.dwarf.entry(&unit.die(innermost))?)
    }

    fn externs(&self, site: &CodeSite<'s>) -> Result<Vec<SourceVariable>> {
        let unit = site.scope.unit.clone();
        let mut all = Vec::new();
        unit.walk(unit.inner.header.root_offset(), &mut |e| {
            if e.tag() == gimli::DW_TAG_variable {
                let die = unit.die(e.offset());
                let seen = VisibleVariable { die, depth: 1, inlined: false, parameter: false };
                if let Some(v) = self.variable(site, &seen)?.filter(|v| v.accessible) {
                    all.push(SourceVariable { alive: Vec::new(), ..v });
                }
            }
            Ok(if e.tag() == gimli::DW_TAG_namespace { WalkStep::Into } else { WalkStep::Past })
        })?;
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// Reason why a variable is at none of the probe points: what there is instead, and where in
    /// the function it is alive.
    pub(crate) fn why_missing(
        &self,
        site: &CodeSite<'s>,
        arg: &ArgDescription,
        why: String,
    ) -> Result<String> {
        let ArgValue::Variable { name, .. } = &arg.value else { return Ok(why) };
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
        if !why.contains("optimized out") && !why.contains("cannot be read here") {
            return Ok(why);
        }
        let values = self.values(site)?;
        let base = values.context.entry.unwrap_or(0);
        let lines = self.dwarf.lines(&site.scope.unit)?;
        let declared = self.dwarf.number(&site.scope, gimli::DW_AT_decl_line)?.unwrap_or(0);
        let mut near: Vec<(u64, u32)> = Vec::new();
        let alive = SpanSet::new(variable.alive.clone());
        for row in lines.rows.iter().filter(|r| r.is_stmt && !r.end && u64::from(r.line) > declared)
        {
            if alive.contains(row.addr.wrapping_sub(base)) {
                near.push((row.addr, row.line));
            }
        }
        near.sort_by_key(|(addr, line)| (addr.abs_diff(site.addr), *line));
        let mut readable: Vec<u64> = Vec::new();
        for (addr, line) in near.into_iter().take(NEAR_ROWS) {
            let line = u64::from(line) - declared;
            if !readable.contains(&line) && self.is_readable(site, addr, name)? {
                readable.push(line);
            }
            if readable.len() == 3 {
                break;
            }
        }
        readable.sort_unstable();
        let lines: Vec<String> = readable.iter().map(u64::to_string).collect();
        Ok(match lines.as_slice() {
            [] => why,
            [line] => format!("{why}; it is live at line {line} of the function"),
            lines => format!("{why}; it is live at lines {} of the function", lines.join(", ")),
        })
    }

    /// Whether a variable of a site's scope can be read at another address of it.
    fn is_readable(&self, site: &CodeSite<'s>, addr: u64, name: &str) -> Result<bool> {
        let (scope, function) = (site.scope.clone(), site.function.clone());
        let locals = self.locals(&CodeSite { addr, scope, function })?;
        Ok(locals.iter().any(|v| v.name == name && v.accessible))
    }
}
