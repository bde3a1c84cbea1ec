//! Numbers in the bytes of maps and records.

/// The `u64` at an offset, in the machine's byte order; bytes that are not there are zero.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let part = bytes.get(at..).unwrap_or_default();
    let mut word = [0u8; 8];
    word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
    u64::from_ne_bytes(word)
}
