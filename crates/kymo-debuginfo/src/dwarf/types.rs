//! Types: what is behind names and qualifiers, sizes, signs, and how they are
//! written.

use gimli::DwTag;

use super::Result;
use super::die::{Die, unsigned};
use super::unit::Dwarf;

/// Longer chains of types are loops.
const CHAIN: usize = 64;

impl<'s> Dwarf<'s> {
    /// Tag of an entry.
    pub fn tag(&self, die: &Die<'s>) -> Result<DwTag> {
        Ok(self.entry(die)?.tag())
    }

    /// The type of `die` without qualifiers and, if `names` is not kept, without
    /// type definitions.
    fn peel(&self, die: &Die<'s>, keep_names: bool) -> Result<Option<Die<'s>>> {
        let mut current = self.type_of(die)?;
        for _ in 0..CHAIN {
            let Some(kind) = current else { return Ok(None) };
            match self.tag(&kind)? {
                gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type
                | gimli::DW_TAG_shared_type => {}
                gimli::DW_TAG_typedef if !keep_names => {}
                _ => return self.whole(kind).map(Some),
            }
            current = self.type_of(&kind)?;
        }
        Ok(None)
    }

    /// A type that is only declared where it is used, and stands in a unit of its own.
    fn whole(&self, kind: Die<'s>) -> Result<Die<'s>> {
        let entry = self.entry(&kind)?;
        let elsewhere = self.reference(&kind, &entry, gimli::DW_AT_signature)?;
        Ok(elsewhere.unwrap_or(kind))
    }

    /// The type of `die` behind qualifiers and type definitions.
    pub fn real_type(&self, die: &Die<'s>) -> Result<Option<Die<'s>>> {
        self.peel(die, false)
    }

    /// Size of a type in bytes, where it has one.
    pub fn byte_size(&self, kind: &Die<'s>) -> Result<Option<u64>> {
        if let Some(size) = self.number(kind, gimli::DW_AT_byte_size)? {
            return Ok(Some(size));
        }
        match self.tag(kind)? {
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => {
                Ok(Some(u64::from(self.sections.address_size)))
            }
            gimli::DW_TAG_array_type => {
                let Some(element) = self.real_type(kind)? else { return Ok(None) };
                let count = self.array_count(kind)?;
                Ok(self.byte_size(&element)?.zip(count).and_then(|(size, n)| size.checked_mul(n)))
            }
            gimli::DW_TAG_enumeration_type => match self.real_type(kind)? {
                Some(base) => self.number(&base, gimli::DW_AT_byte_size),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// Number of elements of an array over all its dimensions.
    pub fn array_count(&self, kind: &Die<'s>) -> Result<Option<u64>> {
        let mut count: Option<u64> = Some(1);
        let unit = kind.unit.clone();
        unit.walk(kind.offset, &mut |e| {
            if e.tag() == gimli::DW_TAG_subrange_type {
                let stated = e.attr_value(gimli::DW_AT_count).and_then(|v| unsigned(&v));
                let upper = e.attr_value(gimli::DW_AT_upper_bound).and_then(|v| unsigned(&v));
                let n = stated.or(upper.and_then(|u| u.checked_add(1)));
                count = count.zip(n).and_then(|(a, b)| a.checked_mul(b));
            }
            Ok(super::die::WalkStep::Past)
        })?;
        Ok(count)
    }

    /// Numbers of elements by dimension, the outermost first; none where one is not known.
    pub fn dimensions(&self, kind: &Die<'s>) -> Result<Option<Vec<u64>>> {
        let mut all = Some(Vec::new());
        kind.unit.walk(kind.offset, &mut |e| {
            if e.tag() == gimli::DW_TAG_subrange_type {
                let stated = e.attr_value(gimli::DW_AT_count).and_then(|v| unsigned(&v));
                let upper = e.attr_value(gimli::DW_AT_upper_bound).and_then(|v| unsigned(&v));
                let count = stated.or(upper.and_then(|u| u.checked_add(1)));
                all = all.take().zip(count).map(|(mut all, count)| {
                    all.push(count);
                    all
                });
            }
            Ok(super::die::WalkStep::Past)
        })?;
        Ok(all)
    }

    fn encoding(&self, kind: &Die<'s>) -> Result<Option<gimli::DwAte>> {
        let value = self.inherited(kind, gimli::DW_AT_encoding)?.map(|(_, value)| value);
        Ok(match value {
            Some(gimli::AttributeValue::Encoding(encoding)) => Some(encoding),
            _ => None,
        })
    }

    /// Whether a type is a signed number.
    pub fn is_signed(&self, kind: &Die<'s>) -> Result<bool> {
        let mut encoding = self.encoding(kind)?;
        if encoding.is_none() && self.tag(kind)? == gimli::DW_TAG_enumeration_type {
            // clang states the type of the numbers alone.
            if let Some(base) = self.real_type(kind)? {
                encoding = self.encoding(&base)?;
            }
        }
        Ok(matches!(
            encoding,
            Some(gimli::DW_ATE_signed | gimli::DW_ATE_signed_char | gimli::DW_ATE_signed_fixed)
        ))
    }

    /// Whether a type is a floating-point number, real or complex.
    pub fn is_float(&self, kind: &Die<'s>) -> Result<bool> {
        Ok(matches!(
            self.encoding(kind)?,
            Some(
                gimli::DW_ATE_float
                    | gimli::DW_ATE_complex_float
                    | gimli::DW_ATE_imaginary_float
                    | gimli::DW_ATE_decimal_float
            )
        ))
    }

    /// Whether a type is a character of one byte.
    pub fn is_char(&self, kind: &Die<'s>) -> Result<bool> {
        let name = self.name(kind)?;
        Ok(matches!(name.as_deref(), Some("char" | "unsigned char" | "signed char" | "u8" | "i8")))
    }

    /// The type of `die` as `--vars` writes it: `struct file*`.
    pub fn type_text(&self, die: &Die<'s>) -> Result<Option<String>> {
        let mut stars = 0;
        let mut current = self.peel(die, true)?;
        for _ in 0..CHAIN {
            let Some(kind) = current else { return Ok(None) };
            let prefix = match self.tag(&kind)? {
                gimli::DW_TAG_array_type | gimli::DW_TAG_pointer_type => {
                    stars += 1;
                    current = self.peel(&kind, true)?;
                    continue;
                }
                gimli::DW_TAG_subroutine_type => {
                    return Ok(Some(format!("(function_type){}", "*".repeat(stars))));
                }
                // Units that others share do not say their language.
                _ if !(kind.unit.is_c || kind.unit.partial && die.unit.is_c) => "",
                gimli::DW_TAG_union_type => "union ",
                gimli::DW_TAG_structure_type => "struct ",
                gimli::DW_TAG_enumeration_type => "enum ",
                _ => "",
            };
            let Some(name) = self.name(&kind)? else { return Ok(None) };
            return Ok(Some(format!("{prefix}{name}{}", "*".repeat(stars))));
        }
        Ok(None)
    }
}
