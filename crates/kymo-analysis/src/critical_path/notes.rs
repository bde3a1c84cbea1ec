//! Notes for the ledger about what makes paths less certain.

use kymo_model::{Note, NoteKind, NoteList, by_number, counted};

use super::path::{CriticalPath, PathKind, PathSegment, PathTable};
use super::wake_source::WakeSource;
use crate::percent;
use crate::tasks::sched_notes;

const RECORD: &str = "kymo why record";

/// Notes on paths that were found.
pub fn path_notes(table: &PathTable) -> Vec<Note> {
    let mut notes = NoteList(sched_notes(&table.read, RECORD));
    let total = table.total();
    let segments = || table.paths.iter().flat_map(|p| &p.segments);
    let sum = |wanted: &dyn Fn(PathKind) -> bool| -> u64 {
        segments().filter(|s| wanted(s.kind)).map(|s| s.nanos()).sum()
    };
    let unknown = sum(&|kind| kind == PathKind::Unknown);
    if unknown > 0 {
        let fact = format!(
            "{:.1} % of the path is unknown: switches or wake-ups are missing",
            percent(unknown, total)
        );
        let counts = &table.read.machine.counts;
        let lacks_them = counts.wakeups == 0 || !counts.is_of_all_tasks();
        notes.doubt(NoteKind::Unmatched, fact, lacks_them.then_some(RECORD));
    }
    let is_seen = |s: &&PathSegment| s.is_unsplit || s.kind.ended_by() != Some(WakeSource::Unseen);
    let unseen: u64 = segments().filter(|s| !is_seen(s)).map(|s| s.nanos()).sum();
    if unseen > 0 {
        let fact = format!(
            "{:.1} % of the path are waits without a recorded wake-up: the path ends there",
            percent(unseen, total)
        );
        notes.doubt(NoteKind::Unmatched, fact, None);
    }
    let unsplit: u64 = segments().filter(|s| s.is_unsplit).map(|s| s.nanos()).sum();
    if unsplit > 0 {
        let fact = format!(
            "in {:.1} % of the path a switch from an idle task is missing: running and waiting are \
             not distinguished there",
            percent(unsplit, total)
        );
        notes.doubt(NoteKind::Unmatched, fact, None);
    }
    let lossy: u64 = segments().filter(|s| s.touches_loss).map(|s| s.nanos()).sum();
    if lossy > 0 {
        let fact = format!(
            "events were lost within {:.1} % of the path, which may have been otherwise",
            percent(lossy, total)
        );
        notes.doubt(NoteKind::Lost, fact, None);
    }
    let (wanted, found) = table.stacked;
    if wanted > 0 && found == 0 {
        let fact = "no event of the path has a stack: the causes of waits are unknown";
        notes.doubt(NoteKind::Stacks, fact, Some(RECORD));
    } else if found < wanted {
        let missing = wanted - found;
        let have = by_number(missing, "has", "have");
        let fact = format!("{missing} of {wanted} events of the path {have} no stack");
        notes.doubt(NoteKind::Stacks, fact, None);
    }
    let is_worker = |s: &PathSegment| {
        s.depth > 0 && table.task(s.task).is_some_and(|t| t.comm.starts_with(b"kworker/"))
    };
    if !table.has_work_events && segments().any(is_worker) {
        let fact = "the path leads through kernel workers, and the recording has no events of \
                    workqueues: which task queued their work is inferred from wake-ups";
        notes.doubt(NoteKind::Unmatched, fact, Some(RECORD));
    }
    if table.is_command_by_name {
        let fact = "the recording does not identify the process of its command: the path is that \
                    of the first process that executed a program of its name";
        notes.doubt(NoteKind::Unmatched, fact, Some("--pid or --tid selects another one"));
    }
    if table.began_before > 0 {
        let fact = counted(
            table.began_before,
            "wait of the path began before the recording: it counts from the start of the recording",
            "waits of the path began before the recording: they count from the start of the \
             recording",
        );
        notes.choice(NoteKind::Unmatched, fact, None);
    }
    let left_out: u64 = table.paths.iter().map(|p: &CriticalPath| p.left_out).sum();
    if left_out > 0 {
        let fact = format!(
            "paths have more segments than are kept: {:.1} % of their time, at the start, is left \
             out",
            percent(left_out, total)
        );
        notes.doubt(NoteKind::Entries, fact, Some("--time chooses less"));
    }
    if let Some(time) = table.forgotten
        && table.paths.iter().any(|p| p.from <= time)
    {
        let fact = format!(
            "there are more switches than are kept: the time before {}.{:09} s is not known",
            time / 1_000_000_000,
            time % 1_000_000_000
        );
        notes.doubt(NoteKind::Entries, fact, Some("--time chooses less"));
    }
    notes.counted(
        table.crowded,
        NoteKind::Entries,
        "task is left out (table limit reached)",
        "tasks are left out (table limit reached)",
    );
    let Some(spans) = &table.spans else { return notes.0 };
    if spans.no_key > 0 {
        let events = counted(spans.no_key, "event lacks", "events lack");
        let fact = format!("{events} the field that spans are matched by");
        notes.doubt(NoteKind::Malformed, fact, None);
    }
    // Without any events of the scheduler that is said of all tasks.
    if spans.no_task > 0 && table.read.machine.counts.switches > 0 {
        let spans = counted(spans.no_task, "span", "spans");
        let fact = format!("the task of {spans} does not occur in the scheduler events");
        notes.doubt(NoteKind::Unmatched, fact, None);
    }
    if spans.no_end + spans.no_begin > 0 {
        let begins = counted(spans.no_end, "begin has", "begins have");
        let ends = counted(spans.no_begin, "end", "ends");
        let fact = format!("{begins} no end, {ends} no begin");
        notes.choice(NoteKind::Unmatched, fact, None);
    }
    notes.0
}
