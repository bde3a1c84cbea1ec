//! The answer of `kymo why` as tables.

use kymo_table::units::{Seconds, TimeUnits};
use kymo_table::{Answer, AnswerSchema, ColumnSet, Name};

use super::{
    CriticalPath, PathCulprit, PathKind, PathSegment, PathTable, PathTask, PathTaskId, SpanStats,
};
use crate::tasks::delay_columns;

/// What cells take besides the row.
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
        .key("tid", "thread; null where several of the name are meant", |(t, several), _| {
            (!several).then_some(t.tid)
        })
        .key("pid", "process, where known", |(t, several), _| t.pid.filter(|_| !several))
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
            "as of segments, but `waiting` for all waits for a CPU",
            |p: &PathCulprit, _: &Context<'a>| match p.kind {
                PathKind::Waiting(_) => "waiting",
                kind => kind.code(),
            },
        )
        .key("ended_by", "as of segments", |p, _| p.kind.ended_by().map(|e| e.code()))
        .record("task", "the culprit", task_columns(), |p: &PathCulprit, c: &Context<'a>, each| {
            each_task(c, (Some(p.task), p.is_several), each);
        })
        .key("ran_instead", "whether it ran while the path waited for a CPU", |p, _| p.ran_instead)
        .sum("total_ns", "time", |p, _| p.total)
        .sum("count", "number of segments", |p, _| p.count)
        .measure("max_ns", "the longest", |p, c: &Context<'_>| {
            c.table.segment(p.longest).map(PathSegment::nanos)
        })
        .measure("max_start_ns", "when the longest began", |p, c| {
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
            "of a wait: `timer`, `disk`, `network`, `softirq`, `hardirq`; `unseen`: its wake-up is \
             not recorded; `not-ended`",
            |s, _| s.kind.ended_by().map(|e| e.code()),
        )
        .record("task", "task whose time it is", task_columns(), |s, c, each| {
            each_task(c, (Some(s.task), false), each);
        })
        .key("cpu", "where it ran, or waited to run", |s, _| s.cpu)
        .measure("depth", "wake-ups between it and the task of the path", |s, _| s.depth)
        .record("instead", "task that ran there while it waited", task_columns(), |s, c, each| {
            each_task(c, (s.instead, false), each);
        })
        .measure(
            "stack",
            "names, innermost first, of its end: the wake-up of the one that waited, or where it \
             left its CPU",
            |s, c| {
                let names = s.stack.map_or_else(Vec::new, |s| c.table.stacks.names(s));
                names.into_iter().map(str::to_owned).collect::<Vec<_>>()
            },
        )
        .measure(
            "line",
            "`file:line` of the innermost of these functions of a program that has one, of the 64 \
             longest segments",
            |s, c| c.table.line(s).map(|l| format!("{}:{}", l.file, l.line)),
        )
        .measure("uncertain", "events were lost within it, or switches are missing", |s, _| {
            s.is_uncertain()
        })
        .measure(
            "script",
            "the command that shows its events; null where they are not kept",
            |s, c| c.table.script(s, c.recording),
        )
}

fn columns<'a>() -> ColumnSet<'a, PathTable, Context<'a>> {
    let path = ColumnSet::new()
        .record("task", "task of the path", task_columns(), |p: &CriticalPath, c, each| {
            each_task(c, (Some(p.task), false), each);
        })
        .measure("start_ns", "begin", |p, _: &Context<'a>| p.from)
        .measure("end_ns", "end", |p, _| p.to)
        .measure("left_out_ns", "time at the begin, where there are too many segments", |p, _| {
            p.left_out
        })
        .table(
            "segments",
            "segments, which cover the path in the order of time",
            segment_columns(),
            |p, _, each| p.segments.iter().for_each(each),
        );
    let spans = ColumnSet::new()
        .inline(delay_columns(false), |s: &SpanStats, _: &Context<'a>| &s.spans)
        .sum("no_end", "begins without an end", |s, _| s.no_end)
        .sum("no_begin", "ends without a begin", |s, _| s.no_begin)
        .sum("no_key", "events without the field", |s, _| s.no_key)
        .sum("no_task", "spans whose task is not known", |s, _| s.no_task);
    ColumnSet::new()
        .sum("total_ns", "all paths together", |t: &PathTable, _: &Context<'a>| t.total())
        .table(
            "culprits",
            "time by kind and culprit, the most first",
            culprit_columns(),
            |t, _, each| t.culprits().iter().for_each(each),
        )
        .table(
            "paths",
            "one path; with `--span` those of the slowest spans, the longest first",
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
