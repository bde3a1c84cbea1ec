//! The directory of a trace.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::ctf::types::Metadata;

/// A directory that becomes a trace. Only its owner can look into it.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    metadata: File,
}

impl Directory {
    /// Makes a directory, which may be there already but without a trace, and writes the
    /// metadata.
    pub fn create(path: impl Into<PathBuf>, metadata: &Metadata) -> io::Result<Directory> {
        let path = path.into();
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        let mut file = new_file(&path.join("metadata"))?;
        file.write_all(metadata.to_text().as_bytes())?;
        Ok(Directory { path, metadata: file })
    }

    /// Adds to the metadata: declarations of events that came later.
    pub fn declare(&mut self, tsdl: &str) -> io::Result<()> {
        self.metadata.write_all(tsdl.as_bytes())
    }

    /// Makes the file of a stream, into which its packets are written one behind the
    /// other.
    pub fn stream(&self, name: &str) -> io::Result<File> {
        new_file(&self.path.join(name))
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}
