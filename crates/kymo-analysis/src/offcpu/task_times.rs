//! What each task's time went to: how long it ran, and its waits by cause and stack, of
//! recordings of whichever kind tells of switches.

use kymo_events::{EventSelection, EventSource, SourceError};
use kymo_model::{AttrFlags, Note, NoteKind, by_number};
use rustc_hash::FxHashMap;

use super::count::{OffCpuConfig, count_off_cpu};
use super::notes::off_cpu_notes;
use super::recorded_waits::{WaitScope, count_recorded_waits};
use super::stack_store::StackStore;
use super::table::TaskWaits;
use crate::oncpu::OnCpu;
use crate::tasks::SchedSelection;

/// A task's time.
#[derive(Clone, Debug, Default)]
pub struct TaskTime {
    /// Its name.
    pub comm: String,
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Nanoseconds on a CPU.
    pub running: u64,
    /// What it waited for.
    pub waits: TaskWaits,
}

/// The times of all tasks.
#[derive(Debug)]
pub struct TaskTimes {
    /// Tasks with any time.
    pub tasks: Vec<TaskTime>,
    /// The stacks of their waits.
    pub stacks: StackStore,
    /// First and last moment that is known of.
    pub span: Option<(u64, u64)>,
    /// What makes the times less certain.
    pub notes: Vec<Note>,
    /// What could not be read.
    pub damaged: bool,
}

/// The times of tasks cannot be told.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TaskTimesError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("a pipe is read once, and times of tasks need the recording twice: name a file")]
    Piped,
    #[error(
        "--time, --cpu: times of tasks out of switch records are those of the whole recording; \
         one of all CPUs (kymo offcpu record, kymo sched record -g) can be cut"
    )]
    Cut,
    #[error(
        "the recording has no switches of tasks: kymo profile -o FILE, kymo offcpu record and \
         kymo sched record make such"
    )]
    NoSwitches,
}

/// Counts the times of tasks; `accounts` are those of switch records, where they were read.
///
/// # Errors
/// If reading fails, or the recording tells of no switches.
pub fn count_task_times(
    source: &EventSource,
    selection: &EventSelection,
    accounts: Option<OnCpu>,
) -> Result<TaskTimes, TaskTimesError> {
    if source.is_piped() {
        return Err(TaskTimesError::Piped);
    }
    let times = match accounts.filter(|_| has_switch_records(source)) {
        Some(accounts) => of_records(source, selection, accounts)?,
        None => of_events(source, selection)?,
    };
    if times.tasks.is_empty() { Err(TaskTimesError::NoSwitches) } else { Ok(times) }
}

/// Whether the switches of the tasks that were recorded are records of their own, so that
/// those of others are not there.
pub fn has_switch_records(source: &EventSource) -> bool {
    let [0] = *(0..source.perf_count()).collect::<Vec<_>>() else { return false };
    let data = source.perf(0).filter(|_| source.timeline().is_none());
    data.is_some_and(|data| {
        data.events().iter().any(|e| e.attr.flags.contains(AttrFlags::CONTEXT_SWITCH))
    })
}

fn of_records(
    source: &EventSource,
    selection: &EventSelection,
    accounts: OnCpu,
) -> Result<TaskTimes, TaskTimesError> {
    if !selection.times.is_empty() || selection.cpus().is_some() {
        return Err(TaskTimesError::Cut);
    }
    let span = accounts.seen();
    let (begin, end) = span.unwrap_or_default();
    let threads = accounts.finish(begin, end);
    let nothing = FxHashMap::default();
    let wants = &|_| true;
    let scope = WaitScope { span: (begin, end), before: &nothing, wants, names: selection };
    let mut table = count_recorded_waits(source, scope)?;
    let tasks = threads.into_iter().filter_map(|(tid, time)| {
        let (comm, pid) = table.names.get(&tid).copied().unwrap_or_default();
        let comm = comm.padded()[..comm.len()].to_vec();
        // Threads without a wanted name have no account.
        let wants = selection.wants_numbers(pid, tid);
        let waits = table.thread_waits.remove(&tid).unwrap_or_default();
        // The idle task is nobody.
        let counts = tid != 0 && (time.on_cpu > 0 || !waits.is_empty());
        (counts && (wants || !selection.has_task_conditions())).then(|| TaskTime {
            comm: named(&comm, tid),
            pid: pid.unwrap_or(tid),
            tid,
            running: time.on_cpu,
            waits,
        })
    });
    let mut tasks: Vec<TaskTime> = tasks.collect();
    tasks.sort_by_key(|t| t.tid);
    let mut notes = table.summary.notes(source);
    let (waits, stacked) = table.stacked;
    if stacked < waits {
        let missing = waits - stacked;
        let have = by_number(missing, "has", "have");
        let fact = format!("{missing} of {waits} waits {have} no stack");
        notes.push(Note::doubt(NoteKind::Stacks, fact, None));
    }
    let damaged = table.summary.is_damaged(source);
    Ok(TaskTimes { tasks, stacks: table.stacks, span, notes, damaged })
}

fn of_events(
    source: &EventSource,
    selection: &EventSelection,
) -> Result<TaskTimes, TaskTimesError> {
    let selection = SchedSelection { events: selection.clone() };
    let table = count_off_cpu(source, &OffCpuConfig { selection: &selection, by_task: true })?;
    let mut notes = table.read.summary.notes(source);
    notes.extend(off_cpu_notes(&table));
    let damaged = table.read.summary.is_damaged(source);
    let tasks = table.rows.into_iter().map(|row| TaskTime {
        comm: named(&row.comm, row.tid),
        pid: row.pid.unwrap_or(row.tid),
        tid: row.tid,
        running: row.running,
        waits: row.waits,
    });
    let tasks = tasks.collect();
    Ok(TaskTimes { tasks, stacks: table.stacks, span: table.read.span, notes, damaged })
}

fn named(comm: &[u8], tid: u32) -> String {
    match comm {
        [] => format!(":{tid}"),
        comm => String::from_utf8_lossy(comm).into_owned(),
    }
}
