//! Programs whose files are not what they should be, since somebody else has written into them
//! or cut them short: nothing more of them is read, it is said, and all others go on.

use std::collections::BTreeSet;

use kymo_ring::LayoutError;

use super::error::{Notes, UstError};
use super::program::{Program, ProgramId};

/// Which programs that are, and why.
#[derive(Debug, Default)]
pub(super) struct UnreadablePrograms {
    /// Their files were cut short.
    cut: BTreeSet<(u32, ProgramId)>,
    /// Something else is wrong with their files.
    others: BTreeSet<(u32, ProgramId)>,
    notes: Notes,
}

impl UnreadablePrograms {
    pub(super) fn has(&self, program: &Program) -> bool {
        let key = (program.uid(), program.id().clone());
        self.cut.contains(&key) || self.others.contains(&key)
    }

    /// Notes down what is wrong with a program's files; errors of one's own go on.
    pub(super) fn sort_out(
        &mut self,
        program: &Program,
        read: Result<(), UstError>,
    ) -> Result<(), UstError> {
        let key = (program.uid(), program.id().clone());
        match read {
            Ok(()) => {}
            Err(e @ (UstError::Write { .. } | UstError::Directory { .. })) => return Err(e),
            Err(UstError::Cut | UstError::Ring { error: LayoutError::Short { .. }, .. }) => {
                self.cut.insert(key);
            }
            // It was seen here before the program has met it.
            Err(UstError::Shared(e)) if e.is_short() => {
                self.cut.insert(key);
            }
            Err(e) => {
                self.others.insert(key);
                self.notes.push(e.to_string());
            }
        }
        Ok(())
    }

    /// How many programs' files were cut short.
    pub(super) fn cut(&self) -> u64 {
        self.cut.len() as u64
    }

    /// What else is wrong.
    pub(super) fn notes(&self) -> &Notes {
        &self.notes
    }
}
