//! What did not fit together, as notes for the ledger.

use kymo_model::{Note, NoteKind, NoteList, counted};

use super::read::BlockRead;

/// Notes on what was read; `is_recorded`: events of block requests were wanted, whether any came
/// or not.
pub fn block_notes(read: &BlockRead, is_recorded: bool) -> Vec<Note> {
    const RECORD: &str = "record them: kymo io record";
    const ENDS: &str = "record all CPUs, with larger rings: -m";
    /// Requests that a busy machine may have under way.
    const MOST_IN_FLIGHT: u64 = 256;
    let c = &read.machine.counts;
    let mut notes = NoteList::default();
    if c.events == 0 && is_recorded {
        notes.doubt(NoteKind::Empty, "no block request was made in that time".to_owned(), None);
    } else if c.events == 0 {
        notes.doubt(NoteKind::Empty, "there are no events of block requests", Some(RECORD));
    }
    if c.touching_loss > 0 {
        let fact = format!(
            "events were lost within {} no times",
            counted(c.touching_loss, "request, which has", "requests, which have")
        );
        notes.doubt(NoteKind::Lost, fact, None);
    }
    if read.machine.has_losses() && c.completions_only + c.open_at_end > 0 {
        let n = c.completions_only + c.open_at_end;
        notes.doubt(
            NoteKind::Unmatched,
            counted(
                n,
                "request has no begin or end: events were lost",
                "requests have no begin or end: events were lost",
            ),
            None,
        );
    }
    notes.counted(c.alike, NoteKind::Unmatched, "request has no times: others to the same sectors had no end yet, and completions do not tell which is done", "requests have no times: others to the same sectors had no end yet, and completions do not tell which is done");
    notes.counted(
        c.unplaced + read.malformed,
        NoteKind::Malformed,
        "event without time or a field that is needed is left out",
        "events without time or a field that is needed are left out",
    );
    notes.counted(
        c.crowded,
        NoteKind::Entries,
        "request of more than are told apart at a time",
        "requests of more than are told apart at a time",
    );
    let owners = &read.machine.owners;
    if owners.crowded > 0 {
        let fact = format!("{} tasks and inodes of more than are followed", owners.crowded);
        notes.doubt(NoteKind::Entries, format!("{fact}: fewer files are known"), None);
    }
    let halves = [
        (c.open_at_end, "have no end in it: not done when it ended, or done unseen"),
        (c.completions_only, "had begun before it did, or unseen"),
    ];
    let halves = halves.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
    let halves: Vec<String> = halves.collect();
    if !halves.is_empty() {
        let fact = format!("requests of the recording that are not counted: {}", halves.join("; "));
        // Devices work on few requests at a time: ends of more than were seen are missing.
        if c.open_at_end > c.completed.max(MOST_IN_FLIGHT) {
            notes.doubt(NoteKind::Unmatched, fact, Some(ENDS))
        } else {
            notes.choice(NoteKind::Unmatched, fact, None)
        }
    }
    if c.events > 0 && read.sched.switches == 0 {
        let fact = "there are no sched_switch events: who waited is not known".to_owned();
        notes.choice(NoteKind::Events, fact, Some(RECORD));
    }
    notes.0
}
