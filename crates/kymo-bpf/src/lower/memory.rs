//! Values in memory: reading remote ones, storing, comparing.

use super::builder::MemoryPlace;
use super::types::{Type, part_at, unify, words};
use super::{Lowered, Lowering, Value, ValueHome};
use crate::code::{AddressBase, CodeLabel, CompareOperation, Operand};
use crate::facts::CType;

impl Lowering<'_> {
    /// Makes a value one that can be stored: remote ones are read, arrays of char are text,
    /// aggregations are numbers.
    pub(crate) fn settle(&mut self, value: Value) -> Lowered<Value> {
        match (&value.ty, &value.home) {
            (Type::Array { element: CType::Integer { is_char: true, .. }, count }, _) => {
                let size = (*count).max(1);
                let read = self.read_remote(value, size)?;
                Ok(Value { ty: Type::Text(size), home: read.home })
            }
            // An enumeration with data counts as its variant.
            (Type::Record(id), ValueHome::Remote(..) | ValueHome::Memory(_))
                if self.types.layout(*id).is_some_and(|l| l.is_variants()) =>
            {
                let Some(member) = self.types.member(*id, crate::facts::VARIANT) else {
                    return Ok(value);
                };
                self.member(value, &member)
            }
            (Type::Arguments, _) => self.all_arguments(),
            (Type::Record(_) | Type::Number(_) | Type::Array { .. }, ValueHome::Remote(..)) => {
                let size = self.size_of(&value.ty);
                self.read_remote(value, size)
            }
            _ => Ok(value),
        }
    }

    /// Reads memory that a value stands for, padded to words with zeros.
    pub(crate) fn read_remote(&mut self, value: Value, size: u32) -> Lowered<Value> {
        let ValueHome::Remote(address, offset, space) = value.home else { return Ok(value) };
        if size > 8192 {
            return self.error(format!("cannot read {size} bytes in one read (at most 8192)"));
        }
        let place = self.room(size.max(1));
        if !size.is_multiple_of(8) {
            self.store(place.at(words(size) - 8), 8, Operand::Immediate(0));
        }
        let from = MemoryPlace { base: AddressBase::Register(address), offset: offset as i32 };
        let from = self.address(from);
        self.probe_read(place, size, from, space);
        Ok(Value::memory(value.ty, place))
    }

    /// Stores a value as a type that it fits.
    pub(crate) fn store_value(
        &mut self,
        value: &Value,
        place: MemoryPlace,
        ty: &Type,
    ) -> Lowered<()> {
        let room = self.types.storage(ty);
        if value.ty == Type::Unknown {
            // Its type comes with the next pass.
            self.zero_memory(place, room);
            return Ok(());
        }
        match (&value.home, ty) {
            (ValueHome::Literal(text), _) => {
                self.store_literal(text, place, room);
                Ok(())
            }
            (ValueHome::Memory(from), Type::Tuple(wanted, names)) => {
                let Type::Tuple(parts, own) = &value.ty else {
                    return self.error("expected a tuple");
                };
                let mut target = 0;
                for (n, wanted) in wanted.iter().enumerate() {
                    if let Some(at) = part_at(names, own, n).filter(|at| *at < parts.len()) {
                        let source: u32 = parts[..at].iter().map(|p| self.types.storage(p)).sum();
                        let part = Value::memory(parts[at].clone(), from.at(source));
                        self.store_value(&part, place.at(target), wanted)?;
                    }
                    target += self.types.storage(wanted);
                }
                Ok(())
            }
            (ValueHome::Memory(from), _) if !ty.is_scalar() => {
                let has = self.types.storage(&value.ty).min(room);
                self.copy_memory(*from, place, has);
                if room > has {
                    self.zero_memory(place.at(has), room - has);
                }
                if let (Type::Text(n), Type::Text(m)) = (&value.ty, ty)
                    && n > m
                {
                    self.store(place.at(m.saturating_sub(1)), 1, Operand::Immediate(0));
                }
                Ok(())
            }
            _ if ty.is_scalar() || *ty == Type::Unknown => {
                let operand = self.operand(value)?;
                self.store(place, 8, operand);
                Ok(())
            }
            _ => self.error(format!("expected {}, found {}", ty.name(), value.ty.name())),
        }
    }

    fn store_literal(&mut self, text: &str, place: MemoryPlace, room: u32) {
        let mut bytes = text.as_bytes().to_vec();
        bytes.truncate(room.saturating_sub(1) as usize);
        let used = words(bytes.len() as u32 + 1).min(room);
        bytes.resize(used as usize, 0);
        for (n, word) in bytes.chunks_exact(8).enumerate() {
            let word = word.first_chunk().map_or(0, |w| i64::from_le_bytes(*w));
            let value = self.constant(word);
            self.store(place.at(n as u32 * 8), 8, value);
        }
        if room > used {
            self.zero_memory(place.at(used), room - used);
        }
    }

    /// Compares values in memory.
    pub(crate) fn jump_if_equal(
        &mut self,
        a: Value,
        b: Value,
        wanted: bool,
        label: CodeLabel,
    ) -> Lowered<()> {
        let (a, b) = (self.settle(a)?, self.settle(b)?);
        let unequal = self.label();
        let (to_unequal, to_equal) = if wanted { (unequal, Some(label)) } else { (label, None) };
        match (&a.home, &b.home) {
            (ValueHome::Literal(x), ValueHome::Literal(y)) => {
                if (x == y) == wanted {
                    self.jump(label);
                }
                self.place_label(unequal);
                return Ok(());
            }
            (ValueHome::Literal(text), ValueHome::Memory(place)) => {
                self.differ_from_literal(*place, &b.ty, text, to_unequal);
            }
            (ValueHome::Memory(place), ValueHome::Literal(text)) => {
                self.differ_from_literal(*place, &a.ty, text, to_unequal);
            }
            (ValueHome::Memory(x), ValueHome::Memory(y)) => {
                let Some(ty) = unify(&a.ty, &b.ty) else {
                    let what = format!("{} and {} cannot be compared", a.ty.name(), b.ty.name());
                    return self.error(what);
                };
                let (x, y) = if a.ty == b.ty {
                    (*x, *y)
                } else {
                    let size = self.types.storage(&ty);
                    let (left, right) = (self.room(size), self.room(size));
                    self.store_value(&a, left, &ty)?;
                    self.store_value(&b, right, &ty)?;
                    (left, right)
                };
                let size = self.types.storage(&ty);
                self.differ(x, y, size, to_unequal);
            }
            _ if a.ty == Type::Unknown || b.ty == Type::Unknown => {}
            _ => {
                let what = format!("{} and {} cannot be compared", a.ty.name(), b.ty.name());
                return self.error(what);
            }
        }
        if let Some(equal) = to_equal {
            self.jump(equal);
        }
        self.place_label(unequal);
        Ok(())
    }

    /// Jumps where memory does not begin with a text and its NUL.
    fn differ_from_literal(&mut self, place: MemoryPlace, ty: &Type, text: &str, label: CodeLabel) {
        let size = match ty {
            Type::Text(n) => *n,
            other => self.types.storage(other),
        };
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        if bytes.len() as u32 > size {
            self.jump(label);
            return;
        }
        let mut at = 0;
        while at < bytes.len() {
            // Whole words where the room has them; the rest byte by byte in its width.
            let rest = bytes.len() - at;
            let width = if rest >= 8 {
                8
            } else if rest >= 4 {
                4
            } else if rest >= 2 {
                2
            } else {
                1
            };
            let mut word = [0u8; 8];
            word[..width].copy_from_slice(&bytes[at..at + width]);
            let expected = i64::from_le_bytes(word);
            let loaded = self.load(place.at(at as u32), width as u8);
            let expected = self.constant(expected);
            self.branch(CompareOperation::NotEqual, loaded, expected, label);
            at += width;
        }
    }

    /// Jumps where two pieces of memory differ.
    fn differ(&mut self, x: MemoryPlace, y: MemoryPlace, size: u32, label: CodeLabel) {
        let mut at = 0;
        while at < size {
            let (a, b) = (self.load(x.at(at), 8), self.load(y.at(at), 8));
            self.branch(CompareOperation::NotEqual, a, Operand::Register(b), label);
            at += 8;
        }
    }
}
