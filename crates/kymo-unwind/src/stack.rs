//! The copy of the stack's top that a sample carries.

use kymo_model::Endian;

/// Bytes from the stack pointer on.
#[derive(Clone, Copy, Debug)]
pub struct StackWindow<'a> {
    start: u64,
    bytes: &'a [u8],
    endian: Endian,
}

impl<'a> StackWindow<'a> {
    /// The bytes that were at `start`.
    pub fn new(start: u64, bytes: &'a [u8], endian: Endian) -> StackWindow<'a> {
        StackWindow { start, bytes, endian }
    }

    /// The first address that was copied.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The first address behind the copy.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }

    /// The eight bytes at an address.
    #[inline]
    pub fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        Some(self.endian.u64(*self.bytes.get(at..)?.first_chunk()?))
    }
}

/// Why a frame cannot be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// This address of the stack is not in the copy.
    Missing(u64),
    /// A register that is needed is not known.
    Unknown,
    /// The expression is none, or does not end.
    Expression,
}

/// Reads a word of the stack.
pub(crate) fn load(stack: &StackWindow<'_>, address: u64) -> Result<u64, Failed> {
    stack.word(address).ok_or(Failed::Missing(address))
}
