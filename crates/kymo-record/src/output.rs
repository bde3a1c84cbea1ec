//! The file a recording goes to: an older recording is kept aside, anything
//! else is not overwritten.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use kymo_files::perfdata::{MAGIC_V1, MAGIC_V2};
use kymo_kernel::calendar::local_stamp;
use kymo_kernel::output_file::{OutputPlace, PRIVATE};
use kymo_kernel::terminal_output;

use crate::error::RecordError;

/// Creates `path`, moving an older recording to `path.old`. Gives the file and
/// whether it can only be streamed to (a named pipe or a device).
pub fn create(path: &Path, force: bool) -> Result<(File, bool), RecordError> {
    let error = |source| RecordError::Create { path: path.to_owned(), source };
    let mut place = OutputPlace::find(path).map_err(error)?;
    if place.is_special() {
        return Ok((place.open_special().map_err(error)?, true));
    }
    if place.has_contents() {
        if is_recording(&place.path).map_err(error)? {
            fs::rename(&place.path, old(&place.path)).map_err(error)?;
            place = OutputPlace::find(&place.path).map_err(error)?;
        } else if !force {
            return Err(RecordError::NotARecording(path.to_owned()));
        }
    }
    Ok((place.open_empty(PRIVATE).map_err(error)?, false))
}

/// Refuses a device, pipe or socket: recordings of several files, and those with the time in their
/// names, are renamed. A recording may be a directory.
pub(crate) fn check_renamable(path: &Path) -> Result<(), RecordError> {
    let error = |source| RecordError::Create { path: path.to_owned(), source };
    let place = OutputPlace::find(path).map_err(error)?;
    if place.is_special() && !place.is_directory() {
        Err(error(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a recording in several files, or with the time in its name, cannot go to a device, \
             pipe or socket: name a regular file",
        )))
    } else {
        Ok(())
    }
}

/// Makes the command write to standard error where the recording goes to standard output, which
/// `-` names.
pub(crate) fn keep_apart(path: &Path) -> io::Result<()> {
    let is_named = || OutputPlace::find(path).is_ok_and(|place| place.is_standard_output());
    if path == Path::new("-") || is_named() { terminal_output::keep_to_own() } else { Ok(()) }
}

fn old(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".old");
    name.into()
}

fn is_recording(path: &Path) -> io::Result<bool> {
    let mut begin = [0; 10];
    let n = File::open(path)?.read(&mut begin)?;
    if n == begin.len() && begin == kymo_files::tracedat::MAGIC {
        return Ok(true);
    }
    let Some(magic) = begin.first_chunk::<8>().filter(|_| n >= 8).copied() else {
        return Ok(false);
    };
    let mut swapped = magic;
    swapped.reverse();
    Ok([MAGIC_V1, MAGIC_V2].iter().any(|m| *m == magic || *m == swapped))
}

/// Renames a completed file of `--switch-output` as perf does: `PATH.` and the
/// local time. A name that is taken (two files within a hundredth of a second)
/// is not written over.
pub(crate) fn set_aside(path: &Path) -> Result<PathBuf, RecordError> {
    check_renamable(path)?;
    let error = |source| RecordError::Create { path: path.to_owned(), source };
    let path = OutputPlace::find(path).map_err(error)?.path;
    let stamped = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", local_stamp()));
        if number > 0 {
            name.push(format!("-{number}"));
        }
        PathBuf::from(name)
    };
    let free = (0..).map(stamped).find(|n| !n.exists()).unwrap_or_else(|| stamped(0));
    fs::rename(&path, &free)
        .map_err(|source| RecordError::Create { path: free.clone(), source })?;
    Ok(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_recordings_are_moved_aside() {
        let dir = std::env::temp_dir().join(format!("kymo-output-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("x");
        fs::write(&path, "my letters").unwrap();
        assert!(matches!(create(&path, false), Err(RecordError::NotARecording(_))));
        fs::write(&path, b"PERFILE2 and more").unwrap();
        create(&path, false).unwrap();
        assert!(fs::read(dir.join("x.old")).unwrap().starts_with(b"PERFILE2"));
        assert!(matches!(create(&dir, true), Err(RecordError::Create { .. })));
        // The link stays, and what it leads to is moved aside.
        let (link, real) = (dir.join("link"), dir.join("real"));
        fs::write(&real, b"PERFILE2 and more").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        create(&link, false).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::read(dir.join("real.old")).unwrap().starts_with(b"PERFILE2"));
        // A device is streamed to, and never renamed.
        let null = dir.join("null");
        std::os::unix::fs::symlink("/dev/null", &null).unwrap();
        assert!(create(&null, false).unwrap().1);
        assert!(set_aside(&null).is_err() && fs::symlink_metadata(&null).is_ok());
        // Recordings of sessions are directories, which are renamed, too.
        let session = dir.join("session");
        fs::create_dir(&session).unwrap();
        check_renamable(&session).unwrap();
        check_renamable(&dir.join("new")).unwrap();
        assert!(set_aside(&session).unwrap().is_dir() && !session.exists());
        fs::remove_dir_all(&dir).unwrap();
    }
}
