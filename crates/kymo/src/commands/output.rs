//! Where the result goes: nothing that is there is overwritten unless that is
//! asked for, and no half of a file is left behind.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// Writes the result of `fill`.
pub(crate) fn write(
    path: Option<&Path>,
    force: bool,
    fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    crate::progress::end();
    let Some(path) = path.filter(|p| p.as_os_str() != "-") else {
        let mut out = BufWriter::with_capacity(64 << 10, crate::streams::stdout().lock());
        fill(&mut out)?;
        return Ok(out.flush()?);
    };
    let what = || format!("cannot write {}", path.display());
    let there = std::fs::metadata(path).ok();
    if there.as_ref().is_some_and(|m| !m.is_file()) {
        // A pipe or a device.
        let file = OpenOptions::new().write(true).open(path).with_context(what)?;
        return stream(file, fill).with_context(what);
    }
    if there.is_some() && !force {
        bail!("{} exists already; --force replaces it", path.display());
    }
    // The old file is whole until the new one is.
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(name);
    let made = File::create_new(&part)
        .and_then(|file| stream(file, fill))
        .and_then(|()| place(&part, path, force));
    if made.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    made.with_context(what)
}

fn stream(file: File, fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(64 << 10, file);
    fill(&mut out)?;
    out.flush()
}

fn place(part: &Path, path: &Path, force: bool) -> io::Result<()> {
    if force {
        return std::fs::rename(part, path);
    }
    // Unlike renaming, this fails if somebody else made the file meanwhile.
    match std::fs::hard_link(part, path) {
        Ok(()) => std::fs::remove_file(part),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(e),
        // File systems without links.
        Err(_) => std::fs::rename(part, path),
    }
}
