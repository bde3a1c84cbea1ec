//! A directory for a recording that is shown directly and not kept.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

/// Beginning of the names of such directories.
const PREFIX: &str = "kymo-scratch-";
/// One without a lock that is younger is about to get its lock.
const YOUNG: Duration = Duration::from_secs(60);

/// A directory for the recording that goes when the result is printed. It is locked as long as its
/// maker lives: the next one removes those of makers that were killed.
pub(crate) struct ScratchDirectory(Option<(PathBuf, File)>);

impl ScratchDirectory {
    /// A new directory, if it is `wanted`.
    pub(crate) fn new(wanted: bool) -> anyhow::Result<ScratchDirectory> {
        use std::os::unix::fs::DirBuilderExt as _;
        if !wanted {
            return Ok(ScratchDirectory(None));
        }
        let base = std::env::temp_dir();
        remove_abandoned(&base);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let nanos = now.map_or(0, |d| d.subsec_nanos());
        let dir = base.join(format!("{PREFIX}{}-{nanos}", std::process::id()));
        // Fails if another process made it first: nothing of theirs is used.
        std::fs::DirBuilder::new().mode(0o700).create(&dir).with_context(|| {
            format!("cannot make {} for the recording (TMPDIR names another place)", dir.display())
        })?;
        let lock = File::open(&dir).with_context(|| format!("cannot open {}", dir.display()))?;
        // Where files cannot be locked it goes when it is dropped, or stays.
        let _ = lock.try_lock();
        Ok(ScratchDirectory(Some((dir, lock))))
    }

    /// Path of the recording in it.
    pub(crate) fn file(&self) -> PathBuf {
        let directory = self.0.as_ref().map_or(Path::new("."), |(path, _)| path);
        directory.join("perf.data")
    }
}

/// Whether a recording is in such a directory, and goes when the result is printed.
pub(crate) fn is_temporary(recording: &Path) -> bool {
    let directory = recording.parent().filter(|dir| dir.parent() == Some(&std::env::temp_dir()));
    let name = directory.and_then(|dir| dir.file_name());
    name.is_some_and(|name| name.to_string_lossy().starts_with(PREFIX))
}

/// Path of a recording; of a temporary one only the name without its extension.
pub(crate) fn shown_name(recording: &Path) -> String {
    match recording.file_stem().filter(|_| is_temporary(recording)) {
        Some(stem) => stem.to_string_lossy().into_owned(),
        None => recording.display().to_string(),
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        if let Some((dir, _)) = &self.0 {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// Removes what makers that were killed have left. Of another user nothing can be opened.
fn remove_abandoned(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let meta = entry.metadata().ok().filter(|meta| is_ours && meta.is_dir());
        let age = meta.and_then(|meta| meta.modified().ok()?.elapsed().ok());
        if age.is_none_or(|age| age < YOUNG) {
            continue;
        }
        let Ok(directory) = File::open(entry.path()) else { continue };
        if directory.try_lock().is_ok() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_a_killed_maker_left_is_removed_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        let make = |name: &str, age: Duration| {
            let path = base.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("perf.data"), "x").unwrap();
            let directory = File::open(&path).unwrap();
            directory.set_modified(SystemTime::now() - age).unwrap();
            (path, directory)
        };
        let (left, _) = make("kymo-scratch-1-2", YOUNG * 2);
        let (young, _) = make("kymo-scratch-1-3", Duration::ZERO);
        let (used, lock) = make("kymo-scratch-1-4", YOUNG * 2);
        let (other, _) = make("other", YOUNG * 2);
        lock.try_lock().unwrap();
        remove_abandoned(base.path());
        let are_there = [left, young, used, other].map(|path| path.exists());
        assert_eq!(are_there, [false, true, true, true]);
    }
}
