//! Notes for the ledger about what makes waits for locks less certain.

use kymo_events::EventSource;
use kymo_model::{Note, NoteKind, NoteList, by_number, counted};

use super::LockEvents;
use super::contention::ContentionTable;
use super::futex::FutexTable;

/// Notes on waits that were counted in a recording.
pub fn contention_notes(table: &ContentionTable, source: &EventSource) -> Vec<Note> {
    let mut notes = NoteList::default();
    // No lock was waited for if the events were recorded and none happened.
    let is_recorded = source.classes().iter().any(|class| class.is_named("lock:contention_begin"));
    if table.events == 0 && !is_recorded {
        let fact = "there are no events lock:contention_begin and lock:contention_end";
        let advice = "record them: kymo lock record (Linux 5.19 and later have them)";
        notes.doubt(NoteKind::Empty, fact, Some(advice));
    }
    let (begins, stacks) = table.begins;
    if stacks < begins {
        let missing = begins - stacks;
        let have = by_number(missing, "has", "have");
        let fact = format!("{missing} of {begins} waits {have} no stack, and no caller");
        notes.doubt(NoteKind::Stacks, fact, Some("kymo lock record"));
    }
    if table.touching_loss > 0 {
        let fact = format!(
            "events were lost in {} in no time",
            counted(table.touching_loss, "wait, which is", "waits, which are")
        );
        notes.doubt(NoteKind::Lost, fact, None);
    }
    notes.counted(
        table.malformed,
        NoteKind::Malformed,
        "event without time, task or lock is left out",
        "events without time, task or lock are left out",
    );
    notes.counted(
        table.crowded,
        NoteKind::Entries,
        "wait is not attributed (table limit reached)",
        "waits are not attributed (table limit reached)",
    );
    let mut open = Vec::new();
    if table.no_begin > 0 && table.of == LockEvents::Lockdep {
        let fact = counted(
            table.no_begin,
            "event concerns a lock acquired before the recording, or unseen: it is not counted",
            "events concern locks acquired before the recording, or unseen: they are not counted",
        );
        notes.choice(NoteKind::Unmatched, fact, None);
    } else if table.no_begin > 0 {
        open.push(counted(
            table.no_begin,
            "wait began before the recording, or unseen",
            "waits began before the recording, or unseen",
        ));
    }
    if table.no_end > 0 {
        open.push(counted(
            table.no_end,
            "wait has no end in the recording",
            "waits have no end in the recording",
        ));
    }
    if !open.is_empty() {
        let fact = format!("{}: they are in no time", open.join("; "));
        notes.choice(NoteKind::Unmatched, fact, None);
    }
    notes.0
}

/// Notes on waits for futexes.
pub fn futex_notes(table: &FutexTable) -> Vec<Note> {
    let mut notes = NoteList::default();
    if table.events == 0 && table.rows.is_empty() {
        let fact = "there are no system calls of futexes";
        notes.doubt(NoteKind::Empty, fact, Some("record them: kymo lock record --futex"));
    }
    let (waits, stacks) = table.stacked;
    if stacks < waits {
        let missing = waits - stacks;
        let have = by_number(missing, "has", "have");
        let fact = format!("{missing} of {waits} waits {have} no stack");
        notes.doubt(NoteKind::Stacks, fact, Some("kymo lock record --futex into a perf.data"));
    }
    let lost: u64 = table.rows.iter().map(|r| r.uncertain).sum();
    if lost > 0 {
        let fact = format!(
            "events were lost in {} in no time",
            counted(lost, "wait, which is", "waits, which are")
        );
        notes.doubt(NoteKind::Lost, fact, None);
    }
    notes.counted(
        table.malformed,
        NoteKind::Malformed,
        "event without time, task or a field is left out",
        "events without time, task or a field are left out",
    );
    if table.began_before > 0 {
        let fact = counted(
            table.began_before,
            "wait began before the recording: it counts from the start of the recording, without \
             its stack",
            "waits began before the recording: they count from the start of the recording, \
             without their stacks",
        );
        notes.choice(NoteKind::Unmatched, fact, None);
    }
    let left_out = table.crowded + table.stacks.left_out;
    notes.counted(
        left_out,
        NoteKind::Entries,
        "call is not attributed to its futex or stack (table limit reached)",
        "calls are not attributed to their futex or stack (table limit reached)",
    );
    let open: u64 = table.rows.iter().map(|r| r.open).sum();
    if open > 0 {
        let fact = counted(
            open,
            "wait has no end in the recording: it is in no time",
            "waits have no end in the recording: they are in no time",
        );
        notes.choice(NoteKind::Unmatched, fact, None);
    }
    notes.0
}
