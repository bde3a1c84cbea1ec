//! Lines of `kymo sched timehist` and `map` as rows of columns, and the summary behind them.

use std::io::{self, Write};

use kymo_table::{Answer, AnswerSchema, ColumnSet, Name};

use super::machine::SwitchOut;
use super::runtime::{IdleTime, RuntimeRow};
use super::task::SchedTask;
use super::wait::WaitCause;

/// A task leaves a CPU.
pub struct SwitchLine<'a> {
    /// Time and CPU.
    pub at: (u64, u32),
    /// The task.
    pub task: &'a SchedTask,
    /// The task that gets the CPU.
    pub next: &'a SchedTask,
    /// Its run.
    pub out: &'a SwitchOut,
    /// Nanoseconds of the run, where its begin is known.
    pub run: Option<u64>,
    /// Priority, where it is shown.
    pub prio: Option<i64>,
    /// Nanoseconds on a run queue before a migration, where they are shown.
    pub pre_migration: Option<u64>,
    /// Callers of the scheduler.
    pub stack: Vec<String>,
}

fn switch_columns<'a>() -> ColumnSet<'a, SwitchLine<'a>> {
    ColumnSet::new()
        .key("type", "each time a task leaves a CPU", |_: &SwitchLine<'_>, ()| "switch")
        .of(&["switch"])
        .measure("time_ns", "when", |l, ()| l.at.0)
        .key("cpu", "CPU", |l, ()| l.at.1)
        .key("comm", "name of the task", |l, ()| Name(l.task.comm().to_vec()))
        .key("tid", "its thread; 0: idle", |l, ()| l.task.tid)
        .key("pid", "its process, if known", |l, ()| l.task.info.pid)
        .sum("wait_ns", "time between the previous run and this one", |l, ()| l.out.wait.off_cpu())
        .sum("delay_ns", "part of it in which the task was runnable", |l, ()| l.out.wait.delay())
        .sum(
            "wakeup_delay_ns",
            "part of it after the wake-up (perf's `sch delay`); 0 for a preempted task",
            |l, ()| l.out.wait.wakeup_delay(),
        )
        .sum("run_ns", "this run", |l, ()| l.run)
        .key("cause", "reason why it became runnable: `woken`, `preempted`, `new`", |l, ()| {
            let cause = l.run.map(|_| l.out.wait.cause);
            cause.and_then(|cause| match cause {
                WaitCause::Woken => Some("woken"),
                WaitCause::Preempted => Some("preempted"),
                WaitCause::New => Some("new"),
                WaitCause::Unknown => None,
            })
        })
        .key("waker_tid", "thread that was running on the waking CPU; 0: idle", |l, ()| {
            l.out.wait.woken.and_then(|w| w.by)
        })
        .key("waker_context", "`task`, `softirq`, `hardirq`, `unknown`", |l, ()| {
            l.out.wait.woken.map(|w| w.context.code())
        })
        .measure("migrated", "whether this run is on another CPU than the previous one", |l, ()| {
            l.out.wait.knows_cpu().then_some(l.out.wait.is_migrated)
        })
        .key(
            "state",
            "state in which it leaves the CPU: `R`, `R+` (preempted in the kernel), `S`, `D`, \
             `T`, `t`, \
             `X`, `Z`, `P`, `I`",
            |l, ()| l.out.state.text().to_owned(),
        )
        .key("next_comm", "name of the task that gets the CPU", |l, ()| {
            Name(l.next.comm().to_vec())
        })
        .key("next_tid", "its thread", |l, ()| l.next.tid)
        .measure(
            "uncertain",
            "whether events were lost in this run or the wait before it",
            |l, ()| l.out.touches_loss || l.out.wait.touches_loss,
        )
        .measure("prio", "with `--show-prio`: its priority", |l, ()| l.prio)
        .left_out()
        .measure(
            "pre_migration_ns",
            "with `--pre-migrations`: time on a run queue before a migration",
            |l, ()| l.pre_migration,
        )
        .left_out()
        .measure("stack", "callers of the scheduler, if recorded", |l, ()| {
            Some(l.stack.clone()).filter(|stack| !stack.is_empty())
        })
        .left_out()
}

impl SwitchLine<'_> {
    /// Writes the line.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        switch_columns().write_json_line(out, self, &())
    }
}

/// A wake-up or a migration.
pub struct OtherLine<'a> {
    /// `wakeup` or `migration`.
    pub kind: &'static str,
    /// Time and CPU.
    pub at: (u64, u32),
    /// The task.
    pub task: &'a SchedTask,
    /// Task that did it.
    pub by: Option<&'a SchedTask>,
    /// CPUs of a migration.
    pub cpus: (Option<u32>, Option<u32>),
}

fn other_columns<'a>() -> ColumnSet<'a, OtherLine<'a>> {
    ColumnSet::new()
        .key("type", "with `-w` and `-M`", |l: &OtherLine<'_>, ()| l.kind)
        .of(&["wakeup", "migration"])
        .measure("time_ns", "when", |l, ()| l.at.0)
        .key("cpu", "CPU", |l, ()| l.at.1)
        .key("comm", "name of the task", |l, ()| Name(l.task.comm().to_vec()))
        .key("tid", "its thread", |l, ()| l.task.tid)
        .key("pid", "its process, if known", |l, ()| l.task.info.pid)
        .key("by_comm", "name of the task that caused it", |l, ()| {
            l.by.map(|t| Name(t.comm().to_vec()))
        })
        .key("by_tid", "its thread", |l, ()| l.by.map(|t| t.tid))
        .measure("from", "for a migration: CPU before, if known", |l, ()| l.cpus.0)
        .left_out()
        .measure("to", "for a migration: CPU after, if known", |l, ()| l.cpus.1)
        .left_out()
}

impl OtherLine<'_> {
    /// Writes the line.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        other_columns().write_json_line(out, self, &())
    }
}

/// Run and wait times by task, idle times by CPU.
#[derive(Debug)]
pub struct RuntimeSummary {
    /// Rows of tasks, longest run time first.
    pub rows: Vec<RuntimeRow>,
    /// Idle times by CPU; nothing where only some tasks were chosen.
    pub idle: Vec<IdleTime>,
    /// Nanoseconds that the summary is of.
    pub span: u64,
    /// Number of CPUs.
    pub cpus: usize,
}

impl RuntimeSummary {
    fn switches(&self) -> u64 {
        let idle: u64 = self.idle.iter().map(|i| i.idle.count).sum();
        idle + self.rows.iter().map(|r| r.runs.count).sum::<u64>()
    }

    /// The answer.
    pub fn answer(&self) -> Answer {
        Answer::of("sched_timehist", summary_columns(), self, &())
    }
}

fn summary_columns<'a>() -> ColumnSet<'a, RuntimeSummary> {
    let task = ColumnSet::new()
        .key("comm", "name", |r: &RuntimeRow, ()| Name(r.comm.clone()))
        .key("tid", "thread", |r, ()| r.tid)
        .key("pid", "process, if known and different from the thread", |r, ()| r.process)
        .key("parent_tid", "parent, if known", |r, ()| r.parent)
        .measure("ended", "whether it ended", |r, ()| r.has_ended)
        .sum("runs", "number of runs", |r, ()| r.runs.count)
        .sum("run_ns", "time of the runs", |r, ()| r.runs.total)
        .measure("min_run_ns", "minimum", |r, ()| r.runs.min)
        .measure("average_run_ns", "mean", |r, ()| r.runs.average())
        .measure("max_run_ns", "maximum", |r, ()| r.runs.max)
        .measure("run_error_percent", "standard error of the mean, in percent", |r, ()| {
            r.runs.error_percent()
        })
        .sum("sleep_ns", "time asleep, until it ran again", |r, ()| r.sleep)
        .sum("uninterruptible_ns", "time in state `D`, until it ran again", |r, ()| {
            r.uninterruptible
        })
        .sum("preempted_ns", "time preempted", |r, ()| r.preempted)
        .sum("wakeup_delay_ns", "time between wake-up and run", |r, ()| r.delay)
        .sum("migrations", "runs on another CPU than the previous one", |r, ()| r.migrations)
        .sum("uncertain", "runs or waits in which events were lost", |r, ()| r.uncertain);
    let idle = ColumnSet::new()
        .key("cpu", "CPU", |i: &IdleTime, ()| i.cpu)
        .sum("count", "number of idle periods", |i, ()| i.idle.count)
        .sum("idle_ns", "their sum", |i, ()| i.idle.total);
    ColumnSet::new()
        .key("type", "with `-s` and `-S`, the last line", |_: &RuntimeSummary, ()| "summary")
        .of(&["summary"])
        .table("tasks", "tasks, longest run time first", task, |s, (), each| {
            s.rows.iter().for_each(each);
        })
        .table("idle", "idle time by CPU", idle, |s, (), each| s.idle.iter().for_each(each))
        .sum("switches", "number of switches", |s, ()| s.switches())
        .sum("run_ns", "time of all runs", |s, ()| s.rows.iter().map(|r| r.runs.total).sum::<u64>())
        .measure("span_ns", "length of the recording", |s, ()| s.span)
        .measure("cpus", "number of CPUs", |s, ()| s.cpus)
}

/// Switch in a map.
pub struct MapLine<'a> {
    /// Time and CPU.
    pub at: (u64, u32),
    /// Letters of the task.
    pub name: &'a str,
    /// The task that gets the CPU.
    pub task: &'a SchedTask,
}

fn map_columns<'a>() -> ColumnSet<'a, MapLine<'a>> {
    ColumnSet::new()
        .measure("time_ns", "when", |l: &MapLine<'_>, ()| l.at.0)
        .key("cpu", "CPU", |l, ()| l.at.1)
        .key("name", "two letters of the task", |l, ()| l.name.to_owned())
        .key("comm", "its name", |l, ()| Name(l.task.comm().to_vec()))
        .key("tid", "its thread", |l, ()| l.task.tid)
        .key("pid", "its process, if known", |l, ()| l.task.info.pid)
}

impl MapLine<'_> {
    /// Writes the line.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        map_columns().write_json_line(out, self, &())
    }
}

/// Definitions of these answers.
pub(super) fn line_schemas() -> [AnswerSchema; 2] {
    [
        AnswerSchema::of(
            "sched_timehist",
            "kymo sched timehist --json",
            "`type` distinguishes them.",
            switch_columns(),
        )
        .or(other_columns())
        .or(summary_columns())
        .lines(),
        AnswerSchema::of(
            "sched_map",
            "kymo sched map --json",
            "One for each switch.",
            map_columns(),
        )
        .lines(),
    ]
}
