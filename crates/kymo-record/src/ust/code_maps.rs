//! The code that a traced program has mapped, so that fields which hold its addresses have
//! names: from the kernel while the program lives, and from what the program leaves in its
//! directory (`maps`), which is there when it has ended.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kymo_files::ctf::CodeMapping;
use kymo_kernel::proc_maps::{self, ProcMapping};
use kymo_kernel::shared::Access;
use kymo_kernel::system::SystemRoot;
use kymo_model::BuildId;

use super::program::{Program, ProgramId};
use crate::build_id;

/// The file that a program leaves.
pub(super) const FILE: &str = "maps";
/// Begin of the names of such files that are not finished.
pub(super) const UNFINISHED: &str = ".maps-";
/// The most of it that is read.
const MAX_FILE: usize = 1 << 20;
/// The most mappings that are kept.
const MAX_MAPPINGS: usize = 1 << 14;
/// Longest time of reading a program's mappings from the kernel.
const PATIENCE: Duration = Duration::from_millis(500);
/// Least time between two readings of a living program for frequent callers.
const EVERY: Duration = Duration::from_secs(1);

/// The mappings with code of one program, by their first addresses. What it has unmapped stays
/// until something else lies there.
#[derive(Debug, Default)]
pub(super) struct CodeMaps {
    mappings: BTreeMap<u64, ProcMapping>,
    /// Their files, by path and inode.
    files: BTreeMap<(String, u64), FileIdentity>,
    /// Root directory of the program, if it differs from ours.
    root: Option<PathBuf>,
    looked: Option<Instant>,
    /// Number of mappings that were added.
    changes: u64,
}

/// Identity of the file that a mapping names.
#[derive(Clone, Copy, Debug)]
enum FileIdentity {
    /// The file that was mapped.
    Same(Option<BuildId>),
    /// Another one by now.
    Replaced,
    /// It cannot be looked at.
    Unknown,
}

impl CodeMaps {
    /// Looks at what a program has mapped, if any of its events needs that. Returns whether
    /// it is not what it was.
    pub(super) fn look(&mut self, program: &Program) -> bool {
        if !program.has_addresses() {
            return false;
        }
        let before = self.changes;
        let (mappings, root) = running(program.id());
        // What the program left is older than what the kernel says now, and may still have what
        // was unmapped since.
        let first = self.looked.replace(Instant::now()).is_none();
        if first || mappings.is_empty() {
            self.add(left(program));
        }
        self.root = root.or_else(|| self.root.take());
        self.add(mappings);
        self.identify_files();
        self.changes != before
    }

    /// Notes of each file whether it is the one that was mapped, while it can be found.
    fn identify_files(&mut self) {
        for mapping in self.mappings.values() {
            let path = path_of(mapping);
            let key = (path, mapping.inode);
            self.files
                .entry(key)
                .or_insert_with_key(|(path, inode)| identify(self.root.as_deref(), path, *inode));
        }
    }

    /// Reads the mappings, at most once a second.
    pub(super) fn look_at_times(&mut self, program: &Program) {
        if self.looked.is_none_or(|at| at.elapsed() >= EVERY) {
            self.look(program);
        }
    }

    fn add(&mut self, mappings: impl IntoIterator<Item = ProcMapping>) {
        for mapping in mappings {
            let (start, end) = (mapping.start, mapping.end);
            if start >= end || self.mappings.get(&start) == Some(&mapping) {
                continue;
            }
            let before = self.mappings.range(..start).next_back();
            let before = before.filter(|(_, m)| m.end > start).map(|(at, _)| *at);
            let within = self.mappings.range(start..end).map(|(at, _)| *at);
            let over: Vec<u64> = before.into_iter().chain(within).collect();
            over.iter().for_each(|at| _ = self.mappings.remove(at));
            if self.mappings.len() < MAX_MAPPINGS {
                self.changes += 1;
                self.mappings.insert(start, mapping);
            }
        }
    }

    /// Directory that the program's root is, if it is another than here.
    pub(super) fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// The mappings, with the build-ids of their files as far as these were still there.
    pub(super) fn mappings(&self) -> Vec<CodeMapping> {
        let identity = |m: &ProcMapping| {
            let known = self.files.get(&(path_of(m), m.inode));
            known.copied().unwrap_or(FileIdentity::Unknown)
        };
        let mapping = |m: &ProcMapping| match identity(m) {
            FileIdentity::Same(id) => Some(code_mapping(m, id)),
            // As the kernel reports it while the program lives: the functions of another file are
            // not mistaken for its own.
            FileIdentity::Replaced if !m.path.ends_with(DELETED.as_bytes()) => {
                let path = path_of(m) + DELETED;
                Some(CodeMapping { path, ..code_mapping(m, None) })
            }
            // A file of that path here would be another one.
            FileIdentity::Unknown if self.root.is_some() => None,
            FileIdentity::Unknown | FileIdentity::Replaced => Some(code_mapping(m, None)),
        };
        self.mappings.values().filter_map(mapping).collect()
    }
}

/// Behind the path of a file that is no more.
const DELETED: &str = " (deleted)";

fn path_of(mapping: &ProcMapping) -> String {
    String::from_utf8_lossy(&mapping.path).into_owned()
}

fn code_mapping(mapping: &ProcMapping, build_id: Option<BuildId>) -> CodeMapping {
    let (start, end, offset) = (mapping.start, mapping.end, mapping.offset);
    CodeMapping { start, end, offset, build_id, path: path_of(mapping) }
}

fn is_code(mapping: &ProcMapping) -> bool {
    mapping.executable() && mapping.path.first() == Some(&b'/')
}

/// Reads the mappings that the program has left in its directory.
fn left(program: &Program) -> Vec<ProcMapping> {
    let Ok(file) = program.dir().file(OsStr::new(FILE), Access::Read) else { return Vec::new() };
    let size = file.size().map_or(0, |size| size.min(MAX_FILE as u64));
    let mut text = vec![0; size as usize];
    let Ok(len) = file.read_some(0, &mut text) else { return Vec::new() };
    let lines = text.get(..len).unwrap_or_default().split(|b| *b == b'\n');
    lines.filter_map(ProcMapping::parse).filter(is_code).collect()
}

/// Reads the mappings from the kernel, and the root of their files if that differs from ours.
fn running(id: &ProgramId) -> (Vec<ProcMapping>, Option<PathBuf>) {
    let there = || proc_maps::start_time(id.pid) == Some(id.start);
    // Its number may be another process's in our pid namespace, or by now.
    let maps = there().then(|| proc_maps::maps(id.pid, PATIENCE));
    let Some(Ok(maps)) = maps else { return (Vec::new(), None) };
    let (system, own) = (SystemRoot::machine(), std::process::id());
    let elsewhere = system.mount_namespace(own) != system.mount_namespace(id.pid);
    if !there() {
        return (Vec::new(), None);
    }
    let root = elsewhere.then(|| system.root_of(id.pid));
    (maps.mappings.into_iter().filter(is_code).collect(), root)
}

/// Whether the file of that path is still the one that was mapped.
fn identify(root: Option<&Path>, path: &str, inode: u64) -> FileIdentity {
    let path = match root {
        Some(root) => root.join(path.trim_start_matches('/')),
        None => PathBuf::from(path),
    };
    match fs::metadata(&path) {
        Ok(facts) if facts.ino() == inode => FileIdentity::Same(build_id::of_file(&path)),
        Ok(_) => FileIdentity::Replaced,
        Err(_) => FileIdentity::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, path: &str) -> ProcMapping {
        ProcMapping { start, end, prot: 5, path: path.into(), ..ProcMapping::default() }
    }

    #[test]
    fn what_is_mapped_later_takes_the_place_of_what_was_there() {
        let mut maps = CodeMaps::default();
        maps.add([mapping(10, 20, "/a"), mapping(20, 30, "/b"), mapping(40, 50, "/c")]);
        let shown = |maps: &CodeMaps| -> Vec<(u64, u64, String)> {
            maps.mappings().into_iter().map(|m| (m.start, m.end, m.path)).collect()
        };
        let of = |start, end, path: &str| (start, end, path.to_owned());
        assert_eq!(shown(&maps), [of(10, 20, "/a"), of(20, 30, "/b"), of(40, 50, "/c")]);
        // Another library over the ends of two.
        maps.add([mapping(15, 25, "/d"), mapping(40, 50, "/c")]);
        assert_eq!(shown(&maps), [of(15, 25, "/d"), of(40, 50, "/c")]);
        maps.add([mapping(0, 100, "/e"), mapping(7, 7, "/nothing")]);
        assert_eq!(shown(&maps), [of(0, 100, "/e")]);
    }

    #[test]
    fn a_file_that_was_replaced_is_said_to_be_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("library.so");
        fs::write(&path, "no ELF").unwrap();
        let path = path.to_str().unwrap();
        let inode = fs::metadata(path).unwrap().ino();
        let mut maps = CodeMaps::default();
        let of = |start, inode| ProcMapping { inode, ..mapping(start, start + 1, path) };
        maps.add([of(1, inode), of(2, inode + 1)]);
        maps.add([mapping(3, 4, "/there/is/no such file")]);
        maps.identify_files();
        let paths: Vec<String> = maps.mappings().into_iter().map(|m| m.path).collect();
        let deleted = format!("{path} (deleted)");
        assert_eq!(paths, [path, &*deleted, "/there/is/no such file"]);
    }
}
