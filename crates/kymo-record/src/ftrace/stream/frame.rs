//! The frames on the wire between `kymo trace -o tcp://…` and `kymo listen`.
//! Bytes of the other side are data to be checked: every length has a limit that
//! is tested before anything is allocated.
//!
//! A frame is a header of 16 bytes and a payload, all little endian:
//!
//! ```text
//! 0  kind: u8     what follows
//! 1  zero: u8
//! 2  stream: u16  index of a CPU's stream, for PAGES
//! 4  len: u32     bytes of payload
//! 8  position: u64  byte position in the stream (PAGES) or the trace header (HEADER)
//! ```

use std::io::{self, Read};

use super::super::trace_header::{HeaderLayoutError, Layout, MAX_STREAMS};

/// First bytes of either side; the last one is the protocol's version.
pub(super) const MAGIC: [u8; 8] = *b"kymostr\x01";
/// Bytes of a header.
pub(super) const HEADER: usize = 16;
/// The longest payload of pages or of a piece of a trace header.
pub(super) const MAX_DATA: u32 = 16 << 20;
/// The longest trace header: event formats and kernel symbols are a tenth of it.
pub(super) const MAX_TRACE_HEADER: u64 = 256 << 20;
/// The longest payload of any other kind.
const MAX_WORDS: u32 = 256 << 10;
/// The longest name or message.
const MAX_TEXT: usize = 1024;

/// Content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FrameKind {
    /// The recording's [`Begin`].
    Begin = 1,
    /// A piece of the trace header.
    TraceHeader = 2,
    /// Whole ring pages of one stream.
    Pages = 3,
    /// Nothing; the sender is alive.
    Alive = 4,
    /// [`Begin`] of the final trace header, which follows in pieces.
    Final = 5,
    /// The recording is complete: `u64` sent per stream.
    End = 6,
    /// The listener is ready: the directory's name.
    Ready = 16,
    /// `u64` stored per stream.
    Ack = 17,
    /// The file is complete: `u64` stored per stream.
    Done = 18,
    /// The listener gives up: why.
    Refused = 19,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<FrameKind> {
        use FrameKind::*;
        [Begin, TraceHeader, Pages, Alive, Final, End, Ready, Ack, Done, Refused]
            .into_iter()
            .find(|k| *k as u8 == byte)
    }

    fn longest(self) -> u32 {
        match self {
            FrameKind::TraceHeader | FrameKind::Pages => MAX_DATA,
            FrameKind::Alive => 0,
            FrameKind::Ready | FrameKind::Refused => MAX_TEXT as u32,
            FrameKind::Begin
            | FrameKind::Final
            | FrameKind::End
            | FrameKind::Ack
            | FrameKind::Done => MAX_WORDS,
        }
    }
}

/// The other side broke the rules.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ProtocolError {
    #[error("the other side does not speak this protocol (it began with {0:02x?})")]
    Magic([u8; 8]),
    #[error("unknown frame kind {0}")]
    FrameKind(u8),
    #[error("a frame of kind {kind} with {len} bytes, more than {most}")]
    Length { kind: u8, len: u32, most: u32 },
    #[error("a frame of kind {0} is out of place")]
    Order(u8),
    #[error("a {what} of {len} bytes is cut short")]
    Short { what: &'static str, len: usize },
    #[error("a header of {0} bytes; the limit is {MAX_TRACE_HEADER}")]
    TraceHeader(u64),
    #[error("a piece of the header for byte {at}, not {expected}")]
    FrontPlace { at: u64, expected: u64 },
    #[error("pages for stream {stream} of {streams}")]
    Stream { stream: u16, streams: usize },
    #[error("{len} bytes for byte {at} of stream {stream}, which has {stored}")]
    Place { stream: u16, at: u64, len: u32, stored: u64 },
    #[error("the sender claims to have sent {said} bytes in stream {stream}, but {stored} arrived")]
    Total { stream: usize, said: u64, stored: u64 },
    #[error(transparent)]
    Layout(#[from] HeaderLayoutError),
}

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: FrameKind,
    pub(super) stream: u16,
    pub(super) len: u32,
    pub(super) position: u64,
}

impl Header {
    /// A header of a frame without stream and position.
    pub(super) fn plain(kind: FrameKind, len: usize) -> Header {
        Header { kind, stream: 0, len: u32::try_from(len).unwrap_or(u32::MAX), position: 0 }
    }

    pub(super) fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = self.kind as u8;
        bytes[2..4].copy_from_slice(&self.stream.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..].copy_from_slice(&self.position.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: [u8; HEADER]) -> Result<Header, ProtocolError> {
        let [k, _, s0, s1, l0, l1, l2, l3, position @ ..] = bytes;
        let kind = FrameKind::from_byte(k).ok_or(ProtocolError::FrameKind(k))?;
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        if len > kind.longest() {
            return Err(ProtocolError::Length { kind: k, len, most: kind.longest() });
        }
        let stream = u16::from_le_bytes([s0, s1]);
        Ok(Header { kind, stream, len, position: u64::from_le_bytes(position) })
    }
}

/// A frame as bytes.
pub(super) fn frame(kind: FrameKind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Header::plain(kind, payload.len()).encode().to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

/// Reads a payload whose header has been checked.
pub(super) fn payload(from: &mut impl Read, header: Header) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; header.len as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Start of a recording: its name and the layout of its trace header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Begin {
    pub(super) name: String,
    pub(super) layout: Layout,
}

impl Begin {
    /// `trace header length u64, page size u32, flags u32 (1: big endian), place of the
    /// section's size u64 (or all ones), streams u32, slot u64 each, name`.
    pub(super) fn encode(&self) -> Vec<u8> {
        let l = &self.layout;
        let mut out = l.len.to_le_bytes().to_vec();
        out.extend_from_slice(&l.page_size.to_le_bytes());
        out.extend_from_slice(&u32::from(l.big_endian).to_le_bytes());
        out.extend_from_slice(&l.section_size.unwrap_or(u64::MAX).to_le_bytes());
        out.extend_from_slice(&(l.slots.len() as u32).to_le_bytes());
        l.slots.iter().for_each(|s| out.extend_from_slice(&s.to_le_bytes()));
        out.extend(self.name.bytes().take(MAX_TEXT));
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Begin, ProtocolError> {
        let short = ProtocolError::Short { what: "description of the recording", len: bytes.len() };
        let decode = || {
            let (len, rest) = bytes.split_first_chunk::<8>()?;
            let (page_size, rest) = rest.split_first_chunk::<4>()?;
            let (flags, rest) = rest.split_first_chunk::<4>()?;
            let (section, rest) = rest.split_first_chunk::<8>()?;
            let (streams, rest) = rest.split_first_chunk::<4>()?;
            let streams = u32::from_le_bytes(*streams) as usize;
            // A wrong number is found by the check of the layout.
            let (slots, name) = rest.split_at_checked(streams.min(MAX_STREAMS + 1) * 8)?;
            let (slots, _) = slots.as_chunks::<8>();
            let layout = Layout {
                len: u64::from_le_bytes(*len),
                slots: slots.iter().map(|s| u64::from_le_bytes(*s)).collect(),
                section_size: Some(u64::from_le_bytes(*section)).filter(|at| *at != u64::MAX),
                big_endian: u32::from_le_bytes(*flags) & 1 != 0,
                page_size: u32::from_le_bytes(*page_size),
            };
            let name = name.get(..name.len().min(MAX_TEXT))?;
            Some(Begin { name: String::from_utf8_lossy(name).into_owned(), layout })
        };
        let begin = decode().ok_or(short)?;
        if begin.layout.len > MAX_TRACE_HEADER {
            return Err(ProtocolError::TraceHeader(begin.layout.len));
        }
        begin.layout.check()?;
        Ok(begin)
    }
}

/// `u64` for each stream.
pub(super) fn totals(values: impl IntoIterator<Item = u64>) -> Vec<u8> {
    values.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The `u64` of each of `streams` streams.
pub(super) fn totals_of(bytes: &[u8], streams: usize) -> Result<Vec<u64>, ProtocolError> {
    let (chunks, rest) = bytes.as_chunks::<8>();
    if chunks.len() != streams || !rest.is_empty() {
        return Err(ProtocolError::Short { what: "list of totals", len: bytes.len() });
    }
    Ok(chunks.iter().map(|c| u64::from_le_bytes(*c)).collect())
}

/// A text of the other side, fit for a terminal.
pub(super) fn text(bytes: &[u8]) -> String {
    let bytes = bytes.get(..bytes.len().min(MAX_TEXT)).unwrap_or_default();
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin() -> Begin {
        Begin {
            name: "a host".into(),
            layout: Layout {
                len: 100,
                slots: vec![8, 80],
                section_size: Some(30),
                big_endian: true,
                page_size: 8192,
            },
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let h = Header { kind: FrameKind::Pages, stream: 7, len: 4096, position: 1 << 40 };
        assert_eq!(Header::decode(h.encode()), Ok(h));
        assert_eq!(Begin::decode(&begin().encode()), Ok(begin()));
        assert_eq!(totals_of(&totals([1, u64::MAX]), 2), Ok(vec![1, u64::MAX]));
    }

    #[test]
    fn every_cut_and_every_lie_is_an_error() {
        let good = begin().encode();
        for n in 0..good.len() - begin().name.len() {
            assert!(matches!(Begin::decode(&good[..n]), Err(ProtocolError::Short { .. })), "{n}");
        }
        let with = |at: usize, bytes: &[u8]| {
            let mut b = good.clone();
            b[at..at + bytes.len()].copy_from_slice(bytes);
            Begin::decode(&b).unwrap_err()
        };
        assert_eq!(with(0, &u64::MAX.to_le_bytes()), ProtocolError::TraceHeader(u64::MAX));
        assert!(matches!(with(8, &0u32.to_le_bytes()), ProtocolError::Layout(_)));
        assert!(matches!(with(24, &0u32.to_le_bytes()), ProtocolError::Layout(_)));
        assert!(matches!(with(24, &u32::MAX.to_le_bytes()), ProtocolError::Short { .. }));
        assert!(matches!(with(28, &85u64.to_le_bytes()), ProtocolError::Layout(_)));
        assert!(totals_of(&[0; 15], 2).is_err());
        assert!(totals_of(&[0; 24], 2).is_err());
    }

    #[test]
    fn headers_from_elsewhere() {
        let mut bytes = Header::plain(FrameKind::Pages, 4096).encode();
        bytes[0] = 99;
        assert_eq!(Header::decode(bytes), Err(ProtocolError::FrameKind(99)));
        bytes[0] = FrameKind::Ack as u8;
        bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(Header::decode(bytes), Err(ProtocolError::Length { kind: 17, .. })));
        assert_eq!(text(b"no\x1b[2Jroom\n"), "no?[2Jroom?");
    }
}
