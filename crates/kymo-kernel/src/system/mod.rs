//! What the running system says of itself in `/proc` and `/sys`, as typed facts: each
//! topic has a file. Everything is read below a root, which a test makes of a directory;
//! what cannot be read is not there, since kernels, containers and privileges differ.

mod hardware;
mod kernel;
mod processes;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

pub use hardware::{CpuCache, CpuSiblings, MemoryBlocks, NodeMemory};
pub use kernel::KernelName;

/// The most bytes taken from one file: the kernel's list of symbols and its BTF, the
/// largest, are below 20 MB.
const LIMIT: u64 = 256 << 20;

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
    /// The running system.
    pub fn machine() -> SystemRoot {
        SystemRoot::below("/")
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
        match bytes.len() as u64 > LIMIT {
            true => Err(io::ErrorKind::FileTooLarge.into()),
            false => Ok(bytes),
        }
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

/// Bytes of a page of memory.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// Bytes of memory that the kernel manages.
pub fn total_memory() -> u64 {
    let info = rustix::system::sysinfo();
    // Counted in units of `mem_unit` bytes.
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit.max(1)))
}

/// The user whose rights this process has.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether this process has the rights of root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Fills a buffer with bytes that nobody can guess.
///
/// # Errors
/// If the kernel has none.
pub fn random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_in_bytes() {
        let meminfo = SystemRoot::machine().total_memory_kb().unwrap();
        assert_eq!(total_memory() / 1024, meminfo);
    }

    #[test]
    fn what_is_no_file_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let system = SystemRoot::below(dir.path());
        std::fs::create_dir_all(dir.path().join("proc/sys/kernel")).unwrap();
        assert_eq!(system.kernel_release(), None);
        assert_eq!(system.names("proc"), ["sys"]);
        assert_eq!(system.names("sys"), Vec::<String>::new());
        std::fs::write(dir.path().join("proc/sys/kernel/osrelease"), b"6.1\xff\n").unwrap();
        assert_eq!(system.kernel_release().as_deref(), Some("6.1\u{fffd}"));
    }
}
