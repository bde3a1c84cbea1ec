//! `kymo script` of a trace.dat beside `trace-cmd report`, of the same file,
//! recorded once by kymo and kept.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use super::{Bench, Row, megabytes, seconds};
use crate::bench::Effort;
use crate::bench::measure::{cost, interleaved, output};

/// A round trip of `perf bench sched pipe` enters and exits two calls per side.
const EVENTS_PER_ROUND_TRIP: u64 = 8;

impl Bench<'_> {
    /// Text of every event to nowhere, and whether memory grows with the file.
    pub(crate) fn script_trace(&self) -> anyhow::Result<Vec<Row>> {
        let events = if self.effort == Effort::Full { 2_000_000 } else { 200_000 };
        self.trace("trace.dat", events)?;
        self.trace("trace-half.dat", events / 2)?;
        let recorded = self.events("trace.dat")?;
        if recorded < events {
            bail!("trace.dat has {recorded} events, wanted {events}");
        }
        // The plugins would word some events otherwise; without them trace-cmd is no slower.
        let theirs = || {
            let mut command = Command::new("trace-cmd");
            command.args(["report", "-N", "trace.dat"]).current_dir(&self.inputs.dir);
            command
        };
        let ours = || self.kymo_with(&["script", "trace.dat"]);
        let costs = interleaved(self.rounds(3), &[&theirs, &ours])?;
        let [trace_cmd, kymo] = costs.as_slice() else { bail!("two commands give two costs") };
        let half = cost(self.kymo_with(&["script", "trace-half.dat"]))?;
        let (slow, fast) = (trace_cmd.time.as_secs_f64(), kymo.time.as_secs_f64());
        let rate = |time: f64| format!("{:.2} M/s", recorded as f64 / time / 1e6);
        Ok(vec![
            Row {
                what: format!("`script` of a trace.dat, {recorded} events"),
                perf: format!("trace-cmd report: {}", seconds(slow)),
                kymo: seconds(fast),
                verdict: format!("{:.1}× as fast (goal: 20×, least 8×)", slow / fast),
            },
            Row {
                what: "the same, events a second".into(),
                perf: rate(slow),
                kymo: rate(fast),
                verdict: String::new(),
            },
            Row {
                what: "the same, peak memory".into(),
                perf: megabytes(trace_cmd.peak),
                kymo: megabytes(kymo.peak),
                verdict: format!(
                    "twice the file: {:+.1} MB (goal: does not grow)",
                    (kymo.peak as f64 - half.peak as f64) / 1e6
                ),
            },
        ])
    }

    /// A recording of system calls through the ftrace ring, unless it is there.
    fn trace(&self, name: &str, events: u64) -> anyhow::Result<()> {
        if self.inputs.dir.join(name).exists() && self.events(name).is_ok_and(|n| n >= events) {
            return Ok(());
        }
        let trips = (events * 11 / 10 / EVENTS_PER_ROUND_TRIP).to_string();
        let what = ["trace", "--force", "-o", name, "-m", "64M", "-e", "raw_syscalls:*", "--"];
        let load = ["perf", "bench", "-f", "simple", "sched", "pipe", "-l", &trips];
        output(self.kymo_with(&[&what[..], &load].concat())).map(drop)
    }

    /// How many events a recording has, as trace-cmd counts them.
    fn events(&self, name: &str) -> anyhow::Result<u64> {
        let path = self.inputs.dir.join(name);
        let noted = path.with_extension("events");
        let bytes = std::fs::metadata(&path).with_context(|| path.display().to_string())?.len();
        if let Some(n) = remembered(&noted, bytes) {
            return Ok(n);
        }
        let mut trace_cmd = Command::new("trace-cmd");
        trace_cmd.args(["report", "-N"]).arg(&path);
        let n = output(trace_cmd)?.lines().filter(|l| l.contains("] ")).count() as u64;
        std::fs::write(&noted, format!("{bytes} {n}\n"))
            .with_context(|| noted.display().to_string())?;
        Ok(n)
    }
}

/// Counting takes trace-cmd long, so the number is kept beside the file's size.
fn remembered(path: &Path, bytes: u64) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let (size, n) = text.trim().split_once(' ')?;
    (size.parse() == Ok(bytes)).then(|| n.parse().ok())?
}
