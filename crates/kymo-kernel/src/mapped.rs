//! Files mapped for reading: debugging information is hundreds of megabytes, of
//! which a question touches a few. Only regular files are mapped.

use std::fs::File;
use std::io;
use std::path::Path;

/// A file's bytes, as they are when they are touched.
#[derive(Debug)]
pub struct MappedFile {
    map: memmap2::Mmap,
}

impl MappedFile {
    /// Maps a regular file.
    pub fn open(path: &Path) -> io::Result<MappedFile> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        // SAFETY: the mapping is private and read-only, so nothing this process
        // does changes it. Another process could write to the file or cut it
        // short: binaries and debug files are replaced by new files (as linkers
        // and package managers do), not rewritten in place; one that is cut
        // short meanwhile ends this process with SIGBUS and damages nothing.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(MappedFile { map })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }
}
