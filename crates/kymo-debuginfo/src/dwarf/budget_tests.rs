//! Debugging information that refers to the same bytes from many entries: what is kept
//! of it is counted, and ends with an error.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::{Dwarf, DwarfError, Sections};

/// Subprograms that share one list of spans, or whose lists are tails of one.
const SUBPROGRAMS: usize = 3_000;

/// An ELF file of sections alone.
fn elf(sections: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut names = vec![0u8];
    let mut headers = vec![0u8; 64];
    let mut bytes = vec![0u8; 64];
    let mut all: Vec<(&str, Vec<u8>)> = sections.to_vec();
    all.push((".shstrtab", Vec::new()));
    let mut name_offsets = Vec::new();
    for (name, _) in &all {
        name_offsets.push(names.len() as u32);
        names.extend_from_slice(name.as_bytes());
        names.push(0);
    }
    all.last_mut().unwrap().1 = names;
    for ((name, data), name_offset) in all.iter().zip(name_offsets) {
        let kind: u32 = if *name == ".shstrtab" { 3 } else { 1 };
        headers.extend_from_slice(&name_offset.to_le_bytes());
        headers.extend_from_slice(&kind.to_le_bytes());
        for n in [0, 0, bytes.len() as u64, data.len() as u64, 0, 1, 0] {
            headers.extend_from_slice(&n.to_le_bytes());
        }
        // Link and info are one word of eight bytes.
        bytes.extend_from_slice(data);
    }
    let table = bytes.len() as u64;
    bytes.extend_from_slice(&headers);
    bytes[..16].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes[16..20].copy_from_slice(&[2, 0, 62, 0]);
    bytes[20..24].copy_from_slice(&1u32.to_le_bytes());
    bytes[40..48].copy_from_slice(&table.to_le_bytes());
    bytes[52..54].copy_from_slice(&64u16.to_le_bytes());
    bytes[58..60].copy_from_slice(&64u16.to_le_bytes());
    bytes[60..62].copy_from_slice(&(all.len() as u16 + 1).to_le_bytes());
    bytes[62..64].copy_from_slice(&(all.len() as u16).to_le_bytes());
    bytes
}

/// A unit of C with subprograms `f`, whose spans are given by `list`: an offset in
/// `.debug_ranges`, which holds `entries` spans.
fn shared_ranges(entries: u64, list: impl Fn(usize) -> u32) -> Vec<u8> {
    // 1: compile unit (language, low_pc), 2: subprogram (name, ranges).
    let abbrev = vec![
        1, 0x11, 1, 0x13, 0x0b, 0x11, 0x01, 0, 0, //
        2, 0x2e, 0, 0x03, 0x08, 0x55, 0x17, 0, 0, 0,
    ];
    let mut unit = vec![4, 0, 0, 0, 0, 0, 8, 1, 0x0c];
    unit.extend_from_slice(&0u64.to_le_bytes());
    for n in 0..SUBPROGRAMS {
        unit.extend_from_slice(&[2, b'f', 0]);
        unit.extend_from_slice(&list(n).to_le_bytes());
    }
    unit.push(0);
    let mut info = (unit.len() as u32).to_le_bytes().to_vec();
    info.extend_from_slice(&unit);
    let mut ranges = Vec::new();
    for n in 1..=entries {
        ranges.extend_from_slice(&(n * 16).to_le_bytes());
        ranges.extend_from_slice(&(n * 16 + 8).to_le_bytes());
    }
    ranges.extend_from_slice(&[0; 16]);
    elf(&[(".debug_abbrev", abbrev), (".debug_info", info), (".debug_ranges", ranges)])
}

#[test]
fn a_list_that_many_share_is_kept_once() {
    const ENTRIES: u64 = 100_000;
    let bytes = shared_ranges(ENTRIES, |_| 0);
    let sections = Sections::load(&bytes, None).unwrap();
    let dwarf = Dwarf::new(&sections).unwrap();
    let unit = dwarf.unit(0).unwrap();
    let functions = dwarf.functions(&unit).unwrap();
    assert_eq!(functions.all.len(), SUBPROGRAMS);
    // One list of spans, and what the entries themselves need.
    let one_list = ENTRIES as usize * size_of::<(u64, u64, u32)>();
    assert!((one_list..one_list + SUBPROGRAMS * 256).contains(&dwarf.memory_used()));
    // The last of them has the code, as of spans that are the same.
    let found = dwarf.function_at(&unit, 16 * ENTRIES).unwrap().unwrap();
    assert_eq!(found.offset, functions.all.last().unwrap().offset);
    // Asked about an address, each long list is read once as well.
    let before = dwarf.memory_used();
    for function in &functions.all {
        let die = unit.die(function.offset);
        let entry = dwarf.entry(&die).unwrap();
        assert!(dwarf.covers(&unit, &entry, 16 * ENTRIES).unwrap());
        assert!(!dwarf.covers(&unit, &entry, 16 * ENTRIES + 8).unwrap());
    }
    assert_eq!(dwarf.memory_used() - before, ENTRIES as usize * size_of::<(u64, u64)>());
}

#[test]
fn lists_that_are_tails_of_one_end_with_an_error() {
    let bytes = shared_ranges(100_000, |n| 16 * n as u32);
    let sections = Sections::load(&bytes, None).unwrap();
    let dwarf = Dwarf::new(&sections).unwrap();
    let unit = dwarf.unit(0).unwrap();
    let error = dwarf.functions(&unit).err().unwrap();
    assert!(matches!(error, DwarfError::TooMuchMemory { .. }), "{error}");
    // What was read until then is given back.
    assert_eq!(dwarf.memory_used(), 0);
    assert!(error.to_string().contains("512 MiB"), "{error}");
}
