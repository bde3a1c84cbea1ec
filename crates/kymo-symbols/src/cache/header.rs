//! The header of a cache file, and the checksums. Numbers are little-endian:
//!
//! ```text
//!  0  magic "KYMOCACH"         8  version of the header, u32    12  version of the kind, u32
//! 16  name of the kind, 16 bytes, zeroes behind it
//! 32  size of the build-id, u8; the build-id, 20 bytes; zeroes up to 56
//! 56  bytes of the label, u64  64  bytes of the payload, u64    72  checksum of the payload, u64
//! 80  label, zeroes up to a multiple of 8; checksum of all before, u64; payload
//! ```

use std::io::Read as _;
use std::path::Path;

use kymo_model::BuildId;

use super::{CacheError, CacheKind};

const MAGIC: [u8; 8] = *b"KYMOCACH";
const VERSION: u32 = 1;
const FIXED: usize = 80;
const LABEL_LIMIT: usize = 4096;

/// Error of a header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    Version { found: u32, wanted: u32 },
    Damaged(&'static str),
}

impl Wrong {
    pub(super) fn at(self, path: &Path) -> CacheError {
        let path = path.to_owned();
        match self {
            Wrong::Version { found, wanted } => CacheError::Version { path, found, wanted },
            Wrong::Damaged(what) => CacheError::Damaged { path, what },
        }
    }
}

/// The header of a file with `payload`.
pub(super) fn make(kind: CacheKind, key: BuildId, label: &str, payload: &[u8]) -> Vec<u8> {
    debug_assert!(kind.name.len() <= 16);
    let label = label.get(..label.floor_char_boundary(LABEL_LIMIT)).unwrap_or(label).as_bytes();
    let mut h = Vec::with_capacity(FIXED + label.len() + 16);
    h.extend(MAGIC);
    h.extend(VERSION.to_le_bytes());
    h.extend(kind.version.to_le_bytes());
    h.extend(kind.name.bytes().take(16));
    h.resize(32, 0);
    h.push(key.as_bytes().len() as u8);
    h.extend(key.as_bytes());
    h.resize(56, 0);
    h.extend((label.len() as u64).to_le_bytes());
    h.extend((payload.len() as u64).to_le_bytes());
    h.extend(checksum(payload).to_le_bytes());
    h.extend(label);
    h.resize(h.len().next_multiple_of(8), 0);
    let sum = checksum(&h);
    h.extend(sum.to_le_bytes());
    h
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.first_chunk().copied().map(u64::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.first_chunk().copied().map(u32::from_le_bytes)
}

/// Checks header and payload; where the payload begins.
pub(super) fn check(file: &[u8], kind: CacheKind, key: BuildId) -> Result<usize, Wrong> {
    const SHORT: Wrong = Wrong::Damaged("it ends in its header");
    if file.get(..8) != Some(&MAGIC) {
        return Err(Wrong::Damaged("not a cache file"));
    }
    let version = u32_at(file, 8).ok_or(SHORT)?;
    if version != VERSION {
        return Err(Wrong::Version { found: version, wanted: VERSION });
    }
    let label = u64_at(file, 56).and_then(|n| usize::try_from(n).ok()).ok_or(SHORT)?;
    if label > LABEL_LIMIT {
        return Err(Wrong::Damaged("its header contradicts itself"));
    }
    let end = (FIXED + label).next_multiple_of(8);
    let (head, rest) = file.split_at_checked(end).ok_or(SHORT)?;
    if u64_at(rest, 0).ok_or(SHORT)? != checksum(head) {
        return Err(Wrong::Damaged("the checksum of its header is wrong"));
    }
    let found = u32_at(file, 12).ok_or(SHORT)?;
    if found != kind.version {
        return Err(Wrong::Version { found, wanted: kind.version });
    }
    let expected = make(kind, key, "", &[]);
    if head.get(16..56) != expected.get(16..56) {
        return Err(Wrong::Damaged("it belongs to another binary"));
    }
    let payload = file.get(end + 8..).unwrap_or_default();
    if u64_at(file, 64) != Some(payload.len() as u64) {
        return Err(Wrong::Damaged("it is cut short"));
    }
    if u64_at(file, 72) != Some(checksum(payload)) {
        return Err(Wrong::Damaged("the checksum of its contents is wrong"));
    }
    Ok(end + 8)
}

/// The label in a file's header, whatever is behind it.
pub(super) fn label(path: &Path) -> Option<String> {
    let mut head = Vec::new();
    let file = super::open_own(path).ok()??;
    file.take((FIXED + LABEL_LIMIT) as u64).read_to_end(&mut head).ok()?;
    let size = usize::try_from(u64_at(&head, 56)?).ok()?;
    let text = head.get(FIXED..FIXED.checked_add(size)?)?;
    (head.get(..8)? == MAGIC).then(|| String::from_utf8_lossy(text).into_owned())
}

/// Four lanes of words, so that it is as fast as memory. Every step is a
/// bijection, so no single damaged word goes unseen.
fn checksum(bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |lane: u64, word: u64| (lane ^ word).wrapping_mul(ODD).rotate_left(29);
    let mut lanes = [1u64, 2, 3, 4].map(|n| n.wrapping_mul(ODD));
    let (blocks, rest) = bytes.as_chunks::<32>();
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
            *lane = step(*lane, u64::from_le_bytes(*word));
        }
    }
    let mut sum = bytes.len() as u64;
    for byte in rest {
        sum = step(sum, u64::from(*byte));
    }
    lanes.into_iter().fold(sum, step)
}
