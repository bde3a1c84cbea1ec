//! Paths as another process sees them: below its root, where links that begin with a
//! slash count from that root and not from ours.

use std::io;
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows.
const LINKS: u32 = 40;

/// Process and path of a path below a process's root in `/proc`, whose link says only `/`.
pub(super) fn of_process(path: &Path) -> Option<(u32, &Path)> {
    let rest = path.strip_prefix("/proc").ok()?;
    let pid = rest.components().next()?.as_os_str().to_str()?;
    let below = rest.strip_prefix(pid).ok()?.strip_prefix("root").ok()?;
    Some((pid.parse().ok()?, below))
}

/// The file that a path means to a process, as this one can open it.
///
/// # Errors
/// If there is no such file or process.
pub fn path_in_process(pid: u32, path: &Path) -> io::Result<PathBuf> {
    resolve(&kymo_kernel::system::SystemRoot::machine().root_of(pid), path)
}

/// The file that `path` is below `root`, without links behind the root.
pub(super) fn resolve(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut left: Vec<PathBuf> = parts(path);
    let mut found: Vec<PathBuf> = Vec::new();
    let mut links = 0;
    let whole = |found: &[PathBuf]| found.iter().fold(root.to_owned(), |all, part| all.join(part));
    while let Some(part) = left.pop() {
        if part.as_os_str() == ".." {
            // There is nothing above a root.
            found.pop();
            continue;
        }
        found.push(part);
        let place = whole(&found);
        if !std::fs::symlink_metadata(&place)?.is_symlink() {
            continue;
        }
        links += 1;
        if links > LINKS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many links"));
        }
        let target = std::fs::read_link(&place)?;
        if target.is_absolute() {
            found.clear()
        } else {
            drop(found.pop())
        }
        left.extend(parts(&target));
    }
    Ok(whole(&found))
}

/// The names of a path, the last first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let names = path.components().filter_map(|c| match c {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        _ => None,
    });
    let mut all: Vec<PathBuf> = names.collect();
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn roots_of_processes_are_known() {
        let check = |parts: &[&str], expected| {
            let path: PathBuf = parts.iter().collect();
            assert_eq!(of_process(&path), expected, "{}", path.display());
        };
        check(&["/proc/12/root", "usr/bin/x"], Some((12, Path::new("usr/bin/x"))));
        check(&["/proc/12/exe"], None);
        check(&["/proc/self/root", "x"], None);
        check(&["/usr/bin/x"], None);
    }

    #[test]
    fn links_stay_below_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        std::fs::create_dir_all(root.join("usr/bin")).unwrap();
        std::fs::write(root.join("usr/bin/real"), "").unwrap();
        symlink("usr/bin", root.join("bin")).unwrap();
        symlink("/bin/real", root.join("usr/bin/name")).unwrap();
        symlink("../../../bin/name", root.join("usr/up")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        for path in ["/usr/bin/real", "bin/real", "/bin/name", "/usr/up", "/../bin/./name"] {
            let found = resolve(root, Path::new(path)).unwrap();
            assert_eq!(found, root.join("usr/bin/real"), "{path}");
        }
        assert!(resolve(root, Path::new("/loop")).is_err());
        assert!(resolve(root, Path::new("/etc/passwd")).is_err());
    }
}
