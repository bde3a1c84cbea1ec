//! Members of structures and unions: where a field lies, also a field of anonymous
//! members, of base classes and of the variants of Rust's enums; bit fields;
//! discriminants.

use std::cell::Cell;

use super::Result;
use super::die::{Die, WalkStep, unsigned};
use super::unit::Dwarf;

/// A member of a type.
pub struct Member<'s> {
    /// Its entry.
    pub die: Die<'s>,
    /// Bytes from the start of the type.
    pub offset: u64,
}

/// Some bits of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitSlice {
    /// Number of bits.
    pub width: u64,
    /// Lowest bit in the container.
    pub offset: u64,
    /// Bits of the container.
    pub container: u64,
}

/// Members nested deeper than this are loops.
const DEPTH: usize = 16;

/// Members looked at for one name: types that hold themselves without a name
/// would else be searched without end.
const ENTRIES: usize = 1 << 16;

impl<'s> Dwarf<'s> {
    /// Byte offset and bits of a bit field, none of another member; why it cannot be
    /// read, where that is so. `size` is that of the member's type.
    pub fn bit_field(
        &self,
        m: &Member<'s>,
        size: u64,
    ) -> Result<std::result::Result<Option<(u64, BitSlice)>, String>> {
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
        if offset.saturating_add(width) > container_bits {
            return Ok(Err("a bit field that lies in two containers".into()));
        }
        Ok(Ok(Some((byte, BitSlice { width, offset, container: container_bits }))))
    }

    /// The full entry of a type that is only declared here.
    pub fn complete_type(&self, kind: &Die<'s>) -> Result<Option<Die<'s>>> {
        let entry = self.entry(kind)?;
        if !entry.has_attr(gimli::DW_AT_declaration) {
            return Ok(None);
        }
        match self.name(kind)? {
            Some(name) => self.named_type(&name, entry.tag()),
            None => Ok(None),
        }
    }

    /// The full entry of a structure, union or enumeration by its name.
    pub fn named_type(&self, name: &str, tag: gimli::DwTag) -> Result<Option<Die<'s>>> {
        for index in self.units_naming(name) {
            let unit = self.unit(index)?;
            let mut found = None;
            unit.walk(unit.inner.header.root_offset(), &mut |e| {
                if e.tag() == gimli::DW_TAG_namespace {
                    return Ok(WalkStep::Into);
                }
                if e.tag() == tag && !e.has_attr(gimli::DW_AT_declaration) {
                    let die = unit.die(e.offset());
                    if self.name(&die)?.as_deref() == Some(name) {
                        found = Some(die);
                        return Ok(WalkStep::Stop);
                    }
                }
                Ok(WalkStep::Past)
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        self.type_of_name(name, tag)
    }

    /// The member of a name: directly in the type, or with `nested` also in members
    /// without a name.
    pub fn find_member(
        &self,
        kind: &Die<'s>,
        name: &str,
        nested: bool,
    ) -> Result<Option<Member<'s>>> {
        let depth = if nested { 0 } else { DEPTH };
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
                gimli::DW_TAG_variant_part | gimli::DW_TAG_variant => return Ok(WalkStep::Into),
                gimli::DW_TAG_member | gimli::DW_TAG_inheritance => {}
                _ => return Ok(WalkStep::Past),
            }
            let Some(fewer) = left.get().checked_sub(1) else { return Ok(WalkStep::Stop) };
            left.set(fewer);
            let own = self.name(&die)?;
            let offset = self.member_offset(&die)?;
            if e.tag() == gimli::DW_TAG_member
                && own.is_some()
                && (own.as_deref() == Some(name) || own == tuple)
            {
                found = Some(Member { die, offset });
                return Ok(WalkStep::Stop);
            }
            // Members without a name, and base classes, are looked through.
            if own.is_none()
                && let Some(inner) = self.real_type(&die)?
                && let Some(deeper) = self.member_below(&inner, name, depth + 1, left)?
            {
                found = Some(Member { offset: offset.saturating_add(deeper.offset), ..deeper });
                return Ok(WalkStep::Stop);
            }
            Ok(WalkStep::Past)
        })?;
        Ok(found)
    }

    /// Names of the members, a few of them, for messages.
    pub fn member_names(&self, kind: &Die<'s>) -> Result<Vec<String>> {
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
                gimli::DW_TAG_variant_part | gimli::DW_TAG_variant => WalkStep::Into,
                _ => WalkStep::Past,
            })
        })?;
        if names.len() > SHOWN {
            names.truncate(SHOWN);
            names.push("…".into());
        }
        Ok(names)
    }

    /// Bytes from the start of the type to a member.
    pub fn member_offset(&self, die: &Die<'s>) -> Result<u64> {
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

    /// The discriminant of an enum of Rust with data: the member that distinguishes its variants.
    pub fn discriminant(&self, kind: &Die<'s>) -> Result<Option<Member<'s>>> {
        let unit = kind.unit.clone();
        let mut member = None;
        unit.walk(kind.offset, &mut |e| {
            if e.tag() == gimli::DW_TAG_variant_part {
                let die = unit.die(e.offset());
                member = self.reference(&die, e, gimli::DW_AT_discr)?;
                return Ok(WalkStep::Stop);
            }
            Ok(WalkStep::Past)
        })?;
        let Some(die) = member else { return Ok(None) };
        let offset = self.member_offset(&die)?;
        Ok(Some(Member { die, offset }))
    }
}
