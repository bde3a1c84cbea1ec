//! Source files for a bundle. A binary names them, and who made the binary must not
//! choose which files of the bundle's maker leave the machine: taken are texts that
//! anybody may read, and those of the binary's own owner.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Larger files are no sources; readers of sources know the same bound.
const LARGEST: u64 = 16 << 20;
/// All of a bundle together.
const ALL: u64 = 256 << 20;

/// How much may still go into the bundle.
pub(super) struct Room(u64);

impl Default for Room {
    fn default() -> Room {
        Room(ALL)
    }
}

impl Room {
    /// A text, if there is room for it. `owner`: of the binary that names it, where the
    /// file is not one that was asked for by its build.
    pub(super) fn take(&mut self, path: &Path, owner: Option<u32>) -> Option<Vec<u8>> {
        let text = text(path, owner)?;
        self.0 = self.0.checked_sub(text.len() as u64)?;
        Some(text)
    }
}

fn text(path: &Path, owner: Option<u32>) -> Option<Vec<u8>> {
    const EXECUTE: u32 = 0o001;
    const READ: u32 = 0o004;
    let real = std::fs::canonicalize(path).ok()?;
    let allowed = |uid, mode: u32, bit| owner.is_none_or(|o| o == uid) || mode & bit != 0;
    for folder in real.ancestors().skip(1) {
        let meta = std::fs::metadata(folder).ok()?;
        if !allowed(meta.uid(), meta.mode(), EXECUTE) {
            return None;
        }
    }
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let flags = flags.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&real).ok()?;
    let meta = file.metadata().ok()?;
    let is_text = meta.is_file() && meta.len() <= LARGEST;
    if !is_text || !allowed(meta.uid(), meta.mode(), READ) || !is_at(&file, &real) {
        return None;
    }
    let mut text = Vec::new();
    file.take(LARGEST).read_to_end(&mut text).ok()?;
    (!text.contains(&0)).then_some(text)
}

/// Whether no folder became a link to elsewhere meanwhile.
fn is_at(file: &File, path: &Path) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).is_ok_and(|p| p == path)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_binary_does_not_choose_what_leaves_the_machine() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let path = |name: &str| dir.path().join(name);
        let mode = |name: &str, mode| set_permissions(path(name), Permissions::from_mode(mode));
        mode("", 0o755).unwrap();
        write(path("open.c"), "int main;").unwrap();
        mode("open.c", 0o644).unwrap();
        write(path("secret"), "a key").unwrap();
        mode("secret", 0o600).unwrap();
        symlink("secret", path("link.c")).unwrap();
        std::fs::create_dir(path("closed")).unwrap();
        write(path("closed/open.c"), "int main;").unwrap();
        mode("closed/open.c", 0o644).unwrap();
        mode("closed", 0o700).unwrap();
        write(path("data.c"), b"\0\x01").unwrap();
        let own = std::fs::metadata(path("secret")).unwrap().uid();
        let taken = |name: &str, owner| Room::default().take(&path(name), owner).is_some();
        let all = ["open.c", "secret", "link.c", "closed/open.c", "data.c", "", "nowhere.c"];
        let check = |owner, expected: [bool; 7]| {
            assert_eq!(all.map(|name| taken(name, owner)), expected, "{owner:?}");
        };
        // Somebody else's binary, one's own, and a server's file.
        check(Some(own + 1), [true, false, false, false, false, false, false]);
        check(Some(own), [true, true, true, true, false, false, false]);
        check(None, [true, true, true, true, false, false, false]);
        assert!(!path("fifo").exists());
        let fifo = std::process::Command::new("mkfifo").arg(path("fifo")).status().unwrap();
        assert!(fifo.success() && !taken("fifo", Some(own)));
        assert_eq!(Room(8).take(&path("open.c"), None), None);
    }
}
