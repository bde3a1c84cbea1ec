//! Pages in compressed chunks.

use std::fs::File;
use std::io::{Read, Result};

use crate::tracedat::Compression;

/// Bytes of a chunk before compression, at least one page. A reader holds one
/// chunk of each CPU.
const CHUNK: u64 = 128 << 10;

/// A compressed chunk.
pub(super) struct Run<'a> {
    pub(super) packed: &'a [u8],
    /// Bytes it unpacks to.
    pub(super) size: u32,
}

/// Cuts pages into chunks and compresses them.
pub(super) struct Runs<'f> {
    data: std::io::Take<&'f mut File>,
    chunk: u64,
    page: u64,
    compression: Compression,
    plain: Vec<u8>,
    packed: Vec<u8>,
}

impl<'f> Runs<'f> {
    pub(super) fn new(data: &'f mut File, len: u64, page: u64, compression: Compression) -> Self {
        let chunk = (CHUNK / page).max(1) * page;
        let (plain, packed) = (Vec::new(), Vec::new());
        Runs { data: data.take(len), chunk, page, compression, plain, packed }
    }

    /// The next chunk. One that ends within a page is filled with zeros.
    pub(super) fn next_run(&mut self) -> Result<Option<Run<'_>>> {
        self.plain.clear();
        self.packed.clear();
        Read::by_ref(&mut self.data).take(self.chunk).read_to_end(&mut self.plain)?;
        if self.plain.is_empty() {
            return Ok(None);
        }
        let whole = self.plain.len().next_multiple_of(self.page as usize);
        self.plain.resize(whole, 0);
        self.compression.compress(&self.plain, &mut self.packed)?;
        Ok(Some(Run { packed: &self.packed, size: whole as u32 }))
    }
}
