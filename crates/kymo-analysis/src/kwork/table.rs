//! Run times and delays of work items, and the tasks that they delayed.

use kymo_events::{EventSource, SourceError};
use rustc_hash::FxHashMap;

use super::decode::KworkKind;
use super::machine::KworkStep;
use super::read::{KworkConfig, KworkRead, KworkSight, KworkSink, read_into};
use crate::call_sites::{CallSites, SiteId};
use crate::tasks::DelayStats;
use kymo_format::print_argument::FlagNames;

/// Most rows of work items, and of tasks.
const MOST_ROWS: usize = 100_000;
/// Bytes of a task's name.
const COMM: usize = 16;

/// A piece of work on one CPU.
#[derive(Clone, Debug)]
pub struct KworkRow {
    /// Its kind.
    pub kind: KworkKind,
    /// Its name, as perf has it.
    pub name: String,
    /// CPU where it began.
    pub cpu: u32,
    /// Number or address; of work items only where each has a row.
    pub id: Option<u64>,
    /// Times from begin to end.
    pub runtime: DelayStats,
    /// Times from the first raise to the start.
    pub delay: DelayStats,
    /// Intervals in which events were lost; they are in no other number.
    pub uncertain: u64,
}

/// A task that interrupts and softirqs held up.
#[derive(Clone, Debug)]
pub struct DelayedTask {
    /// Its name.
    pub comm: Vec<u8>,
    /// Thread.
    pub tid: u32,
    /// Times in which it did not go on.
    pub held_up: DelayStats,
    /// Name of what held it up longest at a time.
    pub longest_by: String,
}

/// All work items.
#[derive(Debug)]
pub struct KworkTable {
    /// Rows, in the order in which they came.
    pub rows: Vec<KworkRow>,
    /// Tasks that were held up, idle tasks left out.
    pub delayed: Vec<DelayedTask>,
    /// Pieces and tasks without rows of their own.
    pub crowded: u64,
    /// Work that was read.
    pub read: KworkRead,
}

/// Key of a row: kind, CPU, number; of work items the function.
type RowKey = (KworkKind, u32, u64, Option<SiteId>);

struct TableSink<'a> {
    config: &'a KworkConfig,
    per_work: bool,
    rows: Vec<KworkRow>,
    ids: FxHashMap<RowKey, usize>,
    tasks: FxHashMap<(u32, [u8; COMM]), DelayedTask>,
    crowded: u64,
}

impl TableSink<'_> {
    /// The row of a piece of work that began on a CPU.
    fn row(
        &mut self,
        sight: &KworkSight<'_, '_>,
        (cpu, function): (u32, Option<SiteId>),
        sites: &CallSites,
        softirqs: &FlagNames,
    ) -> Option<usize> {
        let (kind, id) = (sight.kwork.kind, sight.kwork.id);
        // Work items of one function are in one row, unless each is to have one.
        let merges = kind == KworkKind::Workqueue && !self.per_work && function.is_some();
        let key = (kind, cpu, if merges { 0 } else { id }, if merges { function } else { None });
        if let Some(at) = self.ids.get(&key) {
            return Some(*at);
        }
        if self.rows.len() >= MOST_ROWS {
            self.crowded += 1;
            return None;
        }
        let name = KworkRead::name(sites, softirqs, kind, (id, function), &sight.kwork.name);
        let id = (!merges).then_some(id);
        self.ids.insert(key, self.rows.len());
        let (runtime, delay) = (DelayStats::default(), DelayStats::default());
        self.rows.push(KworkRow { kind, name, cpu, id, runtime, delay, uncertain: 0 });
        Some(self.rows.len() - 1)
    }

    fn hold_up(&mut self, sight: &KworkSight<'_, '_>, (from, elapsed): (u64, u64), by: usize) {
        let task = sight.event.task();
        let Some(tid) = task.tid.filter(|tid| *tid != 0) else { return };
        // Its own time: it is there for softirqs.
        if task.comm().starts_with(b"ksoftirqd/") {
            return;
        }
        let mut comm = [0; COMM];
        let name = task.comm().get(..COMM).unwrap_or(task.comm());
        comm[..name.len()].copy_from_slice(name);
        let key = (tid, comm);
        if self.tasks.len() >= MOST_ROWS && !self.tasks.contains_key(&key) {
            self.crowded += 1;
            return;
        }
        let delayed = self.tasks.entry(key).or_insert_with(|| DelayedTask {
            comm: task.comm().to_vec(),
            tid,
            held_up: DelayStats::default(),
            longest_by: String::new(),
        });
        let before = delayed.held_up.max;
        delayed.held_up.add(elapsed, from);
        if delayed.held_up.max != before {
            delayed.longest_by = self.rows.get(by).map_or_else(String::new, |row| row.name.clone());
        }
    }
}

impl KworkSink for TableSink<'_> {
    fn step(
        &mut self,
        sight: &KworkSight<'_, '_>,
        sites: &CallSites,
        softirqs: &FlagNames,
    ) -> bool {
        let wants = self.config.wants(sight.time, sight.cpu, sight.event);
        match &sight.step {
            KworkStep::Begin(start) => {
                // The row is made here, where events state names.
                let row = self.row(sight, (start.cpu, sight.function), sites, softirqs);
                let row = row.and_then(|row| self.rows.get_mut(row)).filter(|_| wants);
                if let (Some(row), Some(raised)) = (row, start.raised) {
                    if start.delay_touches_loss {
                        row.uncertain += 1
                    } else {
                        row.delay.add(start.time - raised, raised)
                    }
                }
            }
            KworkStep::End(interval) => {
                let start = &interval.start;
                let function = match start.function.filter(|f| *f != 0) {
                    Some(address) => sites.known(address),
                    None => None,
                };
                let Some(at) = self.row(sight, (start.cpu, function), sites, softirqs) else {
                    return true;
                };
                let elapsed = interval.end - start.time;
                if let Some(row) = self.rows.get_mut(at).filter(|_| wants) {
                    if interval.touches_loss {
                        row.uncertain += 1
                    } else {
                        row.runtime.add(elapsed, start.time)
                    }
                }
                if wants && interval.holds_up_task && !interval.touches_loss {
                    self.hold_up(sight, (start.time, elapsed), at);
                }
            }
        }
        true
    }
}

impl KworkTable {
    /// Counts the work items of recordings. `per_work`: a row for each item of a workqueue instead
    /// of one for each function.
    ///
    /// # Errors
    /// If reading fails.
    pub fn count(
        source: &EventSource,
        config: &KworkConfig,
        per_work: bool,
    ) -> Result<KworkTable, SourceError> {
        let mut sink = TableSink {
            config,
            per_work,
            rows: Vec::new(),
            ids: FxHashMap::default(),
            tasks: FxHashMap::default(),
            crowded: 0,
        };
        let read = read_into(source, config, &mut sink)?;
        let TableSink { rows, tasks, crowded, .. } = sink;
        let mut delayed: Vec<DelayedTask> = tasks.into_values().collect();
        delayed.sort_by(|a, b| {
            (b.held_up.total, &a.comm, a.tid).cmp(&(a.held_up.total, &b.comm, b.tid))
        });
        Ok(KworkTable { rows, delayed, crowded, read })
    }
}
