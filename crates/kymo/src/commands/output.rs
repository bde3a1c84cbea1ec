//! Output files of results: an existing file is not overwritten unless requested, and no incomplete
//! file remains.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use kymo_kernel::output_file::{Existing, PRIVATE, SHARED, WholeFile};

/// Writes the result of `fill`.
pub(crate) fn write(
    path: Option<&Path>,
    force: bool,
    fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    write_with_mode(path, SHARED, force, fill)
}

/// Writes the result of `fill`, which holds what recordings hold: for those who may read these.
pub(crate) fn write_contents(
    path: &Path,
    recordings: &[PathBuf],
    force: bool,
    fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mode = |path: &PathBuf| std::fs::metadata(path).map_or(PRIVATE, |meta| meta.mode());
    let mode = recordings.iter().map(mode).fold(SHARED, |all, mode| all & mode);
    write_with_mode(Some(path), mode | PRIVATE, force, fill)
}

fn write_with_mode(
    path: Option<&Path>,
    mode: u32,
    force: bool,
    fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    crate::progress::end();
    let Some(path) = path.filter(|p| p.as_os_str() != "-") else {
        // Files and pipes get the bytes of the format.
        let out: Box<dyn Write> = if crate::streams::stdout().is_terminal() {
            Box::new(crate::streams::stdout().lock())
        } else {
            Box::new(crate::streams::raw_stdout().lock())
        };
        let mut out = BufWriter::with_capacity(64 << 10, out);
        fill(&mut out)?;
        return Ok(out.flush()?);
    };
    let what = || format!("cannot write {}", path.display());
    let existing = if force { Existing::Replace } else { Existing::Keep };
    let written = WholeFile::create(path, mode, existing)
        .and_then(|mut whole| stream(whole.file(), fill).and_then(|()| whole.finish()));
    match written {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && !force && path.is_file() => {
            bail!("{} already exists; --force replaces it", path.display())
        }
        other => other.with_context(what),
    }
}

fn stream(
    file: &mut File,
    fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(64 << 10, file);
    fill(&mut out)?;
    out.flush()
}
