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

/// The files in a directory of a session, or in its `kernel`, with their sizes; no hidden ones.
fn files_of_session(directory: &Path) -> impl Iterator<Item = (PathBuf, u64)> {
    let places = [directory.to_owned(), directory.join("kernel")];
    let entries = places.into_iter().filter_map(|place| fs::read_dir(place).ok());
    entries.flat_map(|entries| entries.flatten().take(1 << 16)).filter_map(|entry| {
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        let path = entry.path();
        let metadata = fs::metadata(&path).ok().filter(|m| !is_hidden && m.is_file())?;
        Some((path, metadata.len()))
    })
}

/// The recordings of the kernel in a directory of a session: in itself or in `kernel`, by name.
pub(crate) fn kernel_recordings(directory: &Path) -> Vec<PathBuf> {
    let files = files_of_session(directory).filter(|(path, bytes)| {
        *bytes > 0 && RecordingFormat::of(path) == Some(RecordingFormat::TraceDat)
    });
    let mut found: Vec<PathBuf> = files.map(|(path, _)| path).collect();
    found.sort();
    found.truncate(MAX_KERNEL_RECORDINGS);
    found
}

/// Files beside them that are named as recordings, or are some, with the reasons why they are not
/// read.
pub(crate) fn unreadable_files(directory: &Path) -> Vec<String> {
    let why = |path: &Path, bytes: u64| {
        let is_named = path.extension().is_some_and(|extension| extension == "dat");
        match RecordingFormat::of(path) {
            Some(RecordingFormat::PerfData) => Some("a perf.data is read alone, not beside others"),
            None if is_named && bytes == 0 => Some("the file is empty"),
            None if is_named => Some("it is not a recording"),
            _ => None,
        }
    };
    let files = files_of_session(directory);
    let found = files.filter_map(|(path, bytes)| {
        why(&path, bytes).map(|why| format!("{}: {why}", path.display()))
    });
    let mut found: Vec<String> = found.collect();
    found.sort();
    found.truncate(MAX_KERNEL_RECORDINGS);
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
