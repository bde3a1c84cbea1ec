//! Notes for the ledger about what makes waits less certain.

use kymo_model::{Note, NoteKind, NoteList, by_number, counted};

use super::table::OffCpuTable;
use crate::tasks::sched_notes;

const RECORD: &str = "kymo offcpu record";

/// Notes on waits that were counted.
pub fn off_cpu_notes(table: &OffCpuTable) -> Vec<Note> {
    let mut notes = NoteList(sched_notes(&table.read, RECORD));
    let (switches, stacks) = table.switches;
    if switches > 0 && stacks == 0 {
        let fact = "no sched_switch event has a stack: the causes of waits are unknown";
        notes.doubt(NoteKind::Stacks, fact, Some(RECORD));
    } else if stacks < switches {
        let missing = switches - stacks;
        let have = by_number(missing, "has", "have");
        let fact = format!("{missing} of {switches} switches {have} no stack");
        notes.doubt(NoteKind::Stacks, fact, None);
    }
    if table.unbalanced > 0 {
        let fact = format!(
            "of {} of {} tasks the times running, waiting and blocked differ by more than 1 % from \
             the time between their first and last event",
            table.unbalanced, table.total.tasks
        );
        notes.doubt(NoteKind::Unmatched, fact, None);
    }
    let left_out = table.stacks.left_out;
    if left_out + table.merged > 0 {
        let fact = format!(
            "the limit of stacks is reached: {} none, {} counted without wakers or stacks",
            counted(left_out, "event has", "events have"),
            counted(table.merged, "wait is", "waits are")
        );
        notes.doubt(NoteKind::Entries, fact, Some("--time, --pid or --comm choose fewer"));
    }
    notes.counted(
        table.crowded,
        NoteKind::Entries,
        "ended task is in one row together",
        "ended tasks are in one row together",
    );
    if table.began_before > 0 {
        let fact = counted(
            table.began_before,
            "wait began before the recording: it counts from the start of the recording",
            "waits began before the recording: they count from the start of the recording",
        );
        notes.choice(NoteKind::Unmatched, fact, None);
    }
    if table.no_begin > 0 {
        let fact = counted(
            table.no_begin,
            "wait has no recorded start and is not counted",
            "waits have no recorded start and are not counted",
        );
        notes.choice(NoteKind::Unmatched, fact, None);
    }
    notes.0
}
