//! Numbers and strings as bytes, little-endian, each string behind its length.

use std::io;

/// Writes into a vector.
#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn number(&mut self, number: u32) -> &mut Writer {
        self.0.extend(number.to_le_bytes());
        self
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        // Longer ones are cut by the callers; a job is written by ourselves.
        self.number(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend(bytes);
        self
    }

    pub(crate) fn strings(&mut self, all: &[String]) -> &mut Writer {
        self.number(u32::try_from(all.len()).unwrap_or(u32::MAX));
        for one in all {
            self.bytes(one.as_bytes());
        }
        self
    }
}

/// Reads from a slice; what is missing or wrong is an error that says where.
pub(crate) struct Reader<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(all: &'a [u8]) -> Reader<'a> {
        Reader { all, at: 0 }
    }

    pub(crate) fn error(&self, what: &str) -> io::Error {
        let text = format!("{what} at byte {} of {}", self.at, self.all.len());
        io::Error::new(io::ErrorKind::InvalidData, text)
    }

    fn take(&mut self, length: usize) -> io::Result<&'a [u8]> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.all.len());
        let found = end.and_then(|end| self.all.get(self.at..end));
        let found = found.ok_or_else(|| self.error(&format!("{length} bytes are missing")))?;
        self.at += length;
        Ok(found)
    }

    pub(crate) fn number(&mut self) -> io::Result<u32> {
        let mut four = [0; 4];
        four.copy_from_slice(self.take(4)?);
        Ok(u32::from_le_bytes(four))
    }

    pub(crate) fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let length = self.number()?;
        self.take(length as usize)
    }

    pub(crate) fn string(&mut self) -> io::Result<String> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.error("text that is not UTF-8 ends"))
    }

    pub(crate) fn strings(&mut self) -> io::Result<Vec<String>> {
        let count = self.number()?;
        (0..count).map(|_| self.string()).collect()
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        let rest = self.all.get(self.at..).unwrap_or_default();
        self.at = self.all.len();
        rest
    }

    pub(crate) fn end(&self) -> io::Result<()> {
        if self.at == self.all.len() { Ok(()) } else { Err(self.error("something is left over")) }
    }
}
