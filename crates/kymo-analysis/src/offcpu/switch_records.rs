//! Waits of recordings with switch records (`record --switch-events`) and without events of all
//! switches. A record states that a task left its CPU or came back, and whether it was preempted;
//! it has neither a stack nor the state of the task, so that all other waits have one cause unless
//! there is an event of the same switch.

use std::ops::ControlFlow;

use kymo_events::{EventSelection, EventSource, PerfItem, SourceError};
use kymo_files::perfdata::Entry;
use kymo_model::{Note, NoteKind, NoteList, RecordKind, Sideband, by_number, counted};
use rustc_hash::{FxHashMap, FxHashSet};

use super::recorded_waits::{RecordedWaits, WaitScope, count_recorded_waits};
use super::table::{OffCpuRow, OffCpuTable};
use super::task_times::{TaskTimesError, has_switch_records};
use super::{OFF_CPU_EVENTS, OffCpuCause};
use crate::losses::select_events;
use crate::oncpu::{RecordingBegin, RecordingWindow, ThreadTime};
use crate::tasks::{SchedDecoder, SchedEvent, SchedRead, TaskMachine};

const RECORD: &str = "kymo offcpu record";

/// Switches that are compared to find out whether records or events cover more.
const MOST_COMPARED: u64 = 1 << 20;

/// Whether the switches of a recording are to be taken from its records: it has no events of
/// switches, or only those of some tasks. Events of one task, as perf records them of a command,
/// state when it left its CPU and not when it came back.
///
/// # Errors
/// If reading fails.
pub fn prefers_switch_records(
    source: &EventSource,
    selection: &EventSelection,
) -> Result<bool, SourceError> {
    if !has_switch_records(source) {
        return Ok(false);
    }
    if !has_switch_events(source) {
        return Ok(true);
    }
    // Only events can be cut, or have cgroups; and a pipe is read once.
    if source.is_piped() || is_cut(selection) || selection.names_cgroups() {
        return Ok(false);
    }
    let (mut records, mut events) = (SwitchCount::default(), SwitchCount::default());
    let mut decoder = SchedDecoder::default();
    source.for_each_with_records(&select_events(&OFF_CPU_EVENTS[..1]), &mut |item| {
        match item {
            PerfItem::Record(entry) => {
                if let Some((tid, is_out)) = switch_of(entry) {
                    records.count(tid, is_out);
                }
            }
            PerfItem::Event(event) => {
                if let Some(SchedEvent::Switch { prev, next, .. }) = decoder.decode(event) {
                    events.count(prev.tid, true);
                    events.count(next.tid, false);
                }
            }
        }
        if records.seen < MOST_COMPARED {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    // Events state more: a few that are missing, at the start and at the end, do not count.
    let (records, events) = (records.runs(), events.runs());
    Ok(records > events.saturating_add(events / 10))
}

fn has_switch_events(source: &EventSource) -> bool {
    source.classes().iter().any(|class| class.is_named(OFF_CPU_EVENTS[0]))
}

fn is_cut(selection: &EventSelection) -> bool {
    !selection.times.is_empty() || selection.cpus().is_some()
}

/// Task of a switch record, and whether it leaves its CPU.
fn switch_of(entry: &Entry<'_>) -> Option<(u32, bool)> {
    if !matches!(entry.raw.kind, RecordKind::SWITCH | RecordKind::SWITCH_CPU_WIDE) {
        return None;
    }
    let (_, tid) = entry.raw.sample_id(&entry.desc()?.attr).ok()?.tid?;
    match Sideband::parse(&entry.raw) {
        Ok(Some(Sideband::Switch(switch))) => Some((tid, switch.out)),
        _ => None,
    }
}

/// Switches by task: to it, and away from it.
#[derive(Default)]
struct SwitchCount {
    tasks: FxHashMap<u32, [u64; 2]>,
    seen: u64,
}

impl SwitchCount {
    fn count(&mut self, tid: u32, is_out: bool) {
        if is_task(tid) {
            self.tasks.entry(tid).or_default()[usize::from(is_out)] += 1;
            self.seen += 1;
        }
    }

    /// Runs of tasks of which both ends can be known.
    fn runs(&self) -> u64 {
        self.tasks.values().map(|[to, from]| to.min(from)).sum()
    }
}

/// Counts the waits of such a recording, and notes what its records do not state.
///
/// # Errors
/// If reading fails, or a part of the recording is selected.
pub fn count_switch_records(
    source: &EventSource,
    selection: &EventSelection,
) -> Result<(OffCpuTable, Vec<Note>), TaskTimesError> {
    if is_cut(selection) {
        return Err(TaskTimesError::Cut);
    }
    if selection.names_cgroups() {
        return Err(TaskTimesError::Cgroups);
    }
    let nothing = FxHashMap::default();
    let window = RecordingWindow { begin: RecordingBegin::FirstRecord, end: None };
    let scope = WaitScope {
        window,
        before: &nothing,
        may_count: &is_task,
        names: selection,
        only_whole: true,
    };
    let mut waits = count_recorded_waits(source, scope)?;
    let span = waits.seen();
    let (_, end) = span.unwrap_or_default();
    let (mut rows, mut silent) = (Vec::new(), 0);
    for (tid, time) in waits.accounts(end).threads {
        if !is_task(tid) || !selection.wants_numbers(waits.process_of(tid), tid) {
            continue;
        }
        // It ran or waited all the time: no record shows which.
        let is_silent = [time.on_cpu, time.ready, time.uncertain, time.switches] == [0; 4];
        silent += u64::from(is_silent);
        if !is_silent {
            rows.push(row(tid, time, &waits));
        }
    }
    let begun_before = rows.iter().filter(|row| waits.partial_of(row.tid).began_before);
    let no_begin = begun_before.count() as u64;
    let chosen: FxHashSet<u32> = rows.iter().map(|row| row.tid).collect();
    let table = waits.of_threads(end, &|tid| chosen.contains(&tid));
    for row in &mut rows {
        let (comm, pid) = table.names.get(&row.tid).copied().unwrap_or_default();
        row.comm = comm.padded().get(..comm.len()).unwrap_or_default().to_vec();
        row.pid = row.pid.or(pid);
        if row.comm.is_empty() {
            row.comm = format!(":{}", row.tid).into_bytes();
        }
    }
    let off = |row: &OffCpuRow| row.waiting.saturating_add(row.blocked);
    rows.sort_by_key(|row| (std::cmp::Reverse(off(row)), row.tid));
    let mut total = OffCpuRow::default();
    rows.iter().for_each(|row| total.merge(row));
    let has_wakeups =
        table.causes.iter().any(|(cause, stats)| *cause == OffCpuCause::Woken && !stats.is_empty());
    let uncertain: u64 = table.causes.iter().map(|(_, stats)| stats.uncertain.0).sum();
    let mut notes = NoteList::default();
    if rows.is_empty() {
        notes.doubt(NoteKind::Empty, "there are no records of switches", Some(RECORD));
    } else if !has_switch_events(source) {
        let fact = "switch records have no stacks: the causes of waits are not known";
        notes.doubt(NoteKind::Stacks, fact, Some(RECORD));
    } else {
        let fact = "the events of sched_switch are of some tasks only: times are those of the \
                    switch records";
        notes.choice(NoteKind::Events, fact, Some(RECORD));
        let (all, stacked) = table.stacked;
        if stacked < all {
            let missing = all - stacked;
            let have = by_number(missing, "has", "have");
            let fact = format!("{missing} of {all} waits {have} no stack");
            notes.doubt(NoteKind::Stacks, fact, Some(RECORD));
        }
    }
    if !rows.is_empty() && !has_wakeups {
        let fact = "there are no events of wake-ups: time from a wake-up to the run is part of \
                    the time blocked";
        notes.choice(NoteKind::Events, fact, Some(RECORD));
    }
    if uncertain > 0 {
        let what = counted(uncertain, "interval", "intervals");
        let fact = format!("records of switches are missing within {what}, which are in no number");
        notes.doubt(NoteKind::Unmatched, fact, None);
    }
    if no_begin > 0 {
        let fact = counted(
            no_begin,
            "wait began before the recording, and is in no number",
            "waits began before the recording, and are in no number",
        );
        notes.choice(NoteKind::Unmatched, fact, None);
    }
    if silent > 0 {
        let what = counted(silent, "thread ran or was", "threads ran or were");
        let fact = format!("{what} off CPU all the time: no record shows which");
        notes.choice(NoteKind::Unmatched, fact, None);
    }
    let machine = TaskMachine::new(source.losses());
    let table = OffCpuTable {
        causes: table.causes,
        cells: table.cells,
        rows,
        total,
        longest: table.longest,
        stacks: table.stacks,
        wakers: table.wakers,
        switches: table.stacked,
        no_begin,
        began_before: 0,
        unbalanced: 0,
        crowded: 0,
        merged: table.merged,
        read: SchedRead { machine, summary: table.summary, span, malformed: 0 },
    };
    Ok((table, notes.0))
}

/// Whether a number is that of a task: the kernel gives the last switch of an ended one -1.
fn is_task(tid: u32) -> bool {
    tid != 0 && tid != u32::MAX
}

/// Times of a thread, without waits whose start or end is not in the recording.
fn row(tid: u32, time: ThreadTime, waits: &RecordedWaits<'_>) -> OffCpuRow {
    let partial = waits.partial_of(tid);
    let blocked = time.blocked.saturating_sub(partial.blocked);
    let ready = time.ready.saturating_sub(partial.ready);
    OffCpuRow {
        tid,
        pid: waits.process_of(tid),
        tasks: 1,
        wall: time.on_cpu + ready + blocked + time.uncertain,
        running: time.on_cpu,
        waiting: ready,
        blocked,
        uncertain: time.uncertain,
        ..OffCpuRow::default()
    }
}
