//! The process of the command that a perf.data was recorded of: the child of the recorder, which
//! is there when the recording begins and then executes the program.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kymo_files::perfdata::Entry;
use kymo_model::{RecordKind, Sideband};
use rustc_hash::FxHashMap;

use super::EventSource;

/// Bytes of a task's name that the kernel keeps.
const COMM_LENGTH: usize = 15;
/// Names of programs that record, and of perf's child until it executes the command.
const RECORDERS: [&[u8]; 2] = [b"kymo", b"perf"];
const PERF_CHILD: &[u8] = b"perf-exec";
/// Tasks whose names are kept while the command is searched.
const MAX_TASKS: usize = 1 << 18;

/// The command that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedCommand {
    /// Its process, as samples number it.
    pub tid: u32,
    /// Time at which it executed the program.
    pub began: u64,
    /// Process of the recorder, its parent, where it is known.
    pub recorder: Option<u32>,
    /// The recording does not identify the recorder's child: it is the first process that
    /// executed a program of the command's name.
    pub is_by_name: bool,
}

/// A task before it executes a program.
#[derive(Clone, Debug, Default)]
struct KnownTask {
    comm: Vec<u8>,
    parent: u32,
    /// It was there when the recording began.
    was_there: bool,
}

#[derive(Debug)]
struct CommandSearch {
    /// The process, where the caller knows it.
    child: Option<u32>,
    /// Names of the words of the recorder's command line; the first is the recorder.
    names: Vec<Vec<u8>>,
    tasks: FxHashMap<u32, KnownTask>,
    by_name: Option<RecordedCommand>,
}

impl CommandSearch {
    fn new(child: Option<u32>, words: &[String]) -> CommandSearch {
        let name = |word: &String| {
            let name = Path::new(word).file_name()?.to_str()?.as_bytes();
            Some(name.get(..COMM_LENGTH).unwrap_or(name).to_vec())
        };
        let names = words.iter().map(|word| name(word).unwrap_or_default()).collect();
        CommandSearch { child, names, tasks: FxHashMap::default(), by_name: None }
    }

    fn is_recorder(&self, comm: &[u8]) -> bool {
        // Copies of the programs have longer names.
        RECORDERS.iter().any(|name| comm.starts_with(name))
            || self.names.first().is_some_and(|name| name == comm)
    }

    /// Takes a record; answers the command once it is certain.
    fn record(&mut self, record: &Sideband<'_>, time: Option<u64>) -> Option<RecordedCommand> {
        let time = time.unwrap_or(0);
        match record {
            Sideband::Fork(task) if task.pid == task.tid => {
                let comm = self.tasks.get(&task.ppid).map(|parent| parent.comm.clone());
                let new = KnownTask {
                    comm: comm.unwrap_or_default(),
                    parent: task.ppid,
                    was_there: time == 0,
                };
                self.keep(task.tid, new);
                None
            }
            Sideband::Comm(name) if name.pid == name.tid => {
                let found = (name.exec && time > 0).then(|| self.executes(name.tid, name.comm));
                let parent = self.tasks.get(&name.tid).map(|task| task.parent);
                let found = found.flatten().map(|is_by_name| RecordedCommand {
                    tid: name.tid,
                    began: time,
                    recorder: parent.filter(|parent| *parent != 0 && !is_by_name),
                    is_by_name,
                });
                let was_there = time == 0;
                let mut known = self.tasks.get(&name.tid).cloned().unwrap_or_default();
                known.comm = name.comm.to_vec();
                known.was_there &= !name.exec;
                known.was_there |= was_there;
                self.keep(name.tid, known);
                match found {
                    Some(command) if command.is_by_name => {
                        self.by_name.get_or_insert(command);
                        None
                    }
                    found => found,
                }
            }
            _ => None,
        }
    }

    fn keep(&mut self, tid: u32, task: KnownTask) {
        if self.tasks.len() < MAX_TASKS || self.tasks.contains_key(&tid) {
            self.tasks.insert(tid, task);
        }
    }

    /// Whether a task that executes a program may be the command; whether its name alone says so.
    fn executes(&self, tid: u32, comm: &[u8]) -> Option<bool> {
        if let Some(child) = self.child {
            return (child == tid).then_some(false);
        }
        let is_named = self.names.iter().skip(1).any(|name| name == comm);
        let Some(before) = self.tasks.get(&tid) else { return is_named.then_some(true) };
        if before.comm == PERF_CHILD && (is_named || self.names.is_empty()) {
            return Some(false);
        }
        let parent = self.tasks.get(&before.parent).map(|parent| parent.comm.as_slice());
        let is_child = before.was_there
            && parent == Some(before.comm.as_slice())
            && self.is_recorder(&before.comm);
        is_named.then_some(!is_child)
    }
}

/// The search for the command of a recording while that is read; clones are of one search.
#[derive(Clone, Debug)]
pub struct CommandWatch(Arc<Mutex<WatchedSearch>>);

#[derive(Debug)]
struct WatchedSearch {
    search: CommandSearch,
    certain: Option<RecordedCommand>,
}

impl CommandWatch {
    fn lock(&self) -> MutexGuard<'_, WatchedSearch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn record(&self, entry: &Entry<'_>) {
        if !matches!(entry.raw.kind, RecordKind::FORK | RecordKind::COMM) {
            return;
        }
        let watched = &mut *self.lock();
        if watched.certain.is_none()
            && let Ok(Some(record)) = Sideband::parse(&entry.raw)
        {
            watched.certain = watched.search.record(&record, entry.time);
        }
    }

    /// The command, as far as the records that were read tell: one that is certain takes the
    /// place of one of its name.
    pub fn found(&self) -> Option<RecordedCommand> {
        let watched = self.lock();
        watched.certain.or(watched.search.by_name)
    }
}

impl EventSource {
    /// Has the command that a perf.data was recorded of found by the next reading;
    /// `child`: its process, where it is known. Of other recordings no command is known.
    pub fn watch_command(&self, child: Option<u32>) -> Option<CommandWatch> {
        if self.perf_count() != 1 || self.is_piped() {
            return None;
        }
        let words = self.perf(0).map(|data| data.features().cmdline.clone());
        let search = CommandSearch::new(child, &words.unwrap_or_default());
        let watch = CommandWatch(Arc::new(Mutex::new(WatchedSearch { search, certain: None })));
        *self.command.lock().unwrap_or_else(PoisonError::into_inner) = Some(watch.clone());
        Some(watch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kymo_model::{Comm, Task};

    fn fork(search: &mut CommandSearch, pid: u32, ppid: u32, time: u64) {
        let task = Task { pid, ppid, tid: pid, ptid: ppid, time };
        assert_eq!(search.record(&Sideband::Fork(task), Some(time)), None);
    }

    fn comm(
        search: &mut CommandSearch,
        pid: u32,
        name: &str,
        exec_at: Option<u64>,
    ) -> Option<RecordedCommand> {
        let comm = Comm { pid, tid: pid, comm: name.as_bytes(), exec: exec_at.is_some() };
        search.record(&Sideband::Comm(comm), Some(exec_at.unwrap_or(0)))
    }

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_command_is_the_child_of_the_recorder_and_no_process_of_its_name() {
        let mut search = CommandSearch::new(None, &words("kymo why record -- ./w 100"));
        comm(&mut search, 5, "w", None);
        comm(&mut search, 9, "kymo", None);
        fork(&mut search, 10, 9, 0);
        comm(&mut search, 10, "kymo", None);
        comm(&mut search, 6, "bash", None);
        // Another user's shell starts the same program first.
        fork(&mut search, 11, 6, 3);
        assert_eq!(comm(&mut search, 11, "w", Some(4)), None);
        assert_eq!(comm(&mut search, 12, "env", Some(5)), None);
        let found = RecordedCommand { recorder: Some(9), tid: 10, began: 6, is_by_name: false };
        assert_eq!(comm(&mut search, 10, "w", Some(6)), Some(found));
    }

    #[test]
    fn perfs_child_is_known_by_its_name_and_others_are_in_doubt() {
        let mut search = CommandSearch::new(None, &words("/usr/bin/perf record -a env sleep 1"));
        comm(&mut search, 10, "perf-exec", None);
        let found = RecordedCommand { recorder: None, tid: 10, began: 6, is_by_name: false };
        assert_eq!(comm(&mut search, 10, "env", Some(6)), Some(found));

        let mut search = CommandSearch::new(None, &words("recorder sleep"));
        assert_eq!(comm(&mut search, 10, "sleep", Some(6)), None);
        let found = RecordedCommand { recorder: None, tid: 10, began: 6, is_by_name: true };
        assert_eq!(search.by_name, Some(found));
        // The caller knows better.
        let mut search = CommandSearch::new(Some(12), &[]);
        assert_eq!(comm(&mut search, 10, "sleep", Some(6)), None);
        let found = RecordedCommand { recorder: None, tid: 12, began: 7, is_by_name: false };
        assert_eq!(comm(&mut search, 12, "any", Some(7)), Some(found));
    }
}
