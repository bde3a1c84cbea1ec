//! The value of a field, typed, and as text.

use std::borrow::Cow;
use std::io::Write as _;

use kymo_format::{Value, json_string};
use kymo_model::Endian;

/// A value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldValue<'e> {
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A truth value.
    Bool(bool),
    /// An address.
    Address(u64),
    /// A floating-point number.
    Float(f64),
    /// Text; not always UTF-8.
    Text(Cow<'e, [u8]>),
    /// An integer and its names, as a CTF trace shows them: `Card(2)`.
    Enumeration {
        /// The bits of the value, sign-extended.
        value: u64,
        /// Whether the value is signed.
        signed: bool,
        /// The value with its names.
        shown: Vec<u8>,
    },
    /// Several values, as text.
    Compound(Vec<u8>),
    /// Text that a probe could not read: its address was null or not mapped.
    Unread,
    /// The event does not have the field, or ends before it.
    Absent,
}

impl<'e> FieldValue<'e> {
    /// The value of a field in a payload.
    #[inline]
    pub(crate) fn from_payload(value: Value<'e>, endian: Endian) -> FieldValue<'e> {
        match value {
            Value::Signed(v) => FieldValue::Signed(v),
            Value::Unsigned(v) => FieldValue::Unsigned(v),
            Value::Bool(v) => FieldValue::Bool(v),
            Value::Pointer(v) => FieldValue::Address(v),
            Value::Text(text) => FieldValue::Text(Cow::Borrowed(text)),
            Value::Unread => FieldValue::Unread,
            Value::Absent => FieldValue::Absent,
            other => {
                let mut text = Vec::new();
                other.write_json(&mut text, endian);
                FieldValue::Compound(text)
            }
        }
    }

    /// The value as a number, sign-extended.
    #[inline]
    pub fn number(&self) -> Option<i128> {
        Some(match self {
            FieldValue::Signed(v) => i128::from(*v),
            FieldValue::Unsigned(v) | FieldValue::Address(v) => i128::from(*v),
            FieldValue::Bool(v) => i128::from(*v),
            FieldValue::Enumeration { value, signed: true, .. } => i128::from(*value as i64),
            FieldValue::Enumeration { value, .. } => i128::from(*value),
            _ => return None,
        })
    }

    /// The value as text, if it is text.
    pub fn text(&self) -> Option<&[u8]> {
        match self {
            FieldValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Appends the value as a cell of a table shows it: text as it is, addresses in
    /// hexadecimal. What would break a line is shown as `?`.
    pub fn write_cell(&self, out: &mut Vec<u8>) {
        let from = out.len();
        match self {
            FieldValue::Signed(v) => {
                out.extend_from_slice(itoa::Buffer::new().format(*v).as_bytes());
            }
            FieldValue::Unsigned(v) => {
                out.extend_from_slice(itoa::Buffer::new().format(*v).as_bytes());
            }
            FieldValue::Bool(v) => out.extend_from_slice(if *v { b"true" } else { b"false" }),
            FieldValue::Address(v) => _ = write!(out, "{v:#x}"),
            // The fewest digits that mean this number and no other.
            FieldValue::Float(v) => _ = write!(out, "{v:?}"),
            FieldValue::Text(text) => out.extend_from_slice(text),
            FieldValue::Enumeration { shown, .. } => out.extend_from_slice(shown),
            FieldValue::Compound(text) => out.extend_from_slice(text),
            FieldValue::Unread => out.extend_from_slice(b"(fault)"),
            FieldValue::Absent => out.extend_from_slice(b"N/A"),
        }
        for b in out.iter_mut().skip(from).filter(|b| **b < 0x20) {
            *b = b'?';
        }
    }

    /// Appends the value as JSON.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            FieldValue::Signed(_) | FieldValue::Unsigned(_) | FieldValue::Bool(_) => {
                self.write_cell(out);
            }
            FieldValue::Float(v) if v.is_finite() => _ = write!(out, "{v:?}"),
            FieldValue::Float(v) => _ = write!(out, "\"{v}\""),
            FieldValue::Address(v) => _ = write!(out, "\"{v:#x}\""),
            FieldValue::Text(text) => json_string(out, text),
            FieldValue::Enumeration { shown, .. } => json_string(out, shown),
            FieldValue::Compound(text) => json_string(out, text),
            FieldValue::Unread | FieldValue::Absent => out.extend_from_slice(b"null"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_cells_of_one_line_and_json() {
        let check = |value: FieldValue<'_>, cell: &str, json: &str| {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            value.write_cell(&mut a);
            value.write_json(&mut b);
            assert_eq!(
                (&*String::from_utf8_lossy(&a), &*String::from_utf8_lossy(&b)),
                (cell, json)
            );
        };
        check(FieldValue::Signed(-3), "-3", "-3");
        check(
            FieldValue::Address(0xffff_8000_0000_0000),
            "0xffff800000000000",
            "\"0xffff800000000000\"",
        );
        check(FieldValue::Text(Cow::Borrowed(b"a\nb\"")), "a?b\"", "\"a\\nb\\\"\"");
        check(FieldValue::Float(0.1), "0.1", "0.1");
        check(FieldValue::Float(f64::NAN), "NaN", "\"NaN\"");
        check(FieldValue::Absent, "N/A", "null");
        let value =
            FieldValue::Enumeration { value: u64::MAX, signed: true, shown: b"No(-1)".into() };
        assert_eq!(value.number(), Some(-1));
        check(value, "No(-1)", "\"No(-1)\"");
    }
}
