//! Waits of the tasks of one command or process, whose switches are recorded and nobody else's:
//! when a task left its CPU and came back tell its switch records, why it left the stack of its
//! `sched_switch`, and who woke it `sched_waking`, which is recorded of the whole machine.

use std::ops::ControlFlow;

use kymo_events::{EventSource, ReadOptions, ReadSummary, RecordedEvent, SourceError, TaskComm};
use rustc_hash::FxHashMap;

use super::OFF_CPU_EVENTS;
use super::cause::OffCpuCause;
use super::count::{is_interrupt, waker_role};
use super::stack_store::{StackNode, StackRole, StackStore};
use super::table::{CauseStats, CellKey, OffCpuCell, TaskWaits, WakerId, WakerInfo};
use crate::losses::select_events;
use crate::oncpu::{OffInterval, OffIntervals, OffKind};
use crate::tasks::{SchedDecoder, SchedEvent, SwitchOutState, WakeupContext};

/// Combinations of cause, stack and waker; more lose waker and stack.
const MAX_CELLS: usize = 1 << 16;
/// Wakers with their stacks.
const MAX_WAKERS: usize = 1 << 16;

/// Waits by cause, stack and waker.
#[derive(Debug)]
pub struct WaitTable {
    /// By cause, in the order of [`OffCpuCause::ALL`].
    pub causes: Vec<(OffCpuCause, CauseStats)>,
    /// Waits by cause, stack and waker, the largest total first.
    pub cells: Vec<(CellKey, OffCpuCell)>,
    /// Time by thread and cause, the most first.
    pub threads: FxHashMap<u32, Vec<(OffCpuCause, u64)>>,
    /// Waits by thread, cause and stack.
    pub thread_waits: FxHashMap<u32, TaskWaits>,
    /// Names and processes of threads as of their last switch.
    pub names: FxHashMap<u32, (TaskComm, Option<u32>)>,
    /// The stacks.
    pub stacks: StackStore,
    /// The wakers.
    pub wakers: Vec<WakerInfo>,
    /// Waits, and how many of them have a stack.
    pub stacked: (u64, u64),
    /// Waits that are told apart no more by stack and waker.
    pub merged: u64,
    /// What the readers say.
    pub summary: ReadSummary,
}

impl WaitTable {
    /// A waker.
    pub fn waker(&self, id: WakerId) -> Option<&WakerInfo> {
        self.wakers.get(id.0 as usize)
    }

    /// The cause that most time went to; threads without work have it only where there is no other.
    pub fn largest(&self) -> Option<(OffCpuCause, u64)> {
        let total = |(cause, stats): &(OffCpuCause, CauseStats)| {
            (*cause, stats.waits.total.saturating_add(stats.open.1))
        };
        let all = self.causes.iter().map(total).filter(|(_, total)| *total > 0);
        all.max_by_key(|(cause, total)| (!cause.is_idle(), *total))
    }
}

/// What events tell of an interval.
#[derive(Clone, Copy, Debug, Default)]
struct IntervalFacts {
    state: Option<SwitchOutState>,
    stack: Option<StackNode>,
    woken: Option<(u64, Option<WakerId>)>,
}

struct WaitReader<'a> {
    intervals: OffIntervals,
    before: &'a FxHashMap<u32, OffCpuCause>,
    facts: FxHashMap<u32, Vec<IntervalFacts>>,
    stacks: StackStore,
    wakers: Vec<WakerInfo>,
    waker_ids: FxHashMap<WakerInfo, WakerId>,
    names: FxHashMap<u32, (TaskComm, Option<u32>)>,
}

/// Counts the intervals that tasks were off their CPUs, by what their events tell. `before`:
/// what blocked each thread when the recording began, as far as that is known.
///
/// # Errors
/// If reading fails.
pub fn count_recorded_waits(
    source: &EventSource,
    intervals: OffIntervals,
    before: &FxHashMap<u32, OffCpuCause>,
) -> Result<WaitTable, SourceError> {
    let facts = |list: &Vec<OffInterval>| vec![IntervalFacts::default(); list.len()];
    let facts = intervals.iter().map(|(tid, list)| (*tid, facts(list))).collect();
    let mut reader = WaitReader {
        intervals,
        before,
        facts,
        stacks: StackStore::default(),
        wakers: Vec::new(),
        waker_ids: FxHashMap::default(),
        names: FxHashMap::default(),
    };
    let mut decoder = SchedDecoder::default();
    let select = select_events(&OFF_CPU_EVENTS);
    let summary = source.for_each(&select, ReadOptions::default(), &mut |event| {
        if let (Some(sched), Some(time)) = (decoder.decode(event), event.time) {
            reader.event(&sched, event, time);
        }
        ControlFlow::Continue(())
    })?;
    Ok(reader.count(summary))
}

impl WaitReader<'_> {
    fn event(&mut self, sched: &SchedEvent, event: &RecordedEvent<'_>, time: u64) {
        match sched {
            SchedEvent::Switch { prev, state, .. } => {
                // The record of the switch comes right behind its event.
                let Some(list) = self.intervals.get(&prev.tid) else { return };
                self.names.insert(prev.tid, (prev.comm, event.task().pid));
                let at = list.partition_point(|i| i.from < time);
                let is_next = list.get(at).is_some_and(|i| i.kind != OffKind::New);
                let facts = self.facts.get_mut(&prev.tid).and_then(|f| f.get_mut(at));
                if let Some(facts) = facts.filter(|_| is_next) {
                    (facts.state, facts.stack) =
                        (Some(*state), self.stacks.add(event, StackRole::Sleeper));
                }
            }
            SchedEvent::Wakeup { task, context, .. } => {
                let Some(list) = self.intervals.get(&task.tid) else { return };
                let after = list.partition_point(|i| i.from <= time);
                let Some(at) = after.checked_sub(1) else { return };
                let is_within = list.get(at).is_some_and(|i| time <= i.to);
                let known = self.facts.get(&task.tid).and_then(|f| f.get(at));
                if !is_within || known.is_none_or(|f| f.woken.is_some()) {
                    return;
                }
                let waker = self.waker(*context, event);
                if let Some(facts) = self.facts.get_mut(&task.tid).and_then(|f| f.get_mut(at)) {
                    facts.woken = Some((time, waker));
                }
            }
            _ => {}
        }
    }

    fn waker(&mut self, context: WakeupContext, event: &RecordedEvent<'_>) -> Option<WakerId> {
        // An interrupt comes upon anybody.
        let task = event.task();
        let is_task = !is_interrupt(context) && task.tid != Some(0);
        let comm = if is_task { task.comm().to_vec() } else { Vec::new() };
        let stack = self.stacks.add(event, waker_role(context));
        let info = WakerInfo { comm, context, stack };
        if let Some(known) = self.waker_ids.get(&info) {
            return Some(*known);
        }
        if self.wakers.len() >= MAX_WAKERS {
            return None;
        }
        let id = WakerId(self.wakers.len() as u32);
        self.wakers.push(info.clone());
        self.waker_ids.insert(info, id);
        Some(id)
    }

    /// The cause of an interval of a thread; `is_first`: none of its intervals was before.
    fn cause(
        &self,
        tid: u32,
        is_first: bool,
        interval: &OffInterval,
        facts: &IntervalFacts,
    ) -> OffCpuCause {
        match (interval.kind, facts.stack) {
            (OffKind::New, _) => OffCpuCause::New,
            (OffKind::Preempted, _) => OffCpuCause::Preempted,
            (OffKind::Blocked, stack) => {
                let state = facts.state.filter(|s| !s.is_runnable());
                let state = state.unwrap_or(SwitchOutState::Blocked(b'S'));
                let known = self.before.get(&tid).filter(|_| is_first && facts.state.is_none());
                let Some(stack) = stack else {
                    if let Some(cause) = known {
                        return *cause;
                    }
                    return OffCpuCause::of_block(state, std::iter::empty(), false);
                };
                let (causes, faults) = self.stacks.causes(stack);
                OffCpuCause::of_block(state, causes, faults)
            }
        }
    }

    fn count(self, summary: ReadSummary) -> WaitTable {
        let mut causes: Vec<(OffCpuCause, CauseStats)> =
            OffCpuCause::ALL.into_iter().map(|c| (c, CauseStats::default())).collect();
        let mut cells: FxHashMap<CellKey, OffCpuCell> = FxHashMap::default();
        let mut threads: FxHashMap<u32, Vec<(OffCpuCause, u64)>> = FxHashMap::default();
        let mut thread_waits: FxHashMap<u32, TaskWaits> = FxHashMap::default();
        let (mut waits, mut stacked, mut merged) = (0, 0, 0);
        for (tid, list) in &self.intervals {
            let facts = self.facts.get(tid).map_or(&[][..], Vec::as_slice);
            for (n, (interval, facts)) in list.iter().zip(facts).enumerate() {
                let cause = self.cause(*tid, n == 0, interval, facts);
                waits += 1;
                stacked += u64::from(facts.stack.is_some() || interval.kind == OffKind::New);
                for (cause, from, to) in parts(interval, cause, facts) {
                    let nanos = to - from;
                    if let Some((_, stats)) = causes.get_mut(cause as usize) {
                        match interval.is_open && to == interval.to {
                            true => {
                                stats.open.0 += 1;
                                stats.open.1 = stats.open.1.saturating_add(nanos);
                            }
                            false => stats.waits.add(nanos, from),
                        }
                    }
                    let waker = facts.woken.and_then(|w| w.1);
                    let waker = waker.filter(|_| cause != OffCpuCause::Preempted);
                    let mut key = (cause, facts.stack, waker);
                    if cells.len() >= MAX_CELLS && !cells.contains_key(&key) {
                        merged += 1;
                        key = (cause, None, None);
                    }
                    cells.entry(key).or_default().add(nanos);
                    let own = thread_waits.entry(*tid).or_default();
                    own.entry((key.0, key.1)).or_default().add(nanos);
                    let own = threads.entry(*tid).or_default();
                    match own.iter_mut().find(|(c, _)| *c == cause) {
                        Some((_, sum)) => *sum = sum.saturating_add(nanos),
                        None => own.push((cause, nanos)),
                    }
                }
            }
        }
        threads.values_mut().for_each(|own| own.sort_by_key(|(c, n)| (std::cmp::Reverse(*n), *c)));
        let mut cells: Vec<_> = cells.into_iter().collect();
        cells.sort_by_key(|(key, cell)| {
            (std::cmp::Reverse(cell.total), key.0, key.1, key.2.map(|w| w.0))
        });
        WaitTable {
            causes,
            cells,
            threads,
            thread_waits,
            names: self.names,
            stacks: self.stacks,
            wakers: self.wakers,
            stacked: (waits, stacked),
            merged,
            summary,
        }
    }
}

/// The parts of an interval: blocked, and waiting for a CPU.
fn parts(
    interval: &OffInterval,
    cause: OffCpuCause,
    facts: &IntervalFacts,
) -> impl Iterator<Item = (OffCpuCause, u64, u64)> {
    let (from, to) = (interval.from, interval.to);
    let woken = facts.woken.filter(|_| interval.kind == OffKind::Blocked);
    let until = woken.map_or(to, |w| w.0.clamp(from, to));
    [(cause, from, until), (OffCpuCause::Woken, until, to)].into_iter().filter(|(_, a, b)| a < b)
}
