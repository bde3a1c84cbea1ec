//! Kinds of fields, and where a field lies in a payload.

use crate::bytes::Take;

/// Class of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FieldTag {
    /// An integer.
    Int = 1,
    /// A float.
    Float = 2,
    /// One byte, 0 or 1.
    Bool = 3,
    /// Bytes and a NUL.
    String = 4,
    /// An integer with names.
    Enum = 5,
    /// The number of elements that the type states.
    Array = 6,
    /// A number of elements, then these.
    Sequence = 7,
    /// An address in the program.
    Symbol = 8,
}

impl FieldTag {
    /// From its number in the format.
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Int,
            2 => Self::Float,
            3 => Self::Bool,
            4 => Self::String,
            5 => Self::Enum,
            6 => Self::Array,
            7 => Self::Sequence,
            8 => Self::Symbol,
            _ => return None,
        })
    }
}

/// Layout of a field in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Shape {
    /// Class of the field.
    pub kind: FieldTag,
    /// Bytes of one element.
    pub size: u8,
    /// [`Shape::SIGNED`], [`Shape::HEX`], [`Shape::FLOATS`].
    pub flags: u8,
    /// Elements of an array.
    pub count: u32,
}

impl Shape {
    /// Elements are signed.
    pub const SIGNED: u8 = 1;
    /// Shown in hexadecimal.
    pub const HEX: u8 = 2;
    /// Elements of an array or a sequence are floats.
    pub const FLOATS: u8 = 4;

    /// Whether filters can name such a field: arrays and sequences of bytes are texts,
    /// others are not comparable.
    pub fn is_comparable(&self) -> bool {
        match self.kind {
            FieldTag::Array | FieldTag::Sequence => self.size == 1,
            _ => true,
        }
    }

    /// Bytes of the field at the start of `payload`, if they are there.
    pub fn size_in(&self, payload: &[u8]) -> Option<usize> {
        let element = usize::from(self.size);
        let size = match self.kind {
            FieldTag::Int | FieldTag::Float | FieldTag::Enum | FieldTag::Symbol => element,
            FieldTag::Bool => 1,
            FieldTag::String => payload.iter().position(|b| *b == 0)? + 1,
            FieldTag::Array => element.checked_mul(self.count as usize)?,
            FieldTag::Sequence => {
                let count = Take(payload).u32()? as usize;
                element.checked_mul(count)?.checked_add(4)?
            }
        };
        (size <= payload.len()).then_some(size)
    }

    /// The sizes are those that its kind can have.
    pub fn is_sound(&self) -> bool {
        let floats = self.flags & Self::FLOATS != 0;
        match self.kind {
            FieldTag::Bool | FieldTag::String => self.size == 1,
            FieldTag::Symbol => self.size == 8,
            FieldTag::Float => matches!(self.size, 4 | 8),
            FieldTag::Int | FieldTag::Enum => matches!(self.size, 1 | 2 | 4 | 8),
            FieldTag::Array | FieldTag::Sequence if floats => matches!(self.size, 4 | 8),
            FieldTag::Array | FieldTag::Sequence => matches!(self.size, 1 | 2 | 4 | 8),
        }
    }
}
