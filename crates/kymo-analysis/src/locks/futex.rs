//! Waits of programs for futexes: system calls from their entry to their exit, with the stacks of
//! who waits and of who wakes.

use std::ops::ControlFlow;

use kymo_events::{
    BlockedThread, EventSelection, EventSource, FieldId, LayoutMemo, ReadOptions, ReadSummary,
    RecordedClass, RecordedEvent, SourceError,
};
use rustc_hash::FxHashMap;

use super::wait_pairs::{LockWaker, WaitCell, WaitPairs};
use crate::losses::{LossWindows, select_events};
use crate::offcpu::{StackNode, StackRole, StackStore};
use crate::tasks::DelayStats;

/// Entry and exit of the system call.
pub const FUTEX_EVENTS: [&str; 2] = ["syscalls:sys_enter_futex", "syscalls:sys_exit_futex"];

/// Entry and exit of all system calls: the futex calls of recordings that lack the former.
const RAW_CALL_EVENTS: [&str; 2] = ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"];

/// Most futexes that are distinguished; the rest is counted in one row.
const MAX_ROWS: usize = 1 << 16;
/// System calls under way at a time.
const MAX_OPEN: usize = 1 << 18;

/// Identifies the tasks of LTTng's events.
const SWITCH: &str = "sched:sched_switch";

/// A futex: process, where known, and address.
type FutexKey = (Option<u32>, u64);

/// A futex.
#[derive(Clone, Debug, Default)]
pub struct FutexRow {
    /// Process, where known.
    pub pid: Option<u32>,
    /// Name of who waited first.
    pub comm: Vec<u8>,
    /// Address of the futex in the process.
    pub address: u64,
    /// Variable of the program that it is, or is in.
    pub variable: Option<String>,
    /// Whether it stands for all that there was no room for.
    pub is_others: bool,
    /// Waits that ended.
    pub waits: DelayStats,
    /// Calls that ended by their timeout.
    pub timeouts: u64,
    /// Calls that a signal ended.
    pub interrupted: u64,
    /// Calls that did not wait: the futex had another value.
    pub not_waited: u64,
    /// Calls that wake.
    pub wakes: u64,
    /// Waits in which events were lost.
    pub uncertain: u64,
    /// Waits that had not ended when the recording did.
    pub open: u64,
    /// Whether calls may be missing: events were lost.
    pub is_at_least: bool,
    /// Waits by stack and waker, the largest total first.
    pub cells: Vec<WaitCell>,
}

/// Futexes, and what did not fit together.
#[derive(Debug)]
pub struct FutexTable {
    /// The futexes, the largest total first.
    pub rows: Vec<FutexRow>,
    /// The stacks.
    pub stacks: StackStore,
    /// Events.
    pub events: u64,
    /// Waits, and how many of them have a stack.
    pub stacked: (u64, u64),
    /// Events without time, task or a field.
    pub malformed: u64,
    /// Calls not attributed (table limit reached).
    pub crowded: u64,
    /// Waits in progress at the start of a live capture, counted from then on.
    pub began_before: u64,
    /// Times of the first and the last event.
    pub span: Option<(u64, u64)>,
    /// Summary of the readers.
    pub summary: ReadSummary,
}

#[derive(Clone, Copy)]
enum FutexFields {
    Enter { address: FieldId, op: FieldId },
    Exit { ret: FieldId },
    RawEnter { id: FieldId, args: FieldId },
    RawExit { id: FieldId, ret: FieldId },
}

impl FutexFields {
    fn of(class: &RecordedClass) -> Option<FutexFields> {
        if class.is_named(FUTEX_EVENTS[0]) {
            return Some(FutexFields::Enter {
                address: class.field("uaddr")?,
                op: class.field("op")?,
            });
        }
        if class.is_named(RAW_CALL_EVENTS[0]) {
            return Some(FutexFields::RawEnter {
                id: class.field("id")?,
                args: class.field("args")?,
            });
        }
        if class.is_named(RAW_CALL_EVENTS[1]) {
            return Some(FutexFields::RawExit { id: class.field("id")?, ret: class.field("ret")? });
        }
        let is_exit = class.is_named(FUTEX_EVENTS[1]);
        is_exit.then(|| class.field("ret")).flatten().map(|ret| FutexFields::Exit { ret })
    }
}

/// Class of a futex call by its `op`: the command without FUTEX_PRIVATE_FLAG, FUTEX_CLOCK_REALTIME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FutexCall {
    Wait,
    Wake,
}

impl FutexCall {
    fn of(op: i64) -> Option<FutexCall> {
        match op & 0x7f {
            // WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2.
            0 | 6 | 9 | 11 | 13 => Some(FutexCall::Wait),
            // WAKE, REQUEUE, CMP_REQUEUE, WAKE_OP, UNLOCK_PI, WAKE_BITSET, CMP_REQUEUE_PI.
            1 | 3 | 4 | 5 | 7 | 10 | 12 => Some(FutexCall::Wake),
            _ => None,
        }
    }
}

struct OpenCall {
    time: u64,
    row: usize,
    stack: Option<StackNode>,
    /// It began before the events: none of them names the variable.
    is_unnamed: bool,
}

struct FutexCounting<'a> {
    selection: &'a EventSelection,
    losses: LossWindows,
    name_of: fn(i64) -> Option<&'static str>,
    /// The recording has the futex calls by their own events. A pipe reports that while it is read.
    has_futexes: bool,
    fields: LayoutMemo<Option<FutexFields>>,
    /// Running task by CPU, where events do not name it.
    running: FxHashMap<u32, (u32, Vec<u8>)>,
    /// Waits by thread.
    open: FxHashMap<u32, OpenCall>,
    by_key: FxHashMap<FutexKey, usize>,
    rows: Vec<FutexRow>,
    others: Option<usize>,
    /// By row: the last call that wakes, and when.
    wakers: Vec<Option<(u64, LockWaker)>>,
    pairs: WaitPairs,
    stacks: StackStore,
    events: u64,
    stacked: (u64, u64),
    malformed: u64,
    crowded: u64,
    began_before: u64,
    span: Option<(u64, u64)>,
}

/// Counts the waits of recordings for futexes: those whose entry is selected. `name_of` names a
/// system call by its number, for recordings that have the calls by their numbers alone.
///
/// # Errors
/// If reading fails.
pub fn count_futexes(
    source: &EventSource,
    selection: &EventSelection,
    name_of: fn(i64) -> Option<&'static str>,
) -> Result<FutexTable, SourceError> {
    // A recording with both has each call twice.
    let has_futexes = source.classes().iter().any(|class| class.is_named(FUTEX_EVENTS[0]));
    let raw = if has_futexes { &[][..] } else { &RAW_CALL_EVENTS };
    let events = select_events(&[&FUTEX_EVENTS[..], raw, &[SWITCH]].concat());
    let mut counting = FutexCounting {
        selection,
        losses: source.losses(),
        name_of,
        has_futexes,
        fields: LayoutMemo::default(),
        running: FxHashMap::default(),
        open: FxHashMap::default(),
        by_key: FxHashMap::default(),
        rows: Vec::new(),
        others: None,
        wakers: Vec::new(),
        pairs: WaitPairs::default(),
        stacks: StackStore::default(),
        events: 0,
        stacked: (0, 0),
        malformed: 0,
        crowded: 0,
        began_before: 0,
        span: None,
    };
    let mut is_first = true;
    let summary = source.for_each(&events, ReadOptions::default(), &mut |event| {
        if std::mem::take(&mut is_first) {
            counting.see_blocked(source, event.time);
        }
        counting.event(event);
        ControlFlow::Continue(())
    })?;
    if is_first {
        counting.see_blocked(source, None);
    }
    Ok(counting.finish(summary))
}

impl FutexCounting<'_> {
    fn event(&mut self, event: &RecordedEvent<'_>) {
        let class = event.class;
        let fields = self.fields.get_or_make(class, FutexFields::of).copied().flatten();
        let number = |id| event.fields().integer(id);
        let Some(fields) = fields else {
            if event.task().tid.is_none()
                && class.is_named(SWITCH)
                && let Some(Ok(tid)) = class.field("next_pid").and_then(number).map(u32::try_from)
                && let Some(cpu) = event.cpu()
            {
                let comm = class.field("next_comm").map(|f| event.fields().text(f).into_owned());
                self.running.insert(cpu, (tid, comm.unwrap_or_default()));
            }
            return;
        };
        if let FutexFields::RawEnter { id, .. } | FutexFields::RawExit { id, .. } = fields {
            if self.has_futexes || number(id).and_then(self.name_of) != Some("futex") {
                return;
            }
        } else if !std::mem::replace(&mut self.has_futexes, true) {
            // The others were seen to begin by the other event.
            self.open.retain(|_, call| call.is_unnamed);
        }
        self.events += 1;
        let (Some(time), Some(tid)) = (event.time, self.tid(event)) else {
            self.malformed += 1;
            return;
        };
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
        match fields {
            FutexFields::Enter { address, op } => {
                let (Some(address), Some(op)) = (number(address), number(op)) else {
                    self.malformed += 1;
                    return;
                };
                self.enter((tid, address as u64), FutexCall::of(op), time, event);
            }
            FutexFields::RawEnter { args, .. } => {
                let mut words = [0; 2];
                event.fields().read_array(args, 6, &mut words);
                let [address, op] = words;
                self.enter((tid, address), FutexCall::of(op as i64), time, event);
            }
            FutexFields::Exit { ret } | FutexFields::RawExit { ret, .. } => match number(ret) {
                Some(ret) => self.exit(tid, ret, time, event),
                None => self.malformed += 1,
            },
        }
    }

    /// Thread of an event, by the switches where the event does not tell.
    fn tid(&self, event: &RecordedEvent<'_>) -> Option<u32> {
        event.task().tid.or_else(|| Some(self.running.get(&event.cpu()?)?.0))
    }

    /// Name of that thread.
    fn comm(&self, event: &RecordedEvent<'_>) -> Vec<u8> {
        let running = event.cpu().and_then(|cpu| self.running.get(&cpu));
        match running.filter(|_| event.task().tid.is_none()) {
            Some((_, comm)) => comm.clone(),
            None => event.task().comm().to_vec(),
        }
    }

    /// Takes the calls in progress at the start of a live capture, whose first event comes at this
    /// time: they count from then on.
    fn see_blocked(&mut self, source: &EventSource, first: Option<u64>) {
        let Some((began, threads)) = source.blocked_at_start() else { return };
        let time = first.map_or(began, |first| first.min(began));
        threads.iter().for_each(|thread| self.call_in_progress(thread, time));
    }

    fn call_in_progress(&mut self, thread: &BlockedThread, time: u64) {
        let Some((address, op)) = thread.call.and_then(|call| call.futex()) else { return };
        let selection = self.selection;
        if FutexCall::of(op) != Some(FutexCall::Wait)
            || selection.cpus().is_some()
            || selection.has_task_conditions()
                && !selection.wants_task(thread.pid, Some(thread.tid), &thread.comm)
        {
            return;
        }
        if self.open.len() >= MAX_OPEN {
            self.crowded += 1;
            return;
        }
        let name = || (thread.comm.clone(), None);
        let row = self.row((thread.pid, address), name);
        self.began_before += 1;
        let call = OpenCall { time, row, stack: None, is_unnamed: true };
        self.open.insert(thread.tid, call);
    }

    fn enter(
        &mut self,
        (tid, address): (u32, u64),
        call: Option<FutexCall>,
        time: u64,
        event: &RecordedEvent<'_>,
    ) {
        // A thread is in one call at a time.
        if let Some(row) = self.open.remove(&tid).and_then(|call| self.rows.get_mut(call.row)) {
            row.uncertain += 1;
        }
        let Some(call) = call else { return };
        let task = event.task();
        match call {
            FutexCall::Wake => {
                // There are many wake-ups of futexes without waiters.
                let Some(row) = self.by_key.get(&(task.pid, address)).copied() else { return };
                let stack = self.stacks.add(event, StackRole::Event);
                let waker = LockWaker { comm: self.comm(event), stack };
                if let Some(slot) = self.wakers.get_mut(row) {
                    *slot = Some((time, waker));
                }
                if let Some(row) = self.rows.get_mut(row) {
                    row.wakes += 1;
                }
            }
            FutexCall::Wait => {
                let selection = self.selection;
                if !selection.wants_time(event.time)
                    || !selection.wants_cpu(event.cpu())
                    || selection.has_task_conditions()
                        && !selection.wants_task(task.pid, task.tid, task.comm())
                {
                    return;
                }
                if self.open.len() >= MAX_OPEN {
                    self.crowded += 1;
                    return;
                }
                let key = (task.pid, address);
                let row = match self.by_key.get(&key) {
                    Some(row) => *row,
                    None => {
                        let comm = self.comm(event);
                        self.row(key, || (comm, event.variable(address)))
                    }
                };
                let stack = self.stacks.add(event, StackRole::Event);
                self.stacked.0 += 1;
                self.stacked.1 += u64::from(stack.is_some());
                self.open.insert(tid, OpenCall { time, row, stack, is_unnamed: false });
            }
        }
    }

    /// Row of a futex; `names`: the name of a new one's first waiter, and its variable.
    fn row(&mut self, key: FutexKey, names: impl FnOnce() -> (Vec<u8>, Option<String>)) -> usize {
        if let Some(row) = self.by_key.get(&key) {
            return *row;
        }
        let next = self.rows.len();
        let is_others = next >= MAX_ROWS;
        if is_others {
            self.crowded += 1;
            if let Some(others) = self.others {
                return others;
            }
            self.others = Some(next);
        } else {
            self.by_key.insert(key, next);
        }
        let (pid, address) = if is_others { (None, 0) } else { key };
        let (comm, variable) = if is_others { (b"[others]".to_vec(), None) } else { names() };
        let row = FutexRow { pid, comm, address, variable, is_others, ..FutexRow::default() };
        self.rows.push(row);
        self.wakers.push(None);
        next
    }

    fn exit(&mut self, tid: u32, ret: i64, time: u64, event: &RecordedEvent<'_>) {
        const EINTR: i64 = -4;
        const EAGAIN: i64 = -11;
        const ETIMEDOUT: i64 = -110;
        // Errors that a signal makes, which programs do not see: ERESTARTSYS and its kin.
        const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;
        let Some(call) = self.open.remove(&tid) else { return };
        let Some(row) = self.rows.get_mut(call.row) else { return };
        if call.is_unnamed && row.variable.is_none() && !row.is_others {
            row.variable = event.variable(row.address);
        }
        let Some(nanos) = time.checked_sub(call.time) else { return };
        if self.losses.touches(call.time, time) {
            row.uncertain += 1;
            return;
        }
        if ret == EAGAIN {
            row.not_waited += 1;
            return;
        }
        row.timeouts += u64::from(ret == ETIMEDOUT);
        row.interrupted += u64::from(ret == EINTR || RESTARTS.contains(&ret));
        row.waits.add(nanos, call.time);
        // The last call that wakes since the wait began.
        let waker = self.wakers.get(call.row).and_then(Option::as_ref);
        let woke = |(at, _): &&(u64, LockWaker)| ret >= 0 && *at >= call.time && *at <= time;
        let waker = waker.filter(woke).map(|(_, waker)| waker.clone());
        self.pairs.add(call.row, call.stack, waker, nanos);
    }

    fn finish(mut self, summary: ReadSummary) -> FutexTable {
        let end = self.span.map_or(0, |s| s.1);
        for call in self.open.values() {
            // The event of its end may be among those lost.
            let is_uncertain = self.losses.touches(call.time, end);
            if let Some(row) = self.rows.get_mut(call.row) {
                row.open += u64::from(!is_uncertain);
                row.uncertain += u64::from(is_uncertain);
            }
        }
        let is_at_least = !self.losses.is_empty();
        self.rows.iter_mut().for_each(|row| row.is_at_least = is_at_least);
        let crowded = self.crowded + self.pairs.crowded;
        for (row, cell) in self.pairs.into_cells() {
            if let Some(row) = self.rows.get_mut(row) {
                row.cells.push(cell);
            }
        }
        let key = |r: &FutexRow| (std::cmp::Reverse(r.waits.total), r.pid, r.address);
        self.rows.sort_by_cached_key(key);
        FutexTable {
            rows: self.rows,
            stacks: self.stacks,
            events: self.events,
            stacked: self.stacked,
            malformed: self.malformed,
            crowded,
            began_before: self.began_before,
            span: self.span,
            summary,
        }
    }
}
