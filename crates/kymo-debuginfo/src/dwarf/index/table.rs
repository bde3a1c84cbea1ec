//! The bytes of an index: five sizes of sections, then for each table where it is
//! and how many rows it has, then the tables, texts, and lists of units. Numbers
//! are little-endian.
//!
//! ```text
//!   0  5 × u64   sizes of the sections it was made of
//!  40  (offset u64, bytes u64)   of each table in the order of `TABLES`, of texts, of lists
//! ```
//!
//! A list of units is their count, then the differences from one to the next, as
//! LEB128. Tables that are searched begin their rows with a u64 and are sorted by it.

use super::IndexError;

/// A table; its rows are of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// Offset of a unit: u64.
    Starts,
    /// Unit: u32.
    Skeletons,
    /// Units that could not be read: u32.
    Unread,
    /// Functions: hash of the name without generic arguments, text (offset and
    /// size, u32 each), list u32.
    Names,
    /// Names for the linker: hash, unit u32.
    Linkage,
    /// Last parts of paths: hash, list u32.
    Files,
    /// Code: start, end, unit u32.
    Ranges,
}

pub(super) const TABLES: [Table; 7] = [
    Table::Starts,
    Table::Skeletons,
    Table::Unread,
    Table::Names,
    Table::Linkage,
    Table::Files,
    Table::Ranges,
];
const MARKS: usize = 5;
const PARTS: usize = TABLES.len() + 2;
const TEXTS: usize = TABLES.len();
const LISTS: usize = TABLES.len() + 1;
const HEADER: usize = MARKS * 8 + PARTS * 16;

impl Table {
    fn row(self) -> usize {
        match self {
            Table::Starts => 8,
            Table::Skeletons | Table::Unread => 4,
            Table::Names => 20,
            Table::Linkage | Table::Files => 12,
            Table::Ranges => 20,
        }
    }
}

/// FNV-1a: names are short, and it stays the same.
pub(super) fn hash(text: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    text.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// An index's bytes and where its parts are.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'b> {
    bytes: &'b [u8],
    parts: [&'b [u8]; PARTS],
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.first_chunk().copied().map(u64::from_le_bytes)
}

impl<'b> View<'b> {
    pub(super) fn open(bytes: &'b [u8]) -> Result<View<'b>, IndexError> {
        let damaged = || IndexError::Damaged { what: "its header" };
        let mut parts = [&bytes[..0]; PARTS];
        for (n, part) in parts.iter_mut().enumerate() {
            let number = |at: usize| {
                let number = u64_at(bytes, MARKS * 8 + n * 16 + at).ok_or_else(damaged)?;
                usize::try_from(number).map_err(|_| damaged())
            };
            let (from, size) = (number(0)?, number(8)?);
            let end = from.checked_add(size).ok_or_else(damaged)?;
            *part = bytes.get(from..end).ok_or_else(damaged)?;
        }
        for (table, part) in TABLES.iter().zip(&parts) {
            if part.len() % table.row() != 0 {
                return Err(IndexError::Damaged { what: "the size of a table" });
            }
        }
        Ok(View { bytes, parts })
    }

    pub(super) fn marks(&self) -> [u64; MARKS] {
        let mut marks = [0; MARKS];
        for (n, mark) in marks.iter_mut().enumerate() {
            *mark = u64_at(self.bytes, n * 8).unwrap_or(u64::MAX);
        }
        marks
    }

    fn part(&self, number: usize) -> &'b [u8] {
        self.parts.get(number).copied().unwrap_or_default()
    }

    fn table(&self, table: Table) -> &'b [u8] {
        self.part(TABLES.iter().position(|t| *t == table).unwrap_or(PARTS))
    }

    pub(super) fn rows(&self, table: Table) -> usize {
        self.table(table).len() / table.row()
    }

    /// A number of a row; 0 where there is none.
    pub(super) fn u64(&self, table: Table, row: usize, at: usize) -> u64 {
        u64_at(self.table(table), row.saturating_mul(table.row()).saturating_add(at)).unwrap_or(0)
    }

    pub(super) fn u32(&self, table: Table, row: usize, at: usize) -> u32 {
        let at = row.saturating_mul(table.row()).saturating_add(at);
        let word = self.table(table).get(at..at.saturating_add(4));
        word.and_then(|w| w.first_chunk().copied()).map_or(0, u32::from_le_bytes)
    }

    /// The text that a row names by offset and size.
    pub(super) fn text(&self, table: Table, row: usize, at: usize) -> &'b [u8] {
        let from = self.u32(table, row, at) as usize;
        let size = self.u32(table, row, at + 4) as usize;
        self.part(TEXTS).get(from..from.saturating_add(size)).unwrap_or_default()
    }

    /// The units of the list that a row names.
    pub(super) fn units(
        &self,
        table: Table,
        row: usize,
        at: usize,
    ) -> impl Iterator<Item = usize> + 'b {
        let from = self.u32(table, row, at) as usize;
        let mut rest = self.part(LISTS).get(from..).unwrap_or_default();
        let mut left = leb(&mut rest).unwrap_or(0);
        let mut unit = 0u64;
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            unit = unit.wrapping_add(leb(&mut rest)?);
            usize::try_from(unit).ok()
        })
    }

    /// Number of rows whose first number satisfies `before`.
    pub(super) fn partition(&self, table: Table, before: impl Fn(u64) -> bool) -> usize {
        let (mut from, mut to) = (0, self.rows(table));
        while from < to {
            let middle = from + (to - from) / 2;
            if before(self.u64(table, middle, 0)) { from = middle + 1 } else { to = middle }
        }
        from
    }

    /// Rows that begin with a hash.
    pub(super) fn equal(&self, table: Table, hash: u64) -> impl Iterator<Item = usize> + use<'b> {
        let view = *self;
        let first = self.partition(table, |h| h < hash);
        (first..self.rows(table)).take_while(move |row| view.u64(table, *row, 0) == hash)
    }
}

fn leb(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Bytes of an index while it is made.
#[derive(Default)]
pub(super) struct Writer {
    tables: [Vec<u8>; TABLES.len()],
    texts: Vec<u8>,
    lists: Vec<u8>,
}

impl Writer {
    /// Buffer for the rows of a table.
    pub(super) fn table(&mut self, table: Table) -> &mut Vec<u8> {
        let at = TABLES.iter().position(|t| *t == table).unwrap_or(0);
        &mut self.tables[at]
    }

    /// Stores a text; its offset and size.
    pub(super) fn text(&mut self, text: &[u8]) -> [u8; 8] {
        let at = self.texts.len() as u32;
        self.texts.extend(text);
        let mut place = [0; 8];
        place[..4].copy_from_slice(&at.to_le_bytes());
        place[4..].copy_from_slice(&(text.len() as u32).to_le_bytes());
        place
    }

    /// Stores a list of ascending units; its offset.
    pub(super) fn list(&mut self, units: impl ExactSizeIterator<Item = u32>) -> [u8; 4] {
        let at = self.lists.len() as u32;
        self.leb(units.len() as u32);
        let mut last = 0;
        for unit in units {
            self.leb(unit.wrapping_sub(last));
            last = unit;
        }
        at.to_le_bytes()
    }

    fn leb(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.lists.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.lists.push(value as u8);
    }

    pub(super) fn finish(self, marks: [u64; MARKS]) -> Vec<u8> {
        let parts: Vec<&[u8]> =
            self.tables.iter().chain([&self.texts, &self.lists]).map(Vec::as_slice).collect();
        let size: usize = parts.iter().map(|p| p.len()).sum();
        let mut bytes = Vec::with_capacity(HEADER + size);
        marks.iter().for_each(|mark| bytes.extend(mark.to_le_bytes()));
        let mut at = HEADER;
        for part in &parts {
            bytes.extend((at as u64).to_le_bytes());
            bytes.extend((part.len() as u64).to_le_bytes());
            at += part.len();
        }
        parts.into_iter().for_each(|part| bytes.extend(part));
        bytes
    }
}
