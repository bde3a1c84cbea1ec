//! Scheduling delays by task: how long each waited for a CPU, and why.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use kymo_events::live::SampleSink;
use kymo_events::{EventSource, ReadOptions, ReadSummary, SourceError};
use kymo_table::ColumnSet;

use super::machine::{TaskMachine, Transition};
use super::read::{SchedRead, SchedReader, SchedSelection, SchedStep, read_sched};
use super::task::{SchedTask, TaskId};
use super::wait::{Wait, WaitCause};
use crate::durations::DurationHistogram;
use crate::losses::LossWindows;

/// Tasks that ended and have rows of their own; more are counted in one.
const MOST_ENDED: usize = 100_000;

/// Options of counting latencies.
#[derive(Debug)]
pub struct LatencyConfig<'a> {
    /// Selection of waits: by the time and CPU at which they end.
    pub selection: &'a SchedSelection,
    /// A row for each task instead of one for each name.
    pub by_task: bool,
}

/// Waits for a CPU.
#[derive(Clone, Debug, Default)]
pub struct DelayStats {
    /// Number of them.
    pub count: u64,
    /// Nanoseconds together.
    pub total: u64,
    /// The longest, and when it began.
    pub max: Option<(u64, u64)>,
    /// Distribution of the delays.
    pub histogram: DurationHistogram,
}

impl DelayStats {
    #[inline]
    pub(crate) fn add(&mut self, delay: u64, from: u64) {
        self.count += 1;
        self.total = self.total.saturating_add(delay);
        if self.max.is_none_or(|(max, _)| delay > max) {
            self.max = Some((delay, from));
        }
        self.histogram.add(delay);
    }

    pub(crate) fn merge(&mut self, other: &DelayStats) {
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        // Of equal ones the first.
        let order = |max: Option<(u64, u64)>| max.map(|(delay, from)| (delay, Reverse(from)));
        if order(other.max) > order(self.max) {
            self.max = other.max;
        }
        self.histogram.merge(&other.histogram);
    }

    /// Their mean.
    pub fn average(&self) -> Option<u64> {
        self.total.checked_div(self.count)
    }

    /// Duration that this share of them does not exceed, at most 1/16 above the truth.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let (max, _) = self.max?;
        self.histogram.quantile(share).map(|q| q.min(max))
    }
}

/// Columns of durations; with `details` a histogram, too.
pub(crate) fn delay_columns<'a, C: 'a>(details: bool) -> ColumnSet<'a, DelayStats, C> {
    let columns = ColumnSet::new()
        .sum("count", "number", |d: &DelayStats, _: &C| d.count)
        .sum("total_ns", "sum", |d, _| d.total)
        .measure("average_ns", "mean", |d, _| d.average())
        .measure("p50_ns", "median; exceeds the exact value by at most 1/16", |d, _| {
            d.quantile(0.5)
        })
        .measure("p90_ns", "90th percentile, with the same accuracy", |d, _| d.quantile(0.9))
        .measure("p99_ns", "99th percentile, with the same accuracy", |d, _| d.quantile(0.99))
        .measure("max_ns", "maximum", |d, _| d.max.map(|m| m.0))
        .measure("max_start_ns", "start of the longest", |d, _| d.max.map(|m| m.1));
    // Rows of tasks are many.
    if !details {
        return columns;
    }
    columns.detail(
        "histogram",
        "pairs of a bucket's lower bound in nanoseconds and its count; buckets double in width, \
         the first one is 0 to 15",
        |d, _| {
            let doublings = d.histogram.doublings().into_iter();
            doublings.map(|(begin, count)| vec![begin, count]).collect::<Vec<_>>()
        },
    )
}

/// A task, or tasks of one name.
#[derive(Clone, Debug, Default)]
pub struct LatencyRow {
    /// Name.
    pub comm: Vec<u8>,
    /// Thread, of the one task.
    pub tid: u32,
    /// Its process, where known.
    pub pid: Option<u32>,
    /// Number of tasks.
    pub tasks: u64,
    /// Nanoseconds of `sched_stat_runtime`.
    pub accounted: u64,
    /// Nanoseconds between getting and leaving a CPU.
    pub on_cpu: u64,
    /// Nanoseconds between what looks like getting and leaving a CPU, where events were lost: it
    /// may have waited meanwhile. They are not in `on_cpu`.
    pub uncertain_on_cpu: u64,
    /// Number of switches to the task.
    pub switches: u64,
    /// All waits for a CPU; added up when the row is finished.
    pub delay: DelayStats,
    /// Those after a wake-up.
    pub woken: DelayStats,
    /// Those after it was preempted, or yielded.
    pub preempted: DelayStats,
    /// Those before its first run.
    pub new: DelayStats,
    /// Waits that ended on another CPU than the run before.
    pub migrations: u64,
    /// Runs that began, it is not known after what.
    pub unknown: u64,
    /// Waits in which events were lost; they are in no other number of delays.
    pub uncertain: u64,
}

impl LatencyRow {
    fn merge(&mut self, other: &LatencyRow) {
        self.tasks += other.tasks;
        self.accounted += other.accounted;
        self.on_cpu += other.on_cpu;
        self.uncertain_on_cpu += other.uncertain_on_cpu;
        self.switches += other.switches;
        self.delay.merge(&other.delay);
        self.woken.merge(&other.woken);
        self.preempted.merge(&other.preempted);
        self.new.merge(&other.new);
        self.migrations += other.migrations;
        self.unknown += other.unknown;
        self.uncertain += other.uncertain;
    }

    fn get(&mut self, wait: &Wait) {
        self.switches += 1;
        if wait.touches_loss {
            self.uncertain += 1;
            return;
        }
        self.migrations += u64::from(wait.is_migrated);
        let (Some(delay), Some(from)) = (wait.delay(), wait.runnable) else {
            self.unknown += 1;
            return;
        };
        match wait.cause {
            WaitCause::Woken => self.woken.add(delay, from),
            WaitCause::Preempted => self.preempted.add(delay, from),
            WaitCause::New => self.new.add(delay, from),
            WaitCause::Unknown => {}
        }
    }
}

/// The longest wait for a CPU of all.
#[derive(Clone, Debug)]
pub struct LongestDelay {
    /// Name of the task.
    pub comm: Vec<u8>,
    /// The task.
    pub tid: u32,
    /// CPU that it got.
    pub cpu: u32,
    /// The wait.
    pub wait: Wait,
    /// Name of who woke it, where that is known.
    pub waker: Option<Vec<u8>>,
    /// Task that ran before on the CPU: name and number. None where the task may not have waited
    /// for it.
    pub ran_before: Option<(Vec<u8>, u32)>,
}

/// Delays of all tasks.
#[derive(Debug)]
pub struct LatencyTable {
    /// Rows in no order; idle tasks are left out.
    pub rows: Vec<LatencyRow>,
    /// All rows together.
    pub total: LatencyRow,
    /// The longest delay.
    pub longest: Option<LongestDelay>,
    /// Whether the recording accounts run times; else they are those between switches.
    pub has_accounted: bool,
    /// Ended tasks that are in one row together.
    pub crowded: u64,
    /// Scheduler events that were read.
    pub read: SchedRead,
}

/// The table as it grows.
struct LatencyCounting<'a> {
    config: &'a LatencyConfig<'a>,
    /// By slot of the task.
    live: Vec<LatencyRow>,
    ended: Vec<LatencyRow>,
    by_comm: BTreeMap<Vec<u8>, LatencyRow>,
    longest: Option<LongestDelay>,
    has_accounted: bool,
    crowded: u64,
}

impl LatencyTable {
    /// Counts the delays of recordings.
    ///
    /// # Errors
    /// If reading fails.
    pub fn count(
        source: &EventSource,
        config: &LatencyConfig<'_>,
    ) -> Result<LatencyTable, SourceError> {
        let mut counting = LatencyCounting::new(config);
        let read = read_sched(source, ReadOptions::default(), |step, machine| {
            counting.step(step, machine);
            ControlFlow::Continue(())
        })?;
        Ok(counting.finish(read))
    }

    /// Counts the delays of events as they come: `feed` gives them all, and in the end what was
    /// read. What was lost is known when it is over, so that waits which had ended by then are
    /// not marked.
    ///
    /// # Errors
    /// Those of `feed`.
    pub fn count_live<E>(
        config: &LatencyConfig<'_>,
        feed: impl FnOnce(SampleSink<'_>) -> Result<ReadSummary, E>,
    ) -> Result<LatencyTable, E> {
        let mut counting = LatencyCounting::new(config);
        let mut reader = SchedReader::new(LossWindows::default());
        let summary = feed(&mut |event| {
            reader.event(event, &mut |step, machine| {
                counting.step(step, machine);
                ControlFlow::Continue(())
            })
        })?;
        Ok(counting.finish(reader.finish(summary)))
    }
}

impl<'a> LatencyCounting<'a> {
    fn new(config: &'a LatencyConfig<'a>) -> LatencyCounting<'a> {
        LatencyCounting {
            config,
            live: Vec::new(),
            ended: Vec::new(),
            by_comm: BTreeMap::new(),
            longest: None,
            has_accounted: false,
            crowded: 0,
        }
    }
}

impl LatencyCounting<'_> {
    #[inline]
    fn row(&mut self, id: TaskId) -> Option<&mut LatencyRow> {
        if self.live.len() <= id.index() {
            self.live.resize_with(id.index() + 1, LatencyRow::default);
        }
        self.live.get_mut(id.index())
    }

    #[inline]
    fn step(&mut self, step: &SchedStep<'_, '_>, machine: &TaskMachine) {
        let selection = self.config.selection;
        let wanted = selection.wants_cpu(step.cpu);
        match step.transition {
            Transition::Switch { out, next } => {
                let ran = out.since.and_then(|since| selection.cut(since, step.time));
                if let (true, Some((from, to))) = (wanted, ran)
                    && let Some(row) = self.row(out.task)
                {
                    if out.touches_loss {
                        row.uncertain_on_cpu += to - from
                    } else {
                        row.on_cpu += to - from
                    }
                }
                if wanted && selection.wants_time(step.time) {
                    if let Some(row) = self.row(next.task) {
                        row.get(&next.wait);
                    }
                    self.compare(step, machine, next.task, &next.wait, out.task);
                }
            }
            Transition::Runtime { task, runtime } => {
                self.has_accounted = true;
                if wanted
                    && selection.wants_time(step.time)
                    && let Some(row) = self.row(*task)
                {
                    row.accounted = row.accounted.saturating_add(*runtime);
                }
            }
            Transition::Wakeup { .. } | Transition::Migrate { .. } => {}
        }
        if !machine.ended().is_empty() {
            self.fold_ended(machine);
        }
    }

    /// Keeps a wait if it is the longest.
    #[inline]
    fn compare(
        &mut self,
        step: &SchedStep<'_, '_>,
        machine: &TaskMachine,
        id: TaskId,
        wait: &Wait,
        before: TaskId,
    ) {
        let Some(delay) = wait.delay() else { return };
        let longest = self.longest.as_ref().and_then(|l| l.wait.delay());
        if longest.is_some_and(|l| delay <= l) || wait.touches_loss {
            return;
        }
        let tasks = &machine.tasks;
        let (Some(task), Some(before)) = (tasks.get(id), tasks.get(before)) else { return };
        if task.is_idle() || !self.config.selection.wants_task(task) {
            return;
        }
        let waker = wait.woken.and_then(|w| w.by).map(|tid| match tid {
            0 => b"<idle>".to_vec(),
            tid => tasks.find_thread(tid).map_or_else(Vec::new, |t| t.comm().to_vec()),
        });
        let waker = waker.filter(|comm| !comm.is_empty());
        self.longest = Some(LongestDelay {
            comm: task.comm().to_vec(),
            tid: task.tid,
            cpu: step.cpu,
            wait: *wait,
            waker,
            ran_before: Some((before.comm().to_vec(), before.tid)),
        });
    }

    #[cold]
    fn fold_ended(&mut self, machine: &TaskMachine) {
        for id in machine.ended() {
            if let (Some(row), Some(task)) =
                (self.live.get_mut(id.index()).map(std::mem::take), machine.tasks.get(*id))
            {
                self.put(row, task);
            }
        }
    }

    /// Gives a row its name and its place among those that change no more.
    fn put(&mut self, row: LatencyRow, task: &SchedTask) {
        let nothing =
            row.switches == 0 && row.accounted == 0 && row.on_cpu == 0 && row.uncertain_on_cpu == 0;
        if nothing || task.is_idle() || !self.config.selection.wants_task(task) {
            return;
        }
        let comm = task.comm().to_vec();
        let mut row = LatencyRow { tid: task.tid, pid: task.info.pid, tasks: 1, ..row };
        for part in [&row.woken, &row.preempted, &row.new] {
            row.delay.merge(part);
        }
        if self.config.by_task && self.ended.len() < MOST_ENDED {
            return self.ended.push(LatencyRow { comm, ..row });
        }
        let name = if self.config.by_task {
            self.crowded += 1;
            b"[ended tasks]".to_vec()
        } else {
            comm
        };
        match self.by_comm.get_mut(&name) {
            Some(sum) => sum.merge(&row),
            None => _ = self.by_comm.insert(name.clone(), LatencyRow { comm: name, ..row }),
        }
    }

    fn finish(mut self, read: SchedRead) -> LatencyTable {
        for (id, task) in read.machine.tasks.iter() {
            if let Some(row) = self.live.get_mut(id.index()).map(std::mem::take) {
                self.put(row, task);
            }
        }
        let mut rows = self.ended;
        rows.extend(self.by_comm.into_values());
        let mut total = LatencyRow::default();
        rows.iter().for_each(|row| total.merge(row));
        LatencyTable {
            rows,
            total,
            longest: self.longest,
            has_accounted: self.has_accounted,
            crowded: self.crowded,
            read,
        }
    }
}
