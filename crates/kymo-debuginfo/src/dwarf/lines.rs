//! The line table of a unit: rows sorted by address, and the names of files.

use std::rc::Rc;

use super::unit::{Dwarf, Unit};
use super::{Reader, Result, Value};

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(super) addr: u64,
    pub(super) file: u32,
    pub(super) line: u32,
    /// Recommended as a place for a breakpoint.
    pub(super) is_stmt: bool,
    /// The function's frame is set up here.
    pub(super) prologue_end: bool,
    /// No row: the code before it ends here.
    pub(super) end: bool,
}

/// Rows and files of a unit.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub(super) rows: Vec<Row>,
    /// Path of each file, by its number in the table.
    pub(super) files: Vec<String>,
}

impl Lines {
    pub(super) fn file(&self, index: u64) -> Option<&str> {
        let name = self.files.get(usize::try_from(index).ok()?)?;
        (!name.is_empty()).then_some(name.as_str())
    }

    /// The row that covers an address.
    pub(super) fn at(&self, pc: u64) -> Option<&Row> {
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

/// Whether `path` ends with `tail` at the border of a folder, either way round:
/// a description may hold more of the path than the debugging information.
pub(crate) fn is_tail(tail: &str, path: &str) -> bool {
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
    pub(super) fn files(&self, unit: &Rc<Unit<'s>>) -> Vec<String> {
        if let Some(lines) = unit.lines.get() {
            return lines.files.clone();
        }
        unit.inner
            .line_program
            .as_ref()
            .map(|p| self.file_names(unit, p.header()))
            .unwrap_or_default()
    }

    pub(super) fn lines(&self, unit: &Rc<Unit<'s>>) -> Result<Rc<Lines>> {
        if let Some(known) = unit.lines.get() {
            return Ok(known.clone());
        }
        let mut lines = Lines::default();
        if let Some(program) = unit.inner.line_program.clone() {
            lines.files = self.file_names(unit, program.header());
            let mut rows = program.rows();
            while let Some((_, row)) = rows.next_row()? {
                lines.rows.push(Row {
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
        unit: &Rc<Unit<'s>>,
        header: &gimli::LineProgramHeader<Reader<'s>>,
    ) -> Vec<String> {
        let dwarf = unit.lines_in.as_ref().unwrap_or(&unit.dwarf);
        let text = |v: Value<'s>| {
            let text = dwarf.attr_string(&unit.inner, v).ok()?;
            Some(String::from_utf8_lossy(text.slice()).into_owned())
        };
        let comp_dir = unit.comp_dir();
        let first = u64::from(header.version() < 5);
        let count = header.file_names().len() as u64 + first;
        (0..count)
            .map(|index| {
                let Some(file) = header.file(index) else { return String::new() };
                let name = text(file.path_name()).unwrap_or_default();
                if name.starts_with('/') {
                    return name;
                }
                let dir = file.directory(header).and_then(text).unwrap_or_default();
                join(&comp_dir, &dir, &name)
            })
            .collect()
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
    fn tails_end_at_folders() {
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
