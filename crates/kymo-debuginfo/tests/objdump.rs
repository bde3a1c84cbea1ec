//! The disassembler next to `objdump -d` of binutils, over every instruction of the
//! C library and of this test program.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_debuginfo::disasm::{LONGEST, Names, Syntax, disassemble};
use kymo_testkit::{Need, require};
use object::{Object as _, ObjectSection as _};

struct Nameless;

impl Names for Nameless {
    fn name(&self, _: u64) -> Option<(String, u64)> {
        None
    }
}

/// Single blanks, and no names of places: those depend on the symbol table.
fn plain(text: &str) -> String {
    let text = match text.rfind(" <") {
        Some(at) if text.ends_with('>') => &text[..at],
        _ => text,
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn theirs(path: &Path, options: &[&str]) -> BTreeMap<u64, String> {
    let fixed = ["-d", "-w", "--no-show-raw-insn", "-j", ".text"];
    let out = Command::new("objdump").args(fixed).args(options).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let line = |l: &str| {
        let (addr, text) = l.split_once(":\t")?;
        Some((u64::from_str_radix(addr.trim(), 16).ok()?, plain(text)))
    };
    text.lines().filter_map(line).collect()
}

fn ours(path: &Path, syntax: Syntax, begins: &BTreeMap<u64, String>) -> BTreeMap<u64, String> {
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let text = file.section_by_name(".text").unwrap();
    let (code, start) = (text.data().unwrap(), text.address());
    let mut lines = BTreeMap::new();
    let mut at = 0;
    while at < code.len() {
        // In pieces that end where an instruction does.
        let far = start + (at + LONGEST).min(code.len()) as u64;
        let end = if far == start + code.len() as u64 {
            code.len()
        } else {
            (begins.range(..far).next_back().unwrap().0 - start) as usize
        };
        let piece = disassemble(&code[at..end], start + at as u64, syntax, &Nameless);
        lines.extend(piece.into_iter().map(|l| (l.addr, plain(&l.text))));
        at = end;
    }
    lines
}

/// By the first words of both: how often, and one of them.
type Differences = BTreeMap<(String, String), (usize, String)>;

/// The differences that are left, by the first words of both.
fn differences(path: &Path, syntax: Syntax) -> (usize, Differences) {
    let options: &[&str] = if syntax == Syntax::Intel { &["-M", "intel"] } else { &[] };
    let theirs = theirs(path, options);
    let ours = ours(path, syntax, &theirs);
    let mut differ = BTreeMap::new();
    for (addr, text) in &theirs {
        let own = ours.get(addr).map_or("nothing", |t| t);
        if own != text {
            let word = |t: &str| t.split(' ').next().unwrap_or_default().to_string();
            let example = format!("{addr:x}: {text} | {own}");
            let entry = differ.entry((word(text), word(own))).or_insert((0, example));
            entry.0 += 1;
        }
    }
    assert_eq!(ours.len(), theirs.len(), "{}: instructions begin elsewhere", path.display());
    (theirs.len(), differ)
}

fn libc() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|l| l.contains("libc.so.6"));
    // This program may be linked statically.
    line.map_or("/usr/lib/x86_64-linux-gnu/libc.so.6".into(), |l| l[l.find('/').unwrap()..].into())
}

#[test]
fn every_instruction_is_worded_as_objdump_words_it() {
    if !require(&[Need::Tool("objdump")]) {
        return;
    }
    for path in [libc(), std::env::current_exe().unwrap()] {
        let (count, differ) = differences(&path, Syntax::Att);
        assert!(count > 100_000, "{}: {count}", path.display());
        assert!(differ.is_empty(), "{}: {differ:#?}", path.display());
    }
}

/// Known differences in the other syntax: distances from the instruction pointer (objdump prints
/// negative ones as huge numbers), the coprocessor's first register (objdump leaves it out),
/// segments of string instructions, which cannot be other ones.
#[test]
fn the_other_syntax_differs_where_it_is_known_to() {
    if !require(&[Need::Tool("objdump")]) {
        return;
    }
    let (count, differ) = differences(&libc(), Syntax::Intel);
    assert!(count > 100_000);
    let explained = |((_, own), (_, example)): (&(String, String), &(usize, String))| {
        let rip = example.contains("[rip+0xffffffff");
        let coprocessor = own.starts_with('f');
        let string =
            ["movs", "stos", "lods", "scas", "cmps", "rep"].iter().any(|s| own.starts_with(s));
        rip || coprocessor || string
    };
    let left: Vec<_> = differ.iter().filter(|d| !explained(*d)).collect();
    assert!(left.is_empty(), "{left:#?}");
}
