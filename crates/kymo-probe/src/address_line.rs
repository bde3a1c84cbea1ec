//! From an address of a binary back to its source, for the listing of probes.

use crate::resolve::ProbedBinary;

/// Source line of an address of a binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressLine {
    /// The function, or the inlined copy that the line is of.
    pub function: String,
    /// Whether it is the entry of the function.
    pub is_entry: bool,
    /// Source file.
    pub file: String,
    /// The directory that it was compiled in.
    pub comp_dir: String,
    /// Line in the file.
    pub line: u32,
    /// Line counted from the function's own.
    pub relative: Option<u32>,
}

impl ProbedBinary<'_> {
    /// The source line of `addr`.
    pub fn line_at(&self, addr: u64) -> Option<AddressLine> {
        let sections = self.sections.as_ref()?;
        let dwarf = self.index(sections).dwarf(sections).ok()?;
        let found = dwarf.source_of(addr).ok()??;
        Some(AddressLine {
            function: found.function,
            is_entry: found.entry == Some(addr),
            comp_dir: found.comp_dir,
            relative: found.line.checked_sub(found.declared).filter(|_| found.declared > 0),
            file: found.file,
            line: found.line,
        })
    }
}
