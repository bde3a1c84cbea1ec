//! Packet headers and contexts, and event headers.

use super::bits::{Bits, DecodeError, mask};
use super::compile::StreamPrograms;
use super::walk::{FieldInfo, Group, Program, Role, Slots, Visit};

/// The number that packets begin with, where their header has it.
pub(crate) const MAGIC: u64 = 0xc1fc_1fc1;

/// Values of packet header and context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PacketFacts {
    pub(crate) magic: Option<u64>,
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) stream_id: Option<u64>,
    pub(crate) instance: Option<u64>,
    pub(crate) begin: Option<u64>,
    pub(crate) end: Option<u64>,
    pub(crate) content_size: Option<u64>,
    pub(crate) packet_size: Option<u64>,
    pub(crate) discarded: Option<u64>,
    pub(crate) sequence: Option<u64>,
    pub(crate) cpu: Option<u64>,
    /// `CLOCK_MONOTONIC` at its beginning, and within how many nanoseconds.
    pub(crate) anchor: Option<u64>,
    pub(crate) anchor_error: Option<u64>,
    /// Bytes of the identity that were seen, while they are.
    bytes: Option<usize>,
}

impl Visit for PacketFacts {
    fn int(&mut self, field: &FieldInfo, value: u64) {
        if let Some(n) = self.bytes {
            let uuid = self.uuid.get_or_insert([0; 16]);
            if let Some(place) = uuid.get_mut(n) {
                *place = value as u8;
            }
            self.bytes = Some(n + 1);
            return;
        }
        self.set(field.role, value);
        field.more_roles.iter().for_each(|role| self.set(*role, value));
    }

    fn open(&mut self, field: &FieldInfo, _group: Group, count: u64) {
        if field.role == Role::Uuid && count == 16 {
            self.bytes = Some(0);
        }
    }

    fn close(&mut self, group: Group) {
        if group == Group::Row {
            self.bytes = None;
        }
    }
}

impl PacketFacts {
    fn set(&mut self, role: Role, value: u64) {
        let place = match role {
            Role::Magic => &mut self.magic,
            Role::StreamId => &mut self.stream_id,
            Role::StreamInstance => &mut self.instance,
            Role::Begin => &mut self.begin,
            Role::End => &mut self.end,
            Role::ContentSize => &mut self.content_size,
            Role::PacketSize => &mut self.packet_size,
            Role::Discarded => &mut self.discarded,
            Role::Sequence => &mut self.sequence,
            Role::Cpu => &mut self.cpu,
            Role::Anchor => &mut self.anchor,
            Role::AnchorError => &mut self.anchor_error,
            _ => return,
        };
        *place = Some(value);
    }
}

/// Values of an event header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventHead {
    pub(crate) id: u64,
    /// The time as it is stored, and of how many bits.
    pub(crate) time: Option<(u64, u32)>,
}

impl Visit for EventHead {
    #[inline]
    fn int(&mut self, field: &FieldInfo, value: u64) {
        match field.role {
            // Of several the last counts: an escape comes before what it escapes to.
            Role::EventId => self.id = value,
            Role::Time => self.time = Some((value, field.size)),
            _ => {}
        }
    }

    fn var_int(&mut self, field: &FieldInfo, value: u64, bits: u32) {
        match field.role {
            Role::Time => self.time = Some((value, bits)),
            _ => self.int(field, value),
        }
    }
}

/// Plan for reading the headers of a stream's events.
#[derive(Clone, Debug)]
pub(crate) struct HeaderPlan {
    quick: Option<Quick>,
}

/// The usual header: an id, and, unless the id is an escape, a time right behind it,
/// packed into whole bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quick {
    align: u32,
    big: bool,
    id_size: u32,
    time_size: u32,
    /// The ids that are followed so.
    last: u64,
    bytes: u64,
}

impl HeaderPlan {
    pub(crate) fn of(programs: &StreamPrograms) -> HeaderPlan {
        HeaderPlan { quick: Quick::of(&programs.header) }
    }

    /// The usual header, if events have that.
    #[inline]
    pub(crate) fn quick(&self) -> Option<Quick> {
        self.quick
    }

    /// Reads a header and moves behind it.
    #[inline]
    pub(crate) fn read(
        &self,
        program: &Program,
        bits: &mut Bits<'_>,
        slots: &mut Slots,
    ) -> Result<EventHead, DecodeError> {
        if let Some(quick) = &self.quick
            && let Some(head) = quick.read(bits)
        {
            return Ok(head);
        }
        let mut head = EventHead::default();
        program.walk(bits, slots, &mut head)?;
        Ok(head)
    }
}

impl Quick {
    /// Recognises the header by what it does, not by its names.
    fn of(header: &Program) -> Option<Quick> {
        use super::bits::Load;
        use super::compile::OUTER_SLOTS;
        use super::walk::{NO_SLOT, Step};
        let mut steps = header.steps.iter().copied();
        let Step::Align(align) = steps.next()? else { return None };
        let Step::Int { field, load, size: id_size, save, align: id_align } = steps.next()? else {
            return None;
        };
        let id = header.fields.get(field as usize)?;
        let Step::Choose { tag, choices, .. } = steps.next()? else { return None };
        if id.role != Role::EventId || id.signed || tag != save {
            return None;
        }
        // Events that depend on the header need all of it.
        if usize::from(save) < OUTER_SLOTS {
            return None;
        }
        // The first choice must be that of the ids from 0 on.
        let choices = header.choices.get(choices as usize)?;
        let first = choices.of.first()?;
        let last = u64::try_from(first.to).ok().filter(|_| first.from == 0)?;
        let span = header.steps.get(first.steps.0 as usize..first.steps.1 as usize)?;
        let [
            Step::Struct { align: inner, .. },
            Step::Int { field, size, align: at, load: l, save },
        ] = *span
        else {
            return None;
        };
        let time = header.fields.get(field as usize)?;
        let all = u32::from(id_size) + u32::from(size);
        let apart = |align: u32| !u32::from(id_size).is_multiple_of(align.max(1));
        let big = |l: Load| matches!(l, Load::Be16 | Load::Be32 | Load::Be64 | Load::BeBits);
        if time.role != Role::Time
            || save != NO_SLOT
            || align < 8
            || id_align > align
            || apart(inner)
            || apart(at)
            || all > 64
            || !all.is_multiple_of(8)
            || big(l) != big(load)
            || [l, load].iter().any(|l| matches!(l, Load::LeReversed | Load::BeReversed))
        {
            return None;
        }
        Some(Quick {
            align,
            big: big(load),
            id_size: id_size.into(),
            time_size: size.into(),
            last,
            bytes: u64::from(all / 8),
        })
    }

    /// The id and the time that eight bytes begin with. `None`: another form of the header.
    #[inline]
    pub(crate) fn peek(&self, word: [u8; 8]) -> Option<(u64, u64)> {
        let (id, time) = if self.big {
            let word = u64::from_be_bytes(word) >> (64 - 8 * self.bytes);
            (word >> self.time_size & mask(self.id_size), word)
        } else {
            let word = u64::from_le_bytes(word);
            (word & mask(self.id_size), word >> self.id_size)
        };
        (id <= self.last).then_some((id, time & mask(self.time_size)))
    }

    /// Bytes of a header.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Bits of its time.
    #[inline]
    pub(crate) fn time_size(&self) -> u32 {
        self.time_size
    }

    /// A power of two of bytes that headers begin at a multiple of in their packet.
    #[inline]
    pub(crate) fn align(&self) -> u64 {
        u64::from(self.align / 8)
    }

    /// `None`: another form of the header, or the end.
    #[inline]
    fn read(&self, bits: &mut Bits<'_>) -> Option<EventHead> {
        let before = bits.pos;
        bits.align(self.align);
        let word = bits.word(self.bytes, self.big);
        let (id, time) = match (word, self.big) {
            (Some(word), false) => (word & mask(self.id_size), word >> self.id_size),
            (Some(word), true) => {
                (word >> self.time_size & mask(self.id_size), word & mask(self.time_size))
            }
            (None, _) => (u64::MAX, 0),
        };
        if word.is_none() || id > self.last {
            bits.pos = before;
            return None;
        }
        let time = time & mask(self.time_size);
        Some(EventHead { id, time: Some((time, self.time_size)) })
    }
}
