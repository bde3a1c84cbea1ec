//! `/tmp/perf-PID.map`: what a just-in-time compiler says it made, one
//! `START SIZE NAME` a line, in hexadecimal.

use std::io;
use std::path::Path;

use kymo_debuginfo::{Binding, RawSymbol, SymbolTable, SymbolType};
use kymo_kernel::regular_file;

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

/// Parses the file; lines of another form are passed over.
pub(crate) fn parse(text: &[u8]) -> SymbolTable {
    let mut raw = Vec::new();
    for line in text.split(|b| *b == b'\n') {
        let mut parts = line.splitn(3, |b| *b == b' ');
        let (Some(start), Some(size), Some(name)) =
            (parts.next().and_then(hex), parts.next().and_then(hex), parts.next())
        else {
            continue;
        };
        raw.push(RawSymbol {
            start,
            size,
            limit: u64::MAX,
            name: name.trim_ascii(),
            binding: Binding::Global,
            kind: SymbolType::Typed,
        });
    }
    SymbolTable::build(raw)
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
    }
}
