//! Answers about interrupts, softirqs and work items as tables.

use kymo_table::{Answer, AnswerSchema, ColumnSet, Name};

use super::{
    CpuShare, CpuUsage, DelayedTask, KworkLine, KworkRead, KworkRow, KworkTable, TaskShare,
};
use crate::tasks::delay_columns;

/// Times that rows must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KworkTimes {
    /// Times from begin to end.
    Runtime,
    /// Times from raise to begin.
    Delay,
}

/// Rows that are wanted.
struct Wanted<'a> {
    times: KworkTimes,
    name: Option<&'a str>,
}

impl Wanted<'_> {
    fn has(&self, row: &KworkRow) -> bool {
        let times = match self.times {
            KworkTimes::Runtime => &row.runtime,
            KworkTimes::Delay => &row.delay,
        };
        (times.count > 0 || row.uncertain > 0)
            && self.name.is_none_or(|name| is_kwork_named(&row.name, name))
    }
}

/// Whether a piece of work has this name, or has it beside its kind and number.
pub fn is_kwork_named(row: &str, name: &str) -> bool {
    let bare = row.rsplit_once(':').map_or(row, |(bare, _)| bare);
    row == name || bare.trim_start_matches("(s)").trim_start_matches("(w)") == name
}

const KINDS: &[&str] = &["irq", "softirq", "workqueue"];

fn row_columns<'a>(details: bool) -> ColumnSet<'a, KworkRow, Wanted<'a>> {
    ColumnSet::new()
        .key("kind", "kind of work", |r: &KworkRow, _| r.kind.name())
        .of(KINDS)
        .key("name", "perf's: `virtio1-req.0:36`, `(s)RCU:9`, `(w)psi_avgs_work`", |r, _| {
            r.name.clone()
        })
        .key("cpu", "CPU where it began", |r, _| r.cpu)
        .key(
            "id",
            "number of the interrupt or softirq, or address of the work item; null in a row for \
             all work items of one function",
            |r, _| r.id,
        )
        .group("runtime", "times from start to end", delay_columns(details), |r, _| &r.runtime)
        .group(
            "delay",
            "times from the first raise (for work items: activation) to the start",
            delay_columns(details),
            |r, _| &r.delay,
        )
        .sum("uncertain", "intervals with lost events; not counted elsewhere", |r, _| r.uncertain)
}

fn report_columns<'a>(details: bool) -> ColumnSet<'a, KworkTable, Wanted<'a>> {
    let task = ColumnSet::new()
        .key("comm", "name of the task", |t: &DelayedTask, _: &Wanted<'_>| Name(t.comm.clone()))
        .key("tid", "its thread", |t, _| t.tid)
        .inline(delay_columns(details), |t, _| &t.held_up)
        .measure("longest_by", "name of the longest delay's cause", |t, _| t.longest_by.clone());
    ColumnSet::new()
        .table(
            "rows",
            "one row per kind, name and CPU, sorted like the text output",
            row_columns(details),
            |t: &KworkTable, wanted: &Wanted<'_>, each| {
                let mut rows: Vec<_> = t.rows.iter().filter(|row| wanted.has(row)).collect();
                rows.sort_by_key(|row| (&row.name, row.cpu, row.id));
                rows.into_iter().for_each(each);
            },
        )
        .table(
            "held_up",
            "tasks delayed by interrupts and softirqs, longest time first",
            task,
            |t, _, each| t.delayed.iter().for_each(each),
        )
        .inline(read_columns(), |t, _| &t.read)
}

fn read_columns<'a, C: 'a>() -> ColumnSet<'a, KworkRead, C> {
    let halves = ColumnSet::new()
        .sum("raises_only", "raises without a start", |r: &KworkRead, _: &C| {
            r.machine.counts.raises
        })
        .sum("entries_only", "starts without an end", |r, _| r.machine.counts.entries)
        .sum("exits_only", "ends without a start", |r, _| r.machine.counts.exits)
        .sum("unraised", "starts without a raise", |r, _| r.machine.counts.unraised)
        .sum("repeated_raises", "repeated raises before the start", |r, _| {
            r.machine.counts.repeated
        })
        .sum("uncertain", "intervals with lost events", |r, _| r.machine.counts.touching_loss);
    ColumnSet::new()
        .group(
            "halves",
            "unmatched events: the interval crosses the start or end of the recording, or events \
             were lost",
            halves,
            |r, _| r,
        )
        .measure("first_ns", "time of the first event", |r: &KworkRead, _| r.span.map(|s| s.0))
        .measure("last_ns", "time of the last event", |r, _| r.span.map(|s| s.1))
}

impl KworkTable {
    /// The answer of `report` and `latency`: the rows that have these times and this name; with
    /// `details` histograms, too.
    pub fn answer(&self, times: KworkTimes, name: Option<&str>, details: bool) -> Answer {
        Answer::of("kwork_report", report_columns(details), self, &Wanted { times, name })
    }
}

/// Data that rows of `top` need besides the row.
struct TopContext<'a> {
    name: Option<&'a str>,
    total: CpuShare,
}

fn top_columns<'a>() -> ColumnSet<'a, CpuUsage, TopContext<'a>> {
    let times = || {
        ColumnSet::new()
            .sum("total_ns", "known time", |s: &CpuShare, _: &TopContext<'_>| s.total)
            .sum("idle_ns", "idle, without interrupts and softirqs", |s, _| s.idle)
            .sum("irq_ns", "interrupts, except nested in softirqs", |s, _| s.irq)
            .sum("softirq_ns", "softirqs, with nested interrupts", |s, _| s.softirq)
    };
    let cpu = ColumnSet::new()
        .key("cpu", "number of the CPU", |(number, _): &(usize, CpuShare), _| *number)
        .inline(times(), |(_, share), _| share);
    let task = ColumnSet::new()
        .key("comm", "name of the task", |t: &TaskShare, _: &TopContext<'_>| Name(t.comm.clone()))
        .key("tid", "its thread; 0: idle", |t, _| t.tid)
        .key("cpu", "CPU of an idle task", |t, _| (t.tid == 0).then_some(t.cpu))
        .sum("runtime_ns", "time on CPUs without interrupts and softirqs", |t, _| t.runtime)
        .sum("held_up_ns", "time in which interrupts and softirqs held it up", |t, _| t.held_up)
        .share("usage_percent", "shares of its CPUs, added up", |t, _| t.usage);
    ColumnSet::new()
        .group("total", "sum of all CPUs", times(), |_: &CpuUsage, c: &TopContext<'_>| &c.total)
        .table("cpus", "CPUs with known time", cpu, |u, _, each| {
            let all = u.cpus.iter().copied().enumerate();
            all.filter(|(_, cpu)| cpu.total > 0).for_each(|cpu| each(&cpu));
        })
        .table("tasks", "tasks that ran", task, |u, c, each| {
            let named = |t: &&TaskShare| c.name.is_none_or(|name| t.comm == name.as_bytes());
            let mut tasks: Vec<_> =
                u.tasks.iter().filter(|t| t.runtime > 0).filter(named).collect();
            tasks.sort_by_key(|t| (t.tid, t.cpu));
            tasks.into_iter().for_each(each);
        })
        .inline(read_columns(), |u, _| &u.read)
}

impl CpuUsage {
    /// The answer of `top`: the tasks with this name.
    pub fn answer(&self, name: Option<&str>) -> Answer {
        let total = self.cpus.iter().fold(CpuShare::default(), |sum, cpu| CpuShare {
            total: sum.total + cpu.total,
            idle: sum.idle + cpu.idle,
            irq: sum.irq + cpu.irq,
            softirq: sum.softirq + cpu.softirq,
        });
        Answer::of("kwork_top", top_columns(), self, &TopContext { name, total })
    }
}

/// Columns of a line of `timehist`; with functions of a stack at most.
pub fn kwork_line_columns<'a>() -> ColumnSet<'a, KworkLine<'a>, usize> {
    ColumnSet::new()
        .key("type", "`kwork`", |_: &KworkLine<'_>, _: &usize| "kwork")
        .of(&["kwork"])
        .key("kind", "kind of work", |l, _| l.kind.name())
        .of(KINDS)
        .key("name", "perf's name", |l, _| l.name)
        .key("id", "number of the interrupt or softirq, or address of the work item", |l, _| l.id)
        .measure("start_ns", "begin", |l, _| l.interval.start.time)
        .measure("end_ns", "end", |l, _| l.interval.end)
        .key("cpu", "CPU where it began", |l, _| l.interval.start.cpu)
        .measure("end_cpu", "CPU where it ended", |l, _| l.cpu)
        .sum("runtime_ns", "time from start to end", |l, _| l.interval.end - l.interval.start.time)
        .measure("raised_ns", "first raise", |l, _| l.interval.start.raised)
        .sum("delay_ns", "time from the first raise to the start", |l, _| l.delay())
        .key("comm", "name of the interrupted task, or of the worker", |l, _| {
            Name(l.task.comm().to_vec())
        })
        .key("tid", "its thread", |l, _| l.task.tid)
        .key("pid", "its process", |l, _| l.task.pid)
        .measure("uncertain", "whether events were lost during it", |l, _| l.is_uncertain())
        .measure("stack", "with `-g`: callers of the start", |l, most| l.stack(*most).to_vec())
}

/// Definitions of these answers.
pub(crate) fn schemas() -> [AnswerSchema; 3] {
    [
        AnswerSchema::of(
            "kwork_report",
            "kymo kwork report --json, latency --json",
            "Both commands print the same object.",
            report_columns(true),
        ),
        AnswerSchema::of("kwork_timehist", "kymo kwork timehist --json", "", kwork_line_columns())
            .lines(),
        AnswerSchema::of("kwork_top", "kymo kwork top --json", "", top_columns()),
    ]
}
