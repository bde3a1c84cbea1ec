//! The line table of a unit: rows sorted by address, and the names of files.

use std::rc::Rc;

use super::budget::MemoryCharge;
use super::unit::{Dwarf, DwarfUnit};
use super::{Reader, Result, Value};

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRow {
    /// First address of its code.
    pub addr: u64,
    /// Number of its file.
    pub file: u32,
    /// Line; 0 where there is none.
    pub line: u32,
    /// Recommended as a place for a breakpoint.
    pub is_stmt: bool,
    /// The function's frame is set up here.
    pub(super) prologue_end: bool,
    /// No row: the code before it ends here.
    pub end: bool,
}

/// Rows and files of a unit.
#[derive(Debug)]
pub struct LineTable {
    /// Ascending by address.
    pub rows: Vec<LineRow>,
    /// Path of each file, by its number in the table.
    pub(super) files: Vec<Rc<str>>,
    /// Count of its bytes.
    memory: MemoryCharge,
}

impl LineTable {
    /// Path of a file, by its number.
    pub fn file(&self, index: u64) -> Option<&str> {
        self.shared_file(index).map(|name| &**name)
    }

    /// Path of a file, shared.
    pub(super) fn shared_file(&self, index: u64) -> Option<&Rc<str>> {
        self.files.get(usize::try_from(index).ok()?).filter(|name| !name.is_empty())
    }

    /// The row that covers an address.
    pub fn at(&self, pc: u64) -> Option<&LineRow> {
        let after = self.rows.partition_point(|r| r.addr <= pc);
        let mut index = after.checked_sub(1)?;
        let addr = self.rows.get(index)?.addr;
        // Of several rows at one address the first statement speaks for it,
        // which is what debuggers and perf show.
        while index > 0 && self.rows.get(index - 1).is_some_and(|r| r.addr == addr) {
            index -= 1;
        }
        let same = self.rows.get(index..after)?;
        same.iter().find(|r| r.is_stmt && !r.end).or_else(|| same.iter().find(|r| !r.end))
    }
}

/// Whether `path` ends with `tail` at the border of a directory, either way round:
/// a description may hold more of the path than the debugging information.
pub fn is_tail(tail: &str, path: &str) -> bool {
    let ends = |long: &str, short: &str| {
        long.strip_suffix(short).is_some_and(|rest| {
            !short.is_empty() && (rest.is_empty() || rest.ends_with('/') || short.starts_with('/'))
        })
    };
    let clean = |p: &str| p.strip_prefix("./").map_or_else(|| p.to_owned(), str::to_owned);
    let (tail, path) = (clean(tail), clean(path));
    ends(&path, &tail) || ends(&tail, &path)
}

impl<'s> Dwarf<'s> {
    /// The names of a unit's files alone, without its rows.
    pub fn files(&self, unit: &Rc<DwarfUnit<'s>>) -> Result<Vec<Rc<str>>> {
        if let Some(lines) = unit.lines.get() {
            return Ok(lines.files.clone());
        }
        let Some(program) = &unit.inner.line_program else { return Ok(Vec::new()) };
        // The caller reads them and keeps none.
        self.file_names(unit, program.header(), &mut self.budget.open())
    }

    /// Line table of a unit.
    pub fn lines(&self, unit: &Rc<DwarfUnit<'s>>) -> Result<Rc<LineTable>> {
        if let Some(known) = unit.lines.get() {
            return Ok(known.clone());
        }
        let memory = self.budget.open();
        let mut lines = LineTable { rows: Vec::new(), files: Vec::new(), memory };
        if let Some(program) = unit.inner.line_program.clone() {
            lines.files = self.file_names(unit, program.header(), &mut lines.memory)?;
            let mut rows = program.rows();
            while let Some((_, row)) = rows.next_row()? {
                if lines.rows.len() == lines.rows.capacity() {
                    // Counted as the table grows.
                    let more = lines.rows.len().max(1024);
                    lines.memory.add(more * size_of::<LineRow>())?;
                    lines.rows.reserve_exact(more);
                }
                lines.rows.push(LineRow {
                    addr: row.address(),
                    file: u32::try_from(row.file_index()).unwrap_or(u32::MAX),
                    line: row.line().map_or(0, |l| u32::try_from(l.get()).unwrap_or(u32::MAX)),
                    is_stmt: row.is_stmt(),
                    prologue_end: row.prologue_end(),
                    end: row.end_sequence(),
                });
            }
            // Code that ends at an address stands before code that begins there.
            lines.rows.sort_by_key(|r| (r.addr, !r.end));
        }
        let made = Rc::new(lines);
        Ok(unit.lines.get_or_init(|| made).clone())
    }

    fn file_names(
        &self,
        unit: &Rc<DwarfUnit<'s>>,
        header: &gimli::LineProgramHeader<Reader<'s>>,
        memory: &mut MemoryCharge,
    ) -> Result<Vec<Rc<str>>> {
        let dwarf = unit.lines_in.as_ref().unwrap_or(&unit.dwarf);
        let text = |v: Value<'s>| {
            let text = dwarf.attr_string(&unit.inner, v).ok()?;
            Some(String::from_utf8_lossy(text.slice()).into_owned())
        };
        let comp_dir = unit.comp_dir();
        let first = u64::from(header.version() < 5);
        let count = header.file_names().len() as u64 + first;
        let path = |index| {
            let Some(file) = header.file(index) else { return String::new() };
            let name = text(file.path_name()).unwrap_or_default();
            if name.starts_with('/') {
                return name;
            }
            let dir = file.directory(header).and_then(text).unwrap_or_default();
            join(&comp_dir, &dir, &name)
        };
        let mut files = Vec::new();
        for index in 0..count {
            let path = path(index);
            memory.add(path.len() + 2 * size_of::<Rc<str>>())?;
            files.push(Rc::from(path));
        }
        Ok(files)
    }
}

/// `comp_dir/dir/name`, of which a leading absolute part wins.
pub(super) fn join(comp_dir: &str, dir: &str, name: &str) -> String {
    let mut path = String::new();
    if !dir.starts_with('/') && dir != comp_dir && !comp_dir.is_empty() {
        path.push_str(comp_dir);
        path.push('/');
    }
    if !dir.is_empty() {
        path.push_str(dir);
        path.push('/');
    }
    path.push_str(name);
    path
}

#[cfg(test)]
mod tests {
    use super::is_tail;

    #[test]
    fn tails_end_at_directories() {
        for (tail, path) in [
            ("sched.c", "./kernel/sched.c"),
            ("kernel/sched.c", "kernel/sched.c"),
            ("/src/a/b.c", "a/b.c"),
            ("./x.c", "x.c"),
        ] {
            assert!(is_tail(tail, path), "{tail} {path}");
        }
        for (tail, path) in [("d.c", "sched.c"), ("", "a.c"), ("b.c", "a.c")] {
            assert!(!is_tail(tail, path), "{tail} {path}");
        }
    }
}
