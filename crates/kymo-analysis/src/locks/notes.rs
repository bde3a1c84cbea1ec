//! What makes waits for locks less certain, as notes for the ledger.

use kymo_model::{Note, NoteKind};

use super::LockEvents;
use super::contention::ContentionTable;
use super::futex::FutexTable;

/// Notes on waits that were counted.
pub fn contention_notes(table: &ContentionTable) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut doubt = |kind, fact: String, advice: Option<&str>| {
        notes.push(Note::doubt(kind, fact, advice.map(str::to_owned)));
    };
    if table.events == 0 {
        let fact = "there are no events lock:contention_begin and lock:contention_end";
        let advice = "record them: kymo lock record (Linux 5.19 and later have them)";
        doubt(NoteKind::Empty, fact.to_owned(), Some(advice));
    }
    let (begins, stacks) = table.begins;
    if stacks < begins {
        let fact = format!("{} of {begins} waits have no stack, and no caller", begins - stacks);
        doubt(NoteKind::Stacks, fact, Some("kymo lock record"));
    }
    if table.touching_loss > 0 {
        let fact =
            format!("events were lost in {} waits, which are in no time", table.touching_loss);
        doubt(NoteKind::Lost, fact, None);
    }
    if table.malformed > 0 {
        let fact = format!("{} events without time, task or lock are left out", table.malformed);
        doubt(NoteKind::Malformed, fact, None);
    }
    if table.crowded > 0 {
        let fact = format!("{} waits are beyond those that are told apart", table.crowded);
        doubt(NoteKind::Entries, fact, None);
    }
    let mut open = Vec::new();
    if table.no_begin > 0 && table.of == LockEvents::Lockdep {
        let fact = format!(
            "{} events are of locks that were taken before the recording began, or unseen: these \
             are not counted",
            table.no_begin
        );
        notes.push(Note::choice(NoteKind::Unmatched, fact, None));
    } else if table.no_begin > 0 {
        open.push(format!("{} waits began before the recording, or unseen", table.no_begin));
    }
    if table.no_end > 0 {
        open.push(format!("{} waits have no end in the recording", table.no_end));
    }
    if !open.is_empty() {
        let fact = format!("{}: they are in no time", open.join("; "));
        notes.push(Note::choice(NoteKind::Unmatched, fact, None));
    }
    notes
}

/// Notes on waits for futexes.
pub fn futex_notes(table: &FutexTable) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut doubt = |kind, fact: String, advice: Option<&str>| {
        notes.push(Note::doubt(kind, fact, advice.map(str::to_owned)));
    };
    if table.events == 0 {
        let fact = "there are no system calls of futexes";
        doubt(NoteKind::Empty, fact.to_owned(), Some("record them: kymo lock record --futex"));
    }
    let (waits, stacks) = table.stacked;
    if stacks < waits {
        let fact = format!("{} of {waits} waits have no stack", waits - stacks);
        doubt(NoteKind::Stacks, fact, Some("kymo lock record --futex into a perf.data"));
    }
    let lost: u64 = table.rows.iter().map(|r| r.uncertain).sum();
    if lost > 0 {
        let fact = format!("events were lost in {lost} waits, which are in no time");
        doubt(NoteKind::Lost, fact, None);
    }
    if table.malformed > 0 {
        let fact = format!("{} events without time, task or a field are left out", table.malformed);
        doubt(NoteKind::Malformed, fact, None);
    }
    let left_out = table.crowded + table.stacks.left_out;
    if left_out > 0 {
        let fact =
            format!("{left_out} calls are beyond the futexes and stacks that are told apart");
        doubt(NoteKind::Entries, fact, None);
    }
    let open: u64 = table.rows.iter().map(|r| r.open).sum();
    if open > 0 {
        let fact = format!("{open} waits have no end in the recording: they are in no time");
        notes.push(Note::choice(NoteKind::Unmatched, fact, None));
    }
    notes
}
