//! Location of a variable at one address, in terms of a fetch argument: a register or an address,
//! offsets, and reads of memory.

use gimli::Operation;

use super::die::Die;
use super::unit::{Dwarf, DwarfUnit};
use super::{DwarfError, Entry, Reader, Result, Value};

/// `((base + d0)* + d1)* + add`, where `*` reads memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocationExpr {
    /// Start of the expression.
    pub base: LocationBase,
    /// Offset of each read of memory, innermost first.
    pub derefs: Vec<i64>,
    /// Added to the value behind the last read.
    pub add: i64,
}

/// Start of a location expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocationBase {
    /// A register, by its DWARF number.
    Register(u16),
    /// An address of the binary.
    Address(u64),
    /// A number that is no address.
    Number(i64),
}

/// Location of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariableLocation {
    /// The value is the expression.
    Value(LocationExpr),
    /// The value is in memory at the expression.
    Memory(LocationExpr),
    /// Parts of it are in different places: `(bytes, place)`.
    Pieces(Vec<(u64, VariableLocation)>),
    /// Another file defines it.
    Extern(String),
    /// It cannot be had, and why.
    Gone(String),
}

impl LocationExpr {
    pub(super) fn register(number: u16) -> LocationExpr {
        LocationExpr { base: LocationBase::Register(number), derefs: Vec::new(), add: 0 }
    }

    pub(super) fn number(n: i64) -> LocationExpr {
        LocationExpr { base: LocationBase::Number(n), derefs: Vec::new(), add: 0 }
    }

    pub(super) fn plus(mut self, offset: i64) -> LocationExpr {
        match &mut self.base {
            LocationBase::Number(n) if self.derefs.is_empty() => *n = n.wrapping_add(offset),
            _ => self.add = self.add.wrapping_add(offset),
        }
        self
    }

    /// The value in memory there.
    pub(super) fn load(mut self) -> LocationExpr {
        self.derefs.push(self.add);
        self.add = 0;
        self
    }
}

/// Context in which an expression is evaluated.
pub struct LocationContext<'d, 's> {
    /// Debugging information.
    pub dwarf: &'d Dwarf<'s>,
    /// The function the place is in.
    pub function: Die<'s>,
    /// Its entry.
    pub entry: Option<u64>,
    /// Address of the place.
    pub pc: u64,
}

/// Addresses at which a variable is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Wherever its scope is.
    Scope,
    /// In these spans.
    Spans(Vec<(u64, u64)>),
}

impl<'s> LocationContext<'_, 's> {
    /// Location of the variable `die`; `None` if it has none at this address.
    pub fn locate(&self, die: &Die<'s>, entry: &Entry<'s>) -> Result<Option<VariableLocation>> {
        if let Some(value) = entry.attr_value(gimli::DW_AT_const_value) {
            return Ok(Some(constant(&value)));
        }
        let Some((unit, value)) = self.dwarf.inherited(die, gimli::DW_AT_location)? else {
            return match self.dwarf.inherited(die, gimli::DW_AT_const_value)? {
                Some((_, value)) => Ok(Some(constant(&value))),
                None if entry.has_attr(gimli::DW_AT_external) => {
                    Ok(self.dwarf.name(die)?.map(VariableLocation::Extern))
                }
                None => Ok(None),
            };
        };
        match value {
            Value::Exprloc(e) => self.evaluate(&unit, e).map(Some),
            other => self.in_list(&unit, other, entry.tag() == gimli::DW_TAG_formal_parameter),
        }
    }

    fn in_list(
        &self,
        unit: &DwarfUnit<'s>,
        value: Value<'s>,
        parameter: bool,
    ) -> Result<Option<VariableLocation>> {
        let Some(mut list) = unit.dwarf.attr_locations(&unit.inner, value)? else {
            return Ok(None);
        };
        // A parameter is where the calling convention puts it from the very
        // first instruction on, but compilers may state that only behind the
        // call to the function tracer with which kernels begin functions.
        const PREAMBLE: u64 = 9;
        let at_entry = parameter && self.entry == Some(self.pc);
        let mut later = None;
        while let Some(entry) = list.next()? {
            if (entry.range.begin..entry.range.end).contains(&self.pc) {
                return self.evaluate(unit, entry.data).map(Some);
            }
            let near = entry.range.begin > self.pc && entry.range.begin - self.pc <= PREAMBLE;
            if at_entry && near && later.is_none() && entry.range.begin < entry.range.end {
                later = Some(entry.data);
            }
        }
        later.map(|e| self.evaluate(unit, e)).transpose()
    }

    fn frame_base(&self) -> Result<Option<LocationExpr>> {
        let found = self.dwarf.inherited(&self.function, gimli::DW_AT_frame_base)?;
        let Some((unit, Value::Exprloc(e))) = found else { return Ok(None) };
        let encoding = unit.inner.encoding();
        let mut ops = e.operations(encoding);
        match ops.next()? {
            Some(Operation::CallFrameCFA) => self.dwarf.frame_address(self.pc),
            Some(Operation::Register { register }) => Ok(Some(LocationExpr::register(register.0))),
            Some(Operation::RegisterOffset { register, offset, .. }) => {
                Ok(Some(LocationExpr::register(register.0).plus(offset)))
            }
            _ => Ok(None),
        }
    }

    pub(super) fn evaluate(
        &self,
        unit: &DwarfUnit<'s>,
        expression: gimli::Expression<Reader<'s>>,
    ) -> Result<VariableLocation> {
        let mut machine = Machine { stack: Vec::new(), done: None, pieces: Vec::new() };
        let mut ops = expression.operations(unit.inner.encoding());
        while let Some(op) = ops.next()? {
            if let Some(why) = self.step(unit, &mut machine, op)? {
                return Ok(VariableLocation::Gone(why.to_owned()));
            }
        }
        if !machine.pieces.is_empty() {
            return Ok(VariableLocation::Pieces(machine.pieces));
        }
        Ok(machine.take().unwrap_or_else(|| VariableLocation::Gone("it is optimised out".into())))
    }

    /// One operation. Says why, if the value cannot be had with it.
    fn step(
        &self,
        unit: &DwarfUnit<'s>,
        m: &mut Machine,
        op: Operation<Reader<'s>>,
    ) -> Result<Option<&'static str>> {
        const COMPUTED: &str = "its value would have to be computed, which fetch arguments cannot";
        const FRAME: &str = "nothing says where the frame is at this place";
        match op {
            Operation::Register { register } => {
                m.done = Some(VariableLocation::Value(LocationExpr::register(register.0)))
            }
            Operation::RegisterOffset { register, offset, .. } => {
                m.stack.push(LocationExpr::register(register.0).plus(offset))
            }
            Operation::FrameOffset { offset } => match self.frame_base()? {
                Some(base) => m.stack.push(base.plus(offset)),
                None => return Ok(Some(FRAME)),
            },
            Operation::CallFrameCFA => match self.dwarf.frame_address(self.pc)? {
                Some(cfa) => m.stack.push(cfa),
                None => return Ok(Some(FRAME)),
            },
            Operation::Address { address } => m.stack.push(LocationExpr {
                base: LocationBase::Address(address),
                derefs: Vec::new(),
                add: 0,
            }),
            Operation::AddressIndex { index } => m.stack.push(LocationExpr {
                base: LocationBase::Address(unit.dwarf.address(&unit.inner, index)?),
                derefs: Vec::new(),
                add: 0,
            }),
            Operation::UnsignedConstant { value } => {
                m.stack.push(LocationExpr::number(value as i64))
            }
            Operation::SignedConstant { value } => m.stack.push(LocationExpr::number(value)),
            Operation::PlusConstant { value } => match m.stack.pop() {
                Some(top) => m.stack.push(top.plus(value as i64)),
                None => return Ok(Some(COMPUTED)),
            },
            Operation::Plus => match (m.stack.pop(), m.stack.pop()) {
                (Some(LocationExpr { base: LocationBase::Number(n), derefs, .. }), Some(e))
                    if derefs.is_empty() =>
                {
                    m.stack.push(e.plus(n));
                }
                (Some(e), Some(LocationExpr { base: LocationBase::Number(n), derefs, .. }))
                    if derefs.is_empty() =>
                {
                    m.stack.push(e.plus(n));
                }
                _ => return Ok(Some(COMPUTED)),
            },
            Operation::Deref { size, space: false, .. }
                if size == self.dwarf.sections.address_size =>
            {
                match m.stack.pop() {
                    Some(top) => m.stack.push(top.load()),
                    None => return Ok(Some(COMPUTED)),
                }
            }
            Operation::StackValue => m.done = m.stack.pop().map(VariableLocation::Value),
            Operation::ImplicitValue { data } => m.done = Some(implicit(data.slice())),
            Operation::ImplicitPointer { .. } => {
                return Ok(Some("it points to something that has no place in memory"));
            }
            Operation::EntryValue { expression } if self.entry == Some(self.pc) => {
                match self.evaluate(unit, gimli::Expression(expression))? {
                    VariableLocation::Value(e) => m.stack.push(e),
                    _ => return Ok(Some(COMPUTED)),
                }
            }
            Operation::EntryValue { .. } | Operation::ParameterRef { .. } => {
                return Ok(Some("only its value at the function's entry is known here"));
            }
            Operation::TLS => {
                return Ok(Some("it is thread-local, which fetch arguments cannot reach"));
            }
            Operation::Piece { size_in_bits, bit_offset } => {
                if size_in_bits % 8 != 0 || bit_offset.is_some_and(|b| b != 0) {
                    return Ok(Some("it is scattered over bits of several places"));
                }
                let place = m.take().unwrap_or_else(|| {
                    VariableLocation::Gone("this part of it is optimised out".into())
                });
                m.pieces.push((size_in_bits / 8, place));
            }
            Operation::Nop => {}
            _ => return Ok(Some(COMPUTED)),
        }
        // Expressions are short; a hostile one must not grow without bound.
        const LIMIT: usize = 256;
        let large = m.stack.len() > LIMIT || m.pieces.len() > LIMIT;
        Ok(large.then_some(COMPUTED))
    }

    /// Addresses at which the variable is alive.
    pub fn alive(&self, die: &Die<'s>) -> Result<Option<Liveness>> {
        let Some((unit, value)) = self.dwarf.inherited(die, gimli::DW_AT_location)? else {
            return Ok(None);
        };
        if matches!(value, Value::Exprloc(_)) {
            return Ok(Some(Liveness::Scope));
        }
        let Some(mut list) = unit.dwarf.attr_locations(&unit.inner, value)? else {
            return Ok(None);
        };
        let mut spans = Vec::new();
        while let Some(entry) = list.next()? {
            if spans.len() > super::budget::LIMIT / size_of::<(u64, u64)>() {
                return Err(DwarfError::TooMuchMemory { limit: super::budget::LIMIT });
            }
            spans.push((entry.range.begin, entry.range.end));
        }
        Ok(Some(Liveness::Spans(spans)))
    }
}

/// The stack of an expression.
struct Machine {
    stack: Vec<LocationExpr>,
    done: Option<VariableLocation>,
    pieces: Vec<(u64, VariableLocation)>,
}

impl Machine {
    fn take(&mut self) -> Option<VariableLocation> {
        self.done.take().or_else(|| self.stack.pop().map(VariableLocation::Memory))
    }
}

fn constant(value: &Value<'_>) -> VariableLocation {
    if let Value::Block(bytes) = value {
        return implicit(bytes.slice());
    }
    match value.sdata_value().or_else(|| value.udata_value().map(|u| u as i64)) {
        Some(n) => VariableLocation::Value(LocationExpr::number(n)),
        None => VariableLocation::Gone("it is a constant that is no number".into()),
    }
}

fn implicit(bytes: &[u8]) -> VariableLocation {
    let mut word = [0; 8];
    match word.get_mut(..bytes.len()) {
        Some(place) => {
            place.copy_from_slice(bytes);
            VariableLocation::Value(LocationExpr::number(i64::from_le_bytes(word)))
        }
        None => VariableLocation::Gone("it is a constant of more than 8 bytes".into()),
    }
}
