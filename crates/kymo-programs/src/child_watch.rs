//! Children of the process that probes of programs are limited to. Their hits are no part of the
//! result, which is reported if one of them runs a probed file.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use kymo_kernel::proc_maps;
use kymo_kernel::target::{threads_of, with_descendants};
use kymo_model::{Note, NoteKind, RawRecord, RecordKind, Sideband};
use rustc_hash::FxHashMap;

use crate::address_names::MAPS_TIMEOUT;
use crate::mapping_watch::{EXECUTABLE, MappingWatch};

/// Threads of a process whose children are watched; of one with more, only those children count
/// that it has at the start.
const MOST_THREADS: usize = 32;

/// Processes that are followed.
const MOST_PROCESSES: usize = 1 << 16;

/// A probed file: its inode, and the last part of its path.
type ProbedFile = (u64, Vec<u8>);

/// The children, until one of them runs a probed file.
pub(crate) struct ChildWatch {
    pid: u32,
    is_command: bool,
    files: Vec<ProbedFile>,
    watch: Option<MappingWatch>,
    /// The process and its descendants.
    tasks: FxHashMap<u32, ProcessState>,
    is_found: bool,
}

/// Known state of a process.
#[derive(Clone, Copy, Debug, Default)]
struct ProcessState {
    /// It has mapped a probed file.
    runs_file: bool,
    /// It has the mappings of its parent: it may be about to execute another program.
    is_fork: bool,
}

impl ChildWatch {
    /// Watches a process; `is_command` if it has not executed its program yet.
    pub(crate) fn start(pid: u32, is_command: bool, probed: &[PathBuf]) -> ChildWatch {
        let file = |path: &PathBuf| {
            let path = path.canonicalize().unwrap_or_else(|_| path.clone());
            let name = path.file_name()?.as_bytes().to_vec();
            Some((path.metadata().ok()?.ino(), name))
        };
        let files = probed.iter().filter_map(file).collect();
        let threads = if is_command { vec![pid] } else { threads_of(pid).unwrap_or_default() };
        let watch = (threads.len() <= MOST_THREADS).then(|| MappingWatch::of_threads(&threads));
        let tasks = FxHashMap::default();
        let mut children =
            ChildWatch { pid, is_command, files, watch: watch.flatten(), tasks, is_found: false };
        let runs_file = !is_command && children.has_mapped(pid);
        children.tasks.insert(pid, ProcessState { runs_file, is_fork: false });
        if !is_command {
            let all = with_descendants(&[pid]).unwrap_or_default();
            let mut others = all.into_iter().filter(|child| *child != pid);
            children.is_found = others.any(|child| children.has_mapped(child));
        }
        children
    }

    /// Reads what the kernel recorded since.
    pub(crate) fn read(&mut self) {
        if self.is_found {
            self.watch = None;
        }
        let Some(mut watch) = self.watch.take() else { return };
        watch.read(&mut |record| self.apply(record));
        self.watch = Some(watch);
    }

    /// Note on children that may have hit the probes.
    pub(crate) fn note(mut self) -> Option<Note> {
        self.read();
        let mut left = self.tasks.iter().filter(|(pid, _)| **pid != self.pid);
        if !self.is_found && !left.any(|(_, state)| state.runs_file) {
            return None;
        }
        let (option, advice) = match self.is_command {
            true => ("-c", "start the command beside it to probe all processes"),
            false => ("-p", "leave out -p to probe all processes"),
        };
        let fact = format!(
            "{option} limits probes of programs to process {}: its children run a probed file, and \
             their hits are left out",
            self.pid
        );
        Some(Note::choice(NoteKind::Scope, fact, Some(advice.to_owned())))
    }

    fn has_mapped(&self, pid: u32) -> bool {
        let maps = proc_maps::maps(pid, MAPS_TIMEOUT).unwrap_or_default();
        let mut code = maps.mappings.iter().filter(|m| m.executable());
        code.any(|m| self.is_probed(m.inode, &m.path))
    }

    fn is_probed(&self, inode: u64, path: &[u8]) -> bool {
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        self.files.iter().any(|(number, file)| *number == inode && file == name)
    }

    fn apply(&mut self, record: &RawRecord<'_>) {
        if record.kind == RecordKind::LOST {
            // Nothing is known of those that are left.
            return self.tasks.retain(|pid, _| *pid == self.pid);
        }
        match Sideband::parse(record) {
            Ok(Some(Sideband::Mmap(new))) => {
                let inode = new.inode.map_or(0, |(_, _, inode, _)| inode);
                let is_code = new.prot.is_some_and(|prot| prot & EXECUTABLE != 0);
                if is_code && self.is_probed(inode, new.filename) {
                    self.tasks.entry(new.pid).or_default().runs_file = true;
                    self.is_found |= new.pid != self.pid;
                }
            }
            // A new program has none of the old one's files.
            Ok(Some(Sideband::Comm(comm))) if comm.exec => {
                self.tasks.insert(comm.pid, ProcessState::default());
            }
            Ok(Some(Sideband::Fork(task))) if task.pid != task.ppid => {
                let parent = self.tasks.get(&task.ppid).copied().unwrap_or_default();
                if self.tasks.len() < MOST_PROCESSES {
                    self.tasks.insert(task.pid, ProcessState { is_fork: true, ..parent });
                }
            }
            // One that ends without another program was a copy of its parent.
            Ok(Some(Sideband::Exit(task))) if task.pid == task.tid && task.pid != self.pid => {
                let state = self.tasks.remove(&task.pid).unwrap_or_default();
                self.is_found |= state.is_fork && state.runs_file;
            }
            _ => {}
        }
    }
}
