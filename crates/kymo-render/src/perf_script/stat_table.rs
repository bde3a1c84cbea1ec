//! Counts of `stat record`, a line for each counter of each reading, as perf script prints them.

use std::io::Write as _;

use kymo_files::perfdata::Entry;
use kymo_files::perfdata::stat::{StatRecord, StatValue};

/// Counters of one reading, at most; others are printed without their time.
const MOST: usize = 1 << 20;

/// The reading that is not yet complete.
#[derive(Default)]
pub(super) struct StatTable {
    threads: Vec<i64>,
    values: Vec<(StatValue, String)>,
    has_header: bool,
}

impl StatTable {
    /// Takes a record of counts; the one that ends a reading prints it.
    pub(super) fn take(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        match StatRecord::parse(&entry.raw) {
            Some(Ok(StatRecord::Threads(threads))) => {
                self.threads = threads.into_iter().map(|(tid, _)| tid).collect();
            }
            Some(Ok(StatRecord::Value(value))) if self.values.len() < MOST => {
                let event = entry.events.iter().find(|event| event.ids.contains(&value.id));
                let name = event.map_or("unknown event", |event| &*event.name);
                self.values.push((value, name.to_owned()));
            }
            Some(Ok(StatRecord::Round(round))) => self.print(round.time, out),
            _ => {}
        }
    }

    fn print(&mut self, time: u64, out: &mut Vec<u8>) {
        if !self.has_header && !self.values.is_empty() {
            self.has_header = true;
            line(out, ["CPU", "THREAD", "VAL", "ENA", "RUN", "TIME", "EVENT"]);
        }
        for (value, name) in self.values.drain(..) {
            let thread = usize::try_from(value.thread).ok().and_then(|at| self.threads.get(at));
            let cells = [
                &*value.cpu.to_string(),
                &thread.copied().unwrap_or(-1).to_string(),
                &value.value.to_string(),
                &value.enabled.to_string(),
                &value.running.to_string(),
                &time.to_string(),
                &name,
            ];
            line(out, cells);
        }
    }
}

fn line(out: &mut Vec<u8>, [cpu, thread, value, enabled, running, time, event]: [&str; 7]) {
    // Writing to memory cannot fail.
    let _ = writeln!(
        out,
        "{cpu:>3} {thread:>8} {value:>15} {enabled:>15} {running:>15} {time:>15} {event}"
    );
}
