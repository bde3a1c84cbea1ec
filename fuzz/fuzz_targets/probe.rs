//! Any bytes as a program's debugging information, and everything that `kymo probe`
//! asks of it: places, arguments, variables, lines; with an index and without.
#![no_main]

use kymo_debuginfo::CodeSymbols;
use kymo_debuginfo::dwarf::index::Index;
use kymo_debuginfo::dwarf::{Dwarf, Sections};
use kymo_probe::grammar::{LineRange, ProbeDescription};
use kymo_probe::{DataNaming, FinderOptions, PointFinder, SourceReader, source_lines};
use libfuzzer_sys::fuzz_target;

struct OneSource;

impl SourceReader for OneSource {
    fn read(&mut self, _path: &str, _comp_dir: &str) -> Option<Vec<u8>> {
        Some(b"int sum = 0;\n".repeat(40))
    }
}

const DESCRIPTIONS: [&str; 6] = [
    "work o n msg:string o->next->ptr->s o->in.bits o->arr[1] $vars",
    "inl v o->name:string",
    "w*",
    "work;sum*",
    "program.c:6",
    "work%return $retval",
];

fn ask(dwarf: &Dwarf<'_>, symbols: &CodeSymbols<'_>) {
    let entry = |name: &str| symbols.named(name, false).map(|s| s.addr);
    let data = DataNaming::File { bias: 0 };
    let options = FinderOptions { data, no_inlines: false, max_probes: 128, entry: &entry };
    for text in DESCRIPTIONS {
        let description = ProbeDescription::parse(text).expect("a description");
        let mut sources = OneSource;
        let mut finder = PointFinder::new(dwarf, &options, &mut sources);
        if let Ok(found) = finder.find(&description) {
            assert!(found.len() <= 128, "{}", found.len());
        }
        let _ = finder.variables(&ProbeDescription { args: Vec::new(), ..description }, true);
    }
    let mut sources = OneSource;
    let mut finder = PointFinder::new(dwarf, &options, &mut sources);
    for range in ["work", "program.c:1-9"] {
        let _ = source_lines(&mut finder, &LineRange::parse(range).expect("a range"));
    }
    for address in (0x1000..0x1400).step_by(64) {
        let _ = dwarf.source_of(address);
    }
}

fuzz_target!(|data: &[u8]| {
    let (Ok(sections), Ok(symbols)) = (Sections::load(data, None), CodeSymbols::load(data, None))
    else {
        return;
    };
    let Ok(dwarf) = Dwarf::new(&sections) else { return };
    ask(&dwarf, &symbols);
    let index = dwarf.build_index();
    if let Ok(index) = Index::open(&index, &sections) {
        ask(&Dwarf::with_index(&sections, index), &symbols);
    }
});
