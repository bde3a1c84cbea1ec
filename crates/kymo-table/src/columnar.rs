//! Tables by column: the values of many rows in little memory.

use std::collections::HashMap;
use std::sync::Arc;

/// A value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ColumnValue<'a> {
    /// Not known.
    Null,
    /// An integer; of addresses and hashes the bits.
    Integer(i64),
    /// A real number.
    Real(f64),
    /// Text.
    Text(&'a str),
}

/// Number that stands for null among small ones.
const NULL: u32 = u32::MAX;

/// Values of a column.
#[derive(Clone, Debug)]
pub enum ColumnData {
    /// No query needs it.
    Unread,
    /// The number of the row, from 0.
    RowNumber,
    /// Numbers below 2^32 - 1.
    Small(Vec<u32>),
    /// Integers, and which of them are null.
    Integers {
        /// The values; 0 where they are null.
        values: Vec<i64>,
        /// Rows that are null.
        nulls: RowSet,
    },
    /// Real numbers; what is not a number is null.
    Reals(Vec<f64>),
    /// Texts.
    Texts {
        /// Number of the word by row.
        codes: Vec<u32>,
        /// The words.
        words: Arc<WordList>,
    },
}

impl ColumnData {
    /// No values of integers.
    pub fn integers() -> ColumnData {
        ColumnData::Integers { values: Vec::new(), nulls: RowSet::default() }
    }

    /// Value of a row.
    #[inline]
    pub fn value(&self, row: usize) -> ColumnValue<'_> {
        let small = |codes: &[u32]| codes.get(row).copied().filter(|code| *code != NULL);
        match self {
            ColumnData::Unread => ColumnValue::Null,
            ColumnData::RowNumber => ColumnValue::Integer(row as i64),
            ColumnData::Small(values) => {
                small(values).map_or(ColumnValue::Null, |n| ColumnValue::Integer(i64::from(n)))
            }
            ColumnData::Integers { values, nulls } => match values.get(row) {
                Some(value) if !nulls.has(row) => ColumnValue::Integer(*value),
                _ => ColumnValue::Null,
            },
            ColumnData::Reals(values) => match values.get(row) {
                Some(value) if !value.is_nan() => ColumnValue::Real(*value),
                _ => ColumnValue::Null,
            },
            ColumnData::Texts { codes, words } => {
                let word = small(codes).and_then(|code| words.get(code));
                word.map_or(ColumnValue::Null, ColumnValue::Text)
            }
        }
    }

    /// Appends a small number.
    #[inline]
    pub fn push_small(&mut self, value: Option<u32>) {
        match self {
            ColumnData::Small(values) | ColumnData::Texts { codes: values, .. } => {
                values.push(value.unwrap_or(NULL));
            }
            ColumnData::Integers { .. } => self.push_integer(value.map(i64::from)),
            _ => {}
        }
    }

    /// Appends an integer.
    #[inline]
    pub fn push_integer(&mut self, value: Option<i64>) {
        if let ColumnData::Integers { values, nulls } = self {
            if value.is_none() {
                nulls.insert(values.len());
            }
            values.push(value.unwrap_or(0));
        }
    }

    /// Appends a real number.
    pub fn push_real(&mut self, value: Option<f64>) {
        if let ColumnData::Reals(values) = self {
            values.push(value.unwrap_or(f64::NAN));
        }
    }

    /// Numbers that say which rows have the same value: those of small numbers and words.
    pub fn codes(&self) -> Option<&[u32]> {
        match self {
            ColumnData::Small(codes) | ColumnData::Texts { codes, .. } => Some(codes),
            _ => None,
        }
    }

    /// Bytes in memory, without words.
    pub fn size(&self) -> usize {
        match self {
            ColumnData::Unread | ColumnData::RowNumber => 0,
            ColumnData::Small(codes) | ColumnData::Texts { codes, .. } => codes.len() * 4,
            ColumnData::Integers { values, nulls } => values.len() * 8 + nulls.words.len() * 8,
            ColumnData::Reals(values) => values.len() * 8,
        }
    }
}

/// Rows by number.
#[derive(Clone, Debug, Default)]
pub struct RowSet {
    words: Vec<u64>,
}

impl RowSet {
    /// Whether a row is in the set.
    #[inline]
    pub fn has(&self, row: usize) -> bool {
        self.words.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Adds a row.
    pub fn insert(&mut self, row: usize) {
        if self.words.len() <= row / 64 {
            self.words.resize(row / 64 + 1, 0);
        }
        if let Some(word) = self.words.get_mut(row / 64) {
            *word |= 1 << (row % 64);
        }
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }
}

/// Texts by number.
#[derive(Clone, Debug, Default)]
pub struct WordList {
    words: Vec<Arc<str>>,
    codes: HashMap<Arc<str>, u32>,
    bytes: usize,
}

impl WordList {
    /// A text by its number.
    #[inline]
    pub fn get(&self, code: u32) -> Option<&str> {
        self.words.get(code as usize).map(AsRef::as_ref)
    }

    /// Number of a text, if it is there.
    pub fn code(&self, word: &str) -> Option<u32> {
        self.codes.get(word).copied()
    }

    /// Number of a text, which is taken in.
    pub fn intern(&mut self, word: &str) -> u32 {
        if let Some(code) = self.codes.get(word) {
            return *code;
        }
        let code = self.words.len() as u32;
        let text: Arc<str> = Arc::from(word);
        self.bytes += text.len() + 64;
        self.words.push(text.clone());
        self.codes.insert(text, code);
        code
    }

    /// Number of a text from outside, in which bytes that are not UTF-8 become `\xNN`.
    pub fn intern_bytes(&mut self, bytes: &[u8]) -> u32 {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.intern(text),
            Err(_) => self.intern(&text_of(bytes)),
        }
    }

    /// Bytes in memory.
    pub fn size(&self) -> usize {
        self.bytes
    }
}

/// Text from outside as UTF-8: other bytes become `\xNN`.
pub fn text_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Rows by column.
#[derive(Clone, Debug, Default)]
pub struct ColumnTable {
    /// Values by column.
    pub columns: Vec<ColumnData>,
    /// Number of rows.
    pub rows: usize,
}

impl ColumnTable {
    /// Value of a row in a column.
    #[inline]
    pub fn value(&self, row: usize, column: usize) -> ColumnValue<'_> {
        self.columns.get(column).map_or(ColumnValue::Null, |data| data.value(row))
    }

    /// Bytes in memory.
    pub fn size(&self) -> usize {
        let words = self.columns.iter().map(|data| match data {
            ColumnData::Texts { words, .. } => words.size(),
            _ => 0,
        });
        self.columns.iter().map(ColumnData::size).sum::<usize>() + words.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_that_were_appended() {
        let mut integers = ColumnData::integers();
        let given = [Some(i64::MIN), None, Some(-1), Some(0)];
        given.iter().for_each(|value| integers.push_integer(*value));
        let read: Vec<_> = (0..4).map(|row| integers.value(row)).collect();
        let expected = given.map(|v| v.map_or(ColumnValue::Null, ColumnValue::Integer));
        assert_eq!(read, expected);
        assert_eq!(integers.value(4), ColumnValue::Null);
        let mut words = WordList::default();
        let codes = vec![words.intern("a"), words.intern_bytes(b"\xffb"), words.intern("a"), NULL];
        assert_eq!(words.code("\\xffb"), Some(1));
        let texts = ColumnData::Texts { codes, words: Arc::new(words) };
        let read: Vec<_> = (0..4).map(|row| texts.value(row)).collect();
        let text = ColumnValue::Text;
        assert_eq!(read, [text("a"), text("\\xffb"), text("a"), ColumnValue::Null]);
        let mut small = ColumnData::Small(Vec::new());
        small.push_small(Some(7));
        small.push_small(None);
        assert_eq!((small.value(0), small.value(1)), (ColumnValue::Integer(7), ColumnValue::Null));
    }
}
