//! Headers and sections of an ELF file. Everything needed later is copied out, so that the file's
//! bytes can be dropped.

use kymo_model::BuildId;
use object::read::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadRef};
use object::{SegmentFlags, SymbolFlags};

use crate::symtab::{Binding, RawSymbol, SymbolTable, SymbolType};
use crate::{go, plt};

/// The bytes are no ELF file that can be used.
#[derive(Debug, thiserror::Error)]
#[error("not a usable ELF file of {size} bytes: {error}")]
pub struct ElfError {
    /// Size of the input.
    pub size: usize,
    /// Error of the parser.
    pub error: object::Error,
}

/// A loadable segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes of it in the file.
    pub size: u64,
    /// Its stated virtual address.
    pub vaddr: u64,
    /// Whether it is code.
    pub executable: bool,
}

/// The name and checksum of a separate debug file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugLink {
    /// File name without a directory.
    pub name: Vec<u8>,
    /// CRC-32 of its contents.
    pub crc: u32,
}

/// The facts.
#[derive(Clone, Debug, Default)]
pub struct Elf {
    /// Content of the build-id note.
    pub build_id: Option<BuildId>,
    /// Content of `.gnu_debuglink`.
    pub debuglink: Option<DebugLink>,
    /// Loadable segments.
    pub loads: Vec<Load>,
    /// `.symtab`, and of `.dynsym` what is in places where that has none; addresses are
    /// the stated virtual ones.
    pub symbols: SymbolTable,
    /// Whether there are symbols of `.symtab`, or of the table that Go's runtime needs.
    pub has_symtab: bool,
    /// Entries of the procedure linkage table, as `name@plt`.
    pub plt: SymbolTable,
}

impl Elf {
    /// Reads the facts.
    pub fn parse(bytes: &[u8]) -> Result<Elf, ElfError> {
        let file =
            object::File::parse(bytes).map_err(|error| ElfError { size: bytes.len(), error })?;
        let mut elf = Elf {
            build_id: file.build_id().ok().flatten().map(BuildId::new),
            debuglink: file
                .gnu_debuglink()
                .ok()
                .flatten()
                .map(|(name, crc)| DebugLink { name: name.to_vec(), crc }),
            ..Elf::default()
        };
        elf.loads = loads(&file);
        let homes = homes(&file);
        let raw = file.symbols().filter_map(|s| function(&s, &homes));
        elf.symbols = SymbolTable::build(raw.collect());
        elf.has_symtab = !elf.symbols.is_empty();
        let dynamic = file.dynamic_symbols().filter_map(|s| function(&s, &homes));
        elf.symbols.merge(&SymbolTable::build(dynamic.collect()));
        if !elf.has_symtab
            && let Some(functions) = go::functions(&file)
        {
            elf.symbols.merge(&functions);
            elf.has_symtab = true;
        }
        elf.plt = plt::symbols(&file);
        Ok(elf)
    }

    /// The address of a symbol of any kind, by its name.
    pub fn address_of(bytes: &[u8], name: &str) -> Option<u64> {
        let file = object::File::parse(bytes).ok()?;
        let named = |s: &object::Symbol<'_, '_>| s.name_bytes() == Ok(name.as_bytes());
        file.symbols().find(|s| named(s) && !s.is_undefined()).map(|s| s.address())
    }

    /// The stated virtual address of a place in the file.
    pub fn vaddr(&self, file_offset: u64) -> Option<u64> {
        vaddr(&self.loads, file_offset)
    }
}

/// The loadable segments.
pub fn loads<'d, R: ReadRef<'d>>(file: &object::File<'d, R>) -> Vec<Load> {
    let load = |segment: object::Segment<'d, '_, R>| {
        let (offset, size) = segment.file_range();
        let executable = match segment.flags() {
            SegmentFlags::Elf { p_flags, .. } => p_flags.0 & 1 != 0,
            _ => false,
        };
        Load { offset, size, vaddr: segment.address(), executable }
    };
    file.segments().map(load).collect()
}

/// The stated virtual address of a place in the file.
pub fn vaddr(loads: &[Load], file_offset: u64) -> Option<u64> {
    // Two segments may share a page of the file: code wins.
    let covers = |l: &&Load| file_offset >= l.offset && file_offset - l.offset < l.size;
    let load = loads.iter().filter(covers).max_by_key(|l| l.executable)?;
    load.vaddr.checked_add(file_offset - load.offset)
}

/// The place in the file of a stated virtual address.
pub(crate) fn file_offset(loads: &[Load], vaddr: u64) -> Option<u64> {
    let covers = |l: &&Load| vaddr >= l.vaddr && vaddr - l.vaddr < l.size;
    let load = loads.iter().filter(covers).max_by_key(|l| l.executable)?;
    load.offset.checked_add(vaddr - load.vaddr)
}

/// Section properties that matter for the symbols in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Home {
    /// Labels in it may be code.
    text: bool,
    start: u64,
    end: u64,
}

/// The sections by index.
pub(crate) fn homes<'d, R: ReadRef<'d>>(file: &object::File<'d, R>) -> Vec<Home> {
    let mut homes = Vec::new();
    for section in file.sections() {
        let index = section.index().0;
        // Section indices are bounded by the section header table, which is
        // bounded by the file.
        if homes.len() <= index {
            homes.resize(index + 1, Home::default());
        }
        let name = section.name_bytes().unwrap_or_default();
        if let Some(slot) = homes.get_mut(index) {
            *slot = Home {
                text: name.windows(4).any(|w| w == b"text"),
                start: section.address(),
                end: section.address().saturating_add(section.size()),
            };
        }
    }
    homes
}

/// Whether a symbol stands for code, if it has a name.
pub(crate) fn stands_for_code<'data>(symbol: &impl ObjectSymbol<'data>, homes: &[Home]) -> bool {
    code_type(symbol, homes).is_some()
}

/// Binding and type of a symbol that stands for code, if it has a name.
fn code_type<'data>(
    symbol: &impl ObjectSymbol<'data>,
    homes: &[Home],
) -> Option<(Binding, SymbolType)> {
    const NOTYPE: u8 = 0;
    const FUNC: u8 = 2;
    const GNU_IFUNC: u8 = 10;
    const HIDDEN_OR_INTERNAL: [u8; 2] = [1, 2];
    let SymbolFlags::Elf { st_info, st_other } = symbol.flags() else { return None };
    let (kind, binding) = (st_info.0 & 15, st_info.0 >> 4);
    if symbol.is_undefined() {
        return None;
    }
    let is_text = || home(symbol, homes).is_some_and(|home| home.text);
    let kind = match kind {
        FUNC | GNU_IFUNC => SymbolType::Typed,
        NOTYPE if is_text() && !HIDDEN_OR_INTERNAL.contains(&(st_other.0 & 3)) => {
            SymbolType::NoType
        }
        _ => return None,
    };
    let binding = match binding {
        0 => Binding::Local,
        2 => Binding::Weak,
        _ => Binding::Global,
    };
    Some((binding, kind))
}

fn home<'h, 'data>(symbol: &impl ObjectSymbol<'data>, homes: &'h [Home]) -> Option<&'h Home> {
    symbol.section_index().and_then(|i| homes.get(i.0))
}

/// The symbol if it stands for code.
pub(crate) fn function<'data>(
    symbol: &impl ObjectSymbol<'data>,
    homes: &[Home],
) -> Option<RawSymbol<'data>> {
    let (binding, kind) = code_type(symbol, homes)?;
    let name = symbol.name_bytes().ok().filter(|n| !n.is_empty())?;
    Some(RawSymbol {
        start: symbol.address(),
        size: symbol.size(),
        limit: home(symbol, homes)
            .filter(|h| (h.start..h.end).contains(&symbol.address()))
            .map_or(u64::MAX, |h| h.end),
        name,
        binding,
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_finds_itself() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::parse(&bytes).unwrap();
        assert!(elf.has_symtab);
        assert!(elf.loads.iter().any(|l| l.executable));
        let code = elf.loads.iter().find(|l| l.executable).unwrap();
        assert_eq!(elf.vaddr(code.offset), Some(code.vaddr));
        assert_eq!(elf.vaddr(u64::MAX), None);
        assert_eq!(file_offset(&elf.loads, code.vaddr + 1), Some(code.offset + 1));
        // Memory behind what the file has of a segment is in no file.
        assert_eq!(file_offset(&elf.loads, code.vaddr + code.size), None);
        let hits = (0..code.size).step_by(64).filter_map(|o| elf.symbols.lookup(code.vaddr + o));
        let mine = hits.map(|(_, _, n)| crate::demangle(&String::from_utf8_lossy(n)).into_owned());
        assert!(mine.into_iter().any(|n| n.contains("kymo_debuginfo::elf")));
    }

    #[test]
    fn damaged_files_do_not_panic() {
        let bytes = std::fs::read("/bin/true").unwrap();
        for cut in (0..bytes.len()).step_by(97) {
            let _ = Elf::parse(&bytes[..cut]);
        }
        let mut state = 1u32;
        for _ in 0..300 {
            let mut broken = bytes.clone();
            for _ in 0..40 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = (state >> 8) as usize % broken.len().min(4096);
                broken[at] = state as u8;
            }
            let _ = Elf::parse(&broken);
        }
    }
}
