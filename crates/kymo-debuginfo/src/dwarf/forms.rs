//! Values of attributes by their forms, read from bytes without an allocation:
//! what the fast passes over entries and line tables need.

use gimli::{Reader as _, Section as _};
use memchr::memchr;

use super::{Reader, Result};

/// A form that only the slow way knows.
pub(super) const UNSUPPORTED: gimli::Error = gimli::Error::UnknownForm(gimli::constants::DwForm(0));

/// Reader of a value that is kept.
#[derive(Clone, Copy, Debug)]
pub(super) enum Get {
    /// A number of bytes.
    Fixed(u8, Class),
    Leb(Class),
    Text,
    /// It is there, which says all.
    Present,
}

/// Meaning of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Number,
    Str,
    LineStr,
    SharedStr,
    Indexed,
}

/// A cursor.
pub(super) struct Bytes<'s> {
    pub(super) bytes: &'s [u8],
    pub(super) at: usize,
    endian: gimli::RunTimeEndian,
}

impl<'s> Bytes<'s> {
    /// From `at` on.
    pub(super) fn at(section: &Reader<'s>, at: usize) -> Bytes<'s> {
        Bytes { bytes: section.slice(), at, endian: section.endian() }
    }

    /// Nothing is behind the next `length` bytes.
    pub(super) fn end_after(&mut self, length: u64) -> Result<()> {
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
        let bytes = end.and_then(|end| self.bytes.get(..end));
        self.bytes = bytes.ok_or_else(|| self.end())?;
        Ok(())
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    fn end(&self) -> gimli::Error {
        gimli::Error::UnexpectedEof(gimli::ReaderOffsetId(self.at as u64))
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        let byte = self.bytes.get(self.at).copied().ok_or_else(|| self.end())?;
        self.at += 1;
        Ok(byte)
    }

    pub(super) fn leb(&mut self) -> Result<u64> {
        let first = self.u8()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(gimli::Error::BadUnsignedLeb128.into())
    }

    pub(super) fn skip_leb(&mut self) -> Result<()> {
        while self.u8()? >= 0x80 {}
        Ok(())
    }

    pub(super) fn skip(&mut self, count: usize) -> Result<()> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        self.at = end.ok_or_else(|| self.end())?;
        Ok(())
    }

    pub(super) fn number(&mut self, size: usize) -> Result<u64> {
        let end = self.at.checked_add(size);
        let part = end.and_then(|end| self.bytes.get(self.at..end)).ok_or_else(|| self.end())?;
        self.at += size;
        if let (Ok(four), gimli::RunTimeEndian::Little) = (<[u8; 4]>::try_from(part), self.endian) {
            return Ok(u64::from(u32::from_le_bytes(four)));
        }
        let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Ok(match self.endian {
            gimli::RunTimeEndian::Little => part.iter().rev().fold(0, fold),
            gimli::RunTimeEndian::Big => part.iter().fold(0, fold),
        })
    }

    /// Passes over a value.
    pub(super) fn pass(&mut self, size: Size) -> Result<()> {
        match size {
            Size::Fixed(count) => self.skip(count as usize),
            Size::Leb => self.skip_leb(),
            Size::Text => self.text().map(drop),
            Size::Block(stated) => {
                let size = match stated {
                    0 => self.leb()?,
                    stated => self.number(usize::from(stated))?,
                };
                self.skip(usize::try_from(size).unwrap_or(usize::MAX))
            }
        }
    }

    pub(super) fn value(&mut self, get: Get) -> Result<Value<'s>> {
        let (number, class) = match get {
            Get::Present => return Ok(Value::Number(1)),
            Get::Text => return Ok(Value::Text(self.text()?)),
            Get::Leb(class) => (self.leb()?, class),
            Get::Fixed(size, class) => (self.number(usize::from(size))?, class),
        };
        Ok(match class {
            Class::Number => Value::Number(number),
            Class::Str => Value::Str(number),
            Class::LineStr => Value::LineStr(number),
            Class::SharedStr => Value::SharedStr(number),
            Class::Indexed => Value::Indexed(number),
        })
    }

    pub(super) fn text(&mut self) -> Result<&'s [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let size = memchr(0, rest).ok_or_else(|| self.end())?;
        self.at += size + 1;
        rest.get(..size).ok_or_else(|| self.end().into())
    }
}

/// Size of a value of a form.
#[derive(Clone, Copy, Debug)]
pub(super) enum Size {
    Fixed(u32),
    Leb,
    Text,
    Block(u8),
}

pub(super) fn size_of(form: u16, encoding: gimli::Encoding) -> Option<Size> {
    let word = u32::from(encoding.format.word_size());
    let address = u32::from(encoding.address_size);
    Some(match gimli::DwForm(form) {
        gimli::DW_FORM_addr => Size::Fixed(address),
        gimli::DW_FORM_implicit_const | gimli::DW_FORM_flag_present => Size::Fixed(0),
        gimli::DW_FORM_data1
        | gimli::DW_FORM_ref1
        | gimli::DW_FORM_flag
        | gimli::DW_FORM_strx1
        | gimli::DW_FORM_addrx1 => Size::Fixed(1),
        gimli::DW_FORM_data2
        | gimli::DW_FORM_ref2
        | gimli::DW_FORM_strx2
        | gimli::DW_FORM_addrx2 => Size::Fixed(2),
        gimli::DW_FORM_strx3 | gimli::DW_FORM_addrx3 => Size::Fixed(3),
        gimli::DW_FORM_data4
        | gimli::DW_FORM_ref4
        | gimli::DW_FORM_strx4
        | gimli::DW_FORM_addrx4
        | gimli::DW_FORM_ref_sup4 => Size::Fixed(4),
        gimli::DW_FORM_data8
        | gimli::DW_FORM_ref8
        | gimli::DW_FORM_ref_sig8
        | gimli::DW_FORM_ref_sup8 => Size::Fixed(8),
        gimli::DW_FORM_data16 => Size::Fixed(16),
        gimli::DW_FORM_ref_addr if encoding.version <= 2 => Size::Fixed(address),
        gimli::DW_FORM_ref_addr
        | gimli::DW_FORM_strp
        | gimli::DW_FORM_line_strp
        | gimli::DW_FORM_sec_offset
        | gimli::DW_FORM_strp_sup
        | gimli::DW_FORM_GNU_ref_alt
        | gimli::DW_FORM_GNU_strp_alt => Size::Fixed(word),
        gimli::DW_FORM_sdata
        | gimli::DW_FORM_udata
        | gimli::DW_FORM_ref_udata
        | gimli::DW_FORM_strx
        | gimli::DW_FORM_addrx
        | gimli::DW_FORM_loclistx
        | gimli::DW_FORM_rnglistx
        | gimli::DW_FORM_GNU_addr_index
        | gimli::DW_FORM_GNU_str_index => Size::Leb,
        gimli::DW_FORM_string => Size::Text,
        gimli::DW_FORM_block1 => Size::Block(1),
        gimli::DW_FORM_block2 => Size::Block(2),
        gimli::DW_FORM_block4 => Size::Block(4),
        gimli::DW_FORM_block | gimli::DW_FORM_exprloc => Size::Block(0),
        _ => return None,
    })
}

pub(super) fn get(form: u16, size: Size) -> Result<Get> {
    let class = match gimli::DwForm(form) {
        gimli::DW_FORM_flag_present => return Ok(Get::Present),
        gimli::DW_FORM_strp => Class::Str,
        gimli::DW_FORM_line_strp => Class::LineStr,
        gimli::DW_FORM_strp_sup | gimli::DW_FORM_GNU_strp_alt => Class::SharedStr,
        gimli::DW_FORM_strx
        | gimli::DW_FORM_strx1
        | gimli::DW_FORM_strx2
        | gimli::DW_FORM_strx3
        | gimli::DW_FORM_strx4
        | gimli::DW_FORM_GNU_str_index => Class::Indexed,
        _ => Class::Number,
    };
    match size {
        Size::Fixed(bytes @ 1..=8) => Ok(Get::Fixed(bytes as u8, class)),
        Size::Leb => Ok(Get::Leb(class)),
        Size::Text => Ok(Get::Text),
        Size::Fixed(_) | Size::Block(_) => Err(UNSUPPORTED.into()),
    }
}

/// A value that was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Value<'s> {
    #[default]
    None,
    Number(u64),
    Text(&'s [u8]),
    /// In `.debug_str`.
    Str(u64),
    LineStr(u64),
    /// In `.debug_str` of the shared file.
    SharedStr(u64),
    Indexed(u64),
}

/// Sections that hold texts.
pub(super) struct Texts<'d, 's> {
    dwarf: &'d gimli::Dwarf<Reader<'s>>,
    pub(super) base: u64,
    format: gimli::Format,
}

impl<'d, 's> Texts<'d, 's> {
    pub(super) fn new(
        dwarf: &'d gimli::Dwarf<Reader<'s>>,
        encoding: gimli::Encoding,
    ) -> Texts<'d, 's> {
        let base = gimli::DebugStrOffsetsBase::<usize>::default_for_encoding_and_file(
            encoding,
            dwarf.file_type,
        );
        Texts { dwarf, base: base.0 as u64, format: encoding.format }
    }

    pub(super) fn text(&self, value: Value<'s>) -> Option<&'s [u8]> {
        let (section, at) = match value {
            Value::Text(text) => return Some(text),
            Value::Str(at) => (self.dwarf.debug_str.reader(), at),
            Value::LineStr(at) => (self.dwarf.debug_line_str.reader(), at),
            Value::SharedStr(at) => (self.dwarf.sup()?.debug_str.reader(), at),
            Value::Indexed(index) => {
                let base = gimli::DebugStrOffsetsBase(usize::try_from(self.base).ok()?);
                let index = gimli::DebugStrOffsetsIndex(usize::try_from(index).ok()?);
                let offsets = &self.dwarf.debug_str_offsets;
                let at = offsets.get_str_offset(self.format, base, index).ok()?;
                (self.dwarf.debug_str.reader(), at.0 as u64)
            }
            Value::None | Value::Number(_) => return None,
        };
        let rest = section.slice().get(usize::try_from(at).ok()?..)?;
        rest.get(..memchr(0, rest)?)
    }
}
