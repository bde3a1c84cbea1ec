//! Packets made event by event, as the metadata lay them out. Tracers write their own.

use kymo_files::ctf::types::{Float, Int, Struct, Type};
use kymo_model::Endian;

/// A value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// An unsigned number, or a signed one's bits.
    Uint(u64),
    /// A signed number.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// Text; as a string it is cut at a NUL, as a row of characters it is filled up.
    Text(Vec<u8>),
    /// Values of a row.
    Row(Vec<Value>),
    /// Values of a structure, in their order.
    Struct(Vec<Value>),
    /// The option of a variant by its shown name, and its value.
    Option(String, Box<Value>),
}

impl From<u64> for Value {
    fn from(n: u64) -> Self {
        Value::Uint(n)
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Self {
        Value::Int(n)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.as_bytes().to_vec())
    }
}

/// The bytes of a packet that grows.
#[derive(Clone, Debug, Default)]
pub(crate) struct PacketWriter {
    bytes: Vec<u8>,
    /// Bits.
    pos: u64,
}

impl PacketWriter {
    /// An empty packet.
    pub(crate) fn new() -> PacketWriter {
        PacketWriter::default()
    }

    /// Bits written.
    pub(crate) fn bits(&self) -> u64 {
        self.pos
    }

    /// The bytes, the last filled up with zeros.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Goes to a place in bits that was written before, for values that were not known
    /// then.
    pub(crate) fn seek(&mut self, pos: u64) {
        self.pos = pos;
    }

    /// Moves to the next multiple of a power of two.
    pub(crate) fn align(&mut self, to: u32) {
        self.pos = self.pos.next_multiple_of(u64::from(to.max(1)));
        let bytes = self.pos.div_ceil(8) as usize;
        self.bytes.resize(self.bytes.len().max(bytes), 0);
    }

    /// Fills up to a length in bytes.
    pub(crate) fn pad(&mut self, bytes: usize) {
        self.bytes.resize(self.bytes.len().max(bytes), 0);
        self.pos = 8 * self.bytes.len() as u64;
    }

    /// Writes a structure.
    pub(crate) fn structure(&mut self, of: &Struct, values: &[Value]) {
        self.align(alignment_of_struct(of));
        assert_eq!(of.fields.len(), values.len(), "{of:?}");
        of.fields.iter().zip(values).for_each(|(field, value)| self.value(&field.of, value));
    }

    fn value(&mut self, of: &Type, value: &Value) {
        match (of, value) {
            (Type::Int(int), value) => self.int(int, value),
            (Type::Enum(e), value) => self.int(&e.int, value),
            (Type::Float(float), Value::Float(n)) => self.float(float, *n),
            (Type::Text(_), Value::Text(text)) => {
                self.align(8);
                let text = text.split(|b| *b == 0).next().unwrap_or(&[]);
                text.iter()
                    .chain(&[0])
                    .for_each(|b| self.bits_of(u64::from(*b), 8, Endian::Little));
            }
            (Type::Struct(of), Value::Struct(values)) => self.structure(of, values),
            (Type::Array(of, n), value) => self.row(of, value, Some(*n)),
            (Type::Sequence(of, _), value) => self.row(of, value, None),
            (Type::Variant(of), Value::Option(name, value)) => {
                let option = of.options.iter().find(|o| o.shown() == name).unwrap();
                self.value(&option.of, value);
            }
            _ => panic!("{value:?} is no value of {of:?}"),
        }
    }

    /// `count`: how many elements there have to be.
    fn row(&mut self, of: &Type, value: &Value, count: Option<u64>) {
        self.align(alignment(of));
        match value {
            Value::Row(values) if count.is_none_or(|n| n == values.len() as u64) => {
                values.iter().for_each(|v| self.value(of, v));
            }
            Value::Text(text) if count.is_none_or(|n| n >= text.len() as u64) => {
                let fill = count.map_or(0, |n| n as usize - text.len());
                let bytes = text.iter().copied().chain(std::iter::repeat_n(0, fill));
                bytes.into_iter().for_each(|b| self.value(of, &Value::Uint(b.into())));
            }
            _ => panic!("{value:?} is no row of {count:?} {of:?}"),
        }
    }

    fn int(&mut self, int: &Int, value: &Value) {
        let bits = match value {
            Value::Uint(n) => *n,
            Value::Int(n) => *n as u64,
            _ => panic!("{value:?} is no number"),
        };
        self.align(int.align);
        self.bits_of(bits, int.size, int.byte_order);
    }

    fn float(&mut self, float: &Float, value: f64) {
        self.align(float.align);
        match float.exp_dig + float.mant_dig {
            32 => self.bits_of((value as f32).to_bits().into(), 32, float.byte_order),
            _ => self.bits_of(value.to_bits(), 64, float.byte_order),
        }
    }

    /// Writes the lowest bits of a number, wherever that is.
    fn bits_of(&mut self, value: u64, size: u32, order: Endian) {
        let end = self.pos + u64::from(size);
        self.bytes.resize(self.bytes.len().max(end.div_ceil(8) as usize), 0);
        for i in 0..size {
            let (bit, place) = match order {
                Endian::Little => (value >> i & 1, self.pos + u64::from(i)),
                Endian::Big => (value >> (size - 1 - i) & 1, self.pos + u64::from(i)),
            };
            let within = match order {
                Endian::Little => place % 8,
                Endian::Big => 7 - place % 8,
            };
            if let Some(byte) = self.bytes.get_mut((place / 8) as usize) {
                *byte = *byte & !(1 << within) | (bit as u8) << within;
            }
        }
        self.pos = end;
    }
}

/// Alignment of a structure: the largest of its fields', and what it asks itself.
fn alignment_of_struct(of: &Struct) -> u32 {
    of.fields.iter().map(|field| alignment(&field.of)).fold(of.align.max(1), u32::max)
}

/// Alignment that a type asks of what it is in.
fn alignment(of: &Type) -> u32 {
    match of {
        Type::Int(int) => int.align,
        Type::Float(float) => float.align,
        Type::Enum(e) => e.int.align,
        Type::Text(_) => 8,
        // It is aligned as what is chosen.
        Type::Variant(_) => 1,
        Type::Array(of, _) | Type::Sequence(of, _) => alignment(of),
        Type::Struct(of) => alignment_of_struct(of),
        // Of CTF 2, which is not written.
        Type::VarInt(_) | Type::Selection(_) | Type::Aligned(..) => panic!("{of:?}"),
    }
}
