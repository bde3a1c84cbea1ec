//! Probes for a while: added for one run, removed with their guard, and found again
//! when the guard never ran. A note under `/run/kymo/probes` says which they are; its
//! name says whose. It is written before the first is added, and completed with the
//! kernel's own words for them, so that nothing is removed that only has the name.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::ftrace::Owner;
use crate::probe_events::{ProbeError, ProbeFile, ProbeLine, events_of};
use crate::tracefs::{DynamicEvent, Tracefs};

/// How often, and how long apart, removing a busy probe is tried: who just closed it
/// may keep it for a moment.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(10);

/// Why there are no probes for a while.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The note cannot be written.
    #[error(
        "cannot write {}, without which probes of a killed kymo would stay: {error}",
        path.display()
    )]
    Note {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The kernel refused one.
    #[error(transparent)]
    Probe(#[from] ProbeError),
}

/// Probes that are removed when this is dropped. Close what uses them first.
#[derive(Debug)]
pub struct ProbeGuard {
    tracefs: Tracefs,
    lines: Vec<ProbeLine>,
    note: PathBuf,
}

/// A probe whose owner is dead, which was removed or could not be.
#[derive(Debug)]
pub struct StaleProbe {
    /// `group:event`.
    pub name: String,
    /// The process that added it.
    pub pid: u32,
    /// Why it is still there, if it is.
    pub error: Option<ProbeError>,
}

impl ProbeGuard {
    /// Adds all of `lines`, or none.
    pub fn add(tracefs: &Tracefs, lines: Vec<ProbeLine>) -> Result<ProbeGuard, GuardError> {
        ProbeGuard::add_in(&folder(), tracefs, lines)
    }

    fn add_in(
        folder: &Path,
        tracefs: &Tracefs,
        mut lines: Vec<ProbeLine>,
    ) -> Result<ProbeGuard, GuardError> {
        let name = free_name(folder);
        let note = folder.join(name);
        let failed = |error| GuardError::Note { path: note.clone(), error };
        std::fs::create_dir_all(folder).map_err(failed)?;
        std::fs::write(&note, note_of(&lines, &[])).map_err(failed)?;
        if let Err(e) = tracefs.write_probes(&mut lines) {
            // Whatever could not be removed again is for the next start.
            if !matches!(e, ProbeError::Left { .. }) {
                let _ = std::fs::remove_file(&note);
            }
            return Err(e.into());
        }
        let guard = ProbeGuard { tracefs: tracefs.clone(), lines, note };
        let listed = listed(tracefs)?;
        std::fs::write(&guard.note, note_of(&guard.lines, &listed))
            .map_err(|error| GuardError::Note { path: guard.note.clone(), error })?;
        Ok(guard)
    }

    /// The events, as `group:event`, each once.
    pub fn events(&self) -> Vec<String> {
        events_of(&self.lines).iter().map(|(_, group, event)| format!("{group}:{event}")).collect()
    }

    /// Removes them and tells if that failed.
    pub fn remove(mut self) -> Result<(), ProbeError> {
        self.take_away()
    }

    fn take_away(&mut self) -> Result<(), ProbeError> {
        let lines = std::mem::take(&mut self.lines);
        if lines.is_empty() {
            return Ok(());
        }
        let mut result = Ok(());
        for (file, group, event) in events_of(&lines) {
            if let Err(e) = remove(&self.tracefs, file, group, event) {
                result = Err(e);
            }
        }
        if result.is_ok() {
            // What fails here is removed by the next start.
            let _ = std::fs::remove_file(&self.note);
        }
        result
    }

    /// Removes the probes of guards whose process is dead. Whoever calls this tells
    /// the user what was found.
    pub fn remove_stale(tracefs: &Tracefs) -> Vec<StaleProbe> {
        ProbeGuard::remove_stale_in(&folder(), tracefs)
    }

    fn remove_stale_in(folder: &Path, tracefs: &Tracefs) -> Vec<StaleProbe> {
        let this = Owner::this_process();
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(owner) = name.to_str().and_then(Owner::parse) else { continue };
            if owner.namespace != this.namespace || owner.alive() {
                continue;
            }
            let note = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let stale = stale(tracefs, &note, owner.pid);
            if stale.iter().all(|s| s.error.is_none()) {
                // Somebody else may have been faster.
                let _ = std::fs::remove_file(entry.path());
            }
            found.extend(stale);
        }
        found
    }
}

impl Drop for ProbeGuard {
    fn drop(&mut self) {
        // There is nobody to tell; the next start finds what is left.
        let _ = self.take_away();
    }
}

fn folder() -> PathBuf {
    PathBuf::from("/run/kymo/probes")
}

/// A guard of the same process may be there already.
fn free_name(folder: &Path) -> String {
    let prefix = Owner::this_process().prefix();
    (0u32..)
        .map(|n| format!("{prefix}-{n}"))
        .find(|name| !folder.join(name).exists())
        .unwrap_or(prefix)
}

fn remove(tracefs: &Tracefs, file: ProbeFile, group: &str, event: &str) -> Result<(), ProbeError> {
    let mut tries = 0;
    loop {
        match tracefs.remove_probe(file, group, event) {
            Err(ProbeError::Refused { error, .. })
                if error.raw_os_error() == Some(libc::EBUSY) && tries < TRIES =>
            {
                tries += 1;
                std::thread::sleep(PAUSE);
            }
            // Somebody else removed it.
            Err(ProbeError::Refused { error, .. })
                if error.raw_os_error() == Some(libc::ENOENT) =>
            {
                return Ok(());
            }
            other => return other,
        }
    }
}

/// Every probe as the kernel lists it.
fn listed(tracefs: &Tracefs) -> Result<Vec<(ProbeFile, String)>, ProbeError> {
    let mut all = Vec::new();
    for file in [ProbeFile::Kernel, ProbeFile::User] {
        all.extend(tracefs.probe_lines(file)?.into_iter().map(|line| (file, line)));
    }
    Ok(all)
}

/// A line for each event, or once they are there, for each place: file, group, event,
/// and the kernel's line.
fn note_of(lines: &[ProbeLine], listed: &[(ProbeFile, String)]) -> String {
    let mut note = String::new();
    for (file, group, event) in events_of(lines) {
        let same = |line: &str| {
            DynamicEvent::parse(line).is_some_and(|e| e.system == group && e.name == event)
        };
        let places: Vec<&str> =
            listed.iter().filter(|(f, l)| *f == file && same(l)).map(|(_, l)| l.as_str()).collect();
        let places = if places.is_empty() { vec![""] } else { places };
        for place in places {
            note.push_str(&format!("{}\t{group}\t{event}\t{place}\n", file.name()));
        }
    }
    note
}

/// Removes what a note names and the kernel still has as it was.
fn stale(tracefs: &Tracefs, note: &str, pid: u32) -> Vec<StaleProbe> {
    let Ok(listed) = listed(tracefs) else { return Vec::new() };
    let mut found: Vec<StaleProbe> = Vec::new();
    for line in note.lines() {
        let mut words = line.splitn(4, '\t');
        let (Some(file), Some(group), Some(event)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let Some(file) =
            [ProbeFile::Kernel, ProbeFile::User].into_iter().find(|f| f.name() == file)
        else {
            continue;
        };
        let place = words.next().unwrap_or_default();
        let is_it = |line: &str| match place {
            "" => DynamicEvent::parse(line).is_some_and(|e| e.system == group && e.name == event),
            place => line == place,
        };
        let name = format!("{group}:{event}");
        let there = listed.iter().any(|(f, l)| *f == file && is_it(l));
        if there && !found.iter().any(|s| s.name == name) {
            let error = remove(tracefs, file, group, event).err();
            found.push(StaleProbe { name, pid, error });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, event: &str) -> ProbeLine {
        let (file, group) = (ProbeFile::User, "g".to_owned());
        ProbeLine { file, text: text.to_owned(), group, event: event.to_owned() }
    }

    /// A tree in which the kernel takes every line and lists it as it is.
    fn tree() -> (tempfile::TempDir, Tracefs, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("uprobe_events"), "").unwrap();
        let tracefs = Tracefs::at(root.path());
        let notes = root.path().join("notes");
        (root, tracefs, notes)
    }

    #[test]
    fn probes_go_with_their_guard() {
        let (_root, tracefs, notes) = tree();
        let lines = vec![line("p:g/a /b:0x1", "a"), line("p:g/a /b:0x2", "a")];
        let guard = ProbeGuard::add_in(&notes, &tracefs, lines).unwrap();
        assert_eq!(guard.events(), ["g:a"]);
        assert_eq!(std::fs::read_dir(&notes).unwrap().count(), 1);
        // Its owner lives.
        assert!(ProbeGuard::remove_stale_in(&notes, &tracefs).is_empty());
        guard.remove().unwrap();
        assert_eq!(
            tracefs.probe_lines(ProbeFile::User).unwrap(),
            ["p:g/a /b:0x1", "p:g/a /b:0x2", "-:g/a"]
        );
        assert_eq!(std::fs::read_dir(&notes).unwrap().count(), 0);
    }

    #[test]
    fn only_what_the_dead_added_is_removed() {
        let (root, tracefs, notes) = tree();
        std::fs::create_dir(&notes).unwrap();
        let me = Owner::this_process();
        let dead = Owner { pid: i32::MAX as u32, ..me };
        let name = notes.join(format!("{}-0", dead.prefix()));
        std::fs::write(
            &name,
            "uprobe_events\tg\ta\tp:g/a /b:0x1\nuprobe_events\tg\tb\tp:g/b /b:0x1\nnonsense\n",
        )
        .unwrap();
        // Somebody made an event of the same name at another place.
        std::fs::write(root.path().join("uprobe_events"), "p:g/a /b:0x1\np:g/b /b:0x7\n").unwrap();
        let found = ProbeGuard::remove_stale_in(&notes, &tracefs);
        let names: Vec<&str> = found.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["g:a"]);
        assert!(!name.exists());
        let lines = tracefs.probe_lines(ProbeFile::User).unwrap();
        assert_eq!(lines, ["p:g/a /b:0x1", "p:g/b /b:0x7", "-:g/a"]);
    }
}
