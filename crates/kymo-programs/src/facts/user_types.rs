//! Types of programs, from their debugging information, as the compiler has types: structures,
//! enumerations, pointers of C and C++; texts and enumerations with data of Rust.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use kymo_bpf::{CType, EnumerationFacts, NamedConstant, RecordLayout, RecordMember, VARIANT};
use kymo_debuginfo::dwarf::{Die, Dwarf, Result, WalkStep};
use rustc_hash::FxHashMap;

/// Ids of these types have this bit, those of the kernel have not.
pub(super) const USER_TYPES: u32 = 1 << 30;
/// Pointers to pointers are followed this far.
const DEPTH: u32 = 8;
/// The most structures and enumerations; what they hold beyond is not read.
const MOST: usize = 4096;

/// Types that variables have, found once.
#[derive(Default)]
pub(super) struct UserTypes {
    records: Vec<Rc<RecordLayout>>,
    enumerations: Vec<Rc<EnumerationFacts>>,
    known: FxHashMap<(PathBuf, usize, usize), CType>,
}

/// Types of one binary.
struct TypeReader<'t, 'd, 's> {
    types: &'t mut UserTypes,
    dwarf: &'d Dwarf<'s>,
    path: &'d Path,
}

impl UserTypes {
    /// Members of a structure.
    pub(super) fn record(&self, id: u32) -> Option<Rc<RecordLayout>> {
        self.records.get((id & !USER_TYPES) as usize).cloned()
    }

    /// Names and values of an enumeration.
    pub(super) fn enumeration(&self, id: u32) -> Option<Rc<EnumerationFacts>> {
        self.enumerations.get((id & !USER_TYPES) as usize).cloned()
    }

    /// An enumerator.
    pub(super) fn constant(&self, name: &str) -> Option<NamedConstant> {
        let mut variants = self.enumerations.iter().enumerate().flat_map(|(n, of)| {
            of.variants.iter().map(move |(value, own)| (n as u32, *value, own))
        });
        let (n, value, _) = variants.find(|(.., own)| *own == name)?;
        let ctype = CType::Enumeration { size: 4, signed: value < 0, id: n | USER_TYPES };
        Some(NamedConstant { value, ctype: Some(ctype) })
    }

    /// A type of a binary; none if it cannot be read.
    pub(super) fn ctype<'s>(
        &mut self,
        dwarf: &Dwarf<'s>,
        kind: &Die<'s>,
        path: &Path,
    ) -> Result<Option<CType>> {
        TypeReader { types: self, dwarf, path }.ctype(kind, 0)
    }
}

/// A number of that size.
fn integer(size: u64, signed: bool, is_char: bool) -> Option<CType> {
    let size = u8::try_from(size).ok().filter(|size| [1, 2, 4, 8].contains(size))?;
    Some(CType::Integer { size, signed, is_char })
}

fn bytes(count: u32) -> CType {
    let element = CType::Integer { size: 1, signed: false, is_char: false };
    CType::Array { element: Box::new(element), count }
}

fn small(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl<'s> TypeReader<'_, '_, 's> {
    /// A type behind names and qualifiers; none if it cannot be read.
    fn ctype(&mut self, kind: &Die<'s>, depth: u32) -> Result<Option<CType>> {
        use gimli::constants as c;
        let size = self.dwarf.byte_size(kind)?.unwrap_or(0);
        Ok(match self.dwarf.tag(kind)? {
            c::DW_TAG_base_type => self.base(kind, size)?,
            c::DW_TAG_pointer_type | c::DW_TAG_reference_type | c::DW_TAG_rvalue_reference_type => {
                let target = match self.dwarf.real_type(kind)? {
                    Some(target) if depth < DEPTH => self.ctype(&target, depth + 1)?,
                    _ => None,
                };
                let target = Box::new(target.unwrap_or(CType::Void));
                Some(CType::Pointer { target, user: true })
            }
            c::DW_TAG_array_type => {
                let Some(element) = self.dwarf.real_type(kind)? else { return Ok(None) };
                let element = self.ctype(&element, depth)?;
                let count = small(self.dwarf.array_count(kind)?.unwrap_or(0));
                element.map(|element| CType::Array { element: Box::new(element), count })
            }
            c::DW_TAG_enumeration_type => self.enumeration(kind, size)?,
            c::DW_TAG_structure_type | c::DW_TAG_class_type | c::DW_TAG_union_type => {
                let whole = self.dwarf.complete_type(kind)?;
                self.record(whole.as_ref().unwrap_or(kind))?
            }
            _ => None,
        })
    }

    fn base(&self, kind: &Die<'s>, size: u64) -> Result<Option<CType>> {
        use gimli::constants as c;
        let encoding = self.dwarf.inherited(kind, c::DW_AT_encoding)?.map(|(_, value)| value);
        let Some(gimli::AttributeValue::Encoding(encoding)) = encoding else { return Ok(None) };
        Ok(match encoding {
            c::DW_ATE_boolean if size == 1 => Some(CType::Boolean),
            c::DW_ATE_float if matches!(size, 4 | 8) => Some(CType::Float { size: size as u8 }),
            c::DW_ATE_signed | c::DW_ATE_unsigned if size == 16 => {
                Some(CType::Wide { signed: encoding == c::DW_ATE_signed })
            }
            c::DW_ATE_signed => integer(size, true, false),
            // Rust's `u8` and `i8` are numbers.
            c::DW_ATE_signed_char => integer(size, true, kind.unit.is_c || self.is_char(kind)?),
            c::DW_ATE_unsigned_char => integer(size, false, self.is_char(kind)?),
            c::DW_ATE_unsigned | c::DW_ATE_UTF | c::DW_ATE_boolean => integer(size, false, false),
            _ => None,
        })
    }

    fn is_char(&self, kind: &Die<'s>) -> Result<bool> {
        let name = self.dwarf.name(kind)?;
        Ok(matches!(name.as_deref(), Some("char" | "unsigned char" | "signed char")))
    }

    fn key(&self, kind: &Die<'s>) -> (PathBuf, usize, usize) {
        (self.path.to_owned(), kind.unit.index, kind.offset.0)
    }

    fn add_enumeration(&mut self, facts: EnumerationFacts) -> u32 {
        self.types.enumerations.push(Rc::new(facts));
        USER_TYPES | (self.types.enumerations.len() - 1) as u32
    }

    fn enumeration(&mut self, kind: &Die<'s>, size: u64) -> Result<Option<CType>> {
        let key = self.key(kind);
        if let Some(known) = self.types.known.get(&key) {
            return Ok(Some(known.clone()));
        }
        let signed = match self.dwarf.real_type(kind)? {
            Some(base) => self.dwarf.is_signed(&base)?,
            None => false,
        };
        let unit = kind.unit.clone();
        let mut variants = Vec::new();
        unit.walk(kind.offset, &mut |e| {
            if e.tag() == gimli::DW_TAG_enumerator
                && let Some(value) = e.attr_value(gimli::DW_AT_const_value)
                && let Some(value) = number(&value, signed)
                && variants.len() < MOST
            {
                variants.push((value, self.dwarf.name(&unit.die(e.offset()))?.unwrap_or_default()));
            }
            Ok(WalkStep::Past)
        })?;
        let Some(CType::Integer { size, .. }) = integer(size, signed, false) else {
            return Ok(None);
        };
        let name = self.dwarf.name(kind)?.unwrap_or_default();
        let id = self.add_enumeration(EnumerationFacts { name, variants, otherwise: None });
        let ctype = CType::Enumeration { size, signed, id };
        self.types.known.insert(key, ctype.clone());
        Ok(Some(ctype))
    }

    fn record(&mut self, kind: &Die<'s>) -> Result<Option<CType>> {
        let key = self.key(kind);
        if let Some(known) = self.types.known.get(&key) {
            return Ok(Some(known.clone()));
        }
        if let Some(text) = self.text(kind)? {
            self.types.known.insert(key, text.clone());
            return Ok(Some(text));
        }
        if self.types.records.len() >= MOST {
            return Ok(None);
        }
        let name = self.dwarf.name(kind)?.unwrap_or_default();
        let size = small(self.dwarf.byte_size(kind)?.unwrap_or(0));
        let place = self.types.records.len();
        let is_union = self.dwarf.tag(kind)? == gimli::DW_TAG_union_type;
        let empty = RecordLayout { name, is_union, size, members: Vec::new() };
        // A member may be of the type itself, behind a pointer.
        self.types.records.push(Rc::new(empty.clone()));
        let ctype = CType::Record { id: USER_TYPES | place as u32 };
        self.types.known.insert(key, ctype.clone());
        let mut members = Vec::new();
        members.extend(self.variant(kind, &empty.name)?);
        let is_union = is_union || !members.is_empty();
        self.members(kind, &mut members)?;
        members.extend(self.elements(kind)?);
        self.types.records[place] = Rc::new(RecordLayout { is_union, members, ..empty });
        Ok(Some(ctype))
    }

    fn members(&mut self, kind: &Die<'s>, members: &mut Vec<RecordMember>) -> Result<()> {
        let unit = kind.unit.clone();
        let mut dies = Vec::new();
        unit.walk(kind.offset, &mut |e| {
            if matches!(e.tag(), gimli::DW_TAG_variant_part | gimli::DW_TAG_variant) {
                return Ok(WalkStep::Into);
            }
            let is_static =
                e.has_attr(gimli::DW_AT_external) || e.has_attr(gimli::DW_AT_declaration);
            let is_one = matches!(e.tag(), gimli::DW_TAG_member | gimli::DW_TAG_inheritance);
            if is_one && !is_static && dies.len() < MOST {
                dies.push((unit.die(e.offset()), e.tag() == gimli::DW_TAG_inheritance));
            }
            Ok(WalkStep::Past)
        })?;
        for (die, is_base) in dies {
            let Some(inner) = self.dwarf.real_type(&die)? else { continue };
            let size = self.dwarf.byte_size(&inner)?.unwrap_or(0);
            let name = if is_base { None } else { self.dwarf.name(&die)? };
            let name = name.unwrap_or_default();
            // `__0` is what the source calls `0`.
            let is_number = |rest: &&str| rest.parse::<u32>().is_ok();
            let name = name.strip_prefix("__").filter(is_number).map(str::to_owned).unwrap_or(name);
            let offset = self.dwarf.member_offset(&die)?;
            let member = kymo_debuginfo::dwarf::Member { die, offset };
            let (byte, bits) = match self.dwarf.bit_field(&member, size)? {
                Ok(Some((byte, bits))) => (byte, Some(bits)),
                Ok(None) => (member.offset, None),
                Err(_) => continue,
            };
            let ctype = self.ctype(&inner, 0)?.unwrap_or_else(|| bytes(small(size)));
            let bit = byte.saturating_mul(8).saturating_add(bits.map_or(0, |b| b.offset));
            let bit_size = bits.and_then(|b| u8::try_from(b.width).ok());
            members.push(RecordMember { name, ctype, bit_offset: small(bit), bit_size });
        }
        Ok(())
    }

    /// The variant of an enumeration with data, as a member.
    fn variant(&mut self, kind: &Die<'s>, name: &str) -> Result<Option<RecordMember>> {
        let Some(member) = self.dwarf.discriminant(kind)? else { return Ok(None) };
        let Some(inner) = self.dwarf.real_type(&member.die)? else { return Ok(None) };
        let signed = self.dwarf.is_signed(&inner)?;
        let size = self.dwarf.byte_size(&inner)?.unwrap_or(0);
        let Some(CType::Integer { size, .. }) = integer(size, signed, false) else {
            return Ok(None);
        };
        let unit = kind.unit.clone();
        let (mut variants, mut otherwise, mut current) = (Vec::new(), None, None);
        unit.walk(kind.offset, &mut |e| {
            match e.tag() {
                gimli::DW_TAG_variant_part => return Ok(WalkStep::Into),
                gimli::DW_TAG_variant => {
                    let value = e.attr_value(gimli::DW_AT_discr_value);
                    current = Some(value.and_then(|value| number(&value, signed)));
                    return Ok(WalkStep::Into);
                }
                gimli::DW_TAG_member => {
                    if let Some(value) = current.take()
                        && let Some(name) = self.dwarf.name(&unit.die(e.offset()))?
                    {
                        match value {
                            Some(value) if variants.len() < MOST => variants.push((value, name)),
                            _ => otherwise = Some(name),
                        }
                    }
                }
                _ => {}
            }
            Ok(WalkStep::Past)
        })?;
        let name = name.to_owned();
        let id = self.add_enumeration(EnumerationFacts { name, variants, otherwise });
        Ok(Some(RecordMember {
            name: VARIANT.to_owned(),
            ctype: CType::Enumeration { size, signed, id },
            bit_offset: small(member.offset.saturating_mul(8)),
            bit_size: None,
        }))
    }

    /// Texts: pointer and length.
    fn text(&self, kind: &Die<'s>) -> Result<Option<CType>> {
        let name = self.dwarf.name(kind)?.unwrap_or_default();
        let is_rust = matches!(name.as_str(), "&str" | "&mut str" | "String");
        if !is_rust && !name.starts_with("basic_string<char,") && !is_view(&name) {
            return Ok(None);
        }
        let (Some((data, _)), Some(length)) = (self.data(kind)?, self.length(kind)?) else {
            return Ok(None);
        };
        let size = small(self.dwarf.byte_size(kind)?.unwrap_or(0));
        let fits = size >= 16 && data <= size - 8 && length <= size - 8;
        Ok(fits.then_some(CType::Text { size, data, length }))
    }

    /// `ptr` and `len` of slices and vectors of Rust.
    fn elements(&mut self, kind: &Die<'s>) -> Result<Vec<RecordMember>> {
        let name = self.dwarf.name(kind)?.unwrap_or_default();
        if !["&[", "&mut [", "Vec<"].iter().any(|begin| name.starts_with(begin)) {
            return Ok(Vec::new());
        }
        let (Some((data, target)), Some(length)) = (self.data(kind)?, self.length(kind)?) else {
            return Ok(Vec::new());
        };
        let unit = kind.unit.clone();
        let mut element = None;
        unit.walk(kind.offset, &mut |e| {
            if e.tag() == gimli::DW_TAG_template_type_parameter && element.is_none() {
                element = self.dwarf.real_type(&unit.die(e.offset()))?;
            }
            Ok(WalkStep::Past)
        })?;
        let element = match element.or(target) {
            Some(element) => self.ctype(&element, 1)?.unwrap_or(CType::Void),
            None => CType::Void,
        };
        let member = |name: &str, ctype, offset: u32| RecordMember {
            name: name.to_owned(),
            ctype,
            bit_offset: offset * 8,
            bit_size: None,
        };
        let pointer = CType::Pointer { target: Box::new(element), user: true };
        let word = CType::Integer { size: 8, signed: false, is_char: false };
        Ok(vec![member("ptr", pointer, data), member("len", word, length)])
    }

    /// Offset of the pointer to the data, and its target.
    fn data(&self, kind: &Die<'s>) -> Result<Option<(u32, Option<Die<'s>>)>> {
        const WAYS: [&str; 10] = [
            "data_ptr",
            "vec",
            "buf",
            "inner",
            "ptr",
            "pointer",
            "__0",
            "_M_dataplus",
            "_M_p",
            "_M_str",
        ];
        let (mut kind, mut offset) = (kind.clone(), 0u64);
        for _ in 0..WAYS.len() + 2 {
            let is_pointer = self.dwarf.tag(&kind)? == gimli::DW_TAG_pointer_type;
            if is_pointer {
                return Ok(Some((small(offset).min(1 << 20), self.dwarf.real_type(&kind)?)));
            }
            let mut next = None;
            for way in WAYS {
                if let Some(member) = self.dwarf.find_member(&kind, way, false)? {
                    next = Some(member);
                    break;
                }
            }
            let Some(member) = next else { return Ok(None) };
            offset = offset.saturating_add(member.offset);
            let Some(inner) = self.dwarf.real_type(&member.die)? else { return Ok(None) };
            kind = inner;
        }
        Ok(None)
    }

    /// Offset of the length.
    fn length(&self, kind: &Die<'s>) -> Result<Option<u32>> {
        let (mut kind, mut offset) = (kind.clone(), 0u64);
        for _ in 0..3 {
            let mut next = None;
            for way in ["length", "len", "_M_string_length", "_M_len", "vec"] {
                if let Some(member) = self.dwarf.find_member(&kind, way, false)? {
                    next = Some((member, way));
                    break;
                }
            }
            let Some((member, way)) = next else { return Ok(None) };
            offset = offset.saturating_add(member.offset);
            if way != "vec" {
                return Ok(Some(small(offset).min(1 << 20)));
            }
            let Some(inner) = self.dwarf.real_type(&member.die)? else { return Ok(None) };
            kind = inner;
        }
        Ok(None)
    }
}

fn is_view(name: &str) -> bool {
    name.starts_with("basic_string_view<char,")
}

type AttributeNumber<'s> = gimli::AttributeValue<gimli::EndianSlice<'s, gimli::RunTimeEndian>>;

fn number(value: &AttributeNumber<'_>, signed: bool) -> Option<i64> {
    if signed {
        value.sdata_value()
    } else {
        value.udata_value().map(|n| n as i64).or_else(|| value.sdata_value())
    }
}
