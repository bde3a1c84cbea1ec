//! Files that probes of programs were put into. The kernel keeps the file that a probe was added
//! to, even when another one takes its name (an update of the package), without reporting it; so
//! the identity of the file is stored when a probe is added, under `/run/kymo/probes`, where it
//! lasts as long as the kernel's probes do.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use kymo_model::probe::{ProbeDefinition, ProbeTarget};

use crate::probe_events::{ListedProbe, ProbeError, ProbeFile};
use crate::tracefs::Tracefs;

/// Notes by the kernel's own lines.
#[derive(Clone, Debug, Default)]
pub struct ProbeNotes(Vec<(String, String)>);

impl ProbeNotes {
    /// Those of this machine.
    pub fn load() -> ProbeNotes {
        ProbeNotes::load_from(&notes_file())
    }

    fn load_from(path: &Path) -> ProbeNotes {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let one = |line: &str| {
            let (identity, line) = line.split_once('\t')?;
            Some((line.to_owned(), identity.to_owned()))
        };
        ProbeNotes(text.lines().filter_map(one).collect())
    }

    /// Notes what the files of all probes are that are not noted yet, and forgets
    /// probes that are gone.
    pub fn renew(tracefs: &Tracefs) -> Result<(), ProbeError> {
        let listed = tracefs.probe_lines(ProbeFile::User)?;
        // Without the note it cannot be said later; the probe is there all the same.
        let _ = ProbeNotes::renew_in(&notes_file(), &listed);
        Ok(())
    }

    fn renew_in(path: &Path, listed: &[String]) -> io::Result<()> {
        let old = ProbeNotes::load_from(path);
        let mut text = String::new();
        for line in listed {
            let known = old.identity(line).map(str::to_owned);
            if let Some(identity) = known.or_else(|| identity(&file_of(line)?)) {
                text.push_str(&format!("{identity}\t{line}\n"));
            }
        }
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let fresh = path.with_extension(format!("new-{}", std::process::id()));
        std::fs::write(&fresh, text)?;
        std::fs::rename(fresh, path)
    }

    fn identity(&self, line: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == line).map(|(_, identity)| identity.as_str())
    }

    /// Whether the file that a probe was put into is no longer the one of that name.
    /// `None`: it is not known.
    pub fn replaced(&self, probe: &ListedProbe) -> Option<bool> {
        let then = self.identity(&probe.line)?;
        let ProbeTarget::File { path, .. } = &probe.definition.target else { return None };
        Some(identity(path).as_deref() != Some(then))
    }
}

fn notes_file() -> PathBuf {
    PathBuf::from("/run/kymo/probes/files")
}

/// The file of a line `p:group/event /path:0x12 …`.
fn file_of(line: &str) -> Option<String> {
    match ProbeDefinition::parse(line)?.target {
        ProbeTarget::File { path, .. } => Some(path),
        _ => None,
    }
}

/// Device, inode, size and time of the last change of the content.
fn identity(path: &str) -> Option<String> {
    let about = std::fs::metadata(path).ok()?;
    let (seconds, nanos) = (about.mtime(), about.mtime_nsec());
    Some(format!("{}:{}:{}:{seconds}.{nanos:09}", about.dev(), about.ino(), about.size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("a program");
        let notes = directory.path().join("deep/files");
        std::fs::write(&program, "one").unwrap();
        let line = format!("p:g/e {}:0x0000000000001000 n=%di:s32", program.display());
        let event = ListedProbe::parse(ProbeFile::User, &line).unwrap();
        assert_eq!(ProbeNotes::load_from(&notes).replaced(&event), None);
        let listed = [line];
        ProbeNotes::renew_in(&notes, &listed).unwrap();
        assert_eq!(ProbeNotes::load_from(&notes).replaced(&event), Some(false));
        let other = directory.path().join("other");
        std::fs::write(&other, "two").unwrap();
        std::fs::rename(&other, &program).unwrap();
        assert_eq!(ProbeNotes::load_from(&notes).replaced(&event), Some(true));
        // What was noted once stays until the probe is gone.
        ProbeNotes::renew_in(&notes, &listed).unwrap();
        assert_eq!(ProbeNotes::load_from(&notes).replaced(&event), Some(true));
        ProbeNotes::renew_in(&notes, &[]).unwrap();
        assert_eq!(ProbeNotes::load_from(&notes).replaced(&event), None);
    }
}
