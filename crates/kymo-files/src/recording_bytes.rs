//! Bytes of a recording, wherever they are: in a file, in memory, or behind a reader.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that are read by their offset; clones are of the same bytes.
#[derive(Clone)]
pub struct RecordingBytes(Inner);

#[derive(Clone)]
enum Inner {
    File(Arc<File>),
    Memory(Arc<dyn AsRef<[u8]> + Send + Sync>),
    Reader(Arc<Mutex<dyn ReadSeek>>),
}

trait ReadSeek: Read + Seek + Send {}
impl<T: Read + Seek + Send> ReadSeek for T {}

impl RecordingBytes {
    /// Bytes in memory: a vector, a slice that lives as long as the program, a mapped file.
    pub fn from_memory(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> RecordingBytes {
        RecordingBytes(Inner::Memory(Arc::new(bytes)))
    }

    /// Bytes behind a reader, which is asked for one part at a time.
    pub fn from_reader(reader: impl Read + Seek + Send + 'static) -> RecordingBytes {
        RecordingBytes(Inner::Reader(Arc::new(Mutex::new(reader))))
    }

    /// Bytes of a regular file.
    pub fn from_file(file: File) -> RecordingBytes {
        RecordingBytes(Inner::File(Arc::new(file)))
    }

    /// Opens a file.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(crate) fn open(path: &Path) -> io::Result<RecordingBytes> {
        File::open(path).map(RecordingBytes::from_file)
    }

    /// Number of bytes; of a file that grows, those that it has now.
    ///
    /// # Errors
    /// If it cannot be found out.
    pub fn size(&self) -> io::Result<u64> {
        match &self.0 {
            Inner::File(file) => Ok(file.metadata()?.len()),
            Inner::Memory(bytes) => Ok((**bytes).as_ref().len() as u64),
            Inner::Reader(reader) => {
                reader.lock().unwrap_or_else(PoisonError::into_inner).seek(SeekFrom::End(0))
            }
        }
    }

    /// The file, where they are in one.
    pub(crate) fn file(&self) -> Option<&File> {
        match &self.0 {
            Inner::File(file) => Some(file),
            Inner::Memory(_) | Inner::Reader(_) => None,
        }
    }

    /// Reads until `buf` is full or the bytes end, and counts the bytes read; their number.
    ///
    /// # Errors
    /// If reading fails.
    pub(crate) fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let have = self.read_uncounted(buf, at)?;
        crate::read_tally::add(have as u64);
        Ok(have)
    }

    /// Reads bytes without counting them, for readers that count what they walk.
    ///
    /// # Errors
    /// If reading fails.
    pub(crate) fn read_uncounted(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let mut have = 0;
        // The system knows no offsets beyond; no file has anything there.
        while have < buf.len() && at <= i64::MAX as u64 - buf.len() as u64 {
            let (place, from) = (&mut buf[have..], at + have as u64);
            let read = match &self.0 {
                Inner::File(file) => file.read_at(place, from),
                Inner::Memory(bytes) => {
                    let from = usize::try_from(from).unwrap_or(usize::MAX);
                    (**bytes).as_ref().get(from..).unwrap_or_default().read(place)
                }
                Inner::Reader(reader) => {
                    let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
                    reader.seek(SeekFrom::Start(from)).and_then(|_| reader.read(place))
                }
            };
            match read {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(have)
    }
}

impl fmt::Debug for RecordingBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::File(file) => file.fmt(f),
            Inner::Memory(bytes) => write!(f, "{} bytes", (**bytes).as_ref().len()),
            Inner::Reader(_) => f.write_str("reader"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn all_kinds_give_the_same_bytes() {
        let all: Vec<u8> = (0..10_000u32).map(|n| (n % 251) as u8).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&all).unwrap();
        let kinds = [
            RecordingBytes::open(file.path()).unwrap(),
            RecordingBytes::from_memory(all.clone()),
            RecordingBytes::from_reader(io::Cursor::new(all.clone())),
        ];
        for bytes in kinds {
            assert_eq!(bytes.size().unwrap(), 10_000, "{bytes:?}");
            for (at, size, have) in [(0, 100, 100), (9_990, 100, 10), (10_000, 1, 0)] {
                let mut buf = vec![0; size];
                assert_eq!(bytes.read_at(&mut buf, at).unwrap(), have, "{bytes:?}");
                assert_eq!(buf[..have], all[at as usize..at as usize + have], "{bytes:?}");
            }
            assert_eq!(bytes.read_at(&mut [0; 8], u64::MAX).unwrap(), 0, "{bytes:?}");
        }
    }
}
