//! The events of a packet that is in memory: of a ring that is watched while it is written.
//! The same programs read them as those in files.

use super::Ctf;
use super::bits::{Bits, DecodeError};
use super::clock::rebuild;
use super::event::Body;
use super::stream::{NoHead, read_head};
use super::trace::{OUTER_EVENT, Trace};
use super::walk::Slots;

/// An event of a packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketEvent<'a> {
    /// Its time in ticks of the trace's clock.
    pub ticks: u64,
    /// Its class, for [`Ctf::class`].
    pub class: u32,
    /// The CPU, if the packet says it.
    pub cpu: Option<u32>,
    /// Its bytes.
    pub body: Body<'a>,
}

/// Reads packets of a trace that is in memory; keeps what that needs from packet to packet.
#[derive(Debug, Default)]
pub struct PacketReader {
    slots: Slots,
    outer: Vec<u64>,
}

impl PacketReader {
    /// Hands out the events of a packet in their order. `false`: it could not be read to its
    /// end; what came before was handed out.
    pub fn for_each(
        &mut self,
        ctf: &Ctf,
        packet: &[u8],
        sink: impl FnMut(PacketEvent<'_>),
    ) -> bool {
        let Some(trace) = ctf.traces.first() else { return false };
        self.read(trace, packet, sink).is_some()
    }

    fn read(
        &mut self,
        trace: &Trace,
        packet: &[u8],
        mut sink: impl FnMut(PacketEvent<'_>),
    ) -> Option<()> {
        let (facts, kind, mut pos) = match read_head(trace, packet, &mut self.slots) {
            Ok(head) => head,
            Err(NoHead::Short | NoHead::Bad(_)) => return None,
        };
        let there = 8 * packet.len() as u64;
        let stated = facts.content_size.or(facts.packet_size);
        let content = stated.unwrap_or(there).min(there);
        let kind = trace.streams.get(kind)?;
        let cpu = facts.cpu.and_then(|c| u32::try_from(c).ok());
        let mut ticks = facts.begin.unwrap_or(0);
        while pos < content {
            let mut bits = Bits::new(packet, 0, pos, content);
            let head = kind.plan.read(&kind.programs.header, &mut bits, &mut self.slots).ok()?;
            let number = kind.event(head.id)?;
            let program = kind.programs.events.get(number as usize)?.as_ref().ok()?;
            let from = bits.pos;
            let skipped: Result<(), DecodeError> = program.body.skip(&mut bits, &mut self.slots);
            skipped.ok()?;
            if bits.pos == pos {
                return None;
            }
            if let Some((stored, size)) = head.time {
                ticks = rebuild(ticks, stored, size);
            }
            self.outer.clear();
            if program.outer {
                self.outer.extend(self.slots.0.iter().take(OUTER_EVENT));
            }
            let outer = &self.outer[..];
            let body = Body { bytes: packet, base: 0, from, to: bits.pos, outer };
            sink(PacketEvent { ticks, class: kind.first_class + number, cpu, body });
            pos = bits.pos;
        }
        (stated.unwrap_or(there) <= there).then_some(())
    }
}
