//! Damaged and cut debugging information: whatever the bytes are, a search ends,
//! with places or with an error, and does not panic.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use kymo_debuginfo::CodeSymbols;
use kymo_debuginfo::dwarf::index::Index;
use kymo_debuginfo::dwarf::inlines::Inlines;
use kymo_debuginfo::dwarf::{Dwarf, Sections};
use kymo_probe::grammar::{LineRange, ProbeDescription};
use kymo_probe::{DataNaming, FinderOptions, PointFinder, SourceReader, source_lines};
use kymo_testkit::{Need, require};

struct OneSource;

impl SourceReader for OneSource {
    fn read(&mut self, _path: &str, _comp_dir: &str) -> Option<Vec<u8>> {
        Some(b"int sum = 0;\n".repeat(60))
    }
}

const SOURCE: &str = include_str!("programs/fields.c");

const DESCRIPTIONS: [&str; 7] = [
    "work o n msg:string o->next->ptr->s o->in.bits o->arr[1] $vars",
    "inl v o->name:string",
    "work:3 sum",
    "w*",
    "work;sum*",
    "prog.c:6",
    "work%return $retval",
];

/// Everything that can be asked of a binary. Gives what was found, in words.
fn ask(bytes: &[u8]) -> Vec<String> {
    let (Ok(sections), Ok(symbols)) = (Sections::load(bytes, None), CodeSymbols::load(bytes, None))
    else {
        return Vec::new();
    };
    let Ok(dwarf) = Dwarf::new(&sections) else { return Vec::new() };
    let _ = kymo_debuginfo::sdt::usdt_notes(bytes);
    let addresses: Vec<u64> = (0x1000..0x1400).step_by(3).collect();
    let sources = Inlines::new(&sections).resolve(&addresses);
    assert_eq!(sources.len(), addresses.len());
    answers(&dwarf, &symbols)
}

/// Queries the binary through an index.
fn ask_by_index(bytes: &[u8], index: &[u8]) -> Option<Vec<String>> {
    let (sections, symbols) =
        (Sections::load(bytes, None).ok()?, CodeSymbols::load(bytes, None).ok()?);
    let index = Index::open(index, &sections).ok()?;
    Some(answers(&Dwarf::with_index(&sections, index), &symbols))
}

fn answers(dwarf: &Dwarf<'_>, symbols: &CodeSymbols<'_>) -> Vec<String> {
    let entry = |name: &str| symbols.named(name, false).map(|s| s.addr);
    let data = DataNaming::File { bias: 0 };
    let options = FinderOptions { data, no_inlines: false, max_probes: 128, entry: &entry };
    let mut found = Vec::new();
    for text in DESCRIPTIONS {
        let d = ProbeDescription::parse(text).unwrap();
        let mut sources = OneSource;
        let mut finder = PointFinder::new(dwarf, &options, &mut sources);
        found.extend(finder.find(&d).iter().flatten().map(|place| format!("{place:?}")));
        let variables = finder.variables(&ProbeDescription { args: Vec::new(), ..d }, true);
        found.extend(variables.iter().map(|v| format!("{v:?}")));
    }
    let mut sources = OneSource;
    let mut finder = PointFinder::new(dwarf, &options, &mut sources);
    for range in ["work", "prog.c:1-9"] {
        let lines = source_lines(&mut finder, &LineRange::parse(range).unwrap());
        found.extend(lines.iter().map(|l| format!("{l:?}")));
    }
    for addr in (0x1000..0x1400).step_by(16) {
        found.extend(dwarf.source_of(addr).iter().flatten().map(|s| format!("{s:?}")));
    }
    found
}

fn program(directory: &std::path::Path, flags: &[&str]) -> Vec<u8> {
    let (source, program) = (directory.join("prog.c"), directory.join("prog"));
    std::fs::write(&source, SOURCE).unwrap();
    let mut gcc = Command::new("gcc");
    assert!(gcc.args(flags).arg("-o").arg(&program).arg(&source).status().unwrap().success());
    std::fs::read(&program).unwrap()
}

/// A stream of numbers, the same in every run.
fn numbers(seed: u32) -> impl FnMut() -> usize {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize
    }
}

#[test]
fn an_index_changes_no_answer() {
    if !require(&[Need::Gcc]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for flags in [&["-g", "-O2"][..], &["-g", "-gdwarf-4", "-O1"], &["-g", "-gz", "-O0"]] {
        let bytes = program(directory.path(), flags);
        let sections = Sections::load(&bytes, None).unwrap();
        let index = Dwarf::new(&sections).unwrap().build_index();
        let plain = ask(&bytes);
        assert!(plain.len() > 12, "{plain:#?}");
        assert_eq!(ask_by_index(&bytes, &index).unwrap(), plain, "{flags:?}");
        // Of other debugging information it is not taken.
        let other = program(directory.path(), &["-g", "-gdwarf-4", "-O3"]);
        assert!(ask_by_index(&other, &index).is_none());
        for cut in 0..index.len() {
            let _ =
                ask_by_index(&bytes, &index[..cut]).is_none_or(|found| found.len() <= plain.len());
        }
        // Damage hides places at worst: none is invented, and nothing takes long.
        let mut random = numbers(99);
        for round in 0..400 {
            let mut bad = index.clone();
            for _ in 0..=round % 8 {
                let at = random() % bad.len();
                bad[at] ^= 1 << (random() % 8);
            }
            for found in ask_by_index(&bytes, &bad).into_iter().flatten() {
                assert!(plain.contains(&found), "{found}");
            }
        }
    }
}

#[test]
fn damage_gives_errors() {
    if !require(&[Need::Gcc]) {
        return;
    }
    let types = "-fdebug-types-section";
    damage(&["-g", "-O2"], 1500);
    damage(&["-gdwarf-4", "-O2", types], 250);
    damage(&["-gdwarf-5", "-O1", types], 250);
}

#[track_caller]
fn damage(flags: &[&str], rounds: usize) {
    let directory = tempfile::tempdir().unwrap();
    let whole = program(directory.path(), flags);
    assert!(ask(&whole).len() > 12, "{:#?}", ask(&whole));
    // The debugging information is behind the code: damage is put into the last
    // two thirds of the file.
    let from = whole.len() / 3;
    let mut random = numbers(12345);
    for round in 0..rounds {
        let mut bytes = whole.clone();
        for _ in 0..=round % 24 {
            let at = from + random() % (bytes.len() - from);
            bytes[at] = random() as u8;
        }
        let _ = ask(&bytes);
        if let Ok(sections) = Sections::load(&bytes, None)
            && let Ok(dwarf) = Dwarf::new(&sections)
        {
            let index = dwarf.build_index();
            let _ = ask_by_index(&bytes, &index);
        }
    }
    for cut in (0..whole.len()).step_by(173) {
        let _ = ask(&whole[..cut]);
    }
}

/// Found by fuzzing: sections of an object that is not linked claim more room than
/// there are addresses.
#[test]
fn sections_as_large_as_all_addresses() {
    if !require(&[Need::Gcc]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut bytes = program(directory.path(), &["-g", "-O2", "-c"]);
    let word = |bytes: &[u8], at: usize, size: usize| {
        let mut word = [0; 8];
        word[..size].copy_from_slice(&bytes[at..at + size]);
        u64::from_le_bytes(word) as usize
    };
    let (table, count) = (word(&bytes, 40, 8), word(&bytes, 60, 2));
    for section in (0..count).map(|n| table + 64 * n) {
        if word(&bytes, section + 8, 8) & 2 != 0 {
            bytes[section + 32..section + 40].copy_from_slice(&[0xff; 8]);
        }
    }
    assert_eq!(ask(&bytes), Vec::<String>::new());
    // What is said of the program is there; its addresses are behind all there are.
    assert!(Sections::load(&bytes, None).is_ok());
}
