//! The start of a line as perf script lays it out: task, CPU, time.
//!
//! Most of it repeats from line to line, so that it is copied and not made anew.

use kymo_events::EventHead;
use kymo_format::LineWriter;
use kymo_model::{Misc, RecordKind, UntrustedText};

use super::fields::FieldSet;
use super::sample_details;
use crate::number::{self, SecondText};
use crate::start_cache::StartCache;

/// Layout of the start of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineStyle {
    /// Names of tasks are not aligned, as perf does where call chains follow.
    pub ragged: bool,
    /// Times in nanoseconds.
    pub ns: bool,
    /// Event that times are counted from.
    pub since: TimeOrigin,
}

/// Event that times are counted from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeOrigin {
    /// The clock's own beginning.
    #[default]
    Epoch,
    /// The first event.
    First,
    /// The event before.
    Last,
}

/// Starts of lines, remembered: a task on a CPU writes many.
#[derive(Default)]
pub(crate) struct LineStarts {
    starts: StartCache<StartKey>,
    second: SecondText,
    /// The event that times are counted from.
    origin: Option<u64>,
}

/// Fields and style, process, thread, CPU.
type StartKey = (u32, u32, u32, u32);

/// Key of a start, and its slot.
#[inline]
fn place(fields: FieldSet, style: LineStyle, s: &EventHead<'_>) -> (StartKey, usize) {
    // The cpu itself never has its top bit set but as "none", which `Option` expresses, too.
    let cpu = s.cpu.unwrap_or(u32::MAX - 1);
    let key = (fields.0 << 1 | u32::from(style.ragged), s.pid, s.tid, cpu);
    (key, (s.tid ^ cpu.wrapping_mul(37)) as usize)
}

impl LineStarts {
    /// Tasks may have other names from now on.
    pub(crate) fn forget(&mut self) {
        self.starts.forget(|_| true);
    }

    /// Writes task, CPU and time, and the letters of `misc` for the kind of record and the
    /// mode it was made in; `comm` is asked for the task's name when it is not known.
    #[inline]
    pub(crate) fn write<'c>(
        &mut self,
        fields: FieldSet,
        style: LineStyle,
        (s, misc): (&EventHead<'_>, (RecordKind, Misc)),
        comm: impl FnOnce() -> &'c [u8],
        out: &mut Vec<u8>,
    ) {
        let (key, at) = place(fields, style, s);
        match self.starts.get(at, |k| *k == key) {
            Some(start) => number::some_of(out, &start.text, start.len),
            None => {
                let from = out.len();
                who(fields, style, &EventHead { comm: comm(), ..*s }, out);
                self.starts.put(at, key, out.get(from..).unwrap_or(&[]));
            }
        }
        if fields.has(FieldSet::MISC) {
            sample_details::misc(misc.0, misc.1, out);
        }
        if fields.has(FieldSet::TIME) {
            let mut time = s.time.unwrap_or(0);
            if style.since != TimeOrigin::Epoch {
                time = self.since(style.since, time);
            }
            if style.ns {
                number::nanos(out, time);
                out.extend_from_slice(b": ");
            } else {
                self.second.write(out, time);
            }
        }
    }
}

impl LineStarts {
    /// [`write`](LineStarts::write) for the usual fields: task, CPU and time in microseconds.
    #[inline]
    pub(crate) fn usual<'c>(
        &mut self,
        s: &EventHead<'_>,
        comm: impl FnOnce() -> &'c [u8],
        line: &mut LineWriter<'_>,
    ) {
        let (key, at) = place(FieldSet::COMMON.with(FieldSet::TRACE), LineStyle::default(), s);
        match self.starts.get(at, |k| *k == key) {
            Some(start) => line.write_prefix(&start.text, start.len),
            None => {
                let head = EventHead { comm: comm(), ..*s };
                line.buffered(|out| {
                    who(FieldSet::COMMON, LineStyle::default(), &head, out);
                    self.starts.put(at, key, out);
                });
            }
        }
        let (text, len, micros) = self.second.of(s.time.unwrap_or(0));
        line.write_prefix(text, len);
        line.micros(micros);
    }

    fn since(&mut self, since: TimeOrigin, time: u64) -> u64 {
        let origin = *self.origin.get_or_insert(time);
        if since == TimeOrigin::Last {
            self.origin = Some(time);
        }
        time.saturating_sub(origin)
    }
}

/// Task and CPU.
pub(crate) fn who(fields: FieldSet, style: LineStyle, s: &EventHead<'_>, out: &mut Vec<u8>) {
    if fields.has(FieldSet::COMM) {
        let comm = UntrustedText::new(s.comm).escaped();
        if !style.ragged {
            number::pad(out, 16usize.saturating_sub(comm.len()));
        }
        out.extend_from_slice(&comm);
        out.push(b' ');
    }
    // The kernel's -1 is printed as such.
    let id = |n: u32, width: usize, out: &mut Vec<u8>| {
        if n == u32::MAX {
            number::pad(out, width.saturating_sub(2));
            out.extend_from_slice(b"-1");
        } else {
            number::decimal(out, u64::from(n), width);
        }
    };
    match (fields.has(FieldSet::PID), fields.has(FieldSet::TID)) {
        (true, true) => {
            id(s.pid, 5, out);
            out.push(b'/');
            let before = out.len();
            id(s.tid, 0, out);
            let written = out.len() - before;
            number::pad(out, 5usize.saturating_sub(written));
            out.push(b' ');
        }
        (true, false) | (false, true) => {
            id(if fields.has(FieldSet::PID) { s.pid } else { s.tid }, 5, out);
            out.push(b' ');
        }
        (false, false) => {}
    }
    if fields.has(FieldSet::CPU) {
        out.push(b'[');
        match s.cpu {
            Some(cpu) if cpu < 1000 => number::zeros(out, u64::from(cpu), 3),
            Some(u32::MAX) => out.extend_from_slice(b"-01"),
            cpu => number::decimal(out, u64::from(cpu.unwrap_or(0)), 3),
        }
        out.extend_from_slice(b"] ");
    }
}
