//! Notes for the ledger about what makes a report less certain.

use kymo_model::{Note, NoteKind};

use super::report::BootReport;
use crate::critical_path::path_notes;

/// Notes on a boot.
pub fn boot_notes(report: &BootReport) -> Vec<Note> {
    let mut notes = path_notes(&report.table);
    let [initcalls, modules, execs] = report.seen;
    if initcalls + modules + execs == 0 {
        let fact = "there are neither initcalls nor modules nor program starts: parts are named by \
                    their tasks alone";
        let advice = "kymo boot prepare prints what to trace".to_owned();
        notes.push(Note::doubt(NoteKind::Empty, fact.to_owned(), Some(advice)));
    }
    if report.table.paths.is_empty() {
        let fact = "the selected task is not in the recording";
        let advice = "--until NAME, --tid or --comm selects another one".to_owned();
        notes.push(Note::doubt(NoteKind::Empty, fact.to_owned(), Some(advice)));
    }
    if report.crowded > 0 {
        let fact = format!("{} activities and commands of more than are kept", report.crowded);
        notes.push(Note::doubt(NoteKind::Entries, fact, None));
    }
    notes
}
