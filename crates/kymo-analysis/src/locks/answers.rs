//! Answers about waits for locks as tables.

use std::collections::BTreeMap;

use kymo_table::{Answer, AnswerSchema, ColumnSet, Name};

use super::{
    ContentionTable, FutexRow, FutexTable, LockEvents, LockFrame, LockGroup, LockRow, LockWaker,
    WaitCell, lock_type,
};
use crate::offcpu::{StackNode, StackStore};
use crate::tasks::delay_columns;

/// Data that cells of waits for locks need besides the row.
struct LockContext<'a> {
    group: LockGroup,
    table: &'a ContentionTable,
}

impl LockContext<'_> {
    fn is_lockdep(&self) -> bool {
        self.table.of == LockEvents::Lockdep
    }
}

/// Has the stacks of cells.
trait Stacks {
    fn names(&self, stack: Option<StackNode>) -> Vec<String>;
}

fn names_of(stacks: &StackStore, stack: Option<StackNode>) -> Vec<String> {
    let names = stack.map_or_else(Vec::new, |stack| stacks.names(stack));
    names.into_iter().map(str::to_owned).collect()
}

impl Stacks for LockContext<'_> {
    fn names(&self, stack: Option<StackNode>) -> Vec<String> {
        names_of(&self.table.stacks, stack)
    }
}

impl Stacks for FutexTable {
    fn names(&self, stack: Option<StackNode>) -> Vec<String> {
        names_of(&self.stacks, stack)
    }
}

fn cell_columns<'a, C: Stacks + 'a>() -> ColumnSet<'a, WaitCell, C> {
    let waker = ColumnSet::new()
        .key("comm", "name of the task", |w: &LockWaker, _: &C| Name(w.comm.clone()))
        .measure("stack", "its stack, innermost first", |w, c| c.names(w.stack));
    ColumnSet::new()
        .key("stack", "names, innermost first", |w: &WaitCell, c: &C| c.names(w.stack))
        .record(
            "waker",
            "last task that woke the waiter before the wait ended",
            waker,
            |w, _, each| w.waker.iter().for_each(each),
        )
        .sum("count", "number of waits", |w, _| w.count)
        .sum("total_ns", "sum of the waits", |w, _| w.total)
        .measure("max_ns", "maximum", |w, _| w.max)
}

/// Sorts rows that the keys of an answer do not distinguish.
fn in_order(rows: &[LockRow]) -> Vec<&LockRow> {
    let mut rows: Vec<&LockRow> = rows.iter().collect();
    rows.sort_by_key(|row| (&row.caller.name, row.address, row.tid));
    rows
}

fn lock_columns<'a>() -> ColumnSet<'a, LockRow, LockContext<'a>> {
    let frame = ColumnSet::new()
        .key("ip", "address", |f: &LockFrame, _: &LockContext<'_>| format!("{:#x}", f.ip))
        .measure("sym", "function", |f, _| f.symbol.as_ref().map(|s| s.0.clone()))
        .measure("symoff", "offset from its start", |f, _| f.symbol.as_ref().map(|s| s.1));
    let by = |group| move |c: &LockContext<'_>| c.group == group;
    let by_caller = by(LockGroup::Caller);
    let (by_task, by_address) = (by(LockGroup::Task), by(LockGroup::Address));
    ColumnSet::new()
        .key(
            "caller",
            "in rows by caller: first function that is not a lock function, with the offset",
            move |r: &LockRow, c: &LockContext<'_>| by_caller(c).then(|| r.caller.name.clone()),
        )
        .key("class", "with lock debugging: the class of the lock", |r, c| {
            c.is_lockdep().then(|| r.caller.name.clone())
        })
        .detail("first", "caller of the first wait, or class", |r, _| r.caller.name.clone())
        .optional_table(
            "stack",
            "of rows by caller: the stack, innermost first",
            frame,
            move |r, c, each| {
                r.caller.frames.iter().for_each(each);
                by_caller(c)
            },
        )
        .key("tid", "of rows by task: thread", move |r, c| by_task(c).then_some(r.tid))
        .key("comm", "of rows by task: name", move |r, c| by_task(c).then(|| Name(r.comm.clone())))
        .key("address", "of rows by address", move |r, c| {
            by_address(c).then(|| format!("{:#x}", r.address))
        })
        .key("symbol", "of rows by address: symbol at the address", move |r, c| {
            r.symbol.clone().filter(|_| by_address(c))
        })
        .key(
            "type",
            "`spinlock`, `mutex`, `rwsem:R`, `rwlock:W`, `semaphore`, …, as in perf; null for \
             tasks and with lock debugging",
            move |r, c| (!by_task(c) && !c.is_lockdep()).then(|| lock_type(r.flags)),
        )
        .sum("contended", "number of started waits", |r, _| r.contended)
        .sum(
            "acquired",
            "with lock debugging: number of acquisitions; otherwise: completed waits without lost \
             events",
            |r, _| r.acquired,
        )
        .detail("ended", "completed waits without lost events", |r, _| r.waits.count)
        .inline(delay_columns(false).without(&["count"]), |r, _| &r.waits)
        .measure("min_ns", "minimum", |r, _| r.min)
        .sum("uncertain", "waits with lost events; excluded from all times", |r, _| r.uncertain)
        .sum("not_ended", "waits still in progress at the end of the recording", |r, _| r.open)
        .table(
            "stacks",
            "waits by stack and waker, for sleeping locks in a recording with wake-ups (`kymo \
             lock record --wakers`)",
            cell_columns(),
            |r, _, each| r.cells.iter().for_each(each),
        )
}

fn contention_columns<'a>() -> ColumnSet<'a, ContentionTable, LockContext<'a>> {
    ColumnSet::new()
        .key("group", "rows", |_: &ContentionTable, c: &LockContext<'_>| match c.group {
            LockGroup::Caller => "caller",
            LockGroup::Task => "task",
            LockGroup::Address => "address",
        })
        .of(&["caller", "task", "address"])
        .table("locks", "one row per caller, task or lock", lock_columns(), |t, _, each| {
            in_order(&t.rows).into_iter().for_each(each);
        })
        .sum("events", "number of events", |t, _| t.events)
        .sum("no_begin", "waits with an unrecorded start", |t, _| t.no_begin)
        .sum("no_end", "waits with an unrecorded end", |t, _| t.no_end)
        .measure("first_ns", "time of the first event", |t, _| t.span.map(|s| s.0))
        .measure("last_ns", "time of the last event", |t, _| t.span.map(|s| s.1))
}

/// List that `kymo lock info` shows.
struct InfoContext<'a> {
    is_tasks: bool,
    table: &'a ContentionTable,
}

fn info_columns<'a>() -> ColumnSet<'a, ContentionTable, InfoContext<'a>> {
    let thread = ColumnSet::new()
        .key("tid", "thread", |t: &(u32, Vec<u8>), _: &InfoContext<'_>| t.0)
        .key("comm", "name", |t, _| Name(t.1.clone()));
    let is_lockdep = |c: &InfoContext<'_>| c.table.of == LockEvents::Lockdep;
    let lock = ColumnSet::new()
        .key("address", "its address", |r: &LockRow, _: &InfoContext<'_>| {
            format!("{:#x}", r.address)
        })
        .key("symbol", "symbol at the address", |r, _| r.symbol.clone())
        .key("caller", "first waiter; null with lock debugging", move |r, c| {
            (!is_lockdep(c)).then(|| r.caller.name.clone())
        })
        .key("class", "with lock debugging: lock class", move |r, c| {
            is_lockdep(c).then(|| r.caller.name.clone())
        })
        .key("type", "type as in `lock contention`; null with lock debugging", move |r, c| {
            (!is_lockdep(c)).then(|| lock_type(r.flags))
        });
    ColumnSet::new()
        .optional_table(
            "threads",
            "waiting threads",
            thread,
            |t: &ContentionTable, c: &InfoContext<'_>, each| {
                let all: BTreeMap<_, _> = t.rows.iter().map(|r| (r.tid, &r.comm)).collect();
                all.into_iter().for_each(|(tid, comm)| each(&(tid, comm.clone())));
                c.is_tasks
            },
        )
        .left_out()
        .optional_table("locks", "with `-m`: contended locks", lock, |t, c, each| {
            let mut rows = in_order(&t.rows);
            rows.sort_by_key(|row| std::cmp::Reverse(row.contended));
            rows.into_iter().for_each(each);
            !c.is_tasks
        })
        .left_out()
}

impl ContentionTable {
    /// The answer of `contention` and `report`.
    pub fn answer(&self, group: LockGroup) -> Answer {
        Answer::of(
            "lock_contention",
            contention_columns(),
            self,
            &LockContext { group, table: self },
        )
    }

    /// The answer of `info`: tasks, or locks.
    pub fn info(&self, is_tasks: bool) -> Answer {
        Answer::of("lock_info", info_columns(), self, &InfoContext { is_tasks, table: self })
    }
}

fn futex_columns<'a>() -> ColumnSet<'a, FutexTable, FutexTable> {
    let row = ColumnSet::new()
        .key("pid", "process, if known", |r: &FutexRow, _: &FutexTable| r.pid)
        .key("comm", "name of the first waiting task", |r, _| Name(r.comm.clone()))
        .key(
            "address",
            "address of the futex; null in the row for all futexes beyond the table limit",
            |r, _| (!r.is_others).then(|| format!("{:#x}", r.address)),
        )
        .key(
            "variable",
            "variable at this address (`table+0x28`), from the binary's symbols",
            |r, _| r.variable.clone(),
        )
        .inline(delay_columns(false), |r, _| &r.waits)
        .sum("timeouts", "number of these that timed out", |r, _| r.timeouts)
        .sum("interrupted", "number of these interrupted by a signal", |r, _| r.interrupted)
        .sum(
            "not_waited",
            "calls that did not wait because the futex had another value; not counted elsewhere",
            |r, _| r.not_waited,
        )
        .sum("wakes", "wake calls", |r, _| r.wakes)
        .sum("uncertain", "waits with lost events; excluded from all times", |r, _| r.uncertain)
        .sum(
            "not_ended",
            "waits still in progress at the end of the recording; excluded from all times",
            |r, _| r.open,
        )
        .measure(
            "at_least",
            "whether events were lost, so that the real numbers may be higher",
            |r, _| r.is_at_least,
        )
        .table("stacks", "waits by stack and waker", cell_columns(), |r, _, each| {
            r.cells.iter().for_each(each);
        });
    ColumnSet::new()
        .table(
            "futexes",
            "one row per futex, largest total first; a wait lasts from the entry to the exit of \
             the system call",
            row,
            |t: &FutexTable, _: &FutexTable, each| t.rows.iter().for_each(each),
        )
        .sum("events", "number of events", |t, _| t.events)
        .measure("first_ns", "time of the first event", |t, _| t.span.map(|s| s.0))
        .measure("last_ns", "time of the last event", |t, _| t.span.map(|s| s.1))
}

impl FutexTable {
    /// The answer of `contention --futex`.
    pub fn answer(&self) -> Answer {
        Answer::of("lock_futex", futex_columns(), self, self)
    }
}

/// Definitions of these answers.
pub(crate) fn schemas() -> [AnswerSchema; 3] {
    [
        AnswerSchema::of(
            "lock_contention",
            "kymo lock contention --json, report --json",
            "`report` has rows by address, with `-t` by task, with `-c` by name; on kernels with \
             lock debugging (lockdep) for every acquired lock.",
            contention_columns(),
        ),
        AnswerSchema::of("lock_futex", "kymo lock contention --futex --json", "", futex_columns()),
        AnswerSchema::of("lock_info", "kymo lock info --json", "", info_columns()),
    ]
}
