//! The file a recording goes to: an older recording is kept aside, anything
//! else is not overwritten.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use kymo_files::perfdata::{MAGIC_V1, MAGIC_V2};
use kymo_kernel::process::local_stamp;

use crate::error::RecordError;

/// Creates `path`, moving an older recording to `path.old`. Gives the file and
/// whether it can only be streamed to (a named pipe).
pub fn create(path: &Path, force: bool) -> Result<(File, bool), RecordError> {
    let error = |source| RecordError::Create { path: path.to_owned(), source };
    match fs::metadata(path) {
        Ok(m) if m.is_dir() => return Err(error(io::ErrorKind::IsADirectory.into())),
        Ok(m) if m.is_file() && m.len() > 0 => {
            if is_recording(path).map_err(error)? {
                fs::rename(path, old(path)).map_err(error)?;
            } else if !force {
                return Err(RecordError::NotARecording(path.to_owned()));
            }
        }
        Ok(m) if !m.is_file() => {
            // A device or a named pipe is written to as it is.
            let file = File::options().write(true).open(path).map_err(error)?;
            return Ok((file, m.file_type().is_fifo()));
        }
        _ => {}
    }
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true).mode(0o600);
    Ok((options.open(path).map_err(error)?, false))
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
    let stamped = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", local_stamp()));
        if number > 0 {
            name.push(format!("-{number}"));
        }
        PathBuf::from(name)
    };
    let free = (0..).map(stamped).find(|n| !n.exists()).unwrap_or_else(|| stamped(0));
    fs::rename(path, &free).map_err(|source| RecordError::Create { path: free.clone(), source })?;
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
        fs::remove_dir_all(&dir).unwrap();
    }
}
