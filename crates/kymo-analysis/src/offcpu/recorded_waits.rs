//! Waits of the tasks of one command or process, whose switches are recorded and nobody else's:
//! when a task left its CPU and came back tell its switch records, why it left the stack of its
//! `sched_switch`, and who woke it `sched_waking`, which is recorded of the whole machine. Waits
//! are counted as they end: memory does not grow with their number.

use std::ops::ControlFlow;

use kymo_events::{
    EventSelection, EventSource, FieldId, LayoutId, PerfItem, ReadSummary, RecordedEvent,
    SourceError, TaskComm,
};
use kymo_model::RecordKind;
use rustc_hash::FxHashMap;

use super::OFF_CPU_EVENTS;
use super::cause::OffCpuCause;
use super::count::waker_role;
use super::stack_store::{StackNode, StackRole, StackStore};
use super::table::{CauseStats, CellKey, OffCpuCell, OffCpuTable, TaskWaits, WakerId, WakerInfo};
use crate::losses::select_events;
use crate::oncpu::{OffInterval, OffKind, OnCpu};
use crate::tasks::{SchedDecoder, SchedEvent, SwitchOutState, WakeupContext};

/// Event that tells which futex a thread waits for.
pub const FUTEX_CALL: &str = "syscalls:sys_enter_futex";

/// Combinations of cause, stack and waker; more lose waker and stack.
const MAX_CELLS: usize = 1 << 16;
/// Combinations of thread, cause and stack; more lose the stack.
const MAX_THREAD_CELLS: usize = 1 << 17;
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

    /// Waits of tasks whose switches are events of all CPUs ([`super::count_off_cpu`]).
    pub fn of_events(table: OffCpuTable) -> WaitTable {
        let mut threads: FxHashMap<u32, Vec<(OffCpuCause, u64)>> = FxHashMap::default();
        let mut thread_waits: FxHashMap<u32, TaskWaits> = FxHashMap::default();
        for row in table.rows {
            let own = threads.entry(row.tid).or_default();
            for ((cause, _), cell) in &row.waits {
                match own.iter_mut().find(|(c, _)| c == cause) {
                    Some((_, sum)) => *sum = sum.saturating_add(cell.total),
                    None => own.push((*cause, cell.total)),
                }
            }
            own.sort_by_key(|(c, n)| (std::cmp::Reverse(*n), *c));
            thread_waits.insert(row.tid, row.waits);
        }
        WaitTable {
            causes: table.causes,
            cells: table.cells,
            threads,
            thread_waits,
            names: FxHashMap::default(),
            stacks: table.stacks,
            wakers: table.wakers,
            stacked: table.switches,
            merged: table.merged,
            summary: table.read.summary,
        }
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

/// What events tell of the time that a thread is off its CPU.
#[derive(Clone, Copy, Debug, Default)]
struct IntervalFacts {
    state: Option<SwitchOutState>,
    stack: Option<StackNode>,
    woken: Option<(u64, Option<WakerId>)>,
}

/// A thread as it is followed.
#[derive(Debug, Default)]
struct ThreadWaits {
    /// What is known of the time that it is off its CPU now.
    now: IntervalFacts,
    /// What the event of a switch told, whose record comes right behind.
    next: IntervalFacts,
    /// The futex that it last called for.
    futex: Option<u64>,
    /// Whether an interval of it has ended.
    has_waited: bool,
    /// Its time by cause.
    causes: Vec<(OffCpuCause, u64)>,
    waits: TaskWaits,
}

/// Which waits are counted, and what is known of them besides the recording.
#[derive(Clone, Copy)]
pub struct WaitScope<'a> {
    /// When the recording began and ended.
    pub span: (u64, u64),
    /// What blocked each thread when it began, as far as that is known.
    pub before: &'a FxHashMap<u32, OffCpuCause>,
    /// Whether a thread counts.
    pub wants: &'a dyn Fn(u32) -> bool,
    /// Selection by names that threads have at the time.
    pub names: &'a EventSelection,
}

struct WaitReader<'a> {
    scope: WaitScope<'a>,
    on_cpu: OnCpu,
    threads: FxHashMap<u32, ThreadWaits>,
    thread_cells: usize,
    causes: Vec<(OffCpuCause, CauseStats)>,
    cells: FxHashMap<CellKey, OffCpuCell>,
    stacks: StackStore,
    wakers: Vec<WakerInfo>,
    waker_ids: FxHashMap<WakerInfo, WakerId>,
    names: FxHashMap<u32, (TaskComm, Option<u32>)>,
    /// Layout of the event of calls for futexes, and its field of the address.
    futex_call: Option<(LayoutId, FieldId)>,
    stacked: (u64, u64),
    merged: u64,
}

/// Counts the times that tasks were off their CPUs, by what the events tell.
///
/// # Errors
/// If reading fails, or it is not one perf.data.
pub fn count_recorded_waits(
    source: &EventSource,
    scope: WaitScope<'_>,
) -> Result<WaitTable, SourceError> {
    let mut reader = WaitReader::new(scope);
    let mut decoder = SchedDecoder::default();
    let mut names = OFF_CPU_EVENTS.to_vec();
    names.push(FUTEX_CALL);
    let select = select_events(&names);
    let summary = source.for_each_with_records(&select, &mut |item| {
        match item {
            PerfItem::Record(entry) => {
                let record = reader.on_cpu.take_record(entry);
                reader.count_ended();
                if let Some((tid, RecordKind::SWITCH | RecordKind::SWITCH_CPU_WIDE)) = record {
                    reader.switched(tid);
                }
            }
            PerfItem::Event(event) => match (decoder.decode(event), event.time) {
                (Some(sched), Some(time)) => reader.event(&sched, event, time),
                _ => reader.futex_call(event),
            },
        }
        ControlFlow::Continue(())
    })?;
    reader.on_cpu.close(scope.span.1);
    reader.count_ended();
    Ok(reader.finish(summary))
}

impl<'a> WaitReader<'a> {
    fn new(scope: WaitScope<'a>) -> WaitReader<'a> {
        WaitReader {
            scope,
            on_cpu: OnCpu::with_intervals(scope.span.0).with_names(scope.names),
            threads: FxHashMap::default(),
            thread_cells: 0,
            causes: OffCpuCause::ALL.into_iter().map(|c| (c, CauseStats::default())).collect(),
            cells: FxHashMap::default(),
            stacks: StackStore::default(),
            wakers: Vec::new(),
            waker_ids: FxHashMap::default(),
            names: FxHashMap::default(),
            futex_call: None,
            stacked: (0, 0),
            merged: 0,
        }
    }
}

impl WaitReader<'_> {
    fn event(&mut self, sched: &SchedEvent, event: &RecordedEvent<'_>, time: u64) {
        match sched {
            SchedEvent::Switch { prev, state, .. } if (self.scope.wants)(prev.tid) => {
                self.names.insert(prev.tid, (prev.comm, event.task().pid));
                let mut stack = self.stacks.add(event, StackRole::Sleeper);
                let futex = self.threads.get(&prev.tid).and_then(|t| t.futex);
                if let (Some(node), Some(address)) = (stack, futex)
                    && self.stacks.names(node).iter().any(|name| name.ends_with("_sys_futex"))
                {
                    let variable = event.variable(address);
                    let object = variable.unwrap_or_else(|| format!("{address:#x}"));
                    stack = Some(self.stacks.name_object(node, &format!("[futex {object}]")));
                }
                let thread = self.threads.entry(prev.tid).or_default();
                thread.next = IntervalFacts { state: Some(*state), stack, woken: None };
            }
            SchedEvent::Wakeup { task, context, .. }
                if self.on_cpu.is_off(task.tid) && (self.scope.wants)(task.tid) =>
            {
                // The first is the one that ended the wait.
                if self.threads.get(&task.tid).is_some_and(|t| t.now.woken.is_some()) {
                    return;
                }
                let waker = self.waker(*context, event);
                self.threads.entry(task.tid).or_default().now.woken = Some((time, waker));
            }
            _ => {}
        }
    }

    /// A thread calls for a futex.
    fn futex_call(&mut self, event: &RecordedEvent<'_>) {
        let layout = event.class.layout;
        if self.futex_call.is_none_or(|(known, _)| known != layout) {
            let field = event.class.is_named(FUTEX_CALL).then(|| event.class.field("uaddr"));
            let Some(field) = field.flatten() else { return };
            self.futex_call = Some((layout, field));
        }
        let Some((_, field)) = self.futex_call else { return };
        let Some(tid) = event.task().tid.filter(|tid| (self.scope.wants)(*tid)) else { return };
        let address = event.fields().integer(field).map(|address| address as u64);
        self.threads.entry(tid).or_default().futex = address;
    }

    /// A thread got or left a CPU.
    fn switched(&mut self, tid: u32) {
        let is_off = self.on_cpu.is_off(tid);
        if let Some(thread) = self.threads.get_mut(&tid) {
            let next = std::mem::take(&mut thread.next);
            thread.now = if is_off { next } else { IntervalFacts::default() };
        }
    }

    fn waker(&mut self, context: WakeupContext, event: &RecordedEvent<'_>) -> Option<WakerId> {
        // An interrupt comes upon anybody.
        let task = event.task();
        let is_task = !context.is_interrupt() && task.tid != Some(0);
        let comm = if is_task { task.comm().to_vec() } else { Vec::new() };
        let stack = self.stacks.add(event, waker_role(context));
        let context = self.stacks.context(context, stack);
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
            (OffKind::Preempted, stack) => self.stacks.cause(stack, SwitchOutState::Runnable),
            (OffKind::Blocked, stack) => {
                let state = facts.state.filter(|s| !s.is_runnable());
                let state = state.unwrap_or(SwitchOutState::Blocked(b'S'));
                let before = self.scope.before.get(&tid);
                let known = before.filter(|_| is_first && facts.state.is_none());
                let Some(stack) = stack else {
                    if let Some(cause) = known {
                        return *cause;
                    }
                    return self.stacks.cause(None, state);
                };
                self.stacks.cause(Some(stack), state)
            }
        }
    }

    /// Counts the intervals that have ended.
    fn count_ended(&mut self) {
        let ended: Vec<(u32, OffInterval)> = self.on_cpu.take_ended().collect();
        for (tid, interval) in ended {
            if (self.scope.wants)(tid) {
                self.count(tid, &interval);
            }
        }
    }

    fn count(&mut self, tid: u32, interval: &OffInterval) {
        let thread = self.threads.entry(tid).or_default();
        let is_first = !std::mem::replace(&mut thread.has_waited, true);
        let mut facts = std::mem::take(&mut thread.now);
        if interval.kind == OffKind::New {
            (facts.state, facts.stack) = (None, None);
        }
        let cause = self.cause(tid, is_first, interval, &facts);
        self.stacked.0 += 1;
        self.stacked.1 += u64::from(facts.stack.is_some() || interval.kind == OffKind::New);
        for (cause, from, to) in parts(interval, cause, &facts) {
            let nanos = to - from;
            if let Some((_, stats)) = self.causes.get_mut(cause as usize) {
                match interval.is_open && to == interval.to {
                    true => {
                        stats.open.0 += 1;
                        stats.open.1 = stats.open.1.saturating_add(nanos);
                    }
                    false => stats.waits.add(nanos, from),
                }
            }
            let waker = facts.woken.and_then(|w| w.1);
            let waker = waker.filter(|_| !cause.has_no_waker());
            let mut key = (cause, facts.stack, waker);
            if self.cells.len() >= MAX_CELLS && !self.cells.contains_key(&key) {
                self.merged += 1;
                key = (cause, None, None);
            }
            self.cells.entry(key).or_default().add(nanos);
            let Some(thread) = self.threads.get_mut(&tid) else { continue };
            let mut own = (key.0, key.1);
            if self.thread_cells >= MAX_THREAD_CELLS && !thread.waits.contains_key(&own) {
                own = (cause, None);
            }
            let known = thread.waits.len();
            thread.waits.entry(own).or_default().add(nanos);
            self.thread_cells += thread.waits.len() - known;
            match thread.causes.iter_mut().find(|(c, _)| *c == cause) {
                Some((_, sum)) => *sum = sum.saturating_add(nanos),
                None => thread.causes.push((cause, nanos)),
            }
        }
    }

    fn finish(self, summary: ReadSummary) -> WaitTable {
        let mut threads: FxHashMap<u32, Vec<(OffCpuCause, u64)>> = FxHashMap::default();
        let mut thread_waits: FxHashMap<u32, TaskWaits> = FxHashMap::default();
        for (tid, mut thread) in self.threads.into_iter().filter(|(_, t)| t.has_waited) {
            thread.causes.sort_by_key(|(c, n)| (std::cmp::Reverse(*n), *c));
            threads.insert(tid, thread.causes);
            thread_waits.insert(tid, thread.waits);
        }
        let mut cells: Vec<_> = self.cells.into_iter().collect();
        cells.sort_by_key(|(key, cell)| {
            (std::cmp::Reverse(cell.total), key.0, key.1, key.2.map(|w| w.0))
        });
        WaitTable {
            causes: self.causes,
            cells,
            threads,
            thread_waits,
            names: self.names,
            stacks: self.stacks,
            wakers: self.wakers,
            stacked: self.stacked,
            merged: self.merged,
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

#[cfg(test)]
mod tests {
    use super::*;
    use kymo_model::{Sideband, Switch};

    /// Three waits of a thread more than were kept once, when all were kept.
    #[test]
    fn no_wait_is_left_out_however_many_there_are() {
        const WAITS: u64 = (1 << 20) + 3;
        let nothing = FxHashMap::default();
        let names = &EventSelection::default();
        let span = (1, 10 * WAITS + 1);
        let scope = WaitScope { span, before: &nothing, wants: &|_| true, names };
        let mut reader = WaitReader::new(scope);
        let switch = |out| Sideband::Switch(Switch { out, preempt: false, next_prev: None });
        for n in 0..WAITS {
            reader.on_cpu.apply(7, 10 * n + 1, &switch(true));
            reader.on_cpu.apply(7, 10 * n + 4, &switch(false));
            reader.count_ended();
        }
        let table = reader.finish(ReadSummary::default());
        let waits: Vec<_> = table.causes.iter().filter(|(_, stats)| !stats.is_empty()).collect();
        assert_eq!(waits.len(), 1);
        assert_eq!((waits[0].1.waits.count, waits[0].1.waits.total), (WAITS, 3 * WAITS));
        assert_eq!(table.threads[&7], [(waits[0].0, 3 * WAITS)]);
    }
}
