//! The sections of a binary that debugging information is made of, unpacked and
//! relocated where that is needed, borrowed from the file where it is not.

use std::borrow::Cow;

use gimli::{RunTimeEndian, Section as _};
use object::read::{Object, ObjectSection, ObjectSymbol, RelocationTarget};
use object::{Architecture, ObjectKind, RelocationFlags, SectionFlags};

use super::DwarfError;
use super::companions::{Companions, Opened};

/// A section that takes part in the running program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedSection {
    /// Name.
    pub name: String,
    /// Start address: the stated one, or in an object that is not linked yet (a kernel module) the
    /// one assigned here.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// Alignment in memory.
    pub align: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Whether it is code.
    pub code: bool,
}

/// Call frame information. Lines and names need none of it: where it is damaged, only locations
/// relative to a frame are lost.
pub(super) struct Frames<'a> {
    /// Address and bytes of `.eh_frame`.
    pub(super) eh_frame: (u64, Cow<'a, [u8]>),
    pub(super) debug_frame: Cow<'a, [u8]>,
}

/// Memory that a file's bytes are in.
pub trait Pages: Sync {
    /// `part` was read through and is not needed soon.
    fn forget(&self, part: &[u8]);
}

/// Unpacked sections; [`super::Dwarf`] borrows from it.
pub struct Sections<'a> {
    pub(super) dwarf: gimli::DwarfSections<Cow<'a, [u8]>>,
    pub(super) frames: Result<Frames<'a>, DwarfError>,
    pub(super) endian: RunTimeEndian,
    pub(super) address_size: u8,
    has_info: bool,
    pub(super) companions: Option<&'a dyn Companions>,
    pub(super) opened: Opened,
    /// Receiver of the ranges that were searched, if set.
    pub pages: Option<&'a dyn Pages>,
    /// Sections of the running program.
    pub loaded: Vec<LoadedSection>,
    /// Whether it is an object that is not linked (a kernel module).
    pub relocatable: bool,
    /// The machine it is for.
    pub architecture: Architecture,
}

/// Unpacked sections may be larger than the file, but not without bound.
pub(super) const UNPACKED_LIMIT: u64 = 4 << 30;

impl<'a> Sections<'a> {
    /// Reads the sections of `debug`. Frame information that is only in the
    /// binary itself is taken from `binary`, when that is another file.
    pub fn load(debug: &'a [u8], binary: Option<&'a [u8]>) -> Result<Sections<'a>, DwarfError> {
        let file = object::File::parse(debug)?;
        let relocatable = file.kind() == ObjectKind::Relocatable;
        let loaded = layout_of(&file, relocatable);
        let relocate = |name: &str, data: Cow<'a, [u8]>| {
            if relocatable { apply_relocations(&file, &loaded, name, data) } else { data }
        };
        let dwarf = gimli::DwarfSections::load(|id| -> Result<_, DwarfError> {
            Ok(relocate(id.name(), section(&file, id.name())?))
        })?;
        let frames = || {
            let debug_frame = relocate(".debug_frame", section(&file, ".debug_frame")?);
            let mut eh_frame = eh_frame(&file)?;
            if eh_frame.1.is_empty()
                && let Some(binary) = binary
            {
                eh_frame = self::eh_frame(&object::File::parse(binary)?)?;
            }
            Ok(Frames { eh_frame, debug_frame })
        };
        Ok(Sections {
            dwarf,
            frames: frames(),
            endian: if file.is_little_endian() {
                RunTimeEndian::Little
            } else {
                RunTimeEndian::Big
            },
            pages: None,
            companions: None,
            opened: Opened::default(),
            has_info: [".debug_info", ".debug_abbrev"]
                .iter()
                .all(|n| file.section_by_name(n).is_some_and(|s| s.size() > 0)),
            address_size: if file.is_64() { 8 } else { 4 },
            loaded,
            relocatable,
            architecture: file.architecture(),
        })
    }

    /// Bytes of `.debug_info`.
    pub fn info_size(&self) -> u64 {
        self.dwarf.borrow(|b| gimli::EndianSlice::new(b, self.endian)).debug_info.reader().len()
            as u64
    }

    /// Whether there is any debugging information.
    pub fn has_debuginfo(&self) -> bool {
        self.has_info
    }
}

pub(super) fn section<'a>(
    file: &object::File<'a>,
    name: &str,
) -> Result<Cow<'a, [u8]>, DwarfError> {
    let Some(section) = file.section_by_name(name) else { return Ok(Cow::Borrowed(&[])) };
    let data = section.compressed_data()?;
    if data.uncompressed_size > UNPACKED_LIMIT {
        return Err(DwarfError::TooLarge {
            section: name.to_owned(),
            size: data.uncompressed_size,
        });
    }
    Ok(data.decompress()?)
}

fn eh_frame<'a>(file: &object::File<'a>) -> Result<(u64, Cow<'a, [u8]>), DwarfError> {
    let addr = file.section_by_name(".eh_frame").map_or(0, |s| s.address());
    Ok((addr, section(file, ".eh_frame")?))
}

/// Sections that are loaded. In an object that is not linked all of them are
/// stated to begin at 0; they are laid one behind the other instead.
pub(crate) fn layout_of(file: &object::File<'_>, relocatable: bool) -> Vec<LoadedSection> {
    const SHF_ALLOC: u64 = 2;
    // Debug files say where code is, and have none.
    const SHF_EXECINSTR: u64 = 4;
    let mut next = 0x1000u64;
    let mut sections = Vec::new();
    for s in file.sections() {
        let SectionFlags::Elf { sh_flags, .. } = s.flags() else { continue };
        let allocated = sh_flags.0 & SHF_ALLOC != 0;
        let mut addr = s.address();
        if relocatable && allocated {
            addr = next.checked_next_multiple_of(s.align().clamp(1, 1 << 20)).unwrap_or(next);
            next = addr.saturating_add(s.size());
        }
        sections.push(LoadedSection {
            name: s.name().unwrap_or_default().to_owned(),
            addr,
            size: if allocated { s.size() } else { 0 },
            align: s.align(),
            offset: s.file_range().map_or(0, |r| r.0),
            code: allocated && sh_flags.0 & SHF_EXECINSTR != 0,
        });
    }
    sections
}

/// Only absolute relocations are met in debugging information of x86-64 and
/// arm64 objects.
fn apply_relocations<'a>(
    file: &object::File<'a>,
    loaded: &[LoadedSection],
    name: &str,
    data: Cow<'a, [u8]>,
) -> Cow<'a, [u8]> {
    const ABSOLUTE_64: [u32; 2] = [1, 257];
    const ABSOLUTE_32: [u32; 3] = [10, 11, 258];
    let Some(section) = file.section_by_name(name) else { return data };
    let mut data = data;
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(index) = relocation.target() else { continue };
        let Ok(symbol) = file.symbol_by_index(index) else { continue };
        let base = symbol.section_index().and_then(|i| loaded.get(i.0.checked_sub(1)?));
        let base = base.filter(|s| s.size > 0).map_or(0, |s| s.addr);
        let value = base.wrapping_add(symbol.address()).wrapping_add_signed(relocation.addend());
        let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
        let size = match r_type.0 {
            t if ABSOLUTE_64.contains(&t) => 8,
            t if ABSOLUTE_32.contains(&t) => 4,
            _ => continue,
        };
        let Ok(at) = usize::try_from(offset) else { continue };
        let bytes = if file.is_little_endian() { value.to_le_bytes() } else { value.to_be_bytes() };
        let bytes = if file.is_little_endian() { &bytes[..size] } else { &bytes[8 - size..] };
        if let Some(place) = at.checked_add(size).and_then(|end| data.to_mut().get_mut(at..end)) {
            place.copy_from_slice(bytes);
        }
    }
    data
}
