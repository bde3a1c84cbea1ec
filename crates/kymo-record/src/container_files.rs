//! Binaries of other mount namespaces (containers) that recorded processes map: opened while
//! the processes live, since afterwards their paths lead nowhere.
//!
//! The files are somebody else's: only regular files of a bounded size are opened, below the
//! process's root, and links do not lead out of it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use kymo_kernel::regular_file;
use kymo_kernel::system::SystemRoot;
use kymo_model::{BuildId, Endian, Misc, RawRecord, RecordHeader, RecordKind, Sideband};
use rustc_hash::FxHashSet;

/// Files that are kept open at most.
const MOST_FILES: usize = 512;
/// Larger files are left where they are.
const LIMIT: u64 = 1 << 30;

/// A binary as a process of a container mapped it.
#[derive(Debug)]
pub struct ContainerFile {
    /// Its path in the container.
    pub name: PathBuf,
    /// Its build-id, where the kernel recorded it.
    pub build_id: Option<BuildId>,
    /// The file.
    pub file: File,
}

/// Looks at the records of mappings as they come.
#[derive(Debug, Default)]
pub(crate) struct ContainerFiles {
    own: Option<(u64, u64)>,
    known: FxHashSet<((u64, u64), Vec<u8>)>,
    pub(crate) files: Vec<ContainerFile>,
}

impl ContainerFiles {
    pub(crate) fn new() -> ContainerFiles {
        let own = SystemRoot::machine().mount_namespace(std::process::id());
        ContainerFiles { own, ..ContainerFiles::default() }
    }

    /// Takes whole records, which lie in two pieces.
    pub(crate) fn pieces(&mut self, first: &[u8], second: &[u8]) {
        let rest = self.records(first);
        if rest.is_empty() {
            self.records(second);
            return;
        }
        // The one record that lies in both.
        let mut split = rest.to_vec();
        let missing = RecordHeader::SIZE.saturating_sub(split.len()).min(second.len());
        split.extend_from_slice(&second[..missing]);
        let size = RecordHeader::parse(&split, Endian::NATIVE).map_or(0, |h| usize::from(h.size));
        let end = size.saturating_sub(rest.len()).clamp(missing, second.len());
        split.extend_from_slice(&second[missing..end]);
        self.records(&split);
        self.records(&second[end..]);
    }

    /// Takes records; what is left is part of one.
    pub(crate) fn records<'b>(&mut self, mut bytes: &'b [u8]) -> &'b [u8] {
        while let Ok(header) = RecordHeader::parse(bytes, Endian::NATIVE) {
            let size = usize::from(header.size);
            let Some(record) = bytes.get(..size).filter(|_| size >= RecordHeader::SIZE) else {
                break;
            };
            if header.kind == RecordKind::MMAP2 && header.misc.0 & Misc::MMAP_DATA == 0 {
                self.mapping(header.misc, &record[RecordHeader::SIZE..]);
            }
            bytes = &bytes[size..];
        }
        bytes
    }

    fn mapping(&mut self, misc: Misc, body: &[u8]) {
        let raw = RawRecord { kind: RecordKind::MMAP2, misc, body, endian: Endian::NATIVE };
        let Ok(Some(Sideband::Mmap(map))) = Sideband::parse(&raw) else { return };
        let is_file = map.filename.starts_with(b"/") && !map.filename.starts_with(b"//");
        if !is_file || map.pid == u32::MAX || self.files.len() >= MOST_FILES {
            return;
        }
        let system = SystemRoot::machine();
        let namespace = system.mount_namespace(map.pid).filter(|n| Some(*n) != self.own);
        let Some(namespace) = namespace.filter(|_| self.own.is_some()) else { return };
        if !self.known.insert((namespace, map.filename.to_vec())) {
            return;
        }
        let name = Path::new(OsStr::from_bytes(map.filename));
        let range = (map.start, map.start.saturating_add(map.len));
        if let Ok(file) = open(map.pid, range, name)
            && file.metadata().is_ok_and(|meta| meta.len() <= LIMIT)
        {
            let name = name.to_owned();
            self.files.push(ContainerFile { name, build_id: map.build_id, file });
        }
    }
}

/// Opens the file of a mapping of a process in a container.
pub(crate) fn open(pid: u32, range: (u64, u64), name: &Path) -> io::Result<File> {
    let system = SystemRoot::machine();
    // The mapping itself leads to the file, also to one that was removed.
    regular_file::open(&system.mapped_file(pid, range))
        .or_else(|_| regular_file::open_below(&system.root_of(pid), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_in_two_pieces_is_one() {
        let mut record = vec![10, 0, 0, 0, 2, 0, 104, 0];
        record.extend(std::process::id().to_ne_bytes().repeat(2));
        record.extend([0u8; 56]);
        record.extend(b"/proc/self/exe\0\0");
        record.resize(104, 0);
        let mut stream = vec![9, 0, 0, 0, 0, 0, 16, 0, 1, 1, 1, 1, 1, 1, 1, 1];
        stream.extend(&record);
        stream.extend(&stream.clone()[..16]);
        for cut in 0..stream.len() {
            // Of another namespace than the tests'.
            let mut files = ContainerFiles { own: Some((1, 1)), ..ContainerFiles::default() };
            files.pieces(&stream[..cut], &stream[cut..]);
            let known: Vec<_> = files.known.iter().map(|(_, name)| name.as_slice()).collect();
            assert_eq!(known, [b"/proc/self/exe"], "cut at {cut}");
        }
    }
}
