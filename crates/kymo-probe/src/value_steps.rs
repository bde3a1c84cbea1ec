//! Steps from a value to a part of it: fields, elements of arrays, what pointers point
//! to; through the references, slices and enums of Rust. A value stays an expression
//! that a fetch argument can have.

use kymo_debuginfo::dwarf::{
    BitSlice, Die, Dwarf, LocationBase, LocationExpr, Result, VariableLocation,
};
use kymo_model::probe::Dereference;

use crate::grammar::FieldStep;

/// An expression on the way to a fetch argument: `((base + d0)* + d1)* + add`, where `*`
/// reads memory, of the kernel or of the running program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueExpr {
    pub(crate) base: LocationBase,
    pub(crate) dereferences: Vec<Dereference>,
    pub(crate) add: i64,
}

/// Location of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueLocation {
    /// The value is the expression.
    Value(ValueExpr),
    /// The value is in memory at the expression.
    Memory(ValueExpr),
    /// Parts of it are in different places: `(bytes, place)`.
    Pieces(Vec<(u64, ValueLocation)>),
    /// Another file defines it.
    Extern(String),
    /// It cannot be had, and why.
    Gone(String),
}

impl From<LocationExpr> for ValueExpr {
    fn from(e: LocationExpr) -> ValueExpr {
        // Locations of variables are in the memory of the process that runs the code.
        let read = |offset| Dereference { offset, user: false };
        let dereferences = e.derefs.into_iter().map(read).collect();
        ValueExpr { base: e.base, dereferences, add: e.add }
    }
}

impl From<VariableLocation> for ValueLocation {
    fn from(location: VariableLocation) -> ValueLocation {
        match location {
            VariableLocation::Value(e) => ValueLocation::Value(e.into()),
            VariableLocation::Memory(e) => ValueLocation::Memory(e.into()),
            VariableLocation::Pieces(pieces) => {
                let pieces = pieces.into_iter().map(|(bytes, at)| (bytes, at.into()));
                ValueLocation::Pieces(pieces.collect())
            }
            VariableLocation::Extern(name) => ValueLocation::Extern(name),
            VariableLocation::Gone(why) => ValueLocation::Gone(why),
        }
    }
}

impl ValueExpr {
    /// A number.
    pub(crate) fn of_number(n: i64) -> ValueExpr {
        ValueExpr { base: LocationBase::Number(n), dereferences: Vec::new(), add: 0 }
    }

    fn plus(mut self, offset: i64) -> ValueExpr {
        match &mut self.base {
            LocationBase::Number(n) if self.dereferences.is_empty() => *n = n.wrapping_add(offset),
            _ => self.add = self.add.wrapping_add(offset),
        }
        self
    }

    /// The value in memory there.
    fn load(mut self, user: bool) -> ValueExpr {
        self.dereferences.push(Dereference { offset: self.add, user });
        self.add = 0;
        self
    }

    /// The number that the expression is, if it is one.
    pub(crate) fn as_number(&self) -> Option<i64> {
        match self.base {
            LocationBase::Number(n) if self.dereferences.is_empty() => {
                Some(n.wrapping_add(self.add))
            }
            _ => None,
        }
    }
}

/// A value on the way.
#[derive(Clone)]
pub(crate) struct ValuePart<'s> {
    pub(crate) location: ValueLocation,
    /// Its type, behind names and qualifiers; none for `void`.
    pub(crate) kind: Option<Die<'s>>,
    /// It is some bits of a container.
    pub(crate) bits: Option<BitSlice>,
    /// Whether the read that a memory location stands for is of the program's memory.
    pub(crate) user: bool,
    /// Dimensions of the array `kind` that an index was given for.
    pub(crate) indexed: usize,
}

/// References in references deeper than this are loops.
const DEPTH: usize = 16;

/// A step that is not possible, in words.
type Refusal = String;

/// The value behind a step, or why there is none.
pub(crate) type SteppedValue<T> = Result<std::result::Result<T, Refusal>>;

/// Steps over values of one binary.
pub(crate) struct ValueSteps<'d, 's> {
    pub(crate) dwarf: &'d Dwarf<'s>,
}

impl<'s> ValueSteps<'_, 's> {
    /// One step from `part`; `user`: pointers point into user memory.
    pub(crate) fn step(
        &self,
        part: ValuePart<'s>,
        what: &str,
        step: &FieldStep,
        user: bool,
    ) -> SteppedValue<ValuePart<'s>> {
        match step {
            FieldStep::Index(i) => self.index(part, what, *i, user),
            FieldStep::Arrow(name) => {
                if !self.is_pointer(&part)? {
                    return Ok(Err(format!("{what} is not a pointer: write {what}.{name}")));
                }
                match self.pointee(part, what, user)? {
                    Ok(target) => self.field(target, what, name),
                    Err(why) => Ok(Err(why)),
                }
            }
            FieldStep::Dot(name) => {
                let is_c = part.kind.as_ref().is_some_and(|k| k.unit.is_c);
                if is_c && self.is_pointer(&part)? {
                    return Ok(Err(format!("{what} is a pointer: write {what}->{name}")));
                }
                // In Rust `self.field` reaches through references.
                let mut part = part;
                for _ in 0..DEPTH {
                    if !self.is_pointer(&part)? {
                        return self.field(part, what, name);
                    }
                    part = match self.pointee(part, what, user)? {
                        Ok(target) => target,
                        Err(why) => return Ok(Err(why)),
                    };
                }
                Ok(Err(format!("{what} is an endless chain of references")))
            }
        }
    }

    pub(crate) fn is_pointer(&self, part: &ValuePart<'s>) -> Result<bool> {
        let Some(kind) = &part.kind else { return Ok(false) };
        Ok(matches!(
            self.dwarf.tag(kind)?,
            gimli::DW_TAG_pointer_type
                | gimli::DW_TAG_reference_type
                | gimli::DW_TAG_rvalue_reference_type
        ))
    }

    /// Dereferences a pointer.
    pub(crate) fn pointee(
        &self,
        part: ValuePart<'s>,
        what: &str,
        user: bool,
    ) -> SteppedValue<ValuePart<'s>> {
        let kind = match &part.kind {
            Some(kind) => self.dwarf.real_type(kind)?,
            None => None,
        };
        let location = match part.location {
            ValueLocation::Value(e) => ValueLocation::Memory(e),
            ValueLocation::Memory(e) => ValueLocation::Memory(e.load(part.user)),
            ValueLocation::Gone(why) => {
                return Ok(Err(format!("{what} cannot be read here: {why}")));
            }
            ValueLocation::Extern(name) => {
                return Ok(Err(format!(
                    "{name} is defined in another file that does not give its location here"
                )));
            }
            ValueLocation::Pieces(_) => {
                return Ok(Err(format!("{what} is in several locations and cannot be followed")));
            }
        };
        Ok(Ok(ValuePart { location, kind, bits: None, user, indexed: 0 }))
    }

    fn index(
        &self,
        part: ValuePart<'s>,
        what: &str,
        index: i64,
        user: bool,
    ) -> SteppedValue<ValuePart<'s>> {
        let Some(kind) = part.kind.clone() else { return Ok(Err(format!("{what} has no type"))) };
        let mut rows = 1;
        let (part, element) = match self.dwarf.tag(&kind)? {
            gimli::DW_TAG_array_type => {
                let element = self.dwarf.real_type(&kind)?;
                let dimensions = self.dwarf.dimensions(&kind)?.unwrap_or_default();
                let inner = dimensions.get(part.indexed + 1..).unwrap_or_default();
                rows = inner.iter().fold(1, |all: u64, count| all.saturating_mul(*count));
                match inner.is_empty() {
                    // A row of the array is next.
                    false => (ValuePart { indexed: part.indexed + 1, ..part }, element),
                    true => (ValuePart { kind: element.clone(), indexed: 0, ..part }, element),
                }
            }
            gimli::DW_TAG_pointer_type => match self.pointee(part, what, user)? {
                Ok(target) => {
                    let element = target.kind.clone();
                    (target, element)
                }
                Err(why) => return Ok(Err(why)),
            },
            gimli::DW_TAG_structure_type => {
                // Slices and vectors of Rust: through the pointer to their data.
                let Some(data) = self.data_pointer(part, what, user)? else {
                    return Ok(Err(format!("{what} is not a pointer, an array or a slice")));
                };
                return self.index(data, what, index, user);
            }
            _ => return Ok(Err(format!("{what} is not a pointer or an array"))),
        };
        let size = match &element {
            Some(e) => self.dwarf.byte_size(e)?.map(|size| size.saturating_mul(rows)),
            None => None,
        };
        let Some(offset) =
            size.and_then(|s| i64::try_from(s).ok()).and_then(|s| s.checked_mul(index))
        else {
            return Ok(Err(format!("the elements of {what} have no known size")));
        };
        Ok(match at_offset(part.location, offset, size.unwrap_or(0)) {
            Ok((location, bits)) => Ok(ValuePart { location, bits, ..part }),
            Err(why) => Err(format!("{what}[{index}]: {why}")),
        })
    }

    pub(crate) fn field(
        &self,
        part: ValuePart<'s>,
        what: &str,
        name: &str,
    ) -> SteppedValue<ValuePart<'s>> {
        let Some(kind) = part.kind.clone() else {
            return Ok(Err(format!("{what} has no type, hence no field {name}")));
        };
        let tag = self.dwarf.tag(&kind)?;
        if !matches!(
            tag,
            gimli::DW_TAG_structure_type | gimli::DW_TAG_union_type | gimli::DW_TAG_class_type
        ) {
            return Ok(Err(format!(
                "{what} is not a structure or union, hence has no field {name}"
            )));
        }
        // An incomplete type is completed elsewhere in the unit.
        let kind = self.dwarf.complete_type(&kind)?.unwrap_or(kind);
        let Some(member) = self.dwarf.find_member(&kind, name, true)? else {
            let of = self.dwarf.name(&kind)?.map(|n| format!(" (of type {n})")).unwrap_or_default();
            let known = self.dwarf.member_names(&kind)?;
            let known = if known.is_empty() {
                String::new()
            } else {
                format!("; it has {}", known.join(", "))
            };
            return Ok(Err(format!("{what}{of} has no field {name}{known}")));
        };
        let member_kind = self.dwarf.real_type(&member.die)?;
        let size = match &member_kind {
            Some(k) => self.dwarf.byte_size(k)?.unwrap_or(0),
            None => 0,
        };
        let (offset, field_bits) = match self.dwarf.bit_field(&member, size)? {
            Ok(Some((byte, bits))) => (byte, Some(bits)),
            Ok(None) => (member.offset, None),
            Err(why) => return Ok(Err(format!("{what}.{name}: {why}"))),
        };
        let Ok(offset) = i64::try_from(offset) else {
            return Ok(Err(format!("{name} has an invalid offset")));
        };
        Ok(match at_offset(part.location, offset, size) {
            Ok((location, bits)) => Ok(ValuePart {
                location,
                kind: member_kind,
                bits: combine(bits, field_bits),
                user: part.user,
                indexed: 0,
            }),
            Err(why) => Err(format!("{what}.{name}: {why}")),
        })
    }

    /// The discriminant of an enum of Rust with data, as a part of the value.
    pub(crate) fn discriminant(&self, part: &ValuePart<'s>) -> Result<Option<ValuePart<'s>>> {
        let Some(kind) = &part.kind else { return Ok(None) };
        let Some(member) = self.dwarf.discriminant(kind)? else { return Ok(None) };
        let kind = self.dwarf.real_type(&member.die)?;
        let size = match &kind {
            Some(k) => self.dwarf.byte_size(k)?.unwrap_or(0),
            None => 0,
        };
        let Ok((location, bits)) = at_offset(part.location.clone(), member.offset as i64, size)
        else {
            return Ok(None);
        };
        Ok(Some(ValuePart { location, kind, bits, user: part.user, indexed: 0 }))
    }

    /// The one member that a structure of Rust consists of, through all of its wrappers.
    pub(crate) fn unwrapped(&self, part: ValuePart<'s>, what: &str) -> Result<ValuePart<'s>> {
        let mut part = part;
        for _ in 0..DEPTH {
            let Some(kind) = part.kind.clone().filter(|kind| !kind.unit.is_c) else { break };
            if self.dwarf.tag(&kind)? != gimli::DW_TAG_structure_type {
                break;
            }
            let size = self.dwarf.byte_size(&kind)?;
            let mut whole = None;
            for name in self.dwarf.member_names(&kind)? {
                let Ok(member) = self.field(part.clone(), what, &name)? else { continue };
                let member_size = match &member.kind {
                    Some(kind) => self.dwarf.byte_size(kind)?,
                    None => None,
                };
                if member_size == size {
                    whole = Some(member);
                    break;
                }
            }
            match whole {
                Some(member) => part = member,
                None => break,
            }
        }
        Ok(part)
    }

    /// The pointer to the data of a slice, a `&str`, a `String`, a `Vec`.
    pub(crate) fn data_pointer(
        &self,
        part: ValuePart<'s>,
        what: &str,
        user: bool,
    ) -> Result<Option<ValuePart<'s>>> {
        const WAYS: [&str; 7] = ["data_ptr", "vec", "buf", "inner", "ptr", "pointer", "__0"];
        let mut part = part;
        for _ in 0..DEPTH {
            if self.is_pointer(&part)? {
                return Ok(Some(part));
            }
            let Some(kind) = part.kind.clone() else { return Ok(None) };
            let mut next = None;
            for way in WAYS {
                if self.dwarf.find_member(&kind, way, false)?.is_some() {
                    next = self.step(part.clone(), what, &FieldStep::Dot(way.into()), user)?.ok();
                    break;
                }
            }
            match next {
                Some(n) => part = n,
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The length of a slice, a `&str`, a `String`, a `Vec`.
    pub(crate) fn length_of(
        &self,
        part: &ValuePart<'s>,
        what: &str,
        user: bool,
    ) -> Result<Option<ValuePart<'s>>> {
        let mut part = part.clone();
        for _ in 0..3 {
            let Some(kind) = part.kind.clone() else { return Ok(None) };
            for way in ["length", "len", "vec"] {
                if self.dwarf.find_member(&kind, way, false)?.is_some() {
                    let Ok(next) =
                        self.step(part.clone(), what, &FieldStep::Dot(way.into()), user)?
                    else {
                        return Ok(None);
                    };
                    if way != "vec" {
                        return Ok(Some(next));
                    }
                    part = next;
                    break;
                }
            }
        }
        Ok(None)
    }
}

/// The part of a location that begins `offset` bytes into it and has `size`.
/// Of a value in a register a part is some of its bits.
fn at_offset(
    location: ValueLocation,
    offset: i64,
    size: u64,
) -> std::result::Result<(ValueLocation, Option<BitSlice>), Refusal> {
    match location {
        ValueLocation::Memory(e) => Ok((ValueLocation::Memory(e.plus(offset)), None)),
        ValueLocation::Value(e) => {
            let from =
                u64::try_from(offset).map_err(|_| "a negative index into a register".to_owned())?;
            if from == 0 && size == 8 {
                return Ok((ValueLocation::Value(e), None));
            }
            if size == 0 || from.saturating_add(size) > 8 {
                // Larger parts stay whole; a later step may reach a smaller one.
                return if from == 0 {
                    Ok((ValueLocation::Value(e), None))
                } else {
                    Err("it is not in this register".into())
                };
            }
            let bits = BitSlice { width: size * 8, offset: from * 8, container: 64 };
            Ok((ValueLocation::Value(e), Some(bits)))
        }
        ValueLocation::Pieces(pieces) => {
            let from = u64::try_from(offset).map_err(|_| "a negative index".to_owned())?;
            let mut begin = 0u64;
            let mut inside = Vec::new();
            for (bytes, place) in pieces {
                let end = begin.saturating_add(bytes);
                if from >= begin && from.saturating_add(size.max(1)) <= end {
                    return at_offset(place, (from - begin) as i64, size);
                }
                if begin >= from && end <= from.saturating_add(size) {
                    inside.push((bytes, place));
                }
                begin = end;
            }
            if inside.is_empty() {
                Err("it is in several locations".into())
            } else {
                Ok((ValueLocation::Pieces(inside), None))
            }
        }
        ValueLocation::Gone(why) => Err(why),
        ValueLocation::Extern(name) => Ok((ValueLocation::Extern(name), None)),
    }
}

/// Bits of bits.
fn combine(outer: Option<BitSlice>, inner: Option<BitSlice>) -> Option<BitSlice> {
    match (outer, inner) {
        (Some(outer), Some(inner)) => Some(BitSlice {
            width: inner.width,
            offset: outer.offset.saturating_add(inner.offset),
            container: outer.container,
        }),
        (outer, inner) => inner.or(outer),
    }
}
