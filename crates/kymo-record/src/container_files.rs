//! Binaries of other mount namespaces (containers) that recorded processes map, and such that were
//! removed or replaced: opened while the processes live, since afterwards their paths lead nowhere. Of just-in-time compilers it is
//! the directory of their maps, which are written while they run, and read at the end.
//!
//! The files belong to other users: only regular files of a bounded size are opened, below the
//! process's root, and links do not lead out of it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use kymo_kernel::system::SystemRoot;
use kymo_kernel::{descriptors, regular_file};
use kymo_model::{BuildId, Endian, Misc, Mmap, RawRecord, RecordHeader, RecordKind, Sideband};
use rustc_hash::FxHashSet;
use sha2::{Digest as _, Sha256};

/// Files that are kept open at most.
const MOST_FILES: usize = 512;
/// Larger files are left where they are.
const LIMIT: u64 = 1 << 30;
/// Processes whose maps of compiled code are looked for at most.
const MOST_JIT_PROCESSES: usize = 256;
/// Most bytes of all such maps together.
const JIT_LIMIT: u64 = 256 << 20;

/// A binary as a process of a container mapped it, or the map of a just-in-time compiler.
#[derive(Debug)]
pub struct ContainerFile {
    /// Its path in the container; of a map, the one that it would have outside of it.
    pub name: PathBuf,
    /// Its build-id, where the kernel recorded it; of a map, one made of its bytes.
    pub build_id: Option<BuildId>,
    /// The file.
    pub file: File,
}

/// Looks at the records of mappings as they come.
#[derive(Debug, Default)]
pub(crate) struct ContainerFiles {
    own: Option<(u64, u64)>,
    known: FxHashSet<((u64, u64), Vec<u8>)>,
    /// Directories with the maps of processes that have JIT code.
    jit: BTreeMap<u32, JitDirectory>,
    pub(crate) files: Vec<ContainerFile>,
}

/// The `/tmp` of a process in a container, and its number there.
#[derive(Debug)]
struct JitDirectory {
    inside: u32,
    directory: File,
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
        if Mmap::names_anonymous(map.filename) {
            self.compiled_code(map.pid);
            return;
        }
        let is_file = map.filename.starts_with(b"/") && !map.filename.starts_with(b"//");
        if !is_file || map.pid == u32::MAX || self.files.len() >= MOST_FILES {
            return;
        }
        let system = SystemRoot::machine();
        let is_removed = Mmap::names_removed(map.filename);
        let namespace = system.mount_namespace(map.pid);
        let namespace = namespace.filter(|n| is_removed || Some(*n) != self.own);
        let Some(namespace) = namespace.filter(|_| self.own.is_some()) else { return };
        let mut key = map.filename.to_vec();
        // Several files may have had the name that is one of a removed file.
        if is_removed {
            let Some(id) = map.build_id else { return };
            key.extend(id.as_bytes());
        }
        if !self.known.insert((namespace, key)) {
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

    /// A process has memory for code that it makes.
    fn compiled_code(&mut self, pid: u32) {
        let system = SystemRoot::machine();
        let namespace = system.mount_namespace(pid).filter(|n| Some(*n) != self.own);
        if namespace.is_none() || self.own.is_none() || pid == u32::MAX {
            return;
        }
        // It may have another root than when it was seen before.
        let Ok(directory) = regular_file::directory_below(&system.root_of(pid), Path::new("/tmp"))
        else {
            return;
        };
        if let Some(known) = self.jit.get_mut(&pid) {
            known.directory = directory;
        } else if self.jit.len() < MOST_JIT_PROCESSES
            && let Some(inside) = system.innermost_pid(pid)
        {
            self.jit.insert(pid, JitDirectory { inside, directory });
        }
    }

    /// Reads the maps of compiled code as they are now; they are files as the others. Returns their
    /// names and ids for the recording.
    pub(crate) fn read_jit_maps(&mut self) -> Vec<(Vec<u8>, BuildId)> {
        let (mut told, mut left) = (Vec::new(), JIT_LIMIT);
        for (pid, of) in &self.jit {
            let path = descriptors::own_path(&of.directory).join(format!("perf-{}.map", of.inside));
            let Ok(Some((file, id))) = copy_of(&path, &mut left) else { continue };
            let name = PathBuf::from(format!("/tmp/perf-{pid}.map"));
            told.push((name.as_os_str().as_bytes().to_vec(), id));
            self.files.push(ContainerFile { name, build_id: Some(id), file });
        }
        told
    }
}

/// A copy of a file in memory, which is complete, and an id made of its bytes; none of an empty
/// file.
fn copy_of(path: &Path, left: &mut u64) -> io::Result<Option<(File, BuildId)>> {
    let file = regular_file::open_without_links(path)?;
    let meta = file.metadata()?;
    let bytes = regular_file::read_open(file, &meta, *left)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    *left = left.saturating_sub(bytes.len() as u64);
    let mut copy = descriptors::memory_file("kymo-jit-map")?;
    copy.write_all(&bytes)?;
    Ok(Some((copy, BuildId::new(&Sha256::digest(&bytes)))))
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
