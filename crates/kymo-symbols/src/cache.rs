//! The user's cache on disk: one file for each kind of finding and binary, `<build-id>.<kind>`.
//! What is in a file is its kind's own affair; here are the directory, the header that is checked
//! at the door, atomic writing and the bound on the size of all.
//!
//! A cache is trusted only as far as its owner is the user: a directory or file of another user, or
//! one that others may write to, is not read. Whatever is wrong with a file, it is reported to the
//! caller, who works without it and renews it.

mod header;

use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use kymo_kernel::mapped::MappedFile;
use kymo_kernel::{regular_file, system};
use kymo_model::BuildId;

/// Kind of a cache file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheKind {
    /// Ending of the file's name: at most 16 small letters and dashes.
    pub name: &'static str,
    /// Version of its contents: a file of another one is renewed.
    pub version: u32,
}

/// The directory.
#[derive(Clone, Debug)]
pub struct SymbolCache {
    directory: PathBuf,
    limit: u64,
}

/// Contents of a cache file, verified.
#[derive(Debug)]
pub struct Payload {
    map: MappedFile,
    start: usize,
}

/// A file of the cache, by its name and header alone.
#[derive(Clone, Debug)]
pub struct CachedFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Ending of the name.
    pub kind: String,
    /// Which binary.
    pub key: Option<BuildId>,
    /// The binary's path when the file was written; empty if the header is
    /// damaged.
    pub label: String,
    /// Its size on disk.
    pub size: u64,
    /// When it was last written or read.
    pub used: SystemTime,
}

/// Why a cache file is not used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// It cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// Another user could have written it.
    #[error("{} belongs to user {owner} with mode {mode:o}: only one's own is trusted", path.display())]
    Foreign {
        /// Which file or directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// It is of another version of its kind.
    #[error("{} is of version {found}, not {wanted}", path.display())]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The one understood here.
        wanted: u32,
    },
    /// Its bytes are not those that were written.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Symptom of the damage.
        what: &'static str,
    },
    /// It would be larger than a file of the cache may be.
    #[error("{size} bytes are too much for a file of the cache")]
    TooLarge {
        /// Size in bytes.
        size: u64,
    },
}

type Result<T> = std::result::Result<T, CacheError>;

impl std::ops::Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.bytes().get(self.start..).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl SymbolCache {
    /// All files together; the least recently used go first.
    pub const LIMIT: u64 = 1 << 30;
    /// One file's contents.
    pub const FILE_LIMIT: u64 = 256 << 20;

    /// The user's: `KYMO_CACHE` (a directory, or `off`), else `kymo` in
    /// `$XDG_CACHE_HOME` or `~/.cache`. None if it is off or there is no home; one that
    /// is only named, as daemons' are, is not made.
    pub fn of_user() -> Option<SymbolCache> {
        let absolute = |name: &str| {
            std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
        };
        match std::env::var("KYMO_CACHE").ok().as_deref() {
            Some("off" | "no" | "0") => return None,
            Some(path) if path.starts_with('/') => return Some(SymbolCache::at(path)),
            _ => {}
        }
        let home = || absolute("HOME").filter(|home| home.is_dir());
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(home()?.join(".cache")))?;
        Some(SymbolCache::at(base.join("kymo")))
    }

    /// One in a directory, which is made when something is stored.
    pub fn at(directory: impl Into<PathBuf>) -> SymbolCache {
        SymbolCache { directory: directory.into(), limit: SymbolCache::LIMIT }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes the directory, which only its owner may look into.
    ///
    /// # Errors
    /// If it is not there and cannot be made.
    pub fn make_directory(&self) -> Result<()> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        io(made, &self.directory)
    }

    fn path(&self, kind: CacheKind, key: BuildId) -> PathBuf {
        self.directory.join(format!("{key}.{}", kind.name))
    }

    /// Loads the cached file of a binary: `None` if there is none.
    pub fn load(&self, kind: CacheKind, key: BuildId) -> Result<Option<Payload>> {
        if key.as_bytes().is_empty() {
            return Ok(None);
        }
        let path = self.path(kind, key);
        let file = match open_own(&path) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(None),
            Err(error) => return Err(error),
        };
        own(&self.directory, &io(fs::metadata(&self.directory), &self.directory)?)?;
        let map = io(MappedFile::of(&file), &path)?;
        let start = header::check(map.bytes(), kind, key).map_err(|why| why.at(&path))?;
        // Says when it was last used; on a read-only file system it cannot.
        let _ = file.set_modified(SystemTime::now());
        Ok(Some(Payload { map, start }))
    }

    /// Stores what was found for a binary, known by the path `label`. A file of
    /// this kind and binary is replaced, and the least recently used files are removed
    /// when all together became too large.
    pub fn store(&self, kind: CacheKind, key: BuildId, label: &str, payload: &[u8]) -> Result<()> {
        let size = payload.len() as u64;
        if size > SymbolCache::FILE_LIMIT.min(self.limit) {
            return Err(CacheError::TooLarge { size });
        }
        if key.as_bytes().is_empty() {
            return Ok(());
        }
        self.make_directory()?;
        own(&self.directory, &io(fs::metadata(&self.directory), &self.directory)?)?;
        let path = self.path(kind, key);
        let name = format!(".{key}.{}.{}.tmp", kind.name, std::process::id());
        let temporary = self.directory.join(name);
        let write = || -> io::Result<()> {
            let _ = fs::remove_file(&temporary);
            let mut file =
                File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(&header::make(kind, key, label, payload))?;
            file.write_all(payload)?;
            fs::rename(&temporary, &path)
        };
        let written = write();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        io(written, &path)?;
        self.shrink(&path);
        Ok(())
    }

    /// Removes what is cached of one kind for a binary; whether there was
    /// something.
    pub fn remove(&self, kind: CacheKind, key: BuildId) -> Result<bool> {
        let path = self.path(kind, key);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(CacheError::Io { path, error }),
        }
    }

    /// All files, the one used last first.
    pub fn list(&self) -> Result<Vec<CachedFile>> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(CacheError::Io { path: self.directory.clone(), error }),
        };
        let mut all: Vec<CachedFile> = entries.flatten().filter_map(|e| listed(e.path())).collect();
        all.sort_by_key(|l| std::cmp::Reverse(l.used));
        Ok(all)
    }

    /// Keeps the whole below its limit, without `keep`.
    fn shrink(&self, keep: &Path) {
        self.remove_abandoned();
        let Ok(all) = self.list() else { return };
        let mut total: u64 = all.iter().map(|l| l.size).sum();
        for old in all.iter().rev().filter(|l| l.path != keep) {
            if total <= self.limit {
                return;
            }
            if fs::remove_file(&old.path).is_ok() {
                total -= old.size;
            }
        }
    }

    /// Files that a killed writer left half written.
    fn remove_abandoned(&self) {
        const LONG: Duration = Duration::from_secs(3600);
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let age =
                entry.metadata().and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
            if name.starts_with('.') && name.ends_with(".tmp") && age.is_some_and(|a| a > LONG) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn io<T>(result: io::Result<T>, path: &Path) -> Result<T> {
    result.map_err(|error| CacheError::Io { path: path.to_owned(), error })
}

/// Opens a file that only this user can have written. Links are not followed.
fn open_own(path: &Path) -> Result<Option<File>> {
    let file = match regular_file::open_without_links(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CacheError::Io { path: path.to_owned(), error }),
    };
    own(path, &io(file.metadata(), path)?)?;
    Ok(Some(file))
}

/// Whether only this user can write there.
fn own(path: &Path, meta: &Metadata) -> Result<()> {
    const OTHERS_WRITE: u32 = 0o022;
    let (owner, mode) = (meta.uid(), meta.mode() & 0o7777);
    if owner != system::effective_user() || mode & OTHERS_WRITE != 0 {
        return Err(CacheError::Foreign { path: path.to_owned(), owner, mode });
    }
    Ok(())
}

fn listed(path: PathBuf) -> Option<CachedFile> {
    let name = path.file_name()?.to_str()?;
    let (key, kind) = name.split_once('.').filter(|n| !n.0.is_empty())?;
    let meta = fs::symlink_metadata(&path).ok().filter(Metadata::is_file)?;
    let (key, kind) = (BuildId::parse(key), kind.to_owned());
    let label = header::label(&path).unwrap_or_default();
    let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Some(CachedFile { kind, key, label, size: meta.len(), used, path })
}

#[cfg(test)]
mod tests;
