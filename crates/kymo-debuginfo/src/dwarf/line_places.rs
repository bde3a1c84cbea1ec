//! Places of source lines: where the code of a line begins, which lines lead back to
//! themselves, where a prologue ends.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::die::{Die, WalkStep, unsigned};
use super::span_set::SpanSet;
use super::unit::{Dwarf, DwarfUnit};
use super::{Entry, Result, Value};

impl<'s> Dwarf<'s> {
    /// Lines of a span whose first address leads back to them.
    pub fn reversible(
        &self,
        unit: &Rc<DwarfUnit<'s>>,
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

    fn leads_back(
        &self,
        unit: &Rc<DwarfUnit<'s>>,
        addr: u64,
        file: &str,
        line: u32,
    ) -> Result<bool> {
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
    pub fn line_places(
        &self,
        unit: &Rc<DwarfUnit<'s>>,
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
        unit: &Rc<DwarfUnit<'s>>,
        within: Option<&Die<'s>>,
    ) -> Result<Vec<(u64, Rc<str>, u32)>> {
        let lines = self.lines(unit)?;
        let mut out = Vec::new();
        let spans = match within {
            Some(die) => SpanSet::new(self.spans(unit, &self.entry(die)?)?),
            None => SpanSet::default(),
        };
        for row in lines.rows.iter().filter(|r| r.is_stmt && !r.end) {
            let Some(file) = lines.shared_file(u64::from(row.file)) else { continue };
            if let Some(die) = within
                && (!spans.contains(row.addr)
                    || self.belongs_to_inner(unit, die, row.addr, file, row.line)?)
            {
                continue;
            }
            out.push((row.addr, file.clone(), row.line));
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
        unit: &Rc<DwarfUnit<'s>>,
        die: &Die<'s>,
        addr: u64,
        file: &str,
        line: u32,
    ) -> Result<bool> {
        let chain = self.chain_at(die, addr)?;
        let Some(inner) = chain.get(1..).and_then(<[_]>::last) else { return Ok(false) };
        let call = self.call_site(unit, &self.entry(inner)?)?;
        if call.is_some_and(|(f, l)| *f == *file && l == line) {
            return Ok(false);
        }
        let same = self.number(inner, gimli::DW_AT_decl_line)?
            == self.number(die, gimli::DW_AT_decl_line)?
            && self.number(inner, gimli::DW_AT_decl_file)?
                == self.number(die, gimli::DW_AT_decl_file)?;
        Ok(!same)
    }

    fn call_site(
        &self,
        unit: &Rc<DwarfUnit<'s>>,
        entry: &Entry<'s>,
    ) -> Result<Option<(Rc<str>, u32)>> {
        let number = |at| entry.attr_value(at).and_then(|v| unsigned(&v));
        let (Some(file), Some(line)) =
            (number(gimli::DW_AT_call_file), number(gimli::DW_AT_call_line))
        else {
            return Ok(None);
        };
        let lines = self.lines(unit)?;
        Ok(lines
            .shared_file(file)
            .map(|f| (f.clone(), u32::try_from(line).unwrap_or(u32::MAX)))
            .filter(|c| c.1 > 0))
    }

    /// The declaration of a function at its entry, and the calls of copies
    /// inlined into it.
    fn calls(
        &self,
        unit: &Rc<DwarfUnit<'s>>,
        die: &Die<'s>,
        out: &mut Vec<(u64, Rc<str>, u32)>,
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
                return Ok(WalkStep::Into);
            }
            Ok(if e.tag() == gimli::DW_TAG_lexical_block { WalkStep::Into } else { WalkStep::Past })
        })
    }

    fn declaration(
        &self,
        unit: &Rc<DwarfUnit<'s>>,
        die: &Die<'s>,
        entry: &Entry<'s>,
        out: &mut Vec<(u64, Rc<str>, u32)>,
    ) -> Result<()> {
        let Some(addr) = self.entry_pc(unit, entry)?.filter(|a| *a != 0) else { return Ok(()) };
        let Some((owner, value)) = self.inherited(die, gimli::DW_AT_decl_file)? else {
            return Ok(());
        };
        let Some(line) = self.number(die, gimli::DW_AT_decl_line)? else { return Ok(()) };
        let lines = self.lines(&owner)?;
        if let Some(file) = unsigned(&value).and_then(|i| lines.shared_file(i)) {
            out.push((addr, file.clone(), u32::try_from(line).unwrap_or(u32::MAX)));
        }
        Ok(())
    }

    /// Whether the compiler optimised: then places of variables change from
    /// instruction to instruction, and there is no prologue worth skipping.
    pub fn is_optimised(&self, unit: &Rc<DwarfUnit<'s>>) -> Result<bool> {
        let mut lists = false;
        unit.walk(unit.inner.header.root_offset(), &mut |e| {
            let value = e.attr_value(gimli::DW_AT_location);
            lists =
                matches!(value, Some(Value::LocationListsRef(_) | Value::DebugLocListsIndex(_)));
            Ok(if lists { WalkStep::Stop } else { WalkStep::Into })
        })?;
        Ok(lists)
    }

    /// The address behind a function's prologue: where the line table says so,
    /// else the second row of the function.
    pub fn behind_prologue(
        &self,
        unit: &Rc<DwarfUnit<'s>>,
        entry: &Entry<'s>,
        addr: u64,
    ) -> Result<u64> {
        let end = self.last_end(unit, entry)?.unwrap_or(u64::MAX);
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

    /// End of the prologue by the line table; clang and rustc mark it.
    pub fn prologue_end(
        &self,
        unit: &Rc<DwarfUnit<'s>>,
        entry: &Entry<'s>,
        addr: u64,
    ) -> Result<u64> {
        let end = self.last_end(unit, entry)?.unwrap_or(u64::MAX);
        let lines = self.lines(unit)?;
        let found = lines.rows.iter().find(|r| r.prologue_end && r.addr >= addr && r.addr < end);
        Ok(found.map_or(addr, |r| r.addr))
    }

    /// Whether a variable whose name is wanted is said to be in the frame of the
    /// function from its first instruction on, which cannot be: something has to put it
    /// there.
    pub fn uses_frame(
        &self,
        die: &Die<'s>,
        addr: u64,
        is_wanted: &dyn Fn(Option<&str>) -> bool,
    ) -> Result<bool> {
        for seen in self.variables_at(die, addr)? {
            let name = self.name(&seen.die)?;
            if !is_wanted(name.as_deref()) {
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
