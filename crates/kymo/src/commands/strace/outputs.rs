//! Output of lines: to standard error, a file, or one file per task.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kymo_kernel::output_file::{self, SHARED};

/// The outputs of a run.
pub(super) enum Outputs {
    /// Standard error.
    Terminal,
    /// One file.
    Shared(PathBuf, File),
    /// A file for each task, named by its number.
    Separate { path: PathBuf, append: bool, files: HashMap<u32, File> },
}

impl Outputs {
    pub(super) fn open(
        path: Option<&Path>,
        is_separate: bool,
        append: bool,
    ) -> anyhow::Result<Outputs> {
        let Some(path) = path else { return Ok(Outputs::Terminal) };
        let path = path.to_owned();
        if is_separate {
            return Ok(Outputs::Separate { path, append, files: HashMap::new() });
        }
        let file = open_file(&path, append)?;
        Ok(Outputs::Shared(path, file))
    }

    /// Writes what came about a task, or about all of them (0).
    pub(super) fn write(&mut self, tid: u32, text: &[u8]) -> anyhow::Result<()> {
        match self {
            Outputs::Terminal => {
                // A closed standard error ends nobody's program.
                let _ = crate::streams::stderr().write_all(text);
                Ok(())
            }
            Outputs::Shared(path, file) => {
                file.write_all(text).with_context(|| path.display().to_string())
            }
            Outputs::Separate { path, append, files } => {
                let mut name: OsString = path.clone().into();
                name.push(format!(".{tid}"));
                let file = match files.entry(tid) {
                    Entry::Occupied(file) => file.into_mut(),
                    Entry::Vacant(place) => place.insert(open_file(Path::new(&name), *append)?),
                };
                file.write_all(text).with_context(|| Path::new(&name).display().to_string())
            }
        }
    }
}

fn open_file(path: &Path, append: bool) -> anyhow::Result<File> {
    let file =
        if append { output_file::append(path, SHARED) } else { output_file::open(path, SHARED) };
    file.with_context(|| path.display().to_string())
}
