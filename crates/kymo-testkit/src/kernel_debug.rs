//! Kernel's debug package as unpacked by `cargo xtask vm fetch --debug`, and in the guest, where
//! tests in files `guest_debug_*.rs` find it and some sources.

use std::path::{Path, PathBuf};

/// A kernel with debugging information.
#[derive(Clone, Debug)]
pub struct KernelDebug {
    /// Its `vmlinux`.
    pub vmlinux: PathBuf,
    /// The directory with its modules' debugging information (`kernel/fs/…`).
    pub modules: PathBuf,
    /// Directory into which it was unpacked; derived files may be stored there.
    pub own: PathBuf,
    /// The directory with its sources, some of them, in the guest only.
    pub sources: PathBuf,
}

/// The unpacked package, if it is there.
#[must_use]
pub fn kernel_debug() -> Option<KernelDebug> {
    if crate::guest() {
        return in_package(Path::new("/"));
    }
    std::fs::read_dir(crate::in_target("vm")?)
        .ok()?
        .flatten()
        .find_map(|package| in_package(&package.path()))
}

fn in_package(root: &Path) -> Option<KernelDebug> {
    let debug = root.join("usr/lib/debug");
    std::fs::read_dir(debug.join("boot")).ok()?.flatten().find_map(|file| {
        let name = file.file_name().into_string().ok()?;
        let release = name.strip_prefix("vmlinux-")?;
        let modules = debug.join("lib/modules").join(release);
        let (own, sources) = (root.to_owned(), debug.join("src"));
        Some(KernelDebug { vmlinux: file.path(), modules, own, sources })
    })
}

/// The archive of the kernel's sources, where `cargo xtask vm fetch --debug` has put it.
#[must_use]
pub fn kernel_source() -> Option<PathBuf> {
    let files = std::fs::read_dir(crate::in_target("vm")?).ok()?.flatten();
    let archives =
        files.filter_map(|package| std::fs::read_dir(package.path().join("usr/src")).ok());
    archives.flatten().flatten().map(|file| file.path()).find(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|n| n.starts_with("linux-source-") && n.ends_with(".tar.xz"))
    })
}
