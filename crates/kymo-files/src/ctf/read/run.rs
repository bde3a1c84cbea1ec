//! Events that come one after the other in one stream, found and handed out together.
//!
//! Most events are plain: a short header, and a body that takes the same number of bytes
//! in every event of its kind. To pass over one costs little more than its time.

use super::clock::rebuild;
use super::event::Packed;
use super::packet::Quick;
use super::stream::Stream;
use super::trace::{StreamClass, Trace};
use crate::merge_heap::MergeHead;

/// The most events of a run.
const MOST: usize = 1024;

/// An event of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// Its time in nanoseconds, as [`Ctf::times`](super::Ctf::times) counts.
    pub time: u64,
    /// Its kind, for [`Ctf::class`](super::Ctf::class).
    pub class: u32,
    /// Its body in the bytes of the run.
    pub(crate) at: u32,
    pub(crate) len: u32,
}

/// Events of one stream, in their order, between which none was lost. Those of other
/// streams come before or after all of them.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Their stream, from 0.
    pub stream: u32,
    /// The trace of the stream, by place.
    pub trace: u32,
    /// The CPU, where packets say it.
    pub cpu: Option<u32>,
    /// The events; at least one.
    pub events: &'a [Short],
    /// Bytes of their packet that are in memory.
    bytes: &'a [u8],
}

impl<'a> Run<'a> {
    pub(crate) fn new(stream: &'a Stream, number: usize, events: &'a [Short]) -> Run<'a> {
        Run {
            stream: number as u32,
            trace: stream.trace as u32,
            cpu: stream.cpu(),
            events,
            bytes: stream.body().0,
        }
    }

    /// Copies the bodies after other bytes, which must stay below 4 GiB, and reports the position
    /// of each.
    #[inline]
    pub fn pack(&self, out: &mut Vec<u8>, mut each: impl FnMut(&Short, Packed)) {
        let (Some(first), Some(last)) = (self.events.first(), self.events.last()) else { return };
        let from = out.len() as u32;
        let all = first.at as usize..last.at as usize + last.len as usize;
        out.extend_from_slice(self.bytes.get(all).unwrap_or(&[]));
        for event in self.events {
            each(event, Packed::plain(from + (event.at - first.at), event.len));
        }
    }
}

/// Bytes of a packet that are in memory, to find plain events in.
pub(super) struct Plain<'p> {
    pub(super) trace: &'p Trace,
    pub(super) kind: &'p StreamClass,
    pub(super) quick: Quick,
    /// Up to where events are.
    pub(super) bytes: &'p [u8],
    /// Bytes of the packet before them.
    pub(super) base: u64,
}

impl Plain<'_> {
    /// The event behind a place, and the clock's value with it. `None`: there is none, or
    /// not all of it, or it is not plain.
    #[inline]
    pub(super) fn next(&self, at: usize, clock: u64, near: &mut usize) -> Option<(Short, u64)> {
        // What is aligned in the packet need not be in what is in memory of it.
        let mask = self.quick.align() - 1;
        let head = ((at as u64 + self.base + mask) & !mask) - self.base;
        let word = self.bytes.get(head as usize..)?.first_chunk()?;
        let (id, stored) = self.quick.peek(*word)?;
        let (class, len) = self.kind.plain(id)?;
        let body = head as usize + self.quick.bytes();
        if body + len > self.bytes.len() {
            return None;
        }
        let clock = rebuild(clock, stored, self.quick.time_size());
        let time = self.trace.scale.nanos(clock, near);
        Some((Short { time, class, at: body as u32, len: len as u32 }, clock))
    }
}

impl Stream {
    /// Takes the plain events whose turn it is, from the one that is next on.
    pub(super) fn run(
        &mut self,
        traces: &[Trace],
        head: MergeHead,
        out_of_order: &mut u64,
        found: &mut Vec<Short>,
    ) {
        found.clear();
        let Some((plain, mut at)) = self.plain(traces) else { return };
        let (mut clock, mut near, mut last) = (self.clock, self.near, self.last);
        let body = ((self.pending.body.0 / 8).saturating_sub(plain.base)) as u32;
        let (time, class) = (self.pending.time, self.pending.class);
        found.push(Short { time, class, at: body, len: at as u32 - body });
        while found.len() < MOST
            && let Some((event, now)) = plain.next(at, clock, &mut near)
            && head.has(event.time)
        {
            *out_of_order += u64::from(event.time < last);
            (clock, last) = (now, event.time);
            at = (event.at + event.len) as usize;
            found.push(event);
        }
        let pos = 8 * (plain.base + at as u64);
        (self.clock, self.near, self.last, self.pos) = (clock, near, last, pos);
    }
}
