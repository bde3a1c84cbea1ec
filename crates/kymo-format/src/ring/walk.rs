//! The records of a page, one after another.
//!
//! A record is a 32-bit word, five bits of `type_len` and 27 of time since the
//! record before, then what the type says: data of 4 to 112 bytes (1–28), data
//! with a length word (0), padding (29), 32 more bits of time (30), a time of
//! its own (31).

use kymo_model::Endian;

use super::layout::RingError;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of time in the first word.
const DELTA_BITS: u32 = 27;
/// A time of its own lacks the top five bits: those before it lend theirs.
const STAMP_MSB: u64 = 0xf8 << 56;

/// An event of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingEvent<'a> {
    /// Its time on the ring's clock.
    pub time: u64,
    /// Offset of the payload in the page.
    pub offset: usize,
    /// The event, from `common_type` on. The ring pads it to a multiple of four.
    pub payload: &'a [u8],
}

/// Walks the events of a page; see [`Page::events`](super::Page::events).
#[derive(Clone, Copy, Debug)]
pub struct Events<'a> {
    data: &'a [u8],
    pos: usize,
    start: usize,
    time: u64,
    endian: Endian,
}

impl<'a> Events<'a> {
    #[inline]
    pub(super) fn new(data: &'a [u8], start: usize, time: u64, endian: Endian) -> Self {
        Events { data, pos: 0, start, time, endian }
    }

    /// Offset of the next record from the start of the page. Together with [`time`](Self::time), it
    /// is enough to continue later.
    #[inline]
    pub fn position(&self) -> usize {
        self.start + self.pos
    }

    /// Time of the record before.
    #[inline]
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Continues where another walk over the same page stopped.
    #[inline]
    pub fn resume(mut self, position: usize, time: u64) -> Self {
        self.pos = position.saturating_sub(self.start).min(self.data.len());
        self.time = time;
        self
    }

    #[inline]
    fn word(&self, at: usize) -> Option<u32> {
        self.data.get(at..)?.first_chunk().map(|b| self.endian.u32(*b))
    }

    #[inline]
    fn split(&self, word: u32) -> (u32, u64) {
        match self.endian {
            Endian::Little => (word & 31, u64::from(word >> 5)),
            Endian::Big => (word >> DELTA_BITS, u64::from(word & ((1 << DELTA_BITS) - 1))),
        }
    }

    #[cold]
    fn broken(&mut self, kind: u32, needed: usize) -> RingError {
        let (offset, left) = (self.start + self.pos, self.data.len() - self.pos);
        self.pos = self.data.len();
        RingError::Record { offset, kind: kind as u8, needed, left }
    }

    /// Everything that is not plain data; `Ok(None)`: go on, or the end.
    #[inline(never)]
    fn other(&mut self, kind: u32, delta: u64) -> Result<Option<RingEvent<'a>>, RingError> {
        let Some(second) = self.word(self.pos + 4) else {
            if kind == PADDING && delta == 0 {
                self.pos = self.data.len();
                return Ok(None);
            }
            return Err(self.broken(kind, 8));
        };
        let long = (u64::from(second) << DELTA_BITS) | delta;
        match kind {
            TIME_EXTEND => {
                self.time = self.time.wrapping_add(long);
                self.pos += 8;
            }
            TIME_STAMP => {
                self.time = absolute(long, self.time);
                self.pos += 8;
            }
            // Nothing follows.
            PADDING if delta == 0 => self.pos = self.data.len(),
            PADDING => {
                let whole = (second as usize).saturating_add(4);
                if whole < 8 || whole > self.data.len() - self.pos {
                    return Err(self.broken(kind, whole));
                }
                // A discarded event: its time counts, but for the 1 that says "no end of page".
                if delta != 1 {
                    self.time = self.time.wrapping_add(delta);
                }
                self.pos += whole;
            }
            _ => {
                // The length word counts itself.
                let whole = (second as usize).saturating_add(4);
                let payload = self.data.get(self.pos + 8..self.pos.saturating_add(whole));
                let Some(payload) = payload else { return Err(self.broken(kind, whole)) };
                self.time = self.time.wrapping_add(delta);
                let offset = self.start + self.pos + 8;
                self.pos = (self.pos + whole.next_multiple_of(4)).min(self.data.len());
                return Ok(Some(RingEvent { time: self.time, offset, payload }));
            }
        }
        Ok(None)
    }
}

/// Gives a 59-bit time its top five bits, which the time before it had.
fn absolute(stamp: u64, before: u64) -> u64 {
    let top = before & STAMP_MSB;
    if top == 0 {
        return stamp;
    }
    let full = stamp | top;
    if full < before { full.wrapping_add(1 << 59) } else { full }
}

impl<'a> Iterator for Events<'a> {
    type Item = Result<RingEvent<'a>, RingError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let word = match self.word(self.pos) {
                Some(word) => word,
                None if self.pos >= self.data.len() => return None,
                None => return Some(Err(self.broken(0, 4))),
            };
            let (kind, delta) = self.split(word);
            if kind.wrapping_sub(1) < 28 {
                let at = self.pos + 4;
                let len = kind as usize * 4;
                let Some(payload) = self.data.get(at..at + len) else {
                    return Some(Err(self.broken(kind, 4 + len)));
                };
                self.time = self.time.wrapping_add(delta);
                self.pos = at + len;
                let offset = self.start + at;
                return Some(Ok(RingEvent { time: self.time, offset, payload }));
            }
            match self.other(kind, delta) {
                Ok(None) => {}
                Ok(Some(event)) => return Some(Ok(event)),
                Err(e) => return Some(Err(e)),
            }
        }
    }
}
