//! The file a recording goes to: an older recording is kept aside, anything
//! else is not overwritten.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use kymo_files::perfdata::{MAGIC_V1, MAGIC_V2};

use crate::error::RecordError;

/// Creates `path`, moving an older recording to `path.old`. Gives the file and
/// whether it can only be streamed to (a named pipe).
pub(crate) fn create(path: &Path, force: bool) -> Result<(File, bool), RecordError> {
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
    let mut magic = [0; 8];
    let mut file = File::open(path)?;
    if file.read(&mut magic)? < magic.len() {
        return Ok(false);
    }
    let mut swapped = magic;
    swapped.reverse();
    Ok([MAGIC_V1, MAGIC_V2].iter().any(|m| *m == magic || *m == swapped))
}

/// The name a file of `--switch-output` is given when it is complete:
/// `PATH.` and the UTC time as perf writes it, `YYYYMMDDhhmmss` and hundredths.
pub(crate) fn stamped(path: &Path, now: std::time::Duration) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", stamp(now.as_secs(), now.subsec_millis() / 10)));
    name.into()
}

fn stamp(secs: u64, hundredths: u32) -> String {
    // Days to a civil date: eras of 400 years that begin in March.
    let days = (secs / 86_400) as i64 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (d, m) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let y = year + era * 400 + i64::from(m <= 2);
    let t = secs % 86_400;
    format!("{y:04}{m:02}{d:02}{:02}{:02}{:02}{hundredths:02}", t / 3600, t / 60 % 60, t % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(stamp(0, 7), "1970010100000007");
        assert_eq!(stamp(951_827_696, 0), "2000022912345600");
        assert_eq!(stamp(1_793_622_896, 99), "2026110212345699");
    }

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
