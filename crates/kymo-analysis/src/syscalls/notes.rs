//! Notes for the ledger about events that do not match each other.

use kymo_model::{Note, NoteKind, NoteList, counted};

use super::count::SyscallTable;

/// Notes on what was counted.
pub fn syscall_notes(table: &SyscallTable) -> Vec<Note> {
    const RECORD: &str = "record them: kymo syscalls record";
    let mut notes = NoteList::default();
    if table.events == 0 {
        notes.doubt(NoteKind::Empty, "there are no events of system calls", Some(RECORD));
    }
    if table.touching_loss > 0 {
        let fact = format!(
            "events were lost within {} in no number but `uncertain`",
            counted(table.touching_loss, "call, which is", "calls, which are")
        );
        notes.doubt(NoteKind::Lost, fact, None);
    }
    if table.has_losses && table.entries + table.exits > 0 {
        let n = table.entries + table.exits;
        let fact = format!("{n} entries and exits have no partner: events were lost");
        notes.doubt(NoteKind::Unmatched, fact, None);
    }
    notes.counted(
        table.malformed,
        NoteKind::Malformed,
        "event without time, task or a field that is needed is left out",
        "events without time, task or a field that is needed are left out",
    );
    notes.extend(table.width_note.clone());
    notes.counted(
        table.crowded,
        NoteKind::Entries,
        "call is not attributed to its task (table limit reached)",
        "calls are not attributed to their tasks (table limit reached)",
    );
    let halves = [
        (table.open_at_end, "had not returned when the recording ended"),
        (table.exits, "have no recorded start"),
        (table.entries, "never returned (exit, rt_sigreturn), or have no recorded exit"),
    ];
    let halves = halves.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
    let halves: Vec<String> = halves.collect();
    if !halves.is_empty() {
        let fact = format!("calls that are not counted: {}", halves.join("; "));
        notes.choice(NoteKind::Unmatched, fact, None);
    }
    if table.events > 0 && table.sched.switches == 0 {
        let fact = "there are no sched_switch events: the waits of calls are unknown";
        notes.choice(NoteKind::Events, fact, Some(RECORD));
    } else if table.events > 0 && table.stacked == 0 {
        let fact =
            "sched_switch events have no stacks: causes of waits are derived from the call alone";
        let advice = "kymo syscalls record -g".to_owned();
        notes.choice(NoteKind::Events, fact, Some(&advice));
    }
    notes.0
}
