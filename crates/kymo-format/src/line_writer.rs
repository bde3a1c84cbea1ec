//! Writes lines into bytes that are already there: a piece of text or a number is stored
//! with one move of a fixed size, most of the time, and what is too much of it is
//! overwritten by the next.

use crate::digits::{self, EIGHT, ZEROS, eight};

/// Appends text and numbers to a vector. [`LineWriter::finish`] takes away what was not written.
#[derive(Debug)]
pub struct LineWriter<'o> {
    out: &'o mut Vec<u8>,
    at: usize,
    /// Size of the next reservation.
    step: usize,
    /// Text on its way in [`buffered`](LineWriter::buffered).
    scratch: Vec<u8>,
}

/// The room that is made at first and at most.
const STEPS: (usize, usize) = (128, 32 << 10);

impl<'o> LineWriter<'o> {
    /// Writes behind what is there.
    pub fn new(out: &'o mut Vec<u8>) -> LineWriter<'o> {
        let at = out.len();
        LineWriter { out, at, step: STEPS.0, scratch: Vec::new() }
    }

    /// Place of what is written next, to [rewind](LineWriter::rewind) to.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Forgets what was written since.
    pub fn rewind(&mut self, place: usize) {
        self.at = place;
    }

    /// Takes away what was not written.
    pub fn finish(self) {
        self.out.truncate(self.at);
    }

    /// Writes the first `len` of some bytes.
    #[inline]
    pub fn write_prefix<const N: usize>(&mut self, bytes: &[u8; N], len: usize) {
        if self.out.len() - self.at < N {
            self.grow(N);
        }
        // Of a size that the compiler knows: no call copies them.
        if let Some(place) = self.out.get_mut(self.at..).and_then(|room| room.first_chunk_mut()) {
            *place = *bytes;
        }
        self.at += len.min(N);
    }

    /// Writes text.
    #[inline]
    pub fn text(&mut self, text: &[u8]) {
        if self.out.len() - self.at < text.len() {
            self.grow(text.len());
        }
        if let Some(place) = self.out.get_mut(self.at..self.at + text.len()) {
            place.copy_from_slice(text);
        }
        self.at += text.len();
    }

    /// Writes what `write` appends to a vector of its own.
    pub fn buffered<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let result = write(&mut scratch);
        self.text(&scratch);
        self.scratch = scratch;
        result
    }

    /// Writes a number.
    #[inline]
    pub fn decimal(&mut self, n: u64) {
        match u32::try_from(n) {
            Ok(n) if n < EIGHT => self.few(n),
            _ => self.many(n),
        }
    }

    /// Writes a number with its sign.
    #[inline]
    pub fn signed(&mut self, n: i64) {
        // Overwritten if it is none.
        self.write_prefix(b"-", usize::from(n < 0));
        self.decimal(n.unsigned_abs());
    }

    /// A number of at most eight digits.
    #[inline]
    fn few(&mut self, n: u32) {
        let digits = eight(n);
        // Bytes before the first that counts; the last one does.
        let zeros = (digits | 1 << 56).trailing_zeros() / 8;
        let text = (digits | ZEROS) >> (8 * zeros);
        self.write_prefix(&text.to_le_bytes(), 8 - zeros as usize);
    }

    #[inline(never)]
    fn many(&mut self, n: u64) {
        let (high, low) = (n / u64::from(EIGHT), (n % u64::from(EIGHT)) as u32);
        self.decimal(high);
        self.write_prefix(&(eight(low) | ZEROS).to_le_bytes(), 8);
    }

    /// Writes six digits, a colon and a blank.
    #[inline]
    pub fn micros(&mut self, n: u32) {
        self.write_prefix(&digits::micros(n), 8);
    }

    /// Writes nine digits.
    #[inline]
    pub fn nanos(&mut self, n: u32) {
        self.write_prefix(&digits::nanos(n), 9);
    }

    /// Writes a number in hexadecimal, zeros before it up to `least` digits (at most 16).
    #[inline]
    pub fn hex(&mut self, n: u64, least: usize) {
        let (text, digits) = digits::hex(n, least);
        if digits <= 8 {
            // One move of eight bytes is enough for most.
            if let Some(text) = text.first_chunk::<8>() {
                return self.write_prefix(text, digits);
            }
        }
        self.write_prefix(&text, digits);
    }

    /// Makes room for at least that number of bytes.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, bytes: usize) {
        self.out.resize(self.at + bytes + self.step, 0);
        self.step = (2 * self.step).min(STEPS.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(write: impl FnOnce(&mut LineWriter<'_>)) -> String {
        let mut out = b">".to_vec();
        let mut line = LineWriter::new(&mut out);
        write(&mut line);
        line.finish();
        String::from_utf8(out.split_off(1)).unwrap()
    }

    /// Numbers beside every power of both bases, and many others.
    fn numbers() -> impl Iterator<Item = u64> {
        let around = |n: u64| [n.wrapping_sub(1), n, n.wrapping_add(1)];
        let tens = (0..20).map(|p| 10u64.pow(p));
        let twos = (0..64).map(|p| 1u64 << p);
        let some = (0..200_000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (n % 64));
        tens.chain(twos).flat_map(around).chain(some).chain(0..20_000)
    }

    #[test]
    fn numbers_are_those_of_the_formatting_machinery() {
        for n in numbers() {
            assert_eq!(of(|p| p.decimal(n)), n.to_string());
            assert_eq!(of(|p| p.signed(n as i64)), (n as i64).to_string());
            assert_eq!(of(|p| p.hex(n, 0)), format!("{n:x}"));
            let least = (n % 19) as usize;
            assert_eq!(of(|p| p.hex(n, least)), format!("{n:0least$x}", least = least.min(16)));
        }
        for n in (0..1_000_000).step_by(7).chain([999_999]) {
            assert_eq!(of(|p| p.micros(n)), format!("{n:06}: "));
            assert_eq!(of(|p| p.nanos(n * 1000 + n % 1000)), format!("{:09}", n * 1000 + n % 1000));
        }
    }

    #[test]
    fn text_of_any_length_finds_room_and_can_be_taken_back() {
        let long = "x".repeat(100_000);
        let text = of(|p| {
            p.text(b"ab");
            let place = p.position();
            p.text(long.as_bytes());
            p.rewind(place);
            for _ in 0..1000 {
                p.write_prefix(b"cdef", 3);
            }
            p.text(long.as_bytes());
        });
        assert_eq!(text, format!("ab{}{long}", "cde".repeat(1000)));
        assert_eq!(of(|_| {}), "");
    }
}
