//! Time of each task: on CPU, and its waits by cause and stack, from recordings with switch records
//! or switch events.

use kymo_events::{EventSelection, EventSource, SourceError, TeedBatches};
use kymo_files::perfdata::PerfData;
use kymo_model::{AttrFlags, Note, NoteKind, by_number};
use rustc_hash::FxHashMap;

use super::count::{OffCpuConfig, count_off_cpu};
use super::notes::off_cpu_notes;
use super::recorded_waits::{RecordedWaits, WaitScope, count_recorded_waits};
use super::stack_store::StackStore;
use super::table::{OffCpuTable, TaskWaits};
use crate::oncpu::{RecordingBegin, RecordingWindow};
use crate::profile::Profile;
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
    /// Waits of the task.
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
    /// Notes about what makes the times less certain.
    pub notes: Vec<Note>,
    /// Whether a part of the recording could not be read.
    pub damaged: bool,
}

/// The times of tasks cannot be computed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TaskTimesError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("a pipe is read once, and times of tasks need the recording twice: name a file")]
    Piped,
    #[error(
        "--time, --cpu: this recording has switch records, whose times are those of the whole \
         recording; one of kymo offcpu record or kymo sched record -g can be cut"
    )]
    Cut,
    #[error(
        "--cgroup: switch records do not state cgroups; kymo offcpu record makes a recording that does"
    )]
    Cgroups,
    #[error(
        "the recording has no switches of tasks: kymo profile -o FILE, kymo offcpu record and \
         kymo sched record make such"
    )]
    NoSwitches,
}

/// Source of the tasks' waits.
enum CountedWaits<'a> {
    /// Waits from switch records, which exist for the recorded tasks.
    Records(Box<RecordedWaits<'a>>),
    /// Waits from the switch events of all CPUs.
    Events(Box<OffCpuTable>),
}

/// Counts the times of tasks, and reads the samples of each perf.data by `samples`: of one alone
/// out of the same reading.
///
/// # Errors If reading fails, or the recording has no switches.
pub fn count_task_times<E: From<TaskTimesError> + From<SourceError> + Send>(
    source: &EventSource,
    selection: &EventSelection,
    samples: impl Fn(&mut PerfData, Option<TeedBatches>) -> Result<Profile, E> + Sync,
) -> Result<(TaskTimes, Vec<Profile>), E> {
    if source.is_piped() {
        return Err(TaskTimesError::Piped.into());
    }
    let has_records = has_switch_records(source);
    if has_records && (!selection.times.is_empty() || selection.cpus().is_some()) {
        return Err(TaskTimesError::Cut.into());
    }
    let nothing = FxHashMap::default();
    let events = SchedSelection { events: selection.clone() };
    let count = || -> Result<CountedWaits<'_>, SourceError> {
        if has_records {
            let window = RecordingWindow { begin: RecordingBegin::FirstRecord, end: None };
            let scope = WaitScope {
                window,
                before: &nothing,
                may_count: &|_| true,
                names: selection,
                only_whole: false,
            };
            let waits = Box::new(count_recorded_waits(source, scope)?);
            return Ok(CountedWaits::Records(waits));
        }
        let config = OffCpuConfig { selection: &events, by_task: true };
        Ok(CountedWaits::Events(Box::new(count_off_cpu(source, &config)?)))
    };
    let mut profiles = Vec::new();
    let waits = if source.is_one_perf_data() {
        let mut data = source.reopen(0)?;
        let (waits, profile) =
            source.read_for_two(count, |batches| samples(&mut data, Some(batches)));
        // A failed reading reports itself.
        let waits = waits?;
        profiles.push(profile?);
        waits
    } else {
        for number in 0..source.perf_count() {
            if let Some(mut data) = source.perf(number) {
                profiles.push(samples(&mut data, None)?);
            }
        }
        count()?
    };
    let times = match waits {
        CountedWaits::Records(waits) => of_records(source, selection, *waits),
        CountedWaits::Events(table) => of_events(source, *table),
    };
    if times.tasks.is_empty() {
        Err(TaskTimesError::NoSwitches.into())
    } else {
        Ok((times, profiles))
    }
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
    mut waits: RecordedWaits<'_>,
) -> TaskTimes {
    let span = waits.seen();
    let (_, end) = span.unwrap_or_default();
    let threads = waits.accounts(end).threads;
    let mut table = waits.of_threads(end, &|_| true);
    let tasks = threads.into_iter().filter_map(|(tid, time)| {
        let (comm, pid) = table.names.get(&tid).copied().unwrap_or_default();
        let comm = comm.padded()[..comm.len()].to_vec();
        // Threads without a wanted name have no account.
        let wants = selection.wants_numbers(pid, tid);
        let waits = table.thread_waits.remove(&tid).unwrap_or_default();
        // The idle task is left out.
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
    TaskTimes { tasks, stacks: table.stacks, span, notes, damaged }
}

fn of_events(source: &EventSource, table: OffCpuTable) -> TaskTimes {
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
    TaskTimes { tasks, stacks: table.stacks, span: table.read.span, notes, damaged }
}

fn named(comm: &[u8], tid: u32) -> String {
    match comm {
        [] => format!(":{tid}"),
        comm => String::from_utf8_lossy(comm).into_owned(),
    }
}
