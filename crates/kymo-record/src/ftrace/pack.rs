//! Compressing a finished recording: into a second file, which takes the place
//! of the first once it is whole.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use kymo_files::tracedat::write::{TraceDatWriter, TraceFacts, WriteError};

use super::facts::Gathered;
use super::growing::Growing;

/// Writes the compressed file over `path` and gives its size.
pub(crate) fn pack(
    growing: &Growing,
    path: &Path,
    facts: &TraceFacts,
    gathered: &Gathered,
) -> Result<u64, WriteError> {
    let packed = beside(path);
    let written = write(growing, &packed, facts, gathered).and_then(|()| {
        std::fs::rename(&packed, path).map_err(|error| WriteError::Io {
            path: path.display().to_string(),
            what: "rename the compressed file",
            error,
        })
    });
    if written.is_err() {
        // Half of a file is of no use; the uncompressed one is there.
        let _ = std::fs::remove_file(&packed);
    }
    written?;
    Ok(std::fs::metadata(path).map_or(0, |m| m.len()))
}

fn write(
    growing: &Growing,
    to: &Path,
    facts: &TraceFacts,
    gathered: &Gathered,
) -> Result<(), WriteError> {
    // The writer opens the name again: no other user's file or link can be there then.
    let new = File::options().write(true).create_new(true).mode(0o600).open(to);
    new.map_err(|error| WriteError::Io {
        path: to.display().to_string(),
        what: "create the compressed file",
        error,
    })?;
    let mut pages = growing.file().try_clone().map_err(|error| WriteError::Io {
        path: to.display().to_string(),
        what: "open the pages",
        error,
    })?;
    let mut writer =
        TraceDatWriter::create(to, gathered.format(), facts, gathered.buffers.clone())?;
    let mut stream = 0;
    for (buffer, spec) in gathered.buffers.iter().enumerate() {
        for cpu in &spec.cpus {
            let (start, len) = growing.region(stream);
            writer.add_cpu_data(buffer, *cpu, &mut pages, start, len)?;
            stream += 1;
        }
    }
    writer.finish()
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    name.into()
}
