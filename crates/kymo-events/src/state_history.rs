//! The state of tasks and mappings over a recording, for several threads.
//!
//! One thread reads records in the order of time and applies those that change the state
//! ([`StateTracker`]). It hands out batches of records with a [`StateMark`]; a worker on one
//! queries a [`StateReader`] for names and mappings as they were at each of its records. Readers
//! replay nothing: the history holds versions, and forgets those that no batch that is still worked
//! on can ask for.
//!
//! ```text
//!   records:   sample  COMM  sample  MMAP2  MMAP2  sample │ sample  FORK …
//!   moment:      0       1     1       2      3      3    │   3       4
//!   versions:          name                 mappings      │         name
//! ```

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};

use kymo_files::perfdata::{Batch, Entry, Features};
use kymo_model::{Misc, RawRecord, RecordKind};
use kymo_symbols::{Dso, RecordedFacts, Resolver};
use rustc_hash::FxHashMap;

use crate::address::CodeAddress;
use crate::state::{Located, MachineState, Maps};

/// Number of records that changed the state before a record.
type Moment = u64;

/// Whether records of a kind change the state of tasks, mappings or cgroups.
fn changes_state(kind: RecordKind) -> bool {
    names_tasks(kind)
        || [RecordKind::MMAP, RecordKind::MMAP2, RecordKind::KSYMBOL, RecordKind::CGROUP]
            .contains(&kind)
}

/// Whether records of a kind name tasks.
fn names_tasks(kind: RecordKind) -> bool {
    matches!(kind, RecordKind::COMM | RecordKind::FORK)
}

/// Versions of one value, each from a moment on. Most values have one.
#[derive(Debug)]
struct Versions<T> {
    first: (Moment, T),
    later: Vec<(Moment, T)>,
}

impl<T> Versions<T> {
    fn new(moment: Moment, value: T) -> Versions<T> {
        Versions { first: (moment, value), later: Vec::new() }
    }

    /// Adds a version; those that were replaced before the moment `oldest` are forgotten.
    fn push(&mut self, moment: Moment, value: T, oldest: Moment) {
        self.later.push((moment, value));
        let replaced = self.later.iter().take_while(|(from, _)| *from <= oldest).count();
        if let Some(last) = self.later.drain(..replaced).next_back() {
            self.first = last;
        }
    }

    fn at(&self, moment: Moment) -> Option<&T> {
        let later = self.later.iter().rev();
        later.chain([&self.first]).find(|(from, _)| *from <= moment).map(|(_, value)| value)
    }
}

/// Values that have versions, by key.
type VersionMap<K, T> = FxHashMap<K, Versions<T>>;

fn push_version<K: Hash + Eq, T>(
    map: &mut VersionMap<K, T>,
    key: K,
    (moment, oldest): (Moment, Moment),
    value: T,
) {
    match map.entry(key) {
        std::collections::hash_map::Entry::Occupied(mut known) => {
            known.get_mut().push(moment, value, oldest);
        }
        std::collections::hash_map::Entry::Vacant(place) => {
            place.insert(Versions::new(moment, value));
        }
    }
}

#[derive(Debug, Default)]
struct Tables {
    names: VersionMap<u32, Arc<str>>,
    spaces: VersionMap<u32, Arc<Maps>>,
    /// Under the key `()`.
    kernel: VersionMap<(), Arc<Maps>>,
    cgroups: VersionMap<u64, Arc<[u8]>>,
    binaries: Vec<Arc<Dso>>,
    recorded: Arc<RecordedFacts>,
}

/// Tables that trackers write and readers read.
#[derive(Debug, Default)]
struct History(RwLock<Tables>);

impl History {
    fn read(&self) -> RwLockReadGuard<'_, Tables> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State at the start of a batch. As long as it is held, the history keeps the versions that
/// records of the batch may ask for.
#[derive(Debug)]
pub struct StateMark {
    moment: Moment,
    /// Number of records that named tasks before.
    names: u64,
    _held: Arc<()>,
}

/// Applies records in the order of time.
#[derive(Debug)]
pub struct StateTracker {
    machine: MachineState,
    history: Arc<History>,
    moment: Moment,
    names: u64,
    /// Marks that may still be held, the oldest first.
    held: VecDeque<(Moment, Weak<()>)>,
    /// Processes whose mappings changed since they were entered in the history, and when.
    changed: Vec<u32>,
    adopted: bool,
}

impl StateTracker {
    /// A tracker that has seen no record.
    pub fn new(symbols: Resolver) -> StateTracker {
        let machine = MachineState::new(symbols);
        let history = History::default();
        let mut tracker = StateTracker {
            machine,
            history: Arc::new(history),
            moment: 0,
            names: 0,
            held: VecDeque::new(),
            changed: Vec::new(),
            adopted: false,
        };
        tracker.enter_name(0);
        tracker
    }

    /// A reader for a thread.
    pub fn reader(&self) -> StateReader {
        StateReader {
            symbols: self.machine.symbols.fork_for_thread(),
            history: Arc::clone(&self.history),
            moment: 0,
            names: 0,
            spaces: FxHashMap::default(),
            kernel: None,
        }
    }

    /// Applies the records of a batch and marks the state at its start, for the worker on it.
    pub fn apply(&mut self, batch: &Batch) -> StateMark {
        let held = Arc::new(());
        let mark = StateMark { moment: self.moment, names: self.names, _held: Arc::clone(&held) };
        while self.held.front().is_some_and(|(_, mark)| mark.strong_count() == 0) {
            self.held.pop_front();
        }
        self.held.push_back((self.moment, Arc::downgrade(&held)));
        drop(held);
        self.adopt(batch.features());
        let mut next = 0;
        for (place, entry) in batch.numbered_others() {
            // Mappings are entered when a sample may have looked at them, not one by one.
            if place > next {
                self.enter_spaces();
            }
            next = place + 1;
            self.apply_entry(&entry);
        }
        if next < batch.len() || batch.is_empty() {
            self.enter_spaces();
        }
        self.enter_binaries();
        mark
    }

    /// The state after the last record.
    pub fn into_machine(self) -> MachineState {
        self.machine
    }

    fn adopt(&mut self, features: &Features) {
        if !std::mem::replace(&mut self.adopted, true) {
            self.machine.adopt(features);
        }
    }

    fn apply_entry(&mut self, entry: &Entry<'_>) {
        let kind = entry.raw.kind;
        // A pipe has them spread among its records.
        if [RecordKind::HEADER_BUILD_ID, RecordKind::HEADER_FEATURE].contains(&kind) {
            self.adopted = false;
            self.adopt(entry.features);
        }
        if !changes_state(kind) {
            return;
        }
        self.moment += 1;
        self.names += u64::from(names_tasks(kind));
        let change = self.machine.apply(&entry.raw);
        if kind == RecordKind::CGROUP {
            self.enter_cgroup(&entry.raw);
        }
        if let Some(tid) = change.task {
            self.enter_name(tid);
        }
        if let Some(pid) = change.space
            && !self.changed.contains(&pid)
        {
            self.changed.push(pid);
        }
        if change.kernel {
            let (now, kernel) = (self.now(), self.machine.kernel());
            push_version(&mut self.write().kernel, (), now, kernel);
        }
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Tables> {
        self.history.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Current moment, and the oldest that a reader may still query.
    fn now(&self) -> (Moment, Moment) {
        (self.moment, self.held.front().map_or(self.moment, |(moment, _)| *moment))
    }

    fn enter_name(&mut self, tid: u32) {
        let name = self.machine.name_of(tid).and_then(|id| self.machine.comm_text(id));
        if let Some(name) = name.map(Arc::clone) {
            push_version(&mut self.write().names, tid, self.now(), name);
        }
    }

    fn enter_spaces(&mut self) {
        if self.changed.is_empty() {
            return;
        }
        let changed = std::mem::take(&mut self.changed);
        let now = self.now();
        let mut tables = self.write();
        for pid in changed {
            push_version(&mut tables.spaces, pid, now, self.machine.space(pid));
        }
    }

    /// The path of the cgroup that a record names.
    fn enter_cgroup(&mut self, record: &RawRecord<'_>) {
        let id = record.cursor().u64().ok();
        if let Some((id, path)) = id.and_then(|id| Some((id, self.machine.cgroup(id)?))) {
            push_version(&mut self.write().cgroups, id, self.now(), Arc::clone(path));
        }
    }

    fn enter_binaries(&mut self) {
        let symbols = &self.machine.symbols;
        let mut tables = self.write();
        let known = tables.binaries.len();
        tables.binaries.extend_from_slice(symbols.binaries_from(known));
        if !Arc::ptr_eq(&tables.recorded, symbols.recorded_facts()) {
            tables.recorded = Arc::clone(symbols.recorded_facts());
        }
    }
}

/// Answers what tasks and mappings were at the record that is worked on.
#[derive(Debug)]
pub struct StateReader {
    /// Binaries and their symbols.
    pub symbols: Resolver,
    history: Arc<History>,
    moment: Moment,
    names: u64,
    /// Mappings of processes at the moment.
    spaces: FxHashMap<u32, Arc<Maps>>,
    kernel: Option<Arc<Maps>>,
}

impl StateReader {
    /// A reader for another thread.
    pub fn fork_for_thread(&self) -> StateReader {
        StateReader {
            symbols: self.symbols.fork_for_thread(),
            history: Arc::clone(&self.history),
            moment: 0,
            names: 0,
            spaces: FxHashMap::default(),
            kernel: None,
        }
    }

    /// Moves to the start of a batch; returns whether tasks may have other names than at the record
    /// before.
    pub fn begin(&mut self, mark: &StateMark) -> bool {
        if self.moment != mark.moment {
            self.forget_maps();
        }
        let renamed = self.names != mark.names;
        (self.moment, self.names) = (mark.moment, mark.names);
        self.take_binaries();
        renamed
    }

    /// Goes behind a record that is no sample; answers whether it may have named tasks.
    pub fn pass(&mut self, kind: RecordKind) -> bool {
        if !changes_state(kind) {
            return false;
        }
        self.moment += 1;
        self.forget_maps();
        let renamed = names_tasks(kind);
        self.names += u64::from(renamed);
        renamed
    }

    fn forget_maps(&mut self) {
        self.spaces.clear();
        self.kernel = None;
    }

    fn take_binaries(&mut self) {
        let tables = self.history.read();
        self.symbols.take_binaries(&tables.binaries, &tables.recorded);
    }

    /// Name of a task, where the recording states it.
    pub fn task_name(&self, tid: u32) -> Option<Arc<str>> {
        self.history.read().names.get(&tid)?.at(self.moment).cloned()
    }

    /// Path of a cgroup.
    pub fn cgroup(&self, id: u64) -> Option<Arc<[u8]>> {
        self.history.read().cgroups.get(&id)?.at(self.moment).cloned()
    }

    /// Mappings of a process.
    pub fn space(&mut self, pid: u32) -> &Arc<Maps> {
        let (history, moment) = (&self.history, self.moment);
        self.spaces.entry(pid).or_insert_with(|| {
            let tables = history.read();
            tables.spaces.get(&pid).and_then(|v| v.at(moment)).cloned().unwrap_or_default()
        })
    }

    /// Mappings of the kernel.
    pub fn kernel_space(&mut self) -> &Arc<Maps> {
        let (history, moment) = (&self.history, self.moment);
        self.kernel.get_or_insert_with(|| {
            let tables = history.read();
            tables.kernel.get(&()).and_then(|v| v.at(moment)).cloned().unwrap_or_default()
        })
    }

    /// Numbers of the states that addresses of a process and of the kernel resolve in.
    pub fn generation(&mut self, pid: u32) -> (u64, u64) {
        (self.space(pid).generation, self.kernel_space().generation)
    }

    /// Binary and symbol of an address.
    pub fn locate(&mut self, pid: u32, ip: u64, cpumode: u16) -> Located {
        let at = CodeAddress::exact(ip);
        let mapping = match cpumode {
            Misc::KERNEL => self.kernel_space().find(at).copied(),
            Misc::USER => self.space(pid).find(at).copied(),
            _ => None,
        };
        Located::in_mapping(&mut self.symbols, mapping, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_answer_for_every_moment_that_is_held() {
        let mut v = Versions::new(3, 'a');
        v.push(5, 'b', 4);
        v.push(8, 'c', 4);
        assert_eq!(
            [2, 3, 4, 5, 7, 8, 99].map(|m| v.at(m).copied()),
            [None, Some('a'), Some('a'), Some('b'), Some('b'), Some('c'), Some('c')]
        );
        // No reader queries a moment before the sixth any more.
        v.push(9, 'd', 6);
        assert_eq!([6, 8, 9].map(|m| v.at(m).copied()), [Some('b'), Some('c'), Some('d')]);
        assert_eq!(v.first, (5, 'b'));
        assert_eq!(v.later.len(), 2);
    }
}
