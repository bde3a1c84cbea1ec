//! Symbols for probing: functions by address and by any of their names, data by
//! address. In objects that are not linked, addresses are those that
//! [`crate::dwarf::Sections`] lays out.
//!
//! A question or two are answered by passing over the symbol table, which is
//! faster than sorting it; the sorted table is made when there are more.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;

use object::read::{Object, ObjectSection, ObjectSymbol, RelocationTarget};
use object::{ObjectKind, RelocationFlags, SymbolFlags};

use crate::dwarf::{DwarfError, LoadedSection, layout_of};
use crate::elf::{self, Load};
use crate::go;
use crate::symtab::{Binding, LOOK_BACK, Looks, RawSymbol, SymbolRank, SymbolTable, SymbolType};

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
    /// Whether the function is a resolver, which returns the function that calls of the name reach.
    pub indirect: bool,
}

/// The symbols of a binary, with where its code is in the file.
pub struct CodeSymbols<'a> {
    /// Sections of the running program.
    pub sections: Vec<LoadedSection>,
    /// The files with symbols, and whether the dynamic ones of the first are all.
    files: Vec<object::File<'a>>,
    dynamic: bool,
    relocatable: bool,
    /// Functions and data, one name for each address.
    tables: OnceCell<[SymbolTable; 2]>,
    /// Number of passes over the symbols without the tables.
    passes: Cell<usize>,
    segments: Vec<Load>,
    architecture: object::Architecture,
    /// Functions of a Go program.
    go: OnceCell<Option<SymbolTable>>,
}

/// Type of a symbol whose function returns the one to call.
const GNU_IFUNC: u8 = 10;

/// Passes over the symbols that are made before they are sorted.
const PASSES: usize = 3;

/// A symbol, not yet named.
struct CodeSymbol<'f, 'a> {
    symbol: object::Symbol<'a, 'f>,
    start: u64,
    code: bool,
    typed: bool,
    binding: Binding,
}

impl<'a> NamedSymbol<'a> {
    /// Whether the name ends with a version.
    pub fn is_versioned(&self) -> bool {
        self.plain_name().len() < self.name.len()
    }

    /// Whether the name ends with the version that new programs are linked against.
    pub fn is_default_version(&self) -> bool {
        self.name.get(self.plain_name().len()..).is_some_and(|v| v.starts_with("@@"))
    }

    /// Name without the version that symbol tables of debug files append: `f` of `f@@LIB_1.2`.
    pub fn plain_name(&self) -> &'a str {
        without_version(self.name)
    }
}

/// A symbol's name without its version: `f` of `f@LIB_1.2` and `f@@LIB_1.2`.
fn without_version(name: &str) -> &str {
    match name.split_once('@') {
        Some((plain, _)) if !plain.is_empty() => plain,
        _ => name,
    }
}

impl<'a> CodeSymbol<'_, 'a> {
    fn name(&self) -> Option<&'a str> {
        self.symbol.name().ok().filter(|n| !n.is_empty())
    }

    /// `sections` say how far a symbol without a size may reach.
    fn raw(&self, sections: &[LoadedSection]) -> Option<RawSymbol<'a>> {
        let inside = |s: &&LoadedSection| self.start.wrapping_sub(s.addr) < s.size;
        let home = sections.iter().find(inside);
        Some(RawSymbol {
            start: self.start,
            size: self.symbol.size(),
            limit: home.map_or(u64::MAX, |s| s.addr.saturating_add(s.size)),
            name: self.name()?.as_bytes(),
            binding: self.binding,
            kind: if self.typed { SymbolType::Typed } else { SymbolType::NoType },
        })
    }
}

impl<'a> CodeSymbols<'a> {
    /// Symbols of `binary`, and of its separate debug file.
    pub fn load(binary: &'a [u8], debug: Option<&'a [u8]>) -> Result<CodeSymbols<'a>, DwarfError> {
        let file = object::File::parse(binary)?;
        let relocatable = file.kind() == ObjectKind::Relocatable;
        let sections = layout_of(&file, relocatable);
        let mut symbols = CodeSymbols {
            segments: elf::loads(&file),
            architecture: file.architecture(),
            go: OnceCell::new(),
            sections,
            files: Vec::new(),
            dynamic: false,
            relocatable,
            tables: OnceCell::new(),
            passes: Cell::new(0),
        };
        symbols.files.push(file);
        if let Some(debug) = debug {
            symbols.files.push(object::File::parse(debug)?);
        }
        let has_code = symbols.found().any(|s| s.code && s.name().is_some());
        symbols.dynamic = !has_code;
        Ok(symbols)
    }

    /// Whether the kernel chooses where the program or library is in memory.
    pub fn is_position_independent(&self) -> bool {
        self.files.first().is_some_and(|file| file.kind() == ObjectKind::Dynamic)
    }

    /// All symbols of the running program.
    fn found(&self) -> impl Iterator<Item = CodeSymbol<'_, 'a>> {
        let files = self.files.iter().take(if self.dynamic { 1 } else { usize::MAX });
        let symbols =
            files.flat_map(|f| if self.dynamic { f.dynamic_symbols() } else { f.symbols() });
        symbols.filter_map(|s| self.classify(s))
    }

    fn classify<'f>(&self, symbol: object::Symbol<'a, 'f>) -> Option<CodeSymbol<'f, 'a>> {
        const NOTYPE: u8 = 0;
        const OBJECT: u8 = 1;
        const FUNC: u8 = 2;
        let SymbolFlags::Elf { st_info, .. } = symbol.flags() else { return None };
        let index = symbol.section_index()?;
        let section = index.0.checked_sub(1).and_then(|i| self.sections.get(i))?;
        let kind = st_info.0 & 15;
        let code = match kind {
            FUNC | GNU_IFUNC => true,
            NOTYPE => section.code,
            OBJECT => false,
            _ => return None,
        };
        if section.size == 0 {
            return None;
        }
        let base = if self.relocatable { section.addr } else { 0 };
        Some(CodeSymbol {
            start: base.wrapping_add(symbol.address()),
            symbol,
            code,
            typed: kind != NOTYPE,
            binding: match st_info.0 >> 4 {
                0 => Binding::Local,
                2 => Binding::Weak,
                _ => Binding::Global,
            },
        })
    }

    /// Every name.
    pub fn all(&self) -> impl Iterator<Item = NamedSymbol<'a>> {
        self.found().filter_map(|s| named(&s))
    }

    /// The first symbol of a name, a function if `code` is asked for. Without such a symbol, the
    /// one of that name whose version is the default one (`name@@VERSION`), then any version.
    pub fn named(&self, name: &str, code: bool) -> Option<NamedSymbol<'a>> {
        let rank = |s: &CodeSymbol<'_, 'a>| match s.symbol.name_bytes().ok()? {
            stored if stored == name.as_bytes() => Some(0),
            stored => match stored.strip_prefix(name.as_bytes())? {
                [b'@', b'@', ..] => Some(1),
                [b'@', ..] => Some(2),
                _ => None,
            },
        };
        let mut best: Option<(i32, NamedSymbol<'a>)> = None;
        for symbol in self.found().filter(|s| s.code || !code) {
            if let Some(rank) = rank(&symbol).filter(|rank| best.is_none_or(|(b, _)| *rank < b))
                && let Some(symbol) = named(&symbol)
            {
                best = Some((rank, symbol));
                if rank == 0 {
                    break;
                }
            }
        }
        best.map(|(_, symbol)| symbol)
    }

    /// Functions with a wanted name, each once, in the order in which they are found. Of several
    /// wanted names of one address it is the one that tables of symbols prefer.
    pub fn functions(
        &self,
        mut is_wanted: impl FnMut(&NamedSymbol<'a>) -> bool,
    ) -> Vec<NamedSymbol<'a>> {
        let mut found: Vec<(NamedSymbol<'a>, SymbolRank)> = Vec::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        let looks = |f: &NamedSymbol<'_>| {
            (!f.is_versioned() || f.is_default_version(), Looks::of(f.plain_name().as_bytes()))
        };
        for symbol in self.found().filter(|s| s.code) {
            let Some(function) = named(&symbol).filter(|f| is_wanted(f)) else { continue };
            let Some(raw) = symbol.raw(&self.sections) else { continue };
            let rank = SymbolRank::of(&raw);
            let next = found.len();
            let place = *places.entry(function.addr).or_insert(next);
            match found.get_mut(place) {
                Some((best, of_best)) => {
                    let ranks = (*of_best).cmp(&rank);
                    if ranks.then_with(|| looks(best).cmp(&looks(&function))).is_lt() {
                        (*best, *of_best) = (function, rank);
                    }
                }
                None => found.push((function, rank)),
            }
        }
        found.into_iter().map(|(function, _)| function).collect()
    }

    /// Address of the variable of a name; `None` if several have it.
    pub fn address_of_data(&self, name: &str) -> Option<u64> {
        let mut found = self.found().filter(|s| !s.code && s.name() == Some(name));
        let first = found.next()?.start;
        found.all(|other| other.start == first).then_some(first)
    }

    /// Reason why a probe on an indirect function is seldom intended, with the functions that may
    /// be; `None` for other functions.
    pub fn indirect_caution(&self, name: &str) -> Option<String> {
        self.named(name, true).filter(|symbol| symbol.indirect)?;
        let start = format!("__{name}_");
        let others = self.all().filter(|s| s.code && s.name.starts_with(&start));
        let mut others: Vec<&str> = others.map(|s| s.name).collect();
        others.sort_unstable();
        others.dedup();
        let others = match others.as_slice() {
            [] => String::new(),
            [one] => format!("; calls reach {one}"),
            several => format!("; calls reach one of {}", several.join(", ")),
        };
        Some(format!(
            "{name} is an indirect function: the probe is in its resolver, which runs when the \
             program is linked and has no arguments{others}"
        ))
    }

    /// Whether exceptions or panics may leave functions of the program or library: it raises or
    /// resumes them, or has the runtime of C++ or Rust in itself.
    pub fn raises_exceptions(&self) -> bool {
        const RAISED: [&str; 5] = [
            "__cxa_throw",
            "__cxa_rethrow",
            "_Unwind_RaiseException",
            "_Unwind_Resume",
            "_Unwind_Resume_or_Rethrow",
        ];
        let Some(file) = self.files.first() else { return false };
        let is_raised = |s: &object::Symbol<'a, '_>| {
            s.is_undefined() && s.name().is_ok_and(|name| RAISED.contains(&name))
        };
        // C programs that are static have the unwinder, too, without what would raise anything.
        let is_runtime = |s: &CodeSymbol<'_, 'a>| {
            s.code
                && s.name()
                    .is_some_and(|name| name == "__cxa_throw" || name.contains("rust_start_panic"))
        };
        file.dynamic_symbols().any(|s| is_raised(&s)) || self.found().any(|s| is_runtime(&s))
    }

    /// Whether the program or library has code that was compiled from Go.
    pub fn has_go(&self) -> bool {
        self.files.first().is_some_and(go::has_functions)
    }

    /// Whether the code at `addr` was compiled from Go. C code of a Go program was not.
    pub fn is_go(&self, addr: u64) -> bool {
        let Some(file) = self.files.first().filter(|file| go::has_functions(file)) else {
            return false;
        };
        match self.go.get_or_init(|| go::functions(file)) {
            Some(functions) => functions.lookup(addr).is_some(),
            // A table of an unknown layout.
            None => true,
        }
    }

    /// Whether a symbol of this name begins at `addr`.
    pub fn is_named(&self, addr: u64, name: &str) -> bool {
        self.found().any(|s| s.start == addr && s.name() == Some(name))
    }

    /// Functions and data, sorted, one name for each address.
    pub fn tables(&self) -> &[SymbolTable; 2] {
        self.tables.get_or_init(|| {
            let of = |code| {
                let of_kind = self.found().filter(move |s| s.code == code);
                of_kind.filter_map(|s| s.raw(&self.sections))
            };
            [SymbolTable::build(of(true).collect()), SymbolTable::build(of(false).collect())]
        })
    }

    /// `(start, end, name)` of the function or data that covers `addr`.
    fn lookup(&self, addr: u64, code: bool) -> Option<(u64, u64, &str)> {
        let text = |found: (u64, u64, &'a [u8])| {
            Some((found.0, found.1, std::str::from_utf8(found.2).ok()?))
        };
        if self.tables.get().is_none() && self.passes.get() < PASSES {
            self.passes.set(self.passes.get() + 1);
            return self.pass(addr, code).and_then(text);
        }
        let [functions, data] = self.tables();
        let (start, end, name) = if code { functions } else { data }.lookup(addr)?;
        Some((start, end, std::str::from_utf8(name).ok()?))
    }

    /// Resolves an address without the table, from the part that a look-up needs: the last
    /// addresses before, and the first one after it.
    fn pass(&self, addr: u64, code: bool) -> Option<(u64, u64, &'a [u8])> {
        // Ascending; room for one more while one is put in.
        let mut near: Vec<u64> = Vec::with_capacity(LOOK_BACK + 1);
        let mut behind: Option<u64> = None;
        for start in self.found().filter(|s| s.code == code).map(|s| s.start) {
            if start > addr {
                behind = Some(behind.map_or(start, |b| b.min(start)));
            } else if (near.len() < LOOK_BACK || near.first().is_some_and(|f| *f < start))
                && let Err(at) = near.binary_search(&start)
            {
                near.insert(at, start);
                if near.len() > LOOK_BACK {
                    near.remove(0);
                }
            }
        }
        near.extend(behind);
        let of_kind = self.found().filter(|s| s.code == code);
        let raw = of_kind.filter(|s| near.binary_search(&s.start).is_ok());
        let raw: Vec<RawSymbol<'a>> = raw.filter_map(|s| s.raw(&self.sections)).collect();
        let table = SymbolTable::build(raw.clone());
        let (start, end, name) = table.lookup(addr)?;
        let kept = raw.iter().find(|r| r.start == start && r.name == name)?;
        Some((start, end, kept.name))
    }

    /// Offset in the file of an address of the binary.
    pub fn file_offset(&self, addr: u64) -> Option<u64> {
        elf::file_offset(&self.segments, addr)
    }

    /// Whether an address is in a segment that is code.
    pub fn is_code(&self, addr: u64) -> bool {
        let covers = |l: &Load| addr >= l.vaddr && addr - l.vaddr < l.size;
        self.segments.iter().any(|load| load.executable && covers(load))
    }

    /// The address of a place in the file.
    pub fn address(&self, offset: u64) -> Option<u64> {
        elf::vaddr(&self.segments, offset)
    }

    /// Stated address minus file offset of the code.
    pub fn code_bias(&self) -> u64 {
        let text = self.sections.iter().find(|s| s.name == ".text");
        text.map_or(0, |t| t.addr.wrapping_sub(t.offset))
    }

    /// Name and first address of the function that covers `addr`.
    pub fn function_at(&self, addr: u64) -> Option<(&str, u64)> {
        let (start, _, name) = self.lookup(addr, true)?;
        Some((name, start))
    }

    /// The function that covers `addr`: name, first address and the one behind it.
    pub fn function_span(&self, addr: u64) -> Option<(&str, u64, u64)> {
        let (start, end, name) = self.lookup(addr, true)?;
        Some((name, start, end))
    }

    /// Whether it is code for x86-64; `None` if the machine is not known.
    pub fn machine_is_x86_64(&self) -> Option<bool> {
        match self.architecture {
            object::Architecture::Unknown => None,
            a => Some(a == object::Architecture::X86_64),
        }
    }

    /// The bytes at an address, as the file has them; up to `size`, none of what is
    /// not in the file.
    pub fn bytes_at(&self, addr: u64, size: u64) -> Option<&'a [u8]> {
        let file = self.files.first()?;
        let section =
            self.sections.iter().position(|s| addr >= s.addr && addr - s.addr < s.size)?;
        let from = usize::try_from(addr - self.sections.get(section)?.addr).ok()?;
        // The first section has the number 1.
        let section = file.section_by_index(object::SectionIndex(section + 1)).ok()?;
        let rest = section.data().ok()?.get(from..)?;
        rest.get(..rest.len().min(usize::try_from(size).ok()?))
    }

    /// Applies the relocations of an object that is not linked to its code at `addr`: `running`
    /// returns the addresses of this object's sections in memory, `named` those of symbols of
    /// others. Unresolved relocations leave the code unchanged; returns their number.
    pub fn link(
        &self,
        addr: u64,
        code: &mut [u8],
        running: &dyn Fn(u64) -> Option<u64>,
        named: &dyn Fn(&str) -> Option<u64>,
    ) -> usize {
        const ABSOLUTE: u32 = 1;
        const RELATIVE: [u32; 2] = [2, 4];
        const ABSOLUTE_32: [u32; 2] = [10, 11];
        let mut unknown = 0;
        let Some(file) = self.files.first().filter(|_| self.relocatable) else { return unknown };
        let home = self.sections.iter().position(|s| addr >= s.addr && addr - s.addr < s.size);
        let Some((number, home)) = home.and_then(|n| Some((n, self.sections.get(n)?))) else {
            return unknown;
        };
        let section = file.section_by_index(object::SectionIndex(number + 1));
        for (offset, relocation) in section.iter().flat_map(|s| s.relocations()) {
            let place = home.addr.saturating_add(offset);
            let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
            let size = if r_type.0 == ABSOLUTE { 8 } else { 4 };
            let at = place.checked_sub(addr).and_then(|a| usize::try_from(a).ok());
            let bytes = at.and_then(|at| code.get_mut(at..at.checked_add(size)?));
            let (Some(bytes), RelocationTarget::Symbol(index)) = (bytes, relocation.target())
            else {
                continue;
            };
            let Ok(symbol) = file.symbol_by_index(index) else { continue };
            let own = symbol.section_index().and_then(|i| self.sections.get(i.0.checked_sub(1)?));
            let target = match own {
                Some(own) => running(own.addr.wrapping_add(symbol.address())),
                None => symbol.name().ok().and_then(named),
            };
            let Some(target) = target else {
                unknown += 1;
                continue;
            };
            let value = target.wrapping_add_signed(relocation.addend());
            let value = match r_type.0 {
                t if t == ABSOLUTE || ABSOLUTE_32.contains(&t) => value,
                t if RELATIVE.contains(&t) => match running(place) {
                    Some(place) => value.wrapping_sub(place),
                    None => continue,
                },
                _ => continue,
            };
            bytes.copy_from_slice(value.to_le_bytes().get(..size).unwrap_or_default());
        }
        unknown
    }

    /// Name and first address of the data that covers `addr`.
    pub fn data_at(&self, addr: u64) -> Option<(&str, u64)> {
        let (start, _, name) = self.lookup(addr, false)?;
        Some((name, start))
    }

    /// The section that an address is in.
    pub fn section_at(&self, addr: u64) -> Option<&LoadedSection> {
        self.sections.iter().find(|s| addr >= s.addr && addr - s.addr < s.size)
    }
}

fn named<'a>(s: &CodeSymbol<'_, 'a>) -> Option<NamedSymbol<'a>> {
    let name = s.name()?;
    let indirect =
        matches!(s.symbol.flags(), SymbolFlags::Elf { st_info, .. } if st_info.0 & 15 == GNU_IFUNC);
    Some(NamedSymbol { addr: s.start, size: s.symbol.size(), name, code: s.code, indirect })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways of asking give the same, everywhere in a real file.
    #[test]
    fn a_pass_agrees_with_the_table() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let (one, other) =
            (CodeSymbols::load(&bytes, None).unwrap(), CodeSymbols::load(&bytes, None).unwrap());
        other.passes.set(PASSES);
        let mut named = 0;
        for section in one.sections.iter().filter(|s| s.size > 0) {
            for at in (0..section.size).step_by((section.size as usize / 13).max(1)) {
                for addr in [section.addr + at, (section.addr + at) & !15] {
                    for code in [true, false] {
                        one.passes.set(0);
                        let (a, b) = (one.lookup(addr, code), other.lookup(addr, code));
                        assert_eq!(a, b, "{addr:#x}");
                        named += usize::from(a.is_some());
                    }
                }
            }
        }
        assert!(named > 50 && one.tables.get().is_none() && other.tables.get().is_some());
    }
}
