//! Notes for the ledger about block events that do not match each other.

use kymo_events::EventSource;
use kymo_model::{Note, NoteKind, NoteList, counted};

use super::read::BlockRead;

/// Notes on what was read of a source.
pub fn block_notes(read: &BlockRead, source: &EventSource) -> Vec<Note> {
    const RECORD: &str = "record them: kymo io record";
    const ALL_TASKS: &str =
        "count those of all tasks: -a beside a command, no choice of tasks of a recording";
    const ENDS: &str = "record all CPUs, with larger rings: -m";
    /// Requests that a busy machine may have under way.
    const MOST_IN_FLIGHT: u64 = 256;
    let c = &read.machine.counts;
    let mut notes = NoteList::default();
    let is_recorded = source.classes().iter().any(|class| class.is_named("block:block_rq_issue"));
    if c.events == 0 && is_recorded {
        notes.doubt(NoteKind::Empty, "there were no block requests in that time".to_owned(), None);
    } else if c.events == 0 {
        notes.doubt(NoteKind::Empty, "there are no events of block requests", Some(RECORD));
    }
    if read.written_back > 0 {
        // Pages are written when a file system finds the time, by whichever worker is free.
        let workers = counted(read.written_back, "write is", "writes are");
        let mut fact = format!("{workers} by kernel workers, which write pages back later");
        if read.selected == 0 {
            fact = format!("no request is by a chosen task; {fact}");
            notes.doubt(NoteKind::Empty, fact, Some(ALL_TASKS));
        } else {
            notes.choice(NoteKind::Scope, format!("not counted: {fact}"), Some(ALL_TASKS));
        }
    } else if read.selected == 0 && read.of_others > 0 {
        let requests = counted(read.of_others, "request is", "requests are");
        let fact = format!("no request is by a chosen task; {requests} by others");
        notes.doubt(NoteKind::Empty, fact, Some(ALL_TASKS));
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
                "request has no start or end: events were lost",
                "requests have no start or end: events were lost",
            ),
            None,
        );
    }
    notes.counted(c.alike, NoteKind::Unmatched, "request has no times: other requests to the same sectors were pending, and completions do not identify which one ended", "requests have no times: other requests to the same sectors were pending, and completions do not identify which one ended");
    notes.counted(
        c.unplaced + read.malformed,
        NoteKind::Malformed,
        "event without time or a field that is needed is left out",
        "events without time or a field that is needed are left out",
    );
    notes.counted(
        c.crowded,
        NoteKind::Entries,
        "request is not attributed (limit of open requests reached)",
        "requests are not attributed (limit of open requests reached)",
    );
    let owners = &read.machine.owners;
    if owners.crowded > 0 {
        let fact = format!("{} tasks and inodes of more than are followed", owners.crowded);
        notes.doubt(NoteKind::Entries, format!("{fact}: fewer files are known"), None);
    }
    let halves = [
        (c.open_at_end, "without a recorded completion"),
        (c.completions_only, "without a recorded start"),
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
        let fact = "there are no sched_switch events: the waiting tasks are unknown".to_owned();
        notes.choice(NoteKind::Events, fact, Some(RECORD));
    }
    notes.0
}
