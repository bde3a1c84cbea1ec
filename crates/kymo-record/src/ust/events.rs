//! The events of a packet, one by one, for those who watch a program live. What is
//! kept in files is read as CTF.

use kymo_ring::{CONTEXT_END, Context};
use kymo_ust::EventRecord;

/// A packet as [`super::RingReader`] hands it out, and the events of its program.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    context: Context,
    bytes: &'a [u8],
    events: &'a [EventRecord],
}

/// An event of a packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketEvent<'a> {
    /// When, in ticks.
    pub ticks: u64,
    /// The thread.
    pub tid: i32,
    /// What it is.
    pub record: &'a EventRecord,
    /// Its fields.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// A packet and the events of its program, sorted by their numbers.
    pub fn new(context: Context, bytes: &'a [u8], events: &'a [EventRecord]) -> Packet<'a> {
        Packet { context, bytes, events }
    }

    /// Hands out its events. Says whether it could be read to its end.
    pub fn for_each(&self, mut sink: impl FnMut(PacketEvent<'a>)) -> bool {
        let mut rest = self.bytes.get(CONTEXT_END..).unwrap_or_default();
        let mut ticks = self.context.begin;
        while !rest.is_empty() {
            let Some((event, behind)) = self.event(rest, ticks) else { return false };
            (ticks, rest) = (event.ticks, behind);
            sink(event);
        }
        true
    }

    fn event(&self, bytes: &'a [u8], before: u64) -> Option<(PacketEvent<'a>, &'a [u8])> {
        const SHORT: u64 = (1 << 27) - 1;
        let mut id = u32::from(bytes.first()? & 31);
        let (mut rest, ticks) = match id {
            0..30 => {
                let (head, rest) = bytes.split_first_chunk::<4>()?;
                let short = u64::from(u32::from_le_bytes(*head) >> 5);
                let ticks = (before & !SHORT) | short;
                (rest, if ticks < before { ticks.wrapping_add(SHORT + 1) } else { ticks })
            }
            _ => {
                let (full, rest) = bytes.split_first_chunk::<13>()?;
                id = u32::from_le_bytes(full[1..5].try_into().ok()?);
                (rest, u64::from_le_bytes(full[5..].try_into().ok()?))
            }
        };
        if bytes.first()? & 31 == 29 {
            let (wide, behind) = rest.split_first_chunk::<2>()?;
            (id, rest) = (u16::from_le_bytes(*wide).into(), behind);
        }
        let (tid, rest) = rest.split_first_chunk::<4>()?;
        let at = self.events.binary_search_by_key(&id, |e| e.id).ok()?;
        let record = self.events.get(at)?;
        let mut len = 0;
        for field in &record.fields {
            len += field.shape.size_in(rest.get(len..)?)?;
        }
        let (payload, behind) = rest.split_at_checked(len)?;
        Some((PacketEvent { ticks, tid: i32::from_le_bytes(*tid), record, payload }, behind))
    }
}

/// `CLOCK_MONOTONIC` now, nanoseconds.
pub fn monotonic_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (seconds, rest) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}
