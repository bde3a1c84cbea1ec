//! Facts about the running system from `/proc` and `/sys`, with types: each topic has a file.
//! Everything is read below a root, which a test makes of a directory; files that cannot be read
//! are absent, since kernels, containers and privileges differ.

mod hardware;
mod inode_paths;
pub(crate) mod kept_roots;
mod kernel;
mod processes;

use std::io;

pub use hardware::{CpuCache, CpuSiblings, MemoryBlocks, NodeMemory};
pub use inode_paths::{InodeNumber, InodePath, MountedDevice, find_inodes, find_known_inodes};
pub use kernel::KernelName;

pub use crate::system_root::SystemRoot;

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

/// Fills a buffer with unpredictable bytes.
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

/// Gives memory that was freed back to the kernel, which the allocator keeps otherwise.
pub fn release_freed_memory() {
    // SAFETY: it takes no pointer, and is safe in threads.
    unsafe { libc::malloc_trim(0) };
}

/// Has the allocator give large pieces of memory back to the kernel as soon as they are freed. By
/// default it keeps those that are like the largest one freed so far.
pub fn return_large_pieces() {
    const LARGE: i32 = 128 << 10;
    // SAFETY: it takes no pointer; the option exists, and changes no memory that is in use.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
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
