//! Symbols for probing: functions by address and by any of their names, data by
//! address. In objects that are not linked, addresses are those that
//! [`crate::dwarf::Sections`] lays out.

use object::read::{Object, ObjectSegment, ObjectSymbol};
use object::{ObjectKind, SymbolFlags};

use crate::dwarf::{DwarfError, LoadedSection, layout_of};
use crate::symtab::{Binding, RawSymbol, SymbolTable, Type};

/// A name in the file.
#[derive(Clone, Copy, Debug)]
pub struct NamedSymbol<'a> {
    /// Address.
    pub addr: u64,
    /// Bytes; 0 when not stated.
    pub size: u64,
    /// Name as stored.
    pub name: &'a str,
    /// Whether it is a function.
    pub code: bool,
}

/// The symbols of a binary, with where its code is in the file.
pub struct CodeSymbols<'a> {
    /// Functions, one name for each address.
    pub code: SymbolTable,
    /// Data, one name for each address.
    pub data: SymbolTable,
    /// Every name.
    pub all: Vec<NamedSymbol<'a>>,
    /// Sections of the running program.
    pub sections: Vec<LoadedSection>,
    /// `(address, bytes, file offset, executable)` of what is loaded.
    segments: Vec<(u64, u64, u64, bool)>,
    architecture: object::Architecture,
}

impl<'a> CodeSymbols<'a> {
    /// Symbols of `binary`, and of its separate debug file.
    pub fn load(binary: &'a [u8], debug: Option<&'a [u8]>) -> Result<CodeSymbols<'a>, DwarfError> {
        let file = object::File::parse(binary)?;
        let relocatable = file.kind() == ObjectKind::Relocatable;
        let sections = layout_of(&file, relocatable);
        let mut gathered = Gathered::default();
        gathered.take(&file, &sections, relocatable, false);
        if let Some(debug) = debug {
            let file = object::File::parse(debug)?;
            gathered.take(&file, &sections, relocatable, false);
        }
        if gathered.code.is_empty() {
            gathered.take(&file, &sections, relocatable, true);
        }
        let segments = file.segments().map(|s| {
            let (offset, _) = s.file_range();
            let executable = matches!(s.flags(), object::SegmentFlags::Elf { p_flags, .. } if p_flags.0 & 1 != 0);
            (s.address(), s.size(), offset, executable)
        });
        Ok(CodeSymbols {
            segments: segments.collect(),
            code: SymbolTable::build(gathered.code),
            data: SymbolTable::build(gathered.data),
            all: gathered.all,
            sections,
            architecture: file.architecture(),
        })
    }

    /// Where an address of the binary is in its file.
    pub fn file_offset(&self, addr: u64) -> Option<u64> {
        let covers = |s: &&(u64, u64, u64, bool)| addr >= s.0 && addr - s.0 < s.1;
        let (start, _, offset, _) = self.segments.iter().filter(covers).max_by_key(|s| s.3)?;
        offset.checked_add(addr - start)
    }

    /// The address of a place in the file.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let covers = |s: &&(u64, u64, u64, bool)| offset >= s.2 && offset - s.2 < s.1;
        let (start, _, from, _) = self.segments.iter().filter(covers).max_by_key(|s| s.3)?;
        start.checked_add(offset - from)
    }

    /// Stated address minus file offset of the code.
    pub fn code_bias(&self) -> u64 {
        let text = self.sections.iter().find(|s| s.name == ".text");
        text.map_or(0, |t| t.addr.wrapping_sub(t.offset))
    }

    /// Name and first address of the function that covers `addr`.
    pub fn function_at(&self, addr: u64) -> Option<(&str, u64)> {
        let (start, _, name) = self.code.lookup(addr)?;
        Some((std::str::from_utf8(name).ok()?, start))
    }

    /// The function that covers `addr`: name, first address and the one behind it.
    pub fn function_span(&self, addr: u64) -> Option<(&str, u64, u64)> {
        let (start, end, name) = self.code.lookup(addr)?;
        Some((std::str::from_utf8(name).ok()?, start, end))
    }

    /// Whether it is code for x86-64; `None` if the machine is not known.
    pub fn machine_is_x86_64(&self) -> Option<bool> {
        match self.architecture {
            object::Architecture::Unknown => None,
            a => Some(a == object::Architecture::X86_64),
        }
    }

    /// Name and first address of the data that covers `addr`.
    pub fn data_at(&self, addr: u64) -> Option<(&str, u64)> {
        let (start, _, name) = self.data.lookup(addr)?;
        Some((std::str::from_utf8(name).ok()?, start))
    }

    /// The section that an address is in.
    pub fn section_at(&self, addr: u64) -> Option<&LoadedSection> {
        self.sections.iter().find(|s| addr >= s.addr && addr - s.addr < s.size)
    }
}

#[derive(Default)]
struct Gathered<'a> {
    code: Vec<RawSymbol<'a>>,
    data: Vec<RawSymbol<'a>>,
    all: Vec<NamedSymbol<'a>>,
}

impl<'a> Gathered<'a> {
    fn take(
        &mut self,
        file: &object::File<'a>,
        sections: &[LoadedSection],
        relocatable: bool,
        dynamic: bool,
    ) {
        if dynamic {
            for s in file.dynamic_symbols() {
                self.one(&s, sections, relocatable);
            }
        } else {
            for s in file.symbols() {
                self.one(&s, sections, relocatable);
            }
        }
    }

    fn one(
        &mut self,
        symbol: &object::Symbol<'a, '_>,
        sections: &[LoadedSection],
        relocatable: bool,
    ) {
        const NOTYPE: u8 = 0;
        const OBJECT: u8 = 1;
        const FUNC: u8 = 2;
        const GNU_IFUNC: u8 = 10;
        let SymbolFlags::Elf { st_info, .. } = symbol.flags() else { return };
        let Some(index) = symbol.section_index() else { return };
        let Some(section) = index.0.checked_sub(1).and_then(|i| sections.get(i)) else { return };
        let Some(name) = symbol.name().ok().filter(|n| !n.is_empty()) else { return };
        let kind = st_info.0 & 15;
        let code = match kind {
            FUNC | GNU_IFUNC => true,
            NOTYPE => section.code,
            OBJECT => false,
            _ => return,
        };
        let base = if relocatable { section.addr } else { 0 };
        let start = base.wrapping_add(symbol.address());
        let raw = RawSymbol {
            start,
            size: symbol.size(),
            name: name.as_bytes(),
            binding: match st_info.0 >> 4 {
                0 => Binding::Local,
                2 => Binding::Weak,
                _ => Binding::Global,
            },
            kind: if kind == NOTYPE { Type::NoType } else { Type::Typed },
        };
        if section.size > 0 {
            if code {
                self.code.push(raw)
            } else {
                self.data.push(raw)
            }
            self.all.push(NamedSymbol { addr: start, size: symbol.size(), name, code });
        }
    }
}
