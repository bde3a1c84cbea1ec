//! Files that programs of other users made, for a reader that may be privileged:
//! opened name by name, links followed nowhere, checked to be what they claim, and
//! read and written by offset. What is mapped of them is never touched ([`OpaqueMapping`]):
//! a file that shrinks would end the reader.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat, openat, openat2,
};
use rustix::io::Errno;

use crate::opaque_mapping::OpaqueMapping;

/// Why a file of a shared directory is not opened.
#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    /// The kernel refused.
    #[error("{what}: {error}")]
    System {
        /// Which file, and what was tried.
        what: String,
        /// Why not.
        error: io::Error,
    },
    /// It is not what it should be.
    #[error("{path} is {what}")]
    Suspicious {
        /// The file.
        path: PathBuf,
        /// Type of the object.
        what: String,
    },
}

impl SharedError {
    /// Whether it ends before what was to be read.
    pub fn is_short(&self) -> bool {
        matches!(self, SharedError::System { error, .. } if error.kind() == io::ErrorKind::UnexpectedEof)
    }

    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        matches!(self, SharedError::System { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }
}

/// A directory that belongs to one user and is writable only by that user.
#[derive(Debug)]
pub struct SharedDir {
    fd: OwnedFd,
    path: PathBuf,
    owner: u32,
}

/// A regular file with one name in such a directory, of the same user.
#[derive(Debug)]
pub struct SharedFile {
    file: File,
    path: PathBuf,
}

/// Access mode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Reading, writing, locking.
    ReadWrite,
}

impl SharedDir {
    /// The directory `name` of `base`, which is somewhere below `root`: links in `base`
    /// are followed, but lead nowhere above `root`. `root` is `/`, or the root of
    /// another mount namespace as `/proc/PID/root` has it.
    ///
    /// # Errors
    /// If it is not there or can be written by others than its owner.
    pub fn open(root: &Path, base: &Path, name: &OsStr) -> Result<SharedDir, SharedError> {
        let shown = |p: &Path| root.join(p.strip_prefix("/").unwrap_or(p));
        let path_only = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = openat(CWD, root, path_only, Mode::empty()).map_err(system("open", root))?;
        let inside = match base.strip_prefix("/") {
            Ok(rest) if rest.as_os_str().is_empty() => Path::new("."),
            Ok(rest) => rest,
            Err(_) => base,
        };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let base_fd = openat2(&top, inside, path_only, Mode::empty(), resolve)
            .map_err(system("open", &shown(base)))?;
        SharedDir::at(base_fd.as_fd(), shown(base).join(name), name, None)
    }

    /// A directory in this one, of the same owner.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn dir(&self, name: &OsStr) -> Result<SharedDir, SharedError> {
        SharedDir::at(self.fd.as_fd(), self.path.join(name), name, Some(self.owner))
    }

    fn at(
        parent: std::os::fd::BorrowedFd<'_>,
        path: PathBuf,
        name: &OsStr,
        owner: Option<u32>,
    ) -> Result<SharedDir, SharedError> {
        one_name(&path, name)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(parent, name, flags, Mode::empty()).map_err(system("open", &path))?;
        let stat = rustix::fs::fstat(&fd).map_err(system("look at", &path))?;
        belongs(&path, &stat, owner)?;
        Ok(SharedDir { fd, path, owner: stat.st_uid })
    }

    /// Waits for the lock of the directory among all who lock it so; it is let go when the value is
    /// dropped.
    ///
    /// # Errors
    /// If another process holds it for longer than `patience`, or the kernel refuses.
    pub fn lock(&self, patience: Duration) -> Result<DirLock, SharedError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Opened anew: a lock belongs to what was opened.
        let fd = openat(&self.fd, ".", flags, Mode::empty()).map_err(system("open", &self.path))?;
        until_free(patience, || {
            Ok(rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)?)
        })
        .map_err(|error| SharedError::System {
            what: format!("cannot lock {}", self.path.display()),
            error,
        })?;
        Ok(DirLock(fd))
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The user it belongs to, as this process's user namespace has it.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// The names in it, sorted, at most `limit`; and whether there are more.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn names(&self, limit: usize) -> Result<(Vec<OsString>, bool), SharedError> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(system("read", &self.path))? {
            let entry = entry.map_err(system("read", &self.path))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == limit {
                return Ok((names, true));
            }
            names.push(OsStr::from_bytes(name).to_owned());
        }
        names.sort();
        Ok((names, false))
    }

    /// A file in it.
    ///
    /// # Errors
    /// If it is not there, not a regular file with one name, not the owner's, or
    /// others may write to it.
    pub fn file(&self, name: &OsStr, access: Access) -> Result<SharedFile, SharedError> {
        let path = self.path.join(name);
        one_name(&path, name)?;
        let mode = match access {
            Access::Read => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        let flags = mode | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = openat(&self.fd, name, flags, Mode::empty()).map_err(system("open", &path))?;
        let stat = rustix::fs::fstat(&fd).map_err(system("look at", &path))?;
        let suspicious =
            |what: &str| SharedError::Suspicious { path: path.clone(), what: what.into() };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(suspicious("not a regular file"));
        }
        if stat.st_nlink > 1 {
            return Err(suspicious("a file with several names"));
        }
        belongs(&path, &stat, Some(self.owner))?;
        Ok(SharedFile { file: File::from(fd), path })
    }

    /// Makes a file that appears whole or not at all, of the directory's owner.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&self, name: &OsStr, bytes: &[u8]) -> Result<(), SharedError> {
        self.put_whole(name, |file| io::Write::write_all(file, bytes)).map(drop)
    }

    /// Makes an empty file that is held with `flock(LOCK_EX)` from the moment it is there until the
    /// value is dropped or this process ends.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn put_held(&self, name: &OsStr) -> Result<SharedFile, SharedError> {
        let file = self.put_whole(name, |file| {
            Ok(rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)?)
        })?;
        Ok(SharedFile { file, path: self.path.join(name) })
    }

    fn put_whole(
        &self,
        name: &OsStr,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<File, SharedError> {
        let path = self.path.join(name);
        one_name(&path, name)?;
        let temporary = format!(".{}.{}", name.to_string_lossy(), std::process::id());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let failed = system("write", &path);
        let _ = rustix::fs::unlinkat(&self.fd, temporary.as_str(), AtFlags::empty());
        let fd = openat(&self.fd, temporary.as_str(), flags, Mode::from_raw_mode(0o600))
            .map_err(&failed)?;
        let written = self.give(&fd).and_then(|()| {
            let mut file = File::from(fd);
            fill(&mut file)?;
            rustix::fs::renameat(&self.fd, temporary.as_str(), &self.fd, name)?;
            Ok(file)
        });
        written.map_err(|error| {
            let _ = rustix::fs::unlinkat(&self.fd, temporary.as_str(), AtFlags::empty());
            SharedError::System { what: format!("cannot write {}", path.display()), error }
        })
    }

    /// The directory `name` in this one, made if it is not there, of the same owner.
    ///
    /// # Errors
    /// If it cannot be made, or is something else.
    pub fn make_dir(&self, name: &OsStr) -> Result<SharedDir, SharedError> {
        let path = self.path.join(name);
        one_name(&path, name)?;
        match rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd =
                    openat(&self.fd, name, flags, Mode::empty()).map_err(system("open", &path))?;
                self.give(&fd).map_err(|error| SharedError::System {
                    what: format!("cannot change the owner of {}", path.display()),
                    error,
                })?;
            }
            Err(Errno::EXIST) => {}
            Err(e) => return Err(system("make", &path)(e)),
        }
        self.dir(name)
    }

    /// Makes what is open the owner's, where that is not oneself.
    fn give(&self, fd: &OwnedFd) -> io::Result<()> {
        if rustix::process::geteuid().as_raw() == self.owner {
            return Ok(());
        }
        Ok(rustix::fs::fchown(fd, Some(rustix::fs::Uid::from_raw(self.owner)), None)?)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// If it cannot be removed; that it is not there is none.
    pub fn remove(&self, name: &OsStr) -> Result<(), SharedError> {
        self.unlink(name, AtFlags::empty())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// If it cannot be removed; that it is not there is none.
    pub fn remove_dir(&self, name: &OsStr) -> Result<(), SharedError> {
        self.unlink(name, AtFlags::REMOVEDIR)
    }

    fn unlink(&self, name: &OsStr, flags: AtFlags) -> Result<(), SharedError> {
        let path = self.path.join(name);
        one_name(&path, name)?;
        match rustix::fs::unlinkat(&self.fd, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(system("remove", &path)(e)),
        }
    }
}

impl SharedFile {
    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Current size, in bytes.
    ///
    /// # Errors
    ///
    /// If fstat(2) fails.
    pub fn size(&self) -> Result<u64, SharedError> {
        Ok(self.file.metadata().map_err(|e| self.failed("look at", e))?.len())
    }

    /// Reads all of `into`, at `offset`.
    ///
    /// # Errors
    /// If the file ends before.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), SharedError> {
        self.file.read_exact_at(into, offset).map_err(|e| self.failed("read", e))
    }

    /// Reads as much of `into` as there is.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn read_some(&self, offset: u64, into: &mut [u8]) -> Result<usize, SharedError> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|r| !r.is_empty()) {
            match self.file.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed("read", e)),
            }
        }
        Ok(done)
    }

    /// Writes at `offset`.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), SharedError> {
        self.file.write_all_at(bytes, offset).map_err(|e| self.failed("write", e))
    }

    /// Allocated size in bytes, without holes.
    ///
    /// # Errors
    ///
    /// If fstat(2) fails.
    pub fn allocated(&self) -> Result<u64, SharedError> {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = self.file.metadata().map_err(|e| self.failed("look at", e))?;
        Ok(metadata.blocks().saturating_mul(512))
    }

    /// Whether a part of it has memory everywhere.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn is_dense(&self, offset: u64, len: u64) -> Result<bool, SharedError> {
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Hole(offset)) {
            Ok(hole) => Ok(hole >= offset.saturating_add(len)),
            // It ends before.
            Err(Errno::NXIO) => Ok(false),
            Err(e) => Err(self.failed("look at", e.into())),
        }
    }

    /// Whether there is anything but holes from `offset` on.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn has_data(&self, offset: u64) -> Result<bool, SharedError> {
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(_) => Ok(true),
            Err(Errno::NXIO) => Ok(false),
            Err(e) => Err(self.failed("look at", e.into())),
        }
    }

    /// Maps a part of it that this process will never touch. `offset` is that of a page.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn opaque_mapping(&self, offset: u64, len: u64) -> Result<OpaqueMapping, SharedError> {
        OpaqueMapping::of(&self.file, offset, len).map_err(|e| self.failed("map", e))
    }

    /// Gives all its memory back to the file system; its size stays, and its mappings read zeros.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn give_back(&self) -> Result<(), SharedError> {
        use rustix::fs::FallocateFlags;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match self.size()? {
            0 => Ok(()),
            size => rustix::fs::fallocate(&self.file, flags, 0, size)
                .map_err(|e| self.failed("give back the memory of", e.into())),
        }
    }

    /// When it was written last, in seconds since 1970.
    pub fn modified(&self) -> Option<u64> {
        let modified = self.file.metadata().ok()?.modified().ok()?;
        Some(modified.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs())
    }

    /// Whether a process holds it with `flock(LOCK_EX)`: the kernel lets go of that when its holder
    /// dies.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn is_held(&self) -> Result<bool, SharedError> {
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
                Ok(false)
            }
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(e) => Err(self.failed("lock", e.into())),
        }
    }

    /// Waits for the lock of a part of the file among all who lock it so; it is let go when the
    /// value is dropped. The owner of the file may hold the lock forever, so the wait is limited.
    ///
    /// # Errors
    /// If the kernel refuses, or another process holds the lock for seconds.
    pub fn lock(&self, offset: u64, len: u64) -> Result<PartLock<'_>, SharedError> {
        let lock = PartLock { file: self, offset, len };
        until_free(PART_PATIENCE, || lock.set(libc::F_WRLCK as libc::c_short))
            .map_err(|e| self.failed("lock", e))?;
        Ok(lock)
    }

    fn failed(&self, verb: &str, error: io::Error) -> SharedError {
        SharedError::System { what: format!("cannot {verb} {}", self.path.display()), error }
    }
}

/// A locked part of a file.
#[derive(Debug)]
pub struct PartLock<'a> {
    file: &'a SharedFile,
    offset: u64,
    len: u64,
}

impl PartLock<'_> {
    fn set(&self, kind: libc::c_short) -> io::Result<()> {
        // SAFETY: `flock` is plain numbers, for which zero is a value.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        let number = |n: u64| i64::try_from(n).map_err(|_| io::ErrorKind::InvalidInput);
        lock.l_start = number(self.offset)?;
        lock.l_len = number(self.len)?;
        let fd = self.file.file.as_raw_fd();
        // SAFETY: the descriptor is open as long as the file is borrowed, and `lock` is a
        // live value of the type this command reads.
        match unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const lock) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Longest wait for the lock of a part: tools hold it for microseconds.
const PART_PATIENCE: Duration = Duration::from_secs(3);

/// Tries for `patience` to get a lock that another process holds.
fn until_free(patience: Duration, mut take: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match take() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && began.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// A locked directory.
#[derive(Debug)]
pub struct DirLock(#[expect(dead_code, reason = "held until it is dropped")] OwnedFd);

impl Drop for PartLock<'_> {
    fn drop(&mut self) {
        let _ = self.set(libc::F_UNLCK as libc::c_short);
    }
}

/// A name is one part of a path.
fn one_name(path: &Path, name: &OsStr) -> Result<(), SharedError> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        let what = "not a name in a directory".into();
        return Err(SharedError::Suspicious { path: path.to_owned(), what });
    }
    Ok(())
}

fn belongs(path: &Path, stat: &Stat, owner: Option<u32>) -> Result<(), SharedError> {
    let suspicious = |what: String| SharedError::Suspicious { path: path.to_owned(), what };
    if let Some(owner) = owner.filter(|&o| o != stat.st_uid) {
        return Err(suspicious(format!("of user {}, not {owner}", stat.st_uid)));
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(suspicious(format!("writable by others (mode {:o})", stat.st_mode & 0o777)));
    }
    Ok(())
}

fn system(verb: &'static str, path: &Path) -> impl Fn(Errno) -> SharedError {
    let what = format!("cannot {verb} {}", path.display());
    move |e| SharedError::System { what: what.clone(), error: e.into() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn directory() -> (tempfile::TempDir, SharedDir) {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join("kymo")).unwrap();
        set_mode(&top.path().join("kymo"), 0o700);
        let dir = SharedDir::open(top.path(), Path::new("/"), OsStr::new("kymo")).unwrap();
        (top, dir)
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_put_is_read_and_only_of_one_name() {
        let (top, dir) = directory();
        dir.put(OsStr::new("order"), b"letters").unwrap();
        assert_eq!(dir.names(10).unwrap(), (vec!["order".into()], false));
        assert_eq!(dir.names(0).unwrap(), (vec![], true));
        let file = dir.file(OsStr::new("order"), Access::ReadWrite).unwrap();
        let mut bytes = [0; 7];
        file.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"letters");
        assert!(file.read_at(1, &mut bytes).is_err(), "it ends before");
        assert_eq!(file.read_some(3, &mut bytes).unwrap(), 4);
        file.write_at(0, b"L").unwrap();
        std::fs::hard_link(top.path().join("kymo/order"), top.path().join("kymo/again")).unwrap();
        let e = dir.file(OsStr::new("order"), Access::Read).unwrap_err();
        assert!(e.to_string().contains("several names"), "{e}");
        dir.remove(OsStr::new("again")).unwrap();
        dir.remove(OsStr::new("again")).unwrap();
        dir.file(OsStr::new("order"), Access::Read).unwrap();
    }

    #[test]
    fn links_pipes_and_other_paths_are_refused() {
        let (top, dir) = directory();
        let at = |name: &str| top.path().join("kymo").join(name);
        symlink("/etc/passwd", at("link")).unwrap();
        assert!(dir.file(OsStr::new("link"), Access::Read).is_err());
        symlink("/etc", at("etc")).unwrap();
        assert!(dir.dir(OsStr::new("etc")).is_err());
        for name in ["..", ".", "", "../kymo", "/etc/passwd"] {
            assert!(dir.file(OsStr::new(name), Access::Read).is_err(), "{name}");
            assert!(dir.dir(OsStr::new(name)).is_err(), "{name}");
        }
        rustix::fs::mkfifoat(CWD, at("pipe"), Mode::from_raw_mode(0o600)).unwrap();
        let e = dir.file(OsStr::new("pipe"), Access::Read).unwrap_err();
        assert!(e.to_string().contains("regular"), "{e}");
        std::fs::write(at("open"), "").unwrap();
        set_mode(&at("open"), 0o666);
        let e = dir.file(OsStr::new("open"), Access::Read).unwrap_err();
        assert!(e.to_string().contains("writable"), "{e}");
        set_mode(&top.path().join("kymo"), 0o770);
        assert!(SharedDir::open(top.path(), Path::new("/"), OsStr::new("kymo")).is_err());
    }

    #[test]
    fn links_of_a_root_stay_in_it() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(top.path().join("run/shm/kymo")).unwrap();
        set_mode(&top.path().join("run/shm/kymo"), 0o700);
        std::fs::create_dir(top.path().join("dev")).unwrap();
        symlink("/run/shm", top.path().join("dev/shm")).unwrap();
        SharedDir::open(top.path(), Path::new("/dev/shm"), OsStr::new("kymo")).unwrap();
        let missing = SharedDir::open(top.path(), Path::new("/dev/shm"), OsStr::new("none"));
        assert!(missing.unwrap_err().is_missing());
    }

    #[test]
    fn a_lock_is_seen_until_its_holder_is_gone() {
        let (top, dir) = directory();
        dir.put(OsStr::new("control"), b"x").unwrap();
        let file = dir.file(OsStr::new("control"), Access::ReadWrite).unwrap();
        assert!(!file.is_held().unwrap());
        let holder = File::open(top.path().join("kymo/control")).unwrap();
        rustix::fs::flock(&holder, FlockOperation::LockExclusive).unwrap();
        assert!(file.is_held().unwrap());
        drop(holder);
        assert!(!file.is_held().unwrap());
    }

    #[test]
    fn a_part_is_locked_by_one_at_a_time() {
        let (_top, dir) = directory();
        dir.put(OsStr::new("control"), b"0").unwrap();
        let again = || dir.file(OsStr::new("control"), Access::ReadWrite).unwrap();
        let (one, two) = (again(), again());
        let lock = one.lock(2048, 2048).unwrap();
        std::thread::scope(|s| {
            s.spawn(|| {
                let _lock = two.lock(2048, 2048).unwrap();
                let mut was = [0];
                two.read_at(0, &mut was).unwrap();
                assert_eq!(&was, b"1", "waited for the first");
            });
            std::thread::sleep(std::time::Duration::from_millis(30));
            one.write_at(0, b"1").unwrap();
            drop(lock);
        });
    }
}
