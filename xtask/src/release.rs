//! `cargo xtask release`: builds the program that is handed out and checks what is
//! promised of it: one self-contained static file of less than 24 MB; then packages of it.
//! With `--arm64`, the same for AArch64, whose program runs under emulation here.
//!
//! The symbol table is packed into it as mini-debuginfo (`.gnu_debugdata`), which
//! kymo and gdb read: kymo can profile kymo, for a tenth of the table's size.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::{arm64, cargo, crates, package};

pub(crate) const MAX_BYTES: u64 = 24_000_000;
const PT_INTERP: u32 = 3;

/// Packages the program that is built, or one that is released already.
pub(crate) fn run(program: Option<&str>) -> anyhow::Result<()> {
    let program = match program {
        Some(program) => PathBuf::from(program),
        None => pack(&cargo::build_release()?, |name| Ok(Command::new(name)))?,
    };
    packages_of(&program)
}

/// Packages for AArch64, of a program that reads the corpus.
pub(crate) fn for_arm64() -> anyhow::Result<()> {
    let program = pack(&arm64::release()?, arm64::binutils)?;
    packages_of(&program)?;
    arm64::corpus_of(&program)
}

fn packages_of(program: &Path) -> anyhow::Result<()> {
    check(program)?;
    let to = crate::target().join("packages");
    std::fs::create_dir_all(&to).with_context(|| to.display().to_string())?;
    for package in package::make(program, &crate::root(), &to)? {
        println!("{}: {:.1} MB", package.display(), package.metadata()?.len() as f64 / 1e6);
    }
    crates::note_missing_address(&crates::published()?)
}

/// Makes the program that is handed out, in a directory `dist` beside the built one:
/// without a symbol table, with the names of functions packed. `binutils` returns the command of a
/// program of binutils for the processor.
fn pack(
    built: &Path,
    binutils: impl Fn(&str) -> anyhow::Result<Command>,
) -> anyhow::Result<PathBuf> {
    let directory = built.parent().context("a program without a directory")?.join("dist");
    std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let (names, mini, out) =
        (directory.join("names"), directory.join("mini"), directory.join("kymo"));
    let nm = binutils("nm")?.args(["--format=posix", "--defined-only"]).arg(built).output()?;
    let functions: BTreeSet<&str> = std::str::from_utf8(&nm.stdout)?
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, rest)| rest.starts_with(['t', 'T', 'w', 'W', 'i']))
        .map(|(name, _)| name)
        .collect();
    let list: Vec<&str> = functions.into_iter().collect();
    std::fs::write(&names, list.join("\n")).with_context(|| names.display().to_string())?;
    let objcopy = |args: &[&std::ffi::OsStr]| {
        let mut command = binutils("objcopy")?;
        command.args(args);
        cargo::run_command(command)
    };
    let keep = format!("--keep-symbols={}", names.display());
    let add = format!("--add-section=.gnu_debugdata={}.xz", mini.display());
    objcopy(&["--only-keep-debug".as_ref(), built.as_ref(), mini.as_ref()])?;
    objcopy(&["--strip-all".as_ref(), keep.as_ref(), mini.as_ref()])?;
    let mut xz = Command::new("xz");
    xz.args(["--force", "-9"]).arg(&mini);
    cargo::run_command(xz)?;
    objcopy(&["--strip-all".as_ref(), add.as_ref(), built.as_ref(), out.as_ref()])?;
    std::fs::remove_file(&names)?;
    std::fs::remove_file(mini.with_extension("xz"))?;
    Ok(out)
}

fn check(program: &Path) -> anyhow::Result<()> {
    let bytes = std::fs::read(program).with_context(|| program.display().to_string())?;
    let size = bytes.len() as u64;
    if size >= MAX_BYTES {
        bail!("{} has {size} bytes; the promise is less than {MAX_BYTES}", program.display());
    }
    if has_interpreter(&bytes).context("not a 64-bit little-endian ELF file")? {
        bail!("{} asks for a dynamic loader; the promise is a static file", program.display());
    }
    let mut version = package::start(program)?;
    version.arg("--version");
    cargo::run_command(version)?;
    println!("{}: static, {:.1} MB", program.display(), size as f64 / 1e6);
    Ok(())
}

/// Whether an ELF64 little-endian program header table has `PT_INTERP`.
fn has_interpreter(elf: &[u8]) -> Option<bool> {
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let u16_at = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?));
    let table = u64::from_le_bytes(elf.get(32..40)?.try_into().ok()?) as usize;
    let (entry, count) = (u16_at(54)? as usize, u16_at(56)? as usize);
    for i in 0..count {
        let at = table.checked_add(i * entry)?;
        let kind = u32::from_le_bytes(elf.get(at..at.checked_add(4)?)?.try_into().ok()?);
        if kind == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::has_interpreter;

    #[test]
    fn a_dynamic_program_is_distinguished_from_text() {
        let shell = std::fs::read("/bin/sh").unwrap();
        assert_eq!(has_interpreter(&shell), Some(true));
        let ourselves = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(has_interpreter(&ourselves), Some(false), "crt-static is not in force");
        assert_eq!(has_interpreter(b"#!/bin/sh\n"), None);
        assert_eq!(has_interpreter(&shell[..60]), None);
    }
}
