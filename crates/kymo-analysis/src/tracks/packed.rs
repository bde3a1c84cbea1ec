//! Numbers as LEB128: seven bits a byte, the lowest first, the eighth says that more come. Rows
//! of them become columns, and those are deflated.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// Bytes as they are in a page: compressed with deflate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeflatedBytes {
    /// The compressed bytes.
    pub bytes: Vec<u8>,
    /// How many they were before.
    pub length: usize,
}

/// How much time compressing takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeflateEffort {
    /// Half of the other, for a third more bytes.
    Least,
    /// As much as pays.
    Usual,
}

impl DeflateEffort {
    /// With more events than this the time that a page takes counts more than its size.
    const MANY: u64 = 1 << 19;

    /// What is right for so many events.
    pub fn for_events(count: u64) -> DeflateEffort {
        if count < DeflateEffort::MANY { DeflateEffort::Usual } else { DeflateEffort::Least }
    }
}

impl DeflatedBytes {
    /// Compresses bytes.
    pub fn new(plain: &[u8], effort: DeflateEffort) -> DeflatedBytes {
        let level = match effort {
            DeflateEffort::Least => 1,
            DeflateEffort::Usual => 2,
        };
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(level));
        // A vector takes all that it is given.
        let written = encoder.write_all(plain).and_then(|()| encoder.finish());
        let mut bytes = written.unwrap_or_default();
        bytes.shrink_to_fit();
        DeflatedBytes { bytes, length: plain.len() }
    }
}

/// Rows of `count` numbers, column by column: the same kind of number beside each other is
/// packed better. Lengths of all columns but the last come first.
pub fn to_columns(rows: &[u8], count: usize) -> Vec<u8> {
    let mut columns = vec![Vec::with_capacity(rows.len() / count.max(1)); count];
    let mut column = 0;
    for byte in rows {
        if let Some(of) = columns.get_mut(column) {
            of.push(*byte);
        }
        // The last of a number.
        if byte & 0x80 == 0 {
            column = if column + 1 == count { 0 } else { column + 1 };
        }
    }
    let mut all = Vec::with_capacity(rows.len() + 16);
    columns
        .iter()
        .take(count.saturating_sub(1))
        .for_each(|c| push_number(&mut all, c.len() as u64));
    columns.iter().for_each(|c| all.extend_from_slice(c));
    all
}

/// Appends a number.
#[inline]
pub fn push_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number off the begin of bytes.
#[inline]
pub(super) fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, 127, 128, 300, 1 << 53, u64::MAX];
        let mut bytes = Vec::new();
        numbers.iter().for_each(|n| push_number(&mut bytes, *n));
        let mut left = &*bytes;
        assert_eq!(numbers.map(|_| take_number(&mut left).unwrap_or(7)), numbers);
        assert_eq!(take_number(&mut left), None);
        assert_eq!(take_number(&mut &[0x80][..]), None);
    }
}
