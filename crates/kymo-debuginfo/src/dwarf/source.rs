//! From an address back to the source: file, line and function.

use std::rc::Rc;

use super::Result;
use super::unit::{Dwarf, DwarfUnit};

/// Source of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLocation {
    /// The innermost function that the line is declared in.
    pub function: String,
    /// Entry of the function whose code it is.
    pub entry: Option<u64>,
    /// File of the line; of an entry the file of the declaration.
    pub file: String,
    /// The directory that it was compiled in.
    pub comp_dir: String,
    /// Line.
    pub line: u32,
    /// Line of the function's declaration; 0 if not stated.
    pub declared: u32,
}

impl<'s> Dwarf<'s> {
    /// The source of an address.
    pub fn source_of(&self, addr: u64) -> Result<Option<SourceLocation>> {
        for index in self.units_of(addr) {
            let unit = self.unit(index)?;
            if let Some(found) = self.source_in(&unit, addr)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Units that may cover an address: by `.debug_aranges` where that says it,
    /// otherwise all of them.
    pub fn units_of(&self, addr: u64) -> Vec<usize> {
        if let Some(found) = self.index.map(|i| i.covering(addr)).filter(|u| !u.is_empty()) {
            return found;
        }
        self.unit_by_aranges(addr).map_or_else(|| (0..self.units()).collect(), |u| vec![u])
    }

    /// The unit that `.debug_aranges` names for an address.
    pub fn unit_by_aranges(&self, addr: u64) -> Option<usize> {
        let mut headers = self.dwarf.debug_aranges.headers();
        while let Ok(Some(header)) = headers.next() {
            let mut entries = header.entries();
            while let Ok(Some(e)) = entries.next() {
                if addr.checked_sub(e.address()).is_some_and(|d| d < e.length()) {
                    let start = header.debug_info_offset().0;
                    return self.starts.binary_search(&start).ok();
                }
            }
        }
        None
    }

    fn source_in(&self, unit: &Rc<DwarfUnit<'s>>, addr: u64) -> Result<Option<SourceLocation>> {
        let Some(owner) = self.function_at(unit, addr)? else { return Ok(None) };
        let entry = self.entry_pc(unit, &self.entry(&owner)?)?;
        let lines = self.lines(unit)?;
        let row = lines.at(addr).copied();
        let mut best = owner.clone();
        let mut file =
            row.and_then(|r| lines.file(u64::from(r.file))).unwrap_or_default().to_owned();
        let mut line = row.map_or(0, |r| r.line);
        let declared_file = |die: &super::die::Die<'s>| -> Result<Option<String>> {
            let Some((owner, value)) = self.inherited(die, gimli::DW_AT_decl_file)? else {
                return Ok(None);
            };
            let Some(index) = super::die::unsigned(&value) else { return Ok(None) };
            Ok(self.lines(&owner)?.file(index).map(str::to_owned))
        };
        let declared = |die: &super::die::Die<'s>| -> Result<u32> {
            let n = self.number(die, gimli::DW_AT_decl_line)?.unwrap_or(0);
            Ok(u32::try_from(n).unwrap_or(0))
        };
        if entry == Some(addr) {
            if let Some(own) = declared_file(&owner)? {
                file = own;
                line = declared(&owner)?;
            }
        } else {
            // A line belongs to the function declared nearest before it.
            let mut nearest = None;
            let chain = self.chain_at(&owner, addr)?;
            for die in &chain {
                let distance = line.checked_sub(declared(die)?);
                if declared_file(die)?.as_deref() == Some(&file)
                    && distance.is_some_and(|d| nearest.is_none_or(|n| d < n))
                {
                    nearest = distance;
                    best = die.clone();
                }
            }
            // The line is of something inlined that is not stated here: what counts is
            // where the innermost copy that is stated was called.
            if nearest.is_none()
                && let [.., caller, copy] = chain.as_slice()
                && let Some(n) = self.number(copy, gimli::DW_AT_call_line)?
                && let Some(own) = declared_file(caller)?
            {
                file = own;
                line = u32::try_from(n).unwrap_or(0);
                best = caller.clone();
            }
        }
        let function = self.readable_name(&best)?;
        Ok(Some(SourceLocation {
            function,
            entry,
            declared: declared(&best)?,
            file,
            comp_dir: unit.comp_dir(),
            line,
        }))
    }
}
