//! Texts: reading, comparing, searching.

use super::builder::{MemoryPlace, helper};
use super::statements::LOOPS_BOUNDED;
use super::types::{AddressSpace, I64, Type, U64, words};
use super::{Lowered, Lowering, Value, ValueHome};
use crate::ast::{Expression, ExpressionKind};
use crate::code::{
    AddressBase, CompareOperation, ComputeOperation, Instruction, Operand, Register,
};
use crate::count_program::TEXT_OR_VALUE;
use crate::facts::CType;
use crate::object::ErrorKind;

/// The longest text that is searched for.
const MAX_NEEDLE: usize = 64;
/// Passes after which texts that grow with each get the room of the longest one.
const WIDENED_AFTER: u32 = 4;
/// Bytes of what follows a text that was cut.
const MAX_TRAILER: usize = 7;

impl Lowering<'_> {
    pub(crate) fn call_text(
        &mut self,
        name: &str,
        arguments: &[Expression],
    ) -> Lowered<Option<Value>> {
        Ok(Some(match name {
            "str" | "kstr" | "ustr" => {
                self.takes(name, arguments, 1, 2)?;
                let space = match name {
                    "kstr" => Some(AddressSpace::Kernel),
                    "ustr" => Some(AddressSpace::User),
                    _ => None,
                };
                self.read_text(arguments, space)?
            }
            TEXT_OR_VALUE => {
                self.takes(name, arguments, 1, 1)?;
                let value = self.value(&arguments[0])?;
                match &value.ty {
                    Type::Pointer { target: CType::Integer { is_char: true, .. }, .. } => {
                        self.read_text(arguments, None)?
                    }
                    _ => value,
                }
            }
            "buf" => {
                self.takes(name, arguments, 1, 2)?;
                self.read_buffer(arguments)?
            }
            "path" => {
                self.takes(name, arguments, 1, 2)?;
                self.read_path(arguments)?
            }
            "strncmp" | "memcmp" => {
                self.takes(name, arguments, 3, 3)?;
                let count = self.constant_of(&arguments[2], "third argument")?;
                if !(0..=1024).contains(&count) {
                    return self.error("cannot compare more than 1024 bytes");
                }
                let (a, b) = (self.value(&arguments[0])?, self.value(&arguments[1])?);
                let (a, b) = (self.text_memory(a)?, self.text_memory(b)?);
                self.compare_bytes(a, b, count as u32, name == "strncmp")?
            }
            "strcontains" | "strstr" => {
                self.takes(name, arguments, 2, 2)?;
                let hay = self.value(&arguments[0])?;
                let needle = self.value(&arguments[1])?;
                let at = match self.known_text(&needle) {
                    Some(needle) => self.find_literal(hay, &needle)?,
                    None => self.find_text(hay, needle)?,
                };
                if name == "strstr" {
                    return Ok(Some(Value::register(I64, at)));
                }
                let (result, end) = (self.copy_of(Operand::Immediate(1)), self.label());
                self.branch(CompareOperation::SignedGreaterEqual, at, Operand::Immediate(0), end);
                self.emit(Instruction::Move(result, Operand::Immediate(0)));
                self.place_label(end);
                Value::register(Type::Boolean, result)
            }
            "str_concat" => {
                self.takes(name, arguments, 2, 2)?;
                let (a, b) = (self.value(&arguments[0])?, self.value(&arguments[1])?);
                self.concatenated(a, b)?
            }
            "strlen" => {
                self.takes(name, arguments, 1, 1)?;
                let value = self.value(&arguments[0])?;
                self.text_length(value)?
            }
            "strcap" => {
                self.takes(name, arguments, 1, 1)?;
                let value = self.value(&arguments[0])?;
                match value.ty {
                    Type::Text(n) | Type::Array { count: n, .. } => Value::constant(i64::from(n)),
                    other => return self.error(format!("{} is not a string", other.name())),
                }
            }
            _ => return Ok(None),
        }))
    }

    /// `str(address[, length])`
    fn read_text(
        &mut self,
        arguments: &[Expression],
        space: Option<AddressSpace>,
    ) -> Lowered<Value> {
        // Of this text only, not of those that its address is made of.
        let unpadded = std::mem::take(&mut self.text_unpadded);
        let value = match *arguments[0].kind {
            // `str($1)` is what was typed, also if it is a number.
            ExpressionKind::Parameter(n) => self.parameter_text(n),
            _ => self.value(&arguments[0])?,
        };
        // With the NUL.
        let most = self.text_limit() + 1;
        // A limit of the program's own is meant; that of all texts is not.
        let mut is_limited = arguments.get(1).is_some();
        let (length, size) = match arguments.get(1) {
            None => (Operand::Immediate(most as i32), most),
            Some(length) => {
                let value_home = value.home.clone();
                let value = self.scalar(length)?;
                match value.home {
                    ValueHome::Constant(n) => {
                        if n < 0 {
                            return self.error("length of str() is negative");
                        }
                        if n == 0 {
                            return Ok(Value::literal(""));
                        }
                        // A literal is cut behind that many bytes; memory is read up to them, the
                        // last of which is the NUL.
                        let literal = u64::from(matches!(value_home, ValueHome::Literal(_)));
                        let size = (n as u64 + literal).min(u64::from(most)) as u32;
                        is_limited = size < most;
                        (Operand::Immediate(size as i32), size)
                    }
                    _ => {
                        let operand = self.operand(&value)?;
                        let length = self.copy_of(operand);
                        let fits = self.label();
                        let limit = Operand::Immediate(most as i32);
                        self.branch(CompareOperation::LessEqual, length, limit, fits);
                        self.emit(Instruction::Move(length, limit));
                        self.place_label(fits);
                        (Operand::Register(length), most)
                    }
                }
            }
        };
        let (address, own) = match (&value.home, &value.ty) {
            (ValueHome::Literal(text), _) => {
                let end = text.char_indices().map(|(i, _)| i).take_while(|i| *i < size as usize);
                let cut =
                    if text.len() >= size as usize { end.last().unwrap_or(0) } else { text.len() };
                return Ok(Value::literal(&text[..cut]));
            }
            (_, Type::Text(_)) | (ValueHome::Memory(_), Type::Array { .. }) => {
                return self.settle(value);
            }
            (ValueHome::Remote(address, offset, remote), _) => {
                let from =
                    MemoryPlace { base: AddressBase::Register(*address), offset: *offset as i32 };
                (self.address(from), *remote)
            }
            (_, Type::Pointer { space, .. }) => {
                let space = *space;
                (self.operand(&value)?, space)
            }
            _ => {
                let value = self.as_scalar(value)?;
                (self.operand(&value)?, self.default_space())
            }
        };
        let space = space.unwrap_or(own);
        let trailer = if is_limited { String::new() } else { self.trailer() };
        let full = words(size + trailer.len() as u32);
        let place = self.room(full);
        if !unpadded {
            // The helper leaves what follows the NUL as it was; keys are compared as a whole.
            self.zero_memory(place, full);
        }
        let address = self.kept(address);
        let read = self.probe_read_text(place, length, address, space);
        if !is_limited {
            self.mark_cut(place, size, read, (address, space), &trailer);
        }
        if unpadded {
            self.text_read = Some((place, read));
        }
        let size = if is_limited { size } else { full };
        Ok(Value::memory(Type::Text(size), place))
    }

    /// Characters of a text, without the NUL.
    pub(crate) fn text_limit(&self) -> u32 {
        self.setting("max_strlen", 1024).clamp(1, 8192) as u32
    }

    /// Text that marks a truncated text.
    pub(crate) fn trailer(&self) -> String {
        let trailer = self.config.get("str_trunc_trailer").map_or("..", String::as_str);
        let end = (0..=MAX_TRAILER).rev().find(|end| trailer.is_char_boundary(*end));
        trailer.get(..end.unwrap_or(0)).unwrap_or(trailer).to_owned()
    }

    /// An operand that later instructions may use again.
    fn kept(&mut self, operand: Operand) -> Operand {
        Operand::Register(self.copy_of(operand))
    }

    /// Counts a text that was longer than its room, and puts the trailer behind it. One that fills
    /// the room is as long as it, or longer: the byte after it decides.
    pub(crate) fn mark_cut(
        &mut self,
        place: MemoryPlace,
        size: u32,
        read: Register,
        (address, space): (Operand, AddressSpace),
        trailer: &str,
    ) {
        let whole = self.label();
        self.branch(CompareOperation::NotEqual, read, Operand::Immediate(size as i32), whole);
        let last = self.room(8);
        self.store(last, 8, Operand::Immediate(0));
        let behind =
            self.computed(ComputeOperation::Add, address, Operand::Immediate(size as i32 - 1));
        self.probe_read(last, 1, Operand::Register(behind), space);
        let byte = self.load(last, 1);
        self.branch(CompareOperation::Equal, byte, Operand::Immediate(0), whole);
        self.count_error(ErrorKind::TextCut);
        if !trailer.is_empty() {
            for (n, byte) in (size - 1..).zip(trailer.bytes().chain([0])) {
                self.store(place.at(n), 1, Operand::Immediate(i32::from(byte)));
            }
            let length = size + trailer.len() as u32;
            self.emit(Instruction::Move(read, Operand::Immediate(length as i32)));
        }
        self.place_label(whole);
    }

    /// `buf(data[, length])`
    fn read_buffer(&mut self, arguments: &[Expression]) -> Lowered<Value> {
        let mut value = self.value(&arguments[0])?;
        if let ValueHome::Literal(_) = value.home {
            let ty = value.ty.clone();
            let place = self.room(self.types.storage(&ty));
            self.store_value(&value, place, &ty)?;
            value = Value::memory(ty, place);
        }
        let most = self.max_text() - 8;
        let fixed = match &value.ty {
            Type::Array { element, count } => Some(self.types.size(element).saturating_mul(*count)),
            Type::Text(n) => Some(*n),
            Type::Record(id) => Some(self.types.size(&crate::facts::CType::Record { id: *id })),
            Type::Buffer(n) if matches!(value.home, ValueHome::Remote(..)) => Some(*n),
            // A number that is in memory.
            Type::Integer { size, .. } if matches!(value.home, ValueHome::Remote(..)) => {
                Some(u32::from(*size))
            }
            // What it is of is known in the next pass.
            Type::Unknown => Some(8),
            _ => None,
        };
        let length = match arguments.get(1) {
            Some(length) => self.scalar(length)?,
            None => match fixed {
                Some(n) => Value::constant(i64::from(n)),
                None => return self.error("buf() needs a length here"),
            },
        };
        let size = match length.home {
            ValueHome::Constant(n) => u32::try_from(n.max(0)).unwrap_or(most).min(most),
            _ => fixed.unwrap_or(most).min(most),
        };
        let operand = match length.home {
            ValueHome::Constant(_) => Operand::Immediate(size as i32),
            _ => {
                let operand = self.operand(&length)?;
                let length = self.copy_of(operand);
                let fits = self.label();
                let limit = Operand::Immediate(size as i32);
                self.branch(CompareOperation::LessEqual, length, limit, fits);
                self.emit(Instruction::Move(length, limit));
                self.place_label(fits);
                Operand::Register(length)
            }
        };
        let place = self.room(size + 4);
        self.zero_memory(place, words(size + 4));
        self.store(place, 4, operand);
        if let (ValueHome::Memory(from), Operand::Immediate(_)) = (&value.home, operand)
            && !value.ty.is_scalar()
        {
            self.copy_memory(*from, place.at(4), size);
            return Ok(Value::memory(Type::Buffer(size), place));
        }
        let (from, space) = match value.home {
            ValueHome::Remote(address, offset, space) => {
                let at =
                    MemoryPlace { base: AddressBase::Register(address), offset: offset as i32 };
                (self.address(at), space)
            }
            ValueHome::Memory(at) if !value.ty.is_scalar() => {
                (self.address(at), AddressSpace::Record)
            }
            _ => {
                let space = match value.ty {
                    Type::Pointer { space, .. } => space,
                    _ => self.default_space(),
                };
                let value = self.as_scalar(value)?;
                (self.operand(&value)?, space)
            }
        };
        self.read_from(space);
        let helper = match space {
            AddressSpace::Kernel | AddressSpace::Record => helper::PROBE_READ_KERNEL,
            AddressSpace::User => helper::PROBE_READ_USER,
            AddressSpace::Either => helper::PROBE_READ,
        };
        let to = self.address(place.at(4));
        let result = self.call(helper, vec![to, operand, from]);
        self.count_if_negative(result, ErrorKind::ReadFailed);
        Ok(Value::memory(Type::Buffer(size), place))
    }

    /// `path(&file.f_path)`
    fn read_path(&mut self, arguments: &[Expression]) -> Lowered<Value> {
        let value = self.value(&arguments[0])?;
        let size = match arguments.get(1) {
            Some(size) => self.constant_of(size, "size of path()")?.clamp(8, 4096) as u32,
            None => self.max_text(),
        };
        let address = match value.home {
            ValueHome::Remote(address, offset, _) => {
                let at =
                    MemoryPlace { base: AddressBase::Register(address), offset: offset as i32 };
                self.address(at)
            }
            _ => self.operand(&value)?,
        };
        let place = self.room(size);
        self.zero_memory(place, words(size));
        let to = self.address(place);
        let result = self.call(helper::PATH, vec![address, to, Operand::Immediate(size as i32)]);
        self.count_if_negative(result, ErrorKind::HelperFailed("d_path"));
        Ok(Value::memory(Type::Text(size), place))
    }

    /// Memory and bytes of a text.
    pub(super) fn text_memory(&mut self, value: Value) -> Lowered<(MemoryPlace, u32)> {
        let value = match value.ty {
            Type::ProbeName => match self.known_text(&value) {
                Some(text) => Value::literal(&text),
                None => value,
            },
            Type::Pointer { space, .. } => {
                let size = self.max_text();
                let place = self.room(size);
                self.zero_memory(place, size);
                let address = self.operand(&value)?;
                self.probe_read_text(place, Operand::Immediate(size as i32), address, space);
                return Ok((place, size));
            }
            _ => self.settle(value)?,
        };
        let size = match &value.ty {
            Type::Text(n) => *n,
            Type::Unknown => 8,
            other => self.types.storage(other),
        };
        match value.home {
            ValueHome::Memory(place) => Ok((place, size)),
            ValueHome::Literal(_) => {
                let place = self.room(size);
                self.store_value(&value, place, &value.ty)?;
                Ok((place, size))
            }
            _ if value.ty == Type::Unknown => {
                let place = self.room(8);
                self.zero_memory(place, 8);
                Ok((place, 8))
            }
            _ => self.error(format!("{} is not a string", value.ty.name())),
        }
    }

    /// Difference of the first bytes that differ, 0 where none does.
    fn compare_bytes(
        &mut self,
        (a, a_size): (MemoryPlace, u32),
        (b, b_size): (MemoryPlace, u32),
        count: u32,
        until_nul: bool,
    ) -> Lowered<Value> {
        let most = count.min(a_size).min(b_size);
        let result = self.copy_of(Operand::Immediate(0));
        let end = self.label();
        for n in 0..most {
            let (x, y) = (self.load(a.at(n), 1), self.load(b.at(n), 1));
            let difference = self.computed(
                ComputeOperation::Subtract,
                Operand::Register(x),
                Operand::Register(y),
            );
            self.emit(Instruction::Move(result, Operand::Register(difference)));
            self.branch(CompareOperation::NotEqual, difference, Operand::Immediate(0), end);
            if until_nul {
                self.branch(CompareOperation::Equal, x, Operand::Immediate(0), end);
            }
        }
        self.place_label(end);
        if self.is_old() {
            // Whether they differ.
            let same = self.label();
            self.branch(CompareOperation::Equal, result, Operand::Immediate(0), same);
            self.emit(Instruction::Move(result, Operand::Immediate(1)));
            self.place_label(same);
        }
        Ok(Value::register(I64, result))
    }

    /// A text that is known now.
    fn known_text(&self, value: &Value) -> Option<String> {
        match (&value.home, &value.ty) {
            (ValueHome::Literal(text), _) => Some(text.clone()),
            (ValueHome::Constant(n), Type::ProbeName) => {
                self.probe_names.get(usize::try_from(*n).ok()?).cloned()
            }
            _ => None,
        }
    }

    /// Index of a text in another one, or -1, where neither is known: one loop that goes through
    /// the first text and, as far as they agree, through the second one with it.
    fn find_text(&mut self, hay: Value, needle: Value) -> Lowered<Register> {
        if self.options.kernel < LOOPS_BOUNDED {
            return self.error("searching for a string that is not a literal needs Linux 6.9");
        }
        let (hay, needle) = (self.text_memory(hay)?, self.text_memory(needle)?);
        let result = self.copy_of(Operand::Immediate(-1));
        let (again, differs, found, end) = (self.label(), self.label(), self.label(), self.label());
        // Zeros that are read one by one: copies of one would share what the verifier learns of
        // each, and it would walk through every pair of places.
        let zeros = self.zeros(8, end);
        let (at, agree) = (self.load(zeros, 8), self.load(zeros, 8));
        self.place_label(again);
        self.bound_loop(end);
        let size = Operand::Immediate(needle.1 as i32);
        self.branch(CompareOperation::GreaterEqual, agree, size, found);
        let wanted = self.byte_at(needle.0, agree);
        self.branch(CompareOperation::Equal, wanted, Operand::Immediate(0), found);
        let here =
            self.computed(ComputeOperation::Add, Operand::Register(at), Operand::Register(agree));
        let size = Operand::Immediate(hay.1 as i32);
        self.branch(CompareOperation::GreaterEqual, here, size, end);
        let byte = self.byte_at(hay.0, here);
        self.branch(CompareOperation::Equal, byte, Operand::Immediate(0), end);
        self.branch(CompareOperation::NotEqual, byte, Operand::Register(wanted), differs);
        self.compute(ComputeOperation::Add, agree, Operand::Immediate(1));
        self.jump(again);
        self.place_label(differs);
        self.compute(ComputeOperation::Add, at, Operand::Immediate(1));
        let zero = self.load(zeros, 8);
        self.emit(Instruction::Move(agree, Operand::Register(zero)));
        self.jump(again);
        self.place_label(found);
        self.emit(Instruction::Move(result, Operand::Register(at)));
        self.place_label(end);
        Ok(result)
    }

    /// A byte of memory of ours, at an index that was compared with its size.
    fn byte_at(&mut self, place: MemoryPlace, index: Register) -> Register {
        let base = self.address(place);
        let here = self.computed(ComputeOperation::Add, base, Operand::Register(index));
        self.load(MemoryPlace { base: AddressBase::Register(here), offset: 0 }, 1)
    }

    /// Index of a text in another one, or -1: a loop over places, unrolled over the needle.
    fn find_literal(&mut self, hay: Value, needle: &str) -> Lowered<Register> {
        let needle = needle.split('\0').next().unwrap_or("");
        if needle.is_empty() {
            return Ok(self.copy_of(Operand::Immediate(0)));
        }
        if needle.len() > MAX_NEEDLE {
            return self.error(format!("cannot search for more than {MAX_NEEDLE} bytes"));
        }
        let (place, size) = self.text_memory(hay)?;
        let result = self.copy_of(Operand::Immediate(-1));
        let Some(last) = size.checked_sub(needle.len() as u32 + 1) else { return Ok(result) };
        let (again, next, end) = (self.label(), self.label(), self.label());
        let at = self.copy_of(Operand::Immediate(0));
        self.place_label(again);
        self.branch(CompareOperation::Greater, at, Operand::Immediate(last as i32), end);
        let base = self.address(place);
        let here = self.computed(ComputeOperation::Add, base, Operand::Register(at));
        let here = MemoryPlace { base: AddressBase::Register(here), offset: 0 };
        // What follows the NUL is not of the text.
        let first = self.load(here, 1);
        self.branch(CompareOperation::Equal, first, Operand::Immediate(0), end);
        for (n, byte) in needle.bytes().enumerate() {
            let loaded = if n == 0 { first } else { self.load(here.at(n as u32), 1) };
            let byte = Operand::Immediate(i32::from(byte));
            self.branch(CompareOperation::NotEqual, loaded, byte, next);
        }
        self.emit(Instruction::Move(result, Operand::Register(at)));
        self.jump(end);
        self.place_label(next);
        self.compute(ComputeOperation::Add, at, Operand::Immediate(1));
        self.jump(again);
        self.place_label(end);
        Ok(result)
    }

    /// Both texts, one behind the other, in the room of one.
    fn concatenated(&mut self, a: Value, b: Value) -> Lowered<Value> {
        if let (ValueHome::Literal(a), ValueHome::Literal(b)) = (&a.home, &b.home) {
            return Ok(Value::literal(&format!("{a}{b}")));
        }
        let (a, b) = (self.text_memory(a)?, self.text_memory(b)?);
        let both = words(a.1 + b.1);
        // A text that is made of itself never settles: it gets the room of the longest one.
        let kept = match self.passes {
            0..WIDENED_AFTER => both,
            _ => words(self.text_limit()),
        };
        let (first, all) = (words(a.1), both.max(kept));
        let place = self.room(all);
        self.zero_memory(place, all);
        let (from, size) = (self.address(a.0), Operand::Immediate(a.1 as i32));
        let read = self.probe_read_text(place, size, from, AddressSpace::Kernel);
        let (end, is_read) = (self.copy_of(Operand::Immediate(0)), self.label());
        // With the NUL, where the second one begins; the verifier wants both bounds.
        self.branch(CompareOperation::SignedLessEqual, read, Operand::Immediate(0), is_read);
        self.branch(
            CompareOperation::SignedGreater,
            read,
            Operand::Immediate(first as i32),
            is_read,
        );
        self.emit(Instruction::Move(end, Operand::Register(read)));
        self.compute(ComputeOperation::Subtract, end, Operand::Immediate(1));
        self.place_label(is_read);
        let base = self.address(place);
        let behind = self.computed(ComputeOperation::Add, base, Operand::Register(end));
        let behind = MemoryPlace { base: AddressBase::Register(behind), offset: 0 };
        let (from, size) = (self.address(b.0), Operand::Immediate(b.1 as i32));
        let read = self.probe_read_text(behind, size, from, AddressSpace::Kernel);
        if all > kept {
            let fits = self.label();
            self.compute(ComputeOperation::Add, read, Operand::Register(end));
            let most = Operand::Immediate(kept as i32);
            self.branch(CompareOperation::SignedLessEqual, read, most, fits);
            self.count_error(ErrorKind::TextCut);
            self.store(place.at(kept - 1), 1, Operand::Immediate(0));
            self.place_label(fits);
        }
        Ok(Value::memory(Type::Text(kept), place))
    }

    /// Bytes before the NUL.
    pub(crate) fn text_length(&mut self, value: Value) -> Lowered<Value> {
        if let ValueHome::Literal(text) = &value.home {
            return Ok(Value::constant(text.len() as i64));
        }
        let (place, size) = self.text_memory(value)?;
        let (again, end) = (self.label(), self.label());
        let at = self.copy_of(Operand::Immediate(0));
        self.place_label(again);
        let limit = Operand::Immediate(size as i32);
        self.branch(CompareOperation::GreaterEqual, at, limit, end);
        let base = self.address(place);
        let here = self.computed(ComputeOperation::Add, base, Operand::Register(at));
        let here = MemoryPlace { base: AddressBase::Register(here), offset: 0 };
        let byte = self.load(here, 1);
        self.branch(CompareOperation::Equal, byte, Operand::Immediate(0), end);
        self.compute(ComputeOperation::Add, at, Operand::Immediate(1));
        self.jump(again);
        self.place_label(end);
        Ok(Value::register(U64, at))
    }
}
