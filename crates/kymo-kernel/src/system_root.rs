//! The root that `/proc`, `/sys` and `/etc` are read below: the running system's, or a directory
//! that a test has made.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The most bytes taken from one file: the kernel's list of symbols and its BTF, the
/// largest, are below 20 MB.
const LIMIT: u64 = 256 << 20;

/// Names a directory that stands for the root of the running system, in tests.
const ROOT_VARIABLE: &str = "KYMO_SYSTEM_ROOT";

/// Path of a file of the running system, such as `/proc/kallsyms`. Files of this process
/// itself (`/proc/self/…`) are always those of the kernel it runs on.
pub(crate) fn system_path(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    SystemRoot::machine().path(path.strip_prefix("/").unwrap_or(path))
}

/// The directory that `/proc` and `/sys` are below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemRoot {
    root: PathBuf,
}

impl Default for SystemRoot {
    fn default() -> SystemRoot {
        SystemRoot::machine()
    }
}

impl SystemRoot {
    /// The running system; or the directory that `KYMO_SYSTEM_ROOT` names, which a test has made
    /// of files like those of another machine.
    pub fn machine() -> SystemRoot {
        static ROOT: OnceLock<PathBuf> = OnceLock::new();
        let root = || std::env::var_os(ROOT_VARIABLE).map_or_else(|| "/".into(), PathBuf::from);
        SystemRoot::below(ROOT.get_or_init(root))
    }

    /// Whether this is the running system itself, on which file systems may be mounted.
    pub(crate) fn is_machine(&self) -> bool {
        self.root == Path::new("/")
    }

    /// A directory that only looks like a system.
    pub fn below(root: impl Into<PathBuf>) -> SystemRoot {
        SystemRoot { root: root.into() }
    }

    /// A path such as `proc/stat`.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    pub(crate) fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(self.path(path))?;
        file.take(LIMIT + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LIMIT { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
    }

    /// A text; bytes that are none are replaced.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = self.read(path).ok()?;
        Some(match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(other) => String::from_utf8_lossy(other.as_bytes()).into_owned(),
        })
    }

    /// A text without the blanks and the end of the line around it.
    pub(crate) fn word(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(self.text(path)?.trim().to_owned())
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.word(path)?.parse().ok()
    }

    /// The names in a directory, sorted.
    pub(crate) fn names(&self, directory: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(directory)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}
