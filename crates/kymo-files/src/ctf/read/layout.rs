//! Fixed layout of an event's fields, if all events of the class share it.

use kymo_model::Endian;

use super::bits::Load;
use super::trace::Class;
use super::walk::{FieldInfo, Len, Step};

/// A field that always lies at the same place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FixedField<'c> {
    /// The field.
    pub field: &'c FieldInfo,
    /// Its first byte in the body.
    pub at: usize,
    /// Storage of the field.
    pub stored: Stored,
}

/// Storage of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// As an integer of a number of bytes.
    Int(u8, Endian),
    /// As bytes of text, which ends at a NUL.
    Chars(usize),
}

impl<'c> Class<'c> {
    /// Offsets of its fields. `None`: they vary, lie in groups, or do not start at whole bytes.
    pub fn layout(&self) -> Option<Vec<FixedField<'c>>> {
        let program = self.program.filter(|p| !p.outer && p.body.fixed.is_some())?;
        let (mut places, mut at) = (Vec::new(), 0usize);
        for step in &program.body.steps {
            let (field, stored, bytes) = match *step {
                Step::Part(_) => continue,
                Step::Align(align) if align <= 8 => continue,
                Step::Int { field, align, load, .. } if align <= 8 => {
                    let (bytes, order) = whole(load)?;
                    (field, Stored::Int(bytes, order), bytes.into())
                }
                Step::Chars { field, len: Len::Is(n) } => {
                    let n = usize::try_from(n).ok()?;
                    (field, Stored::Chars(n), n)
                }
                _ => return None,
            };
            places.push(FixedField { field: program.body.fields.get(field as usize)?, at, stored });
            at = at.checked_add(bytes)?;
        }
        Some(places)
    }
}

/// The bytes of an integer that takes whole ones.
fn whole(load: Load) -> Option<(u8, Endian)> {
    Some(match load {
        Load::U8 => (1, Endian::Little),
        Load::Le16 => (2, Endian::Little),
        Load::Le32 => (4, Endian::Little),
        Load::Le64 => (8, Endian::Little),
        Load::Be16 => (2, Endian::Big),
        Load::Be32 => (4, Endian::Big),
        Load::Be64 => (8, Endian::Big),
        Load::LeBits | Load::BeBits | Load::LeReversed | Load::BeReversed => return None,
    })
}
