//! Where images of kernels and files of modules are, and which kernel runs.

use std::path::{Path, PathBuf};

use kymo_debuginfo::build_id_of_notes;
use kymo_model::{BuildId, Endian};

/// The release of the running kernel.
pub(crate) fn running_release() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(text.trim().to_owned())
}

/// The build-id of the running kernel.
pub(crate) fn running_build_id() -> Option<BuildId> {
    build_id_of_notes(&std::fs::read("/sys/kernel/notes").ok()?, Endian::NATIVE)
}

/// Where the image of a kernel may be.
pub(crate) fn vmlinux_places(release: &str) -> Vec<PathBuf> {
    [
        format!("/usr/lib/debug/boot/vmlinux-{release}"),
        format!("/usr/lib/debug/lib/modules/{release}/vmlinux"),
        format!("/lib/modules/{release}/build/vmlinux"),
        format!("/boot/vmlinux-{release}"),
        format!("/usr/lib/debug/boot/vmlinux-{release}.debug"),
    ]
    .into_iter()
    .map(PathBuf::from)
    .collect()
}

/// A module's file: with debugging information if that is installed.
pub(crate) fn find_module(name: &str, release: &str) -> Option<PathBuf> {
    let wanted = name.replace('-', "_");
    let roots =
        [format!("/usr/lib/debug/lib/modules/{release}"), format!("/lib/modules/{release}")];
    roots.iter().find_map(|root| find_in(Path::new(root), &wanted, 0))
}

fn find_in(folder: &Path, wanted: &str, depth: usize) -> Option<PathBuf> {
    const DEEPEST: usize = 12;
    if depth > DEEPEST {
        return None;
    }
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let kind = entry.file_type().ok()?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
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
