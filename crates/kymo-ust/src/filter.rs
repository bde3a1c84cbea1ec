//! Filters: programs for a small stack machine, run over a payload in the traced program
//! before anything is written. Jumps go forward only, so a filter always ends; nothing
//! is allocated, and no bytes can make it panic.

use crate::bytes::Take;
use crate::error::FilterError;
use crate::field::{FieldTag, Shape};
use crate::glob::matches;

/// Most bytes of code, and of code and texts.
pub(crate) const MAX_CODE: usize = 512;
const MAX_STACK: usize = 16;
const VERSION: u8 = 1;
const HEADER: usize = 4;

pub(crate) mod op {
    pub(crate) const END: u8 = 1;
    pub(crate) const INT: u8 = 2;
    pub(crate) const UINT: u8 = 3;
    pub(crate) const FLOAT: u8 = 4;
    pub(crate) const TEXT: u8 = 5;
    pub(crate) const FIELD: u8 = 6;
    /// Only in linked filters: a field whose place in the payload is the same in all of them.
    /// Operands: its offset, its size, 1 if it is signed.
    pub(crate) const INT_AT: u8 = 7;
    pub(crate) const EQ: u8 = 16;
    pub(crate) const NE: u8 = 17;
    pub(crate) const LT: u8 = 18;
    pub(crate) const LE: u8 = 19;
    pub(crate) const GT: u8 = 20;
    pub(crate) const GE: u8 = 21;
    pub(crate) const GLOB: u8 = 22;
    pub(crate) const NOT: u8 = 23;
    pub(crate) const AND: u8 = 24;
    pub(crate) const IF_NOT: u8 = 32;
    pub(crate) const IF: u8 = 33;
}

/// The fields of an event, as a filter needs them.
pub trait Fields {
    /// Number of fields.
    fn count(&self) -> usize;
    /// Layout of one in the payload.
    fn shape(&self, index: usize) -> Shape;
    /// Its name.
    fn name(&self, index: usize) -> &[u8];
}

/// A filter: header, code, texts.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    pub(crate) code: &'a [u8],
    texts: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
enum Value<'p> {
    Int(i128),
    Float(f64),
    Text(&'p [u8]),
}

impl Value<'_> {
    fn is_true(self) -> bool {
        match self {
            Value::Int(i) => i != 0,
            Value::Float(f) => f != 0.0,
            Value::Text(t) => !t.is_empty(),
        }
    }

    fn compare(self, other: Value<'_>) -> Option<std::cmp::Ordering> {
        match (self, other) {
            (Value::Int(a), Value::Int(b)) => Some(a.cmp(&b)),
            (Value::Float(a), Value::Float(b)) => a.partial_cmp(&b),
            (Value::Int(a), Value::Float(b)) => compare_mixed(a, b),
            (Value::Float(a), Value::Int(b)) => {
                compare_mixed(b, a).map(std::cmp::Ordering::reverse)
            }
            (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }
}

/// Exact, unlike converting the integer.
fn compare_mixed(int: i128, float: f64) -> Option<std::cmp::Ordering> {
    if float.is_nan() {
        return None;
    }
    // Saturates; integers here have at most 64 bits and a sign.
    let whole = float.trunc();
    Some(int.cmp(&(whole as i128)).then_with(|| 0.0_f64.total_cmp(&(float - whole + 0.0))))
}

impl<'a> Filter<'a> {
    /// Looks at the bytes of a filter, and that its code is whole.
    ///
    /// # Errors
    /// Where it is damaged.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FilterError> {
        let damaged = |at| FilterError::Code { at };
        let [VERSION, _, low, high, ..] = *bytes else { return Err(damaged(0)) };
        let size = usize::from(u16::from_le_bytes([low, high]));
        if size > MAX_CODE {
            return Err(FilterError::TooLong { bytes: size });
        }
        let code = bytes.get(HEADER..HEADER + size).ok_or(damaged(2))?;
        let filter = Self { code, texts: &bytes[HEADER + size..] };
        let mut at = 0;
        while at < code.len() {
            let (opcode, operands, next) = instruction(code, at).ok_or(damaged(at))?;
            match opcode {
                op::INT_AT => return Err(damaged(at)),
                op::TEXT | op::FIELD => {
                    filter.text(operands).ok_or(damaged(at))?;
                }
                op::IF | op::IF_NOT => {
                    let jump = Take(operands).u16().ok_or(damaged(at))?;
                    if next + usize::from(jump) >= code.len() {
                        return Err(damaged(at));
                    }
                }
                _ => {}
            }
            at = next;
        }
        Ok(filter)
    }

    /// The names of the fields it looks at.
    pub fn names(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (filter, mut at) = (*self, 0);
        std::iter::from_fn(move || {
            while let Some((opcode, operands, next)) = instruction(filter.code, at) {
                at = next;
                if opcode == op::FIELD {
                    return filter.text(operands);
                }
            }
            None
        })
    }

    pub(crate) fn text(&self, operands: &[u8]) -> Option<&'a [u8]> {
        let mut take = Take(operands);
        let (at, len) = (usize::from(take.u16()?), usize::from(take.u16()?));
        self.texts.get(at..at + len)
    }

    /// Writes the filter, with field names replaced by their numbers, to `out`, for
    /// [`Filter::run_linked`]; returns how many bytes that are.
    ///
    /// # Errors
    /// A field is not there, or `out` is too small.
    pub fn link(&self, fields: &impl Fields, out: &mut [u8]) -> Result<usize, FilterError> {
        let total = HEADER + self.code.len() + self.texts.len();
        let code_at = HEADER;
        let linked = out.get_mut(..total).ok_or(FilterError::TooLong { bytes: total })?;
        let size = self.code.len() as u16;
        linked[..HEADER].copy_from_slice(&[VERSION, 0, size as u8, (size >> 8) as u8]);
        linked[code_at..code_at + self.code.len()].copy_from_slice(self.code);
        linked[code_at + self.code.len()..].copy_from_slice(self.texts);
        let mut at = 0;
        while let Some((opcode, operands, next)) = instruction(self.code, at) {
            if opcode == op::FIELD {
                let name = self.text(operands).unwrap_or_default();
                let index = (0..fields.count())
                    .find(|i| fields.name(*i) == name && fields.shape(*i).is_comparable());
                let index = index.ok_or(FilterError::NoField { at })?;
                let here = &mut linked[code_at + at..code_at + next];
                here[1..3].copy_from_slice(&(index as u16).to_le_bytes());
                let shape = fields.shape(index);
                let whole = matches!(
                    shape.kind,
                    FieldTag::Int | FieldTag::Enum | FieldTag::Symbol | FieldTag::Bool
                );
                if let (true, Some(offset)) = (whole, fixed_place(fields, index)) {
                    here[0] = op::INT_AT;
                    here[1..3].copy_from_slice(&offset.to_le_bytes());
                    here[3..].copy_from_slice(&[shape.size, shape.flags & Shape::SIGNED]);
                }
            }
            at = next;
        }
        Ok(total)
    }

    /// Runs a linked filter. Whatever is odd about it or the payload makes it false.
    pub fn run_linked(linked: &[u8], fields: &impl Fields, payload: &[u8]) -> bool {
        let [VERSION, _, low, high, ..] = *linked else { return false };
        let size = usize::from(u16::from_le_bytes([low, high]));
        let Some(code) = linked.get(HEADER..HEADER + size) else { return false };
        let filter = Filter { code, texts: &linked[HEADER + size..] };
        filter.run(fields, payload).is_some_and(Value::is_true)
    }

    fn run<'v>(&self, fields: &impl Fields, payload: &'v [u8]) -> Option<Value<'v>>
    where
        'a: 'v,
    {
        let mut stack = [Value::Int(0); MAX_STACK];
        let mut depth = 0_usize;
        let mut at = 0;
        loop {
            let (opcode, operands, next) = instruction(self.code, at)?;
            at = next;
            let mut take = Take(operands);
            let pushed = match opcode {
                op::END => return stack.get(depth.checked_sub(1)?).copied(),
                op::INT => Value::Int(take.i64()?.into()),
                op::UINT => Value::Int(take.u64()?.into()),
                op::FLOAT => Value::Float(f64::from_bits(take.u64()?)),
                op::TEXT => Value::Text(self.text(operands)?),
                op::FIELD => field(fields, take.u16()?.into(), payload)?,
                op::INT_AT => Value::Int(int_at(operands, payload)?),
                op::NOT => {
                    depth = depth.checked_sub(1)?;
                    Value::Int((!stack[depth].is_true()).into())
                }
                op::IF | op::IF_NOT => {
                    let top = stack.get(depth.checked_sub(1)?)?.is_true();
                    if top == (opcode == op::IF) {
                        at += usize::from(take.u16()?);
                    } else {
                        depth -= 1;
                    }
                    continue;
                }
                _ => {
                    depth = depth.checked_sub(2)?;
                    binary(opcode, stack[depth], stack[depth + 1])?
                }
            };
            *stack.get_mut(depth)? = pushed;
            depth += 1;
        }
    }
}

/// Compiled form of most filters, a comparison of one field with one number, prepared for
/// evaluation in a few instructions: whether the field's bits, shifted to the top, are in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InRange {
    /// Offset of the field in the payload.
    pub at: u16,
    /// 64 less the field's bits.
    pub shift: u8,
    /// The first value of the range, shifted.
    pub low: u64,
    /// The last less the first, shifted. The range may go on from the highest value to the lowest.
    pub span: u64,
}

impl InRange {
    /// Converts a linked filter, if it is that simple. (One that is always false is not.)
    pub fn of(linked: &[u8]) -> Option<Self> {
        let [VERSION, _, low, high, code @ ..] = linked else { return None };
        let code = code.get(..usize::from(u16::from_le_bytes([*low, *high])))?;
        let [op::INT_AT, low, high, size, signed, test @ ..] = code else { return None };
        let (number, opcode) = match test {
            [op::END] => (0, op::NE),
            [kind @ (op::INT | op::UINT), number @ .., opcode, op::END] => {
                let number = u64::from_le_bytes(number.try_into().ok()?);
                let signed = i128::from(number as i64);
                (if *kind == op::INT { signed } else { number.into() }, *opcode)
            }
            _ => return None,
        };
        if !matches!(size, 1 | 2 | 4 | 8) {
            return None;
        }
        let bits = u32::from(*size) * 8;
        let least = if *signed != 0 { -(1_i128 << (bits - 1)) } else { 0 };
        let most = least + (1_i128 << bits) - 1;
        let is_a_value = (least..=most).contains(&number);
        let (first, last) = match opcode {
            op::EQ if is_a_value => (number, number),
            // All but one: from the one behind it around to the one before it.
            op::NE if is_a_value => (number + 1, number - 1 + (1 << bits)),
            op::NE => (least, most),
            op::LT => (least, most.min(number - 1)),
            op::LE => (least, most.min(number)),
            op::GT => (least.max(number + 1), most),
            op::GE => (least.max(number), most),
            _ => return None,
        };
        if first > last {
            return None;
        }
        let shift = 64 - bits;
        let word = |value: i128| (value as u64) << shift;
        let (at, span) = (u16::from_le_bytes([*low, *high]), word(last - first));
        Some(Self { at, shift: shift as u8, low: word(first), span })
    }

    /// Whether it passes, of the eight bytes where the field begins.
    #[inline(always)]
    pub fn passes(&self, bytes: [u8; 8]) -> bool {
        let value = u64::from_le_bytes(bytes) << (self.shift & 63);
        value.wrapping_sub(self.low) <= self.span
    }
}

/// Opcode, its operands, where the next one is.
pub(crate) fn instruction(code: &[u8], at: usize) -> Option<(u8, &[u8], usize)> {
    let opcode = *code.get(at)?;
    let operands = match opcode {
        op::END | op::EQ..=op::AND => 0,
        op::INT | op::UINT | op::FLOAT => 8,
        op::TEXT | op::FIELD | op::INT_AT => 4,
        op::IF | op::IF_NOT => 2,
        _ => return None,
    };
    let next = at + 1 + operands;
    Some((opcode, code.get(at + 1..next)?, next))
}

fn binary<'v>(opcode: u8, a: Value<'v>, b: Value<'v>) -> Option<Value<'v>> {
    use std::cmp::Ordering;
    let ordering = a.compare(b);
    let result = match opcode {
        op::EQ => ordering == Some(Ordering::Equal),
        op::NE => ordering != Some(Ordering::Equal),
        op::LT => ordering == Some(Ordering::Less),
        op::LE => ordering.is_some_and(Ordering::is_le),
        op::GT => ordering == Some(Ordering::Greater),
        op::GE => ordering.is_some_and(Ordering::is_ge),
        op::GLOB => match (a, b) {
            (Value::Text(text), Value::Text(pattern)) => matches(pattern, text),
            _ => false,
        },
        op::AND => match (a, b) {
            (Value::Int(a), Value::Int(b)) => return Some(Value::Int(a & b)),
            _ => return None,
        },
        _ => return None,
    };
    Some(Value::Int(result.into()))
}

/// Offset of a field if all before it have a fixed size.
fn fixed_place(fields: &impl Fields, index: usize) -> Option<u16> {
    let mut offset = 0u32;
    for before in (0..index).map(|i| fields.shape(i)) {
        let count = match before.kind {
            FieldTag::String | FieldTag::Sequence => return None,
            FieldTag::Array => before.count,
            _ => 1,
        };
        offset = offset.checked_add(count.checked_mul(before.size.into())?)?;
    }
    u16::try_from(offset).ok()
}

fn int_at(operands: &[u8], payload: &[u8]) -> Option<i128> {
    let [low, high, size, signed] = *operands else { return None };
    let offset = usize::from(u16::from_le_bytes([low, high]));
    let bytes = payload.get(offset..offset + usize::from(size))?;
    Some(integer(bytes, signed != 0))
}

/// The value of a field, found by walking over those before it.
fn field<'v>(fields: &impl Fields, index: usize, payload: &'v [u8]) -> Option<Value<'v>> {
    if index >= fields.count() {
        return None;
    }
    let mut rest = payload;
    for before in 0..index {
        rest = rest.get(fields.shape(before).size_in(rest)?..)?;
    }
    let shape = fields.shape(index);
    let bytes = rest.get(..shape.size_in(rest)?)?;
    Some(match shape.kind {
        FieldTag::Int | FieldTag::Enum | FieldTag::Symbol | FieldTag::Bool => {
            Value::Int(integer(bytes, shape.flags & Shape::SIGNED != 0))
        }
        FieldTag::Float if shape.size == 4 => {
            Value::Float(f32::from_le_bytes(bytes.try_into().ok()?).into())
        }
        FieldTag::Float => Value::Float(f64::from_le_bytes(bytes.try_into().ok()?)),
        FieldTag::String => Value::Text(&bytes[..bytes.len() - 1]),
        FieldTag::Array => Value::Text(bytes),
        FieldTag::Sequence => Value::Text(bytes.get(4..)?),
    })
}

/// A little-endian integer of one, two, four or eight bytes.
#[inline]
fn integer(bytes: &[u8], signed: bool) -> i128 {
    let value = match *bytes {
        [a] => u64::from(a),
        [a, b] => u16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => return 0,
    };
    if signed {
        let unused = 64 - 8 * bytes.len() as u32;
        return ((value << unused) as i64 >> unused).into();
    }
    value.into()
}
