//! `kprobe_events` and `uprobe_events`: typed definitions of probes are appended,
//! removed and read back, one line each.

use std::io::{self, Write as _};

use kymo_model::probe::ProbeDefinition;

use crate::tracefs::{Tracefs, TracefsError};

/// The file a definition belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeFile {
    /// Probes of the kernel and its modules.
    Kernel,
    /// Probes of programs and libraries.
    User,
}

/// Why a line was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kernel was built without it.
    #[error("this kernel has no {file}: it was built without {option}")]
    Unsupported {
        /// Name of the file.
        file: &'static str,
        /// Name of the kernel's option.
        option: &'static str,
    },
    /// Not allowed.
    #[error("no permission to write {file}; run as root")]
    Denied {
        /// Name of the file.
        file: &'static str,
    },
    /// The kernel refused it.
    #[error("the kernel refused {:?}: {error}{}{}", change.to_string(), reason.as_ref().map(|r| format!("\n{r}")).unwrap_or_default(), advice(reason.as_deref()))]
    Refused {
        /// The change.
        change: Box<ProbeChange>,
        /// Error of write(2).
        error: io::Error,
        /// Entry in the kernel's error log, with its caret.
        reason: Option<String>,
    },
    /// One of several was refused, and what was added before it is still there.
    #[error("{error}; and {} could not be removed", left.join(", "))]
    Left {
        /// Why one was refused.
        error: Box<ProbeError>,
        /// Events that are still there.
        left: Vec<String>,
    },
    /// The tree cannot be used.
    #[error(transparent)]
    Tracefs(#[from] TracefsError),
}

/// Advice where the kernel's message is short.
fn advice(reason: Option<&str>) -> &'static str {
    let is_of_text = reason.is_some_and(|r| r.contains("accepts only memory argument"));
    if is_of_text { "\n-> the text that a register points to is +0(%REG):string" } else { "" }
}

impl ProbeFile {
    /// The file that lists a probe.
    pub fn of(definition: &ProbeDefinition) -> ProbeFile {
        if definition.target.is_user() { ProbeFile::User } else { ProbeFile::Kernel }
    }

    /// The file's name.
    pub fn name(self) -> &'static str {
        match self {
            ProbeFile::Kernel => "kprobe_events",
            ProbeFile::User => "uprobe_events",
        }
    }

    /// Group that the kernel gives to events without one.
    pub fn default_group(self) -> &'static str {
        match self {
            ProbeFile::Kernel => "kprobes",
            ProbeFile::User => "uprobes",
        }
    }

    fn option(self) -> &'static str {
        match self {
            ProbeFile::Kernel => "CONFIG_KPROBE_EVENTS",
            ProbeFile::User => "CONFIG_UPROBE_EVENTS",
        }
    }
}

/// A change of the kernel's probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeChange {
    /// Adds a probe point; several may be of one event.
    Add(ProbeDefinition),
    /// Removes an event with all its probe points, or all events of a group.
    Remove {
        /// The file that lists it.
        file: ProbeFile,
        /// Its group; none where the kernel is to find it by its name alone.
        group: Option<String>,
        /// Its name; none for all of the group.
        event: Option<String>,
    },
}

impl ProbeChange {
    /// The file that the change is written to.
    pub fn file(&self) -> ProbeFile {
        match self {
            ProbeChange::Add(definition) => ProbeFile::of(definition),
            ProbeChange::Remove { file, .. } => *file,
        }
    }

    /// The definition that is added.
    pub fn added(&self) -> Option<&ProbeDefinition> {
        match self {
            ProbeChange::Add(definition) => Some(definition),
            ProbeChange::Remove { .. } => None,
        }
    }
}

impl std::fmt::Display for ProbeChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProbeChange::Add(definition) => definition.fmt(f),
            ProbeChange::Remove { group, event, .. } => {
                let event = event.as_deref().unwrap_or_default();
                match group {
                    Some(group) => write!(f, "-:{group}/{event}"),
                    None => write!(f, "-:{event}"),
                }
            }
        }
    }
}

/// The events of definitions, each once: file, group and name.
pub fn events_of<'a>(
    definitions: impl IntoIterator<Item = &'a ProbeDefinition>,
) -> Vec<(ProbeFile, &'a str, &'a str)> {
    let mut events: Vec<(ProbeFile, &str, &str)> = Vec::new();
    for definition in definitions {
        let Some(name) = definition.event.as_deref() else { continue };
        let event = (ProbeFile::of(definition), definition.group.as_str(), name);
        if !events.contains(&event) {
            events.push(event);
        }
    }
    events
}

/// Hit counts of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeHits {
    /// Recorded hits.
    pub hits: u64,
    /// Hits that were not recorded because the kernel was in a probe already; only of kernel
    /// probes.
    pub missed: Option<u64>,
}

/// A probe of the running kernel: one probe point of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedProbe {
    /// The file that lists it.
    pub file: ProbeFile,
    /// Its definition.
    pub definition: ProbeDefinition,
    /// Its definition as the kernel spells it.
    pub line: String,
    /// Its hits, if the kernel counts them.
    pub hits: Option<ProbeHits>,
}

impl ListedProbe {
    /// Reads a line of a file.
    pub fn parse(file: ProbeFile, line: &str) -> Option<ListedProbe> {
        let definition = ProbeDefinition::parse(line)?;
        Some(ListedProbe { file, definition, line: line.to_owned(), hits: None })
    }

    /// Name of the event; the kernel lists none without.
    pub fn event(&self) -> &str {
        self.definition.event.as_deref().unwrap_or_default()
    }

    /// Whether this is a probe point of an event.
    pub fn is_of(&self, file: ProbeFile, group: &str, event: &str) -> bool {
        self.file == file && self.definition.is_of(group, event)
    }
}

impl Tracefs {
    /// Whether the kernel takes such probes.
    pub fn takes(&self, file: ProbeFile) -> bool {
        self.path(file.name()).exists()
    }

    /// Hands one change to the kernel.
    pub fn write_probe(&self, change: &ProbeChange) -> Result<(), ProbeError> {
        let file = change.file();
        let path = self.path(file.name());
        let before = self.error_log();
        let opened = std::fs::OpenOptions::new().append(true).open(path);
        // A line is taken whole or not at all: it goes in one write.
        let written = opened.and_then(|mut f| f.write_all(format!("{change}\n").as_bytes()));
        let Err(error) = written else { return Ok(()) };
        match error.kind() {
            io::ErrorKind::NotFound if !self.takes(file) => {
                Err(ProbeError::Unsupported { file: file.name(), option: file.option() })
            }
            io::ErrorKind::PermissionDenied => Err(ProbeError::Denied { file: file.name() }),
            _ => {
                let reason = self
                    .error_log()
                    .filter(|new| before.as_ref() != Some(new))
                    .and_then(|log| last_entry(&log));
                Err(ProbeError::Refused { change: Box::new(change.clone()), error, reason })
            }
        }
    }

    /// Hands over all changes. What was added before one was refused is removed
    /// again. Events without a name get the one that the kernel chose.
    pub fn write_probes(&self, changes: &mut [ProbeChange]) -> Result<(), ProbeError> {
        for n in 0..changes.len() {
            let Some(change) = changes.get_mut(n) else { break };
            let Err(error) = self.write_named(change) else { continue };
            let mut left = Vec::new();
            let added = changes.get(..n).unwrap_or_default().iter().filter_map(ProbeChange::added);
            for (file, group, event) in events_of(added) {
                if self.remove_probe(file, group, event).is_err() {
                    left.push(format!("{group}:{event}"));
                }
            }
            return Err(if left.is_empty() {
                error
            } else {
                ProbeError::Left { error: Box::new(error), left }
            });
        }
        Ok(())
    }

    fn write_named(&self, change: &mut ProbeChange) -> Result<(), ProbeError> {
        let file = change.file();
        match change {
            ProbeChange::Add(definition) if definition.event.is_none() => {
                let before = self.probe_lines(file)?;
                self.write_probe(&ProbeChange::Add(definition.clone()))?;
                let after = self.probe_lines(file)?;
                let fresh = after.iter().rfind(|l| !before.contains(l));
                if let Some(listed) = fresh.and_then(|l| ProbeDefinition::parse(l)) {
                    (definition.group, definition.event) = (listed.group, listed.event);
                }
                Ok(())
            }
            change => self.write_probe(change),
        }
    }

    /// Removes one event.
    pub fn remove_probe(
        &self,
        file: ProbeFile,
        group: &str,
        event: &str,
    ) -> Result<(), ProbeError> {
        let (group, event) = (Some(group.to_owned()), Some(event.to_owned()));
        self.write_probe(&ProbeChange::Remove { file, group, event })
    }

    /// The definitions as the kernel spells them.
    pub fn probe_lines(&self, file: ProbeFile) -> Result<Vec<String>, ProbeError> {
        match self.read(file.name()) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(e) => {
                if self.takes(file) {
                    Err(e.into())
                } else {
                    Ok(Vec::new())
                }
            }
        }
    }

    /// All probes with their hits, the kernel's first.
    pub fn probes(&self) -> Result<Vec<ListedProbe>, ProbeError> {
        let mut all = Vec::new();
        for file in [ProbeFile::Kernel, ProbeFile::User] {
            // Both files of a kind list probe points in the same order; a profile that
            // does not fit was read between two changes.
            let lines = self.probe_lines(file)?;
            let profile = self.profile(file);
            let fits = profile.len() == lines.len();
            for (n, line) in lines.iter().enumerate() {
                let Some(listed) = ListedProbe::parse(file, line) else { continue };
                let known = profile.get(n).filter(|(name, _)| fits && *name == listed.event());
                let hits = known.map(|(_, hits)| *hits);
                all.push(ListedProbe { hits, ..listed });
            }
        }
        Ok(all)
    }

    /// Event and hits of each probe point.
    fn profile(&self, file: ProbeFile) -> Vec<(String, ProbeHits)> {
        let name = match file {
            ProbeFile::Kernel => "kprobe_profile",
            ProbeFile::User => "uprobe_profile",
        };
        let text = self.read(name).unwrap_or_default();
        let parse = |line: &str| {
            // A path, the first word of a program's line, may hold blanks.
            let mut words = line.split_ascii_whitespace().rev();
            let mut number = || words.next()?.parse().ok();
            let last: u64 = number()?;
            let (hits, missed) = match file {
                ProbeFile::Kernel => (number()?, Some(last)),
                ProbeFile::User => (last, None),
            };
            Some((words.next()?.to_owned(), ProbeHits { hits, missed }))
        };
        text.lines().filter_map(parse).collect()
    }

    fn error_log(&self) -> Option<String> {
        self.read("error_log").ok()
    }
}

/// The newest message of the error log: its text, the command and the caret.
fn last_entry(log: &str) -> Option<String> {
    let lines: Vec<&str> = log.lines().collect();
    let start = lines.iter().rposition(|l| l.starts_with('['))?;
    Some(lines.get(start..)?.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_without_probes_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let t = Tracefs::at(directory.path());
        assert!(!t.takes(ProbeFile::User));
        assert!(t.probe_lines(ProbeFile::Kernel).unwrap().is_empty());
        let definition = ProbeDefinition::parse("p x").unwrap();
        let e = t.write_probe(&ProbeChange::Add(definition)).unwrap_err();
        assert!(e.to_string().contains("CONFIG_KPROBE_EVENTS"), "{e}");
    }

    #[test]
    fn lines_are_appended_and_hits_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let t = Tracefs::at(directory.path());
        std::fs::write(directory.path().join("uprobe_events"), "p:a/b /bin/sh:0x10\n").unwrap();
        t.remove_probe(ProbeFile::User, "a", "b").unwrap();
        assert_eq!(t.probe_lines(ProbeFile::User).unwrap(), ["p:a/b /bin/sh:0x10", "-:a/b"]);
        let log = "[ 1.0] a: error: x\n  Command: y\n    ^\n[ 2.0] trace_uprobe: error: Bad\n  Command: p z\n     ^\n";
        assert_eq!(
            last_entry(log).unwrap(),
            "[ 2.0] trace_uprobe: error: Bad\n  Command: p z\n     ^"
        );
    }

    #[test]
    fn hits_belong_to_probe_points() {
        let directory = tempfile::tempdir().unwrap();
        let t = Tracefs::at(directory.path());
        let write =
            |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write("kprobe_events", "p:probe/vfs_read _text+12\nr:other/vfs_read vfs_read\n");
        write("kprobe_profile", "  vfs_read   12   3\n  vfs_read   5   0\n");
        write("uprobe_events", "p:a/b /bin/s h:0x10\n");
        write("uprobe_profile", "  /bin/s h  b   7\n");
        let hits = |t: &Tracefs| -> Vec<_> {
            t.probes().unwrap().iter().map(|p| p.hits.map(|h| (h.hits, h.missed))).collect()
        };
        assert_eq!(hits(&t), [Some((12, Some(3))), Some((5, Some(0))), Some((7, None))]);
        // Another probe came in between.
        write("kprobe_profile", "  x  1  1\n  vfs_read   12   3\n  vfs_read   5   0\n");
        assert_eq!(hits(&t), [None, None, Some((7, None))]);
    }
}
