//! Building tables row by row.

use std::sync::Arc;

use kymo_table::{ColumnData, ColumnTable, ColumnValue, WordList};

use crate::schema::{ColumnKind, TableSchema};

/// A value of a row under way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Put<'a> {
    Null,
    Small(u32),
    Integer(i64),
    Real(f64),
    /// A word of the column, by its number.
    Word(u32),
    Text(&'a str),
    /// Text from outside.
    Bytes(&'a [u8]),
}

impl From<Option<u32>> for Put<'_> {
    fn from(value: Option<u32>) -> Self {
        value.map_or(Put::Null, Put::Small)
    }
}

impl From<Option<u64>> for Put<'_> {
    fn from(value: Option<u64>) -> Self {
        value.map_or(Put::Null, |n| Put::Integer(n.cast_signed()))
    }
}

impl From<bool> for Put<'_> {
    fn from(value: bool) -> Self {
        Put::Small(value.into())
    }
}

impl<'a> From<Option<&'a str>> for Put<'a> {
    fn from(value: Option<&'a str>) -> Self {
        value.map_or(Put::Null, Put::Text)
    }
}

/// A table under way.
pub(crate) struct TableBuilder {
    schema: &'static TableSchema,
    columns: Vec<(ColumnData, WordList)>,
    wanted: u64,
    rows: usize,
}

impl TableBuilder {
    /// A table with the columns of these bits.
    pub(crate) fn new(schema: &'static TableSchema, wanted: u64) -> TableBuilder {
        let columns = schema.columns.iter().enumerate().map(|(at, column)| {
            // Rows are put in order by it.
            let is_wanted = wanted >> at & 1 == 1 || schema.sorted == Some(at) && wanted != 0;
            let data = match column.kind {
                ColumnKind::Row => ColumnData::RowNumber,
                _ if !is_wanted => ColumnData::Unread,
                ColumnKind::Small => ColumnData::Small(Vec::new()),
                ColumnKind::Integer => ColumnData::integers(),
                ColumnKind::Real => ColumnData::Reals(Vec::new()),
                ColumnKind::Text => ColumnData::Texts { codes: Vec::new(), words: Arc::default() },
            };
            (data, WordList::default())
        });
        TableBuilder { schema, columns: columns.collect(), wanted, rows: 0 }
    }

    /// Whether a column is read.
    pub(crate) fn wants(&self, column: &str) -> bool {
        let at = self.schema.columns.iter().position(|c| c.name == column);
        debug_assert!(at.is_some(), "no column {column} in {}", self.schema.name);
        at.is_some_and(|at| self.wanted >> at & 1 == 1)
    }

    /// Number of a word of a column.
    pub(crate) fn word(&mut self, column: usize, word: &str) -> u32 {
        self.columns.get_mut(column).map_or(0, |(_, words)| words.intern(word))
    }

    /// Appends a row, of which the columns that are row numbers are left out.
    #[inline]
    pub(crate) fn row<const N: usize>(&mut self, values: [Put<'_>; N]) {
        let mut values = values.iter();
        for (data, words) in &mut self.columns {
            if let ColumnData::RowNumber = data {
                continue;
            }
            let Some(value) = values.next() else {
                debug_assert!(false, "a row of {} lacks values", self.schema.name);
                return;
            };
            let small = match (&*data, value) {
                (ColumnData::Unread, _) => continue,
                (ColumnData::Reals(_), Put::Real(n)) => {
                    data.push_real(Some(*n));
                    continue;
                }
                (ColumnData::Reals(_), _) => {
                    data.push_real(None);
                    continue;
                }
                (_, Put::Integer(n)) => {
                    data.push_integer(Some(*n));
                    continue;
                }
                (_, Put::Small(n) | Put::Word(n)) => Some(*n),
                (_, Put::Text(text)) => Some(words.intern(text)),
                (_, Put::Bytes(bytes)) => Some(words.intern_bytes(bytes)),
                (_, Put::Null | Put::Real(_)) => None,
            };
            data.push_small(small);
        }
        debug_assert!(values.next().is_none(), "a row of {} has values left", self.schema.name);
        self.rows += 1;
    }

    /// Bytes in memory.
    pub(crate) fn size(&self) -> usize {
        self.columns.iter().map(|(data, words)| data.size() + words.size()).sum()
    }

    /// The table, with its rows in order.
    pub(crate) fn finish(self) -> ColumnTable {
        let TableBuilder { schema, columns, rows, .. } = self;
        let order = schema.sorted.and_then(|at| order_of(&columns.get(at)?.0, rows));
        let columns = columns.into_iter().map(|(data, words)| {
            let data = match data {
                ColumnData::Texts { codes, .. } => {
                    ColumnData::Texts { codes, words: Arc::new(words) }
                }
                data => data,
            };
            match &order {
                Some(order) => reordered(&data, order),
                None => data,
            }
        });
        ColumnTable { columns: columns.collect(), rows }
    }
}

/// Order of rows by a column; nothing where they are in it.
fn order_of(data: &ColumnData, rows: usize) -> Option<Vec<u32>> {
    let ColumnData::Integers { values, .. } = data else { return None };
    if values.is_sorted() {
        return None;
    }
    let mut order: Vec<u32> = (0..rows as u32).collect();
    // Those of the same time keep their order.
    order.sort_by_key(|row| values.get(*row as usize).copied().unwrap_or(0));
    Some(order)
}

fn reordered(data: &ColumnData, order: &[u32]) -> ColumnData {
    let codes = |all: &[u32]| -> Vec<u32> {
        order.iter().map(|row| all.get(*row as usize).copied().unwrap_or(u32::MAX)).collect()
    };
    match data {
        ColumnData::Small(all) => ColumnData::Small(codes(all)),
        ColumnData::Texts { codes: all, words } => {
            ColumnData::Texts { codes: codes(all), words: words.clone() }
        }
        ColumnData::Integers { .. } => {
            let mut integers = ColumnData::integers();
            for row in order {
                integers.push_integer(match data.value(*row as usize) {
                    ColumnValue::Integer(n) => Some(n),
                    _ => None,
                });
            }
            integers
        }
        ColumnData::Reals(all) => {
            let value = |row: &u32| all.get(*row as usize).copied().unwrap_or(f64::NAN);
            ColumnData::Reals(order.iter().map(value).collect())
        }
        ColumnData::Unread | ColumnData::RowNumber => data.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::TableId;

    #[test]
    fn rows_are_put_in_order_with_all_their_values() {
        let mut table = TableBuilder::new(TableId::TraceBounds.schema(), 0b110);
        table.row([Put::Integer(3), Put::Integer(30)]);
        table.row([Put::Integer(1), Put::Null]);
        assert_eq!(table.finish().value(1, 1), ColumnValue::Integer(1));
        let schema = TableId::PerfSample.schema();
        let mut table = TableBuilder::new(schema, u64::MAX);
        for (ts, name) in [(5, "a"), (2, "b"), (5, "c"), (1, "d")] {
            let text = Put::Bytes(name.as_bytes());
            let null = Put::Null;
            table.row([
                Put::Integer(ts),
                Put::Small(ts as u32),
                null,
                text,
                null,
                null,
                null,
                null,
            ]);
        }
        let table = table.finish();
        let read = |row| (table.value(row, 1), table.value(row, 2), table.value(row, 4));
        let expected = [(1, "d"), (2, "b"), (5, "a"), (5, "c")].map(|(ts, name)| {
            (ColumnValue::Integer(ts), ColumnValue::Integer(ts), ColumnValue::Text(name))
        });
        assert_eq!([0, 1, 2, 3].map(read), expected);
        assert_eq!(table.value(2, 0), ColumnValue::Integer(2));
        assert_eq!(table.value(2, 3), ColumnValue::Null);
    }
}
