//! Paths of inodes: of files that processes have open or mapped now, of those that the kernel
//! knows the name of, and by looking through the directories of a file system.

use std::collections::{HashMap, HashSet};
use std::fs::{File, Metadata};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::SystemRoot;

/// Descriptors and mappings that are looked at.
const MOST_LINKS: usize = 1 << 17;
/// Time for these.
const LINKS_TIME: Duration = Duration::from_secs(2);
/// Directories that wait to be looked through.
const MOST_DIRECTORIES: usize = 1 << 20;

/// An inode: major and minor number of the device of its file system, and its own.
pub type InodeNumber = (u32, u32, u64);

/// A file by one of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodePath {
    /// The path, where it has one.
    pub path: PathBuf,
    /// Whether it has no name any more.
    pub is_deleted: bool,
    /// When it was made, where the file system knows.
    pub born: Option<SystemTime>,
}

/// A file system by where it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedDevice {
    /// Major and minor number of its device.
    pub device: (u32, u32),
    /// Mount point.
    pub path: PathBuf,
    /// Its type, such as `ext4`.
    pub kind: String,
}

fn number_of(meta: &Metadata) -> InodeNumber {
    let dev = meta.dev();
    let major = (dev >> 32 & 0xffff_f000) | (dev >> 8 & 0xfff);
    let minor = (dev >> 12 & 0xffff_ff00) | (dev & 0xff);
    (major as u32, minor as u32, meta.ino())
}

impl SystemRoot {
    /// The file systems of devices that this process sees as a whole, each once.
    pub fn mounted_devices(&self) -> Vec<MountedDevice> {
        let text = self.text("proc/self/mountinfo").unwrap_or_default();
        let mut seen = HashSet::new();
        let mounts = text.lines().filter_map(|line| {
            // ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS
            let (mount, system) = line.split_once(" - ")?;
            let mut words = mount.split(' ').skip(2);
            let (major, minor) = words.next()?.split_once(':')?;
            let device = (major.parse().ok()?, minor.parse().ok()?);
            (words.next()? == "/").then_some(())?;
            let path = unescaped(words.next()?);
            let kind = system.split(' ').next()?.to_owned();
            Some(MountedDevice { device, path, kind })
        });
        mounts.filter(|m| seen.insert(m.device)).collect()
    }

    /// Paths of those of these inodes that processes have open or mapped now.
    pub fn open_inodes(&self, wanted: &HashSet<InodeNumber>) -> HashMap<InodeNumber, InodePath> {
        let until = Instant::now() + LINKS_TIME;
        let mut found = HashMap::new();
        let mut looked_at = 0;
        for pid in self.pids() {
            for directory in ["fd", "map_files"] {
                let there = self.path(format!("proc/{pid}/{directory}"));
                for link in std::fs::read_dir(there).into_iter().flatten().flatten() {
                    looked_at += 1;
                    if looked_at > MOST_LINKS
                        || found.len() == wanted.len()
                        || Instant::now() > until
                    {
                        return found;
                    }
                    let Ok(meta) = std::fs::metadata(link.path()) else { continue };
                    let number = number_of(&meta);
                    if !wanted.contains(&number) || found.contains_key(&number) {
                        continue;
                    }
                    if let Some(path) = self.path_of_link(pid, &link.path(), &meta) {
                        found.insert(number, path);
                    }
                }
            }
        }
        found
    }

    /// The path that a link of `/proc` names, if the file is there, or has no name.
    fn path_of_link(&self, pid: u32, link: &Path, meta: &Metadata) -> Option<InodePath> {
        let target = std::fs::read_link(link).ok()?;
        let born = meta.created().ok();
        if meta.nlink() == 0 {
            let bytes = target.as_os_str().as_bytes();
            let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes).to_vec();
            let path = PathBuf::from(std::ffi::OsString::from_vec(bytes));
            return Some(InodePath { path, is_deleted: true, born });
        }
        // Of a process with its own mounts or root the path may be of something else here.
        let below = self.root_of(pid).join(target.strip_prefix("/").unwrap_or(&target));
        let is_it = |path: &Path| {
            std::fs::symlink_metadata(path).is_ok_and(|m| number_of(&m) == number_of(meta))
        };
        let path = [target, below].into_iter().find(|path| is_it(path))?;
        Some(InodePath { path, is_deleted: false, born })
    }
}

/// Finds those of these inodes of an ext4 file system of which the kernel knows a name now, as it
/// does of files that were used of late.
pub fn find_known_inodes(
    mount: &MountedDevice,
    wanted: &HashSet<InodeNumber>,
    found: &mut HashMap<InodeNumber, InodePath>,
) {
    // Other file systems know an inode only together with its generation.
    if mount.kind != "ext4" {
        return;
    }
    let Ok(root) = File::open(&mount.path) else { return };
    for number in wanted.iter().filter(|n| (n.0, n.1) == mount.device) {
        if found.contains_key(number) {
            continue;
        }
        let Some(path) = known_path(&root, number.2) else { continue };
        // What has no name is shown by one that it does not have.
        if let Ok(meta) = std::fs::symlink_metadata(&path)
            && number_of(&meta) == *number
        {
            let born = meta.created().ok();
            found.insert(*number, InodePath { path, is_deleted: false, born });
        }
    }
}

/// The path that the kernel shows of an inode of this directory's file system.
fn known_path(root: &File, inode: u64) -> Option<PathBuf> {
    // Number and generation, of which 0 is any (`FILEID_INO32_GEN`).
    let mut handle = [8, 1, u32::try_from(inode).ok()?, 0];
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    let (call, root) = (libc::SYS_open_by_handle_at, root.as_raw_fd());
    // SAFETY: the handle has the 8 bytes behind its head that it states, and outlives the call.
    let fd = unsafe { libc::syscall(call, root, handle.as_mut_ptr(), flags) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the call returned it, and it has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()
}

/// Looks through the directories of a file system for inodes, until all are found or the time is
/// over; says whether it looked at all directories, or found all.
pub fn find_inodes(
    mount: &MountedDevice,
    wanted: &HashSet<InodeNumber>,
    until: Instant,
    found: &mut HashMap<InodeNumber, InodePath>,
) -> bool {
    let (major, minor) = mount.device;
    let is_left = |found: &HashMap<InodeNumber, InodePath>| {
        wanted.iter().any(|n| (n.0, n.1) == mount.device && !found.contains_key(n))
    };
    let mut directories = vec![mount.path.clone()];
    while let Some(directory) = directories.pop() {
        if !is_left(found) {
            return true;
        }
        if Instant::now() > until || directories.len() > MOST_DIRECTORIES {
            return false;
        }
        // Other file systems may be mounted below.
        let here = std::fs::symlink_metadata(&directory).map(|m| number_of(&m));
        if !here.is_ok_and(|(a, b, _)| (a, b) == mount.device) {
            continue;
        }
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let number = (major, minor, entry.ino());
            if wanted.contains(&number)
                && !found.contains_key(&number)
                && let Ok(meta) = entry.metadata()
                && number_of(&meta) == number
            {
                let born = meta.created().ok();
                found.insert(number, InodePath { path: entry.path(), is_deleted: false, born });
            }
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                directories.push(entry.path());
            }
        }
    }
    true
}

/// A path of mountinfo: blanks and the like are octal.
fn unescaped(word: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        let octal = more.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        match octal.and_then(|d| u8::from_str_radix(d, 8).ok()).filter(|_| first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = more.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = more;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_their_inodes() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("a b");
        std::fs::create_dir(&below).unwrap();
        let (kept, gone) = (below.join("kept"), below.join("gone"));
        let files = [&kept, &gone].map(|path| std::fs::File::create(path).unwrap());
        let numbers = [&files[0], &files[1]].map(|f| number_of(&f.metadata().unwrap()));
        std::fs::remove_file(&gone).unwrap();
        let wanted: HashSet<InodeNumber> = numbers.into_iter().collect();
        let open = SystemRoot::machine().open_inodes(&wanted);
        let of = |n: usize| open.get(&numbers[n]).map(|p| (p.path.clone(), p.is_deleted));
        assert_eq!((of(0), of(1)), (Some((kept.clone(), false)), Some((gone, true))));
        // By number alone, where that is allowed.
        let mounts = SystemRoot::machine().mounted_devices();
        let of_it = |m: &&MountedDevice| m.device == (numbers[0].0, numbers[0].1);
        if let Some(mount) = mounts.iter().find(of_it) {
            let mut known = HashMap::new();
            find_known_inodes(mount, &wanted, &mut known);
            let path = known.get(&numbers[0]).map(|p| &p.path);
            assert!(path.is_none_or(|path| *path == kept), "{path:?}");
            assert!(!known.contains_key(&numbers[1]));
            println!("known by number: {path:?}");
        }
        // Without the process, where its file system is mounted.
        let (major, minor, _) = numbers[0];
        let mount = MountedDevice {
            device: (major, minor),
            path: directory.path().to_owned(),
            kind: "ext4".to_owned(),
        };
        let mut found = HashMap::new();
        let until = Instant::now() + Duration::from_secs(20);
        assert!(find_inodes(&mount, &wanted, until, &mut found));
        assert_eq!(found.get(&numbers[0]).map(|p| &p.path), Some(&kept));
        assert!(!found.contains_key(&numbers[1]));
        // No time.
        assert!(!find_inodes(&mount, &wanted, Instant::now(), &mut HashMap::new()));
    }

    #[test]
    fn mounts_are_those_of_whole_file_systems() {
        let root = tempfile::tempdir().unwrap();
        let there = root.path().join("proc/self");
        std::fs::create_dir_all(&there).unwrap();
        let text = "22 1 254:0 / / rw - ext4 /dev/vda rw\n23 22 254:1 /sub /m rw - ext4 x rw\n\
                    24 22 8:1 / /a\\040b rw shared:1 - xfs /dev/sda1 rw\n25 22 8:1 / /c rw - xfs\n";
        std::fs::write(there.join("mountinfo"), text).unwrap();
        let mounts = SystemRoot::below(root.path()).mounted_devices();
        let all: Vec<_> = mounts.iter().map(|m| (m.device, m.path.to_str(), &*m.kind)).collect();
        assert_eq!(all, [((254, 0), Some("/"), "ext4"), ((8, 1), Some("/a b"), "xfs")]);
    }
}
