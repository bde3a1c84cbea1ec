//! What did not fit together, as notes for the ledger.

use kymo_model::{Note, NoteKind, counted};

use super::count::SyscallTable;

/// Notes on what was counted.
pub fn syscall_notes(table: &SyscallTable) -> Vec<Note> {
    const RECORD: &str = "record them: kymo syscalls record";
    let mut notes = Vec::new();
    let mut doubt = |kind, fact: String, advice: Option<&str>| {
        notes.push(Note::doubt(kind, fact, advice.map(str::to_owned)));
    };
    if table.events == 0 {
        doubt(NoteKind::Empty, "there are no events of system calls".to_owned(), Some(RECORD));
    }
    if table.touching_loss > 0 {
        let fact = format!(
            "events were lost within {} in no number but `uncertain`",
            counted(table.touching_loss, "call, which is", "calls, which are")
        );
        doubt(NoteKind::Lost, fact, None);
    }
    if table.has_losses && table.entries + table.exits > 0 {
        let n = table.entries + table.exits;
        let fact = format!("{n} entries and exits have no partner: events were lost");
        doubt(NoteKind::Unmatched, fact, None);
    }
    if table.malformed > 0 {
        let n = table.malformed;
        let fact = counted(
            n,
            "event without time, task or a field that is needed is left out",
            "events without time, task or a field that is needed are left out",
        );
        doubt(NoteKind::Malformed, fact, None);
    }
    notes.extend(table.width_note.clone());
    let mut doubt = |kind, fact: String, advice: Option<&str>| {
        notes.push(Note::doubt(kind, fact, advice.map(str::to_owned)));
    };
    if table.crowded > 0 {
        let fact = counted(
            table.crowded,
            "call of more tasks than are told apart",
            "calls of more tasks than are told apart",
        );
        doubt(NoteKind::Entries, fact, None);
    }
    let halves = [
        (table.open_at_end, "had not returned when the recording ended"),
        (table.exits, "had begun before it did, or unseen"),
        (table.entries, "never returned (exit, rt_sigreturn), or unseen"),
    ];
    let halves = halves.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
    let halves: Vec<String> = halves.collect();
    if !halves.is_empty() {
        let fact = format!("calls that are not counted: {}", halves.join("; "));
        notes.push(Note::choice(NoteKind::Unmatched, fact, None));
    }
    if table.events > 0 && table.sched.switches == 0 {
        let fact = "there are no sched_switch events: what calls waited for is not known";
        notes.push(Note::choice(NoteKind::Events, fact.to_owned(), Some(RECORD.to_owned())));
    } else if table.events > 0 && table.stacked == 0 {
        let fact =
            "there are no stacks of sched_switch: causes of waits are told by the call alone";
        let advice = "kymo syscalls record -g".to_owned();
        notes.push(Note::choice(NoteKind::Events, fact.to_owned(), Some(advice)));
    }
    notes
}
