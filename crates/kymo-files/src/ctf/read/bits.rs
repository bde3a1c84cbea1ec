//! A position in a packet, counted in bits, and the bytes around it.

use kymo_model::Endian;

/// Why a walk through bytes ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end before the value does.
    End,
    /// No option of a variant belongs to the value of its tag.
    NoOption,
    /// Endless rows of nothing.
    Empty,
    /// An integer of more than 64 bits.
    TooLarge,
}

impl DecodeError {
    pub(crate) fn what(self) -> &'static str {
        match self {
            DecodeError::End => "extends beyond the end of its packet",
            DecodeError::NoOption => "has a variant that no option is chosen for",
            DecodeError::Empty => "has too many elements without a size",
            DecodeError::TooLarge => "has an integer of more than 64 bits",
        }
    }
}

/// Bytes of the longest integer in LEB128 that may be of 64 bits.
const MOST_LEB128: usize = 10;

/// Some bytes of a packet. Places are counted from the packet's beginning, since
/// alignment is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits<'a> {
    bytes: &'a [u8],
    /// The place of the first of the bytes.
    base: u64,
    pub(crate) pos: u64,
    /// End of the content, or of the bytes, in bits from the packet's start.
    end: u64,
}

impl<'a> Bits<'a> {
    /// `base`, `pos` and `end` in bits; `base` is of a whole byte.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], base: u64, pos: u64, end: u64) -> Bits<'a> {
        let there = base.saturating_add((bytes.len() as u64).saturating_mul(8));
        Bits { bytes, base, pos, end: end.min(there) }
    }

    /// Moves to the next multiple of a power of two.
    #[inline]
    pub(crate) fn align(&mut self, to: u32) {
        let mask = u64::from(to.max(1)) - 1;
        self.pos = self.pos.saturating_add(mask) & !mask;
    }

    /// Remaining bytes from a byte boundary.
    #[inline]
    fn tail(&self) -> &'a [u8] {
        let from = (self.pos.saturating_sub(self.base) / 8) as usize;
        let to = (self.end.saturating_sub(self.base) / 8) as usize;
        self.bytes.get(from..to).unwrap_or(&[])
    }

    #[inline]
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let chunk = *self.tail().first_chunk::<N>().ok_or(DecodeError::End)?;
        self.pos += 8 * N as u64;
        Ok(chunk)
    }

    /// An unsigned integer of a layout.
    #[inline]
    pub(crate) fn load(&mut self, load: Load, size: u32) -> Result<u64, DecodeError> {
        Ok(match load {
            Load::U8 => u64::from(u8::from_le_bytes(self.chunk()?)),
            Load::Le16 => u64::from(u16::from_le_bytes(self.chunk()?)),
            Load::Le32 => u64::from(u32::from_le_bytes(self.chunk()?)),
            Load::Le64 => u64::from_le_bytes(self.chunk()?),
            Load::Be16 => u64::from(u16::from_be_bytes(self.chunk()?)),
            Load::Be32 => u64::from(u32::from_be_bytes(self.chunk()?)),
            Load::Be64 => u64::from_be_bytes(self.chunk()?),
            Load::LeBits => return self.bits(size, Endian::Little),
            Load::BeBits => return self.bits(size, Endian::Big),
            Load::LeReversed => return self.reversed(size, Endian::Little),
            Load::BeReversed => return self.reversed(size, Endian::Big),
        })
    }

    /// Any 1 to 64 bits, which may lie across nine bytes.
    #[cold]
    #[inline(never)]
    fn bits(&mut self, size: u32, endian: Endian) -> Result<u64, DecodeError> {
        let end = self.pos.checked_add(u64::from(size)).filter(|e| *e <= self.end);
        let end = end.ok_or(DecodeError::End)?;
        let rel = self.pos.checked_sub(self.base).ok_or(DecodeError::End)?;
        let (from, shift) = ((rel / 8) as usize, (rel % 8) as u32);
        let bytes = (shift + size).div_ceil(8) as usize;
        let bytes = self.bytes.get(from..from + bytes).ok_or(DecodeError::End)?;
        let mut value = 0u128;
        for (i, b) in bytes.iter().enumerate() {
            match endian {
                Endian::Little => value |= u128::from(*b) << (8 * i),
                Endian::Big => value = value << 8 | u128::from(*b),
            }
        }
        let value = match endian {
            Endian::Little => value >> shift,
            Endian::Big => value >> (8 * bytes.len() as u32 - shift - size),
        };
        self.pos = end;
        Ok(value as u64 & mask(size))
    }

    /// Reads an integer whose first bit is the least significant.
    #[cold]
    fn reversed(&mut self, size: u32, endian: Endian) -> Result<u64, DecodeError> {
        let bits = self.bits(size, endian)?;
        Ok(bits.reverse_bits() >> (64 - size.clamp(1, 64)))
    }

    /// An integer in LEB128 from a place of a whole byte on, and how many of its bits are
    /// stored.
    pub(crate) fn leb128(&mut self, signed: bool) -> Result<(u64, u32), DecodeError> {
        let (mut value, mut size) = (0u128, 0);
        for byte in self.tail().iter().take(MOST_LEB128) {
            value |= u128::from(byte & 0x7f) << size;
            size += 7;
            if byte & 0x80 != 0 {
                continue;
            }
            self.pos += u64::from(size / 7 * 8);
            let unused = 128 - size;
            let fits = if signed {
                i64::try_from((value << unused) as i128 >> unused).map(|n| n as u64)
            } else {
                u64::try_from(value)
            };
            return fits.map(|value| (value, size)).map_err(|_| DecodeError::TooLarge);
        }
        Err(if self.tail().len() >= MOST_LEB128 { DecodeError::TooLarge } else { DecodeError::End })
    }

    /// Text of code units of `unit` bytes up to a NUL, without it.
    pub(crate) fn units(&mut self, unit: usize) -> Result<&'a [u8], DecodeError> {
        let tail = self.tail();
        let count = tail.chunks_exact(unit).position(|u| u.iter().all(|b| *b == 0));
        let len = count.ok_or(DecodeError::End)? * unit;
        self.pos += 8 * (len + unit) as u64;
        Ok(tail.get(..len).unwrap_or(&[]))
    }

    /// Up to eight bytes as one number, from a place of a whole byte on.
    #[inline]
    pub(crate) fn word(&mut self, bytes: u64, big: bool) -> Option<u64> {
        let tail = self.tail();
        let n = bytes as usize;
        // Eight bytes are there but at the end of a packet.
        let word = match tail.first_chunk::<8>() {
            Some(chunk) if big => u64::from_be_bytes(*chunk) >> (64 - 8 * n),
            Some(chunk) => u64::from_le_bytes(*chunk),
            None => {
                let few = tail.get(..n)?;
                let mut chunk = [0; 8];
                chunk.get_mut(..n)?.copy_from_slice(few);
                if big {
                    u64::from_be_bytes(chunk) >> (64 - 8 * n)
                } else {
                    u64::from_le_bytes(chunk)
                }
            }
        };
        self.pos += 8 * bytes;
        Some(word)
    }

    /// Bytes from a place of a whole byte on.
    #[inline]
    pub(crate) fn take(&mut self, len: u64) -> Result<&'a [u8], DecodeError> {
        let len = usize::try_from(len).map_err(|_| DecodeError::End)?;
        let taken = self.tail().get(..len).ok_or(DecodeError::End)?;
        self.pos += 8 * len as u64;
        Ok(taken)
    }

    /// Bytes up to a NUL, without it.
    #[inline]
    pub(crate) fn text(&mut self) -> Result<&'a [u8], DecodeError> {
        let tail = self.tail();
        let len = memchr::memchr(0, tail).ok_or(DecodeError::End)?;
        self.pos += 8 * (len as u64 + 1);
        Ok(tail.get(..len).unwrap_or(&[]))
    }

    /// Whether the place is still within the bytes.
    #[inline]
    pub(crate) fn within(&self) -> bool {
        self.pos <= self.end
    }
}

/// The lowest bits.
#[inline]
pub(crate) fn mask(size: u32) -> u64 {
    if size >= 64 { u64::MAX } else { (1 << size) - 1 }
}

/// Extends the sign of an integer of a number of bits.
#[inline]
pub(crate) fn extend(value: u64, size: u32) -> i64 {
    let unused = 64 - size.clamp(1, 64);
    ((value << unused) as i64) >> unused
}

/// Memory representation of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    U8,
    Le16,
    Le32,
    Le64,
    Be16,
    Be32,
    Be64,
    LeBits,
    BeBits,
    LeReversed,
    BeReversed,
}

impl Load {
    /// Representation of an integer with reversed bits.
    pub(crate) fn reversed(endian: Endian) -> Load {
        match endian {
            Endian::Little => Load::LeReversed,
            Endian::Big => Load::BeReversed,
        }
    }

    pub(crate) fn of(size: u32, align: u32, endian: Endian) -> Load {
        let whole = align.is_multiple_of(8);
        match (size, endian) {
            (8, _) if whole => Load::U8,
            (16, Endian::Little) if whole => Load::Le16,
            (32, Endian::Little) if whole => Load::Le32,
            (64, Endian::Little) if whole => Load::Le64,
            (16, Endian::Big) if whole => Load::Be16,
            (32, Endian::Big) if whole => Load::Be32,
            (64, Endian::Big) if whole => Load::Be64,
            (_, Endian::Little) => Load::LeBits,
            (_, Endian::Big) => Load::BeBits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_lie_from_the_low_end_or_from_the_high_end() {
        // 5 bits of 0x1d and 27 of 0x5abcdef, as C bit fields of both kinds of machines.
        let word = 0x1d_u32 | 0x5ab_cdef << 5;
        let bytes = word.to_le_bytes();
        let mut le = Bits::new(&bytes, 0, 0, u64::MAX);
        assert_eq!(le.load(Load::LeBits, 5), Ok(0x1d));
        assert_eq!(le.load(Load::LeBits, 27), Ok(0x5ab_cdef));
        assert_eq!(le.load(Load::LeBits, 1), Err(DecodeError::End));
        let bytes = (0x1d_u32 << 27 | 0x5ab_cdef).to_be_bytes();
        let mut be = Bits::new(&bytes, 0, 0, u64::MAX);
        assert_eq!(be.load(Load::BeBits, 5), Ok(0x1d));
        assert_eq!(be.load(Load::BeBits, 27), Ok(0x5ab_cdef));
    }

    #[test]
    fn integers_of_any_length_have_seven_bits_a_byte() {
        // The examples of the specification of CTF 2.
        let read = |bytes: &[u8], signed| {
            let mut bits = Bits::new(bytes, 0, 0, u64::MAX);
            bits.leb128(signed).map(|(value, size)| (value, size, bits.pos))
        };
        assert_eq!(read(&[0xb4, 0xc7, 0x72, 9], false), Ok((1_876_916, 21, 24)));
        assert_eq!(read(&[0xb4, 0xc7, 0x72, 9], true), Ok((-220_236_i64 as u64, 21, 24)));
        let all = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(read(&all, false), Ok((u64::MAX, 70, 80)));
        assert_eq!(read(&[0x80, 0], false), Ok((0, 14, 16)));
        let mut more = all;
        more[9] = 2;
        assert_eq!(read(&more, false), Err(DecodeError::TooLarge));
        assert_eq!(read(&all, true), Err(DecodeError::TooLarge));
        assert_eq!(read(&[0xff; 10], true), Err(DecodeError::TooLarge));
        assert_eq!(read(&[0xff; 9], false), Err(DecodeError::End));
    }

    #[test]
    fn the_order_of_bits_may_be_reversed() {
        let mut le = Bits::new(&[0b0000_0011, 0x80], 0, 0, u64::MAX);
        assert_eq!(le.load(Load::LeReversed, 5), Ok(0b11000));
        let mut be = Bits::new(&[0b0000_0011, 0x80], 0, 0, u64::MAX);
        assert_eq!((be.load(Load::BeReversed, 9), be.pos), (Ok(0b1_1100_0000), 9));
    }

    #[test]
    fn sixty_four_bits_may_lie_across_nine_bytes() {
        let value = 0xfedc_ba98_7654_3210_u64;
        let bytes = (u128::from(value) << 3).to_le_bytes();
        let mut le = Bits::new(&bytes[..9], 80, 83, u64::MAX);
        assert_eq!(le.load(Load::LeBits, 64), Ok(value));
        let bytes = (u128::from(value) << 61).to_be_bytes();
        let mut be = Bits::new(&bytes[..9], 80, 83, u64::MAX);
        assert_eq!(be.load(Load::BeBits, 64), Ok(value));
        let mut short = Bits::new(&bytes[..9], 80, 83, 140);
        assert_eq!(short.load(Load::BeBits, 64), Err(DecodeError::End));
    }

    #[test]
    fn signs_extend_and_places_align() {
        assert_eq!((extend(0x1f, 5), extend(0xf, 5), extend(u64::MAX, 64)), (-1, 15, -1));
        let mut b = Bits::new(b"ab\0cd", 0, 1, u64::MAX);
        b.align(8);
        assert_eq!((b.pos, b.text()), (8, Ok(&b"b"[..])));
        assert_eq!(
            (b.take(3), b.take(2), b.text()),
            (Err(DecodeError::End), Ok(&b"cd"[..]), Err(DecodeError::End))
        );
    }
}
