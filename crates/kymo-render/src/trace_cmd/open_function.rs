//! Functions of the function-graph tracer in text: those that begin, and leaves, whose entry
//! and exit are one line. Of events that come one by one the entry waits for the event after it.

use std::time::{Duration, Instant};

use kymo_events::trace_dat::{GraphEntry, GraphEvent, write_duration};
use kymo_model::Endian;

use crate::number;

/// An entry is shown by then, whether its function has ended or not.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A function that begins, whose line is not written yet.
pub(crate) struct OpenFunction {
    entry: GraphEntry,
    since: Instant,
    /// Its line up to the duration.
    start: Vec<u8>,
    depth: usize,
    name: Vec<u8>,
}

impl OpenFunction {
    pub(super) fn new(
        entry: GraphEntry,
        start: Vec<u8>,
        (depth, name): (usize, Vec<u8>),
    ) -> OpenFunction {
        OpenFunction { entry, since: Instant::now(), start, depth, name }
    }

    /// Duration of the function, in ns, if the event after it is its exit.
    pub(crate) fn duration(
        &self,
        graph: &GraphEvent,
        event: (i32, &[u8]),
        endian: Endian,
    ) -> Option<u64> {
        self.entry.duration(graph, event, endian)
    }

    /// Whether it has waited for the event after it long enough.
    pub(crate) fn is_overdue(&self) -> bool {
        self.since.elapsed() >= LONGEST_WAIT
    }

    /// Appends its line; `leaf` is the duration of a function that has ended.
    pub(crate) fn write(&self, leaf: Option<u64>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.start);
        write_function(leaf, self.depth, |out| out.extend_from_slice(&self.name), out);
        out.push(b'\n');
    }
}

/// Appends a function that begins, or a leaf with its duration.
pub(super) fn write_function(
    leaf: Option<u64>,
    depth: usize,
    name: impl FnOnce(&mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    write_duration(leaf, out);
    number::pad(out, 2 * depth);
    name(out);
    out.extend_from_slice(if leaf.is_some() { b"();" } else { b"() {" });
}
