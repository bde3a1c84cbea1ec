//! Waits as one JSON object (docs/json.md).

use std::io::{self, Write};

use kymo_analysis::offcpu::{CauseStats, OffCpuCause, OffCpuRow, StackNode, WakerId};
use serde_json::{Value, json};

use super::OffCpuView;

impl OffCpuView<'_> {
    /// Writes all as one object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let table = &*self.table;
        let causes = table.causes.iter().filter(|(_, c)| !c.is_empty());
        let causes: Vec<Value> = causes.map(|(cause, stats)| cause_json(*cause, stats)).collect();
        let stacks: Vec<Value> = table
            .cells
            .iter()
            .map(|((cause, stack, waker), cell)| {
                json!({
                    "cause": cause.code(),
                    "stack": self.names(*stack),
                    "waker": self.waker_json(*waker),
                    "count": cell.count,
                    "total_ns": cell.total,
                    "max_ns": cell.max,
                })
            })
            .collect();
        let mut total = row_json(&table.total);
        if let Some(total) = total.as_object_mut() {
            ["comm", "tid", "pid"].iter().for_each(|key| _ = total.remove(*key));
        }
        let longest = table.longest.first().map(|l| {
            json!({
                "cause": l.cause.code(),
                "comm": String::from_utf8_lossy(&l.comm),
                "tid": l.tid,
                "start_ns": l.from,
                "end_ns": l.to,
            })
        });
        let span = table.read.span;
        let page = json!({
            "causes": causes,
            "stacks": stacks,
            "tasks": table.rows.iter().map(row_json).collect::<Vec<_>>(),
            "total": total,
            "longest": longest,
            "no_begin": table.no_begin,
            "first_ns": span.map(|s| s.0),
            "last_ns": span.map(|s| s.1),
        });
        writeln!(out, "{page:#}")
    }

    fn names(&self, stack: Option<StackNode>) -> Vec<&str> {
        stack.map_or_else(Vec::new, |s| self.table.stacks.names(s))
    }

    fn waker_json(&self, id: Option<WakerId>) -> Value {
        let Some(waker) = id.and_then(|id| self.table.waker(id)) else { return Value::Null };
        json!({
            "comm": String::from_utf8_lossy(&waker.comm),
            "context": waker.context.code(),
            "stack": self.names(waker.stack),
        })
    }
}

fn cause_json(cause: OffCpuCause, stats: &CauseStats) -> Value {
    let max = stats.waits.max.map(|m| m.0);
    let quantile = |share| stats.waits.histogram.quantile(share).map(|q| q.min(max.unwrap_or(q)));
    json!({
        "cause": cause.code(),
        "state": if cause.is_runnable() { "waiting" } else { "blocked" },
        "count": stats.waits.count,
        "total_ns": stats.waits.total,
        "p50_ns": quantile(0.5),
        "p99_ns": quantile(0.99),
        "max_ns": max,
        "max_start_ns": stats.waits.max.map(|m| m.1),
        "uncertain": stats.uncertain.0,
        "uncertain_ns": stats.uncertain.1,
        "not_ended": stats.open.0,
        "not_ended_ns": stats.open.1,
    })
}

fn row_json(row: &OffCpuRow) -> Value {
    json!({
        "comm": String::from_utf8_lossy(&row.comm),
        "tid": (row.tasks == 1).then_some(row.tid),
        "pid": row.pid,
        "tasks": row.tasks,
        "wall_ns": row.wall,
        "running_ns": row.running,
        "waiting_ns": row.waiting,
        "blocked_ns": row.blocked,
        "uncertain_ns": row.uncertain,
        "missing_ns": row.missing,
    })
}
