//! The cache on disk, laid out as libdebuginfod lays it out, so that both use
//! what the other one fetched: `BUILDID/debuginfo`, `BUILDID/executable`,
//! `BUILDID/source##path##of##the##file`. An empty file stands for one that no
//! server had, for some minutes.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use crate::error::FetchError;

/// State of a file in the cache.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Held {
    File,
    /// No server had it a moment ago.
    Miss,
    Nothing,
}

/// Looks at a file of the cache.
pub(crate) fn look(path: &Path, misses: Duration) -> Held {
    let Ok(meta) = fs::metadata(path) else { return Held::Nothing };
    if !meta.is_file() {
        return Held::Nothing;
    }
    if meta.len() > 0 {
        return Held::File;
    }
    let age = meta.modified().ok().and_then(|t| SystemTime::now().duration_since(t).ok());
    if age.is_some_and(|age| age < misses) { Held::Miss } else { Held::Nothing }
}

/// A file on its way into the cache; what is not kept goes away.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) file: File,
    path: PathBuf,
    kept: bool,
}

impl Arriving {
    /// Begins a file beside its place.
    pub(crate) fn beside(place: &Path) -> Result<Arriving, FetchError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let fail = |path: &Path, error| FetchError::Cache { path: path.to_owned(), error };
        let directory = place.parent().unwrap_or(Path::new("."));
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|e| fail(directory, e))?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut name = place.as_os_str().to_owned();
        name.push(format!(".{}-{number}", std::process::id()));
        let path = PathBuf::from(name);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path).map_err(|e| fail(&path, e))?;
        Ok(Arriving { file, path, kept: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves it to its place, whole and read-only.
    pub(crate) fn keep(mut self, place: &Path) -> Result<(), FetchError> {
        let moved = self
            .file
            .set_permissions(fs::Permissions::from_mode(0o400))
            .and_then(|()| fs::rename(&self.path, place));
        moved.map_err(|error| FetchError::Cache { path: place.to_owned(), error })?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if !self.kept {
            // It may be gone already; the error cannot be reported.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Notes that no server has a file.
pub(crate) fn miss(place: &Path) -> io::Result<()> {
    if let Some(directory) = place.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    // A new one each time: its age counts.
    match fs::remove_file(place) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o0).open(place).map(|_| ())
}

/// A path as a name: `/a/b#c` is `##a##b#_c`.
pub(crate) fn flat(path: &str) -> String {
    path.replace('#', "#_").replace('/', "##")
}
