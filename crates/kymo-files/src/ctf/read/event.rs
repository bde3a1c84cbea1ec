//! An event as it is handed out: when, where, which, and its bytes until someone
//! looks at them.

use super::Ctf;
use super::bits::{Bits, DecodeError};
use super::trace::OUTER_EVENT;
use super::walk::{Slots, Visit};

/// One event, handed to the sink of [`Ctf::for_each`].
#[derive(Clone, Copy, Debug)]
pub struct CtfEvent<'a> {
    /// Its time in nanoseconds, as [`Ctf::times`] counts.
    pub time: u64,
    /// Its kind, for [`Ctf::class`].
    pub class: u32,
    /// Its stream, from 0.
    pub stream: u32,
    /// The trace of its stream, by place.
    pub trace: u32,
    /// The CPU, where packets say it.
    pub cpu: Option<u32>,
    /// Events that its stream lost before it.
    pub missed: Option<u64>,
    /// Its bytes.
    pub body: Body<'a>,
}

/// Contexts and fields of an event.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a> {
    pub(crate) bytes: &'a [u8],
    /// The place of the first byte in the packet, where the body begins and where it
    /// ends, in bits.
    pub(crate) base: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Values from outside that it depends on.
    pub(crate) outer: &'a [u64],
}

/// A body that was copied to other bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    at: u32,
    /// Its bits, and its place in the packet as far as alignment goes.
    bits: u32,
    phase: u32,
    outer: bool,
}

impl Packed {
    /// A fixed number of bytes that have the same meaning at any address.
    #[inline]
    pub(crate) fn plain(at: u32, len: u32) -> Packed {
        Packed { at, bits: 8 * len, phase: 0, outer: false }
    }

    /// Its bytes among those it was copied to, unless it begins or ends within one or
    /// depends on what is not in it.
    #[inline]
    pub fn bytes(self, all: &[u8]) -> Option<&[u8]> {
        let whole = (self.bits | self.phase).is_multiple_of(8) && !self.outer;
        let at = self.at as usize;
        if whole { all.get(at..at + self.bits as usize / 8) } else { None }
    }

    /// The body among the bytes it was copied to; `outer` takes values that it depends on.
    pub fn unpack<'b>(self, all: &'b [u8], outer: &'b mut Vec<u64>) -> Body<'b> {
        outer.clear();
        let mut at = self.at as usize;
        if self.outer {
            let values = all.get(at..).unwrap_or(&[]).chunks_exact(8).take(OUTER_EVENT);
            outer.extend(values.map(|v| v.first_chunk().map_or(0, |v| u64::from_le_bytes(*v))));
            at += 8 * OUTER_EVENT;
        }
        let from = u64::from(self.phase);
        let bytes = all.get(at..).unwrap_or(&[]);
        Body { bytes, base: from & !7, from, to: from + u64::from(self.bits), outer }
    }
}

/// More than any alignment, in bits.
const PHASES: u64 = 1 << 24;

impl Body<'_> {
    /// Its bytes, from that of its first bit to that of its last.
    #[inline]
    fn own(&self) -> &[u8] {
        let from = (self.from.saturating_sub(self.base) / 8) as usize;
        let to = self.to.saturating_sub(self.base).div_ceil(8) as usize;
        self.bytes.get(from..to).unwrap_or(&[])
    }

    /// Copies it behind other bytes, which must stay below 4 GiB.
    #[inline]
    pub fn pack(&self, out: &mut Vec<u8>) -> Packed {
        let at = out.len() as u32;
        for value in self.outer {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(self.own());
        Packed {
            at,
            bits: (self.to - self.from) as u32,
            phase: (self.from % PHASES) as u32,
            outer: !self.outer.is_empty(),
        }
    }
}

/// Shows visitors the values of events; keeps what that needs from event to event.
#[derive(Debug)]
pub struct Reader<'c> {
    ctf: &'c Ctf,
    slots: Slots,
}

impl Ctf {
    /// One who looks at the values of events.
    pub fn reader(&self) -> Reader<'_> {
        let slots = self.traces.iter().map(|t| t.slots).max().unwrap_or(0);
        Reader { ctf: self, slots: Slots(vec![0; slots.max(OUTER_EVENT)]) }
    }
}

impl<'c> Reader<'c> {
    /// Trace that is read.
    pub fn ctf(&self) -> &'c Ctf {
        self.ctf
    }

    /// Shows the values of a kind of event.
    #[inline]
    pub fn see<V: Visit>(
        &mut self,
        class: u32,
        body: &Body<'_>,
        visit: &mut V,
    ) -> Result<(), DecodeError> {
        let Some(program) = self.ctf.class(class).and_then(|c| c.program) else { return Ok(()) };
        let mut bits = self.enter(body);
        program.body.walk(&mut bits, &mut self.slots, visit)
    }

    /// Shows the values of the contexts of an event, and not those of its fields.
    ///
    /// # Errors
    /// If a context ends early.
    #[inline]
    pub fn see_contexts<V: Visit>(
        &mut self,
        class: u32,
        body: &Body<'_>,
        visit: &mut V,
    ) -> Result<(), DecodeError> {
        let Some(program) = self.ctf.class(class).and_then(|c| c.program) else { return Ok(()) };
        let mut bits = self.enter(body);
        program.body.walk_first(program.contexts, &mut bits, &mut self.slots, visit)
    }

    #[inline]
    fn enter<'b>(&mut self, body: &Body<'b>) -> Bits<'b> {
        for (place, value) in self.slots.0.iter_mut().zip(body.outer) {
            *place = *value;
        }
        Bits::new(body.bytes, body.base, body.from, body.to)
    }

    /// Visits a body that was copied to `bytes`.
    #[inline]
    pub fn see_packed<V: Visit>(
        &mut self,
        class: u32,
        packed: Packed,
        bytes: &[u8],
        visit: &mut V,
    ) -> Result<(), DecodeError> {
        let Some(program) = self.ctf.class(class).and_then(|c| c.program) else { return Ok(()) };
        let mut at = packed.at as usize;
        if packed.outer {
            let values = bytes.get(at..).unwrap_or(&[]).chunks_exact(8);
            for (place, value) in self.slots.0.iter_mut().take(OUTER_EVENT).zip(values) {
                *place = value.first_chunk().map_or(0, |v| u64::from_le_bytes(*v));
            }
            at += 8 * OUTER_EVENT;
        }
        let phase = u64::from(packed.phase);
        let bytes = bytes.get(at..).unwrap_or(&[]);
        let to = phase + u64::from(packed.bits);
        let mut bits = Bits::new(bytes, phase & !7, phase, to);
        program.body.walk(&mut bits, &mut self.slots, visit)
    }
}
