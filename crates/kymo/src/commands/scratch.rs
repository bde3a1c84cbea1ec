//! A directory for a recording that is shown at once and not kept.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A directory for the recording that goes when the result is printed.
pub(crate) struct ScratchDirectory(Option<PathBuf>);

impl ScratchDirectory {
    /// A new directory, if it is `wanted`.
    pub(crate) fn new(wanted: bool) -> anyhow::Result<ScratchDirectory> {
        use std::os::unix::fs::DirBuilderExt as _;
        if !wanted {
            return Ok(ScratchDirectory(None));
        }
        let base = std::env::temp_dir();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let nanos = now.map_or(0, |d| d.subsec_nanos());
        let dir = base.join(format!("kymo-{}-{nanos}", std::process::id()));
        // Fails if somebody else made it first: nothing of theirs is used.
        std::fs::DirBuilder::new().mode(0o700).create(&dir).with_context(|| {
            format!("cannot make {} for the recording (TMPDIR names another place)", dir.display())
        })?;
        Ok(ScratchDirectory(Some(dir)))
    }

    /// Path of the recording in it.
    pub(crate) fn file(&self) -> PathBuf {
        self.0.as_deref().unwrap_or(Path::new(".")).join("perf.data")
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        if let Some(dir) = &self.0 {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}
