//! A trace directory's files: reading, writing, and telling why not.
//!
//! tracefs files take one write(2) for one command, and opening one with
//! O_TRUNC may already change it (`set_event` forgets its events, `trigger` its
//! triggers). So there are two verbs: [`TraceDir::set`] replaces, and
//! [`TraceDir::add`] leaves what is there.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::error::{self, FtraceError, Refusal};
use super::error_log;
use crate::tracefs::{Tracefs, TracefsError};

/// The tree's top or one of its instances.
#[derive(Clone, Debug)]
pub struct TraceDir {
    tracefs: Tracefs,
    tree: Tracefs,
    name: Option<String>,
}

impl TraceDir {
    /// The tree's top, which belongs to the user.
    pub fn top(tracefs: &Tracefs) -> TraceDir {
        TraceDir { tracefs: tracefs.clone(), tree: tracefs.clone(), name: None }
    }

    /// The instance called `name`, which is not looked at yet.
    pub fn named(tracefs: &Tracefs, name: &str) -> TraceDir {
        TraceDir {
            tracefs: tracefs.clone(),
            tree: Tracefs::at(tracefs.path("instances").join(name)),
            name: Some(name.to_owned()),
        }
    }

    /// An existing instance.
    pub fn open(tracefs: &Tracefs, name: &str) -> Result<TraceDir, FtraceError> {
        let all = TraceDir::instances(tracefs)?;
        if all.iter().any(|n| n == name) {
            return Ok(TraceDir::named(tracefs, name));
        }
        let why = if all.is_empty() {
            "there are no instances".to_owned()
        } else {
            format!("the instances are {}", all.join(", "))
        };
        Err(FtraceError::Lacking { path: tracefs.path("instances").join(name), why })
    }

    /// Names of all instances, sorted.
    pub fn instances(tracefs: &Tracefs) -> Result<Vec<String>, FtraceError> {
        let path = tracefs.path("instances");
        let entries = std::fs::read_dir(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => {
                FtraceError::Lacking { path: path.clone(), why: error::lacking("instances") }
            }
            _ => FtraceError::Tracefs(TracefsError::Io { path: path.clone(), error: source }),
        })?;
        let mut names: Vec<String> =
            entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Its name below `instances`; the top has none.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Its directory.
    pub fn root(&self) -> &Path {
        self.tree.root()
    }

    /// The directory as a tree of its own, for reading events, ids and formats.
    pub fn tree(&self) -> &Tracefs {
        &self.tree
    }

    /// The tree it belongs to.
    pub fn tracefs(&self) -> &Tracefs {
        &self.tracefs
    }

    /// A path below the directory.
    pub fn path(&self, file: &str) -> PathBuf {
        self.tree.path(file)
    }

    /// Whether the kernel has this file.
    pub fn has(&self, file: &str) -> bool {
        self.path(file).exists()
    }

    /// The text of a file.
    pub fn read(&self, file: &str) -> Result<String, FtraceError> {
        self.tree.read(file).map_err(|e| match e {
            TracefsError::Io { path, error } if error.kind() == io::ErrorKind::NotFound => {
                FtraceError::Lacking { path, why: error::lacking(file) }
            }
            e => e.into(),
        })
    }

    /// A file's text as a number.
    pub(super) fn read_number(&self, file: &str) -> Result<u64, FtraceError> {
        let text = self.read(file)?;
        // `1410 (expanded: 1408)` and the like start with the number.
        let word = text.split_whitespace().next().unwrap_or("");
        word.parse().map_err(|_| FtraceError::Unexpected {
            path: self.path(file),
            text: text.trim().chars().take(40).collect(),
            expected: "a number",
        })
    }

    /// Replaces a file's content.
    pub fn set(&self, file: &str, value: &str) -> Result<(), FtraceError> {
        self.write(file, value, OpenOptions::new().write(true).truncate(true))
    }

    /// Adds to a file's content.
    pub fn add(&self, file: &str, value: &str) -> Result<(), FtraceError> {
        self.write(file, value, OpenOptions::new().append(true))
    }

    fn write(&self, file: &str, value: &str, how: &OpenOptions) -> Result<(), FtraceError> {
        let path = self.path(file);
        let written = how.open(&path).and_then(|mut f| f.write_all(value.as_bytes()));
        written.map_err(|source| self.refused(path, file, value, source))
    }

    fn refused(&self, path: PathBuf, file: &str, value: &str, source: io::Error) -> FtraceError {
        if source.kind() == io::ErrorKind::NotFound && !path.exists() {
            let why = if file.starts_with("events/") {
                "the event is gone".to_owned()
            } else {
                error::lacking(file)
            };
            return FtraceError::Lacking { path, why };
        }
        // The log speaks of the values, not of who may write them.
        let complaint = (source.raw_os_error() == Some(libc::EINVAL)
            || source.raw_os_error() == Some(libc::ENOENT))
        .then(|| self.tree.read("error_log").ok())
        .flatten()
        .and_then(|log| error_log::about(&log, value));
        let fact = error::fact(&path, value, &source, self.tracefs.root());
        let value = value.trim().to_owned();
        FtraceError::Refused(Box::new(Refusal { path, value, source, fact, complaint }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_the_kernel_lacks_is_explained() {
        let root = tempfile::tempdir().unwrap();
        let dir = TraceDir::top(&Tracefs::at(root.path()));
        let e = dir.set("set_event_pid", "1").unwrap_err();
        assert!(
            e.to_string().ends_with("set_event_pid does not exist: it needs Linux 4.4 or later"),
            "{e}"
        );
        std::fs::write(root.path().join("buffer_size_kb"), "7 (expanded: 1408)\n").unwrap();
        assert_eq!(dir.read_number("buffer_size_kb").unwrap(), 7);
        let e = TraceDir::instances(dir.tracefs()).unwrap_err();
        assert!(matches!(e, FtraceError::Lacking { .. }), "{e}");
    }

    #[test]
    fn set_replaces_and_add_adds() {
        let root = tempfile::tempdir().unwrap();
        let dir = TraceDir::top(&Tracefs::at(root.path()));
        std::fs::write(root.path().join("set_event"), "").unwrap();
        dir.set("set_event", "a:b\n").unwrap();
        dir.add("set_event", "c:d\n").unwrap();
        assert_eq!(dir.read("set_event").unwrap(), "a:b\nc:d\n");
        dir.set("set_event", "").unwrap();
        assert_eq!(dir.read("set_event").unwrap(), "");
    }
}
