//! Rights given up before foreign bytes are read: by landlock (Documentation/userspace-api/
//! landlock.rst) files are changed below named directories alone, no program is started and no
//! server asked; of root's capabilities those stay that reading files takes; of the system calls
//! those that readers make (`seccomp`). A process with a landlock may not look into others
//! (ptrace(2)): roots of containers are opened before.

mod seccomp;

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

use crate::system::kept_roots;

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
/// Removing, making and (since version 2) moving between directories, (3) truncating.
const REMOVE_AND_MAKE: u64 = 0b1_1111_1111 << 4;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const MAKE_CHARACTER_DEVICE: u64 = 1 << 6;
const MAKE_BLOCK_DEVICE: u64 = 1 << 11;
/// Binding and connecting of TCP, since version 4.
const TCP: u64 = 0b11;
/// Abstract sockets and signals to processes outside, since version 6.
const SCOPES: u64 = 0b11;

/// Rule type: files below a directory.
const RULE_PATH_BENEATH: libc::c_int = 1;
/// Asks which version of landlock the kernel has.
const VERSION: u32 = 1;

/// `struct landlock_ruleset_attr`. Kernels before those of a field do without it.
#[repr(C)]
struct RulesetAttribute {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneathAttribute {
    allowed_access: u64,
    parent_fd: i32,
}

/// Rights that a process keeps in its sandbox.
#[derive(Clone, Debug, Default)]
pub struct Sandbox {
    writable: Vec<PathBuf>,
    has_network: bool,
    has_overrides: bool,
    keeps_roots: bool,
}

impl Sandbox {
    /// Files below this directory may be made and changed; nothing if it is not there.
    pub fn allow_writes(&mut self, directory: impl Into<PathBuf>) {
        self.writable.push(directory.into());
    }

    /// Files of processes of other mount namespaces may be read.
    pub fn keep_roots(&mut self) {
        self.keeps_roots = true;
    }

    /// Files of other owners may be changed, as far as files may.
    pub fn allow_files_of_others(&mut self) {
        self.has_overrides = true;
    }

    /// Servers may be asked by TCP.
    pub fn allow_network(&mut self) {
        self.has_network = true;
    }

    /// Gives up the rest, for this thread and those that it starts from now on: to be called before
    /// any other runs. A kernel without landlock (before 5.13, or one started without it) leaves
    /// files and programs as they are; capabilities and system calls go in any case.
    ///
    /// # Errors
    /// A system call that fails although the kernel has it.
    pub fn enter(&self) -> io::Result<()> {
        if self.keeps_roots {
            kept_roots::keep();
        }
        self.drop_capabilities()?;
        set_no_new_privs(true)?;
        match landlock_version() {
            0 => {}
            version => self.restrict(version)?,
        }
        seccomp::restrict(self.has_network)
    }

    fn restrict(&self, version: u32) -> io::Result<()> {
        let since = |least: u32, rights: u64| if version >= least { rights } else { 0 };
        let changes = WRITE_FILE | REMOVE_AND_MAKE | since(2, REFER) | since(3, TRUNCATE);
        let attribute = RulesetAttribute {
            handled_access_fs: EXECUTE | changes,
            handled_access_net: if self.has_network { 0 } else { since(4, TCP) },
            scoped: since(6, SCOPES),
        };
        let size = match version {
            ..4 => 8,
            4..6 => 16,
            _ => size_of::<RulesetAttribute>(),
        };
        // SAFETY: the kernel reads `size` bytes of the attribute, which has as many.
        let ruleset =
            unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &attribute, size, 0) };
        let ruleset = descriptor(ruleset)?;
        // A terminal, `/dev/null`.
        allow(&ruleset, Path::new("/dev"), WRITE_FILE)?;
        let below = changes & !(MAKE_CHARACTER_DEVICE | MAKE_BLOCK_DEVICE);
        self.writable.iter().try_for_each(|directory| allow(&ruleset, directory, below))?;
        // SAFETY: takes a descriptor and no pointers.
        let done =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Keeps of the capabilities those that files of others, of the kernel and of other mount
    /// namespaces are read by.
    fn drop_capabilities(&self) -> io::Result<()> {
        const READ: CapabilitySet = CapabilitySet::DAC_READ_SEARCH
            .union(CapabilitySet::SYS_PTRACE)
            // `/proc/kallsyms` and `/proc/kcore`
            .union(CapabilitySet::SYSLOG)
            .union(CapabilitySet::SYS_RAWIO)
            // `/proc/PID/map_files`
            .union(CapabilitySet::CHECKPOINT_RESTORE);
        let kept = if self.has_overrides {
            READ.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::FOWNER)
        } else {
            READ
        };
        let had = capabilities(None)?;
        let left = CapabilitySets {
            effective: had.effective & kept,
            permitted: had.permitted & kept,
            inheritable: had.inheritable & kept,
        };
        if left.permitted != had.permitted || left.inheritable != had.inheritable {
            set_capabilities(None, left)?;
        }
        Ok(())
    }
}

/// Version of the kernel's landlock, 0 without any.
fn landlock_version() -> u32 {
    let nothing = std::ptr::null::<RulesetAttribute>();
    // SAFETY: without an attribute the kernel reads none.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, VERSION) };
    u32::try_from(version).unwrap_or(0)
}

fn descriptor(returned: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(returned) {
        // SAFETY: the kernel just gave this descriptor to us alone, with close-on-exec.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Allows rights below a directory, if it is there.
fn allow(ruleset: &OwnedFd, directory: &Path, rights: u64) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(opened) = rustix::fs::open(directory, flags, Mode::empty()) else { return Ok(()) };
    let attribute =
        PathBeneathAttribute { allowed_access: rights, parent_fd: opened.as_fd().as_raw_fd() };
    // SAFETY: the kernel reads one attribute of this kind.
    let added = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            RULE_PATH_BENEATH,
            &attribute,
            0,
        )
    };
    if added == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The rights of one thread are given up, those of the test's others stay.
    #[test]
    fn what_is_not_named_is_denied() {
        let directory = tempfile::tempdir().unwrap();
        let [inside, outside] = ["inside", "outside"].map(|name| directory.path().join(name));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("old"), "text").unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let version = landlock_version();
        let work = move || {
            let mut sandbox = Sandbox::default();
            sandbox.allow_writes(&inside);
            sandbox.allow_writes("/no/such/directory");
            sandbox.enter().unwrap();
            let had = capabilities(None).unwrap();
            assert!(!had.permitted.contains(CapabilitySet::SYS_ADMIN));
            std::fs::write(inside.join("new"), "text").unwrap();
            std::fs::rename(inside.join("new"), inside.join("newer")).unwrap();
            std::fs::remove_file(inside.join("newer")).unwrap();
            std::fs::write("/dev/null", "text").unwrap();
            assert_eq!(std::fs::read_to_string(outside.join("old")).unwrap(), "text");
            let denied = |result: io::Result<()>| {
                assert_eq!(result.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            };
            denied(std::net::UdpSocket::bind("127.0.0.1:0").map(drop));
            denied(std::os::unix::net::UnixDatagram::unbound().map(drop));
            std::thread::spawn(|| ()).join().unwrap();
            if version == 0 {
                return;
            }
            denied(std::fs::write(outside.join("new"), "text"));
            denied(std::fs::write(outside.join("old"), "other"));
            denied(std::fs::remove_file(outside.join("old")));
            denied(Command::new("true").status().map(drop));
            if version >= 4 {
                denied(std::net::TcpStream::connect(address).map(drop));
            }
        };
        std::thread::spawn(work).join().unwrap();
        Command::new("true").status().unwrap();
        std::net::TcpStream::connect(address).unwrap();
    }
}
