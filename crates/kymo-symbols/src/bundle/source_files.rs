//! Source files for a bundle. A binary names them, and who made the binary must not
//! choose which files of the bundle's maker leave the machine. Packed is only what is a
//! source by its name and content and was not kept from others: what anybody may read,
//! and what belongs to the binary's own user. Where that user is root the file is
//! root's secret rather than a source (`/etc/shadow`), unless root recorded, too.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kymo_kernel::{descriptors, regular_file};

/// Larger files are no sources; readers of sources know the same bound.
const LARGEST: u64 = 16 << 20;
/// All of a bundle together.
const ALL: u64 = 256 << 20;

/// Extensions of files that compilers read, without the dot: not those of scripts, data
/// and configurations, which may hold secrets.
const EXTENSIONS: &[&str] = &[
    "c", "h", "i", "cc", "cp", "cpp", "cxx", "c++", "C", "H", "hh", "hp", "hpp", "hxx", "h++",
    "ii", "inc", "inl", "ipp", "ixx", "cppm", "tcc", "tpp", "txx", "def", "m", "mm", "s", "S",
    "sx", "asm", "rs", "go", "zig", "d", "di", "nim", "cr", "odin", "v", "vala", "swift", "f", "F",
    "for", "ftn", "f77", "f90", "F90", "f95", "f03", "f08", "adb", "ads", "ada", "pas", "pp",
    "dpr", "lpr", "cbl", "cob", "hs", "lhs", "ml", "mli", "mll", "mly", "l", "ll", "lex", "y",
    "yy", "re", "rl", "cu", "cuh", "cl", "java", "kt", "scala", "pyx", "pxd", "td", "gen", "lisp",
];
/// Directories with sources only, where names without an extension are headers of C++.
const HEADERS: &[&str] = &["/usr/include", "/usr/local/include", "/usr/src"];

/// Users whose files a bundle may hold though not everybody may read them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owners {
    /// The user that the binary belongs to.
    pub(crate) binary: u32,
    /// The user that the recording belongs to.
    pub(crate) recording: u32,
}

impl Owners {
    /// Whether a user's file may go along that others may not read.
    fn include(self, user: u32) -> bool {
        const ROOT: u32 = 0;
        user == self.binary && (user != ROOT || self.recording == ROOT)
    }
}

/// Reads source files for a bundle, up to a sum of sizes.
#[derive(Debug)]
pub(crate) struct SourcePacker {
    room: u64,
}

/// A source file for a bundle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PackedSource {
    /// Path of the file that was read, without links.
    pub(crate) path: PathBuf,
    pub(crate) text: Vec<u8>,
}

impl Default for SourcePacker {
    fn default() -> SourcePacker {
        SourcePacker { room: ALL }
    }
}

impl SourcePacker {
    /// A source file that may be packed, if there is room for it. `owners` is `None` for a
    /// file that a server gave for the binary's build.
    pub(crate) fn take(&mut self, path: &Path, owners: Option<Owners>) -> Option<PackedSource> {
        let source = source(path, owners)?;
        self.room = self.room.checked_sub(source.text.len() as u64)?;
        Some(source)
    }
}

fn source(path: &Path, owners: Option<Owners>) -> Option<PackedSource> {
    const EXECUTE: u32 = 0o001;
    const READ: u32 = 0o004;
    let real = std::fs::canonicalize(path).ok()?;
    if owners.is_some() && !is_source(&real) {
        return None;
    }
    let allowed = |uid, mode: u32, bit| owners.is_none_or(|o| o.include(uid)) || mode & bit != 0;
    for directory in real.ancestors().skip(1) {
        let meta = std::fs::metadata(directory).ok()?;
        if !allowed(meta.uid(), meta.mode(), EXECUTE) {
            return None;
        }
    }
    let (file, meta) = regular_file::open_with_metadata(&real).ok()?;
    if !allowed(meta.uid(), meta.mode(), READ) || !is_at(&file, &real) {
        return None;
    }
    let text = regular_file::read_open(file, &meta, LARGEST).ok()?;
    (!text.contains(&0)).then_some(PackedSource { path: real, text })
}

/// Whether a file is a source by its name or its directory.
fn is_source(path: &Path) -> bool {
    match path.extension() {
        Some(extension) => EXTENSIONS.iter().any(|known| extension == *known),
        None => HEADERS.iter().any(|directory| path.starts_with(directory)),
    }
}

/// Whether no directory became a link to elsewhere meanwhile.
fn is_at(file: &File, path: &Path) -> bool {
    descriptors::path_of(file).is_ok_and(|p| p == path)
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
        write(path("secret.c"), "a key").unwrap();
        mode("secret.c", 0o600).unwrap();
        symlink("secret.c", path("link.c")).unwrap();
        std::fs::create_dir(path("closed")).unwrap();
        write(path("closed/open.c"), "int main;").unwrap();
        mode("closed/open.c", 0o644).unwrap();
        mode("closed", 0o700).unwrap();
        write(path("data.c"), b"\0\x01").unwrap();
        write(path("shadow"), "root:x:1").unwrap();
        mode("shadow", 0o644).unwrap();
        symlink("shadow", path("named.c")).unwrap();
        let own = std::fs::metadata(path("secret.c")).unwrap().uid();
        let taken =
            |name: &str, owners| SourcePacker::default().take(&path(name), owners).is_some();
        let all = [
            "open.c",
            "secret.c",
            "link.c",
            "closed/open.c",
            "data.c",
            "",
            "no.c",
            "shadow",
            "named.c",
        ];
        let check = |owners, expected: &[&str]| {
            let found: Vec<&str> = all.into_iter().filter(|name| taken(name, owners)).collect();
            assert_eq!(found, expected, "{owners:?}");
        };
        let private = ["open.c", "secret.c", "link.c", "closed/open.c"];
        let of = |binary, recording| Some(Owners { binary, recording });
        // Another user's binary, one's own, and a server's file.
        check(of(own + 1, own), &["open.c"]);
        check(of(own, own), &private);
        check(None, &[&private[..], &["shadow", "named.c"]].concat());
        // What is root's own goes along only with what root recorded.
        let of_users = of(own, own + 1);
        check(of_users, if own == 0 { &["open.c"] } else { &private });
        let fifo = std::process::Command::new("mkfifo").arg(path("fifo.c")).status().unwrap();
        assert!(fifo.success() && !taken("fifo.c", of(own, own)));
        let full = SourcePacker { room: 8 }.take(&path("open.c"), None);
        assert_eq!(full, None);
    }

    #[test]
    fn sources_have_names_of_sources() {
        let check =
            |path: &str, expected| assert_eq!(is_source(Path::new(path)), expected, "{path}");
        check("/home/me/a.rs", true);
        check("/usr/include/c++/14/vector", true);
        check("/usr/include/c++/14/bits/stl_algo.h", true);
        check("/etc/shadow", false);
        check("/home/me/.ssh/id_ed25519", false);
        check("/home/me/.env", false);
        check("/home/me/secrets.yml", false);
        check("/home/me/a.c.key", false);
    }
}
