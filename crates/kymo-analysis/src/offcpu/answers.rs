//! The answer of `kymo offcpu report` as tables.

use kymo_table::{Answer, AnswerSchema, ColumnSet, Name};

use super::table::{
    CauseStats, CellKey, LongestWait, OffCpuCell, OffCpuRow, OffCpuTable, WakerInfo,
};
use super::{OffCpuCause, StackNode};
use crate::tasks::delay_columns;

fn names(table: &OffCpuTable, stack: Option<StackNode>) -> Vec<String> {
    let names = stack.map_or_else(Vec::new, |stack| table.stacks.names(stack));
    names.into_iter().map(str::to_owned).collect()
}

fn cause_columns<'a>() -> ColumnSet<'a, (OffCpuCause, CauseStats), OffCpuTable> {
    ColumnSet::new()
        .key(
            "cause",
            "`preempted`, `woken` (from the wake-up to the run), `new`; `throttled` (the cgroup's \
             CPU quota was exhausted, according to the kernel stack, and the wait took 10 ms or \
             more; Linux 6.18 and later); `disk`, \
             `page-fault`, `futex` (also those with priority inheritance), `mutex`, `rwsem`, \
             `kernel-lock`, `pipe`, `socket`, `poll`, `event-file` (eventfd, timerfd, signalfd, \
             inotify), `async-io`, `terminal`, `sleep`, `file-lock` (flock, fcntl, leases), \
             `sysv-sem`, `sysv-msg`, `mqueue`, `child`, `vfork` (until the child executes a \
             program or exits), `signal`, `stopped`, `idle-worker` (a kernel thread without \
             work); `blocked`: unknown cause",
            |(cause, _): &(OffCpuCause, CauseStats), _: &OffCpuTable| cause.code(),
        )
        .detail("words", "the cause in words", |(cause, _), _| cause.text())
        .key("state", "`waiting` for a CPU, or `blocked`", |(cause, _), _| {
            if cause.is_runnable() { "waiting" } else { "blocked" }
        })
        .of(&["waiting", "blocked"])
        .inline(delay_columns(false), |(_, stats), _| &stats.waits)
        .sum(
            "uncertain",
            "waits with lost events or an unrecorded end; not counted elsewhere",
            |(_, stats), _| stats.uncertain.0,
        )
        .sum("uncertain_ns", "total time of these", |(_, stats), _| stats.uncertain.1)
        .sum(
            "not_ended",
            "waits still in progress at the end of the recording; not counted elsewhere",
            |(_, stats), _| stats.open.0,
        )
        .sum("not_ended_ns", "time of these until the end of the recording", |(_, stats), _| {
            stats.open.1
        })
}

fn stack_columns<'a>() -> ColumnSet<'a, (CellKey, OffCpuCell), OffCpuTable> {
    type Row = (CellKey, OffCpuCell);
    let waker = ColumnSet::new()
        .key(
            "comm",
            "name of the task; empty for an interrupt",
            |w: &WakerInfo, _: &OffCpuTable| Name(w.comm.clone()),
        )
        .key(
            "context",
            "`timer` and `device`: interrupts, as identified from the stack; `hardirq`: other \
             interrupts",
            |w, _| w.context.code(),
        )
        .of(&["task", "softirq", "timer", "device", "hardirq", "unknown"])
        .measure("stack", "its stack", |w, t| names(t, w.stack));
    ColumnSet::new()
        .key("cause", "same as in `causes`", |((cause, ..), _): &Row, _: &OffCpuTable| cause.code())
        .key(
            "stack",
            "functions, innermost first, without the scheduler's own; empty if not recorded",
            |((_, stack, _), _), t| names(t, *stack),
        )
        .record(
            "waker",
            "waker that ended the waits, if known",
            waker,
            |((.., waker), _), t, each| {
                waker.and_then(|id| t.waker(id)).into_iter().for_each(each);
            },
        )
        .sum("count", "number of waits", |(_, cell), _| cell.count)
        .sum("total_ns", "their sum", |(_, cell), _| cell.total)
        .measure("max_ns", "maximum", |(_, cell), _| cell.max)
}

fn row_columns<'a>() -> ColumnSet<'a, OffCpuRow, OffCpuTable> {
    ColumnSet::new()
        .key("comm", "name", |r: &OffCpuRow, _: &OffCpuTable| Name(r.comm.clone()))
        .key("tid", "thread; null in a row for several", |r, _| (r.tasks == 1).then_some(r.tid))
        .key("pid", "process, if known", |r, _| r.pid)
        .sum("tasks", "number of tasks", |r, _| r.tasks)
        .sum("wall_ns", "time from its first to its last event", |r, _| r.wall)
        .sum("running_ns", "time on a CPU", |r, _| r.running)
        .sum("waiting_ns", "time waiting for a CPU", |r, _| r.waiting)
        .sum("blocked_ns", "time blocked", |r, _| r.blocked)
        .sum(
            "uncertain_ns",
            "time of runs and waits with lost events or missing switches",
            |r, _| r.uncertain,
        )
        .sum("missing_ns", "time not covered by the others", |r, _| r.missing)
}

fn columns<'a>() -> ColumnSet<'a, OffCpuTable, OffCpuTable> {
    let longest = ColumnSet::new()
        .key("cause", "its cause", |l: &LongestWait, _: &OffCpuTable| l.cause.code())
        .key("comm", "name of the task", |l, _| Name(l.comm.clone()))
        .key("tid", "its thread", |l, _| l.tid)
        .measure("start_ns", "start", |l, _| l.from)
        .measure("end_ns", "end", |l, _| l.to);
    ColumnSet::new()
        .table(
            "causes",
            "waits by cause",
            cause_columns(),
            |t: &OffCpuTable, _: &OffCpuTable, each| {
                t.causes.iter().filter(|(_, stats)| !stats.is_empty()).for_each(each);
            },
        )
        .table(
            "stacks",
            "waits by cause, stack and waker, largest total first",
            stack_columns(),
            |t, _, each| t.cells.iter().for_each(each),
        )
        .table(
            "tasks",
            "one row per task, longest time off CPU first",
            row_columns(),
            |t, _, each| t.rows.iter().for_each(each),
        )
        .group(
            "total",
            "sum of all rows",
            row_columns().without(&["comm", "tid", "pid"]),
            |t, _| &t.total,
        )
        .record("longest", "longest wait, including its wait for a CPU", longest, |t, _, each| {
            t.longest.iter().take(1).for_each(each)
        })
        .sum("no_begin", "waits with an unrecorded start; not counted elsewhere", |t, _| t.no_begin)
        .measure("first_ns", "time of the first event", |t, _| t.read.span.map(|s| s.0))
        .measure("last_ns", "time of the last event", |t, _| t.read.span.map(|s| s.1))
}

impl OffCpuTable {
    /// The answer.
    pub fn answer(&self) -> Answer {
        Answer::of("offcpu", columns(), self, self)
    }
}

/// Definitions of these answers.
pub(crate) fn schemas() -> [AnswerSchema; 1] {
    [AnswerSchema::of("offcpu", "kymo offcpu report --json", "", columns())]
}
