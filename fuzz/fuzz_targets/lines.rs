//! Any bytes as a program's debugging information: lines and inlined functions of
//! its addresses.
#![no_main]

use kymo_debuginfo::dwarf::Sections;
use kymo_debuginfo::dwarf::inlines::Inlines;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(sections) = Sections::load(data, None) else { return };
    let addresses: Vec<u64> = (0..0x4000).step_by(7).collect();
    let answers = Inlines::new(&sections).resolve(&addresses);
    assert_eq!(answers.len(), addresses.len());
    let frames: usize = (0..answers.len()).map(|p| answers.frames(p).len()).sum();
    assert!(frames <= 256 * addresses.len(), "{frames} frames");
});
