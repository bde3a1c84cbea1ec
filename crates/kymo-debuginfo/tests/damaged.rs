//! Damaged and cut debugging information: whatever the bytes are, a search ends,
//! with places or with an error, and does not panic.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use kymo_debuginfo::CodeSymbols;
use kymo_debuginfo::dwarf::{Dwarf, Finder, Options, Sections, Sources, SymbolOf, source_lines};
use kymo_debuginfo::probe::{Description, LineRange};
use kymo_testkit::{Need, require};

struct NoSources;

impl Sources for NoSources {
    fn read(&mut self, _path: &str, _comp_dir: &str) -> Option<Vec<u8>> {
        Some(b"int sum = 0;\n".repeat(60))
    }
}

const SOURCE: &str = "
struct in { int x; unsigned bits : 5; union { short s; char c; }; };
struct out { const char *name; struct in in; struct in *ptr; int arr[4]; struct out *next; };
static inline __attribute__((always_inline)) int inl(int v, struct out *o) { return v * 3 + o->arr[2]; }
__attribute__((noinline)) int work(struct out *o, int n, const char *msg) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += inl(i, o) + o->in.bits;
    return sum + (msg ? *msg : 0) + o->next->ptr->s;
}
int main(int argc, char **argv) { struct out o = { argv[0] }; o.next = &o; return work(&o, argc, argv[0]); }
";

const DESCRIPTIONS: [&str; 7] = [
    "work o n msg:string o->next->ptr->s o->in.bits o->arr[1] $vars",
    "inl v o->name:string",
    "work:3 sum",
    "w*",
    "work;sum*",
    "prog.c:6",
    "work%return $retval",
];

/// Everything that can be asked of a binary. Gives how many places were found.
fn ask(bytes: &[u8]) -> usize {
    let (Ok(sections), Ok(symbols)) = (Sections::load(bytes, None), CodeSymbols::load(bytes, None))
    else {
        return 0;
    };
    let Ok(dwarf) = Dwarf::new(&sections) else { return 0 };
    let entry = |name: &str| symbols.all.iter().find(|s| s.name == name).map(|s| s.addr);
    let data = SymbolOf::File { bias: 0 };
    let options = Options { data, no_inlines: false, max_probes: 128, entry: &entry };
    let mut found = 0;
    for text in DESCRIPTIONS {
        let d = Description::parse(text).unwrap();
        let mut sources = NoSources;
        let mut finder = Finder::new(&dwarf, &options, &mut sources);
        found += finder.find(&d).map_or(0, |places| places.len());
        let _ = finder.variables(&Description { args: Vec::new(), ..d }, true);
    }
    let mut sources = NoSources;
    let mut finder = Finder::new(&dwarf, &options, &mut sources);
    for range in ["work", "prog.c:1-9"] {
        let _ = source_lines(&mut finder, &LineRange::parse(range).unwrap());
    }
    for addr in (0x1000..0x1400).step_by(16) {
        let _ = dwarf.source_of(addr);
    }
    let _ = kymo_debuginfo::sdt::markers(bytes);
    found
}

#[test]
fn damage_gives_errors() {
    if !require(&[Need::Gcc]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("prog.c"), folder.path().join("prog"));
    std::fs::write(&source, SOURCE).unwrap();
    let mut gcc = Command::new("gcc");
    assert!(gcc.args(["-g", "-O2", "-o"]).arg(&program).arg(&source).status().unwrap().success());
    let whole = std::fs::read(&program).unwrap();
    assert!(ask(&whole) >= 4, "{}", ask(&whole));
    // The debugging information is behind the code: damage is put into the last
    // two thirds of the file.
    let from = whole.len() / 3;
    let mut state = 12345u32;
    let mut random = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize
    };
    for round in 0..1500 {
        let mut bytes = whole.clone();
        for _ in 0..=round % 24 {
            let at = from + random() % (bytes.len() - from);
            bytes[at] = random() as u8;
        }
        let _ = ask(&bytes);
    }
    for cut in (0..whole.len()).step_by(173) {
        let _ = ask(&whole[..cut]);
    }
}
