//! `kprobe_events` and `uprobe_events`: definitions of probes are appended,
//! removed and read back, one line each.

use std::io::{self, Write as _};

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
    #[error("the kernel refused {line:?}: {error}{}", reason.as_ref().map(|r| format!("\n{r}")).unwrap_or_default())]
    Refused {
        /// What was written.
        line: String,
        /// What write(2) said.
        error: io::Error,
        /// What the kernel's error log says, with its caret.
        reason: Option<String>,
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

/// Hits of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hits {
    /// Its event.
    pub event: String,
    /// How often it was recorded.
    pub hits: u64,
    /// How often it could not be, because the kernel was in a probe already.
    pub missed: Option<u64>,
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

    /// How often each probe was hit: of the kernel's also how often missed.
    pub fn probe_hits(&self, file: ProbeFile) -> Vec<Hits> {
        let (name, event, hits, missed) = match file {
            ProbeFile::Kernel => ("kprobe_profile", 0, 1, Some(2)),
            // The first word is the file.
            ProbeFile::User => ("uprobe_profile", 1, 2, None),
        };
        let Ok(text) = self.read(name) else { return Vec::new() };
        let parse = |line: &str| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            Some(Hits {
                event: (*words.get(event)?).to_owned(),
                hits: words.get(hits)?.parse().ok()?,
                missed: missed.and_then(|m| words.get(m)?.parse().ok()),
            })
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
        std::fs::write(folder.path().join("kprobe_profile"), "  vfs_read   12   3\n").unwrap();
        let hits = t.probe_hits(ProbeFile::Kernel);
        assert_eq!(hits, [Hits { event: "vfs_read".into(), hits: 12, missed: Some(3) }]);
        let log = "[ 1.0] a: error: x\n  Command: y\n    ^\n[ 2.0] trace_uprobe: error: Bad\n  Command: p z\n     ^\n";
        assert_eq!(
            last_entry(log).unwrap(),
            "[ 2.0] trace_uprobe: error: Bad\n  Command: p z\n     ^"
        );
    }
}
