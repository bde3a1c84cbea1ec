//! Roots of processes of other mount namespaces or with other roots, kept open by a process that
//! gives up its rights: under landlock `/proc/PID/root` of other processes is not readable.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::SystemRoot;

/// Device and inode.
type FileId = (u64, u64);

/// Distinct roots that are kept.
const MOST: usize = 256;

static KEPT: OnceLock<KeptRoots> = OnceLock::new();

#[derive(Debug, Default)]
struct KeptRoots {
    /// The mount namespace of this process.
    own: Option<FileId>,
    /// By process: its mount namespace, and its root.
    roots: BTreeMap<u32, (FileId, Arc<OwnedFd>)>,
}

/// Keeps the roots of all processes that are there.
pub(crate) fn keep() {
    let system = SystemRoot::machine();
    if !system.is_machine() || KEPT.get().is_some() {
        return;
    }
    let root = |pid: u32| {
        let meta = std::fs::metadata(system.path(format!("proc/{pid}/root"))).ok()?;
        Some((system.mount_namespace(pid)?, (meta.dev(), meta.ino())))
    };
    let here = root(std::process::id());
    let mut kept = KeptRoots { own: here.map(|h| h.0), roots: BTreeMap::new() };
    let mut known: BTreeMap<(FileId, FileId), Arc<OwnedFd>> = BTreeMap::new();
    for pid in system.pids() {
        let Some(there) = root(pid).filter(|there| Some(*there) != here) else { continue };
        if !known.contains_key(&there) && known.len() < MOST {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            if let Ok(opened) = openat(CWD, system.root_of(pid), flags, Mode::empty()) {
                known.insert(there, Arc::new(opened));
            }
        }
        if let Some(opened) = known.get(&there) {
            kept.roots.insert(pid, (there.0, Arc::clone(opened)));
        }
    }
    // Set once, before threads start.
    let _ = KEPT.set(kept);
}

/// The root of a process, if it is kept.
pub(super) fn root_of(pid: u32) -> Option<PathBuf> {
    let (_, root) = KEPT.get()?.roots.get(&pid)?;
    Some(PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd())))
}

/// The mount namespace of a process, as it was when the roots were kept; `None`: look.
pub(super) fn mount_namespace(pid: u32) -> Option<Option<FileId>> {
    let kept = KEPT.get().filter(|_| pid != std::process::id())?;
    let is_there = || SystemRoot::machine().path(format!("proc/{pid}")).exists();
    Some(match kept.roots.get(&pid) {
        Some((namespace, _)) => Some(*namespace),
        None => kept.own.filter(|_| is_there()),
    })
}
