//! Waits for locks of the kernel, from `contention_begin` to `contention_end` of one task and lock.
//! For a mutex that spins first and then sleeps, the kernel reports two starts and one end: the
//! wait begins at the first one.

use std::ops::ControlFlow;
use std::sync::Arc;

use kymo_events::{
    EventSelection, EventSource, FieldId, LayoutMemo, ReadOptions, ReadSummary, RecordedClass,
    RecordedEvent, SourceError,
};
use rustc_hash::FxHashMap;

use super::caller::CallerFinder;
use super::lock_row::{LockCaller, LockFrame, LockRow, lock_type};
use super::wait_pairs::{LockWaker, WaitPairs};
use super::{CONTENTION_EVENTS, LockEvents, RELEASE_EVENT};
use crate::losses::{LossWindows, MOST_CPUS, select_events};
use crate::offcpu::{StackNode, StackRole, StackStore};

/// Most rows; the rest is counted in one.
pub(super) const MAX_ROWS: usize = 1 << 16;
/// Waits under way at a time; tasks wait for one lock, and interrupts upon them.
pub(super) const MAX_OPEN: usize = 1 << 18;

/// Key by which waits are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockGroup {
    /// Their caller, with its stack.
    #[default]
    Caller,
    /// The task that waits.
    Task,
    /// The lock.
    Address,
}

/// Frames of stacks that are looked at unless a number is given.
pub const USUAL_STACK: usize = 8;

/// Options of counting lock contention.
#[derive(Clone, Debug, Default)]
pub struct ContentionConfig {
    /// Selection of waits: by time, CPU and task of their start.
    pub selection: EventSelection,
    /// Key by which waits are grouped.
    pub group: LockGroup,
    /// Frames of stacks that are left out before locks are.
    pub stack_skip: usize,
    /// Frames of stacks that are looked at.
    pub max_stack: usize,
    /// Types of locks; all where there are none.
    pub types: Vec<String>,
    /// Locks by address or symbol; all where there are none.
    pub locks: Vec<String>,
    /// Names of functions, parts of one of which the stack has; all where there are none.
    pub functions: Vec<String>,
    /// Count waits by the stacks of who waits and of who wakes, too.
    pub pairs: bool,
}

/// Rows, and what did not fit together.
#[derive(Debug)]
pub struct ContentionTable {
    /// Events that they are of.
    pub of: LockEvents,
    /// In no order.
    pub rows: Vec<LockRow>,
    /// The stacks of their cells.
    pub stacks: StackStore,
    /// Events.
    pub events: u64,
    /// Begins, and how many of them have a stack.
    pub begins: (u64, u64),
    /// Ends whose begin is not in the recording.
    pub no_begin: u64,
    /// Begins whose end is not in the recording.
    pub no_end: u64,
    /// Waits in which events were lost.
    pub touching_loss: u64,
    /// Events without a time or a field.
    pub malformed: u64,
    /// Waits that are in one row together, or were not followed: there are too many.
    pub crowded: u64,
    /// Times of the first and the last event.
    pub span: Option<(u64, u64)>,
    /// Summary of the readers.
    pub summary: ReadSummary,
}

impl ContentionTable {
    /// Makes one row of those with one name: of their caller, or of their class.
    pub fn combine_names(&mut self) {
        let mut by_name: FxHashMap<String, usize> = FxHashMap::default();
        for row in std::mem::take(&mut self.rows) {
            let next = self.rows.len();
            let at = *by_name.entry(row.caller.name.clone()).or_insert(next);
            match self.rows.get_mut(at) {
                Some(known) => known.merge(&row),
                None => self.rows.push(row),
            }
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum RowKey {
    Caller(Arc<[u64]>),
    Task(u32),
    Address(u64),
    Others,
}

/// Thread, its CPU for idle tasks, and lock.
pub(super) type WaitKey = (u32, u32, u64);

/// Returns the key of a task's wait for a lock.
pub(super) fn wait_key(event: &RecordedEvent<'_>, tid: u32, address: u64) -> WaitKey {
    // Neither idle tasks nor threads that are being released have numbers of their own.
    let is_shared = matches!(tid, 0 | u32::MAX);
    (tid, if is_shared { event.cpu().unwrap_or(0) } else { 0 }, address)
}

/// A wait under way.
struct OpenWait {
    time: u64,
    flags: u64,
    row: OpenRow,
    stack: Option<StackNode>,
    waker: Option<LockWaker>,
}

/// Row of a wait under way.
#[derive(Clone, Copy)]
enum OpenRow {
    /// Its number.
    Known(usize),
    /// The wait is not selected.
    LeftOut,
    /// Its stack has not come.
    Unknown,
}

/// Stacks of a CPU that may still come: interrupts bring stacks of their own in between.
const MAX_STACKS: usize = 8;

#[derive(Clone, Copy)]
enum ContentionFields {
    Begin { address: FieldId, flags: Option<FieldId> },
    End { address: FieldId },
    Waking { tid: FieldId },
}

impl ContentionFields {
    fn of(class: &RecordedClass) -> Option<ContentionFields> {
        if class.is_named(RELEASE_EVENT) {
            return Some(ContentionFields::Waking { tid: class.field("tid")? });
        }
        let is_begin = class.is_named(CONTENTION_EVENTS[0]);
        if !is_begin && !class.is_named(CONTENTION_EVENTS[1]) {
            return None;
        }
        let address = class.field("lock_addr")?;
        Some(if is_begin {
            ContentionFields::Begin { address, flags: class.field("flags") }
        } else {
            ContentionFields::End { address }
        })
    }
}

struct ContentionCounting<'a> {
    config: &'a ContentionConfig,
    losses: LossWindows,
    fields: LayoutMemo<Option<ContentionFields>>,
    open: FxHashMap<WaitKey, OpenWait>,
    /// Events of each CPU whose stacks may follow: starts of waits, others.
    stacks: Vec<Vec<Option<WaitKey>>>,
    rows: Vec<LockRow>,
    by_key: FxHashMap<RowKey, usize>,
    callers: CallerFinder,
    /// The lock that a task sleeps for, by its number.
    sleeping: FxHashMap<u32, WaitKey>,
    wait_stacks: StackStore,
    pairs: WaitPairs,
    events: u64,
    begins: (u64, u64),
    no_begin: u64,
    touching_loss: u64,
    malformed: u64,
    crowded: u64,
    span: Option<(u64, u64)>,
}

/// Counts the waits of recordings.
///
/// # Errors
/// If reading fails.
pub fn count_contention(
    source: &EventSource,
    config: &ContentionConfig,
) -> Result<ContentionTable, SourceError> {
    let mut names = CONTENTION_EVENTS.to_vec();
    // The ring of ftrace has stacks as events of their own, behind those they belong to. They
    // are not joined here: a task goes from CPU to CPU, and its order of time counts.
    names.push("ftrace:kernel_stack");
    if config.pairs {
        names.push(RELEASE_EVENT);
    }
    let selection = select_events(&names);
    let mut counting = ContentionCounting {
        config,
        losses: source.losses(),
        fields: LayoutMemo::default(),
        open: FxHashMap::default(),
        stacks: Vec::new(),
        rows: Vec::new(),
        by_key: FxHashMap::default(),
        callers: CallerFinder::default(),
        sleeping: FxHashMap::default(),
        wait_stacks: StackStore::default(),
        pairs: WaitPairs::default(),
        events: 0,
        begins: (0, 0),
        no_begin: 0,
        touching_loss: 0,
        malformed: 0,
        crowded: 0,
        span: None,
    };
    let summary = source.for_each(&selection, ReadOptions::default(), &mut |event| {
        counting.event(event);
        ControlFlow::Continue(())
    })?;
    Ok(counting.finish(summary))
}

impl ContentionCounting<'_> {
    fn event(&mut self, event: &RecordedEvent<'_>) {
        let class = event.class;
        if class.is_stack {
            return self.take_stack(event);
        }
        let fields = self.fields.get_or_make(class, ContentionFields::of).copied().flatten();
        let Some(fields) = fields else { return };
        let (address, flags) = match fields {
            ContentionFields::Waking { tid } => {
                self.wake(event, tid);
                return self.expect_stack(event, None);
            }
            ContentionFields::Begin { address, flags } => (address, flags),
            ContentionFields::End { address } => (address, None),
        };
        self.events += 1;
        let address = event.fields().integer(address);
        let (Some(time), Some(address), Some(tid)) = (event.time, address, event.task().tid) else {
            self.malformed += 1;
            return;
        };
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
        let key = wait_key(event, tid, address as u64);
        match fields {
            ContentionFields::Begin { .. } => {
                let flags = flags.and_then(|f| event.fields().integer(f)).unwrap_or(0);
                self.begin(key, (time, flags as u64), event);
            }
            _ => {
                self.expect_stack(event, None);
                self.end(key, time, Some(event));
            }
        }
    }

    /// A task wakes another one: if that one sleeps for a lock, this may be who releases it. The
    /// last one before the wait ends is.
    fn wake(&mut self, event: &RecordedEvent<'_>, tid: FieldId) {
        let Some(tid) = event.fields().integer(tid).and_then(|n| u32::try_from(n).ok()) else {
            return;
        };
        let Some(open) = self.sleeping.get(&tid).and_then(|key| self.open.get_mut(key)) else {
            return;
        };
        let stack = self.wait_stacks.add(event, StackRole::Waker);
        open.waker = Some(LockWaker { comm: event.task().comm().to_vec(), stack });
    }

    /// A stack of the event may come as the next event of its CPU.
    fn expect_stack(&mut self, event: &RecordedEvent<'_>, wait: Option<WaitKey>) {
        // Samples have theirs.
        let Some(cpu) = event.cpu().filter(|c| event.class.attr.is_none() && *c < MOST_CPUS) else {
            return;
        };
        let at = cpu as usize;
        if self.stacks.len() <= at {
            self.stacks.resize_with(at + 1, Vec::new);
        }
        let Some(waiting) = self.stacks.get_mut(at) else { return };
        if event.lost.is_some() {
            waiting.clear();
        }
        if waiting.len() >= MAX_STACKS {
            waiting.remove(0);
        }
        waiting.push(wait);
    }

    /// Takes a stack that is an event of its own: it belongs to the event before it.
    fn take_stack(&mut self, event: &RecordedEvent<'_>) {
        let waiting = event.cpu().and_then(|cpu| self.stacks.get_mut(cpu as usize));
        let Some(key) = waiting.and_then(Vec::pop).flatten() else { return };
        if let Some(OpenWait { flags, row: OpenRow::Unknown, .. }) = self.open.get(&key) {
            self.choose_row(key, *flags, event);
        }
    }

    fn begin(&mut self, key: WaitKey, (time, flags): (u64, u64), event: &RecordedEvent<'_>) {
        if let Some(open) = self.open.get(&key) {
            // An end was lost, or there was none: the wait continues.
            if !self.losses.touches(open.time, time) {
                return self.expect_stack(event, None);
            }
            self.end(key, time, None);
        }
        if self.open.len() >= MAX_OPEN {
            self.crowded += 1;
            return;
        }
        let mut open = OpenWait { time, flags, row: OpenRow::Unknown, stack: None, waker: None };
        if self.config.pairs && sleeps(flags) {
            open.stack = self.wait_stacks.add(event, StackRole::Event);
            self.sleeping.insert(key.0, key);
        }
        self.open.insert(key, open);
        if event.class.attr.is_some() || !event.stack().is_empty() {
            self.choose_row(key, flags, event)
        } else {
            self.expect_stack(event, Some(key))
        }
    }

    /// Finds the row of a wait by an event that has its task and, if any has, its stack.
    fn choose_row(&mut self, key: WaitKey, flags: u64, event: &RecordedEvent<'_>) {
        let row = self.row(key, flags, event);
        if let Some(row) = row.and_then(|row| self.rows.get_mut(row)) {
            row.contended += 1;
        }
        if let Some(open) = self.open.get_mut(&key) {
            open.row = row.map_or(OpenRow::LeftOut, OpenRow::Known);
        }
    }

    /// The row of a wait; none where it is not selected.
    fn row(&mut self, key: WaitKey, flags: u64, event: &RecordedEvent<'_>) -> Option<usize> {
        let (tid, _, address) = key;
        let config = self.config;
        let selection = &config.selection;
        let task = event.task();
        if !selection.wants_time(event.time) || !selection.wants_cpu(event.cpu()) {
            return None;
        }
        if selection.has_task_conditions() && !selection.wants_task(task.pid, task.tid, task.comm())
        {
            return None;
        }
        if !config.types.is_empty() && !config.types.iter().any(|t| is_type(t, flags)) {
            return None;
        }
        let caller = self.callers.find(event, config.stack_skip, config.max_stack);
        // Locks that are variables of the kernel lie beside its code; others have no name.
        let near = |f: &LockFrame| f.kernel && f.ip >> 31 == address >> 31;
        let is_named = caller.frames.iter().any(near);
        let symbol =
            || is_named.then(|| event.kernel_symbol(address)).flatten().map(|(name, _)| name);
        if !config.locks.is_empty() {
            let hex = format!("{address:x}");
            let (hex, symbol) = (hex.as_str(), symbol());
            let fits = |l: &String| {
                l.trim_start_matches("0x") == hex || symbol.as_deref() == Some(l.as_str())
            };
            if !config.locks.iter().any(fits) {
                return None;
            }
        }
        let has = |name: &String| {
            let part = |f: &LockFrame| f.symbol.as_ref().is_some_and(|s| s.0.contains(name));
            caller.frames.iter().any(part)
        };
        if !config.functions.is_empty() && !config.functions.iter().any(has) {
            return None;
        }
        self.begins.0 += 1;
        self.begins.1 += u64::from(!caller.frames.is_empty());
        let mut row_key = match config.group {
            LockGroup::Caller => RowKey::Caller(Arc::clone(&caller.key)),
            LockGroup::Task => RowKey::Task(tid),
            LockGroup::Address => RowKey::Address(address),
        };
        if self.rows.len() >= MAX_ROWS && !self.by_key.contains_key(&row_key) {
            self.crowded += 1;
            row_key = RowKey::Others;
        }
        let others = row_key == RowKey::Others;
        let next = self.rows.len();
        let number = *self.by_key.entry(row_key).or_insert(next);
        if number == next {
            let name = "[others]".to_owned();
            self.rows.push(LockRow {
                address,
                symbol: symbol(),
                flags,
                caller: if others {
                    LockCaller { name, ..LockCaller::default() }
                } else {
                    LockCaller::clone(&caller)
                },
                tid,
                comm: task.comm().to_vec(),
                ..LockRow::default()
            });
        }
        Some(number)
    }

    fn end(&mut self, key: WaitKey, time: u64, event: Option<&RecordedEvent<'_>>) {
        if let Some(OpenWait { flags, row: OpenRow::Unknown, .. }) = self.open.get(&key)
            && let Some(event) = event
        {
            // It has no stack.
            self.choose_row(key, *flags, event);
        }
        let Some(open) = self.open.remove(&key) else {
            self.no_begin += 1;
            return;
        };
        if self.sleeping.get(&key.0) == Some(&key) {
            self.sleeping.remove(&key.0);
        }
        let OpenRow::Known(number) = open.row else { return };
        let Some(row) = self.rows.get_mut(number) else { return };
        let Some(nanos) = time.checked_sub(open.time) else { return };
        if self.losses.touches(open.time, time) {
            row.uncertain += 1;
            self.touching_loss += 1;
            return;
        }
        row.add_wait(nanos, open.time);
        row.acquired += 1;
        if self.config.pairs && sleeps(open.flags) {
            self.pairs.add(number, open.stack, open.waker, nanos);
        }
    }

    fn finish(mut self, summary: ReadSummary) -> ContentionTable {
        let mut no_end = 0;
        for open in self.open.values() {
            no_end += u64::from(!matches!(open.row, OpenRow::LeftOut));
            if let OpenRow::Known(row) = open.row
                && let Some(row) = self.rows.get_mut(row)
            {
                row.open += 1;
            }
        }
        let crowded = self.crowded + self.pairs.crowded;
        for (row, cell) in self.pairs.into_cells() {
            if let Some(row) = self.rows.get_mut(row) {
                row.cells.push(cell);
            }
        }
        ContentionTable {
            of: LockEvents::Contention,
            rows: self.rows,
            stacks: self.wait_stacks,
            events: self.events,
            begins: self.begins,
            no_begin: self.no_begin,
            no_end,
            touching_loss: self.touching_loss,
            malformed: self.malformed,
            crowded,
            span: self.span,
            summary,
        }
    }
}

/// Whether who waits for a lock leaves its CPU: LCB_F_SPIN is of locks that spin, and of mutexes
/// as long as they do.
fn sleeps(flags: u64) -> bool {
    const SPIN: u64 = 0x01;
    const MUTEX: u64 = 0x20;
    flags & SPIN == 0 || flags & MUTEX != 0
}

/// Whether a lock is of a type that is named: `spinlock`, `rwsem:R`, `rwsem` for both.
fn is_type(name: &str, flags: u64) -> bool {
    let of = lock_type(flags);
    of == name || of.split_once(':').is_some_and(|(of, _)| of == name)
}
