//! Directories that the user names for separate debug files, beside those that distributions have.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kymo_debuginfo::DebugLink;
use kymo_model::BuildId;

/// Directories that were chosen for this run.
static CHOSEN: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Chooses directories for debug files for the rest of this run; they are looked at before those of
/// the machine. Relative ones begin where the binary is. To be called before the first look at a
/// binary.
pub fn choose_debug_directories(directories: Vec<PathBuf>) {
    // There is one command line.
    let _ = CHOSEN.set(directories);
}

/// Files that may be the debug file of the binary at `own`, in the directories that were chosen;
/// its build-id or its checksum confirms it.
pub(crate) fn candidates(
    own: &Path,
    root: &Path,
    id: Option<BuildId>,
    link: Option<&DebugLink>,
) -> Vec<PathBuf> {
    CHOSEN.get().map_or_else(Vec::new, |chosen| within(chosen, own, root, id, link))
}

fn within(
    directories: &[PathBuf],
    own: &Path,
    root: &Path,
    id: Option<BuildId>,
    link: Option<&DebugLink>,
) -> Vec<PathBuf> {
    let Some(beside) = own.parent() else { return Vec::new() };
    let inside = beside.strip_prefix(root).unwrap_or(beside);
    let linked = link.and_then(|link| std::str::from_utf8(&link.name).ok());
    let linked = linked.filter(|name| !name.is_empty() && !name.contains('/')).map(str::to_owned);
    let plain = own.file_name().map(|name| format!("{}.debug", name.to_string_lossy()));
    let by_id = id.map(|id| id.to_string());
    let mut places = Vec::new();
    for directory in directories {
        let directory = beside.join(directory);
        if let Some((head, tail)) = by_id.as_deref().and_then(|id| id.split_at_checked(2)) {
            places.push(directory.join(format!(".build-id/{head}/{tail}.debug")));
        }
        for name in linked.iter().chain(&plain) {
            // `inside` may be relative, as the binary's path.
            let repeated = inside.strip_prefix("/").unwrap_or(inside);
            places.extend([directory.join(repeated).join(name), directory.join(name)]);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_directories_begin_where_the_binary_is() {
        let directories = [PathBuf::from("/debug"), PathBuf::from("./own")];
        let link = DebugLink { name: b"tool.dbg".to_vec(), crc: 0 };
        let id = Some(BuildId::new(&[0xab, 0xcd, 0xef]));
        let own = Path::new("/opt/bin/tool");
        let places = within(&directories, own, Path::new("/"), id, Some(&link));
        let expected = [
            "/debug/.build-id/ab/cdef.debug",
            "/debug/opt/bin/tool.dbg",
            "/debug/tool.dbg",
            "/debug/opt/bin/tool.debug",
            "/debug/tool.debug",
            "/opt/bin/./own/.build-id/ab/cdef.debug",
            "/opt/bin/./own/opt/bin/tool.dbg",
            "/opt/bin/./own/tool.dbg",
            "/opt/bin/./own/opt/bin/tool.debug",
            "/opt/bin/./own/tool.debug",
        ];
        let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
        assert_eq!(places, expected);
    }
}
