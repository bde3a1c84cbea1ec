//! Any bytes as an ELF file: symbols, packed symbols, notes, markers, code.
#![no_main]

use kymo_debuginfo::disasm::{Names, Syntax, disassemble};
use kymo_debuginfo::{CodeSymbols, Elf, LazyElf, demangle};
use libfuzzer_sys::fuzz_target;

struct NoNames;

impl Names for NoNames {
    fn name(&self, _address: u64) -> Option<(String, u64)> {
        None
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(elf) = Elf::parse(data) {
        for (_, _, name) in elf.symbols.iter().take(64) {
            std::hint::black_box(demangle(&String::from_utf8_lossy(name)).len());
        }
    }
    let _ = Elf::mini(data);
    let addresses: Vec<u64> = (0..0x4000).step_by(64).collect();
    if let Ok(lazy) = LazyElf::parse(data) {
        let mut found = lazy.covering(&addresses);
        lazy.add_plt(&addresses, &mut found);
        assert_eq!(found.places.len(), addresses.len());
    }
    let _ = kymo_debuginfo::sdt::usdt_notes(data);
    if let Ok(symbols) = CodeSymbols::load(data, None) {
        std::hint::black_box(symbols.all().take(64).count());
        for address in addresses {
            std::hint::black_box((symbols.function_span(address), symbols.file_offset(address)));
        }
    }
    let code = data.get(..4096).unwrap_or(data);
    let lines = disassemble(code, 0x1000, Syntax::Att, &NoNames);
    assert!(lines.len() <= code.len());
});
