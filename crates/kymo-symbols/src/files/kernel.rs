//! Paths of kernel images and module files, and the release of the running kernel.

use std::path::{Path, PathBuf};

use kymo_kernel::system::SystemRoot;
use kymo_model::BuildId;

use crate::compressed_modules::plain_name;

/// The release of the running kernel.
pub(crate) fn running_release() -> Option<String> {
    SystemRoot::machine().kernel_release()
}

/// The build-id of the running kernel.
pub(crate) fn running_build_id() -> Option<BuildId> {
    SystemRoot::machine().kernel_build_id()
}

/// Candidate paths of a kernel's image.
pub(crate) fn vmlinux_places(release: &str) -> Vec<PathBuf> {
    [
        format!("/usr/lib/debug/boot/vmlinux-{release}"),
        format!("/usr/lib/debug/lib/modules/{release}/vmlinux"),
        format!("/lib/modules/{release}/build/vmlinux"),
        format!("/boot/vmlinux-{release}"),
        format!("/lib/modules/{release}/vmlinux"),
        format!("/usr/lib/debug/usr/lib/modules/{release}/vmlinux"),
        format!("/usr/lib/modules/{release}/build/vmlinux"),
        format!("/usr/lib/modules/{release}/vmlinux"),
        format!("/usr/lib/debug/boot/vmlinux-{release}.debug"),
    ]
    .into_iter()
    .map(PathBuf::from)
    .collect()
}

/// Directories that modules of a kernel may be below: first with debugging information. On
/// most machines `/lib` is a link to `/usr/lib`; below another root it may be missing.
pub(crate) fn module_roots(release: &str) -> [PathBuf; 4] {
    ["/usr/lib/debug/lib", "/usr/lib/debug/usr/lib", "/lib", "/usr/lib"]
        .map(|directory| PathBuf::from(format!("{directory}/modules/{release}")))
}

/// A module's file: with debugging information if that is installed.
pub(crate) fn find_module(name: &str, release: &str) -> Option<PathBuf> {
    module_roots(release).iter().find_map(|root| module_below(root, name))
}

/// A module's file below a directory.
pub(crate) fn module_below(root: &Path, name: &str) -> Option<PathBuf> {
    find_in(root, &name.replace('-', "_"), 0)
}

fn find_in(directory: &Path, wanted: &str, depth: usize) -> Option<PathBuf> {
    const DEEPEST: usize = 12;
    if depth > DEEPEST {
        return None;
    }
    for entry in std::fs::read_dir(directory).ok()?.flatten() {
        let kind = entry.file_type().ok()?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let name = plain_name(&name);
        if kind.is_dir() {
            if let Some(found) = find_in(&entry.path(), wanted, depth + 1) {
                return Some(found);
            }
        } else if name
            .strip_suffix(".ko")
            .or_else(|| name.strip_suffix(".ko.debug"))
            .is_some_and(|s| s.replace('-', "_") == wanted)
        {
            return Some(entry.path());
        }
    }
    None
}
