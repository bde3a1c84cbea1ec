//! Probes for a while: added for one run, removed with their guard, and found again when the guard
//! never ran. A note under `/run/kymo/probes` lists them; its name identifies the owner. It is
//! written before the first is added, and completed with the kernel's own words for them, so that
//! nothing is removed that only has the name.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kymo_model::probe::ProbeDefinition;

use crate::ftrace::Owner;
use crate::probe_events::{ListedProbe, ProbeChange, ProbeError, ProbeFile, events_of};
use crate::tracefs::Tracefs;

/// Number of tries and the pause between them when a busy probe is removed: a process that just
/// closed it may keep it for a moment.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(10);

/// Why there are no probes for a while.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The note cannot be written.
    #[error(
        "cannot write {}, which is needed to remove the probes of a killed kymo: {error}; probes \
         need root",
        path.display()
    )]
    Note {
        /// Its path.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The kernel refused one.
    #[error(transparent)]
    Probe(#[from] ProbeError),
}

/// Held while names of new events are chosen and the events added: of two who find a name free at
/// the same time the second would be refused, or its probe become part of the first one's event.
#[derive(Debug)]
pub struct ProbeNamesLock(#[expect(dead_code, reason = "dropped, it is unlocked")] std::fs::File);

impl ProbeNamesLock {
    /// Waits for others, who hold it for as long as it takes to add their probes.
    pub fn take() -> Result<ProbeNamesLock, GuardError> {
        let (directory, path) = (notes_directory(), notes_directory().join("lock"));
        let failed = |error| GuardError::Note { path: path.clone(), error };
        std::fs::create_dir_all(directory).map_err(failed)?;
        let mut options = std::fs::OpenOptions::new();
        let file = options.create(true).append(true).open(&path).map_err(failed)?;
        file.lock().map_err(failed)?;
        Ok(ProbeNamesLock(file))
    }
}

/// Probes that are removed when this is dropped. Close what uses them first.
#[derive(Debug)]
pub struct ProbeGuard {
    tracefs: Tracefs,
    definitions: Vec<ProbeDefinition>,
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
    /// Adds all of `definitions`, or none.
    pub fn add(
        tracefs: &Tracefs,
        definitions: Vec<ProbeDefinition>,
    ) -> Result<ProbeGuard, GuardError> {
        ProbeGuard::add_in(&notes_directory(), tracefs, definitions)
    }

    fn add_in(
        directory: &Path,
        tracefs: &Tracefs,
        definitions: Vec<ProbeDefinition>,
    ) -> Result<ProbeGuard, GuardError> {
        let name = free_name(directory);
        let note = directory.join(name);
        let failed = |error| GuardError::Note { path: note.clone(), error };
        std::fs::create_dir_all(directory).map_err(failed)?;
        std::fs::write(&note, note_of(&definitions, &[])).map_err(failed)?;
        let mut changes: Vec<ProbeChange> = definitions.into_iter().map(ProbeChange::Add).collect();
        if let Err(e) = tracefs.write_probes(&mut changes) {
            // Whatever could not be removed again is for the next start.
            if !matches!(e, ProbeError::Left { .. }) {
                let _ = std::fs::remove_file(&note);
            }
            return Err(e.into());
        }
        // The kernel has named those without a name.
        let definitions = changes.iter().filter_map(ProbeChange::added).cloned().collect();
        let guard = ProbeGuard { tracefs: tracefs.clone(), definitions, note };
        let listed = listed(tracefs)?;
        std::fs::write(&guard.note, note_of(&guard.definitions, &listed))
            .map_err(|error| GuardError::Note { path: guard.note.clone(), error })?;
        Ok(guard)
    }

    /// The events, as `group:event`, each once.
    pub fn events(&self) -> Vec<String> {
        let events = events_of(&self.definitions);
        events.iter().map(|(_, group, event)| format!("{group}:{event}")).collect()
    }

    /// Removes them and reports if that failed.
    pub fn remove(mut self) -> Result<(), ProbeError> {
        self.take_away()
    }

    fn take_away(&mut self) -> Result<(), ProbeError> {
        let definitions = std::mem::take(&mut self.definitions);
        if definitions.is_empty() {
            return Ok(());
        }
        let mut result = Ok(());
        for (file, group, event) in events_of(&definitions) {
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

    /// Removes the probes of guards whose process is dead. The caller reports them to the user.
    pub fn remove_stale(tracefs: &Tracefs) -> Vec<StaleProbe> {
        ProbeGuard::remove_stale_in(&notes_directory(), tracefs)
    }

    fn remove_stale_in(directory: &Path, tracefs: &Tracefs) -> Vec<StaleProbe> {
        let this = Owner::this_process();
        let mut found = Vec::new();
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(owner) = name.to_str().and_then(Owner::parse) else { continue };
            if owner.namespace != this.namespace || owner.alive() {
                continue;
            }
            let note = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let stale = stale(tracefs, &note, owner.pid);
            if stale.iter().all(|s| s.error.is_none()) {
                // Another process may have been faster.
                let _ = std::fs::remove_file(entry.path());
            }
            found.extend(stale);
        }
        found
    }
}

impl Drop for ProbeGuard {
    fn drop(&mut self) {
        // The error cannot be reported; the next start finds what is left.
        let _ = self.take_away();
    }
}

fn notes_directory() -> PathBuf {
    PathBuf::from("/run/kymo/probes")
}

/// A guard of the same process may be there already.
fn free_name(directory: &Path) -> String {
    let prefix = Owner::this_process().prefix();
    (0u32..)
        .map(|n| format!("{prefix}-{n}"))
        .find(|name| !directory.join(name).exists())
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
            // Another process removed it.
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
fn listed(tracefs: &Tracefs) -> Result<Vec<ListedProbe>, ProbeError> {
    let mut all = Vec::new();
    for file in [ProbeFile::Kernel, ProbeFile::User] {
        let lines = tracefs.probe_lines(file)?;
        all.extend(lines.iter().filter_map(|line| ListedProbe::parse(file, line)));
    }
    Ok(all)
}

/// A line for each event, or once they are there, for each probe point: file, group,
/// event, and the kernel's line.
fn note_of(definitions: &[ProbeDefinition], listed: &[ListedProbe]) -> String {
    let mut note = String::new();
    for (file, group, event) in events_of(definitions) {
        let points = listed.iter().filter(|l| l.is_of(file, group, event));
        let mut lines: Vec<&str> = points.map(|l| l.line.as_str()).collect();
        if lines.is_empty() {
            lines.push("");
        }
        for line in lines {
            note.push_str(&format!("{}\t{group}\t{event}\t{line}\n", file.name()));
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
        let noted = words.next().unwrap_or_default();
        let is_it = |l: &ListedProbe| match noted {
            "" => l.is_of(file, group, event),
            noted => l.file == file && l.line == noted,
        };
        let name = format!("{group}:{event}");
        let there = listed.iter().any(is_it);
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
        let definitions = ["p:g/a /b:0x1", "p:g/a /b:0x2"];
        let definitions =
            definitions.iter().filter_map(|line| ProbeDefinition::parse(line)).collect();
        let guard = ProbeGuard::add_in(&notes, &tracefs, definitions).unwrap();
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
        // Another process made an event of equal name at another probe point.
        std::fs::write(root.path().join("uprobe_events"), "p:g/a /b:0x1\np:g/b /b:0x7\n").unwrap();
        let found = ProbeGuard::remove_stale_in(&notes, &tracefs);
        let names: Vec<&str> = found.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["g:a"]);
        assert!(!name.exists());
        let lines = tracefs.probe_lines(ProbeFile::User).unwrap();
        assert_eq!(lines, ["p:g/a /b:0x1", "p:g/b /b:0x7", "-:g/a"]);
    }
}
