//! The control file of a program: who it is, its slots, where its events are described.

use crate::bytes::{Take, until_nul};
use crate::error::UstFormatError;

/// Start of a finished control file.
pub const CONTROL_MAGIC: [u8; 8] = *b"KYMOUST\0";
/// Bytes of the header with the slots.
pub const CONTROL_HEADER: usize = 4096;
/// Most events of a program.
pub const MAX_EVENTS: u32 = 4096;
/// Offset of the slots.
pub const SLOTS_AT: usize = 2048;
/// Bytes of a slot.
pub const SLOT: usize = 256;
/// Number of slots.
pub const SLOTS: usize = 8;
/// Bytes of the path in a slot.
pub const SLOT_PATH: usize = 128;

const VERSION: u32 = 1;
const PATH_AT: usize = 64;

/// Offset of a slot in the control file.
pub fn slot_at(slot: usize) -> usize {
    SLOTS_AT + slot % SLOTS * SLOT
}

/// Offset of the byte that switches an event on for a slot.
pub fn enable_at(control: &Control, event: u32, slot: usize) -> u64 {
    u64::from(control.enable) + 8 * u64::from(event) + (slot % SLOTS) as u64
}

/// The header, without the slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Process id in the program's own namespace.
    pub pid: u32,
    /// Its start time, field 22 of `/proc/PID/stat`.
    pub start_time: u64,
    /// Effective user.
    pub uid: u32,
    /// Number of events that have enable words.
    pub capacity: u32,
    /// Offset of the enable words.
    pub enable: u32,
    /// Offset of the event table.
    pub table: u32,
    /// Bytes of the table that are complete.
    pub table_bytes: u64,
    /// Events in it.
    pub events: u32,
    /// Events that found no place.
    pub refused: u32,
    /// UUID of the program's traces.
    pub uuid: [u8; 16],
    /// Bytes of a page.
    pub page: u32,
    /// The clock block, see `kymo_ring::ClockFacts`.
    pub clock: [u8; 48],
    /// Name of the program, as the kernel has it.
    pub comm: Vec<u8>,
    /// Path of the executable.
    pub exe: Vec<u8>,
}

impl Control {
    /// The header, but for the magic number.
    pub fn encode(&self) -> [u8; 400] {
        let mut out = [0; 400];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(8, &VERSION.to_le_bytes());
        put(12, &self.pid.to_le_bytes());
        put(16, &self.start_time.to_le_bytes());
        put(24, &self.uid.to_le_bytes());
        put(28, &self.capacity.to_le_bytes());
        put(32, &self.enable.to_le_bytes());
        put(36, &self.table.to_le_bytes());
        put(40, &self.table_bytes.to_le_bytes());
        put(48, &self.events.to_le_bytes());
        put(52, &self.refused.to_le_bytes());
        put(56, &self.uuid);
        put(72, &self.page.to_le_bytes());
        put(76, &1u32.to_le_bytes());
        put(80, &self.clock);
        put(128, &self.comm[..self.comm.len().min(15)]);
        put(144, &self.exe[..self.exe.len().min(255)]);
        out
    }

    /// From the first bytes of a control file of `file_size` bytes.
    ///
    /// # Errors
    /// If they are invalid; all offsets lie within the file.
    pub fn parse(bytes: &[u8], file_size: u64) -> Result<Self, UstFormatError> {
        let short = UstFormatError::Short { what: "control file", found: bytes.len() };
        if bytes.len() < 400 {
            return Err(short);
        }
        let mut take = Take(bytes);
        if take.bytes(8) != Some(&CONTROL_MAGIC) {
            return Err(UstFormatError::Magic { what: "control file" });
        }
        let version = take.u32().ok_or(short)?;
        if version != VERSION {
            return Err(UstFormatError::Version { found: version });
        }
        let mut read = || -> Option<Self> {
            Some(Self {
                pid: take.u32()?,
                start_time: take.u64()?,
                uid: take.u32()?,
                capacity: take.u32()?,
                enable: take.u32()?,
                table: take.u32()?,
                table_bytes: take.u64()?,
                events: take.u32()?,
                refused: take.u32()?,
                uuid: take.bytes(16)?.try_into().ok()?,
                page: take.u32()?,
                clock: bytes[80..128].try_into().ok()?,
                comm: until_nul(&bytes[128..144]).to_vec(),
                exe: until_nul(&bytes[144..400]).to_vec(),
            })
        };
        let control = read().ok_or(short)?;
        let order = Take(&bytes[76..]).u32();
        let field = |name, ok: bool, value: u64| {
            if ok { Ok(()) } else { Err(UstFormatError::Field { name, value }) }
        };
        field("byte order mark", order == Some(1), order.unwrap_or(0).into())?;
        field("capacity", control.capacity <= MAX_EVENTS, control.capacity.into())?;
        field("number of events", control.events <= control.capacity, control.events.into())?;
        let words_end = u64::from(control.enable) + 8 * u64::from(control.capacity);
        let enable_ok = control.enable as usize >= CONTROL_HEADER
            && control.enable % 8 == 0
            && words_end <= file_size;
        field("enable words", enable_ok, control.enable.into())?;
        field("event table", u64::from(control.table) >= words_end, control.table.into())?;
        let table_end = u64::from(control.table).checked_add(control.table_bytes);
        let table_ok = table_end.is_some_and(|end| end <= file_size);
        field("event table size", table_ok, control.table_bytes)?;
        Ok(control)
    }
}

/// State of a slot, written by the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SlotState {
    /// Not in use.
    Free = 0,
    /// Being set up.
    Claimed = 1,
    /// In use.
    Active = 2,
    /// No new events; the ring can be drained.
    Stopped = 3,
}

/// State of a ring, reported by the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SlotAnswer {
    /// It is there.
    Ready = 1,
    /// It could not be made.
    Failed = 2,
    /// It was there, and another process has cut its file short.
    Cut = 3,
}

impl SlotAnswer {
    fn of(byte: u8) -> Option<Self> {
        [Self::Ready, Self::Failed, Self::Cut].into_iter().find(|answer| *answer as u8 == byte)
    }
}

/// A slot: one channel of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Counts up with each use.
    pub generation: u8,
    /// State written by the tool; unknown numbers are read as [`SlotState::Stopped`].
    pub state: SlotState,
    /// The generation that the program has answered.
    pub answered: u8,
    /// Answer of the program; none: a number that this version does not know.
    pub answer: Option<SlotAnswer>,
    /// Why it failed; 0: the order is malformed.
    pub errno: u32,
    /// Events lost because there is no ring.
    pub lost: u64,
    /// Events that a filter rejected.
    pub rejected: u64,
    /// Matching events whose filter does not fit them.
    pub unfit: u64,
    /// The configuration's path below the user's directory.
    pub path: Vec<u8>,
}

impl Slot {
    /// Answer of the program to the current generation, if any.
    pub fn answer_in_force(&self) -> Option<SlotAnswer> {
        self.answer.filter(|_| self.answered == self.generation)
    }

    /// From the bytes of a slot.
    ///
    /// # Errors
    /// Too few bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, UstFormatError> {
        let short = UstFormatError::Short { what: "slot", found: bytes.len() };
        let path = bytes.get(PATH_AT..PATH_AT + SLOT_PATH).ok_or(short)?;
        let mut take = Take(bytes);
        let mut read = || -> Option<Self> {
            Some(Self {
                generation: take.u8()?,
                state: match take.u8()? {
                    0 => SlotState::Free,
                    1 => SlotState::Claimed,
                    2 => SlotState::Active,
                    _ => SlotState::Stopped,
                },
                answered: take.u8()?,
                answer: SlotAnswer::of(take.u8()?),
                errno: take.u32()?,
                lost: take.u64()?,
                rejected: take.u64()?,
                unfit: take.u64()?,
                path: until_nul(path).to_vec(),
            })
        };
        read().ok_or(short)
    }

    /// Offset of the word on which the tool sleeps: four bytes, 1 and zeros while it does.
    pub const FUTEX_WORD_AT: usize = 32;
    /// Offset of the path in the bytes of a slot.
    pub const PATH_AT: usize = PATH_AT;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn control() -> Control {
        Control {
            pid: 7,
            start_time: 8,
            uid: 9,
            capacity: 256,
            enable: 4096,
            table: 4096 + 2048,
            table_bytes: 100,
            events: 3,
            refused: 0,
            uuid: [5; 16],
            page: 4096,
            clock: [1; 48],
            comm: b"shop".to_vec(),
            exe: b"/usr/bin/shop".to_vec(),
        }
    }

    fn bytes() -> Vec<u8> {
        let mut bytes = control().encode().to_vec();
        bytes[..8].copy_from_slice(&CONTROL_MAGIC);
        bytes
    }

    #[test]
    fn a_control_header_survives_its_bytes() {
        assert_eq!(Control::parse(&bytes(), 6244).unwrap(), control());
    }

    #[test]
    fn lies_are_found() {
        assert!(Control::parse(&bytes(), 6243).is_err());
        for (at, value) in [(0, 1), (8, 2), (29, 0x20), (33, 0), (37, 0), (46, 9), (49, 2), (76, 2)]
        {
            let mut lie = bytes();
            lie[at] = value;
            assert!(Control::parse(&lie, 6244).is_err(), "a change at {at} went unseen");
        }
    }
}
