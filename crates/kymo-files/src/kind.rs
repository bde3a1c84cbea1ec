//! Which of the formats a file or directory is of: by its first bytes, or by the
//! metadata in it.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::{Timeline, ctf, perfdata, tracedat};

/// A format of recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`perfdata`].
    PerfData,
    /// [`tracedat`].
    TraceDat,
    /// [`ctf`]: a directory that is a trace or holds some, or the metadata of one.
    Ctf,
    /// A directory with recordings of the kernel ([`tracedat`]) and perhaps of programs
    /// ([`ctf`]): a session's.
    Session,
}

impl Kind {
    /// The format that begins with these bytes.
    pub fn of_bytes(begin: &[u8]) -> Option<Kind> {
        let mut reversed = perfdata::MAGIC_V2;
        reversed.reverse();
        if begin.starts_with(&tracedat::MAGIC) {
            return Some(Kind::TraceDat);
        }
        if ctf::read::is_metadata(begin) {
            return Some(Kind::Ctf);
        }
        [perfdata::MAGIC_V1, perfdata::MAGIC_V2, reversed]
            .iter()
            .any(|m| begin.starts_with(m))
            .then_some(Kind::PerfData)
    }

    /// The format of a regular file or of a directory; `None` for anything else, and for
    /// what cannot be read: opening it properly will say why.
    pub fn of(path: &Path) -> Option<Kind> {
        let found = std::fs::metadata(path).ok()?;
        if found.is_dir() {
            return match Timeline::is_in(path) {
                true => Some(Kind::Session),
                false => ctf::Ctf::is_in(path).then_some(Kind::Ctf),
            };
        }
        if !found.is_file() {
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
            (b"/* CTF 1.8 */", Some(Kind::Ctf)),
            (b"\x75\xd1\x1d\x57", Some(Kind::Ctf)),
            (b"\x57\x1d\xd1\x75", Some(Kind::Ctf)),
            (b"", None),
        ] {
            assert_eq!(Kind::of_bytes(begin), kind, "{}", begin.escape_ascii());
        }
    }
}
