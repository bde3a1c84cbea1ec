//! Where the result goes: nothing that is there is overwritten unless that is
//! asked for, and no half of a file is left behind.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context as _, bail};
use kymo_kernel::output_file::{Existing, SHARED, WholeFile};

/// Writes the result of `fill`.
pub(crate) fn write(
    path: Option<&Path>,
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
    let written = WholeFile::create(path, SHARED, existing)
        .and_then(|mut whole| stream(whole.file(), fill).and_then(|()| whole.finish()));
    match written {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && !force && path.is_file() => {
            bail!("{} exists already; --force replaces it", path.display())
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
