//! The procedure linkage table has no symbols of its own: its entries are
//! named after the relocations they jump through.

use kymo_model::{Cursor, Endian};
use object::read::{Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, ReadRef};
use object::{Architecture, SymbolIndex};

use crate::symtab::{Binding, RawSymbol, SymbolTable, SymbolType};

/// `(bytes before the first entry, bytes of an entry)`.
fn layout<'d, R: ReadRef<'d>>(file: &object::File<'d, R>, secondary: bool) -> Option<(u64, u64)> {
    match file.architecture() {
        _ if secondary => Some((0, 16)),
        Architecture::X86_64 | Architecture::I386 => Some((16, 16)),
        Architecture::Aarch64 => Some((32, 16)),
        Architecture::Arm => Some((20, 12)),
        Architecture::Riscv64 => Some((32, 16)),
        _ => None,
    }
}

/// One symbol for each entry.
pub(crate) fn symbols<'d, R: ReadRef<'d>>(file: &object::File<'d, R>) -> SymbolTable {
    let names = names(file);
    let mut raw = Vec::new();
    for (section, secondary) in [(".plt", false), (".plt.sec", true)] {
        let Some(plt) = file.section_by_name(section) else { continue };
        let Some((header, each)) = layout(file, secondary) else { continue };
        for (i, name) in names.iter().enumerate() {
            let at = header + i as u64 * each;
            if at + each > plt.size() {
                break;
            }
            if let Some(start) = plt.address().checked_add(at) {
                raw.push(RawSymbol {
                    start,
                    size: each,
                    limit: u64::MAX,
                    name,
                    binding: Binding::Global,
                    kind: SymbolType::Typed,
                });
            }
        }
    }
    SymbolTable::build(raw)
}

fn names<'d, R: ReadRef<'d>>(file: &object::File<'d, R>) -> Vec<Vec<u8>> {
    let endian = if file.is_little_endian() { Endian::Little } else { Endian::Big };
    let (section, has_addend) = match file.section_by_name(".rela.plt") {
        Some(s) => (Some(s), true),
        None => (file.section_by_name(".rel.plt"), false),
    };
    let Some(data) = section.and_then(|s| s.data().ok()) else { return Vec::new() };
    let Some(dynamic) = file.dynamic_symbol_table() else { return Vec::new() };
    let mut c = Cursor::new(data, endian);
    let mut names = Vec::new();
    while let Ok(index) = relocation(&mut c, file.is_64(), has_addend) {
        let symbol = dynamic.symbol_by_index(SymbolIndex(index as usize)).ok();
        let mut name = symbol
            .and_then(|s| s.name_bytes().ok().map(<[u8]>::to_vec))
            .filter(|n| !n.is_empty())
            // As perf names what the loader resolves without a name.
            .unwrap_or_default();
        name.extend_from_slice(b"@plt");
        names.push(name);
    }
    names
}

/// The symbol number of the next relocation.
fn relocation(c: &mut Cursor<'_>, wide: bool, addend: bool) -> Result<u64, kymo_model::Truncated> {
    let index = if wide {
        c.skip(8)?;
        c.u64()? >> 32
    } else {
        c.skip(4)?;
        u64::from(c.u32()? >> 8)
    };
    if addend {
        c.skip(if wide { 8 } else { 4 })?;
    }
    Ok(index)
}
