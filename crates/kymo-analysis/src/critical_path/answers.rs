//! The answer of `kymo why` as tables.

use kymo_table::units::{Seconds, TimeUnits};
use kymo_table::{Answer, AnswerSchema, ColumnSet, Name};

use super::{
    CriticalPath, PathCulprit, PathKind, PathSegment, PathTable, PathTask, PathTaskId, SpanStats,
};
use crate::tasks::delay_columns;

/// Data that cells need besides the row.
struct Context<'a> {
    table: &'a PathTable,
    recording: &'a str,
}

impl PathTable {
    /// The command that shows the events of a segment; `recording`: as arguments of a command, `-i
    /// FILE`, or empty where the events are not kept.
    pub fn script(&self, segment: &PathSegment, recording: &str) -> Option<String> {
        let nano = TimeUnits { nanos: true };
        let (from, to) = (Seconds(segment.from, nano), Seconds(segment.to, nano));
        (!recording.is_empty()).then(|| format!("kymo script {recording} --time {from},{to}"))
    }

    /// The answer.
    pub fn answer(&self, recording: &str) -> Answer {
        Answer::of("why", columns(), self, &Context { table: self, recording })
    }
}

/// A task, or several of its name.
type Named<'a> = (&'a PathTask, bool);

fn task_columns<'a>() -> ColumnSet<'a, Named<'a>, Context<'a>> {
    ColumnSet::new()
        .key("comm", "name", |(t, _): &Named<'_>, _: &Context<'_>| Name(t.comm.clone()))
        .key("tid", "thread; null for several tasks with this name", |(t, several), _| {
            (!several).then_some(t.tid)
        })
        .key("pid", "process, if known", |(t, several), _| t.pid.filter(|_| !several))
}

fn each_task<'a>(
    c: &Context<'a>,
    (id, several): (Option<PathTaskId>, bool),
    each: &mut dyn FnMut(&Named<'a>),
) {
    if let Some(task) = id.and_then(|id| c.table.task(id)) {
        each(&(task, several));
    }
}

fn culprit_columns<'a>() -> ColumnSet<'a, PathCulprit, Context<'a>> {
    ColumnSet::new()
        .key(
            "kind",
            "as in segments, but `waiting` for all waits for a CPU while it could run",
            |p: &PathCulprit, _: &Context<'a>| match p.kind {
                PathKind::Waiting(cause) if cause.is_runnable() => "waiting",
                kind => kind.code(),
            },
        )
        .key("ended_by", "as in segments", |p, _| p.kind.ended_by().map(|e| e.code()))
        .record("task", "the culprit", task_columns(), |p: &PathCulprit, c: &Context<'a>, each| {
            each_task(c, (Some(p.task), p.is_several), each);
        })
        .key("ran_instead", "whether it ran while the path waited for a CPU", |p, _| p.ran_instead)
        .sum("total_ns", "time", |p, _| p.total)
        .sum("count", "number of segments", |p, _| p.count)
        .measure("max_ns", "maximum", |p, c: &Context<'_>| {
            c.table.segment(p.longest).map(PathSegment::nanos)
        })
        .measure("max_start_ns", "start of the longest", |p, c| {
            c.table.segment(p.longest).map(|s| s.from)
        })
}

fn segment_columns<'a>() -> ColumnSet<'a, PathSegment, Context<'a>> {
    ColumnSet::new()
        .measure("start_ns", "begin", |s: &PathSegment, _: &Context<'a>| s.from)
        .measure("end_ns", "end", |s, _| s.to)
        .sum("duration_ns", "time between", |s, _| s.nanos())
        .key(
            "kind",
            "`running`; `preempted`, `woken`, `new`: waiting for a CPU; a cause of a wait (as of \
             `kymo offcpu report`); `unknown`",
            |s, _| s.kind.code(),
        )
        .key(
            "ended_by",
            "of a wait: `timer`, `disk`, `network`, `softirq`, `hardirq`; `unseen`: the wake-up \
             is not recorded; `not-ended`",
            |s, _| s.kind.ended_by().map(|e| e.code()),
        )
        .record("task", "task on the path", task_columns(), |s, c, each| {
            each_task(c, (Some(s.task), false), each);
        })
        .key("cpu", "CPU on which it ran or waited to run", |s, _| s.cpu)
        .measure("depth", "number of wake-ups between it and the task of the path", |s, _| s.depth)
        .record("instead", "task that ran on that CPU instead", task_columns(), |s, c, each| {
            each_task(c, (s.instead, false), each);
        })
        .measure(
            "stack",
            "stack at its end, innermost first: of the wake-up, or where it left its CPU",
            |s, c| {
                let names = s.stack.map_or_else(Vec::new, |s| c.table.stacks.names(s));
                names.into_iter().map(str::to_owned).collect::<Vec<_>>()
            },
        )
        .measure(
            "line",
            "for the 64 longest segments: `file:line` of the innermost user-space function that \
             has one",
            |s, c| c.table.line(s).map(|l| format!("{}:{}", l.file, l.line)),
        )
        .measure("uncertain", "whether events were lost in it, or switches are missing", |s, _| {
            s.is_uncertain()
        })
        .measure("script", "command that shows its events; null if they are not kept", |s, c| {
            c.table.script(s, c.recording)
        })
}

fn columns<'a>() -> ColumnSet<'a, PathTable, Context<'a>> {
    let path = ColumnSet::new()
        .record("task", "task of the path", task_columns(), |p: &CriticalPath, c, each| {
            each_task(c, (Some(p.task), false), each);
        })
        .measure("start_ns", "begin", |p, _: &Context<'a>| p.from)
        .measure("end_ns", "end", |p, _| p.to)
        .measure("left_out_ns", "time omitted at the start because of too many segments", |p, _| {
            p.left_out
        })
        .table(
            "segments",
            "segments that cover the path, in time order",
            segment_columns(),
            |p, _, each| p.segments.iter().for_each(each),
        );
    let spans = ColumnSet::new()
        .inline(delay_columns(false), |s: &SpanStats, _: &Context<'a>| &s.spans)
        .sum("no_end", "starts without an end", |s, _| s.no_end)
        .sum("no_begin", "ends without a start", |s, _| s.no_begin)
        .sum("no_key", "events without the field", |s, _| s.no_key)
        .sum("no_task", "spans with an unknown task", |s, _| s.no_task);
    ColumnSet::new()
        .sum("total_ns", "total time of all paths", |t: &PathTable, _: &Context<'a>| t.total())
        .table(
            "culprits",
            "time by kind and culprit, largest first",
            culprit_columns(),
            |t, _, each| t.culprits().iter().for_each(each),
        )
        .table(
            "paths",
            "one path; with `--span` the paths of the slowest spans, longest first",
            path,
            |t, _, each| t.paths.iter().for_each(each),
        )
        .record("spans", "with `--span`, all spans that ended", spans, |t, _, each| {
            t.spans.iter().for_each(each);
        })
}

/// Definitions of these answers.
pub(crate) fn schemas() -> [AnswerSchema; 1] {
    [AnswerSchema::of("why", "kymo why --json", "", columns())]
}
