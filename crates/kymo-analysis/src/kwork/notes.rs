//! Notes for the ledger about events that do not match each other.

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
        let fact = format!("{missing} starts and ends are unmatched: events were lost");
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
        "work item is left out (table limit reached)",
        "work items are left out (table limit reached)",
    );
    let halves = [
        (c.raises, "were requested but did not start"),
        (c.entries, "began and did not end"),
        (c.exits, "ended without a start"),
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
            "{} softirqs and work items started without a raise in the recording; they have no delay",
            c.unraised
        );
        notes.choice(NoteKind::Unmatched, fact, None);
    }
    notes.0
}
