//! The start of a line as perf script lays it out: task, CPU, time.

use super::fields::Fields;
use super::number;

/// Who, where and when.
pub(super) struct Head<'a> {
    pub(super) comm: &'a [u8],
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) cpu: Option<u32>,
    pub(super) time: Option<u64>,
}

/// How the start of a line is laid out.
#[derive(Clone, Copy, Default)]
pub(super) struct Style {
    /// Names of tasks are not aligned, as perf does where call chains follow.
    pub(super) ragged: bool,
    /// Times in nanoseconds.
    pub(super) ns: bool,
}

/// Task, CPU and time.
#[inline]
pub(super) fn start(fields: Fields, style: Style, s: &Head<'_>, out: &mut Vec<u8>) {
    if fields.has(Fields::COMM) {
        if !style.ragged {
            number::pad(out, 16usize.saturating_sub(s.comm.len()));
        }
        out.extend_from_slice(s.comm);
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
    match (fields.has(Fields::PID), fields.has(Fields::TID)) {
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
            id(if fields.has(Fields::PID) { s.pid } else { s.tid }, 5, out);
            out.push(b' ');
        }
        (false, false) => {}
    }
    if fields.has(Fields::CPU) {
        out.push(b'[');
        match s.cpu {
            Some(cpu) if cpu < 1000 => number::zeros(out, u64::from(cpu), 3),
            Some(u32::MAX) => out.extend_from_slice(b"-01"),
            cpu => number::decimal(out, u64::from(cpu.unwrap_or(0)), 3),
        }
        out.extend_from_slice(b"] ");
    }
    if fields.has(Fields::TIME) {
        number::time(out, s.time.unwrap_or(0), style.ns);
        out.extend_from_slice(b": ");
    }
}
