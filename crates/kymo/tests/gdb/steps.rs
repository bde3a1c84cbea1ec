//! Programs at every instruction: a uprobe for kymo, a breakpoint for gdb, at the
//! first and the last instructions of functions, in functions that call nothing, at
//! jumps that end one, in entries of the procedure linkage table.

use kymo_testkit::require;

use crate::judge::{Stop, compile, in_gdb, in_kymo, instructions, record, same};
use crate::programs::NEEDS;

/// Probes of a recording: the kernel takes its time to remove one.
const AT_ONCE: usize = 44;

#[track_caller]
fn every_instruction(compiler: &str, source: &str, text: &str, flags: &[&str], of: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    compile(directory.path(), compiler, source, text, flags);
    let (program, data) = (directory.path().join("program"), directory.path().join("perf.data"));
    let mut places = instructions(&program, of);
    places.truncate(AT_ONCE);
    let probe = |place: &u64| ["--probe".to_owned(), format!("{} {place:#x}", program.display())];
    let probes: Vec<String> = places.iter().flat_map(probe).collect();
    let probes: Vec<&str> = probes.iter().map(String::as_str).collect();
    record(&program, &[], &probes, &data);
    let (ours, shown) = in_kymo(&data, None);
    let theirs = in_gdb(&program, &[], &Stop::Places(&places));
    let other_lines = same(&program, &ours, &theirs);
    assert!(other_lines * 8 <= ours.iter().map(Vec::len).sum(), "{other_lines}");
    assert!(shown.stderr.contains("(100.0%) of"), "{}", shown.stderr);
    assert!(ours.len() >= 25, "{}", ours.len());
}

#[test]
fn of_c() {
    if !require(NEEDS) {
        return;
    }
    let text = include_str!("inlined.c");
    let flags = ["-O2", "-g", "-fomit-frame-pointer", "-no-pie"];
    let of = ["nested", "last", "jumps", "qsort@plt"];
    every_instruction("gcc", "inlined.c", text, &flags, &of);
}

#[test]
fn of_cpp() {
    if !require(NEEDS) {
        return;
    }
    let text = include_str!("inlined.cpp");
    let flags = ["-O2", "-g", "-fomit-frame-pointer", "-no-pie"];
    // Two of `nested`, `area` of the box, and what calls through a pointer.
    let of = ["_Z6nestedILi1EEll", "_ZNK6shapes3BoxIsE4areaEv", "_Z7throughRKSt8functionIFllEE"];
    every_instruction("g++", "inlined.cpp", text, &flags, &of);
}

#[test]
fn of_rust() {
    if !require(&[NEEDS, &[kymo_testkit::Need::Tool("rustc")]].concat()) {
        return;
    }
    let text = include_str!("steps.rust");
    let mut flags = vec!["-O", "-C", "debuginfo=2", "--edition", "2024"];
    flags.extend(["-C", "relocation-model=static"]);
    every_instruction("rustc", "steps.rs", text, &flags, &["sums", "parsed"]);
}
