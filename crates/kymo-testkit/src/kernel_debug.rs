//! Where `cargo xtask vm fetch --debug` unpacked the kernel's debug package.

use std::path::PathBuf;

/// A kernel with debugging information.
#[derive(Clone, Debug)]
pub struct KernelDebug {
    /// Its `vmlinux`.
    pub vmlinux: PathBuf,
    /// The folder with its modules' debugging information (`kernel/fs/…`).
    pub modules: PathBuf,
}

/// The unpacked package, if it is there.
#[must_use]
pub fn kernel_debug() -> Option<KernelDebug> {
    // The test program is at `<target>/…/deps/NAME`.
    let program = std::env::current_exe().ok()?;
    let vm = program.ancestors().map(|a| a.join("vm")).find(|v| v.is_dir())?;
    for package in std::fs::read_dir(vm).ok()?.flatten() {
        let debug = package.path().join("usr/lib/debug");
        for file in std::fs::read_dir(debug.join("boot")).into_iter().flatten().flatten() {
            let name = file.file_name().into_string().ok()?;
            if let Some(release) = name.strip_prefix("vmlinux-") {
                return Some(KernelDebug {
                    vmlinux: file.path(),
                    modules: debug.join("lib/modules").join(release),
                });
            }
        }
    }
    None
}
