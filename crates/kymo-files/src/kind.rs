//! Which of the formats a file is of, by its first bytes.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::{perfdata, tracedat};

/// A format of recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`perfdata`].
    PerfData,
    /// [`tracedat`].
    TraceDat,
}

impl Kind {
    /// The format that begins with these bytes.
    pub fn of_bytes(begin: &[u8]) -> Option<Kind> {
        let mut reversed = perfdata::MAGIC_V2;
        reversed.reverse();
        if begin.starts_with(&tracedat::MAGIC) {
            return Some(Kind::TraceDat);
        }
        [perfdata::MAGIC_V1, perfdata::MAGIC_V2, reversed]
            .iter()
            .any(|m| begin.starts_with(m))
            .then_some(Kind::PerfData)
    }

    /// The format of a regular file; `None` for anything else, and for what
    /// cannot be read: opening it properly will say why.
    pub fn of(path: &Path) -> Option<Kind> {
        if !std::fs::metadata(path).ok()?.is_file() {
            return None;
        }
        let mut begin = Vec::new();
        File::open(path).ok()?.take(16).read_to_end(&mut begin).ok()?;
        Kind::of_bytes(&begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell() {
        for (begin, kind) in [
            (&b"PERFILE2rest"[..], Some(Kind::PerfData)),
            (b"2ELIFREP", Some(Kind::PerfData)),
            (b"PERFFILE", Some(Kind::PerfData)),
            (b"\x17\x08\x44tracing6\0", Some(Kind::TraceDat)),
            (b"\x17\x08\x44trac", None),
            (b"", None),
        ] {
            assert_eq!(Kind::of_bytes(begin), kind, "{}", begin.escape_ascii());
        }
    }
}
