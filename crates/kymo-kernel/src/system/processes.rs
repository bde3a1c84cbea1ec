//! Facts about a process from `/proc`: its root and its mount namespace. Its mappings are in
//! [`proc_maps`](crate::proc_maps), its threads and descriptors in [`target`](crate::target).

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{SystemRoot, kept_roots};
use crate::proc_maps;

/// Longest time for reading the mappings of a process.
const MAPS_TIMEOUT: Duration = Duration::from_millis(500);

impl SystemRoot {
    /// The root directory of a process, with its mounts.
    pub fn root_of(&self, pid: u32) -> PathBuf {
        let kept = self.is_machine().then(|| kept_roots::root_of(pid)).flatten();
        kept.unwrap_or_else(|| self.path(format!("proc/{pid}/root")))
    }

    /// The file of a process's mapping; it is there for as long as the mapping is not split.
    pub fn mapped_file(&self, pid: u32, (start, end): (u64, u64)) -> PathBuf {
        self.path(format!("proc/{pid}/map_files/{start:x}-{end:x}"))
    }

    /// The file that a process has mapped under a name, such as that of one that was removed.
    pub fn file_mapped_as(&self, pid: u32, name: &Path) -> Option<PathBuf> {
        let maps = proc_maps::maps(pid, MAPS_TIMEOUT).ok()?;
        let name = name.as_os_str().as_bytes();
        let map = maps.mappings.iter().find(|map| map.path == name)?;
        Some(self.mapped_file(pid, (map.start, map.end)))
    }

    /// Path of a process's program, as this process can open it.
    ///
    /// # Errors
    /// If there is no such process, or it is hidden.
    pub fn executable_of(&self, pid: u32) -> std::io::Result<PathBuf> {
        let path = std::fs::read_link(self.path(format!("proc/{pid}/exe")))?;
        // Of another mount namespace the path means nothing here.
        let below = self.root_of(pid).join(path.strip_prefix("/").unwrap_or(&path));
        Ok(if path.exists() { path } else { below })
    }

    /// The mount namespace of a process: device and inode tell it from others.
    pub fn mount_namespace(&self, pid: u32) -> Option<(u64, u64)> {
        if let Some(kept) = self.is_machine().then(|| kept_roots::mount_namespace(pid)).flatten() {
            return kept;
        }
        let meta = std::fs::metadata(self.path(format!("proc/{pid}/ns/mnt"))).ok()?;
        Some((meta.dev(), meta.ino()))
    }

    /// The user namespace of a process: device and inode.
    pub fn user_namespace(&self, pid: u32) -> Option<(u64, u64)> {
        let meta = std::fs::metadata(self.path(format!("proc/{pid}/ns/user"))).ok()?;
        Some((meta.dev(), meta.ino()))
    }

    /// The number of a process in its own pid namespace.
    pub fn innermost_pid(&self, pid: u32) -> Option<u32> {
        let status = std::fs::read_to_string(self.path(format!("proc/{pid}/status"))).ok()?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        numbers.split_whitespace().next_back()?.parse().ok()
    }

    /// The pid namespace of this process: device and inode.
    pub fn pid_namespace(&self) -> Option<(u64, u64)> {
        let meta = std::fs::metadata(self.path("proc/self/ns/pid")).ok()?;
        Some((meta.dev(), meta.ino()))
    }

    /// The numbers of all processes, ascending.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> =
            self.names("proc").iter().filter_map(|name| name.parse().ok()).collect();
        pids.sort_unstable();
        pids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_described() {
        let system = SystemRoot::machine();
        let me = std::process::id();
        assert!(system.pids().contains(&me));
        assert!(system.mount_namespace(me).is_some_and(|namespace| namespace.1 != 0));
        assert!(system.root_of(me).join("proc").is_dir());
        assert!(system.innermost_pid(me).is_some_and(|pid| pid > 0));
    }
}
