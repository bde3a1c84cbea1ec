//! Notes for the ledger about scheduler events that do not match each other.

use kymo_model::{Note, NoteKind, NoteList, counted};

use super::machine::SchedCounts;
use super::read::SchedRead;

/// Notes on what was read; `record` is the command that records what is missing.
pub fn sched_notes(read: &SchedRead, record: &str) -> Vec<Note> {
    let c: &SchedCounts = &read.machine.counts;
    let mut notes = NoteList::default();
    if c.switches == 0 {
        let advice = format!("record them: {record}");
        notes.doubt(NoteKind::Empty, "there are no sched_switch events", Some(&advice));
    }
    if c.touching_loss > 0 {
        let what = counted(c.touching_loss, "interval", "intervals");
        let fact = format!("events were lost during {what}, which may be wrong");
        notes.doubt(NoteKind::Lost, fact, None);
    }
    if c.mismatched_idle > 0 {
        let what = counted(
            c.mismatched_idle,
            "switch from an idle task is",
            "switches from idle tasks are",
        );
        let fact = format!(
            "{what} missing, as on some kernels: the start of the next task's run is unknown"
        );
        notes.doubt(NoteKind::Unmatched, fact, None);
    }
    if c.unexplained() > 0 {
        let what = counted(c.unexplained(), "switch", "switches");
        let (as_in, advice) = match c.is_of_all_tasks() {
            true => ("", None),
            false => (
                ", as in a recording of some tasks only",
                Some(format!("`{record}` records all tasks on all CPUs")),
            ),
        };
        let fact = format!(
            "{what} away from tasks that their CPUs had not switched to: switches are \
             missing{as_in}; times of other tasks may be wrong"
        );
        notes.doubt(NoteKind::Unmatched, fact, advice.as_deref());
    }
    if c.mismatched_unrecorded > 0 {
        let fact = "the recording is of some tasks: times of others on their CPUs are incomplete";
        notes.choice(NoteKind::Unmatched, fact, None);
    }
    if c.no_wakeup > 0 {
        let what = counted(c.no_wakeup, "run of a blocked task has", "runs of blocked tasks have");
        let fact = format!("{what} no wake-up in the recording");
        let advice = format!("`{record}` records the wake-ups of all CPUs");
        let lacks_them = c.wakeups == 0 || !c.is_of_all_tasks();
        notes.doubt(NoteKind::Unmatched, fact, lacks_them.then_some(&*advice));
    }
    if c.backwards > 0 {
        let fact =
            format!("{} are older than one before them", counted(c.backwards, "event", "events"));
        notes.doubt(NoteKind::Order, fact, None);
    }
    if c.unplaced + read.malformed > 0 {
        let what = counted(c.unplaced + read.malformed, "event", "events");
        let fact = format!("{what} without time, CPU or a field that is needed are left out");
        notes.doubt(NoteKind::Malformed, fact, None);
    }
    if c.crowded_out > 0 {
        let what = counted(c.crowded_out, "event", "events");
        let fact = format!("{what} of further tasks left out (table limit reached)");
        notes.doubt(NoteKind::Entries, fact, None);
    }
    let mut open = Vec::new();
    // What began before a CPU's first switch is so in every recording.
    if c.no_begin > 0 {
        let what = counted(c.no_begin, "run has", "runs have");
        open.push(format!("{what} no recorded start"));
    }
    if c.no_end > 0 {
        let what = counted(c.no_end, "task still waits", "tasks still wait");
        open.push(format!("{what} for a CPU at the end of the recording"));
    }
    if !open.is_empty() {
        notes.choice(NoteKind::Unmatched, open.join("; "), None);
    }
    notes.0
}
