//! Which of the formats a file or directory is of: by its first bytes, or by the
//! metadata in it.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::{ctf, perfdata, tracedat};

/// A format of recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingFormat {
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

impl RecordingFormat {
    /// The format that begins with these bytes.
    pub fn of_bytes(begin: &[u8]) -> Option<RecordingFormat> {
        let mut reversed = perfdata::MAGIC_V2;
        reversed.reverse();
        if begin.starts_with(&tracedat::MAGIC) {
            return Some(RecordingFormat::TraceDat);
        }
        if ctf::read::is_metadata(begin) {
            return Some(RecordingFormat::Ctf);
        }
        [perfdata::MAGIC_V1, perfdata::MAGIC_V2, reversed]
            .iter()
            .any(|m| begin.starts_with(m))
            .then_some(RecordingFormat::PerfData)
    }

    /// The format of a regular file or of a directory; `None` for anything else, and for
    /// what cannot be read: opening it properly will say why.
    pub fn of(path: &Path) -> Option<RecordingFormat> {
        // Standard input, also where there is a file of this name.
        if path.as_os_str() == "-" {
            return None;
        }
        let found = fs::metadata(path).ok()?;
        if found.is_dir() {
            if perfdata::read::file_in_directory(path).is_some() {
                return Some(RecordingFormat::PerfData);
            }
            return if kernel_recordings(path).is_empty() {
                ctf::Ctf::is_in(path).then_some(RecordingFormat::Ctf)
            } else {
                Some(RecordingFormat::Session)
            };
        }
        if !found.is_file() {
            return None;
        }
        let mut begin = Vec::new();
        File::open(path).ok()?.take(16).read_to_end(&mut begin).ok()?;
        let by_name = || ctf::read::is_metadata_file(path).then_some(RecordingFormat::Ctf);
        RecordingFormat::of_bytes(&begin).or_else(by_name)
    }
}

/// Recordings of the kernel that are taken from a directory.
const MAX_KERNEL_RECORDINGS: usize = 256;

/// The recordings of the kernel in a directory of a session: in itself or in `kernel`, by name.
pub(crate) fn kernel_recordings(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for place in [directory.to_owned(), directory.join("kernel")] {
        let Ok(entries) = fs::read_dir(place) else { continue };
        let files = entries.flatten().take(1 << 16).map(|e| e.path()).filter(|p| {
            p.file_name().is_some_and(|n| !n.to_string_lossy().starts_with('.'))
                && fs::metadata(p).is_ok_and(|m| m.is_file() && m.len() > 0)
                && RecordingFormat::of(p) == Some(RecordingFormat::TraceDat)
        });
        found.extend(files.take(MAX_KERNEL_RECORDINGS));
    }
    found.sort();
    found.truncate(MAX_KERNEL_RECORDINGS);
    found
}

/// Files beside them that are recordings by their names, and why they are not read.
pub(crate) fn unreadable_files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for place in [directory.to_owned(), directory.join("kernel")] {
        let Ok(entries) = fs::read_dir(place) else { continue };
        for path in entries.flatten().take(1 << 16).map(|e| e.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Ok(metadata) = fs::metadata(&path) else { continue };
            let is_hidden = name.starts_with('.');
            if is_hidden || !metadata.is_file() || found.len() >= MAX_KERNEL_RECORDINGS {
                continue;
            }
            let is_named = name.ends_with(".dat");
            let why = match RecordingFormat::of(&path) {
                Some(RecordingFormat::PerfData) => "a perf.data is read alone, not beside others",
                Some(_) => continue,
                None if is_named && metadata.len() == 0 => "the file is empty",
                None if is_named => "it is not a recording",
                None => continue,
            };
            found.push(format!("{}: {why}", path.display()));
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell() {
        for (begin, kind) in [
            (&b"PERFILE2rest"[..], Some(RecordingFormat::PerfData)),
            (b"2ELIFREP", Some(RecordingFormat::PerfData)),
            (b"PERFFILE", Some(RecordingFormat::PerfData)),
            (b"\x17\x08\x44tracing6\0", Some(RecordingFormat::TraceDat)),
            (b"\x17\x08\x44trac", None),
            (b"/* CTF 1.8 */", Some(RecordingFormat::Ctf)),
            (b"\x1e{ \"type\": \"pr", Some(RecordingFormat::Ctf)),
            (b"\x1e\n  {", Some(RecordingFormat::Ctf)),
            (b"\x1eno", None),
            (b"\x75\xd1\x1d\x57", Some(RecordingFormat::Ctf)),
            (b"\x57\x1d\xd1\x75", Some(RecordingFormat::Ctf)),
            (b"", None),
        ] {
            assert_eq!(RecordingFormat::of_bytes(begin), kind, "{}", begin.escape_ascii());
        }
    }
}
