//! perf's build-id cache as a directory: where it is, and what lies where in it. What is put
//! there and taken away is for [`build_id_cache`](crate::build_id_cache).
//!
//! ```text
//! ~/.debug/.build-id/xx/yyyy…   symbolic link to ../../PATH/BUILDID
//! ~/.debug/PATH/BUILDID/elf     a copy of the binary; debug: its debug file;
//!                               probes: its USDT probes; kallsyms, vdso: of a kernel
//! ```

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kymo_model::BuildId;

/// The directory that the user chose for this run.
static CHOSEN: OnceLock<PathBuf> = OnceLock::new();

/// A build-id cache's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildIdDirectory {
    root: PathBuf,
}

impl BuildIdDirectory {
    /// The cache in this directory.
    pub fn at(root: impl Into<PathBuf>) -> BuildIdDirectory {
        BuildIdDirectory { root: root.into() }
    }

    /// The user's: the one chosen for this run, or `~/.debug`. `None` where there is no home
    /// directory, or `/dev/null` was chosen, which is perf's word for no cache.
    pub fn of_user() -> Option<BuildIdDirectory> {
        if let Some(chosen) = CHOSEN.get() {
            return (chosen != Path::new("/dev/null")).then(|| BuildIdDirectory::at(chosen));
        }
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
        Some(BuildIdDirectory::at(Path::new(&home).join(".debug")))
    }

    /// Chooses the user's directory for the rest of this run: what `buildid.dir` of perf's
    /// configuration, or `--buildid-dir` says. To be called before the first look at it.
    pub fn choose(root: PathBuf) {
        // The first caller has it from the command line.
        let _ = CHOSEN.set(root);
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Path of the link by build-id. `None` of an id too short to be split.
    pub fn link(&self, id: BuildId) -> Option<PathBuf> {
        let hex = id.to_string();
        let (head, tail) = hex.split_at_checked(2)?;
        (!tail.is_empty()).then(|| self.links().join(head).join(tail))
    }

    /// Path of a file of the binary with this build-id.
    pub(crate) fn file(&self, id: BuildId, name: &str) -> Option<PathBuf> {
        Some(self.link(id)?.join(name))
    }

    /// Directory of all links.
    pub(crate) fn links(&self) -> PathBuf {
        self.root.join(".build-id")
    }

    /// Directory of all builds of a binary.
    pub(crate) fn builds_of(&self, binary: &Path) -> PathBuf {
        self.root.join(binary.strip_prefix("/").unwrap_or(binary))
    }

    /// Directory of the files of one build of a binary.
    pub(crate) fn files_of(&self, binary: &Path, id: BuildId) -> PathBuf {
        self.builds_of(binary).join(id.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_perf() {
        let directory = BuildIdDirectory::at("/c");
        let id = BuildId::new(&[0xab, 0xcd, 0x01]);
        assert_eq!(directory.link(id), Some("/c/.build-id/ab/cd01".into()));
        assert_eq!(directory.file(id, "elf"), Some("/c/.build-id/ab/cd01/elf".into()));
        assert_eq!(directory.link(BuildId::new(&[0xab])), None);
        assert_eq!(directory.files_of(Path::new("/bin/ls"), id), Path::new("/c/bin/ls/abcd01"));
        let kernel = Path::new("[kernel.kallsyms]");
        assert_eq!(directory.files_of(kernel, id), Path::new("/c/[kernel.kallsyms]/abcd01"));
    }
}
