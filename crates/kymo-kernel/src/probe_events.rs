//! `kprobe_events` and `uprobe_events`: definitions of probes are appended,
//! removed and read back, one line each.

use std::io::{self, Write as _};

use crate::tracefs::{DynamicEvent, Tracefs, TracefsError};

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
    #[error("the kernel refused {line:?}: {error}{}", reason.as_ref().map(|r| format!("\n{r}")).unwrap_or_default())]
    Refused {
        /// What was written.
        line: String,
        /// What write(2) said.
        error: io::Error,
        /// What the kernel's error log says, with its caret.
        reason: Option<String>,
    },
    /// One of several was refused, and what was added before it is still there.
    #[error("{error}; and {} could not be removed again", left.join(", "))]
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

impl ProbeFile {
    /// The file's name.
    pub fn name(self) -> &'static str {
        match self {
            ProbeFile::Kernel => "kprobe_events",
            ProbeFile::User => "uprobe_events",
        }
    }

    fn option(self) -> &'static str {
        match self {
            ProbeFile::Kernel => "CONFIG_KPROBE_EVENTS",
            ProbeFile::User => "CONFIG_UPROBE_EVENTS",
        }
    }
}

/// A line for one of the files, with what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeLine {
    /// The file.
    pub file: ProbeFile,
    /// The line.
    pub text: String,
    /// The event's group.
    pub group: String,
    /// Its name; several lines may be places of one event.
    pub event: String,
}

impl ProbeLine {
    /// Whether it removes an event.
    pub fn removes(&self) -> bool {
        self.text.starts_with('-')
    }
}

/// The events that lines add, each once.
pub fn events_of<'a>(
    lines: impl IntoIterator<Item = &'a ProbeLine>,
) -> Vec<(ProbeFile, &'a str, &'a str)> {
    let mut events: Vec<(ProbeFile, &str, &str)> = Vec::new();
    for line in lines {
        let event = (line.file, line.group.as_str(), line.event.as_str());
        if !line.removes() && !line.event.is_empty() && !events.contains(&event) {
            events.push(event);
        }
    }
    events
}

/// How often a probe was hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// How often it was recorded.
    pub hits: u64,
    /// How often it could not be, because the kernel was in a probe already; only
    /// of the kernel's probes.
    pub missed: Option<u64>,
}

/// A probe of the running kernel: one place of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The file that lists it.
    pub file: ProbeFile,
    /// Its event and definition.
    pub event: DynamicEvent,
    /// Its hits, if the kernel tells them.
    pub hits: Option<Hits>,
}

impl Tracefs {
    /// Whether the kernel takes such probes.
    pub fn takes(&self, file: ProbeFile) -> bool {
        self.path(file.name()).exists()
    }

    /// Hands one line to the kernel.
    pub fn write_probe(&self, file: ProbeFile, line: &str) -> Result<(), ProbeError> {
        let path = self.path(file.name());
        let before = self.error_log();
        let opened = std::fs::OpenOptions::new().append(true).open(path);
        // A line is taken whole or not at all: it goes in one write.
        let written = opened.and_then(|mut f| f.write_all(format!("{line}\n").as_bytes()));
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
                Err(ProbeError::Refused { line: line.to_owned(), error, reason })
            }
        }
    }

    /// Hands over all lines. What was taken before one was refused is removed
    /// again. Events without a name get the one that the kernel chose.
    pub fn write_probes(&self, lines: &mut [ProbeLine]) -> Result<(), ProbeError> {
        for n in 0..lines.len() {
            let Some(line) = lines.get_mut(n) else { break };
            let Err(error) = self.write_named(line) else { continue };
            let mut left = Vec::new();
            for (file, group, event) in events_of(lines.get(..n).unwrap_or_default()) {
                if self.remove_probe(file, group, event).is_err() {
                    left.push(format!("{group}:{event}"));
                }
            }
            return Err(match left.is_empty() {
                true => error,
                false => ProbeError::Left { error: Box::new(error), left },
            });
        }
        Ok(())
    }

    fn write_named(&self, line: &mut ProbeLine) -> Result<(), ProbeError> {
        if !line.event.is_empty() || line.removes() {
            return self.write_probe(line.file, &line.text);
        }
        let before = self.probe_lines(line.file)?;
        self.write_probe(line.file, &line.text)?;
        let after = self.probe_lines(line.file)?;
        let fresh = after.iter().rfind(|l| !before.contains(l));
        if let Some(event) = fresh.and_then(|l| DynamicEvent::parse(l)) {
            (line.group, line.event) = (event.system, event.name);
        }
        Ok(())
    }

    /// Removes one event.
    pub fn remove_probe(
        &self,
        file: ProbeFile,
        group: &str,
        event: &str,
    ) -> Result<(), ProbeError> {
        self.write_probe(file, &format!("-:{group}/{event}"))
    }

    /// The definitions as the kernel lists them.
    pub fn probe_lines(&self, file: ProbeFile) -> Result<Vec<String>, ProbeError> {
        match self.read(file.name()) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(e) => match self.takes(file) {
                false => Ok(Vec::new()),
                true => Err(e.into()),
            },
        }
    }

    /// All probes with their hits, the kernel's first.
    pub fn probes(&self) -> Result<Vec<Probe>, ProbeError> {
        let mut all = Vec::new();
        for file in [ProbeFile::Kernel, ProbeFile::User] {
            // Both files of a kind list places in the same order; a profile that
            // does not fit was read between two changes.
            let lines = self.probe_lines(file)?;
            let profile = self.profile(file);
            let fits = profile.len() == lines.len();
            for (n, line) in lines.iter().enumerate() {
                let Some(event) = DynamicEvent::parse(line) else { continue };
                let known = profile.get(n).filter(|(name, _)| fits && *name == event.name);
                all.push(Probe { file, event, hits: known.map(|(_, hits)| *hits) });
            }
        }
        Ok(all)
    }

    /// Event and hits, place by place.
    fn profile(&self, file: ProbeFile) -> Vec<(String, Hits)> {
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
            Some((words.next()?.to_owned(), Hits { hits, missed }))
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
        let folder = tempfile::tempdir().unwrap();
        let t = Tracefs::at(folder.path());
        assert!(!t.takes(ProbeFile::User));
        assert!(t.probe_lines(ProbeFile::Kernel).unwrap().is_empty());
        let e = t.write_probe(ProbeFile::Kernel, "p x").unwrap_err();
        assert!(e.to_string().contains("CONFIG_KPROBE_EVENTS"), "{e}");
    }

    #[test]
    fn lines_are_appended_and_hits_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let t = Tracefs::at(folder.path());
        std::fs::write(folder.path().join("uprobe_events"), "p:a/b /bin/sh:0x10\n").unwrap();
        t.remove_probe(ProbeFile::User, "a", "b").unwrap();
        assert_eq!(t.probe_lines(ProbeFile::User).unwrap(), ["p:a/b /bin/sh:0x10", "-:a/b"]);
        let log = "[ 1.0] a: error: x\n  Command: y\n    ^\n[ 2.0] trace_uprobe: error: Bad\n  Command: p z\n     ^\n";
        assert_eq!(
            last_entry(log).unwrap(),
            "[ 2.0] trace_uprobe: error: Bad\n  Command: p z\n     ^"
        );
    }

    #[test]
    fn hits_belong_to_places() {
        let folder = tempfile::tempdir().unwrap();
        let t = Tracefs::at(folder.path());
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
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
