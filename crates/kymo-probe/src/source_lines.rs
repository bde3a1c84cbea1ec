//! `--line`: the source lines of a function or a file that can be probed.

use std::collections::BTreeSet;
use std::rc::Rc;

use kymo_debuginfo::dwarf::{DwarfUnit, Result, is_tail};

use crate::grammar::LineRange;
use crate::point_finder::{PointError, PointFinder};

/// Lines of a source file that can be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLines {
    /// Path as the debugging information has it.
    pub path: String,
    /// The directory that a relative path counts from.
    pub comp_dir: String,
    /// The line that the shown numbers count from; 0 for those of a file.
    pub base: u32,
    /// First line that was asked for, counted from the file's beginning.
    pub start: u32,
    /// Last one, if a last one was asked for.
    pub end: Option<u32>,
    /// Lines with code, counted from the file's beginning.
    pub lines: BTreeSet<u32>,
}

/// The lines of a range that can be probed.
pub fn source_lines(
    finder: &mut PointFinder<'_, '_>,
    range: &LineRange,
) -> std::result::Result<SourceLines, PointError> {
    let dwarf = finder.dwarf;
    if let Some(found) = finder.lines_at_entry(range)? {
        return Ok(found);
    }
    let units = match &range.function {
        Some(function) => dwarf.units_for(function, finder.options.entry)?,
        None => dwarf.units_with_file(range.file.as_deref().unwrap_or_default()),
    };
    for index in units {
        let unit = dwarf.unit(index)?;
        let found = match &range.function {
            Some(function) => finder.lines_of_function(&unit, range, function)?,
            None => finder.lines_of_file(&unit, range)?,
        };
        if let Some(found) = found.filter(|f| !f.lines.is_empty()) {
            return Ok(found);
        }
    }
    if let Some(function) = &range.function
        && let Some((unit, own)) = finder.alias(function)?
        && let Some(found) = finder.lines_of_function(&unit, range, &own)?
    {
        return Ok(found);
    }
    let what = range.function.as_deref().or(range.file.as_deref()).unwrap_or_default();
    let mut what = format!("no source lines found for {what}");
    if let Some(absent) = dwarf.absent_text() {
        what.push_str(&format!("; {absent}"));
    }
    Err(PointError::NotFound { what })
}

impl<'s> PointFinder<'_, 's> {
    /// Lines of a function of C whose code has a symbol: they are in the unit of that
    /// code, which need not be searched for.
    fn lines_at_entry(&mut self, range: &LineRange) -> Result<Option<SourceLines>> {
        let Some(function) = &range.function else { return Ok(None) };
        let addr = (self.options.entry)(function);
        let Some(index) = addr.and_then(|a| self.dwarf.unit_by_aranges(a)) else {
            return Ok(None);
        };
        let unit = self.dwarf.unit(index)?;
        if !unit.is_c {
            return Ok(None);
        }
        Ok(self.lines_of_function(&unit, range, function)?.filter(|f| !f.lines.is_empty()))
    }

    fn lines_of_file(
        &mut self,
        unit: &Rc<DwarfUnit<'s>>,
        range: &LineRange,
    ) -> Result<Option<SourceLines>> {
        let Some(file) = &range.file else { return Ok(None) };
        let files = self.dwarf.files(unit)?;
        let Some(path) = files.iter().find(|f| is_tail(file, f)) else {
            return Ok(None);
        };
        let span = (range.start, range.end.unwrap_or(u32::MAX));
        let lines = self.dwarf.reversible(unit, None, path, span)?;
        Ok(Some(SourceLines {
            path: path.as_ref().to_owned(),
            comp_dir: unit.comp_dir(),
            base: 0,
            start: range.start,
            end: range.end,
            lines,
        }))
    }

    fn lines_of_function(
        &mut self,
        unit: &Rc<DwarfUnit<'s>>,
        range: &LineRange,
        function: &str,
    ) -> Result<Option<SourceLines>> {
        let functions = self.dwarf.functions(unit)?;
        for f in functions.all.iter().filter(|f| !f.declared_only && f.matches(function)) {
            let mut die = unit.die(f.offset);
            let Some(path) = self.decl_file(&die)? else { continue };
            if range.file.as_ref().is_some_and(|file| !is_tail(file, &path)) {
                continue;
            }
            let base = self.dwarf.number(&die, gimli::DW_AT_decl_line)?.unwrap_or(0);
            let base = u32::try_from(base).unwrap_or(u32::MAX);
            let start = base.saturating_add(range.start);
            let end = range.end.map(|e| base.saturating_add(e));
            let span = (start, end.unwrap_or(u32::MAX));
            let mut entry = self.dwarf.entry(&die)?;
            if let Some(origin) =
                self.dwarf.reference(&die, &entry, gimli::DW_AT_abstract_origin)?
            {
                entry = self.dwarf.entry(&origin)?;
                die = origin;
            }
            let instance =
                entry.has_attr(gimli::DW_AT_low_pc) || entry.has_attr(gimli::DW_AT_ranges);
            let copies = if instance { vec![die] } else { self.dwarf.copies(&die)? };
            let mut lines = BTreeSet::new();
            for copy in copies {
                lines.extend(self.dwarf.reversible(
                    &copy.unit.clone(),
                    Some(&copy),
                    &path,
                    span,
                )?);
            }
            return Ok(Some(SourceLines {
                path,
                comp_dir: unit.comp_dir(),
                base,
                start,
                end,
                lines,
            }));
        }
        Ok(None)
    }
}
