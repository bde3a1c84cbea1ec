//! The answer of `kymo sched latency` as tables.

use kymo_table::{Answer, AnswerSchema, Columns, Name};

use super::latency::{LatencyRow, LatencyTable, LongestDelay, delay_columns};
use super::wait::WaitCause;

fn row_columns<'a>() -> Columns<'a, LatencyRow, LatencyTable> {
    fn single(row: &LatencyRow) -> bool {
        row.tasks == 1
    }
    Columns::new()
        .key("comm", "name", |r: &LatencyRow, _: &LatencyTable| Name(r.comm.clone()))
        .key("tid", "thread; null in a row of several tasks", |r, _| single(r).then_some(r.tid))
        .key(
            "pid",
            "process; null in a row of several tasks, or where the recording does not state it",
            |r, _| r.pid.filter(|_| single(r)),
        )
        .sum("tasks", "number of tasks", |r, _| r.tasks)
        .sum("runtime_ns", "run time, see `runtime_from`", |r, t| {
            // Time that the kernel accounted, or time between switches.
            if t.has_accounted { r.accounted } else { r.on_cpu }
        })
        .sum("on_cpu_ns", "time between getting and leaving a CPU", |r, _| r.on_cpu)
        .sum(
            "uncertain_on_cpu_ns",
            "the same of runs in which events were lost: it may have waited meanwhile; not in \
             `on_cpu_ns`",
            |r, _| r.uncertain_on_cpu,
        )
        .sum("switches", "how often it got a CPU", |r, _| r.switches)
        .sum("migrations", "of these, how often another CPU than the last time", |r, _| {
            r.migrations
        })
        .sum("unknown", "of these, how often the start of its wait is not known", |r, _| r.unknown)
        .sum(
            "uncertain",
            "of these, how often events were lost while it waited; such waits are in no delay",
            |r, _| r.uncertain,
        )
        .group("delay", "all waits for a CPU", delay_columns(), |r, _| &r.delay)
        .group("woken", "waits after a wake-up", delay_columns(), |r, _| &r.woken)
        .group("preempted", "waits after a preemption, or a yield", delay_columns(), |r, _| {
            &r.preempted
        })
        .group("new", "waits before the first run", delay_columns(), |r, _| &r.new)
}

fn columns<'a>() -> Columns<'a, LatencyTable, LatencyTable> {
    let longest = Columns::new()
        .key("comm", "name of the task", |l: &LongestDelay, _: &LatencyTable| Name(l.comm.clone()))
        .key("tid", "its thread", |l, _| l.tid)
        .key("cpu", "CPU that it got", |l, _| l.cpu)
        .key("cause", "why it could run", |l, _| match l.wait.cause {
            WaitCause::Woken => "woken",
            WaitCause::Preempted => "preempted",
            WaitCause::New => "new",
            WaitCause::Unknown => "unknown",
        })
        .of(&["woken", "preempted", "new", "unknown"])
        .measure("start_ns", "when the wait began", |l, _| l.wait.runnable)
        .measure("end_ns", "when it ended", |l, _| l.wait.ended)
        .measure("waker", "name of the task that woke it", |l, _| l.waker.clone().map(Name))
        .measure("waker_tid", "its thread", |l, _| l.wait.woken.and_then(|w| w.by))
        .measure("ran_before", "name of the task that left the CPU to it", |l, _| {
            Name(l.ran_before.clone())
        })
        .measure("ran_before_tid", "its thread", |l, _| l.ran_before_tid);
    Columns::new()
        .table(
            "tasks",
            "a row for each task (`-p`), or for each name",
            row_columns(),
            |t: &LatencyTable, _: &LatencyTable, each| {
                let mut rows: Vec<_> = t.rows.iter().collect();
                rows.sort_by_key(|row| (&row.comm, row.tid));
                rows.into_iter().for_each(each);
            },
        )
        .group(
            "total",
            "all rows together",
            row_columns().without(&["comm", "tid", "pid"]),
            |t, _| &t.total,
        )
        .record("longest", "the longest wait for a CPU", longest, |t, _, each| {
            t.longest.iter().for_each(each);
        })
        .key(
            "runtime_from",
            "`sched_stat_runtime`: accounted by the kernel; `sched_switch`: time between switches",
            |t, _| if t.has_accounted { "sched_stat_runtime" } else { "sched_switch" },
        )
        .of(&["sched_stat_runtime", "sched_switch"])
        .measure("first_ns", "time of the first event", |t, _| t.read.span.map(|s| s.0))
        .measure("last_ns", "time of the last event", |t, _| t.read.span.map(|s| s.1))
}

impl LatencyTable {
    /// The answer.
    pub fn answer(&self) -> Answer {
        Answer::of("sched_latency", columns(), self, self)
    }
}

/// Definitions of these answers.
pub(crate) fn schemas() -> [AnswerSchema; 1] {
    [AnswerSchema::of(
        "sched_latency",
        "kymo sched latency --json",
        "With `--live`, too. Times of `kymo sched` are integers of nanoseconds, of the \
         recording's clock or durations, and end in `_ns`; unknown values are null.",
        columns(),
    )]
}
