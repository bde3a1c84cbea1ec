//! Programs whose files are not what they should be, since another process has written into them or
//! truncated them: they are not read any further, this is reported, and all others continue.

use std::collections::BTreeSet;

use kymo_ring::LayoutError;

use super::error::{Notes, UstError};
use super::program::{Program, ProgramId};

/// Unreadable programs, with the reason.
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

    /// Number of programs whose files were truncated.
    pub(super) fn cut(&self) -> u64 {
        self.cut.len() as u64
    }

    /// Notes about other defects.
    pub(super) fn notes(&self) -> &Notes {
        &self.notes
    }
}
