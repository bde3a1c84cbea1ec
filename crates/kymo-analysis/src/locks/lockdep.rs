//! Locks that were taken, with and without a wait, from the events of kernels with lock debugging
//! (lockdep): `lock_acquire` before, `lock_contended` where it has to be waited for,
//! `lock_acquired` behind, `lock_release` at the end.
//!
//! `lock_acquired` is missing where nothing can be waited for (`rcu_read_lock`, what is tried),
//! and wherever the kernel keeps no statistics (CONFIG_LOCK_STAT): such a lock counts when it is
//! released.

use std::ops::ControlFlow;

use kymo_events::{
    EventSource, FieldId, LayoutMemo, ReadOptions, ReadSummary, RecordedClass, RecordedEvent,
    SourceError,
};
use rustc_hash::FxHashMap;

use super::contention::{
    ContentionConfig, ContentionTable, LockGroup, MAX_OPEN, MAX_ROWS, WaitKey, wait_key,
};
use super::lock_row::{LockCaller, LockRow};
use super::{LOCKDEP_EVENTS, LockEvents};
use crate::losses::{LossWindows, select_events};
use crate::offcpu::StackStore;

/// Flags of `lock_acquire`: the lock is tried, or taken for reading. Where it is traced, it is
/// taken, but for locks that readers wait for, too.
const TRY_OR_READ: i64 = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum LockPhase {
    Acquire,
    Acquired,
    Contended,
    Release,
}

#[derive(Clone, Copy)]
struct LockdepFields {
    phase: LockPhase,
    address: FieldId,
    name: Option<FieldId>,
    flags: Option<FieldId>,
}

impl LockdepFields {
    fn of(class: &RecordedClass) -> Option<LockdepFields> {
        const PHASES: [LockPhase; 4] =
            [LockPhase::Acquire, LockPhase::Acquired, LockPhase::Contended, LockPhase::Release];
        let named = LOCKDEP_EVENTS.iter().zip(PHASES).find(|(name, _)| class.is_named(name))?;
        Some(LockdepFields {
            phase: named.1,
            address: class.field("lockdep_addr")?,
            name: class.field("name"),
            flags: class.field("flags"),
        })
    }
}

/// A lock that a task takes or has.
#[derive(Default)]
struct TakenLock {
    /// Row of the first `lock_acquire`; none where it is not selected.
    row: Option<usize>,
    /// A bit for each time that it was asked for and not released, the last one first: whether
    /// `lock_acquired` was seen. Some are released by other tasks, and stay.
    seen: u64,
    depth: u32,
    /// Whether the last one needs no `lock_acquired`.
    is_certain: bool,
    /// Time at which the wait for it began.
    contended: Option<u64>,
}

#[derive(PartialEq, Eq, Hash)]
enum RowKey {
    Address(u64),
    Task(u32),
    Others,
}

struct LockdepCounting<'a> {
    config: &'a ContentionConfig,
    losses: LossWindows,
    fields: LayoutMemo<Option<LockdepFields>>,
    taken: FxHashMap<WaitKey, TakenLock>,
    rows: Vec<LockRow>,
    by_key: FxHashMap<RowKey, usize>,
    events: u64,
    no_begin: u64,
    touching_loss: u64,
    malformed: u64,
    crowded: u64,
    span: Option<(u64, u64)>,
}

/// Counts the locks that were taken in recordings of kernels with lock debugging.
///
/// # Errors
/// If reading fails.
pub fn count_lockdep(
    source: &EventSource,
    config: &ContentionConfig,
) -> Result<ContentionTable, SourceError> {
    let mut counting = LockdepCounting {
        config,
        losses: source.losses(),
        fields: LayoutMemo::default(),
        taken: FxHashMap::default(),
        rows: Vec::new(),
        by_key: FxHashMap::default(),
        events: 0,
        no_begin: 0,
        touching_loss: 0,
        malformed: 0,
        crowded: 0,
        span: None,
    };
    let selection = select_events(&LOCKDEP_EVENTS);
    let summary = source.for_each(&selection, ReadOptions::default(), &mut |event| {
        counting.event(event);
        ControlFlow::Continue(())
    })?;
    Ok(counting.finish(summary))
}

impl LockdepCounting<'_> {
    fn event(&mut self, event: &RecordedEvent<'_>) {
        let class = event.class;
        let fields = self.fields.get_or_make(class, LockdepFields::of).copied().flatten();
        let Some(fields) = fields else { return };
        self.events += 1;
        let address = event.fields().integer(fields.address);
        let (Some(time), Some(address), Some(tid)) = (event.time, address, event.task().tid) else {
            self.malformed += 1;
            return;
        };
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
        let key = wait_key(event, tid, address as u64);
        match fields.phase {
            LockPhase::Acquire => self.acquire(key, fields, event),
            LockPhase::Acquired => self.acquired(key, time),
            LockPhase::Contended => self.contended(key, time),
            LockPhase::Release => self.release(key),
        }
    }

    fn acquire(&mut self, key: WaitKey, fields: LockdepFields, event: &RecordedEvent<'_>) {
        let flags = fields.flags.and_then(|f| event.fields().integer(f)).unwrap_or(0);
        if !self.taken.contains_key(&key) {
            if self.taken.len() >= MAX_OPEN {
                self.crowded += 1;
                return;
            }
            let row = self.row(key, fields.name, event);
            self.taken.insert(key, TakenLock { row, ..TakenLock::default() });
        }
        if let Some(taken) = self.taken.get_mut(&key) {
            taken.seen <<= 1;
            taken.depth = (taken.depth + 1).min(u64::BITS);
            taken.is_certain = flags & TRY_OR_READ != 0;
        }
    }

    fn acquired(&mut self, key: WaitKey, time: u64) {
        let Some(taken) = self.taken.get_mut(&key) else {
            self.no_begin += 1;
            return;
        };
        // The last one that was asked for and is not taken yet.
        taken.seen |= 1 << taken.seen.trailing_ones().min(u64::BITS - 1);
        let from = taken.contended.take();
        let Some(row) = taken.row.and_then(|row| self.rows.get_mut(row)) else { return };
        row.acquired += 1;
        let wait = from.and_then(|from| Some((from, time.checked_sub(from)?)));
        match wait {
            Some((from, _)) if self.losses.touches(from, time) => {
                row.uncertain += 1;
                self.touching_loss += 1;
            }
            Some((from, nanos)) => row.add_wait(nanos, from),
            None => {}
        }
    }

    fn contended(&mut self, key: WaitKey, time: u64) {
        let Some(taken) = self.taken.get_mut(&key) else {
            self.no_begin += 1;
            return;
        };
        // A task that spins and then sleeps reports it twice.
        if taken.contended.is_none() {
            taken.contended = Some(time);
            if let Some(row) = taken.row.and_then(|row| self.rows.get_mut(row)) {
                row.contended += 1;
            }
        }
    }

    fn release(&mut self, key: WaitKey) {
        let Some(taken) = self.taken.get_mut(&key) else {
            self.no_begin += 1;
            return;
        };
        if taken.seen & 1 == 0
            && let Some(row) = taken.row.and_then(|row| self.rows.get_mut(row))
        {
            row.acquired += 1;
        }
        taken.seen >>= 1;
        taken.depth -= 1;
        if taken.depth == 0 {
            self.taken.remove(&key);
        }
    }

    /// The row of a lock; none where it is not selected.
    fn row(
        &mut self,
        (tid, _, address): WaitKey,
        name: Option<FieldId>,
        event: &RecordedEvent<'_>,
    ) -> Option<usize> {
        let selection = &self.config.selection;
        let task = event.task();
        if !selection.wants_time(event.time) || !selection.wants_cpu(event.cpu()) {
            return None;
        }
        if selection.has_task_conditions() && !selection.wants_task(task.pid, task.tid, task.comm())
        {
            return None;
        }
        let class = || name.map_or(Vec::new(), |name| event.fields().text(name).into_owned());
        let mut key = match self.config.group {
            LockGroup::Task => RowKey::Task(tid),
            _ => RowKey::Address(address),
        };
        if self.rows.len() >= MAX_ROWS && !self.by_key.contains_key(&key) {
            self.crowded += 1;
            key = RowKey::Others;
        }
        let name = match key {
            RowKey::Others => "[others]".to_owned(),
            _ => String::from_utf8_lossy(&class()).into_owned(),
        };
        let next = self.rows.len();
        let number = *self.by_key.entry(key).or_insert(next);
        if number == next {
            self.rows.push(LockRow {
                address,
                caller: LockCaller { name, ..LockCaller::default() },
                tid,
                comm: task.comm().to_vec(),
                ..LockRow::default()
            });
        }
        Some(number)
    }

    fn finish(mut self, summary: ReadSummary) -> ContentionTable {
        let mut no_end = 0;
        for taken in self.taken.values() {
            let Some(row) = taken.row.and_then(|row| self.rows.get_mut(row)) else { continue };
            if taken.contended.is_some() {
                row.open += 1;
                no_end += 1;
            } else if taken.is_certain {
                row.acquired += u64::from(taken.depth.saturating_sub(taken.seen.count_ones()));
            }
        }
        ContentionTable {
            of: LockEvents::Lockdep,
            rows: self.rows,
            stacks: StackStore::default(),
            events: self.events,
            begins: (0, 0),
            no_begin: self.no_begin,
            no_end,
            touching_loss: self.touching_loss,
            malformed: self.malformed,
            crowded: self.crowded,
            span: self.span,
            summary,
        }
    }
}
