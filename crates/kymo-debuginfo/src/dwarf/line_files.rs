//! Which source files a unit has lines of, by the header of its line table, of
//! which nothing is copied.

use std::sync::Arc;

use gimli::{Format, Section as _};

use super::forms::{Bytes, Texts, Value, get, size_of};
use super::scan::Scanner;
use super::unit::Dwarf;
use super::{Reader, Result};

/// A file of a line table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LineFile<'s> {
    pub(super) name: Value<'s>,
    /// Its directory; none if it is the one that the unit was compiled in.
    pub(super) directory: Value<'s>,
}

/// A line table, as sections and a place.
pub(super) struct LineTable<'s> {
    pub(super) dwarf: Arc<gimli::Dwarf<Reader<'s>>>,
    pub(super) offset: u64,
    pub(super) address_size: u8,
}

/// Entries of a header beyond which it is not believed.
const MOST_FORMATS: usize = 16;

impl<'s> LineTable<'s> {
    /// Encoding of the texts in its header.
    pub(super) fn encoding(&self) -> gimli::Encoding {
        gimli::Encoding { address_size: self.address_size, format: Format::Dwarf32, version: 5 }
    }

    /// Visits the files in the order of their numbers.
    pub(super) fn files(&self, visit: &mut dyn FnMut(LineFile<'s>)) -> Result<()> {
        let section = self.dwarf.debug_line.reader();
        let at = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let mut b = Bytes::at(section, at);
        let mut length = b.number(4)?;
        let mut format = Format::Dwarf32;
        if length == 0xffff_ffff {
            length = b.number(8)?;
            format = Format::Dwarf64;
        }
        b.end_after(length)?;
        let version = b.number(2)? as u16;
        let encoding = gimli::Encoding { address_size: self.address_size, format, version };
        if version >= 5 {
            b.skip(2)?;
        }
        let header = b.number(usize::from(format.word_size()))?;
        b.end_after(header)?;
        b.skip(if version >= 4 { 5 } else { 4 })?;
        let opcode_base = b.u8()?;
        b.skip(usize::from(opcode_base.saturating_sub(1)))?;
        if version >= 5 { files_v5(&mut b, encoding, visit) } else { files_v4(&mut b, visit) }
    }
}

impl<'s> Dwarf<'s> {
    /// Units with lines of a file whose path may end so, ascending.
    pub fn units_with_file(&self, path: &str) -> Vec<usize> {
        if let Some(index) = &self.index {
            return index.file(path);
        }
        let wanted = path.rsplit('/').next().unwrap_or(path).as_bytes();
        let units = self.scanned();
        let holds = |index: usize, scanner: &mut Scanner| -> Result<bool> {
            let Some(table) = units.lines(index, scanner)? else { return Ok(false) };
            let texts = Texts::new(&table.dwarf, table.encoding());
            let mut hit = false;
            table.files(&mut |file| {
                hit = hit
                    || texts.text(file.name).is_some_and(|name| {
                        name.strip_suffix(wanted)
                            .is_some_and(|rest| rest.is_empty() || rest.ends_with(b"/"))
                    });
            })?;
            Ok(hit)
        };
        // What cannot be read may have any file.
        let hits = units.each(|index, scanner| holds(index, scanner).unwrap_or(true));
        hits.iter().enumerate().filter(|(_, hit)| **hit).map(|(index, _)| index).collect()
    }
}

fn files_v4<'s>(b: &mut Bytes<'s>, visit: &mut dyn FnMut(LineFile<'s>)) -> Result<()> {
    let mut directories = vec![Value::None];
    loop {
        let directory = b.text()?;
        if directory.is_empty() {
            break;
        }
        directories.push(Value::Text(directory));
    }
    loop {
        let name = b.text()?;
        if name.is_empty() {
            return Ok(());
        }
        let directory = usize::try_from(b.leb()?).ok().and_then(|at| directories.get(at));
        b.skip_leb()?;
        b.skip_leb()?;
        let directory = directory.copied().unwrap_or_default();
        visit(LineFile { name: Value::Text(name), directory });
    }
}

fn files_v5<'s>(
    b: &mut Bytes<'s>,
    encoding: gimli::Encoding,
    visit: &mut dyn FnMut(LineFile<'s>),
) -> Result<()> {
    let mut directories = Vec::new();
    entries(b, encoding, &mut |path, _| directories.push(path))?;
    entries(b, encoding, &mut |name, directory| {
        let directory = usize::try_from(directory).ok().and_then(|at| directories.get(at));
        visit(LineFile { name, directory: directory.copied().unwrap_or_default() });
    })
}

/// Entries of a list of directories or files: the path, and the directory's number.
fn entries<'s>(
    b: &mut Bytes<'s>,
    encoding: gimli::Encoding,
    visit: &mut dyn FnMut(Value<'s>, u64),
) -> Result<()> {
    let unknown = || gimli::Error::UnknownForm(gimli::DwForm(0));
    let mut formats = Vec::new();
    for _ in 0..b.u8()? {
        let (content, form) = (b.leb()?, u16::try_from(b.leb()?).map_err(|_| unknown())?);
        formats.push((content, form));
    }
    if formats.len() > MOST_FORMATS {
        return Err(unknown().into());
    }
    let count = b.leb()?;
    // The number of entries without bytes is limited by nothing else.
    if count > b.left() as u64 {
        return Err(unknown().into());
    }
    for _ in 0..count {
        let (mut path, mut directory) = (Value::None, 0);
        for (content, form) in &formats {
            let size = size_of(*form, encoding).ok_or_else(unknown)?;
            match gimli::DwLnct(u16::try_from(*content).unwrap_or(u16::MAX)) {
                gimli::DW_LNCT_path => path = b.value(get(*form, size)?)?,
                gimli::DW_LNCT_directory_index => {
                    if let Value::Number(number) = b.value(get(*form, size)?)? {
                        directory = number;
                    }
                }
                _ => b.pass(size)?,
            }
        }
        visit(path, directory);
    }
    Ok(())
}
