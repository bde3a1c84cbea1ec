//! The start of a line as perf script lays it out: task, CPU, time.
//!
//! Most of it repeats from line to line, so that it is copied and not made anew.

use kymo_format::Pen;
use kymo_model::{Misc, RecordKind};

use super::extra;
use super::fields::Fields;
use super::number;

/// Who, where and when.
#[derive(Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) comm: &'a [u8],
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) cpu: Option<u32>,
    pub(super) time: Option<u64>,
    /// What the record is and where it was made, for the letters of `misc`.
    pub(super) misc: (RecordKind, Misc),
}

/// How the start of a line is laid out.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Style {
    /// Names of tasks are not aligned, as perf does where call chains follow.
    pub(super) ragged: bool,
    /// Times in nanoseconds.
    pub(super) ns: bool,
    /// What times are counted from.
    pub(super) since: Since,
}

/// What times are counted from.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Since {
    /// The clock's own beginning.
    #[default]
    Epoch,
    /// The first event.
    First,
    /// The event before.
    Last,
}

/// Starts of lines, remembered: a task on a CPU writes many.
pub(super) struct Starts {
    slots: Vec<Slot>,
    second: Second,
    /// The event that times are counted from.
    origin: Option<u64>,
}

/// Slots, a power of two.
const SLOTS: usize = 128;
/// Bytes of a start that is remembered.
const LONG: usize = 64;

/// Fields and style, task, CPU; the first is never 0 for a filled slot.
type Key = (u32, u32, u32, u32);

/// What a start is remembered by, and where.
#[inline]
fn place(fields: Fields, style: Style, s: &Head<'_>) -> (Key, usize) {
    // The cpu itself never has its top bit set but as "none", which `Option` tells too.
    let cpu = s.cpu.unwrap_or(u32::MAX - 1);
    let key = (fields.0 << 2 | u32::from(style.ragged) << 1 | 1, s.pid, s.tid, cpu);
    (key, (s.tid ^ cpu.wrapping_mul(37)) as usize % SLOTS)
}

#[derive(Clone)]
struct Slot {
    key: Key,
    len: usize,
    text: [u8; LONG],
}

/// `seconds.` of the second that lines are in.
#[derive(Default)]
pub(super) struct Second {
    begin: u64,
    /// 0 before the first second.
    len: usize,
    /// At most 11 digits: 2^64 nanoseconds are 584 years.
    text: [u8; 16],
}

impl Default for Starts {
    fn default() -> Self {
        let empty = Slot { key: (0, 0, 0, 0), len: 0, text: [0; LONG] };
        Starts { slots: vec![empty; SLOTS], second: Second::default(), origin: None }
    }
}

impl Starts {
    /// Tasks may have other names from now on.
    pub(super) fn forget(&mut self) {
        self.slots.iter_mut().for_each(|s| s.key.0 = 0);
    }

    /// Task, CPU and time; `comm` is asked for the task's name when it is not known.
    #[inline]
    pub(super) fn write<'c>(
        &mut self,
        fields: Fields,
        style: Style,
        s: &Head<'_>,
        comm: impl FnOnce() -> &'c [u8],
        out: &mut Vec<u8>,
    ) {
        let (key, at) = place(fields, style, s);
        match self.slots.get(at) {
            Some(slot) if slot.key == key => number::some_of(out, &slot.text, slot.len),
            _ => {
                let from = out.len();
                who(fields, style, &Head { comm: comm(), ..*s }, out);
                self.remember(at, key, out.get(from..).unwrap_or(&[]));
            }
        }
        if fields.has(Fields::MISC) {
            extra::misc(s.misc.0, s.misc.1, out);
        }
        if fields.has(Fields::TIME) {
            let mut time = s.time.unwrap_or(0);
            if style.since != Since::Epoch {
                time = self.since(style.since, time);
            }
            if style.ns {
                number::time(out, time, true);
                out.extend_from_slice(b": ");
            } else {
                self.second.micros(out, time);
            }
        }
    }
}

impl Starts {
    /// The same as [`write`](Starts::write) for what is usually printed: task, CPU and time
    /// in microseconds.
    #[inline]
    pub(super) fn usual<'c>(
        &mut self,
        s: &Head<'_>,
        comm: impl FnOnce() -> &'c [u8],
        pen: &mut Pen<'_>,
    ) {
        let (key, slot) = place(Fields::COMMON.with(Fields::TRACE), Style::default(), s);
        match self.slots.get(slot) {
            Some(slot) if slot.key == key => pen.some(&slot.text, slot.len),
            _ => {
                let head = Head { comm: comm(), ..*s };
                pen.apart(|out| {
                    who(Fields::COMMON, Style::default(), &head, out);
                    self.remember(slot, key, out);
                });
            }
        }
        let (text, len, micros) = self.second.of(s.time.unwrap_or(0));
        pen.some(text, len);
        pen.micros(micros);
    }

    fn remember(&mut self, slot: usize, key: Key, text: &[u8]) {
        if let Some(slot) = self.slots.get_mut(slot)
            && let Some(place) = slot.text.get_mut(..text.len())
        {
            place.copy_from_slice(text);
            (slot.key, slot.len) = (key, text.len());
        }
    }

    fn since(&mut self, since: Since, time: u64) -> u64 {
        let origin = *self.origin.get_or_insert(time);
        if since == Since::Last {
            self.origin = Some(time);
        }
        time.saturating_sub(origin)
    }
}

impl Second {
    /// The text of a time's second and the microseconds behind it.
    #[inline]
    pub(super) fn of(&mut self, time: u64) -> (&[u8; 16], usize, u32) {
        let mut rest = time.wrapping_sub(self.begin);
        if rest >= SECOND || self.len == 0 {
            rest = self.enter(time);
        }
        (&self.text, self.len, (rest / 1000) as u32)
    }

    #[inline]
    fn micros(&mut self, out: &mut Vec<u8>, time: u64) {
        let (text, len, micros) = self.of(time);
        number::some_of(out, text, len);
        let [a, b, c, d, e, f] = number::six(micros);
        out.extend_from_slice(&[a, b, c, d, e, f, b':', b' ']);
    }

    /// Another second begins; nanoseconds since.
    #[cold]
    fn enter(&mut self, time: u64) -> u64 {
        let mut text = Vec::with_capacity(16);
        number::decimal(&mut text, time / SECOND, 5);
        text.push(b'.');
        self.len = text.len();
        self.text[..text.len()].copy_from_slice(&text);
        self.begin = time - time % SECOND;
        time % SECOND
    }
}

const SECOND: u64 = 1_000_000_000;

/// Task and CPU.
pub(super) fn who(fields: Fields, style: Style, s: &Head<'_>, out: &mut Vec<u8>) {
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
}
