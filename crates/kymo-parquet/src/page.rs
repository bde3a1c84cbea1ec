//! Pages of a column chunk: levels and values.

use std::io::Read as _;

use crate::hybrid::decode_hybrid;
use crate::thrift::{Thrift, ThriftReader};
use crate::values::{ColumnValues, ReadTableError};

const PLAIN: i64 = 0;
const PLAIN_DICTIONARY: i64 = 2;
const RLE: i64 = 3;
const RLE_DICTIONARY: i64 = 8;
const DATA_PAGE: i64 = 0;
const DICTIONARY_PAGE: i64 = 2;

/// Codecs of pages that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageCodec {
    Uncompressed,
    Zstd,
}

/// Column chunk that is read.
pub(crate) struct ChunkReader<'a> {
    pub(crate) column: &'a str,
    pub(crate) codec: PageCodec,
    pub(crate) is_optional: bool,
    /// The pages.
    pub(crate) bytes: &'a [u8],
    /// Rows of the row group.
    pub(crate) rows: usize,
}

/// Plain values.
enum Plain {
    Ints(Vec<i64>),
    Numbers(Vec<f64>),
    Booleans(Vec<bool>),
    Texts(Vec<Box<str>>),
}

impl Plain {
    fn len(&self) -> usize {
        match self {
            Plain::Ints(all) => all.len(),
            Plain::Numbers(all) => all.len(),
            Plain::Booleans(all) => all.len(),
            Plain::Texts(all) => all.len(),
        }
    }
}

impl ChunkReader<'_> {
    fn damaged(&self, part: &'static str) -> ReadTableError {
        ReadTableError::Column { column: self.column.to_owned(), part }
    }

    /// Appends the chunk to the column. `budget`: bytes that may still be decompressed.
    pub(crate) fn read(
        &self,
        into: &mut ColumnValues,
        budget: &mut usize,
    ) -> Result<(), ReadTableError> {
        let mut reader = ThriftReader { rest: self.bytes };
        let mut dictionary: Option<Plain> = None;
        // Texts of the dictionary are kept once.
        let mut first_text = 0;
        let mut left = self.rows;
        while left > 0 {
            let head = reader.structure().ok_or_else(|| self.damaged("page header"))?;
            let size = head.size(3).ok_or_else(|| self.damaged("page header"))?;
            let page = reader.rest.split_at_checked(size);
            let (packed, rest) = page.ok_or_else(|| self.damaged("page"))?;
            reader.rest = rest;
            let bytes = self.unpack(packed, head.size(2), budget)?;
            match head.int(1) {
                Some(DICTIONARY_PAGE) if dictionary.is_none() => {
                    let of = head.field(7).ok_or_else(|| self.damaged("page header"))?;
                    if !matches!(of.int(2), Some(PLAIN | PLAIN_DICTIONARY)) {
                        return Err(self.damaged("encoding"));
                    }
                    let count = of.size(1).ok_or_else(|| self.damaged("page header"))?;
                    let values = plain(into, &bytes, count);
                    let values = values.ok_or_else(|| self.damaged("dictionary"))?;
                    if let (ColumnValues::Text { texts, .. }, Plain::Texts(all)) =
                        (&mut *into, &values)
                    {
                        first_text = texts.len();
                        texts.extend(all.iter().cloned());
                    }
                    dictionary = Some(values);
                }
                Some(DATA_PAGE) => {
                    let of = head.field(5).ok_or_else(|| self.damaged("page header"))?;
                    let count = of.size(1).filter(|count| (1..=left).contains(count));
                    let count = count.ok_or_else(|| self.damaged("row count"))?;
                    self.data_page(into, of, &bytes, count, (dictionary.as_ref(), first_text))?;
                    left -= count;
                }
                _ => return Err(self.damaged("page type")),
            }
        }
        Ok(())
    }

    fn unpack(
        &self,
        packed: &[u8],
        size: Option<usize>,
        budget: &mut usize,
    ) -> Result<Vec<u8>, ReadTableError> {
        let size = size.ok_or_else(|| self.damaged("page header"))?;
        *budget = budget.checked_sub(size).ok_or(ReadTableError::TooLarge)?;
        let mut bytes = Vec::new();
        match self.codec {
            PageCodec::Uncompressed => bytes.extend_from_slice(packed),
            // The size of the page is not trusted: memory grows with what is there.
            PageCodec::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(packed);
                let mut decoder = decoder.map_err(|_| self.damaged("zstd frame"))?;
                decoder.window_log_max(24).map_err(|_| self.damaged("zstd frame"))?;
                let read = decoder.take(size as u64 + 1).read_to_end(&mut bytes);
                read.map_err(|_| self.damaged("zstd frame"))?;
            }
        }
        if bytes.len() == size { Ok(bytes) } else { Err(self.damaged("page size")) }
    }

    fn data_page(
        &self,
        into: &mut ColumnValues,
        head: &Thrift<'_>,
        bytes: &[u8],
        count: usize,
        (dictionary, first_text): (Option<&Plain>, usize),
    ) -> Result<(), ReadTableError> {
        let (present, bytes) = if self.is_optional {
            let levels = if head.int(3) == Some(RLE) { levels(bytes, count) } else { None };
            levels.ok_or_else(|| self.damaged("levels"))?
        } else {
            (vec![1; count], bytes)
        };
        let values = present.iter().filter(|level| **level == 1).count();
        match head.int(2) {
            Some(PLAIN) => {
                let plain = plain(into, bytes, values).ok_or_else(|| self.damaged("values"))?;
                let mut first = first_text;
                if let (ColumnValues::Text { texts, .. }, Plain::Texts(all)) = (&mut *into, &plain)
                {
                    first = texts.len();
                    texts.extend(all.iter().cloned());
                }
                append(into, &present, &plain, first, Some)
            }
            Some(RLE_DICTIONARY | PLAIN_DICTIONARY) => {
                let (dictionary, (width, bytes)) = dictionary
                    .zip(bytes.split_first().or((values == 0).then_some((&0, bytes))))
                    .ok_or_else(|| self.damaged("dictionary"))?;
                let numbers = decode_hybrid(bytes, *width, values);
                let numbers = numbers.ok_or_else(|| self.damaged("values"))?;
                let number = |n: usize| {
                    let number = usize::try_from(*numbers.get(n)?).ok()?;
                    (number < dictionary.len()).then_some(number)
                };
                append(into, &present, dictionary, first_text, number)
            }
            _ => return Err(self.damaged("encoding")),
        }
        .ok_or_else(|| self.damaged("values"))
    }
}

/// Levels of a page, one for each row, and the bytes after them.
fn levels(bytes: &[u8], count: usize) -> Option<(Vec<u32>, &[u8])> {
    let (length, bytes) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (levels, bytes) = bytes.split_at_checked(length)?;
    Some((decode_hybrid(levels, 1, count)?, bytes))
}

/// Plain values of the column's type; `None` if there are fewer, or text is not UTF-8.
fn plain(of: &ColumnValues, bytes: &[u8], count: usize) -> Option<Plain> {
    let eight = |bytes: &[u8]| -> Option<Vec<[u8; 8]>> {
        let all = bytes.get(..count.checked_mul(8)?)?;
        Some(all.as_chunks::<8>().0.to_vec())
    };
    Some(match of {
        ColumnValues::Integer(_) => {
            Plain::Ints(eight(bytes)?.into_iter().map(i64::from_le_bytes).collect())
        }
        ColumnValues::Number(_) => {
            Plain::Numbers(eight(bytes)?.into_iter().map(f64::from_le_bytes).collect())
        }
        ColumnValues::Boolean(_) => {
            let bits = bytes.get(..count.div_ceil(8))?;
            let bit = |n: usize| bits.get(n / 8).is_some_and(|b| b >> (n % 8) & 1 == 1);
            Plain::Booleans((0..count).map(bit).collect())
        }
        ColumnValues::Text { .. } => {
            let mut texts = Vec::new();
            let mut rest = bytes;
            for _ in 0..count {
                let (length, after) = rest.split_first_chunk::<4>()?;
                let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
                let (text, after) = after.split_at_checked(length)?;
                texts.push(std::str::from_utf8(text).ok()?.into());
                rest = after;
            }
            Plain::Texts(texts)
        }
    })
}

/// Appends a value for each row; `number` is the number of the n-th value that is present.
fn append(
    into: &mut ColumnValues,
    present: &[u32],
    plain: &Plain,
    first_text: usize,
    number: impl Fn(usize) -> Option<usize>,
) -> Option<()> {
    let mut next = 0;
    let mut numbers = present.iter().map(|level| {
        if *level == 0 {
            return Some(None);
        }
        next += 1;
        number(next - 1).map(Some)
    });
    fn each<T: Copy>(
        rows: &mut Vec<Option<T>>,
        values: &[T],
        numbers: impl Iterator<Item = Option<Option<usize>>>,
    ) -> Option<()> {
        for number in numbers {
            rows.push(match number? {
                Some(number) => Some(*values.get(number)?),
                None => None,
            });
        }
        Some(())
    }
    match (into, plain) {
        (ColumnValues::Integer(rows), Plain::Ints(values)) => each(rows, values, &mut numbers),
        (ColumnValues::Number(rows), Plain::Numbers(values)) => each(rows, values, &mut numbers),
        (ColumnValues::Boolean(rows), Plain::Booleans(values)) => each(rows, values, &mut numbers),
        (ColumnValues::Text { rows, .. }, Plain::Texts(values)) => {
            for number in numbers {
                rows.push(match number? {
                    Some(number) if number < values.len() => {
                        Some(u32::try_from(first_text + number).ok()?)
                    }
                    Some(_) => return None,
                    None => None,
                });
            }
            Some(())
        }
        _ => None,
    }
}
