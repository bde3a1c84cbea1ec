//! Numbers as LEB128: seven bits a byte, the lowest first, the eighth says that more come. Rows
//! of them lie in columns, and those are deflated.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// The step from one time to the next, of either sign: steps that are small give small numbers
/// (zigzag).
pub(super) fn step_between(before: u64, time: u64) -> u64 {
    let step = time.wrapping_sub(before) as i64;
    ((step << 1) ^ (step >> 63)) as u64
}

/// The time after a step from [`step_between`].
pub(super) fn time_after(before: u64, step: u64) -> u64 {
    before.wrapping_add(((step >> 1) as i64 ^ -((step & 1) as i64)) as u64)
}

/// Bytes as they are in a page: compressed with deflate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeflatedBytes {
    /// The compressed bytes.
    pub bytes: Vec<u8>,
    /// Length of the bytes before compression.
    pub length: usize,
}

/// Compression effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeflateEffort {
    /// Some of the other's, for more bytes.
    Least,
    /// As much as pays.
    Usual,
}

impl DeflateEffort {
    /// With more events than this the time that a page takes counts more than its size.
    const MANY: u64 = 1 << 19;

    /// Effort that suits a number of events.
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

    /// The bytes before they were compressed.
    pub fn plain(&self) -> Vec<u8> {
        let mut plain = Vec::with_capacity(self.length);
        let decoder = flate2::read::DeflateDecoder::new(&*self.bytes);
        // It was made here: nothing can be wrong with it.
        let _ = decoder.take(self.length as u64).read_to_end(&mut plain);
        plain
    }
}

/// Rows of `N` numbers, column by column: the same kind of number beside each other is packed
/// better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns<const N: usize>([Vec<u8>; N]);

impl<const N: usize> Default for Columns<N> {
    fn default() -> Columns<N> {
        Columns(std::array::from_fn(|_| Vec::new()))
    }
}

impl<const N: usize> Columns<N> {
    /// Returns empty columns with the capacity of these.
    #[must_use]
    pub fn next(&self) -> Columns<N> {
        Columns(self.0.each_ref().map(|column| Vec::with_capacity(column.len() + 64)))
    }

    /// Adds a row.
    #[inline]
    pub fn push(&mut self, row: [u64; N]) {
        self.0.iter_mut().zip(row).for_each(|(column, number)| push_number(column, number));
    }

    /// The columns of bytes that [`to_bytes`](Self::to_bytes) made.
    pub fn of_bytes(bytes: &[u8]) -> Columns<N> {
        let mut left = bytes;
        let mut lengths = [usize::MAX; N];
        for length in lengths.iter_mut().take(N.saturating_sub(1)) {
            *length = take_number(&mut left).map_or(0, |n| n as usize);
        }
        Columns(lengths.map(|length| {
            let (column, rest) = left.split_at(length.min(left.len()));
            left = rest;
            column.to_vec()
        }))
    }

    /// The rows.
    pub fn rows(&self) -> impl Iterator<Item = [u64; N]> + '_ {
        let mut left = self.0.each_ref().map(Vec::as_slice);
        std::iter::from_fn(move || {
            let mut row = [0; N];
            for (number, column) in row.iter_mut().zip(&mut left) {
                *number = take_number(column)?;
            }
            Some(row)
        })
    }

    /// Gives back what is taken of memory for more rows.
    pub fn shrink_to_fit(&mut self) {
        self.0.iter_mut().for_each(Vec::shrink_to_fit);
    }

    /// Bytes of each column.
    pub fn lengths(&self) -> [usize; N] {
        self.0.each_ref().map(Vec::len)
    }

    /// The columns behind each other, before them the lengths of all but the last.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.part([0; N], self.lengths())
    }

    /// Returns the bytes of the rows between two sets of column lengths.
    pub fn part(&self, from: [usize; N], to: [usize; N]) -> Vec<u8> {
        let mut parts = [&[][..]; N];
        for ((part, column), (from, to)) in parts.iter_mut().zip(&self.0).zip(from.iter().zip(to)) {
            *part = column.get(*from..to).unwrap_or_default();
        }
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut all = Vec::with_capacity(length + 10 * N);
        let stated = parts.iter().take(N.saturating_sub(1));
        stated.for_each(|part| push_number(&mut all, part.len() as u64));
        parts.iter().for_each(|part| all.extend_from_slice(part));
        all
    }
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

/// Decodes a number at the start of bytes.
#[inline]
fn take_number(bytes: &mut &[u8]) -> Option<u64> {
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
    fn what_is_compressed_comes_back() {
        let noise = (0..5_000_000u64).map(|n| ((n * n) >> 7) as u8).collect::<Vec<u8>>();
        for plain in [&[][..], b"a", &[0; 100_000], &noise] {
            for effort in [DeflateEffort::Least, DeflateEffort::Usual] {
                let packed = DeflatedBytes::new(plain, effort);
                let mut back = Vec::new();
                let read = flate2::read::DeflateDecoder::new(&*packed.bytes).read_to_end(&mut back);
                assert_eq!((read.ok(), packed.length), (Some(plain.len()), plain.len()));
                assert!(back == plain && packed.bytes.len() < plain.len() + 1000, "{effort:?}");
            }
        }
    }

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

    #[test]
    fn columns_lie_behind_their_lengths() {
        let mut columns = Columns::<3>::default();
        assert_eq!(columns.to_bytes(), [0, 0]);
        let rows = [[1, 0x102, 3], [4, 5, 6]];
        columns.push(rows[0]);
        let between = columns.lengths();
        columns.push(rows[1]);
        assert_eq!(columns.to_bytes(), [2, 3, 1, 4, 0x82, 2, 5, 3, 6]);
        assert_eq!(Columns::<3>::of_bytes(&columns.to_bytes()), columns);
        assert_eq!(columns.part([0; 3], between), [1, 2, 1, 0x82, 2, 3]);
        assert_eq!(columns.part(between, columns.lengths()), [1, 1, 4, 5, 6]);
        assert!(columns.rows().eq(rows) && columns.next().rows().next().is_none());
    }
}
