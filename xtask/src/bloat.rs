//! `cargo xtask bloat`: what each crate costs in the release program, from its symbol table.
//! Code of the standard library that is made for a type counts for the type's crate. What
//! the compiler inlined counts for the function it is in.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionKind};

use crate::{cargo, release};

/// Crates of the toolchain.
const STANDARD: &[&str] =
    &["core", "alloc", "std", "std_detect", "hashbrown", "panic_unwind", "unwind"];

/// C and assembly by how their names begin.
const FOREIGN: &[(&str, &str)] = &[
    ("ZSTD", "zstd (C)"),
    ("HUF_", "zstd (C)"),
    ("FSE_", "zstd (C)"),
    ("HIST_", "zstd (C)"),
    ("ZDICT", "zstd (C)"),
    ("COVER_", "zstd (C)"),
    ("divsufsort", "zstd (C)"),
    ("ring_core", "ring (C)"),
    ("GFp_", "ring (C)"),
];

/// Bytes of one crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CrateSize {
    code: u64,
    /// Constants and tables that have a name.
    data: u64,
}

/// Prints the table of a program, by default the release program, which is built.
pub(crate) fn run(program: Option<&str>) -> anyhow::Result<()> {
    let built;
    let path = match program {
        Some(path) => Path::new(path),
        None => {
            built = cargo::build_release()?;
            &built
        }
    };
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let file = object::File::parse(&*bytes).with_context(|| path.display().to_string())?;
    print!("{}", table(&file)?);
    let dist = path.parent().map(|directory| directory.join("dist/kymo"));
    let handed_out = dist.and_then(|path| std::fs::metadata(path).ok()).map(|m| m.len());
    println!("{:>9} kB  the file with its symbol table", bytes.len() / 1000);
    if let Some(size) = handed_out {
        println!("{:>9} kB  as handed out by the last `cargo xtask release`", size / 1000);
    }
    println!("{:>9} kB  is the limit", release::MAX_BYTES / 1000);
    Ok(())
}

fn table(file: &object::File<'_>) -> anyhow::Result<String> {
    let mut sections: BTreeMap<&str, u64> = BTreeMap::new();
    for section in file.sections() {
        let name = match section.kind() {
            SectionKind::Text => "code",
            SectionKind::Data | SectionKind::ReadOnlyData | SectionKind::ReadOnlyString => "data",
            SectionKind::ReadOnlyDataWithRel => "data",
            _ if section.address() != 0 => "other",
            _ => continue,
        };
        *sections.entry(name).or_default() += section.size();
    }
    let total = |name: &str| sections.get(name).copied().unwrap_or(0);
    let crates = sizes(file);
    let mut rows: Vec<(&String, &CrateSize)> = crates.iter().collect();
    rows.sort_by_key(|(name, size)| (std::cmp::Reverse(size.code + size.data), *name));
    let mut out = format!("{:>9} {:>9}  {}\n", "code kB", "data kB", "crate");
    for (name, size) in rows {
        let kilobytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1000.0);
        out += &format!("{:>9} {:>9}  {name}\n", kilobytes(size.code), kilobytes(size.data));
    }
    let named = crates.values().fold(CrateSize::default(), |a, b| CrateSize {
        code: a.code + b.code,
        data: a.data + b.data,
    });
    let rest = |all: u64, named: u64| all.saturating_sub(named) as f64 / 1000.0;
    out += &format!(
        "{:>9.1} {:>9.1}  without a name (constants, texts, padding)\n",
        rest(total("code"), named.code),
        rest(total("data"), named.data)
    );
    out += &format!(
        "{:>9.1} {:>9.1}  in all, and {:.1} kB of tables for unwinding and loading\n",
        total("code") as f64 / 1000.0,
        total("data") as f64 / 1000.0,
        total("other") as f64 / 1000.0
    );
    Ok(out)
}

fn sizes(file: &object::File<'_>) -> BTreeMap<String, CrateSize> {
    let mut spans: BTreeMap<u64, (u64, bool, &str)> = BTreeMap::new();
    for symbol in file.symbols() {
        let section = symbol.section_index().and_then(|i| file.section_by_index(i).ok());
        let is_code = match section.map(|section| section.kind()) {
            Some(SectionKind::Text) => true,
            Some(
                SectionKind::Data
                | SectionKind::ReadOnlyData
                | SectionKind::ReadOnlyString
                | SectionKind::ReadOnlyDataWithRel,
            ) => false,
            _ => continue,
        };
        // Of several names of one place the first counts.
        if let (Ok(name), true) = (symbol.name(), symbol.size() > 0) {
            spans.entry(symbol.address()).or_insert((symbol.size(), is_code, name));
        }
    }
    let mut crates: BTreeMap<String, CrateSize> = BTreeMap::new();
    let mut end = 0;
    for (address, (size, is_code, name)) in spans {
        // Names within names.
        let own = (address + size).saturating_sub(address.max(end));
        end = end.max(address + size);
        let entry = crates.entry(crate_of(name)).or_default();
        *(if is_code { &mut entry.code } else { &mut entry.data }) += own;
    }
    crates
}

/// The crate that a symbol belongs to, as Rust names it.
fn crate_of(symbol: &str) -> String {
    let Ok(name) = rustc_demangle::try_demangle(symbol) else {
        let foreign = FOREIGN.iter().find(|(begin, _)| symbol.starts_with(begin));
        return foreign.map_or("C library and others", |(_, name)| name).to_owned();
    };
    let name = format!("{name:#}");
    // A path begins where a word is followed by `::` and none is before it.
    let mut found = Vec::new();
    let mut rest = name.as_str();
    while let Some(at) = rest.find("::") {
        let head = &rest[..at];
        let begin = head.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |n| n + 1);
        let is_first = !head[..begin].ends_with("::");
        if is_first && begin < at {
            found.push(&head[begin..]);
        }
        // The rest of this path.
        rest = rest[at + 2..]
            .trim_start_matches(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
    }
    let ours = found.iter().find(|name| !STANDARD.contains(name));
    ours.map_or("std", |name| name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::crate_of;

    #[test]
    fn symbols_belong_to_crates() {
        let check = |symbol: &str, expected: &str| assert_eq!(crate_of(symbol), expected);
        check("_ZN10kymo_files3ctf4read17h0123456789abcdefE", "kymo_files");
        check(
            "_ZN4core3ptr43drop_in_place$LT$kymo_files..ctf..Trace$GT$17h0123456789abcdefE",
            "kymo_files",
        );
        check("_ZN4core3fmt5write17h0123456789abcdefE", "std");
        check(
            "_ZN47_$LT$kymo..Args$u20$as$u20$core..fmt..Debug$GT$3fmt17h0123456789abcdefE",
            "kymo",
        );
        check("_RNvNtCs1234_7mycrate3foo3bar", "mycrate");
        check("ZSTD_compressBlock_fast", "zstd (C)");
        check("memcpy", "C library and others");
    }
}
