//! A bounds-checked cursor over bytes of either byte order.
//!
//! Every read either yields a value or [`Truncated`]; none panics. Decoders of
//! untrusted bytes go through here.

/// The byte order of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl Endian {
    /// The byte order of the machine this runs on.
    pub const NATIVE: Endian =
        if cfg!(target_endian = "little") { Endian::Little } else { Endian::Big };

    /// Decodes two bytes.
    #[inline]
    pub fn u16(self, b: [u8; 2]) -> u16 {
        match self {
            Endian::Little => u16::from_le_bytes(b),
            Endian::Big => u16::from_be_bytes(b),
        }
    }

    /// Decodes four bytes.
    #[inline]
    pub fn u32(self, b: [u8; 4]) -> u32 {
        match self {
            Endian::Little => u32::from_le_bytes(b),
            Endian::Big => u32::from_be_bytes(b),
        }
    }

    /// Decodes eight bytes.
    #[inline]
    pub fn u64(self, b: [u8; 8]) -> u64 {
        match self {
            Endian::Little => u64::from_le_bytes(b),
            Endian::Big => u64::from_be_bytes(b),
        }
    }

    /// Decodes the four bytes at `at`.
    #[inline]
    pub fn u32_at(self, bytes: &[u8], at: usize) -> Option<u32> {
        Some(self.u32(*bytes.get(at..)?.first_chunk()?))
    }

    /// Decodes the eight bytes at `at`.
    #[inline]
    pub fn u64_at(self, bytes: &[u8], at: usize) -> Option<u64> {
        Some(self.u64(*bytes.get(at..)?.first_chunk()?))
    }

    /// Decodes the eight bytes that begin `back` bytes before the end.
    #[inline]
    pub fn u64_from_end(self, bytes: &[u8], back: usize) -> Option<u64> {
        self.u64_at(bytes, bytes.len().checked_sub(back)?)
    }
}

/// The bytes ended before the value did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("needs {needed} bytes at offset {offset}, {left} are left")]
pub struct Truncated {
    /// Offset of the value within the bytes given to the cursor.
    pub offset: usize,
    /// Bytes the value takes.
    pub needed: usize,
    /// Bytes that are there.
    pub left: usize,
}

/// A position in a byte slice.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
    endian: Endian,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8], endian: Endian) -> Self {
        Cursor { bytes, pos: 0, endian }
    }

    /// The byte order values are read in.
    #[inline]
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Offset from the start of the slice.
    #[inline]
    pub fn position(&self) -> usize {
        self.pos
    }

    /// Bytes not yet read.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.pos
    }

    /// All that is left, without moving.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.pos..]
    }

    /// Takes the next `n` bytes.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], Truncated> {
        let rest = self.rest();
        match rest.get(..n) {
            Some(taken) => {
                self.pos += n;
                Ok(taken)
            }
            None => Err(Truncated { offset: self.pos, needed: n, left: rest.len() }),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        match self.rest().first_chunk::<N>() {
            Some(chunk) => {
                self.pos += N;
                Ok(*chunk)
            }
            None => Err(Truncated { offset: self.pos, needed: N, left: self.remaining() }),
        }
    }

    /// Moves past `n` bytes.
    #[inline]
    pub fn skip(&mut self, n: usize) -> Result<(), Truncated> {
        self.bytes(n).map(|_| ())
    }

    /// Reads a byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Truncated> {
        self.array::<1>().map(|b| b[0])
    }

    /// Reads a 16-bit value.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Truncated> {
        Ok(self.endian.u16(self.array()?))
    }

    /// Reads a 32-bit value.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        Ok(self.endian.u32(self.array()?))
    }

    /// Reads a 64-bit value.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Truncated> {
        Ok(self.endian.u64(self.array()?))
    }

    /// Takes bytes up to a NUL and moves past it; without a NUL takes the rest.
    pub fn cstr(&mut self) -> &'a [u8] {
        let rest = self.rest();
        let end = rest.iter().position(|&b| b == 0);
        self.pos += end.map_or(rest.len(), |e| e + 1);
        &rest[..end.unwrap_or(rest.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_little_and_big_endian_and_stops_at_the_end() {
        let bytes = [1, 2, 3, 4, 5, 6];
        let mut le = Cursor::new(&bytes, Endian::Little);
        assert_eq!(le.u32(), Ok(0x04030201));
        assert_eq!(le.u32(), Err(Truncated { offset: 4, needed: 4, left: 2 }));
        assert_eq!(le.u16(), Ok(0x0605));
        assert_eq!(Cursor::new(&bytes, Endian::Big).u32(), Ok(0x01020304));
    }

    #[test]
    fn a_string_without_nul_is_the_rest() {
        let mut c = Cursor::new(b"ab\0cd", Endian::Little);
        assert_eq!((c.cstr(), c.cstr(), c.cstr()), (&b"ab"[..], &b"cd"[..], &b""[..]));
    }
}
