//! Functions of Go programs, by the table that their runtime needs (`.gopclntab`): it stays in
//! stripped programs. Layouts of Go 1.2, 1.16, 1.18 and 1.20.

use object::read::{Object, ObjectSection, ReadRef};

use crate::symtab::{Binding, RawSymbol, SymbolTable, SymbolType};

/// Names of the section; the second one is that of position-independent programs.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// Whether a file has the table.
pub(crate) fn has_functions<'d, R: ReadRef<'d>>(file: &object::File<'d, R>) -> bool {
    SECTIONS.iter().any(|name| file.section_by_name(name).is_some())
}

/// The functions; none if there is no table of a known layout.
pub(crate) fn functions<'d, R: ReadRef<'d>>(file: &object::File<'d, R>) -> Option<SymbolTable> {
    let section = SECTIONS.iter().find_map(|name| file.section_by_name(name))?;
    let text = file.section_by_name(".text").map_or(0, |text| text.address());
    let table = Table { bytes: section.data().ok()?, is_little: file.is_little_endian() };
    table.functions(text, file.entry())
}

/// The section's bytes.
struct Table<'d> {
    bytes: &'d [u8],
    is_little: bool,
}

/// Positions in the section, and the width of its entries.
struct Layout {
    functions: u64,
    /// First entry: address, position of the function's data.
    index: u64,
    /// Base of the positions of functions' data.
    data: u64,
    names: u64,
    /// Bytes of an address and of a position.
    width: u64,
    /// Base of the addresses.
    text: u64,
    /// The start of the code is not stated: the entry point has to be a function's.
    is_guess: bool,
}

impl<'d> Table<'d> {
    fn number(&self, at: u64, width: u64) -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(width as usize)?)?;
        let shifted = |all: u64, byte: &u8| all << 8 | u64::from(*byte);
        Some(if self.is_little {
            bytes.iter().rev().fold(0, shifted)
        } else {
            bytes.iter().fold(0, shifted)
        })
    }

    fn layout(&self, text: u64) -> Option<Layout> {
        let magic = self.number(0, 4)?;
        let width = self.number(7, 1).filter(|width| [4, 8].contains(width))?;
        let word = |n: u64| self.number(8 + n * width, width);
        let functions = word(0)?;
        // Before Go 1.18 the table has whole addresses.
        let absolute = |index, data, names| Layout {
            functions,
            index,
            data,
            names,
            width,
            text: 0,
            is_guess: false,
        };
        match magic {
            0xffff_fff0 | 0xffff_fff1 => {
                let stated = word(2)?;
                let data = word(7)?;
                Some(Layout {
                    functions,
                    index: data,
                    data,
                    names: word(3)?,
                    width: 4,
                    text: if stated == 0 { text } else { stated },
                    is_guess: stated == 0,
                })
            }
            0xffff_fffa => {
                let data = word(6)?;
                Some(absolute(data, data, word(2)?))
            }
            0xffff_fffb => Some(absolute(8 + width, 0, 0)),
            _ => None,
        }
    }

    fn functions(&self, text: u64, entry: u64) -> Option<SymbolTable> {
        let layout = self.layout(text)?;
        let mut symbols = Vec::new();
        // A table has each name once: one that has them more often lies.
        let mut room = self.bytes.len();
        let address = |n: u64| -> Option<u64> {
            let at = layout.index.checked_add(n.checked_mul(2 * layout.width)?)?;
            self.number(at, layout.width)?.checked_add(layout.text)
        };
        for n in 0..layout.functions {
            let (Some(start), Some(end)) = (address(n), address(n + 1)) else { break };
            let Some(name) = self.name(&layout, n).filter(|name| name.len() <= room) else { break };
            room -= name.len();
            let size = end.saturating_sub(start);
            if name.is_empty() || size == 0 {
                continue;
            }
            let (binding, kind) = (Binding::Global, SymbolType::Typed);
            symbols.push(RawSymbol { start, size, limit: end, name, binding, kind });
        }
        let is_known = !layout.is_guess || symbols.iter().any(|symbol| symbol.start == entry);
        (is_known && !symbols.is_empty()).then(|| SymbolTable::build(symbols))
    }

    /// Name of the n-th function.
    fn name(&self, layout: &Layout, n: u64) -> Option<&'d [u8]> {
        let at = layout.index.checked_add(n.checked_mul(2 * layout.width)?)?;
        let data = layout.data.checked_add(self.number(at + layout.width, layout.width)?)?;
        let name = self.number(data.checked_add(layout.width)?, 4)?;
        let name = usize::try_from(layout.names.checked_add(name)?).ok()?;
        self.bytes.get(name..)?.split(|byte| *byte == 0).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two functions in the layout of Go 1.20: `main.main` and `main.leaf`.
    fn table(text_start: u64) -> Vec<u8> {
        let mut bytes = vec![0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
        let header = 8 + 8 * 8;
        let names = b"main.main\0main.leaf\0";
        let index = header + names.len() as u64;
        for word in [2, 0, text_start, header, 0, 0, 0, index] {
            bytes.extend_from_slice(&u64::to_le_bytes(word));
        }
        bytes.extend_from_slice(names);
        // Entries, the end of the code, and the data of both functions.
        for word in [0u32, 20, 0x40, 28, 0x60, 0, 0, 0x40, 10] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn names(bytes: &[u8], text: u64, entry: u64) -> Vec<(u64, u64, String)> {
        let table = Table { bytes, is_little: true }.functions(text, entry).unwrap_or_default();
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        table.iter().map(|(start, end, name)| (start, end, text(name))).collect()
    }

    #[test]
    fn functions_of_a_stripped_program() {
        let want = |start: u64| {
            vec![
                (start, start + 0x40, "main.main".to_owned()),
                (start + 0x40, start + 0x60, "main.leaf".to_owned()),
            ]
        };
        assert_eq!(names(&table(0x401000), 0, 0), want(0x401000));
        // The start of the code is that of its section if the program begins in a function of it.
        assert_eq!(names(&table(0), 0x7000, 0x7040), want(0x7000));
        assert_eq!(names(&table(0), 0x7000, 0x7044), []);
    }

    #[test]
    fn damaged_tables_name_nothing_wrong() {
        let whole = table(0x401000);
        for cut in 0..whole.len() {
            let known = names(&whole[..cut], 0, 0);
            assert!(known.iter().all(|(start, _, name)| {
                (*start == 0x401000 && name == "main.main")
                    || (*start == 0x401040 && name == "main.leaf")
            }));
        }
        let mut many = whole.clone();
        many[8..16].fill(0xff);
        assert!(names(&many, 0, 0).len() <= 2);
        let mut far = whole;
        far[8 + 56..8 + 64].fill(0xff);
        assert_eq!(names(&far, 0, 0), []);
    }
}
