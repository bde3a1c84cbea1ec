//! Memory that records are read into and stay in: blocks, shared by all readers and reused when no
//! reader is left. In a mapped file they are parts of the mapping, released when they are no longer
//! in use.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::FileMapping;

/// Bytes of a block that is read into.
pub(super) const BLOCK: usize = 256 << 10;
/// Blocks kept for later.
const SPARE: usize = 64;

/// Source of the bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The file, from this offset on.
    From(u64),
    /// The compressed record at this offset.
    Inside(u64),
}

/// Bytes that do not change any more.
#[derive(Debug)]
pub(super) struct Block {
    bytes: Bytes,
    origin: Origin,
}

#[derive(Debug)]
enum Bytes {
    /// The first `used` ones of a buffer.
    Read {
        buffer: Vec<u8>,
        used: usize,
        pool: Option<Arc<Pool>>,
    },
    Mapped {
        map: Arc<dyn FileMapping>,
        range: Range<usize>,
    },
}

impl Block {
    /// A block of just these bytes.
    pub(super) fn exact(bytes: &[u8], origin: Origin) -> Block {
        let bytes = Bytes::Read { buffer: bytes.to_vec(), used: bytes.len(), pool: None };
        Block { bytes, origin }
    }

    /// The first `used` bytes of a buffer that goes back to `pool` in the end.
    pub(super) fn pooled(bytes: Vec<u8>, used: usize, origin: Origin, pool: &Arc<Pool>) -> Block {
        let used = used.min(bytes.len());
        Block { bytes: Bytes::Read { buffer: bytes, used, pool: Some(Arc::clone(pool)) }, origin }
    }

    /// A part of a mapped file.
    pub(super) fn mapped(map: &Arc<dyn FileMapping>, range: Range<usize>) -> Block {
        let origin = Origin::From(range.start as u64);
        Block { bytes: Bytes::Mapped { map: Arc::clone(map), range }, origin }
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Read { buffer, used, .. } => &buffer[..*used],
            Bytes::Mapped { map, range } => map.bytes().get(range.clone()).unwrap_or_default(),
        }
    }

    /// Whether it is part of a mapped file.
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self.bytes, Bytes::Mapped { .. })
    }

    /// Offset in the file of what is at `at`.
    #[inline]
    pub(super) fn offset_of(&self, at: u32) -> u64 {
        match self.origin {
            Origin::From(start) => start + u64::from(at),
            Origin::Inside(container) => container,
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match &mut self.bytes {
            Bytes::Read { buffer, pool: Some(pool), .. } => pool.give(std::mem::take(buffer)),
            Bytes::Read { .. } => {}
            Bytes::Mapped { map, range } => forget(&**map, range),
        }
    }
}

/// Releases the pages of a part, and those beside it that came with them: the kernel maps several
/// at a time. A reader that still uses one of these has it mapped again.
pub(super) fn forget(map: &dyn FileMapping, part: &Range<usize>) {
    const AROUND: usize = 64 << 10;
    let bytes = map.bytes();
    let end = part.end.saturating_add(AROUND).min(bytes.len());
    if let Some(part) = bytes.get(part.start.saturating_sub(AROUND)..end) {
        map.forget(part);
    }
}

/// Buffers without an owner.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Vec<u8>>>);

impl Pool {
    /// A buffer of at least `need` bytes; what is in it is of no meaning.
    pub(super) fn take(&self, need: usize) -> Vec<u8> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = spare.unwrap_or_default();
        if buffer.len() < need.max(BLOCK) {
            buffer.resize(need.max(BLOCK), 0);
        }
        buffer
    }

    /// Takes a buffer back.
    pub(super) fn give(&self, buffer: Vec<u8>) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Buffers that grew for a large piece are not kept.
        if spare.len() < SPARE && buffer.len() <= 2 * BLOCK {
            spare.push(buffer);
        }
    }
}

/// A buffer of which `used` bytes have been turned into records and `rest` not
/// yet: hands over the first as a block and leaves the others at the start of
/// the buffer. Mostly empty buffers are copied, full ones given away.
pub(super) fn hand_over(
    buffer: &mut Vec<u8>,
    used: usize,
    rest: std::ops::Range<usize>,
    origin: Origin,
    pool: &Arc<Pool>,
) -> Block {
    if used < BLOCK / 2 {
        let block = Block::exact(&buffer[..used], origin);
        buffer.copy_within(rest, 0);
        return block;
    }
    let mut next = pool.take(rest.len());
    next[..rest.len()].copy_from_slice(&buffer[rest]);
    Block::pooled(std::mem::replace(buffer, next), used, origin, pool)
}
