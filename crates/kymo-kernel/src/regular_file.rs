//! Regular files under paths that another user may control: a recording, DWARF, a convention such
//! as `/tmp/perf-PID.map`. Opening and reading them never waits, has no side effects and takes no
//! more memory than allowed, whatever lies at the path: FIFOs, devices and files that the kernel
//! makes while they are read (`/proc/kmsg`) are refused.
//!
//! Files of other users in shared directories are for [`shared`](crate::shared), which also looks
//! at owners and follows no links.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Seek as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

/// File systems whose files the kernel makes while they are read: `statfs.f_type` of
/// proc, sysfs, tracefs, debugfs, cgroup2, bpf, securityfs (`linux/magic.h`).
const PSEUDO_FILE_SYSTEMS: [u32; 7] =
    [0x9fa0, 0x6265_6572, 0x7472_6163, 0x6462_6720, 0x6367_7270, 0xcafe_4a11, 0x7363_6673];

/// Opens a regular file for reading. Links are followed.
///
/// # Errors
/// If it cannot be opened, or is no regular file of a disk or of memory
/// ([`io::ErrorKind::InvalidInput`]).
pub fn open(path: &Path) -> io::Result<File> {
    Ok(open_with_metadata(path)?.0)
}

/// Opens a regular file as [`open`] does; gives what the file system says of it, too.
///
/// # Errors
/// As [`open`].
pub fn open_with_metadata(path: &Path) -> io::Result<(File, Metadata)> {
    // Opening a device may already do something (rewind a tape, arm a watchdog), so its type is
    // read through a descriptor that cannot read.
    let looked_at = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    reopen(File::from(looked_at), path)
}

/// Opens for reading what a descriptor that cannot read stands for.
fn reopen(looked_at: File, path: &Path) -> io::Result<(File, Metadata)> {
    let expected = looked_at.metadata()?;
    check(&expected)?;
    // `f_type` has another width on other architectures; the numbers have 32 bits.
    let file_system = rustix::fs::fstatfs(&looked_at)?.f_type as u32;
    if PSEUDO_FILE_SYSTEMS.contains(&file_system) {
        return Err(refusal("not a regular file on disk"));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let same = format!("/proc/self/fd/{}", looked_at.as_raw_fd());
    let file = match openat(CWD, same, flags, Mode::empty()) {
        // Without /proc the path is opened again, and must still lead to the same file.
        Err(rustix::io::Errno::NOENT) => openat(CWD, path, flags, Mode::empty())?,
        other => other?,
    };
    let file = File::from(file);
    let meta = file.metadata()?;
    check(&meta)?;
    if (meta.dev(), meta.ino()) != (expected.dev(), expected.ino()) {
        return Err(refusal("replaced while it was opened"));
    }
    Ok((file, meta))
}

/// Opens a regular file as [`open`] does, but no link to one.
///
/// # Errors
/// As [`open`]; and if the last part of the path is a link.
pub fn open_without_links(path: &Path) -> io::Result<File> {
    let looked_at =
        openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    Ok(reopen(File::from(looked_at), path)?.0)
}

/// Opens a regular file as [`open`] does, `path` being below `root` as it is for a process whose
/// root that is: no link leads out of it.
///
/// # Errors
/// As [`open`]; and on Linux before 5.6, which cannot.
pub fn open_below(root: &Path, path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let top = openat(CWD, root, flags | OFlags::DIRECTORY, Mode::empty())?;
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let looked_at = openat2(&top, path, flags, Mode::empty(), within)?;
    Ok(reopen(File::from(looked_at), path)?.0)
}

/// Opens a directory below `root` as [`open_below`] does a file: for paths only, which lead below
/// it for as long as it is held, also when `root` has gone.
///
/// # Errors
/// As [`open_below`].
pub fn directory_below(root: &Path, path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let top = openat(CWD, root, flags, Mode::empty())?;
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(File::from(openat2(&top, path, flags, Mode::empty(), within)?))
}

/// Creates a file, of mode 0600, for a writer with more rights than the users who may have put
/// something at the path. An existing file is emptied if it is one's own, has no other name, and
/// `may_replace` accepts its first bytes (at most 64). Links are not followed.
///
/// # Errors
///
/// If it cannot be created, or something else exists ([`io::ErrorKind::AlreadyExists`]).
pub fn create_or_empty(path: &Path, may_replace: impl FnOnce(&[u8]) -> bool) -> io::Result<File> {
    let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(CWD, path, new, Mode::from_raw_mode(0o600)) {
        Err(rustix::io::Errno::EXIST) => {}
        made => return Ok(File::from(made?)),
    }
    let other = |what: &str| io::Error::new(io::ErrorKind::AlreadyExists, what);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let looked_at = File::from(openat(CWD, path, flags, Mode::empty())?);
    let meta = looked_at.metadata()?;
    if meta.is_symlink() {
        return Err(other("a symbolic link exists there, which is not followed"));
    }
    if !meta.is_file() {
        return Err(other("something other than a regular file exists there"));
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(other("a file of another user exists there"));
    }
    if meta.nlink() > 1 {
        return Err(other("a file with several names exists there"));
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let same = format!("/proc/self/fd/{}", looked_at.as_raw_fd());
    let mut file = File::from(openat(CWD, same, flags, Mode::empty())?);
    let mut begin = Vec::new();
    (&mut file).take(64).read_to_end(&mut begin)?;
    if !may_replace(&begin) {
        return Err(other("a file of another kind exists there"));
    }
    file.set_len(0)?;
    file.rewind()?;
    Ok(file)
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// As [`open`]; and if the file is larger ([`io::ErrorKind::FileTooLarge`]).
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let (file, meta) = open_with_metadata(path)?;
    read_open(file, &meta, limit)
}

/// Reads a file that [`open_with_metadata`] opened.
///
/// # Errors
/// As [`read`].
pub fn read_open(file: File, meta: &Metadata, limit: u64) -> io::Result<Vec<u8>> {
    let too_large = |size: u64| {
        let why = format!("{size} bytes exceed the limit of {limit}");
        io::Error::new(io::ErrorKind::FileTooLarge, why)
    };
    let size = meta.len();
    if size > limit {
        return Err(too_large(size));
    }
    let mut bytes = Vec::with_capacity(size as usize);
    // Its writer may be adding to it: what came until now is read, within the limit.
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        read if read > limit => Err(too_large(read)),
        _ => Ok(bytes),
    }
}

fn check(meta: &Metadata) -> io::Result<()> {
    if meta.is_file() { Ok(()) } else { Err(refusal("not a regular file")) }
}

fn refusal(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[track_caller]
    fn refused(path: &Path) {
        let error = open(path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{}: {error}", path.display());
        assert!(error.to_string().starts_with("not a regular file"), "{error}");
    }

    #[test]
    fn only_files_of_disks_and_memory_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mkfifoat(CWD, &fifo, Mode::from_raw_mode(0o600)).unwrap();
        let link = dir.path().join("link");
        symlink("/dev/zero", &link).unwrap();
        let paths = [&fifo, &link, dir.path(), Path::new("/proc/kmsg"), Path::new("/proc/stat")];
        paths.into_iter().for_each(refused);
        refused(Path::new("/sys/kernel/notes"));
        let missing = open(&dir.path().join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let plain = dir.path().join("plain");
        std::fs::write(&plain, "text").unwrap();
        symlink(&plain, dir.path().join("to-plain")).unwrap();
        assert_eq!(read(&dir.path().join("to-plain"), 4).unwrap(), b"text");
        assert!(open_without_links(&plain).is_ok());
        assert!(open_without_links(&dir.path().join("to-plain")).is_err());
    }

    #[test]
    fn only_files_of_the_kind_and_of_ones_own_are_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let is_ours = |begin: &[u8]| begin.is_empty() || begin.starts_with(b"magic");
        let create = |name: &str| create_or_empty(&at(name), is_ours);
        let refused = |name: &str, why: &str| {
            let error = create(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{name}");
            assert!(error.to_string().contains(why), "{name}: {error}");
        };
        let new = create("new").unwrap();
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&new.metadata().unwrap().permissions()) & 0o777,
            0o600
        );
        std::fs::write(at("new"), "magic and more").unwrap();
        create("new").unwrap();
        assert_eq!(std::fs::read(at("new")).unwrap(), b"");
        std::fs::write(at("text"), "something else").unwrap();
        refused("text", "another kind");
        symlink(at("new"), at("link")).unwrap();
        refused("link", "symbolic link");
        symlink(at("nowhere"), at("dangling")).unwrap();
        refused("dangling", "symbolic link");
        assert!(!at("nowhere").exists());
        std::fs::hard_link(at("new"), at("second")).unwrap();
        refused("new", "several names");
        rustix::fs::mkfifoat(CWD, at("fifo"), Mode::from_raw_mode(0o600)).unwrap();
        refused("fifo", "other than a regular file");
        std::fs::create_dir(at("dir")).unwrap();
        refused("dir", "other than a regular file");
        assert_eq!(std::fs::read(at("text")).unwrap(), b"something else");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(at("text"), Some(65534), None).unwrap();
            refused("text", "another user");
        }
    }

    #[test]
    fn no_link_leads_out_of_a_root() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("inside"), "text").unwrap();
        symlink("/inside", dir.path().join("absolute")).unwrap();
        symlink("../../../../../../etc/passwd", dir.path().join("outside")).unwrap();
        for name in ["inside", "/inside", "/absolute"] {
            assert!(open_below(dir.path(), Path::new(name)).is_ok(), "{name}");
        }
        for name in ["/outside", "/etc/passwd", "../../etc/passwd"] {
            assert!(open_below(dir.path(), Path::new(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn larger_files_are_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        let error = read(file.path(), 1 << 20).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "1099511627776 bytes exceed the limit of 1048576");
    }

    #[test]
    fn files_in_memory_have_paths_below_proc() {
        let fd = rustix::fs::memfd_create("kymo-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&fd, b"in memory").unwrap();
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        assert_eq!(read(Path::new(&path), 100).unwrap(), b"in memory");
    }
}
