//! One stream: its packets, in one file or several, event by event, seen through
//! a window that grows only when an event does not fit.

use std::path::PathBuf;

use super::super::types::CtfVersion;
use super::bits::{Bits, DecodeError};
use super::clock::rebuild;
use super::packet::{MAGIC, PacketFacts};
use super::run::Plain;
use super::trace::{OUTER_EVENT, Trace};
use super::walk::Slots;
use super::window::Window;
use super::{CtfReadError, CtfReadStats};
use crate::RecordingBytes;

/// The most that one event, or what a packet begins with, may take.
const MOST: usize = 64 << 20;

/// A file of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    /// Its bytes, where they are not in a file of that path.
    pub(crate) bytes: Option<RecordingBytes>,
    /// The trace whose metadata describes it.
    pub(crate) trace: usize,
}

impl Part {
    /// Its bytes. Of a trace with many streams those of a few are open at a time.
    pub(crate) fn open(&self) -> std::io::Result<RecordingBytes> {
        match &self.bytes {
            Some(bytes) => Ok(bytes.clone()),
            None => RecordingBytes::open(&self.path),
        }
    }
}

/// The packet that is being read.
#[derive(Clone, Copy, Debug, Default)]
struct Packet {
    /// Its first byte in the file, and the first byte of the next one.
    start: u64,
    next: u64,
    /// Bits of it that mean something.
    content: u64,
    /// The kind of stream, by place in the trace.
    kind: usize,
    cpu: Option<u32>,
}

/// The event that is next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) time: u64,
    /// By place among all events of all traces.
    pub(crate) class: u32,
    /// Range of its body in the packet, in bits.
    pub(crate) body: (u64, u64),
    /// Whether it depends on values from outside of it.
    pub(crate) outer: bool,
    /// Events lost before it.
    pub(crate) missed: Option<u64>,
    /// Whether it is plain, and none was lost before it: a run may begin with it.
    pub(crate) plain: bool,
}

/// State carried from packet to packet.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    discarded: Option<u64>,
    sequence: Option<u64>,
}

/// Why there is no event where one should be.
enum Bad {
    Stop(DecodeError),
    /// No event has this number.
    Unknown(u64),
    /// Its type cannot be read.
    Undecodable(u64),
    /// It takes no bits.
    Nothing,
}

impl From<DecodeError> for Bad {
    fn from(stop: DecodeError) -> Self {
        Bad::Stop(stop)
    }
}

impl Bad {
    fn what(&self) -> String {
        match self {
            Bad::Stop(stop) => format!("an event {}", stop.what()),
            Bad::Unknown(id) => format!("no event has the number {id}"),
            Bad::Undecodable(id) => format!("event {id} cannot be read"),
            Bad::Nothing => "an event takes no bits".to_owned(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Stream {
    parts: Vec<Part>,
    /// The part that is read, and whether it was opened.
    part: usize,
    opened: bool,
    pub(crate) trace: usize,
    window: Window,
    packet: Packet,
    /// The place in the packet, in bits; at its content's end there is no event.
    pub(super) pos: u64,
    pub(super) clock: u64,
    /// Position on the trace's time curve.
    pub(super) near: usize,
    pub(super) last: u64,
    before: Before,
    missed: u64,
    slots: Slots,
    pub(crate) pending: Pending,
}

impl Stream {
    /// `step`: bytes per read.
    pub(crate) fn new(parts: Vec<Part>, step: usize) -> Stream {
        Stream {
            parts,
            part: 0,
            opened: false,
            trace: 0,
            window: Window::new(step),
            packet: Packet::default(),
            pos: 0,
            clock: 0,
            near: 0,
            last: 0,
            before: Before::default(),
            missed: 0,
            slots: Slots::default(),
            pending: Pending::default(),
        }
    }

    pub(crate) fn cpu(&self) -> Option<u32> {
        self.packet.cpu
    }

    /// The bytes around the next event's body, with the place of the first of them in
    /// the packet, in bits, and the values from outside.
    #[inline]
    pub(crate) fn body(&self) -> (&[u8], u64, &[u64]) {
        let (bytes, base) = self.window.from(self.packet.start);
        let outer = self.slots.0.get(..OUTER_EVENT).unwrap_or(&[]);
        (bytes, base * 8, if self.pending.outer { outer } else { &[] })
    }

    /// Finds the next event. `false`: there is none.
    pub(crate) fn advance(
        &mut self,
        traces: &[Trace],
        from: u64,
        stats: &mut CtfReadStats,
    ) -> Result<bool, CtfReadError> {
        loop {
            if self.pos >= self.packet.content {
                if !self.next_packet(traces, from, stats)? {
                    return Ok(false);
                }
                continue;
            }
            match self.event(traces, stats) {
                Ok(()) => return Ok(true),
                Err(Bad::Stop(DecodeError::End)) if self.grow()? => {}
                Err(bad) => {
                    let place = self.packet.start + self.pos / 8;
                    stats.damage(&self.name(traces), place, bad.what());
                    self.pos = self.packet.content;
                }
            }
        }
    }

    /// Bytes that may hold plain events, and the position of this stream in them.
    #[inline]
    pub(super) fn plain<'p>(&'p self, traces: &'p [Trace]) -> Option<(Plain<'p>, usize)> {
        let trace = traces.get(self.trace)?;
        let kind = trace.streams.get(self.packet.kind)?;
        let quick = kind.plan.quick()?;
        let (bytes, base) = self.window.from(self.packet.start);
        let end = (self.packet.content / 8).saturating_sub(base);
        let bytes = bytes.get(..end as usize).unwrap_or(bytes);
        let at = (self.pos / 8).checked_sub(base).filter(|_| self.pos.is_multiple_of(8))?;
        Some((Plain { trace, kind, quick, bytes, base }, at as usize))
    }

    /// Finds the next event if it is plain.
    #[inline]
    fn plain_event(&mut self, traces: &[Trace], stats: &mut CtfReadStats) -> bool {
        let mut near = self.near;
        let Some((plain, at)) = self.plain(traces) else { return false };
        let Some((event, clock)) = plain.next(at, self.clock, &mut near) else { return false };
        let from = 8 * (plain.base + u64::from(event.at));
        let body = (from, from + 8 * u64::from(event.len));
        (self.clock, self.near, self.pos) = (clock, near, body.1);
        self.next(event.time, event.class, body, stats);
        self.pending.plain = self.pending.missed.is_none();
        true
    }

    /// The next event is found.
    #[inline]
    fn next(&mut self, time: u64, class: u32, body: (u64, u64), stats: &mut CtfReadStats) {
        if time < self.last {
            stats.out_of_order += 1;
        }
        self.last = time;
        let missed = if self.missed > 0 { Some(std::mem::take(&mut self.missed)) } else { None };
        self.pending = Pending { time, class, body, outer: false, missed, plain: false };
    }

    /// Reads header and size of the next event.
    #[inline]
    fn event(&mut self, traces: &[Trace], stats: &mut CtfReadStats) -> Result<(), Bad> {
        if self.plain_event(traces, stats) {
            return Ok(());
        }
        let trace = traces.get(self.trace).ok_or(Bad::Unknown(0))?;
        let kind = trace.streams.get(self.packet.kind).ok_or(Bad::Unknown(0))?;
        let (bytes, base) = self.window.from(self.packet.start);
        let mut bits = Bits::new(bytes, base * 8, self.pos, self.packet.content);
        let head = kind.plan.read(&kind.programs.header, &mut bits, &mut self.slots)?;
        let number = kind.event(head.id).ok_or(Bad::Unknown(head.id))?;
        let program = kind.programs.events.get(number as usize);
        let program = program.and_then(|p| p.as_ref().ok()).ok_or(Bad::Undecodable(head.id))?;
        let body = bits.pos;
        program.body.skip(&mut bits, &mut self.slots)?;
        if bits.pos == self.pos {
            return Err(Bad::Nothing);
        }
        if let Some((stored, size)) = head.time {
            self.clock = rebuild(self.clock, stored, size);
        }
        let time = trace.scale.nanos(self.clock, &mut self.near);
        self.pos = bits.pos;
        let (class, outer, body) = (kind.first_class + number, program.outer, (body, bits.pos));
        self.next(time, class, body, stats);
        self.pending.outer = outer;
        Ok(())
    }

    /// Name of the file in messages.
    fn name(&self, traces: &[Trace]) -> String {
        let file = self.parts.get(self.part).and_then(|p| p.path.file_name());
        let file = file.unwrap_or_default().to_string_lossy();
        match traces.get(self.trace).map(|t| t.name.as_str()).filter(|n| !n.is_empty()) {
            Some(trace) => format!("{trace}/{file}"),
            None => file.into_owned(),
        }
    }

    /// Has more of the event in memory. `false`: there is no more of it, or it is too
    /// large.
    fn grow(&mut self) -> Result<bool, CtfReadError> {
        let start = self.packet.start + self.pos / 8;
        let end = self.packet.start + self.packet.content.div_ceil(8);
        let before = self.window.end();
        let have = before.saturating_sub(start) as usize;
        if before >= end || have >= MOST {
            return Ok(false);
        }
        self.want(start, (2 * have).max(1))?;
        Ok(self.window.end() > before)
    }

    fn want(&mut self, offset: u64, count: usize) -> Result<(), CtfReadError> {
        self.window.want(offset, count).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: std::io::Error) -> CtfReadError {
        let path = self.parts.get(self.part).map(|p| p.path.display().to_string());
        CtfReadError::Io { path: path.unwrap_or_default(), error }
    }

    /// Goes to the next packet that has any content. `false`: there is none.
    fn next_packet(
        &mut self,
        traces: &[Trace],
        from: u64,
        stats: &mut CtfReadStats,
    ) -> Result<bool, CtfReadError> {
        loop {
            let Some(part) = self.parts.get(self.part) else { return Ok(false) };
            if !self.opened {
                let opened = part.open().and_then(|bytes| self.window.open(bytes));
                opened.map_err(|error| self.failed(error))?;
                (self.opened, self.trace) = (true, part.trace);
                self.packet = Packet::default();
            }
            let start = self.packet.next;
            if start >= self.window.len() {
                self.window.close();
                (self.part, self.opened) = (self.part + 1, false);
                (self.packet, self.pos) = (Packet::default(), 0);
                continue;
            }
            let opened = self.open_packet(traces, start)?;
            let facts = match opened {
                Ok(facts) => facts,
                Err(what) => {
                    stats.damage(&self.name(traces), start, what);
                    // Where the next packet would be is not known.
                    self.packet = Packet { next: u64::MAX, ..Packet::default() };
                    self.pos = 0;
                    continue;
                }
            };
            stats.packets += 1;
            let of = traces.get(self.trace).and_then(|t| t.metadata.uuid);
            // Tracers that copy traces give metadata an identity of their own.
            stats.foreign_packets += u64::from(of.zip(facts.uuid).is_some_and(|(a, b)| a != b));
            self.account(&facts, traces, stats);
            let scale = traces.get(self.trace).map(|t| &t.scale);
            let end = facts.end.zip(scale).map(|(end, scale)| scale.nanos(end, &mut 0));
            if end.is_some_and(|end| end > 0 && end < from) {
                self.pos = self.packet.content;
            }
            let there = (self.window.len() - start).saturating_mul(8);
            if self.packet.content > there {
                let what = format!(
                    "the packet is cut: {} of {} bytes are there",
                    there / 8,
                    self.packet.content.div_ceil(8)
                );
                stats.damage(&self.name(traces), start, what);
            } else if self.packet.next > self.window.len() {
                // All its events are there; packets behind it may have been.
                let what = format!(
                    "the file ends in a packet's padding: {} of {} bytes are there",
                    there / 8,
                    self.packet.next - start
                );
                stats.damage(&self.name(traces), start, what);
            }
            if self.pos < self.packet.content {
                return Ok(true);
            }
        }
    }

    /// Reads what a packet begins with. The inner error is what is wrong with it.
    fn open_packet(
        &mut self,
        traces: &[Trace],
        start: u64,
    ) -> Result<Result<PacketFacts, String>, CtfReadError> {
        let Some(trace) = traces.get(self.trace) else { return Ok(Err(String::new())) };
        let mut count = 512;
        loop {
            self.want(start, count)?;
            let there = self.window.end().saturating_sub(start);
            let (bytes, _) = self.window.from(start);
            match read_head(trace, bytes, &mut self.slots) {
                Ok((facts, kind, pos)) => {
                    let rest = (self.window.len() - start).saturating_mul(8);
                    return Ok(self.enter(start, facts, kind, pos, rest));
                }
                Err(NoHead::Short) if start + there < self.window.len() && count < MOST => {
                    count *= 2;
                }
                Err(NoHead::Short) => return Ok(Err("a packet ends in its header".to_owned())),
                Err(NoHead::Bad(what)) => return Ok(Err(what)),
            }
        }
    }

    fn enter(
        &mut self,
        start: u64,
        facts: PacketFacts,
        kind: usize,
        pos: u64,
        rest: u64,
    ) -> Result<PacketFacts, String> {
        let content = facts.content_size.or(facts.packet_size).unwrap_or(rest);
        let size = facts.packet_size.or(facts.content_size).unwrap_or(rest);
        if content > size {
            return Err(format!("a packet of {size} bits has a content of {content}"));
        }
        if !size.is_multiple_of(8) || size < pos || size == 0 {
            return Err(format!("a packet has {size} bits"));
        }
        if content < pos {
            return Err(format!("a packet's content of {content} bits ends in its header"));
        }
        let cpu = facts.cpu.and_then(|c| u32::try_from(c).ok());
        self.packet = Packet { start, next: start.saturating_add(size / 8), content, kind, cpu };
        self.pos = pos;
        if let Some(begin) = facts.begin {
            self.clock = begin;
        }
        Ok(facts)
    }

    /// Counts what was lost between this packet and the one before.
    fn account(&mut self, facts: &PacketFacts, traces: &[Trace], stats: &mut CtfReadStats) {
        if let Some(now) = facts.discarded {
            match self.before.discarded {
                // Since when it counts is not known: this may be the rest of a longer trace.
                None => stats.lost_at_start = stats.lost_at_start.saturating_add(now),
                Some(before) if now > before => {
                    stats.lost = stats.lost.saturating_add(now - before);
                    stats.lost_places += 1;
                    self.missed = self.missed.saturating_add(now - before);
                }
                Some(_) => {}
            }
            self.before.discarded = Some(now);
        }
        if let Some(now) = facts.sequence {
            if let Some(before) = self.before.sequence {
                let gap = now.saturating_sub(before).saturating_sub(1);
                if gap > 0 {
                    stats.lost_packets = stats.lost_packets.saturating_add(gap);
                    stats.lost_packet_places += 1;
                }
                if now <= before {
                    let name = self.name(traces);
                    let what = format!("packet {now} follows packet {before}");
                    stats.damage(&name, self.packet.start, what);
                }
            }
            self.before.sequence = Some(now);
        }
    }
}

/// Why a packet's beginning cannot be read.
pub(crate) enum NoHead {
    /// There are too few bytes.
    Short,
    Bad(String),
}

/// Reads packet header and context: what they say, the kind of stream by place, and
/// where they end, in bits.
pub(crate) fn read_head(
    trace: &Trace,
    bytes: &[u8],
    slots: &mut Slots,
) -> Result<(PacketFacts, usize, u64), NoHead> {
    let bad = |stop: DecodeError| match stop {
        DecodeError::End => NoHead::Short,
        other => NoHead::Bad(format!("a packet header {}", other.what())),
    };
    let mut facts = PacketFacts::default();
    let mut bits = Bits::new(bytes, 0, 0, u64::MAX);
    slots.0.resize(slots.0.len().max(trace.slots), 0);
    trace.packet_header.walk(&mut bits, slots, &mut facts).map_err(bad)?;
    if let Some(magic) = facts.magic.filter(|m| *m != MAGIC) {
        return Err(NoHead::Bad(format!("a packet begins with {magic:#x}, not {MAGIC:#x}")));
    }
    let kind = match (facts.stream_id, trace.streams.len()) {
        (None, 1) => 0,
        // The number of streams that state none.
        (None, _) if trace.metadata.version == CtfVersion::V2 => {
            match trace.metadata.streams.iter().position(|s| s.id == 0) {
                Some(kind) => kind,
                None => {
                    return Err(NoHead::Bad("a packet is of stream 0, which is not".to_owned()));
                }
            }
        }
        (None, _) => return Err(NoHead::Bad("a packet does not name its stream".to_owned())),
        (Some(id), _) => match trace.metadata.streams.iter().position(|s| s.id == id) {
            Some(kind) => kind,
            None => return Err(NoHead::Bad(format!("a packet is of stream {id}, which is not"))),
        },
    };
    let Some(of) = trace.streams.get(kind) else { return Err(NoHead::Short) };
    let mut bits = Bits::new(bytes, 0, 0, u64::MAX);
    of.programs.packet_header.walk(&mut bits, slots, &mut facts).map_err(bad)?;
    of.programs.packet_context.walk(&mut bits, slots, &mut facts).map_err(bad)?;
    Ok((facts, kind, bits.pos))
}
