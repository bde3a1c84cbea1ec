//! Output files at paths that a user names: the one way in which commands open them.
//!
//! A device, a named pipe or a socket at the path is written to and never replaced. A regular file
//! is replaced as a whole by [`WholeFile`], or emptied by [`open`]. Symbolic links are followed and
//! stay links. In directories where every user may create files (`/tmp`), a link, file or pipe of
//! another user is refused, whatever `fs.protected_symlinks` says: it leads where its owner wants.

use std::fs::{self, File, Metadata};
use std::io::{self, Seek as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Mode of recordings and of what holds their contents: its owner's alone.
pub const PRIVATE: u32 = 0o600;
/// Mode of results, before the umask.
pub const SHARED: u32 = 0o666;
/// Number of links that are followed, as the kernel does.
const MOST_LINKS: usize = 40;
const STICKY: u32 = 0o1000;
const WRITABLE_BY_OTHERS: u32 = 0o002;

/// An object that an output path leads to.
#[derive(Debug)]
pub struct OutputPlace {
    /// The path with its links resolved, as far as links have paths: those of `/proc/PID/fd` do
    /// not.
    pub path: PathBuf,
    /// The object at the path, if there is one.
    pub there: Option<Metadata>,
    /// The path is a link without a path of its own (`/dev/stdout`): an open file.
    is_open_file: bool,
}

impl OutputPlace {
    /// Follows the links of `path`.
    ///
    /// # Errors
    /// If another user's link, file or pipe in a shared directory is met, or links form a loop.
    pub fn find(path: &Path) -> io::Result<OutputPlace> {
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            let found = match fs::symlink_metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(OutputPlace { path, there: None, is_open_file: false });
                }
                other => other?,
            };
            refuse_planted(&path, &found)?;
            if !found.is_symlink() {
                return Ok(OutputPlace { path, there: Some(found), is_open_file: false });
            }
            let target = fs::read_link(&path)?;
            let next = path.parent().unwrap_or(Path::new("")).join(target);
            // Links of /proc/PID/fd lead to open files, which may have no name (any more).
            match (fs::metadata(&path), fs::metadata(&next)) {
                (Ok(there), Err(_)) => {
                    return Ok(OutputPlace { path, there: Some(there), is_open_file: true });
                }
                (Ok(there), Ok(named)) if !is_same(&there, &named) => {
                    return Ok(OutputPlace { path, there: Some(there), is_open_file: true });
                }
                _ => path = next,
            }
        }
        Err(io::Error::other("too many levels of symbolic links"))
    }

    /// Whether something other than a regular file is there: it can only be written to.
    pub fn is_special(&self) -> bool {
        self.there.as_ref().is_some_and(|there| !there.is_file())
    }

    /// Whether a directory is there.
    pub fn is_directory(&self) -> bool {
        self.there.as_ref().is_some_and(Metadata::is_dir)
    }

    /// Whether a regular file with contents is there.
    pub fn has_contents(&self) -> bool {
        self.there.as_ref().is_some_and(|there| there.is_file() && there.len() > 0)
    }

    /// Whether a pipe or socket is there that is also this program's standard output.
    pub fn is_standard_output(&self) -> bool {
        let Ok(stdout) = fs::metadata("/proc/self/fd/1") else { return false };
        let is_stream = |m: &Metadata| m.file_type().is_fifo() || m.file_type().is_socket();
        self.there.as_ref().is_some_and(|there| is_stream(there) && is_same(there, &stdout))
    }

    /// Opens the special file that is there for writing.
    ///
    /// # Errors
    /// If it cannot be opened, is a directory, or was replaced meanwhile.
    pub fn open_special(&self) -> io::Result<File> {
        let Some(there) = &self.there else { return Err(io::ErrorKind::NotFound.into()) };
        if there.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let file = File::options().write(true).open(&self.path)?;
        self.still_there(file)
    }

    fn still_there(&self, file: File) -> io::Result<File> {
        let opened = file.metadata()?;
        match &self.there {
            Some(there) if !is_same(there, &opened) => {
                Err(io::Error::new(io::ErrorKind::AlreadyExists, "replaced while it was opened"))
            }
            _ => Ok(file),
        }
    }

    /// Opens what is there for reading and writing and empties it, or creates a regular file of
    /// this mode.
    ///
    /// # Errors
    /// If it cannot be opened or created.
    pub fn open_empty(&self, mode: u32) -> io::Result<File> {
        let mut options = File::options();
        options.read(true).write(true);
        if self.is_special() {
            return self.open_special();
        }
        if self.there.is_none() {
            return options.create_new(true).mode(mode).open(&self.path);
        }
        // Without `read` a file that its user may only write to is opened, too.
        let opened = match options.open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                File::options().write(true).open(&self.path)
            }
            other => other,
        };
        let file = self.still_there(opened?)?;
        file.set_len(0)?;
        Ok(file)
    }
}

fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino(), a.rdev()) == (b.dev(), b.ino(), b.rdev())
}

/// Refuses what another user put into a directory of all users.
fn refuse_planted(path: &Path, found: &Metadata) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let is_device = found.file_type().is_char_device() || found.file_type().is_block_device();
    if found.uid() == own || is_device || found.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = fs::metadata(parent)?;
    let is_shared = directory.mode() & STICKY != 0 && directory.mode() & WRITABLE_BY_OTHERS != 0;
    if !is_shared || found.uid() == directory.uid() {
        return Ok(());
    }
    let what = match found.file_type() {
        t if t.is_symlink() => "symbolic link",
        t if t.is_file() => "file",
        _ => "pipe or socket",
    };
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "{} is a {what} of another user (uid {}) in a world-writable directory: choose \
             another path",
            path.display(),
            found.uid()
        ),
    ))
}

/// Opens an output that is written as it comes: what is at the path, emptied if it is a regular
/// file, else a new file of this mode.
///
/// # Errors
/// If it cannot be opened or created, or is another user's in a shared directory.
pub fn open(path: &Path, mode: u32) -> io::Result<File> {
    OutputPlace::find(path)?.open_empty(mode)
}

/// Opens an output as [`open`] does, with a regular file's contents kept: what is written is added
/// at the end.
///
/// # Errors
/// As [`open`].
pub fn append(path: &Path, mode: u32) -> io::Result<File> {
    let place = OutputPlace::find(path)?;
    match &place.there {
        None => File::options().append(true).create_new(true).mode(mode).open(&place.path),
        Some(there) if there.is_file() => {
            place.still_there(File::options().append(true).open(&place.path)?)
        }
        Some(_) => place.open_special(),
    }
}

/// Handling of a regular file that exists at the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the output is refused ([`io::ErrorKind::AlreadyExists`]).
    Keep,
    /// It is replaced once the output is complete.
    Replace,
}

/// An output that is complete or not there: a regular file takes its name when it is whole.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    place: OutputPlace,
    existing: Existing,
    /// Name until it is whole; none of what is written to in place.
    unfinished: Option<PathBuf>,
}

impl WholeFile {
    /// Begins an output of this mode.
    ///
    /// # Errors
    /// If it cannot be created, or something is there that is to be kept.
    pub fn create(path: &Path, mode: u32, existing: Existing) -> io::Result<WholeFile> {
        let place = OutputPlace::find(path)?;
        if place.is_special() {
            let file = place.open_special()?;
            return Ok(WholeFile { file, place, existing, unfinished: None });
        }
        if place.there.is_some() && existing == Existing::Keep && !place.is_open_file {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if place.is_open_file {
            let file = place.open_empty(mode)?;
            return Ok(WholeFile { file, place, existing, unfinished: None });
        }
        let mut name = place.path.as_os_str().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let unfinished = PathBuf::from(name);
        let file =
            File::options().read(true).write(true).create_new(true).mode(mode).open(&unfinished)?;
        Ok(WholeFile { file, place, existing, unfinished: Some(unfinished) })
    }

    /// The file that is written.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// If it cannot be named; nothing is left then.
    pub fn finish(mut self) -> io::Result<()> {
        let Some(unfinished) = self.unfinished.take() else { return Ok(()) };
        let placed = self.put_in_place(&unfinished);
        if placed.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        placed
    }

    fn put_in_place(&self, unfinished: &Path) -> io::Result<()> {
        let path = &self.place.path;
        // Another process may have put something there meanwhile.
        let now = fs::symlink_metadata(path).ok();
        if now.is_some_and(|now| !now.is_file()) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "something other than a regular file appeared there",
            ));
        }
        if self.existing == Existing::Replace {
            return fs::rename(unfinished, path);
        }
        // Unlike renaming, this fails if a file is there by now.
        match fs::hard_link(unfinished, path) {
            Ok(()) => fs::remove_file(unfinished),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            // File systems without links.
            Err(_) => fs::rename(unfinished, path),
        }
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            let _ = fs::remove_file(unfinished);
        }
    }
}

/// Writes an output that is complete or not there.
///
/// # Errors
/// If it cannot be written, or something is there that is to be kept; what was there stays.
pub fn write_whole<T>(
    path: &Path,
    mode: u32,
    existing: Existing,
    write: impl FnOnce(&mut File) -> io::Result<T>,
) -> io::Result<T> {
    let mut whole = WholeFile::create(path, mode, existing)?;
    let written = match whole.place.is_special() {
        false => write(whole.file())?,
        // A writer may go back in its file, which devices and pipes do not allow.
        true => {
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            let mut made = File::from(rustix::fs::memfd_create("kymo-output", flags)?);
            let written = write(&mut made)?;
            made.rewind()?;
            io::copy(&mut made, whole.file())?;
            written
        }
    };
    whole.finish()?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn text(text: &'static str) -> impl FnOnce(&mut File) -> io::Result<()> {
        move |file| file.write_all(text.as_bytes())
    }

    #[test]
    fn a_regular_file_is_replaced_when_the_new_one_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        fs::write(&path, "old").unwrap();
        let refused = write_whole(&path, SHARED, Existing::Keep, text("new")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        let failed: io::Result<()> = write_whole(&path, SHARED, Existing::Replace, |file| {
            file.write_all(b"half")?;
            Err(io::Error::other("disk"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        write_whole(&path, PRIVATE, Existing::Replace, text("new")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_named_pipe_is_written_to_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        crate::descriptors::make_named_pipe(&path).unwrap();
        for replace in [false, true] {
            let reader = path.clone();
            let reader = std::thread::spawn(move || {
                let mut got = String::new();
                File::open(reader).unwrap().read_to_string(&mut got).unwrap();
                got
            });
            if replace {
                write_whole(&path, PRIVATE, Existing::Replace, text("to the pipe"))
            } else {
                open(&path, SHARED).and_then(|mut file| text("to the pipe")(&mut file))
            }
            .unwrap();
            assert_eq!(reader.join().unwrap(), "to the pipe");
            assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
        }
        assert!(open(dir.path(), SHARED).is_err());
    }

    #[test]
    fn a_writer_may_go_back_where_the_output_cannot() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        crate::descriptors::make_named_pipe(&path).unwrap();
        let reader = path.clone();
        let reader = std::thread::spawn(move || fs::read_to_string(reader).unwrap());
        write_whole(&path, PRIVATE, Existing::Replace, |file| {
            file.write_all(b"____ behind")?;
            file.rewind()?;
            file.write_all(b"head")
        })
        .unwrap();
        assert_eq!(reader.join().unwrap(), "head behind");
    }

    #[test]
    fn devices_stay_devices() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("null");
        symlink("/dev/null", &link).unwrap();
        write_whole(&link, PRIVATE, Existing::Replace, text("gone")).unwrap();
        open(&link, SHARED).unwrap().write_all(b"gone").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::metadata(&link).unwrap().file_type().is_char_device());
    }

    #[test]
    fn a_link_of_ones_own_stays_and_its_target_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (link, target) = (dir.path().join("link"), dir.path().join("target"));
        symlink("target", &link).unwrap();
        for round in ["one", "two"] {
            write_whole(&link, SHARED, Existing::Replace, text(round)).unwrap();
            assert_eq!(fs::read_to_string(&target).unwrap(), round);
        }
        append(&link, SHARED).unwrap().write_all(b" more").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "two more");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        symlink("loop", dir.path().join("loop")).unwrap();
        assert!(open(&dir.path().join("loop"), SHARED).is_err());
    }

    #[test]
    fn files_planted_by_other_users_are_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let other = Some(12_345);
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        let shared = dir.path().join("shared");
        fs::create_dir(&shared).unwrap();
        let at = |name: &str| shared.join(name);
        symlink(&victim, at("link")).unwrap();
        symlink(dir.path().join("new"), at("dangling")).unwrap();
        std::os::unix::fs::lchown(at("link"), other, other).unwrap();
        std::os::unix::fs::lchown(at("dangling"), other, other).unwrap();
        fs::write(at("file"), "theirs").unwrap();
        std::os::unix::fs::chown(at("file"), other, other).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        for name in ["link", "dangling", "file"] {
            let refused = [
                open(&at(name), SHARED).err(),
                append(&at(name), SHARED).err(),
                write_whole(&at(name), PRIVATE, Existing::Replace, text("x")).err(),
            ];
            for error in refused {
                assert_eq!(error.unwrap().kind(), io::ErrorKind::PermissionDenied, "{name}");
            }
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "theirs");
        assert!(!dir.path().join("new").exists());
        // No other user can plant files in one's own directory.
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
        open(&at("link"), SHARED).unwrap().write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "new");
    }
}
