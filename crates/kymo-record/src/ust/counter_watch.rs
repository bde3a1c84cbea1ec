//! Counters of all programs there are and those that come, added up: what they have come to, or
//! what has come since the watch began. While it lives, programs that end in order leave their
//! counters behind for it; those are removed when they were read.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use kymo_kernel::shared::SharedFile;
use kymo_ust::{CountedUnder, CounterRecord, CounterRow, CounterTotals, CountersHeader, matches};

use super::counters::{COUNTING, CounterFile, ProgramCounter};
use super::error::{Notes, UstError};
use super::mount_namespace::{MountNamespace, UserDirectory};
use super::program::{Program, ProgramId};

/// Most directories of one user that are looked at.
const MAX_PROGRAMS: usize = 4096;

/// Selection of counters and programs, and the grouping of the counts.
#[derive(Clone, Debug, Default)]
pub struct CounterChoice {
    /// Patterns of their names; none: all.
    pub patterns: Vec<String>,
    /// Only this process.
    pub pid: Option<u32>,
    /// Only this process and what descends from it.
    pub command: Option<u32>,
    /// Counters of each process by themselves.
    pub by_pid: bool,
    /// Counters by the names of processes.
    pub by_comm: bool,
    /// Count from the start of the watch, with programs that end meanwhile; otherwise from the
    /// start of the programs.
    pub since_now: bool,
}

/// Number of programs with chosen counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedPrograms {
    /// All of them.
    pub all: usize,
    /// Those that have ended.
    pub ended: usize,
}

/// Adds up counters of programs, for as long as it lives.
#[derive(Debug)]
pub struct CounterWatch {
    choice: CounterChoice,
    places: Vec<WatchedUser>,
    /// Name of the files that announce a counting tool.
    name: OsString,
    /// The first look is not over.
    begins: bool,
    /// Totals of programs whose directories have been removed.
    gone: CounterTotals,
    gone_programs: usize,
    notes: Notes,
}

#[derive(Debug)]
struct WatchedUser {
    user: UserDirectory,
    mark: Option<SharedFile>,
    programs: BTreeMap<ProgramId, WatchedProgram>,
    /// Those that have ended and were added up, or are nothing to us.
    done: BTreeSet<ProgramId>,
    /// Programs that another tool still counts.
    left: BTreeSet<ProgramId>,
}

#[derive(Debug)]
struct WatchedProgram {
    program: Program,
    is_alive: bool,
    /// Totals when the watch started.
    base: CounterTotals,
    last: CounterTotals,
}

/// Result of reading a program's counters.
enum CounterLook {
    /// It runs, or was killed.
    There,
    /// It ended in order: this was the last.
    Ended,
    /// It had ended before, and left its counters for others who counted.
    LeftOver,
    /// It is not chosen.
    Unwanted,
}

impl CounterWatch {
    /// Looks at the programs that there are. With [`CounterChoice::since_now`] it announces to
    /// programs that they are counted; those that come from now on count from their start.
    ///
    /// # Errors
    /// If no directory can be written to.
    pub fn start(
        namespaces: &[MountNamespace],
        choice: CounterChoice,
    ) -> Result<CounterWatch, UstError> {
        let mut random = [0; 4];
        let _ = kymo_kernel::system::random(&mut random);
        let name = format!("{}-{:08x}", std::process::id(), u32::from_le_bytes(random));
        let mut watch = CounterWatch {
            choice,
            places: Vec::new(),
            name: name.into(),
            begins: true,
            gone: CounterTotals::default(),
            gone_programs: 0,
            notes: Notes::default(),
        };
        for namespace in namespaces {
            watch.add_users(namespace)?;
        }
        watch.look();
        watch.begins = false;
        if watch.choice.since_now {
            for place in &mut watch.places {
                place.programs.values_mut().for_each(|p| p.base = p.last.clone());
            }
        }
        Ok(watch)
    }

    fn add_users(&mut self, namespace: &MountNamespace) -> Result<(), UstError> {
        let is_marked = self.choice.since_now;
        // Programs look for us where their directories are, and ours may be the first.
        if is_marked && namespace.is_here() {
            namespace.own()?;
        }
        let (users, refused) = namespace.users();
        refused.iter().for_each(|e| self.notes.push(e.to_string()));
        for user in users {
            let put_mark = || Ok(user.dir.make_dir(OsStr::new(COUNTING))?.put_held(&self.name)?);
            let mark = if is_marked { self.notes.of(put_mark()) } else { None };
            let (programs, done, left) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
            self.places.push(WatchedUser { user, mark, programs, done, left });
        }
        Ok(())
    }

    /// Looks at all programs again.
    pub fn look(&mut self) {
        for place in &mut self.places {
            let names = match place.user.dir.names(MAX_PROGRAMS) {
                Ok((names, _)) => names,
                Err(e) => {
                    self.notes.push(e.to_string());
                    continue;
                }
            };
            let there: BTreeSet<ProgramId> =
                names.iter().filter_map(|name| ProgramId::parse(name)).collect();
            place.done.retain(|id| there.contains(id));
            place.left.retain(|id| there.contains(id));
            let removed: Vec<ProgramId> =
                place.programs.keys().filter(|id| !there.contains(id)).cloned().collect();
            for program in removed.iter().filter_map(|id| place.programs.remove(id)) {
                self.gone_programs += usize::from(!program.last.is_empty());
                self.gone.add_all(program.grown());
            }
            for id in there {
                place.add(id, &self.choice, &mut self.notes);
            }
            let mut looks = Vec::new();
            for (id, program) in &mut place.programs {
                let look = program.look(&self.choice, self.begins, &mut self.notes);
                match self.notes.of(look) {
                    Some(CounterLook::There) | None => {}
                    Some(look) => looks.push((id.clone(), look)),
                }
            }
            for (id, look) in looks {
                let Some(program) = place.programs.remove(&id) else { continue };
                if matches!(look, CounterLook::Ended) {
                    self.gone_programs += usize::from(!program.last.is_empty());
                    self.gone.add_all(program.grown());
                }
                if !matches!(look, CounterLook::Unwanted) {
                    // Another tool may count, too, or has removed it.
                    let removed = program.program.remove_counted(&place.user, Some(&self.name));
                    if let Ok(false) = removed {
                        place.left.insert(id.clone());
                    }
                }
                place.done.insert(id);
            }
        }
    }

    /// Returns the totals as of the last reading.
    pub fn totals(&self) -> CounterTotals {
        let mut totals = self.gone.clone();
        for program in self.programs() {
            totals.add_all(program.grown());
        }
        totals
    }

    /// Returns the numbers of programs with any of the counters.
    pub fn counted(&self) -> CountedPrograms {
        let there = || self.programs().filter(|p| !p.last.is_empty());
        CountedPrograms {
            all: there().count() + self.gone_programs,
            ended: there().filter(|p| !p.is_alive).count() + self.gone_programs,
        }
    }

    /// Notes about ignored input.
    pub fn notes(&self) -> Vec<String> {
        let cut = || format!("of more than {} keys the last are left out", CounterTotals::MOST);
        let cut = self.totals().is_cut().then(cut);
        self.notes.as_slice().iter().cloned().chain(cut).collect()
    }

    /// Forgets what programs have counted that were killed: removes their counters.
    pub fn forget_killed(&mut self) {
        for place in &mut self.places {
            let dead = place.programs.values().filter(|p| !p.is_alive);
            for program in dead {
                let _ = program.program.forget_counters(&place.user);
            }
        }
    }

    fn programs(&self) -> impl Iterator<Item = &WatchedProgram> {
        self.places.iter().flat_map(|place| place.programs.values())
    }
}

impl Drop for CounterWatch {
    fn drop(&mut self) {
        for place in &mut self.places {
            if place.mark.is_some()
                && let Ok(dir) = place.user.dir.dir(OsStr::new(COUNTING))
            {
                let _ = dir.remove(&self.name);
            }
            place.mark = None;
            // Who counts last removes them.
            for id in std::mem::take(&mut place.left) {
                if let Ok(Some(program)) = Program::open(&place.user, id) {
                    let _ = program.remove_if_empty(&place.user);
                }
            }
        }
    }
}

impl WatchedUser {
    fn add(&mut self, id: ProgramId, choice: &CounterChoice, notes: &mut Notes) {
        if self.programs.contains_key(&id) || self.done.contains(&id) {
            return;
        }
        if choice.pid.is_some_and(|pid| pid != id.pid) {
            self.done.insert(id);
            return;
        }
        if let Some(Some(program)) = notes.of(Program::open(&self.user, id.clone())) {
            let (base, last) = (CounterTotals::default(), CounterTotals::default());
            self.programs.insert(id, WatchedProgram { program, is_alive: true, base, last });
        }
    }
}

impl WatchedProgram {
    fn look(
        &mut self,
        choice: &CounterChoice,
        begins: bool,
        notes: &mut Notes,
    ) -> Result<CounterLook, UstError> {
        // Before it is read: what the dead have counted is all.
        self.is_alive = self.program.is_alive()?;
        let Some(file) = CounterFile::open(&self.program)? else {
            return Ok(CounterLook::There);
        };
        let header = file.header()?;
        if !is_chosen(choice, self.program.id(), &header) {
            return Ok(CounterLook::Unwanted);
        }
        let has_ended = header.ended && !self.is_alive;
        if has_ended && begins {
            return Ok(CounterLook::LeftOver);
        }
        if header.refused > 0 {
            notes.push(format!(
                "{} counters of process {} found no place",
                header.refused, header.pid
            ));
        }
        let wanted = |record: &CounterRecord| is_wanted(&choice.patterns, record);
        let (counters, damage) = file.read(&header, wanted)?;
        damage.iter().for_each(|e| notes.push(e.to_string()));
        self.last = self.rows(counters, choice);
        Ok(if has_ended { CounterLook::Ended } else { CounterLook::There })
    }

    fn rows(&self, counters: Vec<ProgramCounter>, choice: &CounterChoice) -> CounterTotals {
        let pid = choice.by_pid.then_some(self.program.id().pid);
        let comm = choice.by_comm.then(|| self.program.comm());
        let mut rows = CounterTotals::default();
        for ProgramCounter { record, value, keys } in counters {
            let name = format!("{}:{}", record.provider, record.name);
            let row = |under| CounterRow {
                name: name.clone(),
                kind: record.kind,
                pid,
                comm: comm.clone(),
                under,
            };
            let keys = keys.into_iter().map(|(key, value)| (CountedUnder::Key(key), value));
            let alone = match record.keyed {
                true if value.count() == 0 => None,
                true => Some((CountedUnder::OtherKeys, value)),
                false => Some((CountedUnder::Nothing, value)),
            };
            keys.chain(alone).for_each(|(under, value)| rows.add(row(under), value));
        }
        rows
    }

    /// Returns the increase since the watch started.
    fn grown(&self) -> CounterTotals {
        self.last.since(&self.base)
    }
}

fn is_chosen(choice: &CounterChoice, id: &ProgramId, header: &CountersHeader) -> bool {
    choice.command.is_none_or(|pid| pid == id.pid || header.ancestors.contains(&pid))
}

fn is_wanted(patterns: &[String], record: &CounterRecord) -> bool {
    let name = format!("{}:{}", record.provider, record.name);
    patterns.is_empty() || patterns.iter().any(|p| matches(p.as_bytes(), name.as_bytes()))
}
