//! Tables of real binaries: every way to the same rule gives the same, and
//! damaged sections give errors or other rules, and nothing else.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use kymo_model::Endian;
use kymo_testkit::{Need, require};
use kymo_unwind::{
    Arch, CfiContext, CfiSections, CfiTable, Code, Registers, Rule, RuleError, Section,
    StackWindow, quick_walk, walk,
};
use object::{Object, ObjectSection};

fn sections(bytes: &[u8]) -> (CfiSections, std::ops::Range<u64>) {
    let file = object::File::parse(bytes).unwrap();
    let section = |name| {
        let found = file.section_by_name(name);
        found.map_or_else(Section::default, |s| Section {
            address: s.address(),
            bytes: s.uncompressed_data().unwrap().into_owned().into(),
        })
    };
    let text = file.section_by_name(".text").unwrap();
    let sections = CfiSections {
        eh_frame: section(".eh_frame"),
        eh_frame_hdr: section(".eh_frame_hdr"),
        debug_frame: section(".debug_frame"),
        text: text.address(),
        ..CfiSections::default()
    };
    (sections, text.address()..text.address() + text.size())
}

fn own() -> Vec<u8> {
    std::fs::read(std::env::current_exe().unwrap()).unwrap()
}

#[test]
fn with_and_without_the_sorted_table() {
    let (sections, text) = sections(&own());
    assert!(!sections.eh_frame_hdr.bytes.is_empty());
    let without = CfiSections { eh_frame_hdr: Section::default(), ..sections.clone() };
    let (sorted, searched) =
        (CfiTable::new(Arch::X86_64, sections), CfiTable::new(Arch::X86_64, without));
    let mut context = CfiContext::default();
    let (mut rows, mut none) = (0, 0);
    for address in text.step_by(61) {
        let rule = sorted.rule(&mut context, address);
        assert_eq!(rule, searched.rule(&mut context, address), "{address:#x}");
        match rule {
            Ok(_) => rows += 1,
            Err(RuleError::None(_)) => none += 1,
            Err(e) => panic!("{address:#x}: {e}"),
        }
    }
    assert!(rows > 1000 && none < rows / 10, "{rows} {none}");
    assert_eq!(searched.damage(), None);
}

const SOURCE: &str = "
__attribute__((noinline)) int leaf(int n) { return n * 3; }
__attribute__((noinline)) int mid(int a, int b) { return leaf(a) + leaf(b) * mid(b, a); }
int main(int n, char **v) { volatile char room[300]; room[n] = n; return mid(n, room[n]); }
";

/// Compares tables for exceptions with tables for debuggers only, of equal code.
#[test]
fn debug_frame_says_the_same() {
    if !require(&[Need::Gcc]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("a.c");
    std::fs::write(&source, SOURCE).unwrap();
    let tables =
        [&["-fasynchronous-unwind-tables"][..], &["-fno-asynchronous-unwind-tables", "-g"]].map(
            |flags| {
                let object = directory.path().join("a.so");
                let mut gcc = Command::new("gcc");
                gcc.args(["-O2", "-shared", "-fPIC", "-nostdlib"]).args(flags);
                assert!(gcc.arg("-o").args([&object, &source]).status().unwrap().success());
                sections(&std::fs::read(&object).unwrap())
            },
        );
    let [(with, text), (debug, other)] = tables;
    assert!(with.debug_frame.bytes.is_empty() && !debug.debug_frame.bytes.is_empty());
    let (with, debug) = (CfiTable::new(Arch::X86_64, with), CfiTable::new(Arch::X86_64, debug));
    let mut context = CfiContext::default();
    let mut rows = 0;
    for (a, b) in text.zip(other) {
        let (a, b) = (with.rule(&mut context, a), debug.rule(&mut context, b));
        assert_eq!(a.as_ref().ok(), b.as_ref().ok(), "{a:?} {b:?}");
        rows += usize::from(a.is_ok());
    }
    assert!(rows > 50, "{rows}");
}

/// An entry of the lazy procedure linkage table: its first six bytes jump, then
/// it pushes a number, then it jumps to the first entry.
#[test]
fn in_the_procedure_linkage_table() {
    if !require(&[Need::Gcc]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("a.c"), directory.path().join("a"));
    std::fs::write(&source, "int puts(const char *); int main() { return puts(\"\"); }").unwrap();
    let flags = ["-O2", "-fcf-protection=none", "-Wl,-z,lazy"];
    assert!(
        Command::new("gcc")
            .args(flags)
            .arg("-o")
            .args([&program, &source])
            .status()
            .unwrap()
            .success()
    );
    let bytes = std::fs::read(&program).unwrap();
    let plt = object::File::parse(&*bytes).unwrap().section_by_name(".plt").unwrap().address();
    let (sections, _) = sections(&bytes);
    struct One(CfiTable, CfiContext, Rule);
    impl Code for One {
        fn rule(&mut self, address: u64, _: bool) -> &Rule {
            self.2 = self.0.rule(&mut self.1, address).unwrap_or(Rule::Nothing);
            &self.2
        }
        fn is_code(&mut self, _: u64) -> bool {
            true
        }
    }
    let mut code = One(CfiTable::new(Arch::X86_64, sections), CfiContext::default(), Rule::Nothing);
    // Words on the stack above the return address in each of an entry's places.
    for (place, pushed) in [(16, 0), (22, 0), (27, 1), (0, 1), (6, 2)] {
        let mut stack = vec![0u8; 8 * pushed];
        stack.extend(0x7777u64.to_le_bytes());
        let mut registers = Registers::new(Arch::X86_64);
        [(7, 0x1000), (16, plt + place)].iter().for_each(|(r, v)| registers.set(*r, *v));
        let mut frames = Vec::new();
        let stack = StackWindow::new(0x1000, &stack, Endian::Little);
        walk(&registers, &stack, &mut code, |a| frames.push(a));
        assert_eq!(frames, [plt + place, 0x7776], "{place}");
    }
}

/// A binary of damaged sections, and a stack that is the sections' bytes.
struct Damaged {
    table: CfiTable,
    context: CfiContext,
    rule: Rule,
    text: std::ops::Range<u64>,
}

impl Code for Damaged {
    fn rule(&mut self, address: u64, _: bool) -> &Rule {
        // Anywhere is code, so that walks go on as long as they can.
        let size = self.text.end - self.text.start;
        let address = self.text.start + address % size;
        self.rule = self.table.rule(&mut self.context, address).unwrap_or(Rule::Guess);
        &self.rule
    }

    fn is_code(&mut self, _: u64) -> bool {
        true
    }
}

#[test]
fn damaged_sections_end_every_walk() {
    let (whole, text) = sections(&own());
    let mut state = 12345u64;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 20
    };
    let mut bytes = vec![0u8; 65528];
    let (mut frames, mut quick_ones) = (0, 0);
    for round in 0..300 {
        let mut damaged = whole.clone();
        // A part of the section is enough, so that the whole index is made each time.
        let keep = (random() as usize % 40_000).max(100);
        damaged.eh_frame.bytes =
            whole.eh_frame.bytes[..keep.min(whole.eh_frame.bytes.len())].into();
        for section in [&mut damaged.eh_frame, &mut damaged.eh_frame_hdr] {
            for _ in 0..random() % 200 {
                let at = random() as usize % section.bytes.len();
                section.bytes[at] = random() as u8;
            }
        }
        match round % 3 {
            0 => damaged.eh_frame_hdr = Section::default(),
            1 => damaged.debug_frame = std::mem::take(&mut damaged.eh_frame),
            _ => {}
        }
        // Stacks whose words point into themselves keep walks going.
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&(0x7000 + random() % 70_000 / 8 * 8).to_le_bytes());
        }
        let table = CfiTable::new(Arch::X86_64, damaged);
        let mut code = Damaged {
            table,
            context: CfiContext::default(),
            rule: Rule::Nothing,
            text: text.clone(),
        };
        for _ in 0..20 {
            let mut registers = Registers::new(Arch::X86_64);
            (0..17).for_each(|r| registers.set(r, 0x7000 + random() % 70_000));
            registers.set(7, 0x7000);
            registers.set(16, text.start + random() % (text.end - text.start));
            let stack = StackWindow::new(0x7000, &bytes, Endian::Little);
            let (mut slowly, mut quickly) = (Vec::new(), Vec::new());
            let walked = walk(&registers, &stack, &mut code, |a| slowly.push(a));
            frames += walked.frames;
            if let Some(quick) = quick_walk(&registers, &stack, &mut code, |a| quickly.push(a)) {
                assert_eq!((quick, quickly), (walked, slowly));
                quick_ones += 1;
            }
        }
    }
    assert!(frames > 7000 && quick_ones > 3000, "{frames} {quick_ones}");
}

/// Found by fuzzing: a sorted table that claims more entries than it holds is left
/// alone, and the section itself is asked.
#[test]
fn a_sorted_table_that_claims_too_much() {
    let (whole, text) = sections(&own());
    let mut claims = whole.clone();
    // Version and three encodings, place of the section, number of entries.
    assert_eq!(claims.eh_frame_hdr.bytes[..4], [1, 0x1b, 3, 0x3b]);
    claims.eh_frame_hdr.bytes[8..12].copy_from_slice(&[0xff; 4]);
    // A number of eight bytes that wraps when it is multiplied.
    let mut wraps = whole.clone();
    let mut header = whole.eh_frame_hdr.bytes.to_vec();
    header[2] = 4;
    header.splice(8..12, (1u64 << 61).to_le_bytes());
    wraps.eh_frame_hdr.bytes = header.into();
    let [whole, claims, wraps] = [whole, claims, wraps].map(|s| CfiTable::new(Arch::X86_64, s));
    let mut context = CfiContext::default();
    for address in text.step_by(0x1000) {
        let rule = whole.rule(&mut context, address);
        assert_eq!(claims.rule(&mut context, address), rule);
        assert_eq!(wraps.rule(&mut context, address), rule);
    }
}

#[test]
fn frame_pointers_are_known_by_what_the_compiler_was_told() {
    if !require(&[Need::Gcc]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("f.c");
    let functions = (0..40).map(|n| {
        format!("int f{n}(int *a) {{ int b[20]; for (int i = 0; i < 20; i++) b[i] = a[i] * {n}; return g(b) + b[3]; }}\n")
    });
    let text = format!("int g(int *);\n{}", functions.collect::<String>());
    std::fs::write(&source, text).unwrap();
    for (flag, kept) in [("-fomit-frame-pointer", false), ("-fno-omit-frame-pointer", true)] {
        let object = dir.path().join("f.so");
        let mut gcc = Command::new("gcc");
        let gcc = gcc.args(["-O2", "-shared", "-fPIC", flag, "-o"]).arg(&object).arg(&source);
        assert!(gcc.status().unwrap().success());
        let (sections, _) = sections(&std::fs::read(&object).unwrap());
        let (with, all) = CfiTable::new(Arch::X86_64, sections).frame_pointers();
        // The first function multiplies by 0, and needs no frame.
        assert!((39..45).contains(&all), "{flag}: {all}");
        assert!(if kept { with >= 39 } else { with == 0 }, "{flag}: {with} of {all}");
    }
    let nothing = CfiTable::new(Arch::X86_64, CfiSections::default());
    assert_eq!(nothing.frame_pointers(), (0, 0));
}
