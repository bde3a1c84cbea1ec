//! Packets made event by event, as the metadata lay them out: for traces that are
//! converted and for tests. Tracers write their own.

use kymo_model::Endian;

use crate::ctf::align::Aligns;
use crate::ctf::types::{Float, Int, Struct, Type};

/// A value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
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

/// A value does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field {field}: its value does not fit its type")]
pub struct Missing {
    /// The field, as the metadata call it.
    pub field: String,
}

/// The bytes of a packet that grows.
#[derive(Clone, Debug, Default)]
pub struct PacketWriter {
    bytes: Vec<u8>,
    /// Bits.
    pos: u64,
    aligns: Aligns,
}

impl PacketWriter {
    /// An empty packet.
    pub fn new() -> PacketWriter {
        PacketWriter::default()
    }

    /// Bits written.
    pub fn bits(&self) -> u64 {
        self.pos
    }

    /// The bytes, the last filled up with zeros.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Goes to a place in bits that was written before, for values that were not known
    /// then.
    pub fn seek(&mut self, pos: u64) {
        self.pos = pos;
    }

    /// Moves to the next multiple of a power of two.
    pub fn align(&mut self, to: u32) {
        self.pos = self.pos.next_multiple_of(u64::from(to.max(1)));
        let bytes = self.pos.div_ceil(8) as usize;
        self.bytes.resize(self.bytes.len().max(bytes), 0);
    }

    /// Fills up to so many bytes.
    pub fn pad(&mut self, bytes: usize) {
        self.bytes.resize(self.bytes.len().max(bytes), 0);
        self.pos = 8 * self.bytes.len() as u64;
    }

    /// Writes a structure. What was written of it when a value does not fit stays.
    pub fn structure(&mut self, of: &Struct, values: &[Value]) -> Result<(), Missing> {
        let align = self.aligns.of_struct(of);
        self.align(align);
        let missing = |field: &str| Missing { field: field.to_owned() };
        for (i, field) in of.fields.iter().enumerate() {
            let value = values.get(i).ok_or_else(|| missing(&field.name))?;
            self.value(&field.of, value).map_err(|inner| match inner.field.is_empty() {
                true => missing(&field.name),
                false => inner,
            })?;
        }
        Ok(())
    }

    fn value(&mut self, of: &Type, value: &Value) -> Result<(), Missing> {
        let unfit = || Missing { field: String::new() };
        match (of, value) {
            (Type::Int(int), value) => self.int(int, value).ok_or_else(unfit),
            (Type::Enum(e), value) => self.int(&e.int, value).ok_or_else(unfit),
            (Type::Float(float), Value::Float(n)) => {
                self.float(float, *n);
                Ok(())
            }
            (Type::Text(_), Value::Text(text)) => {
                self.align(8);
                let text = text.split(|b| *b == 0).next().unwrap_or(&[]);
                text.iter()
                    .chain(&[0])
                    .for_each(|b| self.bits_of(u64::from(*b), 8, Endian::Little));
                Ok(())
            }
            (Type::Struct(of), Value::Struct(values)) => self.structure(of, values),
            (Type::Array(of, n), value) => self.row(of, value, Some(*n)),
            (Type::Sequence(of, _), value) => self.row(of, value, None),
            (Type::Variant(of), Value::Option(name, value)) => {
                let option = of.options.iter().find(|o| o.shown() == name).ok_or_else(unfit)?;
                self.value(&option.of, value)
            }
            _ => Err(unfit()),
        }
    }

    /// `most`: how many elements there have to be.
    fn row(&mut self, of: &Type, value: &Value, count: Option<u64>) -> Result<(), Missing> {
        let unfit = || Missing { field: String::new() };
        let align = self.aligns.of(of);
        self.align(align);
        match value {
            Value::Row(values) if count.is_none_or(|n| n == values.len() as u64) => {
                values.iter().try_for_each(|v| self.value(of, v))
            }
            Value::Text(text) if count.is_none_or(|n| n >= text.len() as u64) => {
                let fill = count.map_or(0, |n| n as usize - text.len());
                let bytes = text.iter().copied().chain(std::iter::repeat_n(0, fill));
                bytes.into_iter().try_for_each(|b| self.value(of, &Value::Uint(b.into())))
            }
            _ => Err(unfit()),
        }
    }

    fn int(&mut self, int: &Int, value: &Value) -> Option<()> {
        let bits = match value {
            Value::Uint(n) => *n,
            Value::Int(n) => *n as u64,
            _ => return None,
        };
        self.align(int.align);
        self.bits_of(bits, int.size, int.byte_order);
        Some(())
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
