//! `/tmp/perf-PID.map`: what a just-in-time compiler says it made, one
//! `START SIZE NAME` a line, in hexadecimal.

use std::io;
use std::path::{Path, PathBuf};

use kymo_debuginfo::{Binding, RawSymbol, SymbolTable, SymbolType};
use kymo_kernel::regular_file;
use kymo_kernel::system::SystemRoot;
use rustc_hash::FxHashMap;

/// Larger files are not read: memory of several times their size would go.
const LIMIT: u64 = 256 << 20;

/// The text of a map; empty if there is none.
///
/// # Errors
/// Why one that is there is not read.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    match regular_file::read(path, LIMIT) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

/// The text of a process's map: at its path, or, while the process lives in a container, at the
/// path by its number there, below its root.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_of(pid: u32, path: &Path) -> io::Result<Vec<u8>> {
    let system = SystemRoot::machine();
    let here = system.mount_namespace(std::process::id());
    let is_elsewhere = |namespace| Some(namespace) != here;
    let text = read(path)?;
    if !text.is_empty() || !system.mount_namespace(pid).is_some_and(is_elsewhere) {
        return Ok(text);
    }
    let Some(inside) = system.innermost_pid(pid) else { return Ok(text) };
    let map = PathBuf::from(format!("/tmp/perf-{inside}.map"));
    match regular_file::open_below(&system.root_of(pid), &map) {
        Ok(file) => {
            let meta = file.metadata()?;
            regular_file::read_open(file, &meta, LIMIT)
        }
        Err(_) => Ok(text),
    }
}

/// Parses the file; lines of another form are passed over. The last line of an address counts:
/// code that is made later replaces what was there.
pub(crate) fn parse(text: &[u8]) -> SymbolTable {
    let mut raw: Vec<RawSymbol<'_>> = Vec::new();
    let mut places: FxHashMap<u64, usize> = FxHashMap::default();
    for line in text.split(|b| *b == b'\n') {
        let (start, rest) = word(line);
        let (size, name) = word(rest);
        let name = name.trim_ascii();
        let (Some(start), Some(size), false) = (hex(start), hex(size), name.is_empty()) else {
            continue;
        };
        let symbol = RawSymbol {
            start,
            size,
            limit: u64::MAX,
            name,
            binding: Binding::Global,
            kind: SymbolType::Typed,
        };
        match places.get(&start).and_then(|at| raw.get_mut(*at)) {
            Some(known) => *known = symbol,
            None => {
                places.insert(start, raw.len());
                raw.push(symbol);
            }
        }
    }
    SymbolTable::build(raw)
}

/// The first word of a text, and the rest. Some compilers write several blanks.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_start();
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    text.split_at(end)
}

fn hex(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_may_hold_spaces() {
        let t = super::parse(b"7f00 20 LazyCompile:~f a.js:1\nbad\n0x8000 10 g\n");
        assert_eq!(t.lookup(0x7f1f).map(|(.., n)| n), Some(&b"LazyCompile:~f a.js:1"[..]));
        assert_eq!(t.lookup(0x8001).map(|(.., n)| n), Some(&b"g"[..]));
        assert_eq!(t.lookup(0x7f20), None);
        let t = super::parse(b" 7f00  20\t two  words \n7f40 10\n7f60 zz h\n");
        assert_eq!(t.lookup(0x7f04).map(|(.., n)| n), Some(&b"two  words"[..]));
        assert_eq!((t.lookup(0x7f41), t.lookup(0x7f60)), (None, None));
    }

    #[test]
    fn code_that_is_made_later_replaces_what_was_there() {
        let t = super::parse(b"1000 40 first\n2000 10 other\n1000 20 second\n1000 30 last\n");
        assert_eq!(t.lookup(0x1004).map(|(.., n)| n), Some(&b"last"[..]));
        // The rest of the larger one that was there before is not its code any more.
        assert_eq!(t.lookup(0x1038), None);
        assert_eq!(t.lookup(0x2008).map(|(.., n)| n), Some(&b"other"[..]));
    }
}
