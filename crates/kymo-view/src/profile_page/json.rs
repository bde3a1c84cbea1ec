//! The page as one JSON object (docs/json.md).

use std::time::Duration;

use serde_json::{Value, json};

use super::{ProfilePage, ThreadShare};
use crate::Ledger;

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

fn thread(t: &ThreadShare) -> Value {
    json!({
        "comm": t.name,
        "pid": t.pid,
        "tid": t.tid,
        "samples_percent": t.share,
        "on_cpu_ns": t.on_cpu.map(nanos),
        "blocked_ns": t.blocked.map(nanos),
        "waiting_ns": t.ready.map(nanos),
        "hottest": (!t.hottest.is_empty()).then_some(&t.hottest),
        "waits_for": t.waits_for,
    })
}

impl ProfilePage {
    /// All that the page says.
    pub fn to_json(&self, ledger: &Ledger) -> Value {
        let functions = self.functions.iter().map(|f| {
            json!({
                "name": f.name,
                "object": f.object,
                "self_percent": f.own,
                "total_percent": f.total,
            })
        });
        let path = self
            .path
            .iter()
            .map(|s| json!({"depth": s.depth, "share_percent": s.share, "name": s.name}));
        let tree = self.tree.iter().map(|s| {
            json!({
                "depth": s.depth,
                "on_cpu_ns": nanos(s.on),
                "off_cpu_ns": nanos(s.off),
                "name": s.name,
            })
        });
        let programs = self.programs.iter().map(|p| {
            json!({
                "comm": p.name,
                "pid": p.pid,
                "processes": p.processes,
                "threads": p.threads,
                "on_cpu_ns": nanos(p.on_cpu),
                "blocked_ns": nanos(p.blocked),
                "waiting_ns": nanos(p.ready),
            })
        });
        let next = self.next.iter().map(|n| json!({"what": n.what, "command": n.command}));
        let accounted = !self.attached;
        json!({
            "command": self.command,
            "elapsed_ns": nanos(self.elapsed),
            "on_cpu_ns": self.on_cpu.map(nanos),
            "waiting_ns": self.ready.map(nanos),
            "blocked_ns": self.blocked.map(nanos),
            "user_ns": accounted.then(|| nanos(self.user)),
            "system_ns": accounted.then(|| nanos(self.system)),
            "minor_faults": accounted.then_some(self.minor_faults),
            "major_faults": accounted.then_some(self.major_faults),
            "voluntary_switches": accounted.then_some(self.voluntary_switches),
            "involuntary_switches": accounted.then_some(self.involuntary_switches),
            "in_short": self.in_short(),
            "samples": self.samples,
            "event": (!self.event.is_empty()).then_some(&self.event),
            "times": self.waits.as_ref().map(|w| w.times_json()),
            "waits": self.waits.as_ref().map(|w| w.pairs_json()),
            "tree": tree.collect::<Vec<Value>>(),
            "functions": functions.collect::<Vec<Value>>(),
            "path": path.collect::<Vec<Value>>(),
            "programs": programs.collect::<Vec<Value>>(),
            "threads": self.threads.iter().map(thread).collect::<Vec<Value>>(),
            "next": next.collect::<Vec<Value>>(),
            "ledger": ledger.to_json(),
        })
    }
}
