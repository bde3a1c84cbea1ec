//! Lines: where the code of a line begins, which lines can be probed, where a
//! prologue ends.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::die::{Die, Walk, unsigned};
use super::finder::{FindError, Finder};
use super::unit::{Dwarf, Unit};
use super::{Entry, Result, Value};
use crate::probe::{ArgValue, Description, LineRange};

/// Lines of a source file that can be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLines {
    /// Path as the debugging information has it.
    pub path: String,
    /// The folder that a relative path counts from.
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
    finder: &mut Finder<'_, '_>,
    range: &LineRange,
) -> std::result::Result<SourceLines, FindError> {
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
    if let Some(absent) = dwarf.sections.absent_text() {
        what.push_str(&format!("; {absent}"));
    }
    Err(FindError::NotFound { what })
}

impl<'s> Finder<'_, 's> {
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
        unit: &Rc<Unit<'s>>,
        range: &LineRange,
    ) -> Result<Option<SourceLines>> {
        let Some(file) = &range.file else { return Ok(None) };
        let files = self.dwarf.files(unit);
        let Some(path) = files.iter().find(|f| super::lines::is_tail(file, f)) else {
            return Ok(None);
        };
        let span = (range.start, range.end.unwrap_or(u32::MAX));
        let lines = self.dwarf.reversible(unit, None, path, span)?;
        Ok(Some(SourceLines {
            path: path.clone(),
            comp_dir: unit.comp_dir(),
            base: 0,
            start: range.start,
            end: range.end,
            lines,
        }))
    }

    fn lines_of_function(
        &mut self,
        unit: &Rc<Unit<'s>>,
        range: &LineRange,
        function: &str,
    ) -> Result<Option<SourceLines>> {
        let functions = self.dwarf.functions(unit)?;
        for f in functions.all.iter().filter(|f| !f.declared_only && f.matches(function)) {
            let mut die = unit.die(f.offset);
            let Some(path) = self.decl_file(&die)? else { continue };
            if range.file.as_ref().is_some_and(|file| !super::lines::is_tail(file, &path)) {
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

impl<'s> Dwarf<'s> {
    /// Lines of a span whose first address leads back to them.
    fn reversible(
        &self,
        unit: &Rc<Unit<'s>>,
        within: Option<&Die<'s>>,
        path: &str,
        span: (u32, u32),
    ) -> Result<BTreeSet<u32>> {
        let mut lines = BTreeSet::new();
        for (addr, file, line) in self.walk_lines(unit, within)? {
            let wanted = (span.0..=span.1).contains(&line) && super::lines::is_tail(&file, path);
            if wanted && !lines.contains(&line) && self.leads_back(unit, addr, &file, line)? {
                lines.insert(line);
            }
        }
        Ok(lines)
    }

    fn leads_back(&self, unit: &Rc<Unit<'s>>, addr: u64, file: &str, line: u32) -> Result<bool> {
        if let Some(function) = self.function_at(unit, addr)? {
            let entry = self.entry(&function)?;
            if self.entry_pc(unit, &entry)? == Some(addr) {
                let declared = self.number(&function, gimli::DW_AT_decl_line)?;
                return Ok(declared == Some(u64::from(line)));
            }
        }
        let lines = self.lines(unit)?;
        Ok(match lines.at(addr) {
            Some(row) => row.line == line && lines.file(u64::from(row.file)) == Some(file),
            None => true,
        })
    }

    /// Addresses of the wanted lines of a file, with the line of each.
    pub(super) fn line_places(
        &self,
        unit: &Rc<Unit<'s>>,
        within: Option<&Die<'s>>,
        path: &str,
        wanted: &BTreeSet<u32>,
    ) -> Result<Vec<(u64, u32)>> {
        let all = self.walk_lines(unit, within)?.into_iter();
        Ok(all
            .filter(|(_, file, line)| wanted.contains(line) && super::lines::is_tail(file, path))
            .map(|(a, _, l)| (a, l))
            .collect())
    }

    /// Every place of a unit, or of one function or copy, where the code of a
    /// line begins: statements of the line table, then entries of functions and
    /// calls of inlined copies.
    fn walk_lines(
        &self,
        unit: &Rc<Unit<'s>>,
        within: Option<&Die<'s>>,
    ) -> Result<Vec<(u64, String, u32)>> {
        let lines = self.lines(unit)?;
        let mut out = Vec::new();
        let spans = match within {
            Some(die) => self.spans(unit, &self.entry(die)?)?,
            None => Vec::new(),
        };
        for row in lines.rows.iter().filter(|r| r.is_stmt && !r.end) {
            let Some(file) = lines.file(u64::from(row.file)) else { continue };
            if let Some(die) = within {
                let inside = spans.iter().any(|(a, b)| (*a..*b).contains(&row.addr));
                if !inside || self.belongs_to_inner(unit, die, row.addr, file, row.line)? {
                    continue;
                }
            }
            out.push((row.addr, file.to_owned(), row.line));
        }
        match within {
            Some(die) => self.calls(unit, die, &mut out)?,
            None => {
                let functions = self.functions(unit)?;
                for f in functions.all.iter().filter(|f| !f.declared_only) {
                    self.calls(unit, &unit.die(f.offset), &mut out)?;
                }
            }
        }
        Ok(out)
    }

    /// Whether a row in `die` is of a copy inlined into it, and not of the line
    /// that calls the copy.
    fn belongs_to_inner(
        &self,
        unit: &Rc<Unit<'s>>,
        die: &Die<'s>,
        addr: u64,
        file: &str,
        line: u32,
    ) -> Result<bool> {
        let chain = self.chain_at(die, addr)?;
        let Some(inner) = chain.get(1..).and_then(<[_]>::last) else { return Ok(false) };
        let call = self.call_site(unit, &self.entry(inner)?)?;
        if call.is_some_and(|(f, l)| f == file && l == line) {
            return Ok(false);
        }
        let same = self.number(inner, gimli::DW_AT_decl_line)?
            == self.number(die, gimli::DW_AT_decl_line)?
            && self.number(inner, gimli::DW_AT_decl_file)?
                == self.number(die, gimli::DW_AT_decl_file)?;
        Ok(!same)
    }

    fn call_site(&self, unit: &Rc<Unit<'s>>, entry: &Entry<'s>) -> Result<Option<(String, u32)>> {
        let number = |at| entry.attr_value(at).and_then(|v| unsigned(&v));
        let (Some(file), Some(line)) =
            (number(gimli::DW_AT_call_file), number(gimli::DW_AT_call_line))
        else {
            return Ok(None);
        };
        let lines = self.lines(unit)?;
        Ok(lines
            .file(file)
            .map(|f| (f.to_owned(), u32::try_from(line).unwrap_or(u32::MAX)))
            .filter(|c| c.1 > 0))
    }

    /// The declaration of a function at its entry, and the calls of copies
    /// inlined into it.
    fn calls(
        &self,
        unit: &Rc<Unit<'s>>,
        die: &Die<'s>,
        out: &mut Vec<(u64, String, u32)>,
    ) -> Result<()> {
        let entry = self.entry(die)?;
        self.declaration(unit, die, &entry, out)?;
        unit.walk(die.offset, &mut |e| {
            if e.tag() == gimli::DW_TAG_inlined_subroutine {
                if let (Some((file, line)), Some(addr)) =
                    (self.call_site(unit, e)?, self.entry_pc(unit, e)?)
                {
                    out.push((addr, file, line));
                }
                self.declaration(unit, &unit.die(e.offset()), e, out)?;
                return Ok(Walk::Into);
            }
            Ok(if e.tag() == gimli::DW_TAG_lexical_block { Walk::Into } else { Walk::Past })
        })
    }

    fn declaration(
        &self,
        unit: &Rc<Unit<'s>>,
        die: &Die<'s>,
        entry: &Entry<'s>,
        out: &mut Vec<(u64, String, u32)>,
    ) -> Result<()> {
        let Some(addr) = self.entry_pc(unit, entry)?.filter(|a| *a != 0) else { return Ok(()) };
        let Some((owner, value)) = self.inherited(die, gimli::DW_AT_decl_file)? else {
            return Ok(());
        };
        let Some(line) = self.number(die, gimli::DW_AT_decl_line)? else { return Ok(()) };
        let lines = self.lines(&owner)?;
        if let Some(file) = unsigned(&value).and_then(|i| lines.file(i)) {
            out.push((addr, file.to_owned(), u32::try_from(line).unwrap_or(u32::MAX)));
        }
        Ok(())
    }

    /// Whether the compiler optimised: then places of variables change from
    /// instruction to instruction, and there is no prologue worth skipping.
    pub(super) fn is_optimised(&self, unit: &Rc<Unit<'s>>) -> Result<bool> {
        let mut lists = false;
        unit.walk(unit.inner.header.root_offset(), &mut |e| {
            let value = e.attr_value(gimli::DW_AT_location);
            lists =
                matches!(value, Some(Value::LocationListsRef(_) | Value::DebugLocListsIndex(_)));
            Ok(if lists { Walk::Stop } else { Walk::Into })
        })?;
        Ok(lists)
    }

    /// The address behind a function's prologue: where the line table says so,
    /// else the second row of the function.
    pub(super) fn behind_prologue(
        &self,
        unit: &Rc<Unit<'s>>,
        entry: &Entry<'s>,
        addr: u64,
    ) -> Result<u64> {
        let end = self.spans(unit, entry)?.iter().map(|s| s.1).max().unwrap_or(u64::MAX);
        let lines = self.lines(unit)?;
        let Some(first) = lines.rows.iter().position(|r| r.addr == addr && !r.end) else {
            return Ok(addr);
        };
        if lines.rows.get(first).is_some_and(|r| r.prologue_end) {
            return Ok(addr);
        }
        let next = lines.rows.get(first + 1).map(|r| r.addr);
        Ok(next.filter(|a| *a < end).unwrap_or(addr))
    }

    /// Where the line table says that the prologue ends; clang and rustc do.
    pub(super) fn prologue_end(
        &self,
        unit: &Rc<Unit<'s>>,
        entry: &Entry<'s>,
        addr: u64,
    ) -> Result<u64> {
        let end = self.spans(unit, entry)?.iter().map(|s| s.1).max().unwrap_or(u64::MAX);
        let lines = self.lines(unit)?;
        let found = lines.rows.iter().find(|r| r.prologue_end && r.addr >= addr && r.addr < end);
        Ok(found.map_or(addr, |r| r.addr))
    }

    /// Whether a variable that the description names is said to be in the frame
    /// of the function from its first instruction on, which cannot be: something
    /// has to put it there.
    pub(super) fn uses_frame(&self, die: &Die<'s>, d: &Description, addr: u64) -> Result<bool> {
        for seen in self.variables_at(die, addr)? {
            let name = self.name(&seen.die)?;
            let named = d.args.iter().any(|a| match &a.value {
                ArgValue::Variable { name: wanted, .. } => name.as_deref() == Some(wanted),
                ArgValue::Vars | ArgValue::Params => true,
                ArgValue::Raw(_) => false,
            });
            if !named {
                continue;
            }
            if let Some((unit, Value::Exprloc(e))) =
                self.inherited(&seen.die, gimli::DW_AT_location)?
                && matches!(
                    e.operations(unit.inner.encoding()).next()?,
                    Some(gimli::Operation::FrameOffset { .. })
                )
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
