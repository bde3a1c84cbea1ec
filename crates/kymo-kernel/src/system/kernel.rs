//! Which kernel runs: its release and host, its boot, its build-id and those of its
//! modules, its settings, its symbols and its BTF.

use std::io;

use kymo_model::{BuildId, Endian};

use super::SystemRoot;

/// Kernel name by uname(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelName {
    /// `Linux`.
    pub system: String,
    /// The host's name.
    pub node: String,
    /// The kernel's release.
    pub release: String,
    /// The kernel's build.
    pub version: String,
    /// The processor's name.
    pub machine: String,
}

impl KernelName {
    /// Asks the kernel.
    pub fn running() -> KernelName {
        let name = rustix::system::uname();
        let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
        KernelName {
            system: text(name.sysname()),
            node: text(name.nodename()),
            release: text(name.release()),
            version: text(name.version()),
            machine: text(name.machine()),
        }
    }

    /// Version, patch level and sublevel out of [`release`](Self::release); 0 for a number that
    /// it does not have.
    pub fn numbers(&self) -> (u32, u32, u32) {
        let mut parts = self.release.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
        let mut next = || parts.next().unwrap_or(0);
        (next(), next(), next())
    }
}

impl SystemRoot {
    /// The kernel's release.
    pub fn kernel_release(&self) -> Option<String> {
        self.kernel_setting("osrelease")
    }

    /// Parameters that the kernel was started with.
    pub fn kernel_command_line(&self) -> Option<String> {
        self.word("proc/cmdline")
    }

    /// Whether systemd is the first process.
    pub fn has_systemd(&self) -> bool {
        self.path("run/systemd/system").is_dir()
    }

    /// The host's name.
    pub fn hostname(&self) -> Option<String> {
        self.kernel_setting("hostname")
    }

    /// A number that each boot has for itself.
    pub fn boot_id(&self) -> Option<String> {
        self.kernel_setting("random/boot_id")
    }

    /// A setting of `/proc/sys/kernel`.
    pub fn kernel_setting(&self, name: &str) -> Option<String> {
        self.word(format!("proc/sys/kernel/{name}"))
    }

    /// When the machine was booted, in seconds since 1970.
    pub fn boot_time(&self) -> Option<i64> {
        let stat = self.text("proc/stat")?;
        stat.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse().ok()
    }

    /// The kernel's build-id.
    pub fn kernel_build_id(&self) -> Option<BuildId> {
        BuildId::from_notes(&self.read("sys/kernel/notes").ok()?, Endian::NATIVE)
    }

    /// The build-id of a loaded module.
    pub fn module_build_id(&self, module: &str) -> Option<BuildId> {
        let notes = self.read(format!("sys/module/{module}/notes/.note.gnu.build-id")).ok()?;
        BuildId::from_notes(&notes, Endian::NATIVE)
    }

    /// Whether any module is loaded.
    pub fn has_modules(&self) -> bool {
        self.read("proc/modules").is_ok_and(|text| !text.is_empty())
    }

    /// The kernel's list of its symbols, as it prints it.
    ///
    /// # Errors
    /// If it cannot be read, or is no text.
    pub fn kallsyms_text(&self) -> io::Result<String> {
        let text = String::from_utf8(self.read("proc/kallsyms")?);
        text.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }

    /// The BTF of the kernel's types.
    ///
    /// # Errors
    /// If the kernel has none, or it cannot be read.
    pub fn kernel_btf(&self) -> io::Result<Vec<u8>> {
        self.read("sys/kernel/btf/vmlinux")
    }

    /// BTF of a module, on top of the kernel's.
    ///
    /// # Errors
    /// If it has none, or it cannot be read.
    pub fn module_btf(&self, module: &str) -> io::Result<Vec<u8>> {
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if module.is_empty() || !module.bytes().all(is_name) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.read(format!("sys/kernel/btf/{module}"))
    }

    /// `vmlinux` and the modules whose types the kernel shows.
    pub fn btf_modules(&self) -> Vec<String> {
        self.names("sys/kernel/btf")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_looks_like_a_system_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str, bytes: &[u8]| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        let system = SystemRoot::below(dir.path());
        assert_eq!(system.kernel_build_id(), None);
        assert!(!system.has_modules() && system.kallsyms_text().is_err());
        let note = |id: &[u8]| {
            let sizes = [4, id.len() as u32, 3].map(u32::to_ne_bytes).concat();
            [&sizes, &b"GNU\0"[..], id].concat()
        };
        file("proc/sys/kernel/osrelease", b"6.1.0-test\n");
        file("proc/sys/kernel/hostname", b"host\n");
        file("proc/sys/kernel/random/boot_id", b"1-2-3\n");
        file("proc/stat", b"cpu 1 2 3\nbtime 1700000000\n");
        file("proc/modules", b"xfs 1 0 - Live 0x0\n");
        file("sys/kernel/notes", &note(&[7; 20]));
        file("sys/module/xfs/notes/.note.gnu.build-id", &note(&[8; 20]));
        assert_eq!(system.kernel_release().as_deref(), Some("6.1.0-test"));
        assert_eq!(system.hostname().as_deref(), Some("host"));
        assert_eq!(system.boot_id().as_deref(), Some("1-2-3"));
        assert_eq!(system.boot_time(), Some(1_700_000_000));
        assert_eq!(system.kernel_build_id(), Some(BuildId::new(&[7; 20])));
        assert_eq!(system.module_build_id("xfs"), Some(BuildId::new(&[8; 20])));
        assert_eq!(system.module_build_id("ext4"), None);
        assert!(system.has_modules());
    }

    #[test]
    fn the_running_kernel_says_the_same_twice() {
        let (system, name) = (SystemRoot::machine(), KernelName::running());
        assert_eq!(system.kernel_release(), Some(name.release));
        assert_eq!(system.hostname(), Some(name.node));
    }
}
