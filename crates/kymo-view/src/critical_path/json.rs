//! Critical paths as one JSON object (docs/json.md).

use std::io::{self, Write};

use kymo_analysis::critical_path::{
    CriticalPath, PathCulprit, PathKind, PathSegment, PathTaskId, SpanStats,
};
use serde_json::{Value, json};

use super::PathView;

impl PathView<'_> {
    /// Writes all as one object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let table = self.table;
        let culprits: Vec<Value> = table.culprits().iter().map(|c| self.culprit_json(c)).collect();
        let paths: Vec<Value> = table.paths.iter().map(|p| self.path_json(p)).collect();
        let page = json!({
            "total_ns": table.total(),
            "culprits": culprits,
            "paths": paths,
            "spans": table.spans.as_ref().map(spans_json),
        });
        writeln!(out, "{page:#}")
    }

    fn task_json(&self, id: PathTaskId) -> Value {
        let Some(task) = self.table.task(id) else { return Value::Null };
        json!({
            "comm": String::from_utf8_lossy(&task.comm),
            "tid": task.tid,
            "pid": task.pid,
        })
    }

    fn culprit_json(&self, row: &PathCulprit) -> Value {
        let longest = self.table.segment(row.longest);
        let mut task = self.task_json(row.task);
        if let Some(task) = task.as_object_mut().filter(|_| row.is_several) {
            ["tid", "pid"].iter().for_each(|key| task[*key] = Value::Null);
        }
        let is_waiting = matches!(row.kind, PathKind::Waiting(_));
        json!({
            "kind": if is_waiting { "waiting" } else { row.kind.code() },
            "ended_by": row.kind.ended_by().map(|e| e.code()),
            "ran_instead": row.ran_instead,
            "task": task,
            "total_ns": row.total,
            "count": row.count,
            "max_ns": longest.map(PathSegment::nanos),
            "max_start_ns": longest.map(|s| s.from),
        })
    }

    fn path_json(&self, path: &CriticalPath) -> Value {
        let segments: Vec<Value> = path.segments.iter().map(|s| self.segment_json(s)).collect();
        json!({
            "task": self.task_json(path.task),
            "start_ns": path.from,
            "end_ns": path.to,
            "left_out_ns": path.left_out,
            "segments": segments,
        })
    }

    fn segment_json(&self, s: &PathSegment) -> Value {
        json!({
            "start_ns": s.from,
            "end_ns": s.to,
            "duration_ns": s.nanos(),
            "kind": s.kind.code(),
            "ended_by": s.kind.ended_by().map(|e| e.code()),
            "task": self.task_json(s.task),
            "cpu": s.cpu,
            "depth": s.depth,
            "instead": s.instead.map(|i| self.task_json(i)),
            "stack": self.names(s.stack),
            "line": self.table.line(s).map(|l| format!("{}:{}", l.file, l.line)),
            "uncertain": s.is_uncertain(),
            "script": self.script(s),
        })
    }
}

fn spans_json(spans: &SpanStats) -> Value {
    let max = spans.spans.max;
    let quantile = |share| {
        let upper = spans.spans.histogram.quantile(share)?;
        Some(max.map_or(upper, |m| upper.min(m.0)))
    };
    json!({
        "count": spans.spans.count,
        "total_ns": spans.spans.total,
        "p50_ns": quantile(0.5),
        "p99_ns": quantile(0.99),
        "max_ns": max.map(|m| m.0),
        "max_start_ns": max.map(|m| m.1),
        "no_end": spans.no_end,
        "no_begin": spans.no_begin,
        "no_key": spans.no_key,
        "no_task": spans.no_task,
    })
}
