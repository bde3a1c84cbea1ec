//! The answer of `kymo syscalls report` as tables.

use std::cmp::Reverse;

use kymo_table::{Answer, AnswerSchema, ColumnSet, Name};

use super::count::{CallBlock, SlowCall, SyscallTable, SyscallTask};
use super::{CallId, SyscallStats};
use crate::tasks::{WakeupContext, delay_columns};

/// Names that the answer needs besides the table.
#[derive(Clone, Copy)]
pub struct CallNames<'a> {
    /// Name of an error.
    pub errno: fn(i32) -> Option<&'static str>,
    /// Arguments of each of the slowest calls.
    pub arguments: &'a [String],
}

impl CallNames<'_> {
    fn error(&self, error: i32) -> String {
        (self.errno)(error).map_or_else(|| error.to_string(), str::to_owned)
    }
}

/// Data that cells need besides the row.
struct Context<'a> {
    table: &'a SyscallTable,
    names: CallNames<'a>,
}

impl Context<'_> {
    fn has_waits(&self) -> bool {
        self.table.sched.switches > 0
    }
}

type CallRow = (CallId, SyscallStats);

fn call_columns<'a>(details: bool) -> ColumnSet<'a, CallRow, Context<'a>> {
    ColumnSet::new()
        .key(
            "syscall",
            "name; `syscall_N` if only the number is known",
            |(id, _): &CallRow, c: &Context<'_>| c.table.name(*id).to_owned(),
        )
        .inline(delay_columns(details), |(_, s), _| &s.durations)
        .sum("errors", "number of failed calls", |(_, s), _| s.failed())
        .measure("errnos", "number of failures by error: `{\"ENOENT\": 3}`", |(_, s), c| {
            let count = |(error, n): (&i32, &u64)| (c.names.error(*error), *n);
            s.errors.iter().map(count).collect::<Vec<_>>()
        })
        .measure("min_ns", "minimum", |(_, s), _| s.min)
        .measure(
            "stddev_percent",
            "standard error of the mean, in percent, as in perf trace -s",
            |(_, s), _| s.relative_error(),
        )
        .sum(
            "blocked_ns",
            "time in which they were blocked; null without sched_switch",
            |(_, s), c| c.has_waits().then_some(s.blocked),
        )
        .sum(
            "runnable_ns",
            "time in which they waited for a CPU; null without sched_switch",
            |(_, s), c| c.has_waits().then_some(s.runnable),
        )
        .sum("uncertain", "calls with lost events; not counted elsewhere", |(_, s), _| s.uncertain)
}

/// Calls by total time, then by name.
fn each_call(calls: &[CallRow], c: &Context<'_>, each: &mut dyn FnMut(&CallRow)) {
    let mut rows: Vec<&CallRow> = calls.iter().collect();
    rows.sort_by_key(|(id, s)| (Reverse(s.durations.total), c.table.name(*id)));
    rows.into_iter().for_each(each);
}

fn slow_columns<'a>() -> ColumnSet<'a, (&'a SlowCall, &'a str), Context<'a>> {
    type Slow<'a> = (&'a SlowCall, &'a str);
    type WokenBy = (Vec<u8>, u32, WakeupContext);
    let failed = |result: i64| (-4095..0).contains(&result);
    let woken_by = ColumnSet::new()
        .key("comm", "name", |(comm, _, _): &WokenBy, _: &Context<'_>| Name(comm.clone()))
        .key("tid", "thread", |(_, tid, _), _| *tid)
        .key("context", "context of the wake-up", |(_, _, context), _| match context {
            WakeupContext::HardIrq => "irq",
            context => context.code(),
        })
        .of(&["task", "softirq", "irq", "timer", "device", "unknown"]);
    let block = ColumnSet::new()
        .key("cause", "a code of `kymo offcpu report --json`", |b: &CallBlock, _: &Context<'_>| {
            b.cause.code()
        })
        .sum("duration_ns", "its time", |b, _| b.nanos)
        .record("woken_by", "waker that ended the last of these waits", woken_by, |b, _, each| {
            b.woken_by.iter().for_each(each);
        })
        .measure("stack", "kernel stack of its last wait, innermost first", |b, _| b.stack.clone());
    ColumnSet::new()
        .key("syscall", "name", |(s, _): &Slow<'_>, c: &Context<'_>| {
            c.table.name(s.call).to_owned()
        })
        .measure("start_ns", "time of entry", |(s, _), _| s.start)
        .measure("duration_ns", "time from entry to exit", |(s, _), _| s.duration)
        .key("cpu", "CPU where it ended", |(s, _), _| s.cpu)
        .key("comm", "name of its task", |(s, _), _| Name(s.task.comm().to_vec()))
        .key("tid", "its thread", |(s, _), _| s.task.tid)
        .key("pid", "its process", |(s, _), _| s.task.pid)
        .measure("arguments", "arguments as text; `…` if unknown", |(_, text), _| {
            (*text).to_owned()
        })
        .measure("ret", "result", |(s, _), _| s.result)
        .measure("errno", "error of a failed call", move |(s, _), c| {
            failed(s.result).then(|| c.names.error(-s.result as i32))
        })
        .table(
            "blocked",
            "waits by cause, in the order of their first occurrence",
            block,
            |(s, _), _, each| {
                s.waits.blocks.iter().for_each(each);
            },
        )
        .measure("runnable_ns", "time in which it waited for a CPU", |(s, _), _| s.waits.runnable)
}

fn columns<'a>(details: bool) -> ColumnSet<'a, SyscallTable, Context<'a>> {
    let thread = ColumnSet::new()
        .key("comm", "last name", |t: &SyscallTask, _: &Context<'_>| Name(t.comm.clone()))
        .key("tid", "thread; null in a row for several", |t, _| t.tid)
        .key("pid", "process", |t, _| t.pid)
        .sum("events", "number of its events", |t, _| t.events)
        .table("calls", "its calls", call_columns(details), |t, c, each| {
            each_call(&t.calls, c, each)
        });
    let halves = ColumnSet::new()
        .sum("open_at_end", "calls that have not returned", |t: &SyscallTable, _: &Context<'_>| {
            t.open_at_end
        })
        .sum("entries_only", "entries without an exit", |t, _| t.entries)
        .sum("exits_only", "exits without an entry", |t, _| t.exits)
        .sum("uncertain", "calls with lost events", |t, _| t.touching_loss);
    ColumnSet::new()
        .table(
            "calls",
            "calls of all threads, in the order of the text output",
            call_columns(details),
            |t: &SyscallTable, c: &Context<'_>, each| each_call(&t.calls, c, each),
        )
        .table("threads", "threads, largest total first", thread, |t, _, each| {
            t.tasks.iter().for_each(each);
        })
        .table("slowest", "the slowest calls", slow_columns(), |_, c, each| {
            let arguments = c.names.arguments.iter().map(String::as_str);
            c.table.slowest.iter().zip(arguments).for_each(|slow| each(&slow));
        })
        .group("halves", "incomplete calls", halves, |t, _| t)
        .measure("first_ns", "time of the first event", |t, _| t.span.map(|s| s.0))
        .measure("last_ns", "time of the last event", |t, _| t.span.map(|s| s.1))
}

impl SyscallTable {
    /// The answer; with `details` histograms, too.
    pub fn answer(&self, names: CallNames<'_>, details: bool) -> Answer {
        Answer::of("syscalls", columns(details), self, &Context { table: self, names })
    }
}

/// Definitions of these answers.
pub(crate) fn schemas() -> [AnswerSchema; 1] {
    [AnswerSchema::of("syscalls", "kymo syscalls report --json", "", columns(true))]
}
