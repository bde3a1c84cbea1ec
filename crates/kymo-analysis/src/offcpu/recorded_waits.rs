//! Waits of the tasks of one command or process, whose switches alone are recorded. Switch records
//! give the times when a task left its CPU and came back, the stack of its `sched_switch` the
//! cause, and `sched_waking`, which is recorded system-wide, the waker. Waits are counted as they
//! end: memory does not grow with their number.

use std::ops::ControlFlow;

use kymo_events::{
    EventSelection, EventSource, FieldId, LayoutId, PerfItem, ReadSummary, RecordedEvent,
    SourceError, TaskComm,
};
use kymo_model::{RecordKind, Sideband};
use rustc_hash::FxHashMap;

use super::OFF_CPU_EVENTS;
use super::cause::OffCpuCause;
use super::count::waker_role;
use super::stack_store::{StackNode, StackRole, StackStore};
use super::table::{
    CauseStats, CellKey, LongestWait, OffCpuCell, OffCpuTable, TaskWaits, WakerId, WakerInfo,
};
use super::wait_path::{PathHistory, PathWait, WaitPath};
use crate::losses::select_events;
use crate::oncpu::{OffInterval, OffKind, OnCpu, RecordingBegin, RecordingWindow, ThreadAccounts};
use crate::tasks::{SchedDecoder, SchedEvent, SwitchOutState, WakeupContext};

/// Event that names the futex for which a thread waits.
pub const FUTEX_CALL: &str = "syscalls:sys_enter_futex";

/// Combinations of thread, cause, stack and waker; more lose waker and stack.
const MAX_CELLS: usize = 1 << 18;
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
    /// Waits no longer distinguished by stack and waker.
    pub merged: u64,
    /// Summary of the readers.
    pub summary: ReadSummary,
    /// The longest wait of each cause that has any, the longest first.
    pub longest: Vec<LongestWait>,
    /// Critical path of the command, or of the threads that ran most, where it is known.
    pub path: Option<WaitPath>,
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
            longest: table.longest,
            path: None,
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

/// Facts from events about a time that a thread is off CPU.
#[derive(Clone, Copy, Debug, Default)]
struct IntervalFacts {
    state: Option<SwitchOutState>,
    stack: Option<StackNode>,
    woken: Option<(u64, Option<WakerId>)>,
    /// The thread that woke it, unless that was an interrupt.
    woken_by: Option<u32>,
}

/// A thread as it is followed.
#[derive(Debug, Default)]
struct ThreadWaits {
    /// Facts of the current time off CPU.
    now: IntervalFacts,
    /// Facts from the event of a switch, whose record follows directly.
    next: IntervalFacts,
    /// The futex that it last called for.
    futex: Option<u64>,
    /// Intervals of it that ended, and how many of them have a stack.
    stacked: (u64, u64),
    /// Waits no longer distinguished by stack and waker.
    merged: u64,
    /// Number and time of intervals in which it may have run.
    uncertain: (u64, u64),
    /// Time of waits that are not whole, where these are in no sum.
    partial: PartialWaits,
    /// The longest wait of each cause: both parts, first and last moment.
    longest: Vec<(OffCpuCause, u64, u64)>,
    causes: Vec<(OffCpuCause, CauseStats)>,
}

/// Selection of waits, and facts from outside the recording.
#[derive(Clone, Copy)]
pub struct WaitScope<'a> {
    /// Time that counts.
    pub window: RecordingWindow,
    /// Cause of the block of each thread when it began, where known.
    pub before: &'a FxHashMap<u32, OffCpuCause>,
    /// Whether a thread may count: which ones do is decided when all is read.
    pub may_count: &'a dyn Fn(u32) -> bool,
    /// Selection by names that threads have at the time.
    pub names: &'a EventSelection,
    /// Waits whose start or end is not in the recording are in no sum.
    pub only_whole: bool,
}

/// Time of a thread's waits whose start or end is not in the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialWaits {
    /// Nanoseconds in which it could run.
    pub ready: u64,
    /// Nanoseconds in which it was blocked.
    pub blocked: u64,
    /// One of them began before the recording.
    pub began_before: bool,
}

/// Waits of all threads of a recording, of which some count.
pub struct RecordedWaits<'a> {
    reader: WaitReader<'a>,
    summary: ReadSummary,
}

impl RecordedWaits<'_> {
    /// Times of the first and the last record.
    pub fn seen(&self) -> Option<(u64, u64)> {
        self.reader.on_cpu.seen()
    }

    /// The first thread that executed a program, and when it did.
    pub fn first_thread(&self) -> Option<(u32, u64)> {
        self.reader.on_cpu.first_thread()
    }

    /// The accounts of all threads until the `end`.
    pub fn accounts(&mut self, end: u64) -> ThreadAccounts {
        self.reader.on_cpu.close(end);
        self.reader.count_ended();
        self.reader.on_cpu.accounts()
    }

    /// Process of a thread, where records state it.
    pub fn process_of(&self, tid: u32) -> Option<u32> {
        self.reader.on_cpu.task(tid).1
    }

    /// Time of a thread's waits that are in no sum, once there are accounts.
    pub fn partial_of(&self, tid: u32) -> PartialWaits {
        self.reader.threads.get(&tid).map_or_else(PartialWaits::default, |thread| thread.partial)
    }

    /// The waits of the threads that count; those that go on are open until the `end`.
    pub fn of_threads(self, end: u64, counts: &dyn Fn(u32) -> bool) -> WaitTable {
        let RecordedWaits { mut reader, summary } = self;
        reader.on_cpu.close(end);
        reader.count_ended();
        let path = reader.path(end, counts);
        WaitTable { path, ..reader.finish(summary, counts) }
    }
}

struct WaitReader<'a> {
    scope: WaitScope<'a>,
    on_cpu: OnCpu,
    threads: FxHashMap<u32, ThreadWaits>,
    /// By thread and key.
    cells: FxHashMap<(u32, CellKey), OffCpuCell>,
    history: PathHistory,
    stacks: StackStore,
    wakers: Vec<WakerInfo>,
    waker_ids: FxHashMap<WakerInfo, WakerId>,
    names: FxHashMap<u32, (TaskComm, Option<u32>)>,
    /// Layout of the event of calls for futexes, and its field of the address.
    futex_call: Option<(LayoutId, FieldId)>,
}

/// Counts the times that tasks were off their CPUs, by what the events tell.
///
/// # Errors
/// If reading fails, or it is not one perf.data.
pub fn count_recorded_waits<'a>(
    source: &EventSource,
    scope: WaitScope<'a>,
) -> Result<RecordedWaits<'a>, SourceError> {
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
                if matches!(entry.raw.kind, RecordKind::FORK | RecordKind::EXIT) {
                    match (Sideband::parse(&entry.raw), entry.time) {
                        (Ok(Some(Sideband::Fork(task))), time) => {
                            reader.history.born(&task, time.unwrap_or(0));
                        }
                        (Ok(Some(Sideband::Exit(task))), Some(time)) => {
                            reader.history.exited(&task, time);
                        }
                        _ => {}
                    }
                }
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
    Ok(RecordedWaits { reader, summary })
}

impl<'a> WaitReader<'a> {
    fn new(scope: WaitScope<'a>) -> WaitReader<'a> {
        WaitReader {
            scope,
            on_cpu: OnCpu::with_intervals(scope.window).with_names(scope.names),
            threads: FxHashMap::default(),
            cells: FxHashMap::default(),
            history: PathHistory::default(),
            stacks: StackStore::default(),
            wakers: Vec::new(),
            waker_ids: FxHashMap::default(),
            names: FxHashMap::default(),
            futex_call: None,
        }
    }
}

impl WaitReader<'_> {
    fn event(&mut self, sched: &SchedEvent, event: &RecordedEvent<'_>, time: u64) {
        match sched {
            SchedEvent::Switch { prev, state, .. } if (self.scope.may_count)(prev.tid) => {
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
                thread.next =
                    IntervalFacts { state: Some(*state), stack, ..IntervalFacts::default() };
            }
            SchedEvent::Wakeup { task, context, .. }
                if self.on_cpu.is_off(task.tid) && (self.scope.may_count)(task.tid) =>
            {
                // The first is the one that ended the wait.
                if self.threads.get(&task.tid).is_some_and(|t| t.now.woken.is_some()) {
                    return;
                }
                let waker = self.waker(*context, event);
                let by = event.task().tid.filter(|tid| !context.is_interrupt() && *tid != 0);
                let now = &mut self.threads.entry(task.tid).or_default().now;
                (now.woken, now.woken_by) = (Some((time, waker)), by);
                self.on_cpu.woken(task.tid, time);
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
        let Some(tid) = event.task().tid.filter(|tid| (self.scope.may_count)(*tid)) else { return };
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
            (OffKind::Preempted, stack) => {
                let cause = self.stacks.cause(stack, SwitchOutState::Runnable);
                self.stacks.cause_at_end(cause, stack, interval.to - interval.from)
            }
            (OffKind::Uncertain, _) => OffCpuCause::Blocked,
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
            if (self.scope.may_count)(tid) {
                self.count(tid, &interval);
            }
        }
    }

    fn count(&mut self, tid: u32, interval: &OffInterval) {
        let thread = self.threads.entry(tid).or_default();
        let is_first = thread.stacked.0 == 0;
        let mut facts = std::mem::take(&mut thread.now);
        if matches!(interval.kind, OffKind::New | OffKind::Uncertain) {
            (facts.state, facts.stack) = (None, None);
        }
        let has_cause = interval.kind != OffKind::Uncertain;
        thread.stacked.0 += u64::from(has_cause);
        // A thread that was blocked when it was attached to has left its CPU unseen.
        let began_before = is_first && interval.kind == OffKind::Blocked && facts.state.is_none();
        let needs_no_stack = began_before || interval.kind == OffKind::New;
        thread.stacked.1 += u64::from(facts.stack.is_some() || needs_no_stack);
        let cause = self.cause(tid, is_first, interval, &facts);
        let woken = facts.woken.filter(|_| interval.kind == OffKind::Blocked);
        let wait = PathWait {
            from: interval.from,
            to: interval.to,
            cause,
            stack: facts.stack,
            woken: woken.map(|(time, _)| (time, facts.woken_by)),
            is_open: interval.is_open,
            is_uncertain: interval.kind == OffKind::Uncertain,
            retried_until: None,
        };
        self.history.waited(tid, wait);
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        if interval.kind == OffKind::Uncertain {
            let nanos = interval.to - interval.from;
            thread.uncertain.0 += 1;
            thread.uncertain.1 = thread.uncertain.1.saturating_add(nanos);
            return;
        }
        if self.scope.only_whole && (interval.is_open || interval.is_cut) {
            thread.partial.began_before |= interval.is_cut;
            for (cause, from, to) in parts(interval, cause, &facts) {
                let sum = match cause.is_runnable() {
                    true => &mut thread.partial.ready,
                    false => &mut thread.partial.blocked,
                };
                *sum = sum.saturating_add(to - from);
                if interval.is_open && to == interval.to {
                    let open = &mut stats_of(&mut thread.causes, cause).open;
                    *open = (open.0 + 1, open.1.saturating_add(to - from));
                }
            }
            return;
        }
        if !interval.is_open {
            let (from, to) = (interval.from, interval.to);
            match thread.longest.iter_mut().find(|(known, ..)| *known == cause) {
                None => thread.longest.push((cause, from, to)),
                Some((_, first, last)) if *last - *first < to - from => {
                    (*first, *last) = (from, to);
                }
                Some(_) => {}
            }
        }
        for (cause, from, to) in parts(interval, cause, &facts) {
            let nanos = to - from;
            let stats = stats_of(&mut thread.causes, cause);
            if interval.is_open && to == interval.to {
                stats.open.0 += 1;
                stats.open.1 = stats.open.1.saturating_add(nanos);
            } else {
                stats.waits.add(nanos, from);
            }
            let waker = facts.woken.and_then(|w| w.1);
            let waker = waker.filter(|_| !cause.has_no_waker());
            let mut key = (tid, (cause, facts.stack, waker));
            if self.cells.len() >= MAX_CELLS && !self.cells.contains_key(&key) {
                thread.merged += 1;
                key = (tid, (cause, None, None));
            }
            self.cells.entry(key).or_default().add(nanos);
        }
    }

    /// The path of the command, or of the threads of a process that ran: those of a pool share
    /// the work, and each that has half the time of the busiest one counts.
    fn path(&self, end: u64, counts: &dyn Fn(u32) -> bool) -> Option<WaitPath> {
        /// Threads of which the path is made.
        const MAX_THREADS: usize = 16;
        let (seen, _) = self.on_cpu.seen()?;
        let begin = self.scope.window.begin;
        let first = match begin {
            RecordingBegin::At(_) => None,
            _ => self.on_cpu.first_thread().filter(|(tid, _)| counts(*tid)),
        };
        if let Some((tid, exec)) = first {
            return self.history.path(tid, exec, end);
        }
        let begin = match begin {
            RecordingBegin::At(begin) => begin,
            _ => seen,
        };
        let times = self.on_cpu.times().filter(|(tid, time)| time.on_cpu > 0 && counts(*tid));
        let mut busy: Vec<(u64, u32)> =
            times.map(|(tid, time)| (time.on_cpu.saturating_add(time.ready), tid)).collect();
        busy.sort_unstable_by_key(|(time, tid)| (std::cmp::Reverse(*time), *tid));
        let Some(most) = busy.first().map(|(time, _)| *time) else {
            // No thread ran: the process waits for what its first thread waits for.
            let first = self.on_cpu.times().map(|(tid, _)| tid).filter(|tid| counts(*tid)).min()?;
            return self.history.paths(&[first], begin, end);
        };
        busy.retain(|(time, _)| time.saturating_mul(2) >= most);
        busy.truncate(MAX_THREADS);
        let tids: Vec<u32> = busy.into_iter().map(|(_, tid)| tid).collect();
        self.history.paths(&tids, begin, end)
    }

    fn finish(self, summary: ReadSummary, counts: &dyn Fn(u32) -> bool) -> WaitTable {
        let mut table = WaitTable {
            causes: OffCpuCause::ALL.into_iter().map(|c| (c, CauseStats::default())).collect(),
            cells: Vec::new(),
            threads: FxHashMap::default(),
            thread_waits: FxHashMap::default(),
            names: self.names,
            stacks: self.stacks,
            wakers: self.wakers,
            stacked: (0, 0),
            merged: 0,
            summary,
            longest: Vec::new(),
            path: None,
        };
        table.names.retain(|tid, _| counts(*tid));
        for tid in self.threads.keys().filter(|tid| counts(**tid)) {
            if let (Some(comm), pid) = self.on_cpu.task(*tid) {
                // Without events of switches there are records of names.
                table.names.entry(*tid).or_insert((comm, pid));
            }
        }
        let mut longest: Vec<LongestWait> = Vec::new();
        let waited = self.threads.into_iter().filter(|(_, thread)| thread.stacked.0 > 0);
        for (tid, thread) in waited.filter(|(tid, _)| counts(*tid)) {
            table.stacked.0 += thread.stacked.0;
            table.stacked.1 += thread.stacked.1;
            table.merged += thread.merged;
            for (cause, from, to) in thread.longest {
                let known = longest.iter_mut().find(|known| known.cause == cause);
                if known.as_ref().is_some_and(|known| known.to - known.from >= to - from) {
                    continue;
                }
                let (comm, _) = table.names.get(&tid).copied().unwrap_or_default();
                let comm = comm.padded().get(..comm.len()).unwrap_or_default().to_vec();
                let wait = LongestWait { cause, comm, tid, from, to };
                match known {
                    Some(known) => *known = wait,
                    None => longest.push(wait),
                }
            }
            if let Some((_, all)) = table.causes.get_mut(OffCpuCause::Blocked as usize) {
                all.uncertain.0 += thread.uncertain.0;
                all.uncertain.1 = all.uncertain.1.saturating_add(thread.uncertain.1);
            }
            let mut causes: Vec<(OffCpuCause, u64)> = Vec::new();
            for (cause, stats) in &thread.causes {
                let total = stats.waits.total.saturating_add(stats.open.1);
                causes.push((*cause, total));
                if let Some((_, all)) = table.causes.get_mut(*cause as usize) {
                    all.merge(stats);
                }
            }
            causes.sort_by_key(|(c, n)| (std::cmp::Reverse(*n), *c));
            table.threads.insert(tid, causes);
            table.thread_waits.insert(tid, TaskWaits::default());
        }
        longest.sort_by_key(|wait| (std::cmp::Reverse(wait.to - wait.from), wait.tid));
        table.longest = longest;
        let mut cells: FxHashMap<CellKey, OffCpuCell> = FxHashMap::default();
        for ((tid, key), cell) in self.cells {
            let Some(waits) = table.thread_waits.get_mut(&tid) else { continue };
            waits.entry((key.0, key.1)).or_default().merge(&cell);
            cells.entry(key).or_default().merge(&cell);
        }
        table.cells = cells.into_iter().collect();
        table.cells.sort_by_key(|(key, cell)| {
            (std::cmp::Reverse(cell.total), key.0, key.1, key.2.map(|w| w.0))
        });
        table
    }
}

/// Numbers of a cause among those of a thread.
fn stats_of(causes: &mut Vec<(OffCpuCause, CauseStats)>, cause: OffCpuCause) -> &mut CauseStats {
    let at = causes.iter().position(|(known, _)| *known == cause).unwrap_or(causes.len());
    if at == causes.len() {
        causes.push((cause, CauseStats::default()));
    }
    &mut causes[at].1
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
        let window = RecordingWindow { begin: RecordingBegin::At(1), end: None };
        let scope =
            WaitScope { window, before: &nothing, may_count: &|_| true, names, only_whole: false };
        let mut reader = WaitReader::new(scope);
        let switch = |out| Sideband::Switch(Switch { out, preempt: false, next_prev: None });
        for n in 0..WAITS {
            reader.on_cpu.apply(7, 10 * n + 1, &switch(true));
            reader.on_cpu.apply(7, 10 * n + 4, &switch(false));
            reader.count_ended();
        }
        let waits = RecordedWaits { reader, summary: ReadSummary::default() };
        let table = waits.of_threads(10 * WAITS + 1, &|tid| tid == 7);
        let waits: Vec<_> = table.causes.iter().filter(|(_, stats)| !stats.is_empty()).collect();
        assert_eq!(waits.len(), 1);
        assert_eq!((waits[0].1.waits.count, waits[0].1.waits.total), (WAITS, 3 * WAITS));
        assert_eq!(table.threads[&7], [(waits[0].0, 3 * WAITS)]);
    }
}
