//! An index of debugging information: which units can hold a function of a name, have lines of a
//! file, or have the code of an address. It is made once of all units, stored as bytes by the
//! caller, and read in place.
//!
//! It answers the questions of `search`, no others, and as that does: units that can hold what is
//! asked for, which are then parsed. So a wrong index could hide places but never invent them; it
//! says which sections it was made of, and is used only with these.

mod build;
mod table;

use gimli::Section as _;
use rustc_hash::FxHashSet;

use super::names::{last_name, without_generics};
use super::sections::Sections;
use kymo_model::glob::{glob_match, is_glob};
use table::{Table, View};

/// The format of the bytes; raised with every change of it or of what is in it.
pub const VERSION: u32 = 1;

/// An index, borrowed from its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Index<'b> {
    view: View<'b>,
}

/// The bytes are no index of this debugging information.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// It was made of other sections.
    #[error("it is of other debugging information: {what} has {found} bytes, not {expected}")]
    Other {
        /// Which section.
        what: &'static str,
        /// Number of bytes found.
        found: u64,
        /// Expected number of bytes.
        expected: u64,
    },
    /// It is cut short or contradicts itself.
    #[error("it is damaged in {what}")]
    Damaged {
        /// Damaged part.
        what: &'static str,
    },
}

/// Sizes of the sections that an index belongs to.
fn marks(sections: &Sections<'_>) -> [(&'static str, u64); 5] {
    let own = sections.dwarf.borrow(|bytes| gimli::EndianSlice::new(bytes, sections.endian));
    let shared = sections.opened.shared(sections.endian);
    let shared = shared.map_or(0, |s| s.debug_info.reader().len());
    [
        (".debug_info", own.debug_info.reader().len() as u64),
        (".debug_abbrev", own.debug_abbrev.reader().len() as u64),
        (".debug_line", own.debug_line.reader().len() as u64),
        (".debug_str", own.debug_str.reader().len() as u64),
        (".debug_info of the shared file", shared as u64),
    ]
}

impl<'b> Index<'b> {
    /// Checks that `bytes` are an index of `sections`.
    pub fn open(bytes: &'b [u8], sections: &Sections<'_>) -> Result<Index<'b>, IndexError> {
        let view = View::open(bytes)?;
        for ((what, expected), found) in marks(sections).into_iter().zip(view.marks()) {
            if found != expected {
                return Err(IndexError::Other { what, found, expected });
            }
        }
        Ok(Index { view })
    }

    /// Number of units.
    pub(super) fn units(&self) -> usize {
        self.view.rows(Table::Starts)
    }

    /// Offsets of the units.
    pub(super) fn starts(&self) -> Vec<usize> {
        (0..self.units()).map(|row| self.view.u64(Table::Starts, row, 0) as usize).collect()
    }

    /// Units of which most is in another file.
    pub(super) fn skeletons(&self) -> Vec<usize> {
        let rows = 0..self.view.rows(Table::Skeletons);
        rows.map(|row| self.view.u32(Table::Skeletons, row, 0) as usize).collect()
    }

    /// Units that can have a function that a name, path or glob means, ascending.
    pub(super) fn functions(&self, pattern: &str) -> Vec<usize> {
        let last = last_name(pattern);
        let mut units = FxHashSet::default();
        if is_glob(pattern) {
            for row in 0..self.view.rows(Table::Names) {
                let name = self.view.text(Table::Names, row, 8);
                let Ok(name) = std::str::from_utf8(name) else { continue };
                if glob_match(&last, name)
                    || (name.contains('<') && glob_match(&last, &without_generics(name)))
                {
                    units.extend(self.view.units(Table::Names, row, 16));
                }
            }
        } else {
            self.named(&last, &mut units);
        }
        self.always(units)
    }

    /// Units with a function called so, with generic arguments or not, or by the
    /// linker.
    fn named(&self, name: &str, units: &mut FxHashSet<usize>) {
        let hash = table::hash(name.as_bytes());
        for row in self.view.equal(Table::Names, hash) {
            units.extend(self.view.units(Table::Names, row, 16));
        }
        for row in self.view.equal(Table::Linkage, hash) {
            units.insert(self.view.u32(Table::Linkage, row, 8) as usize);
        }
    }

    /// Units that have lines of a file whose path may end so, ascending.
    pub(super) fn file(&self, path: &str) -> Vec<usize> {
        let wanted = path.rsplit('/').next().unwrap_or(path);
        let mut units = FxHashSet::default();
        for row in self.view.equal(Table::Files, table::hash(wanted.as_bytes())) {
            units.extend(self.view.units(Table::Files, row, 8));
        }
        self.always(units)
    }

    /// With those units that could not be read when the index was made.
    fn always(&self, mut units: FxHashSet<usize>) -> Vec<usize> {
        let unread = 0..self.view.rows(Table::Unread);
        units.extend(unread.map(|row| self.view.u32(Table::Unread, row, 0) as usize));
        let count = self.units();
        let mut units: Vec<usize> = units.into_iter().filter(|unit| *unit < count).collect();
        units.sort_unstable();
        units
    }

    /// Units that may have the code at an address, the nearest first.
    pub(super) fn covering(&self, addr: u64) -> Vec<usize> {
        let rows = self.view.rows(Table::Ranges);
        let after = self.view.partition(Table::Ranges, |start| start <= addr);
        let mut units = Vec::new();
        // Spans of honest units hardly overlap.
        for row in (after.saturating_sub(64)..after.min(rows)).rev() {
            let unit = self.view.u32(Table::Ranges, row, 16) as usize;
            if self.view.u64(Table::Ranges, row, 8) > addr && !units.contains(&unit) {
                units.push(unit);
            }
        }
        units.retain(|unit| *unit < self.units());
        units
    }
}
