//! Tasks of cgroups: which threads a recording saw in them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use kymo_kernel::blocked::BlockedThreads;
use kymo_model::{Note, NoteKind, counted};
use rustc_hash::FxHashMap;

use super::hand_off::EventConsumer;
use super::{EventSource, SourceError};
use crate::event::RecordedEvent;
use crate::selection::{EventSelection, SelectionError};

/// Threads that a note names at one place at most.
const MOST_NAMED: usize = 8;

/// Sightings of a thread.
#[derive(Clone, Copy, Default)]
struct SeenTask {
    within: bool,
    elsewhere: bool,
}

/// Looks at the cgroup of every sample.
struct CgroupFinder<'s> {
    cgroups: &'s EventSelection,
    /// By number; those whose paths no record has stated yet are checked again.
    wanted: FxHashMap<u64, bool>,
    tasks: FxHashMap<u32, SeenTask>,
}

impl EventConsumer for CgroupFinder<'_> {
    fn event(&mut self, event: &RecordedEvent<'_>) -> ControlFlow<()> {
        let (Some(id), Some(tid)) = (event.cgroup_id(), event.task().tid) else {
            return ControlFlow::Continue(());
        };
        let wanted = match self.wanted.get(&id) {
            Some(wanted) => *wanted,
            None => {
                let path = event.cgroup();
                let wanted = self.cgroups.wants_cgroup(path.as_deref());
                if path.is_some() {
                    self.wanted.insert(id, wanted);
                }
                wanted
            }
        };
        // The idle tasks have no cgroup.
        if tid != 0 {
            let seen = self.tasks.entry(tid).or_default();
            seen.within |= wanted;
            seen.elsewhere |= !wanted;
        }
        ControlFlow::Continue(())
    }
}

impl EventSource {
    /// Notes found before events were read for a result.
    pub(super) fn found_notes(&self) -> Vec<Note> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_counted = self.counts_blocked.load(Ordering::Relaxed);
        notes.extend(note_blocked(&self.blocked, is_counted));
        let selection = self.selection.lock().unwrap_or_else(PoisonError::into_inner).clone();
        notes.extend(selection.unmet_notes(|| self.extent()));
        notes
    }

    /// The threads that samples saw in cgroups, or in those below them; the numbers are in
    /// ascending order. Of threads that were elsewhere for a part of the time there is a note.
    ///
    /// # Errors
    /// If reading fails, or the recordings do not state cgroups.
    pub fn tasks_of_cgroups(&self, paths: &[String]) -> Result<Vec<u32>, SourceError> {
        let mut cgroups = EventSelection::default();
        cgroups.set_cgroups(paths)?;
        self.check(&cgroups)?;
        if self.is_piped() {
            let why = "--cgroup: the tasks of a cgroup are known only after reading everything: record into a file with --all-cgroups";
            return Err(SelectionError(why.to_owned()).into());
        }
        let (_, finders) =
            self.for_each_on_threads(&EventSelection::default(), || CgroupFinder {
                cgroups: &cgroups,
                wanted: FxHashMap::default(),
                tasks: FxHashMap::default(),
            })?;
        let mut tasks: FxHashMap<u32, SeenTask> = FxHashMap::default();
        for (tid, found) in finders.into_iter().flat_map(|f| f.tasks) {
            let seen = tasks.entry(tid).or_default();
            seen.within |= found.within;
            seen.elsewhere |= found.elsewhere;
        }
        let moved = tasks.values().filter(|t| t.within && t.elsewhere).count();
        if moved > 0 {
            let fact = format!(
                "{moved} threads were in {} for a part of the time: all of it counts",
                paths.join(",")
            );
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            notes.push(Note::choice(NoteKind::Events, fact, None));
        }
        let mut tids: Vec<u32> =
            tasks.into_iter().filter_map(|(tid, t)| t.within.then_some(tid)).collect();
        tids.sort_unstable();
        Ok(tids)
    }
}

/// Note on the selected threads without events: those that have not run since the start.
/// `is_counted`: the result has them as waits that have not ended.
pub fn note_blocked(blocked: &BlockedThreads, is_counted: bool) -> Option<Note> {
    let mut blocked = blocked.clone();
    blocked.retain_unmoved();
    let threads = blocked.threads();
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for thread in threads {
        let place = thread.function.as_deref().unwrap_or("a place that may not be read");
        places.entry(place).or_default().push(thread.tid.to_string());
    }
    let places = places.into_iter().map(|(place, tids)| {
        let shown = tids.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = if tids.len() > MOST_NAMED { ", …" } else { "" };
        format!("{place} ({shown}{more})")
    });
    let places = places.collect::<Vec<_>>().join(", ");
    let n = threads.len() as u64;
    let did = counted(n, "chosen thread was", "chosen threads were");
    if is_counted {
        let fact = format!("{did} blocked all the time: in {places}");
        return (n > 0).then(|| Note::choice(NoteKind::Scope, fact, None));
    }
    let fact = format!("{did} blocked all the time, without events and in no table: in {places}");
    let advice = "kymo trace -p shows the calls, kymo profile -p counts the time".to_owned();
    (n > 0).then(|| Note::doubt(NoteKind::Scope, fact, Some(advice)))
}
