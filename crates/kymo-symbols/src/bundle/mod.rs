//! A bundle: what is needed to resolve a recording on another machine, in one
//! file beside it. It is a tar archive of perf's build-id cache, so that it can
//! also be unpacked into `~/.debug`; `docs/formats/bundle.md` has the layout.
//!
//! What a bundle knows of a binary counts alone: the machine's own files are not
//! asked for it, so that results are those of the machine where it was made.

pub(crate) mod manifest;
pub(crate) mod slim;
pub(crate) mod source_files;
pub(crate) mod tar;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use kymo_kernel::{descriptors, regular_file};
use kymo_model::BuildId;
use rustc_hash::FxHashMap;

use manifest::{Entry, Manifest};
use tar::Member;

pub use manifest::Recording;
pub(crate) use slim::{CODE, PIECE};

use crate::problem::{BundleError, Problem};

/// Name of the kernel among the binaries.
pub(crate) const KERNEL: &str = "[kernel.kallsyms]";

/// Bytes at each end of a recording that its checksum is of.
const ENDS: u64 = 64 << 10;
/// A manifest is at most this large.
const LARGEST_MANIFEST: u64 = 256 << 20;

/// The member that names a binary's source files, a line each.
pub(crate) const SOURCES: &str = "sources";

/// The member with the source file of a line in [`SOURCES`].
pub(crate) fn source_member(line: usize) -> String {
    format!("source/{line}")
}

impl Recording {
    /// Looks at a file.
    pub fn of(path: &Path) -> io::Result<Recording> {
        let mut file = regular_file::open(path)?;
        let size = file.metadata()?.len();
        let mut sum = flate2::Crc::new();
        let mut bytes = Vec::new();
        for start in [0, size.saturating_sub(ENDS)] {
            bytes.clear();
            file.seek(SeekFrom::Start(start))?;
            Read::by_ref(&mut file).take(ENDS).read_to_end(&mut bytes)?;
            sum.update(&bytes);
        }
        Ok(Recording { size, checksum: sum.sum() })
    }
}

/// A bundle that is read.
#[derive(Debug)]
pub struct Bundle {
    path: PathBuf,
    store: Store,
    entries: FxHashMap<(String, Option<BuildId>), Entry>,
    checksums: FxHashMap<String, u32>,
    /// Members that were requested, as files in memory.
    given: Mutex<FxHashMap<String, Option<(OwnedFd, PathBuf)>>>,
}

#[derive(Debug)]
enum Store {
    Archive {
        file: Mutex<File>,
        members: FxHashMap<String, Member>,
    },
    /// An archive that was unpacked.
    Directory(PathBuf),
}

impl Bundle {
    /// Default path of a recording's bundle.
    pub fn beside(recording: &Path) -> PathBuf {
        let mut name = recording.as_os_str().to_owned();
        name.push(".bundle");
        name.into()
    }

    /// Opens the bundle that lies beside a recording, if there is one.
    ///
    /// # Errors
    /// If it is there and cannot be used.
    pub fn open_beside(recording: &Path) -> Result<Option<Bundle>, BundleError> {
        let path = Bundle::beside(recording);
        if path.exists() { Bundle::open_for(&path, recording).map(Some) } else { Ok(None) }
    }

    /// Opens the bundle of a recording.
    ///
    /// # Errors
    /// If either cannot be read, or it is another recording's.
    pub fn open_for(path: &Path, recording: &Path) -> Result<Bundle, BundleError> {
        let fail = |why: String| BundleError { path: path.display().to_string(), why };
        Bundle::open(path, Recording::of(recording).map_err(|e| fail(e.to_string()))?)
    }

    /// Opens a bundle, which must be of this recording.
    pub fn open(path: &Path, recording: Recording) -> Result<Bundle, BundleError> {
        let fail = |why: String| BundleError { path: path.display().to_string(), why };
        let store = Store::open(path).map_err(fail)?;
        let text = store.read(manifest::NAME, LARGEST_MANIFEST).map_err(fail)?;
        let text = text.ok_or_else(|| fail("invalid bundle: it has no manifest".into()))?;
        let Manifest { recording: of, entries, members } =
            Manifest::parse(&String::from_utf8_lossy(&text)).map_err(fail)?;
        if of != recording {
            return Err(fail("it belongs to another recording".into()));
        }
        let key = |e: Entry| ((e.path.clone(), e.build_id), e);
        Ok(Bundle {
            path: path.to_owned(),
            store,
            entries: entries.into_iter().map(key).collect(),
            checksums: members.into_iter().map(|(sum, name)| (name, sum)).collect(),
            given: Mutex::default(),
        })
    }

    /// Entry of a binary; `None` if the bundle does not contain it.
    pub(crate) fn of(&self, path: &Path, build_id: Option<BuildId>) -> Option<Known<'_>> {
        let entry = self.entries.get(&(path.to_str()?.to_owned(), build_id))?;
        Some(Known { bundle: self, entry })
    }

    /// The kernel's symbols, if the bundle has any.
    pub fn kallsyms(&self) -> Option<String> {
        self.of_kernel("kallsyms")
    }

    /// Enumerators of the kernel and their values, if the bundle has any.
    pub fn constants(&self) -> Option<BTreeMap<String, i64>> {
        let text = self.of_kernel("constants")?;
        let pair = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Some(text.lines().filter_map(pair).collect())
    }

    fn of_kernel(&self, name: &str) -> Option<String> {
        let entry = self.entries.values().find(|e| e.path == KERNEL)?;
        // Damage is reported where the kernel's functions are resolved.
        let bytes = Known { bundle: self, entry }.bytes(name).ok()??;
        String::from_utf8(bytes).ok()
    }

    fn check(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let mut sum = flate2::Crc::new();
        sum.update(bytes);
        match self.checksums.get(name) {
            Some(stated) if *stated == sum.sum() => Ok(()),
            _ => Err(format!("its member {name} is damaged")),
        }
    }

    fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(bytes) = self.store.read(name, u64::MAX)? else { return Ok(None) };
        self.check(name, &bytes)?;
        Ok(Some(bytes))
    }

    /// A member as a file that others can open and map.
    fn file(&self, name: &str) -> Result<Option<PathBuf>, String> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = given.get(name) {
            return Ok(known.as_ref().map(|k| k.1.clone()));
        }
        let made = match self.bytes(name)? {
            None => None,
            Some(_) if matches!(self.store, Store::Directory(_)) => {
                let Store::Directory(root) = &self.store else { return Ok(None) };
                return Ok(Some(root.join(name)));
            }
            Some(bytes) => Some(in_memory(&bytes).map_err(|e| e.to_string())?),
        };
        let path = made.as_ref().map(|m| m.1.clone());
        given.insert(name.to_owned(), made);
        Ok(path)
    }

    fn error(&self, why: String) -> BundleError {
        BundleError { path: self.path.display().to_string(), why }
    }
}

/// A file that exists in memory only, and its path for this process.
fn in_memory(bytes: &[u8]) -> io::Result<(OwnedFd, PathBuf)> {
    let mut file = descriptors::memory_file("kymo-bundle")?;
    file.write_all(bytes)?;
    let fd = OwnedFd::from(file);
    let path = descriptors::own_path(&fd);
    // A report is better than missing all names.
    if path.exists() {
        Ok((fd, path))
    } else {
        Err(io::Error::other("it cannot be read where /proc is not mounted"))
    }
}

impl Store {
    fn open(path: &Path) -> Result<Store, String> {
        if path.is_dir() {
            return Ok(Store::Directory(path.to_owned()));
        }
        let mut file = regular_file::open(path).map_err(|e| e.to_string())?;
        let members = tar::list(&mut file)?;
        let members = members.into_iter().map(|m| (m.name.clone(), m)).collect();
        Ok(Store::Archive { file: Mutex::new(file), members })
    }

    fn read(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, String> {
        let result = match self {
            Store::Archive { file, members } => {
                let Some(member) = members.get(name).filter(|m| m.size <= most) else {
                    return Ok(None);
                };
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                let mut bytes = Vec::new();
                file.seek(SeekFrom::Start(member.offset))
                    .and_then(|_| {
                        Read::by_ref(&mut *file).take(member.size).read_to_end(&mut bytes)
                    })
                    .map(|_| bytes)
            }
            Store::Directory(root) => match regular_file::read(&root.join(name), most) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                other => other,
            },
        };
        result.map(Some).map_err(|e| format!("its member {name}: {e}"))
    }
}

/// Entry of a binary in a bundle.
pub(crate) struct Known<'a> {
    bundle: &'a Bundle,
    entry: &'a Entry,
}

impl Known<'_> {
    /// Problems with the binary where the bundle was made.
    pub(crate) fn problems(&self) -> &[Problem] {
        &self.entry.problems
    }

    /// One of its files, if there is one.
    pub(crate) fn file(&self, name: &str) -> Result<Option<PathBuf>, BundleError> {
        let Some(directory) = &self.entry.directory else { return Ok(None) };
        self.bundle.file(&format!("{directory}/{name}")).map_err(|why| self.bundle.error(why))
    }

    /// A source file by the name that it had when it was compiled: `None` if the bundle
    /// has none of the binary's sources, `Some(None)` if this one is not among them.
    pub(crate) fn source(&self, path: &str) -> Result<Option<Option<PathBuf>>, BundleError> {
        let Some(index) = self.bytes(SOURCES)? else { return Ok(None) };
        let named = index.split(|b| *b == b'\n').position(|name| name == path.as_bytes());
        named.map(|n| self.file(&source_member(n))).transpose().map(|found| Some(found.flatten()))
    }

    /// The contents of one of its files.
    pub(crate) fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, BundleError> {
        let Some(directory) = &self.entry.directory else { return Ok(None) };
        self.bundle.bytes(&format!("{directory}/{name}")).map_err(|why| self.bundle.error(why))
    }
}
