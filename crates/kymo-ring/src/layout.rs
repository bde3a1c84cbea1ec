//! Layout of a ring file, and its headers as bytes. No shared memory is touched here: readers pass
//! in what they have copied.

use std::fmt;

use crate::clock::ClockFacts;

pub(crate) const FAILED: u32 = 3;

/// Bytes of the file header, before the area headers.
pub const RING_HEADER: usize = 4096;
/// Bytes of an area header.
pub const AREA_HEADER: usize = 256;
/// Bytes of a packet before its first event.
pub const CONTEXT_END: usize = 104;
/// Smallest sub-buffer.
pub const MIN_SUB_BUFFER: u32 = 4096;
/// Largest sub-buffer.
pub const MAX_SUB_BUFFER: u32 = 64 << 20;
/// Most sub-buffers of an area.
pub const MAX_SUB_BUFFERS: u32 = 64;
/// Most areas of a ring.
pub const MAX_AREAS: u32 = 8194;
/// Bytes before a payload that belong to the ring: event headers are made there.
pub const HEADROOM: usize = 16;
/// Bytes after a payload that may be read (and written into the ring, beyond its end).
pub const SLACK: usize = 8;
/// Bytes of a sub-buffer that no event can use: context, headers, and the slack after them.
pub const MAX_UNWRITTEN: usize = CONTEXT_END + 40;

const MAGIC: &[u8; 8] = b"KYMORING";
const VERSION: u32 = 1;
const PACKET_MAGIC: u32 = 0xC1FC_1FC1;
const PAGE: u64 = 4096;

/// Behavior of a full ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// New events are dropped and counted.
    Discard,
    /// The oldest packet is overwritten: a flight recorder.
    Overwrite,
}

/// Configuration of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Behavior when the ring is full.
    pub mode: Mode,
    /// Areas that belong to the CPU of their number, written by restartable sequences.
    pub cpu_areas: u32,
    /// Areas without a CPU, after them.
    pub shared_areas: u32,
    /// Bytes of a sub-buffer: a power of two.
    pub sub_buffer: u32,
    /// Sub-buffers of an area: a power of two.
    pub sub_buffers: u32,
    /// Stream id in packets.
    pub stream: u32,
    /// Trace uuid in packets.
    pub uuid: [u8; 16],
    /// Relation of ticks to the kernel's clocks.
    pub clock: ClockFacts,
}

/// The header of a ring, checked.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    config: Config,
}

/// Why bytes are not a ring, area or packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// Fewer bytes than the structure has.
    Short {
        /// Bytes needed.
        needed: u64,
        /// Bytes there.
        found: u64,
    },
    /// Not the magic number.
    Magic {
        /// Offset of the magic number.
        offset: u64,
    },
    /// A version this code does not know.
    Version {
        /// The version.
        found: u32,
    },
    /// A field holds what it cannot.
    Field {
        /// Its name in the specification.
        name: &'static str,
        /// Value of the field.
        value: u64,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { needed, found } => write!(f, "{found} bytes where {needed} are needed"),
            Self::Magic { offset } => write!(f, "no magic number at offset {offset}"),
            Self::Version { found } => write!(f, "version {found} of the layout is unknown"),
            Self::Field { name, value } => write!(f, "{name} cannot be {value}"),
        }
    }
}

impl std::error::Error for LayoutError {}

impl Header {
    /// Checks what a ring is to be.
    ///
    /// # Errors
    /// A value outside the limits of the specification.
    pub fn new(config: Config) -> Result<Self, LayoutError> {
        let field = |name, ok: bool, value: u64| {
            if ok { Ok(()) } else { Err(LayoutError::Field { name, value }) }
        };
        let size = config.sub_buffer;
        let size_ok = size.is_power_of_two() && (MIN_SUB_BUFFER..=MAX_SUB_BUFFER).contains(&size);
        field("sub-buffer size", size_ok, size.into())?;
        let count = config.sub_buffers;
        let count_ok = count.is_power_of_two() && (2..=MAX_SUB_BUFFERS).contains(&count);
        field("number of sub-buffers", count_ok, count.into())?;
        let areas = u64::from(config.cpu_areas) + u64::from(config.shared_areas);
        field("number of areas", (1..=u64::from(MAX_AREAS)).contains(&areas), areas)?;
        Ok(Self { config })
    }

    /// Configuration of the ring.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Number of areas.
    pub fn areas(&self) -> u32 {
        self.config.cpu_areas + self.config.shared_areas
    }

    /// Bytes of the sub-buffers of one area.
    pub fn area_size(&self) -> u64 {
        u64::from(self.config.sub_buffer) * u64::from(self.config.sub_buffers)
    }

    /// Offset of the sub-buffers of the first area.
    pub fn data_offset(&self) -> u64 {
        let heads = RING_HEADER as u64 + u64::from(self.areas()) * AREA_HEADER as u64;
        heads.div_ceil(PAGE) * PAGE
    }

    /// Bytes of the whole file.
    pub fn file_size(&self) -> u64 {
        self.data_offset() + self.area_size() * u64::from(self.areas())
    }

    /// Offset of an area's header.
    pub fn area_header_offset(&self, area: u32) -> u64 {
        RING_HEADER as u64 + u64::from(area) * AREA_HEADER as u64
    }

    /// Offset of an area's sub-buffers.
    pub fn area_offset(&self, area: u32) -> u64 {
        self.data_offset() + u64::from(area) * self.area_size()
    }

    /// Offset of the sub-buffer that holds packet number `packet` of an area.
    pub fn packet_offset(&self, area: u32, packet: u64) -> u64 {
        let index = packet % u64::from(self.config.sub_buffers);
        self.area_offset(area) + index * u64::from(self.config.sub_buffer)
    }

    /// Offset of the `taken` byte of the sub-buffer that holds packet number `packet`.
    pub fn taken_offset(&self, area: u32, packet: u64) -> u64 {
        let index = packet % u64::from(self.config.sub_buffers);
        self.area_header_offset(area) + TAKEN as u64 + index
    }

    /// Value that the reader writes there when it has taken the packet.
    pub fn taken_value(&self, packet: u64) -> u8 {
        ((packet / u64::from(self.config.sub_buffers)) as u8).wrapping_add(1)
    }

    /// The bytes before the area headers, but for the magic number, which
    /// [`Header::MAGIC`] is written last.
    pub fn encode(&self) -> [u8; 128] {
        let c = &self.config;
        let mut out = [0; 128];
        let mode = match c.mode {
            Mode::Discard => 0,
            Mode::Overwrite => 1,
        };
        let halves = [
            VERSION,
            mode,
            self.areas(),
            c.cpu_areas,
            c.sub_buffer,
            c.sub_buffers,
            c.stream,
            AREA_HEADER as u32,
        ];
        for (i, half) in halves.iter().enumerate() {
            out[8 + 4 * i..12 + 4 * i].copy_from_slice(&half.to_le_bytes());
        }
        let words = [RING_HEADER as u64, self.data_offset(), self.area_size()];
        for (i, word) in words.iter().enumerate() {
            out[40 + 8 * i..48 + 8 * i].copy_from_slice(&word.to_le_bytes());
        }
        out[64..80].copy_from_slice(&c.uuid);
        out[80..128].copy_from_slice(&c.clock.encode());
        out
    }

    /// The magic number at the start of a finished ring.
    pub const MAGIC: [u8; 8] = *MAGIC;

    /// The header of a ring file of `file_size` bytes, from its first 128.
    ///
    /// # Errors
    /// If it is invalid; all its offsets lie within the file.
    pub fn parse(bytes: &[u8], file_size: u64) -> Result<Self, LayoutError> {
        if bytes.len() < 128 {
            return Err(LayoutError::Short { needed: 128, found: bytes.len() as u64 });
        }
        if &bytes[..8] != MAGIC {
            return Err(LayoutError::Magic { offset: 0 });
        }
        let half = |at: usize| u32_at(bytes, at);
        let version = half(8);
        if version != VERSION {
            return Err(LayoutError::Version { found: version });
        }
        let field = |name, value: u64| LayoutError::Field { name, value };
        let mode = match half(12) {
            0 => Mode::Discard,
            1 => Mode::Overwrite,
            other => return Err(field("mode", other.into())),
        };
        let (areas, cpu_areas) = (half(16), half(20));
        let shared_areas =
            areas.checked_sub(cpu_areas).ok_or(field("areas of CPUs", cpu_areas.into()))?;
        let clock = ClockFacts::parse(&bytes[80..128]).ok_or(field("clock", half(80).into()))?;
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&bytes[64..80]);
        let header = Self::new(Config {
            mode,
            cpu_areas,
            shared_areas,
            sub_buffer: half(24),
            sub_buffers: half(28),
            stream: half(32),
            uuid,
            clock,
        })?;
        let told = [u64::from(half(36)), u64_at(bytes, 40), u64_at(bytes, 48), u64_at(bytes, 56)];
        let due =
            [AREA_HEADER as u64, RING_HEADER as u64, header.data_offset(), header.area_size()];
        for (told, due) in told.into_iter().zip(due) {
            if told != due {
                return Err(field("place of areas", told));
            }
        }
        if file_size < header.file_size() {
            return Err(LayoutError::Short { needed: header.file_size(), found: file_size });
        }
        Ok(header)
    }

    /// The context of packet number `packet`, from the bytes at its offset, if it is that
    /// packet.
    ///
    /// # Errors
    /// It is another packet, or none.
    pub fn check_packet(&self, bytes: &[u8], packet: u64) -> Result<Context, LayoutError> {
        let context = Context::parse(bytes)?;
        let field = |name, value: u64| LayoutError::Field { name, value };
        if bytes[4..20] != self.config.uuid {
            return Err(field("packet uuid", u64_at(bytes, 4)));
        }
        if u32_at(bytes, 20) != self.config.stream {
            return Err(field("packet stream", u32_at(bytes, 20).into()));
        }
        if context.packet != packet {
            return Err(field("packet number", context.packet));
        }
        Ok(context)
    }
}

const TAKEN: usize = 128;

/// A copy of an area's header.
#[derive(Clone, Copy, Debug)]
pub struct AreaState {
    /// Bytes produced since ever.
    pub pos: u64,
    /// Events written since ever.
    pub count: u64,
    /// No event is younger.
    pub last: u64,
    /// The area has been used.
    pub used: bool,
    /// There was no memory for it.
    pub failed: bool,
    /// Events discarded since ever.
    pub discarded: u64,
    /// Number of these that are larger than a sub-buffer.
    pub too_large: u64,
    /// Values that the reader has written into `taken`.
    pub taken: [u8; MAX_SUB_BUFFERS as usize],
}

impl AreaState {
    /// From the bytes of an area header.
    ///
    /// # Errors
    /// Too few bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, LayoutError> {
        if bytes.len() < AREA_HEADER {
            let found = bytes.len() as u64;
            return Err(LayoutError::Short { needed: AREA_HEADER as u64, found });
        }
        let mut taken = [0; MAX_SUB_BUFFERS as usize];
        taken.copy_from_slice(&bytes[TAKEN..TAKEN + MAX_SUB_BUFFERS as usize]);
        let pos = u64_at(bytes, 0);
        Ok(Self {
            pos,
            count: u64_at(bytes, 8),
            last: u64_at(bytes, 24),
            used: pos != 0,
            failed: u32_at(bytes, 32) == FAILED,
            discarded: u64_at(bytes, 64),
            too_large: u64_at(bytes, 72),
            taken,
        })
    }
}

/// Contents of a packet's context, and its stream id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Stream id, from the packet header.
    pub stream: u32,
    /// Number of the packet in its stream.
    pub packet: u64,
    /// Ticks.
    pub begin: u64,
    /// Ticks.
    pub end: u64,
    /// Bits that hold something.
    pub content_bits: u64,
    /// Bits in all.
    pub packet_bits: u64,
    /// Events discarded since ever, up to the end of the packet.
    pub discarded: u64,
    /// Events of this stream before the packet.
    pub before: u64,
    /// Total events overwritten, at its start.
    pub overwritten: u64,
    /// `CLOCK_MONOTONIC` at `begin`, nanoseconds.
    pub monotonic: u64,
    /// Bound of its error, nanoseconds.
    pub error_ns: u32,
    /// The CPU, -1 if there is none.
    pub cpu: i32,
}

impl Context {
    /// From the first bytes of a packet.
    ///
    /// # Errors
    /// Too few bytes, or no packet.
    pub fn parse(bytes: &[u8]) -> Result<Self, LayoutError> {
        if bytes.len() < CONTEXT_END {
            let found = bytes.len() as u64;
            return Err(LayoutError::Short { needed: CONTEXT_END as u64, found });
        }
        if u32_at(bytes, 0) != PACKET_MAGIC {
            return Err(LayoutError::Magic { offset: 0 });
        }
        let word = |at| u64_at(bytes, at);
        Ok(Self {
            stream: u32_at(bytes, 20),
            packet: word(24),
            begin: word(32),
            end: word(40),
            content_bits: word(48),
            packet_bits: word(56),
            discarded: word(64),
            before: word(72),
            overwritten: word(80),
            monotonic: word(88),
            error_ns: u32_at(bytes, 96),
            cpu: u32_at(bytes, 100) as i32,
        })
    }

    /// The first bytes of the packet.
    pub fn encode(&self, uuid: &[u8; 16]) -> [u8; CONTEXT_END] {
        let mut out = [0; CONTEXT_END];
        out[0..4].copy_from_slice(&PACKET_MAGIC.to_le_bytes());
        out[4..20].copy_from_slice(uuid);
        out[20..24].copy_from_slice(&self.stream.to_le_bytes());
        let words = [
            self.packet,
            self.begin,
            self.end,
            self.content_bits,
            self.packet_bits,
            self.discarded,
            self.before,
            self.overwritten,
            self.monotonic,
        ];
        for (i, word) in words.iter().enumerate() {
            out[24 + 8 * i..32 + 8 * i].copy_from_slice(&word.to_le_bytes());
        }
        out[96..100].copy_from_slice(&self.error_ns.to_le_bytes());
        out[100..104].copy_from_slice(&self.cpu.to_le_bytes());
        out
    }
}

/// Callers have checked that the bytes are there.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use crate::clock::Clock;

    fn config() -> Config {
        Config {
            mode: Mode::Overwrite,
            cpu_areas: 2,
            shared_areas: 3,
            sub_buffer: 8192,
            sub_buffers: 4,
            stream: 7,
            uuid: *b"0123456789abcdef",
            clock: Clock::Monotonic.facts(None),
        }
    }

    fn bytes() -> Vec<u8> {
        let mut bytes = Header::new(config()).unwrap().encode().to_vec();
        bytes[..8].copy_from_slice(&Header::MAGIC);
        bytes
    }

    #[test]
    fn a_header_survives_its_bytes() {
        let size = 8192 + 5 * 4 * 8192;
        let bytes = bytes();
        let header = Header::parse(&bytes, size).unwrap();
        assert_eq!(header.file_size(), size);
        assert_eq!(header.data_offset(), 8192);
        assert_eq!(header.packet_offset(1, 6), 8192 + 4 * 8192 + 2 * 8192);
        assert_eq!(header.taken_offset(1, 6), 4096 + 256 + 128 + 2);
        assert_eq!(header.taken_value(6), 2);
        assert_eq!(header.encode()[8..], bytes[8..]);
    }

    #[test]
    fn every_lie_of_a_header_is_found() {
        let size = 8192 + 5 * 4 * 8192;
        // Version, mode, areas, areas of CPUs, sizes, stride, places, clock.
        for at in [0, 8, 12, 18, 23, 24, 27, 28, 36, 40, 48, 56, 80] {
            let mut lie = bytes();
            lie[at] ^= 0x55;
            assert!(Header::parse(&lie, size).is_err(), "a change at {at} went unseen");
        }
        assert!(Header::parse(&bytes(), size - 1).is_err());
        assert!(Header::parse(&bytes()[..127], size).is_err());
    }

    #[test]
    fn a_context_survives_its_bytes() {
        let context = Context {
            stream: 3,
            packet: 9,
            begin: 10,
            end: 20,
            content_bits: 832,
            packet_bits: 65536,
            discarded: 1,
            before: 2,
            overwritten: 4,
            monotonic: 5,
            error_ns: 6,
            cpu: -1,
        };
        let bytes = context.encode(&[9; 16]);
        assert_eq!(Context::parse(&bytes), Ok(context));
        assert!(Context::parse(&bytes[..103]).is_err());
    }
}
