//! Source files, whose paths are those of the machine that compiled them.

use std::path::{Path, PathBuf};

/// Search path of sources.
#[derive(Clone, Debug, Default)]
pub struct SourceDirectories {
    /// A directory with the sources (`-s`), before the recorded one.
    pub directory: Option<PathBuf>,
}

/// Larger files are no sources.
const LIMIT: u64 = 64 << 20;

impl SourceDirectories {
    /// The file on this machine.
    pub fn find(&self, path: &str, comp_dir: &str) -> Option<PathBuf> {
        // Paths of debugging information may hold the directory already, also where that
        // is none of this machine (`-fdebug-prefix-map`).
        let recorded = if path.starts_with('/') || Path::new(path).starts_with(comp_dir) {
            PathBuf::from(path)
        } else {
            Path::new(comp_dir).join(path)
        };
        let Some(directory) = &self.directory else {
            return recorded.is_file().then_some(recorded);
        };
        let below_build = path.strip_prefix(comp_dir).unwrap_or(path);
        let mut tail = below_build.trim_start_matches("./").trim_start_matches('/');
        loop {
            let candidate = directory.join(tail);
            if candidate.is_file() {
                return Some(candidate);
            }
            match tail.split_once('/') {
                Some((_, rest)) => tail = rest,
                None => return recorded.is_file().then_some(recorded),
            }
        }
    }
}

impl SourceDirectories {
    /// The text of a source file, if it is here.
    pub fn read(&self, path: &str, comp_dir: &str) -> Option<Vec<u8>> {
        let path = self.find(path, comp_dir)?;
        kymo_kernel::regular_file::read(&path, LIMIT).ok()
    }
}
