//! Fields as typed values, and rendering field by field.

use kymo_model::{Endian, UntrustedText};

use crate::context::RenderContext;
use crate::expr::Scope;
use crate::field::{FAULT, Field, FieldKind, load, until_nul};
use crate::format::EventFormat;
use crate::json::{MemberName, json_string};
use crate::line_writer::LineWriter;
use crate::spec::{decimal, hex, signed_decimal};
use crate::text::{self, MAX_OUTPUT};

/// A field's value, borrowed from the payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'p> {
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A truth value.
    Bool(bool),
    /// An address.
    Pointer(u64),
    /// Text; not always UTF-8.
    Text(&'p [u8]),
    /// Integers in a row.
    Array(Integers<'p>),
    /// A bit map, as bytes.
    Bitmask(&'p [u8]),
    /// Bytes without an inner layout.
    Bytes(&'p [u8]),
    /// Text that a probe could not read: its address was null or not mapped.
    Unread,
    /// The payload ends before the field.
    Absent,
}

/// Integers in a row, read on demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Integers<'p> {
    bytes: &'p [u8],
    elem: u8,
    signed: bool,
    endian: Endian,
}

impl<'p> Integers<'p> {
    /// Whether the elements are signed.
    pub fn signed(&self) -> bool {
        self.signed
    }

    /// The elements, extended to 64 bits; cast those of an unsigned row to `u64`.
    pub fn iter(&self) -> impl Iterator<Item = i64> + use<'p> {
        let Integers { bytes, elem, signed, endian } = *self;
        bytes
            .chunks_exact(usize::from(elem.max(1)))
            .map(move |c| load(c, 0, elem, signed, endian).unwrap_or(0) as i64)
    }
}

impl EventFormat {
    /// A field's value in `payload`.
    pub fn value<'p>(&self, field: &Field, payload: &'p [u8], endian: Endian) -> Value<'p> {
        field.value(payload, endian)
    }

    /// Appends ` name=value` for each own field, as tools do where a print
    /// format is of no use; without a space before the first.
    pub fn render_fields(&self, out: &mut Vec<u8>, payload: &[u8], ctx: &RenderContext<'_>) {
        let start = out.len();
        for (i, f) in self.own_fields().enumerate() {
            if out.len() - start > MAX_OUTPUT {
                break;
            }
            if i > 0 {
                out.push(b' ');
            }
            out.extend_from_slice(f.name.as_bytes());
            out.push(b'=');
            f.value(payload, ctx.endian).write(out, ctx.endian);
        }
        out.truncate(out.len().min(start + MAX_OUTPUT));
    }
}

impl Field {
    /// This field's value in `payload`.
    pub fn value<'p>(&self, payload: &'p [u8], endian: Endian) -> Value<'p> {
        if payload.len() < self.offset as usize {
            return Value::Absent;
        }
        let array = |elem, signed| {
            Value::Array(Integers { bytes: self.bytes(payload, endian), elem, signed, endian })
        };
        match self.kind {
            FieldKind::Int | FieldKind::Bool | FieldKind::Pointer => {
                let v = load(payload, self.offset, self.size as u8, self.signed, endian);
                match (v, &self.kind) {
                    (None, _) => Value::Absent,
                    (Some(v), FieldKind::Bool) => Value::Bool(v != 0),
                    (Some(v), FieldKind::Pointer) => Value::Pointer(v),
                    (Some(v), _) if self.signed => Value::Signed(v as i64),
                    (Some(v), _) => Value::Unsigned(v),
                }
            }
            FieldKind::String => Value::Text(until_nul(self.bytes(payload, endian))),
            FieldKind::DynString { relative } => {
                let text = self.dynamic_text(relative, payload, endian);
                text.map_or(Value::Unread, |text| Value::Text(until_nul(text)))
            }
            FieldKind::Array { elem, signed } | FieldKind::DynArray { elem, signed, .. } => {
                array(elem, signed)
            }
            FieldKind::DynBitmask { .. } => Value::Bitmask(self.bytes(payload, endian)),
            FieldKind::Opaque => Value::Bytes(self.bytes(payload, endian)),
        }
    }
}

impl Value<'_> {
    /// Appends the value as text: numbers in decimal, addresses in hex, text
    /// as it is, rows as `{1,2}`.
    pub fn write(&self, out: &mut Vec<u8>, endian: Endian) {
        match *self {
            Value::Signed(v) => signed_decimal(out, v),
            Value::Unsigned(v) => decimal(out, v),
            Value::Bool(v) => decimal(out, u64::from(v)),
            Value::Pointer(v) => {
                out.extend_from_slice(b"0x");
                hex(out, v, 0);
            }
            Value::Text(t) => UntrustedText::new(t).write_escaped(out),
            Value::Array(a) => {
                out.push(b'{');
                a.write_list(out);
                out.push(b'}');
            }
            Value::Bitmask(b) => {
                text::bitmap(out, b, b.len() * 8, Scope { payload: b, endian, hz: 1 });
            }
            Value::Bytes(b) => text::hex_bytes(out, b, b" "),
            Value::Unread => out.extend_from_slice(FAULT),
            Value::Absent => {}
        }
    }

    /// Appends the value as JSON: numbers as numbers, addresses, bit maps and
    /// bytes as hex strings, text that is not UTF-8 with replacement characters.
    pub fn write_json(&self, out: &mut Vec<u8>, endian: Endian) {
        match *self {
            Value::Signed(_) | Value::Unsigned(_) => self.write(out, endian),
            Value::Bool(v) => out.extend_from_slice(if v { b"true" } else { b"false" }),
            Value::Text(t) => json_string(out, t),
            Value::Array(a) => {
                out.push(b'[');
                a.write_list(out);
                out.push(b']');
            }
            Value::Pointer(_) | Value::Bitmask(_) | Value::Bytes(_) => {
                out.push(b'"');
                self.write(out, endian);
                out.push(b'"');
            }
            Value::Unread | Value::Absent => out.extend_from_slice(b"null"),
        }
    }
}

impl Integers<'_> {
    fn write_list(&self, out: &mut Vec<u8>) {
        for (i, v) in self.iter().take(MAX_OUTPUT / 4).enumerate() {
            if i > 0 {
                out.push(b',');
            }
            if self.signed {
                signed_decimal(out, v);
            } else {
                decimal(out, v as u64);
            }
        }
    }
}

impl EventFormat {
    /// Appends a payload's own fields as a JSON object.
    pub fn write_json(&self, line: &mut LineWriter<'_>, payload: &[u8], endian: Endian) {
        let new =
            || self.own_fields().enumerate().map(|(n, f)| MemberName::new(n, &f.name)).collect();
        let names: &Vec<MemberName> = self.member_names.get_or_init(new);
        if names.is_empty() {
            line.write_prefix(b"{", 1);
        }
        for (name, field) in names.iter().zip(self.own_fields()) {
            name.write(line);
            match field.value(payload, endian) {
                Value::Signed(v) => line.signed(v),
                Value::Unsigned(v) => line.decimal(v),
                Value::Array(a) => write_list(a, line),
                other => line.buffered(|out| other.write_json(out, endian)),
            }
        }
        line.write_prefix(b"}", 1);
    }
}

fn write_list(integers: Integers<'_>, line: &mut LineWriter<'_>) {
    line.write_prefix(b"[", 1);
    for (i, v) in integers.iter().take(MAX_OUTPUT / 4).enumerate() {
        line.write_prefix(b",", usize::from(i > 0));
        if integers.signed() { line.signed(v) } else { line.decimal(v as u64) }
    }
    line.write_prefix(b"]", 1);
}
