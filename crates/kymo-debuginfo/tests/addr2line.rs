//! Functions, inlined copies and lines of every instruction of real programs,
//! against `addr2line -f -i` of binutils.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kymo_debuginfo::dwarf::Sections;
use kymo_debuginfo::dwarf::inlines::Inlines;
use kymo_testkit::{Need, require};

/// Function, file and line.
type Frame = (String, String, u32);

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

fn run(command: &mut Command) -> String {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Addresses of all instructions that objdump shows.
fn instructions(binary: &Path) -> Vec<u64> {
    let text = run(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(binary));
    let address = |l: &str| u64::from_str_radix(l.trim_start().split_once(":\t")?.0, 16).ok();
    let mut all: Vec<u64> = text.lines().filter_map(address).collect();
    all.sort_unstable();
    all.dedup();
    assert!(all.len() > 100, "{}", all.len());
    all
}

fn addr2line(tool: &str, binary: &Path, addresses: &[u64]) -> Vec<Vec<Frame>> {
    let mut child = Command::new(tool)
        .args(["-a", "-f", "-i", "-e"])
        .arg(binary)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let asked: String = addresses.iter().map(|a| format!("{a:#x}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut all: Vec<Vec<Frame>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            all.push(Vec::new());
            continue;
        }
        let place = lines.next().unwrap().split(" (discriminator").next().unwrap();
        let (file, number) = place.rsplit_once(':').unwrap();
        let clean = |t: &str| if t == "??" { String::new() } else { t.to_owned() };
        let frame = (clean(line), clean(file), number.parse().unwrap_or(0));
        all.last_mut().unwrap().push(frame);
    }
    assert_eq!(all.len(), addresses.len());
    all
}

fn ours(binary: &Path, addresses: &[u64]) -> Vec<Vec<Frame>> {
    let bytes = std::fs::read(binary).unwrap();
    let sections = Sections::load(&bytes, None).unwrap();
    let answers = Inlines::new(&sections).resolve(addresses);
    assert_eq!(answers.damage, [""; 0]);
    let text = |id| answers.text(id).to_owned();
    let frames = |i: usize| {
        let frames = answers.frames(i).iter();
        frames.map(|f| (text(f.function), text(f.file), f.line)).collect()
    };
    (0..addresses.len()).map(frames).collect()
}

/// Whether addr2line of binutils knows nothing but the symbol before, as in padding
/// and the C library's start-up code: that is not asked of debugging information.
fn only_a_symbol(theirs: &[Frame], ours: &[Frame]) -> bool {
    match (theirs, ours) {
        ([(_, file, 0)], []) => !file.contains('/'),
        ([theirs], [ours]) => ours.0.is_empty() && (&theirs.1, theirs.2) == (&ours.1, ours.2),
        _ => false,
    }
}

/// Compares all instructions; answers how many have inlined frames.
///
/// For a function without a name for the linker (a lambda, one of an anonymous
/// namespace, a copy of one) binutils names the symbol that the code is in and that
/// symbol's file, even if the function is inlined there. LLVM's tool names the symbol
/// for the outermost function alone, and must agree with us otherwise.
fn check(binary: &Path) -> usize {
    let addresses = instructions(binary);
    let (theirs, ours) = (addr2line("addr2line", binary, &addresses), ours(binary, &addresses));
    let all = addresses.iter().zip(theirs.iter().zip(&ours));
    let doubtful: Vec<_> = all.filter(|(_, (t, o))| t != o && !only_a_symbol(t, o)).collect();
    let again: Vec<u64> = doubtful.iter().map(|d| *d.0).collect();
    let llvm = addr2line("llvm-addr2line", binary, &again);
    let mut different = 0;
    for ((address, (theirs, ours)), llvm) in doubtful.iter().zip(&llvm) {
        let mut llvm = llvm.clone();
        if let (Some(theirs), Some(ours)) = (llvm.last_mut(), ours.last()) {
            theirs.0.clone_from(&ours.0);
        }
        if llvm != **ours {
            different += 1;
            if different < 10 {
                println!("{address:#x}\n  {theirs:?}\n  {ours:?}\n  {llvm:?}");
            }
        }
    }
    assert_eq!(different, 0, "of {} in {}", addresses.len(), binary.display());
    ours.iter().filter(|f| f.len() > 1).count()
}

fn build(compiler: &str, source: &str, flags: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let binary = dir.path().join("program");
    run(Command::new(compiler).args(flags).arg("-o").arg(&binary).arg(programs().join(source)));
    (dir, binary)
}

#[test]
fn c() {
    if !require(&[
        Need::Tool("gcc"),
        Need::Tool("objdump"),
        Need::Tool("addr2line"),
        Need::Tool("llvm-addr2line"),
    ]) {
        return;
    }
    for flags in [["-O2", "-gdwarf-5"], ["-O2", "-gdwarf-4"], ["-O0", "-gdwarf-4"]] {
        let (_dir, binary) = build("gcc", "inlined.c", &flags);
        let inlined = check(&binary);
        assert!(inlined > 20, "{inlined}");
    }
}

#[test]
fn cpp() {
    if !require(&[
        Need::Tool("g++"),
        Need::Tool("objdump"),
        Need::Tool("addr2line"),
        Need::Tool("llvm-addr2line"),
    ]) {
        return;
    }
    for flags in [["-O2", "-gdwarf-5"], ["-O3", "-gdwarf-4"]] {
        let (_dir, binary) = build("g++", "templates.cpp", &flags);
        let inlined = check(&binary);
        assert!(inlined > 300, "{inlined}");
    }
}

#[test]
fn rust() {
    if !require(&[
        Need::Tool("rustc"),
        Need::Tool("objdump"),
        Need::Tool("addr2line"),
        Need::Tool("llvm-addr2line"),
    ]) {
        return;
    }
    let (_dir, binary) =
        build("rustc", "generic.rs", &["-Cdebuginfo=2", "-Copt-level=3", "-Ccodegen-units=4"]);
    let inlined = check(&binary);
    assert!(inlined > 3000, "{inlined}");
}
