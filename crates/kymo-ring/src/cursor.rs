//! Read position of an area: the reader stores it in the area's header, so that another one
//! continues where it stopped. Writers never read it.

use crate::layout::{Header, LayoutError, u64_at};

/// Offset of the reader's position in an area's header.
const CURSOR: usize = 192;

/// Read position of an area, and what has been reported of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCursor {
    /// Up to which place, in bytes produced since ever.
    pub pos: u64,
    /// Number of events before it; the largest number: not known.
    pub count: u64,
    /// No event before it is younger.
    pub until: u64,
    /// Packets handed out.
    pub handed_out: u64,
    /// Packets overwritten before they were read.
    pub overwritten: u64,
    /// Number of discarded events that have been reported.
    pub discarded: u64,
    /// Number of these that are larger than a sub-buffer.
    pub too_large: u64,
}

impl RingCursor {
    /// Bytes of the note.
    pub const SIZE: usize = 56;

    /// From the bytes of an area header.
    ///
    /// # Errors
    /// Too few bytes.
    pub fn parse(head: &[u8]) -> Result<Self, LayoutError> {
        let needed = CURSOR + Self::SIZE;
        let Some(bytes) = head.get(CURSOR..needed) else {
            let found = head.len() as u64;
            return Err(LayoutError::Short { needed: needed as u64, found });
        };
        let word = |i: usize| u64_at(bytes, 8 * i);
        Ok(Self {
            pos: word(0),
            count: word(1),
            until: word(2),
            handed_out: word(3),
            overwritten: word(4),
            discarded: word(5),
            too_large: word(6),
        })
    }

    /// The bytes of the note.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let words = [
            self.pos,
            self.count,
            self.until,
            self.handed_out,
            self.overwritten,
            self.discarded,
            self.too_large,
        ];
        let mut out = [0; Self::SIZE];
        for (to, word) in out.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        out
    }
}

impl Header {
    /// Offset of the reader's note of an area.
    pub fn cursor_offset(&self, area: u32) -> u64 {
        self.area_header_offset(area) + CURSOR as u64
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use crate::layout::AREA_HEADER;

    #[test]
    fn a_note_survives_its_bytes_and_lies_behind_what_writers_use() {
        let cursor = RingCursor {
            pos: 1,
            count: u64::MAX,
            until: 3,
            handed_out: 4,
            overwritten: 5,
            discarded: 6,
            too_large: 7,
        };
        let mut head = [0; AREA_HEADER];
        head[CURSOR..CURSOR + RingCursor::SIZE].copy_from_slice(&cursor.encode());
        assert_eq!(RingCursor::parse(&head).unwrap(), cursor);
        assert!(RingCursor::parse(&head[..CURSOR + 55]).is_err());
        assert_eq!(std::mem::offset_of!(crate::area::AreaHead, _line3), CURSOR);
    }
}
