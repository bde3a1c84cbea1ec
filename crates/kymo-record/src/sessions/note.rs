//! Small files that tell what neither the kernel nor the channel configurations of programs know of a
//! session: in which boot it was made, when, and of what it consisted, so that one that
//! was lost is not just gone. They live in `/run/kymo/sessions`, or the user's own
//! directory of that kind; where there is none, nothing is noted.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use kymo_kernel::system::{self, SystemRoot};

use crate::reported_losses::ReportedLosses;

/// Parts that a session was created with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionNote {
    boot: String,
    /// In seconds since 1970.
    made: u64,
    /// It had a part in the kernel.
    pub(crate) kernel: bool,
    /// It had channel configurations for programs below this directory.
    pub(crate) programs: Option<PathBuf>,
    /// Losses in the kernel's part that files taken of it have stated.
    reported: ReportedLosses,
}

/// A part of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part<'a> {
    Kernel,
    /// In the directory where the users' directories are.
    Programs(&'a Path),
}

impl SessionNote {
    /// The machine was started again since.
    pub(crate) fn is_of_earlier_boot(&self) -> bool {
        boot_id().is_some_and(|now| now != self.boot)
    }
}

fn directory() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !system::is_root());
    own.map_or_else(|| PathBuf::from("/run"), PathBuf::from).join("kymo/sessions")
}

/// Path of the note of a session.
pub(crate) fn path(name: &str) -> PathBuf {
    directory().join(name)
}

/// Names whatever there are notes of.
pub(crate) fn names() -> Vec<String> {
    let entries = std::fs::read_dir(directory()).into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().into_string().ok()).collect()
}

pub(crate) fn read(name: &str) -> Option<SessionNote> {
    let text = std::fs::read_to_string(path(name)).ok()?;
    let mut note = SessionNote::default();
    for line in text.lines() {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("boot", boot) => boot.clone_into(&mut note.boot),
            ("made", made) => note.made = made.parse().unwrap_or(0),
            ("kernel", _) => note.kernel = true,
            ("programs", base) => note.programs = Some(base.into()),
            ("reported", reported) => note.reported.add_line(reported),
            _ => {}
        }
    }
    Some(note)
}

/// Reads a note of this boot: one of an earlier boot is of a different session.
fn read_current(name: &str) -> Option<SessionNote> {
    read(name).filter(|note| !note.is_of_earlier_boot())
}

/// Creation time of a session of this boot.
pub(crate) fn made(name: &str) -> Option<u64> {
    read_current(name).filter(|note| note.made > 0).map(|note| note.made)
}

/// Notes a part that was made now.
pub(crate) fn add(name: &str, part: Part<'_>) -> io::Result<()> {
    std::fs::create_dir_all(directory())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let fresh =
        || SessionNote { boot: boot_id().unwrap_or_default(), made: now, ..Default::default() };
    let mut note = read_current(name).unwrap_or_else(fresh);
    match part {
        Part::Kernel => (note.kernel, note.reported) = (true, ReportedLosses::default()),
        Part::Programs(base) => note.programs = Some(base.to_owned()),
    }
    write(name, &note)
}

/// Losses in the kernel's part of a session of this boot that were stated.
pub(crate) fn reported_losses(name: &str) -> ReportedLosses {
    read_current(name).unwrap_or_default().reported
}

/// Notes that these were stated, if there is a note of the session.
pub(crate) fn set_reported_losses(name: &str, reported: &ReportedLosses) -> io::Result<()> {
    match read(name) {
        Some(note) => write(name, &SessionNote { reported: reported.clone(), ..note }),
        None => Ok(()),
    }
}

/// Notes that a part was removed. Says whether it had been noted.
pub(crate) fn remove(name: &str, part: Part<'_>) -> bool {
    let Some(mut note) = read(name) else { return false };
    let noted = match part {
        Part::Kernel => std::mem::replace(&mut note.kernel, false),
        Part::Programs(base) => note.programs.take_if(|p| p == base).is_some(),
    };
    if !note.kernel && note.programs.is_none() {
        return std::fs::remove_file(path(name)).is_ok();
    }
    noted && write(name, &note).is_ok()
}

fn write(name: &str, note: &SessionNote) -> io::Result<()> {
    let mut text = format!("boot {}\nmade {}\n", note.boot, note.made);
    if note.kernel {
        text += "kernel\n";
    }
    if let Some(base) = &note.programs {
        text += &format!("programs {}\n", base.display());
    }
    note.reported.lines().for_each(|line| text += &format!("reported {line}\n"));
    std::fs::write(path(name), text)
}

fn boot_id() -> Option<String> {
    SystemRoot::machine().boot_id()
}
