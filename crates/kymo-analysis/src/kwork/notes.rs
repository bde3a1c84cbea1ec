//! What did not fit together, as notes for the ledger.

use kymo_model::{Note, NoteKind, NoteList, counted};

use super::read::KworkRead;

/// Notes on what was read.
pub fn kwork_notes(read: &KworkRead) -> Vec<Note> {
    let c = &read.machine.counts;
    let mut notes = NoteList::default();
    if read.events == 0 {
        let fact = "there are no events of interrupts, softirqs or work items".to_owned();
        notes.doubt(NoteKind::Empty, fact, Some("record them: kymo kwork record"));
    }
    if c.touching_loss > 0 {
        let fact = format!(
            "events were lost within {}",
            counted(c.touching_loss, "interval", "intervals")
        );
        notes.doubt(NoteKind::Lost, fact, None);
    }
    let missing = c.entries.saturating_sub(read.open_at_end) + c.exits;
    if read.machine.has_losses() && missing > 0 {
        let fact = format!("{missing} begins and ends have no partner: events were lost");
        notes.doubt(NoteKind::Unmatched, fact, None);
    }
    notes.counted(
        c.unplaced + read.malformed,
        NoteKind::Malformed,
        "event without time, CPU or a field that is needed is left out",
        "events without time, CPU or a field that is needed are left out",
    );
    notes.counted(
        c.crowded + read.sites.crowded,
        NoteKind::Entries,
        "piece of work of more than are told apart at a time is left out",
        "pieces of work of more than are told apart at a time are left out",
    );
    let halves = [
        (c.raises, "were asked for and did not begin"),
        (c.entries, "began and did not end"),
        (c.exits, "ended without a begin"),
    ];
    let halves: Vec<String> = halves
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{n} {what} in the recording"))
        .collect();
    if !halves.is_empty() {
        notes.choice(NoteKind::Unmatched, halves.join("; "), None);
    }
    if c.unraised > 0 && read.machine.has_raises.contains(&true) {
        let fact = format!(
            "{} softirqs and work items began without having been asked for in the recording; they \
             have no delay",
            c.unraised
        );
        notes.choice(NoteKind::Unmatched, fact, None);
    }
    notes.0
}
