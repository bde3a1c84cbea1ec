//! One field of an event: where it lies in the payload and what it holds.

use kymo_model::Endian;

/// Interpretation of a field's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// An integer, enum or pid of [`Field::size`] bytes.
    Int,
    /// A `bool`.
    Bool,
    /// An address.
    Pointer,
    /// `char name[N]`: text up to the first NUL.
    String,
    /// `T name[N]` of integers of `elem` bytes.
    Array {
        /// Bytes of one element.
        elem: u8,
        /// Whether an element is signed.
        signed: bool,
    },
    /// `__data_loc char[]` (or `__rel_loc`): text elsewhere in the payload.
    DynString {
        /// Whether the offset counts from the end of the field itself.
        relative: bool,
    },
    /// `__data_loc T[]` (or `__rel_loc`): integers elsewhere in the payload.
    DynArray {
        /// Whether the offset counts from the end of the field itself.
        relative: bool,
        /// Bytes of one element.
        elem: u8,
        /// Whether an element is signed.
        signed: bool,
    },
    /// `__data_loc cpumask_t` and other bit maps elsewhere in the payload.
    DynBitmask {
        /// Whether the offset counts from the end of the field itself.
        relative: bool,
    },
    /// A structure: bytes without an inner layout.
    Opaque,
}

/// A field of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// The type as the kernel writes it, with `[N]` where it is an array.
    pub type_text: String,
    /// Byte offset in the payload.
    pub offset: u32,
    /// Bytes; 0 for an array that takes the rest of the payload.
    pub size: u32,
    /// Whether the kernel calls it signed.
    pub signed: bool,
    /// Interpretation of the bytes.
    pub kind: FieldKind,
    /// Whether every event has it (`common_type`, `common_pid`, …).
    pub common: bool,
    /// Set where the field is a text that a probe copied from memory.
    pub probe_text: Option<ProbeText>,
    /// Whether the event's text shows the name of the kernel's function at this address.
    pub is_function: bool,
}

/// Text that a probe copied from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeText {
    /// Offset of the 64-bit field with its length. Memory after a text without a NUL, such as
    /// Rust's, is not part of it.
    pub length_at: Option<u32>,
}

/// Text in place of one that could not be read, as the kernel writes it.
pub(crate) const FAULT: &[u8] = b"(fault)";

impl ProbeText {
    /// The text; `None` where its address could not be read: then even the terminating NUL is
    /// missing.
    #[inline]
    pub(crate) fn read(
        self,
        payload: &[u8],
        (offset, relative): (u32, bool),
        endian: Endian,
    ) -> Option<&[u8]> {
        let word = load(payload, offset, 4, false, endian)?;
        let length = self.length_at.and_then(|at| load(payload, at, 8, false, endian));
        if word >> 16 == 0 && length != Some(0) {
            return None;
        }
        let text = dynamic(payload, offset, relative, endian);
        let length = length.and_then(|length| usize::try_from(length).ok());
        Some(length.and_then(|length| text.get(..length)).unwrap_or(text))
    }
}

impl Field {
    /// The bytes of the field itself; for dynamic kinds the bytes it points to, `(fault)` for text
    /// that a probe could not read. Bytes that lie outside of the payload are not there.
    pub fn bytes<'p>(&self, payload: &'p [u8], endian: Endian) -> &'p [u8] {
        match self.kind {
            FieldKind::DynString { relative } => {
                self.dynamic_text(relative, payload, endian).unwrap_or(FAULT)
            }
            FieldKind::DynArray { relative, .. } | FieldKind::DynBitmask { relative } => {
                dynamic(payload, self.offset, relative, endian)
            }
            _ if self.size == 0 => tail(payload, self.offset),
            _ => fixed(payload, self.offset, self.size),
        }
    }

    /// Text elsewhere in the payload; `None` if a probe could not read it.
    pub(crate) fn dynamic_text<'p>(
        &self,
        relative: bool,
        payload: &'p [u8],
        endian: Endian,
    ) -> Option<&'p [u8]> {
        match self.probe_text {
            Some(text) => text.read(payload, (self.offset, relative), endian),
            None => Some(dynamic(payload, self.offset, relative, endian)),
        }
    }

    /// The field as an integer; `None` where it is none or the payload is short.
    pub fn int(&self, payload: &[u8], endian: Endian) -> Option<i64> {
        match self.kind {
            FieldKind::Int | FieldKind::Bool | FieldKind::Pointer => {
                let size = u8::try_from(self.size).ok()?;
                load(payload, self.offset, size, self.signed, endian).map(|v| v as i64)
            }
            _ => None,
        }
    }
}

/// Reads an integer and extends it to 64 bits.
#[inline]
pub(crate) fn load(
    payload: &[u8],
    offset: u32,
    size: u8,
    signed: bool,
    endian: Endian,
) -> Option<u64> {
    let at = payload.get(offset as usize..)?;
    Some(match (size, signed) {
        (4, false) => u64::from(endian.u32(*at.first_chunk()?)),
        (4, true) => i64::from(endian.u32(*at.first_chunk()?) as i32) as u64,
        (8, _) => endian.u64(*at.first_chunk()?),
        (2, false) => u64::from(endian.u16(*at.first_chunk()?)),
        (2, true) => i64::from(endian.u16(*at.first_chunk()?) as i16) as u64,
        (1, false) => u64::from(*at.first()?),
        (1, true) => i64::from(*at.first()? as i8) as u64,
        _ => return None,
    })
}

/// The bytes a `__data_loc` or `__rel_loc` word at `offset` points to, cut to
/// what the payload has.
#[inline]
pub(crate) fn dynamic(payload: &[u8], offset: u32, relative: bool, endian: Endian) -> &[u8] {
    let Some(word) = load(payload, offset, 4, false, endian) else { return &[] };
    let mut start = (word & 0xffff) as usize;
    if relative {
        start += offset as usize + 4;
    }
    let len = (word >> 16) as usize;
    let Some(rest) = payload.get(start..) else { return &[] };
    rest.get(..len).unwrap_or(rest)
}

/// `size` bytes at `offset`, or up to the end.
#[inline]
pub(crate) fn fixed(payload: &[u8], offset: u32, size: u32) -> &[u8] {
    let Some(rest) = payload.get(offset as usize..) else { return &[] };
    rest.get(..size as usize).unwrap_or(rest)
}

/// Everything from `offset`.
#[inline]
pub(crate) fn tail(payload: &[u8], offset: u32) -> &[u8] {
    payload.get(offset as usize..).unwrap_or(&[])
}

/// The bytes before the first NUL.
#[inline]
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    match memchr::memchr(0, bytes) {
        Some(n) => bytes.get(..n).unwrap_or(bytes),
        None => bytes,
    }
}

/// The first NUL of 16 bytes, or 16: the length of a `comm`.
#[inline]
pub(crate) fn nul16(bytes: &[u8; 16]) -> usize {
    let x = u128::from_le_bytes(*bytes);
    const ONES: u128 = u128::MAX / 255;
    // The lowest byte that is zero gets its high bit set; others above may too.
    let zeros = x.wrapping_sub(ONES) & !x & (ONES << 7);
    (zeros.trailing_zeros() / 8) as usize
}
