//! The answer of `kymo sched latency` as tables.

use kymo_table::{Answer, AnswerSchema, ColumnSet, Name};

use super::latency::{LatencyRow, LatencyTable, LongestDelay, delay_columns};
use super::lines::line_schemas;
use super::wait::WaitCause;

fn row_columns<'a>(details: bool) -> ColumnSet<'a, LatencyRow, LatencyTable> {
    fn single(row: &LatencyRow) -> bool {
        row.tasks == 1
    }
    ColumnSet::new()
        .key("comm", "name", |r: &LatencyRow, _: &LatencyTable| Name(r.comm.clone()))
        .key("tid", "thread; null in a row for several tasks", |r, _| single(r).then_some(r.tid))
        .detail("first_tid", "thread of its first task", |r, _| r.tid)
        .key("pid", "process; null in a row for several tasks, or if not recorded", |r, _| {
            r.pid.filter(|_| single(r))
        })
        .sum("tasks", "number of tasks", |r, _| r.tasks)
        .sum("runtime_ns", "run time, see `runtime_from`", |r, t| {
            // Time that the kernel accounted, or time between switches.
            if t.has_accounted { r.accounted } else { r.on_cpu }
        })
        .sum("on_cpu_ns", "time between getting and leaving a CPU", |r, _| r.on_cpu)
        .sum(
            "uncertain_on_cpu_ns",
            "time of runs in which events were lost, so that the task may have waited; not in \
             `on_cpu_ns`",
            |r, _| r.uncertain_on_cpu,
        )
        .sum("switches", "number of times it got a CPU", |r, _| r.switches)
        .sum("migrations", "number of these on another CPU than before", |r, _| r.migrations)
        .sum("unknown", "number of these with an unknown start of the wait", |r, _| r.unknown)
        .sum(
            "uncertain",
            "number of these with lost events during the wait; excluded from all delays",
            |r, _| r.uncertain,
        )
        .group("delay", "all waits for a CPU", delay_columns(details), |r, _| &r.delay)
        .group("woken", "waits after a wake-up", delay_columns(details), |r, _| &r.woken)
        .group(
            "preempted",
            "waits after a preemption or a yield",
            delay_columns(details),
            |r, _| &r.preempted,
        )
        .group("new", "waits before the first run", delay_columns(details), |r, _| &r.new)
}

fn columns<'a>(details: bool) -> ColumnSet<'a, LatencyTable, LatencyTable> {
    let longest = ColumnSet::new()
        .key("comm", "name of the task", |l: &LongestDelay, _: &LatencyTable| Name(l.comm.clone()))
        .key("tid", "its thread", |l, _| l.tid)
        .key("cpu", "CPU on which it ran next", |l, _| l.cpu)
        .key("cause", "reason why it became runnable", |l, _| match l.wait.cause {
            WaitCause::Woken => "woken",
            WaitCause::Preempted => "preempted",
            WaitCause::New => "new",
            WaitCause::Unknown => "unknown",
        })
        .of(&["woken", "preempted", "new", "unknown"])
        .measure("start_ns", "start of the wait", |l, _| l.wait.runnable)
        .measure("end_ns", "end", |l, _| l.wait.ended)
        .measure("waker", "name of the task that woke it", |l, _| l.waker.clone().map(Name))
        .measure("waker_tid", "its thread", |l, _| l.wait.woken.and_then(|w| w.by))
        .measure(
            "ran_before",
            "name of the task that ran before it on this CPU; null if the CPU quota of its cgroup \
             may be the cause of the wait",
            |l, _| l.ran_before.clone().map(|(comm, _)| Name(comm)),
        )
        .measure("ran_before_tid", "its thread", |l, _| l.ran_before.as_ref().map(|r| r.1));
    ColumnSet::new()
        .table(
            "tasks",
            "one row per task (`-p`) or per name",
            row_columns(details),
            |t: &LatencyTable, _: &LatencyTable, each| {
                let mut rows: Vec<_> = t.rows.iter().collect();
                rows.sort_by_key(|row| (&row.comm, row.tid));
                rows.into_iter().for_each(each);
            },
        )
        .group(
            "total",
            "sum of all rows",
            row_columns(details).without(&["comm", "tid", "first_tid", "pid"]),
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
    /// The answer; with `details` histograms, too.
    pub fn answer(&self, details: bool) -> Answer {
        Answer::of("sched_latency", columns(details), self, self)
    }
}

/// Definitions of these answers.
pub(crate) fn schemas() -> Vec<AnswerSchema> {
    let latency = AnswerSchema::of(
        "sched_latency",
        "kymo sched latency --json",
        "With `--live`, too. Times of `kymo sched` are integers of nanoseconds, of the \
         recording's clock or durations, and end in `_ns`; unknown values are null.",
        columns(true),
    );
    line_schemas().into_iter().chain([latency]).collect()
}
