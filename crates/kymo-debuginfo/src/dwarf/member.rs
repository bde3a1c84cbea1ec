//! Steps from a value to a part of it: fields, also of anonymous members and of
//! the variants of Rust's enums, elements of arrays, what pointers point to.

use std::cell::Cell;

use super::Result;
use super::die::{Die, Walk, unsigned};
use super::location::{Expr, Loc};
use super::unit::Dwarf;
use crate::probe::Step;

/// A value on the way.
#[derive(Clone)]
pub(crate) struct Part<'s> {
    pub(super) loc: Loc,
    /// Its type, behind names and qualifiers; none for `void`.
    pub(super) kind: Option<Die<'s>>,
    /// It is some bits of a container: `(width, offset, container's bits)`.
    pub(super) bits: Option<(u64, u64, u64)>,
    /// Whether the read that a memory location stands for is the program's.
    pub(super) user: bool,
}

/// A member found in a type.
struct Member<'s> {
    die: Die<'s>,
    offset: u64,
}

/// Members nested deeper than this are loops.
const DEPTH: usize = 16;

/// Members looked at for one name: types that hold themselves without a name
/// would else be looked through for ever.
const ENTRIES: usize = 1 << 16;

/// A step that is not possible, in words.
pub(crate) type Refusal = String;

type Stepped<T> = Result<std::result::Result<T, Refusal>>;

impl<'s> Dwarf<'s> {
    /// One step from `part`; `user` says whose memory pointers point into.
    pub(super) fn step(
        &self,
        part: Part<'s>,
        what: &str,
        step: &Step,
        user: bool,
    ) -> Stepped<Part<'s>> {
        match step {
            Step::Index(i) => self.index(part, what, *i, user),
            Step::Arrow(name) => {
                if !self.is_pointer(&part)? {
                    return Ok(Err(format!("{what} is not a pointer: write {what}.{name}")));
                }
                match self.pointee(part, what, user)? {
                    Ok(target) => self.field(target, what, name),
                    Err(why) => Ok(Err(why)),
                }
            }
            Step::Dot(name) => {
                if !self.is_pointer(&part)? {
                    return self.field(part, what, name);
                }
                if part.kind.as_ref().is_some_and(|k| k.unit.is_c) {
                    return Ok(Err(format!("{what} is a pointer: write {what}->{name}")));
                }
                // In Rust `self.field` reaches through references.
                match self.pointee(part, what, user)? {
                    Ok(target) => self.step(target, what, step, user),
                    Err(why) => Ok(Err(why)),
                }
            }
        }
    }

    pub(super) fn is_pointer(&self, part: &Part<'s>) -> Result<bool> {
        let Some(kind) = &part.kind else { return Ok(false) };
        Ok(matches!(
            self.tag(kind)?,
            gimli::DW_TAG_pointer_type
                | gimli::DW_TAG_reference_type
                | gimli::DW_TAG_rvalue_reference_type
        ))
    }

    /// What a pointer points to.
    pub(super) fn pointee(&self, part: Part<'s>, what: &str, user: bool) -> Stepped<Part<'s>> {
        let kind = match &part.kind {
            Some(kind) => self.real_type(kind)?,
            None => None,
        };
        let loc = match part.loc {
            Loc::Value(e) => Loc::Memory(e),
            Loc::Memory(e) => Loc::Memory(e.load(part.user)),
            Loc::Gone(why) => return Ok(Err(format!("{what} cannot be read here: {why}"))),
            Loc::Extern(name) => {
                return Ok(Err(format!(
                    "{name} is defined in another file, which does not tell its place here"
                )));
            }
            Loc::Pieces(_) => {
                return Ok(Err(format!("{what} is in several places and cannot be followed")));
            }
        };
        Ok(Ok(Part { loc, kind, bits: None, user }))
    }

    fn index(&self, part: Part<'s>, what: &str, index: i64, user: bool) -> Stepped<Part<'s>> {
        let Some(kind) = part.kind.clone() else { return Ok(Err(format!("{what} has no type"))) };
        let (part, element) = match self.tag(&kind)? {
            gimli::DW_TAG_array_type => {
                let element = self.real_type(&kind)?;
                (Part { kind: element.clone(), ..part }, element)
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
            Some(e) => self.byte_size(e)?,
            None => None,
        };
        let Some(offset) =
            size.and_then(|s| i64::try_from(s).ok()).and_then(|s| s.checked_mul(index))
        else {
            return Ok(Err(format!("the elements of {what} have no known size")));
        };
        Ok(match at_offset(part.loc, offset, size.unwrap_or(0)) {
            Ok((loc, bits)) => Ok(Part { loc, bits, ..part }),
            Err(why) => Err(format!("{what}[{index}]: {why}")),
        })
    }

    pub(super) fn field(&self, part: Part<'s>, what: &str, name: &str) -> Stepped<Part<'s>> {
        let Some(kind) = part.kind.clone() else {
            return Ok(Err(format!("{what} has no type, so no field {name}")));
        };
        let tag = self.tag(&kind)?;
        if !matches!(
            tag,
            gimli::DW_TAG_structure_type | gimli::DW_TAG_union_type | gimli::DW_TAG_class_type
        ) {
            return Ok(Err(format!(
                "{what} is not a structure or a union, so it has no field {name}"
            )));
        }
        // An incomplete type is completed elsewhere in the unit.
        let kind = self.complete(&kind)?.unwrap_or(kind);
        let Some(member) = self.find_member(&kind, name, 0)? else {
            let of = self.name(&kind)?.map(|n| format!(" (of type {n})")).unwrap_or_default();
            let known = self.member_names(&kind)?;
            let known = if known.is_empty() {
                String::new()
            } else {
                format!("; it has {}", known.join(", "))
            };
            return Ok(Err(format!("{what}{of} has no field {name}{known}")));
        };
        let member_kind = self.real_type(&member.die)?;
        let size = match &member_kind {
            Some(k) => self.byte_size(k)?.unwrap_or(0),
            None => 0,
        };
        let (offset, field_bits) = match self.bit_field(&member, size)? {
            Ok(Some((byte, bits))) => (byte, Some(bits)),
            Ok(None) => (member.offset, None),
            Err(why) => return Ok(Err(format!("{what}.{name}: {why}"))),
        };
        let Ok(offset) = i64::try_from(offset) else {
            return Ok(Err(format!("{name} has no sensible offset")));
        };
        Ok(match at_offset(part.loc, offset, size) {
            Ok((loc, bits)) => Ok(Part {
                loc,
                kind: member_kind,
                bits: combine(bits, field_bits),
                user: part.user,
            }),
            Err(why) => Err(format!("{what}.{name}: {why}")),
        })
    }

    /// `(byte offset, (width, bit offset, container's bits))` of a bit field.
    #[allow(
        clippy::type_complexity,
        reason = "a result of an option of two pairs is said best by itself"
    )]
    fn bit_field(&self, m: &Member<'s>, size: u64) -> Stepped<Option<(u64, (u64, u64, u64))>> {
        let Some(width) = self.number(&m.die, gimli::DW_AT_bit_size)? else { return Ok(Ok(None)) };
        let container = self.number(&m.die, gimli::DW_AT_byte_size)?.unwrap_or(size);
        let container_bits = container.saturating_mul(8);
        if !matches!(container, 1 | 2 | 4 | 8) {
            return Ok(Err("a bit field in a container of no usual size".into()));
        }
        let (byte, offset) = if let Some(bit) = self.number(&m.die, gimli::DW_AT_data_bit_offset)? {
            // Counted from the beginning of the structure, low bits first.
            let whole = m.offset.saturating_mul(8).saturating_add(bit);
            (whole / container_bits * container, whole % container_bits)
        } else if let Some(from_top) = self.number(&m.die, gimli::DW_AT_bit_offset)? {
            let taken = from_top.saturating_add(width);
            let Some(offset) = container_bits.checked_sub(taken) else {
                return Ok(Err("a bit field outside of its container".into()));
            };
            (m.offset, offset)
        } else {
            (m.offset, 0)
        };
        if offset + width > container_bits {
            return Ok(Err("a bit field that lies in two containers".into()));
        }
        Ok(Ok(Some((byte, (width, offset, container_bits)))))
    }

    /// The full entry of a type that is only declared here.
    fn complete(&self, kind: &Die<'s>) -> Result<Option<Die<'s>>> {
        let entry = self.entry(kind)?;
        if !entry.has_attr(gimli::DW_AT_declaration) {
            return Ok(None);
        }
        let Some(name) = self.name(kind)? else { return Ok(None) };
        let tag = entry.tag();
        for index in self.units_naming(&name) {
            let unit = self.unit(index)?;
            let mut found = None;
            unit.walk(unit.inner.header.root_offset(), &mut |e| {
                if e.tag() == gimli::DW_TAG_namespace {
                    return Ok(Walk::Into);
                }
                if e.tag() == tag && !e.has_attr(gimli::DW_AT_declaration) {
                    let die = unit.die(e.offset());
                    if self.name(&die)?.as_deref() == Some(&name) {
                        found = Some(die);
                        return Ok(Walk::Stop);
                    }
                }
                Ok(Walk::Past)
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        self.type_of_name(&name, tag)
    }

    fn find_member(&self, kind: &Die<'s>, name: &str, depth: usize) -> Result<Option<Member<'s>>> {
        self.member_below(kind, name, depth, &Cell::new(ENTRIES))
    }

    fn member_below(
        &self,
        kind: &Die<'s>,
        name: &str,
        depth: usize,
        left: &Cell<usize>,
    ) -> Result<Option<Member<'s>>> {
        if depth > DEPTH {
            return Ok(None);
        }
        // `.0` is what Rust calls `__0` in its debugging information.
        let tuple = name.starts_with(|c: char| c.is_ascii_digit()).then(|| format!("__{name}"));
        let unit = kind.unit.clone();
        let mut found = None;
        unit.walk(kind.offset, &mut |e| {
            let die = unit.die(e.offset());
            match e.tag() {
                gimli::DW_TAG_variant_part | gimli::DW_TAG_variant => return Ok(Walk::Into),
                gimli::DW_TAG_member | gimli::DW_TAG_inheritance => {}
                _ => return Ok(Walk::Past),
            }
            let Some(fewer) = left.get().checked_sub(1) else { return Ok(Walk::Stop) };
            left.set(fewer);
            let own = self.name(&die)?;
            let offset = self.member_offset(&die)?;
            if e.tag() == gimli::DW_TAG_member
                && own.is_some()
                && (own.as_deref() == Some(name) || own == tuple)
            {
                found = Some(Member { die, offset });
                return Ok(Walk::Stop);
            }
            // Members without a name, and base classes, are looked through.
            if own.is_none()
                && let Some(inner) = self.real_type(&die)?
                && let Some(deeper) = self.member_below(&inner, name, depth + 1, left)?
            {
                found = Some(Member { offset: offset.saturating_add(deeper.offset), ..deeper });
                return Ok(Walk::Stop);
            }
            Ok(Walk::Past)
        })?;
        Ok(found)
    }

    /// Names of the members, a few of them, for messages.
    fn member_names(&self, kind: &Die<'s>) -> Result<Vec<String>> {
        const SHOWN: usize = 12;
        let unit = kind.unit.clone();
        let mut names = Vec::new();
        unit.walk(kind.offset, &mut |e| {
            if e.tag() == gimli::DW_TAG_member
                && let Some(name) = self.name(&unit.die(e.offset()))?
            {
                names.push(name);
            }
            Ok(match e.tag() {
                gimli::DW_TAG_variant_part | gimli::DW_TAG_variant => Walk::Into,
                _ => Walk::Past,
            })
        })?;
        if names.len() > SHOWN {
            names.truncate(SHOWN);
            names.push("…".into());
        }
        Ok(names)
    }

    fn member_offset(&self, die: &Die<'s>) -> Result<u64> {
        let entry = self.entry(die)?;
        let Some(value) = entry.attr_value(gimli::DW_AT_data_member_location) else { return Ok(0) };
        if let Some(n) = unsigned(&value) {
            return Ok(n);
        }
        if let Some(e) = value.exprloc_value() {
            let mut ops = e.operations(die.unit.inner.encoding());
            if let Some(gimli::Operation::PlusConstant { value }) = ops.next()? {
                return Ok(value);
            }
        }
        Ok(0)
    }

    /// The discriminant of an enum of Rust with data: the member that tells its
    /// variants apart.
    pub(super) fn discriminant(&self, part: &Part<'s>) -> Result<Option<Part<'s>>> {
        let Some(kind) = &part.kind else { return Ok(None) };
        let unit = kind.unit.clone();
        let mut member = None;
        unit.walk(kind.offset, &mut |e| {
            if e.tag() == gimli::DW_TAG_variant_part {
                let die = unit.die(e.offset());
                member = self.reference(&die, e, gimli::DW_AT_discr)?;
                return Ok(Walk::Stop);
            }
            Ok(Walk::Past)
        })?;
        let Some(member) = member else { return Ok(None) };
        let offset = self.member_offset(&member)?;
        let kind = self.real_type(&member)?;
        let size = match &kind {
            Some(k) => self.byte_size(k)?.unwrap_or(0),
            None => 0,
        };
        let Ok((loc, bits)) = at_offset(part.loc.clone(), offset as i64, size) else {
            return Ok(None);
        };
        Ok(Some(Part { loc, kind, bits, user: part.user }))
    }

    /// The pointer to the data of a slice, a `&str`, a `String`, a `Vec`.
    pub(super) fn data_pointer(
        &self,
        part: Part<'s>,
        what: &str,
        user: bool,
    ) -> Result<Option<Part<'s>>> {
        const WAYS: [&str; 7] = ["data_ptr", "vec", "buf", "inner", "ptr", "pointer", "__0"];
        let mut part = part;
        for _ in 0..DEPTH {
            if self.is_pointer(&part)? {
                return Ok(Some(part));
            }
            let Some(kind) = part.kind.clone() else { return Ok(None) };
            let mut next = None;
            for way in WAYS {
                if self.find_member(&kind, way, DEPTH)?.is_some() {
                    next = self.step(part.clone(), what, &Step::Dot(way.into()), user)?.ok();
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
    pub(super) fn length_of(
        &self,
        part: &Part<'s>,
        what: &str,
        user: bool,
    ) -> Result<Option<Part<'s>>> {
        let mut part = part.clone();
        for _ in 0..3 {
            let Some(kind) = part.kind.clone() else { return Ok(None) };
            for way in ["length", "len", "vec"] {
                if self.find_member(&kind, way, DEPTH)?.is_some() {
                    let Ok(next) = self.step(part.clone(), what, &Step::Dot(way.into()), user)?
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

type Bits = Option<(u64, u64, u64)>;

/// The part of a location that begins `offset` bytes into it and has `size`.
/// Of a value in a register a part is some of its bits.
fn at_offset(loc: Loc, offset: i64, size: u64) -> std::result::Result<(Loc, Bits), Refusal> {
    match loc {
        Loc::Memory(e) => Ok((Loc::Memory(e.plus(offset)), None)),
        Loc::Value(e) => {
            let from =
                u64::try_from(offset).map_err(|_| "a negative index into a register".to_owned())?;
            if from == 0 && size == 8 {
                return Ok((Loc::Value(e), None));
            }
            if size == 0 || from.saturating_add(size) > 8 {
                // Larger parts stay whole; a later step may reach a smaller one.
                return if from == 0 {
                    Ok((Loc::Value(e), None))
                } else {
                    Err("it is not in this register".into())
                };
            }
            Ok((Loc::Value(e), Some((size * 8, from * 8, 64))))
        }
        Loc::Pieces(pieces) => {
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
                Err("it is in several places".into())
            } else {
                Ok((Loc::Pieces(inside), None))
            }
        }
        Loc::Gone(why) => Err(why),
        Loc::Extern(name) => Ok((Loc::Extern(name), None)),
    }
}

/// Bits of bits.
fn combine(outer: Bits, inner: Bits) -> Bits {
    match (outer, inner) {
        (Some((_, base, container)), Some((width, offset, _))) => {
            Some((width, base + offset, container))
        }
        (outer, inner) => inner.or(outer),
    }
}

impl Expr {
    /// Whether the expression is a plain number.
    pub(super) fn as_number(&self) -> Option<i64> {
        match self.base {
            super::location::ExprBase::Number(n) if self.derefs.is_empty() => {
                Some(n.wrapping_add(self.add))
            }
            _ => None,
        }
    }
}
