//! Rows of a table that a query asks for: conditions and groups, evaluated on columns.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use kymo_table::{ColumnData, ColumnTable, ColumnValue};

/// Comparison of a column with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    Above,
    AtLeast,
    Below,
    AtMost,
}

const COMPARISONS: [(Comparison, char); 5] = [
    (Comparison::Equal, '='),
    (Comparison::Above, '>'),
    (Comparison::AtLeast, 'g'),
    (Comparison::Below, '<'),
    (Comparison::AtMost, 'l'),
];

/// A way to read a table that a query chose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanPlan {
    /// Columns that are compared with values, in the order of the values.
    pub(crate) tests: Vec<(usize, Comparison)>,
    /// Columns by which rows come in groups, the outermost first.
    pub(crate) groups: Vec<usize>,
    /// Column by which rows are in order.
    pub(crate) order: Option<usize>,
}

impl ScanPlan {
    /// The plan as text, which SQLite keeps.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for (column, comparison) in &self.tests {
            let sign = COMPARISONS.iter().find(|(c, _)| c == comparison).map_or('=', |(_, s)| *s);
            text.push_str(&format!("{sign}{column} "));
        }
        for column in &self.groups {
            text.push_str(&format!("G{column} "));
        }
        if let Some(column) = &self.order {
            text.push_str(&format!("O{column} "));
        }
        text
    }

    pub(crate) fn from_text(text: &str) -> ScanPlan {
        let mut plan = ScanPlan::default();
        for word in text.split_whitespace() {
            let mut rest = word.chars();
            let (Some(sign), Ok(column)) = (rest.next(), rest.as_str().parse()) else { continue };
            match sign {
                'G' => plan.groups.push(column),
                'O' => plan.order = Some(column),
                _ => {
                    let found = COMPARISONS.iter().find(|(_, s)| *s == sign);
                    plan.tests.extend(found.map(|(comparison, _)| (column, *comparison)));
                }
            }
        }
        plan
    }
}

/// Value that a column is compared with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Bound {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    /// A value that no column holds, or that is not compared here.
    Other,
}

/// A table that was read, with what makes looking for rows quick.
#[derive(Debug)]
pub struct LoadedTable {
    pub(crate) table: ColumnTable,
    sorted: Option<usize>,
    lookups: Mutex<HashMap<usize, Lookup>>,
}

/// Rows by value of a column.
#[derive(Debug, Default)]
struct Lookup {
    asked: u32,
    rows: Option<Arc<RowsByCode>>,
}

/// Rows by code: those of `code` are `rows[starts[code]..starts[code + 1]]`.
#[derive(Debug)]
struct RowsByCode {
    starts: Vec<u32>,
    rows: Vec<u32>,
}

/// Codes at most in a table of counts.
const MOST_CODES: usize = 1 << 24;

impl LoadedTable {
    /// Column by which the rows are in order.
    pub fn sorted(&self) -> Option<usize> {
        self.sorted
    }

    /// A table; of the column `sorted` it is checked whether its values do fall.
    pub fn new(table: ColumnTable, sorted: Option<usize>) -> LoadedTable {
        let sorted = sorted.filter(|column| match table.columns.get(*column) {
            Some(ColumnData::Integers { values, nulls }) => nulls.is_empty() && values.is_sorted(),
            Some(ColumnData::Small(values)) => values.is_sorted(),
            Some(ColumnData::RowNumber) => true,
            _ => false,
        });
        LoadedTable { table, sorted, lookups: Mutex::default() }
    }

    /// The rows.
    pub fn table(&self) -> &ColumnTable {
        &self.table
    }

    /// Rows by the codes of a column, once that was asked for more than once.
    fn lookup(&self, column: usize) -> Option<Arc<RowsByCode>> {
        let mut lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        let lookup = lookups.entry(column).or_default();
        lookup.asked += 1;
        if lookup.asked > 1 && lookup.rows.is_none() {
            let codes = self.table.columns.get(column).and_then(ColumnData::codes)?;
            lookup.rows = RowsByCode::new(codes, 0..codes.len()).map(Arc::new);
        }
        lookup.rows.clone()
    }
}

impl RowsByCode {
    /// By counting; null comes last. Nothing where there are more codes than is worth it.
    fn new(codes: &[u32], rows: impl Iterator<Item = usize> + Clone) -> Option<RowsByCode> {
        let is_code = |code: &&u32| **code != u32::MAX;
        let most = codes.iter().filter(is_code).max().map_or(0, |code| *code as usize);
        if most >= MOST_CODES {
            return None;
        }
        let place = |code: u32| (code as usize).min(most + 1);
        let mut starts = vec![0u32; most + 3];
        let code_of = |row: usize| codes.get(row).copied().unwrap_or(u32::MAX);
        let mut count = 0usize;
        for row in rows.clone() {
            count += 1;
            if let Some(slot) = starts.get_mut(place(code_of(row)) + 1) {
                *slot += 1;
            }
        }
        let mut sum = 0;
        for slot in &mut starts {
            sum += *slot;
            *slot = sum;
        }
        let mut next = starts.clone();
        let mut sorted = vec![0u32; count];
        for row in rows {
            if let Some(at) = next.get_mut(place(code_of(row))) {
                if let Some(slot) = sorted.get_mut(*at as usize) {
                    *slot = row as u32;
                }
                *at += 1;
            }
        }
        Some(RowsByCode { starts, rows: sorted })
    }

    fn of(&self, code: u32) -> Range<usize> {
        let at = |n: usize| self.starts.get(n).map_or(0, |start| *start as usize);
        if code as usize + 2 >= self.starts.len() {
            0..0
        } else {
            at(code as usize)..at(code as usize + 1)
        }
    }
}

/// A condition on a column.
#[derive(Clone, Copy, Debug)]
enum Test {
    Code { column: usize, first: u32, last: u32 },
    Integer { column: usize, first: i64, last: i64 },
}

/// Rows under way.
#[derive(Debug)]
enum RowList {
    Span,
    Found(Arc<RowsByCode>),
    Listed(Vec<u32>),
}

/// Rows of a table that fulfill the conditions of a plan, one after the other. They may be more
/// than those, as far as SQLite compares by other rules: it checks again.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) loaded: Arc<LoadedTable>,
    rows: RowList,
    tests: Vec<Test>,
    at: usize,
    end: usize,
    /// The present row.
    pub(crate) row: usize,
    pub(crate) is_over: bool,
}

impl Scan {
    pub(crate) fn new(loaded: Arc<LoadedTable>, plan: &ScanPlan, bounds: &[Bound]) -> Scan {
        let mut span = 0..loaded.table.rows;
        let mut tests = Vec::new();
        let mut equal = None;
        for ((column, comparison), bound) in plan.tests.iter().zip(bounds) {
            let data = loaded.table.columns.get(*column).unwrap_or(&ColumnData::Unread);
            match bound_range(data, *comparison, bound) {
                BoundRange::All => {}
                BoundRange::None => span = 0..0,
                BoundRange::Code(code) => {
                    tests.push(Test::Code { column: *column, first: code, last: code });
                    equal = Some((*column, code));
                }
                BoundRange::Integers(first, last) => {
                    let found = loaded.narrow(*column, (first, last), &mut span);
                    let small = |n: i64, limit| u32::try_from(n).unwrap_or(limit);
                    match data {
                        _ if found => {}
                        ColumnData::Small(_) if last < 0 || first >= i64::from(u32::MAX) => {
                            span = 0..0
                        }
                        ColumnData::Small(_) => {
                            let (first, last) =
                                (small(first, 0), small(last, u32::MAX - 1).min(u32::MAX - 1));
                            tests.push(Test::Code { column: *column, first, last });
                            if first == last {
                                equal = Some((*column, first));
                            }
                        }
                        _ => tests.push(Test::Integer { column: *column, first, last }),
                    }
                }
            }
        }
        let is_whole = span == (0..loaded.table.rows) && !span.is_empty();
        let found = equal
            .filter(|_| is_whole)
            .and_then(|(column, code)| loaded.lookup(column).map(|rows| (rows.of(code), rows)));
        let (rows, span) = match found {
            Some((range, rows)) => (RowList::Found(rows), range),
            None => (RowList::Span, span),
        };
        let (at, end) = (span.start, span.end);
        let mut scan = Scan { loaded, rows, tests, at, end, row: 0, is_over: false };
        scan.arrange(plan);
        scan.advance();
        scan
    }

    /// Puts rows into groups, or in order.
    fn arrange(&mut self, plan: &ScanPlan) {
        let is_sorted = |column: usize| self.loaded.sorted == Some(column);
        let order = plan.order.filter(|column| !is_sorted(*column));
        if plan.groups.is_empty() && order.is_none() {
            return;
        }
        let mut rows: Vec<u32> = Vec::new();
        let loaded = self.loaded.clone();
        let single = plan.groups.len() == 1 && self.tests.is_empty();
        if !(single && matches!(self.rows, RowList::Span)) {
            while let Some(row) = self.find() {
                rows.push(row as u32);
            }
        } else {
            rows.extend(self.at as u32..self.end as u32);
        }
        // The innermost first: sorting is stable.
        for column in plan.groups.iter().rev().copied().chain(order) {
            let Some(data) = loaded.table.columns.get(column) else { continue };
            let counted = data
                .codes()
                .and_then(|codes| RowsByCode::new(codes, rows.iter().map(|row| *row as usize)));
            match counted {
                Some(counted) => rows = counted.rows,
                None => rows.sort_by_cached_key(|row| sort_key(data.value(*row as usize))),
            }
        }
        (self.at, self.end) = (0, rows.len());
        self.rows = RowList::Listed(rows);
        self.tests.clear();
    }

    /// Next row that fulfills the conditions.
    #[inline]
    fn find(&mut self) -> Option<usize> {
        while self.at < self.end {
            let row = match &self.rows {
                RowList::Span => self.at,
                RowList::Found(found) => found.rows.get(self.at).map_or(0, |row| *row as usize),
                RowList::Listed(rows) => rows.get(self.at).map_or(0, |row| *row as usize),
            };
            self.at += 1;
            if self.tests.iter().all(|test| test.holds(&self.loaded.table, row)) {
                return Some(row);
            }
        }
        None
    }

    /// Goes to the next row.
    #[inline]
    pub(crate) fn advance(&mut self) {
        match self.find() {
            Some(row) => self.row = row,
            None => self.is_over = true,
        }
    }
}

/// Key by which equal values come together.
fn sort_key(value: ColumnValue<'_>) -> (u8, i64) {
    match value {
        ColumnValue::Null => (0, 0),
        ColumnValue::Integer(n) => (1, n),
        // Of reals the order does not count, and texts have codes.
        ColumnValue::Real(n) => (2, n.to_bits().cast_signed()),
        ColumnValue::Text(_) => (3, 0),
    }
}

impl Test {
    #[inline]
    fn holds(&self, table: &ColumnTable, row: usize) -> bool {
        match self {
            Test::Code { column, first, last } => {
                let codes = table.columns.get(*column).and_then(ColumnData::codes);
                codes.and_then(|c| c.get(row)).is_some_and(|code| (first..=last).contains(&code))
            }
            Test::Integer { column, first, last } => match table.value(row, *column) {
                ColumnValue::Integer(n) => (*first..=*last).contains(&n),
                _ => false,
            },
        }
    }
}

/// Values that a condition lets through.
enum BoundRange {
    /// All, as far as it can be said here.
    All,
    None,
    Code(u32),
    Integers(i64, i64),
}

fn bound_range(data: &ColumnData, comparison: Comparison, bound: &Bound) -> BoundRange {
    let is_integer =
        matches!(data, ColumnData::Integers { .. } | ColumnData::Small(_) | ColumnData::RowNumber);
    match (bound, data) {
        // Nothing compares with null.
        (Bound::Null, _) => BoundRange::None,
        (Bound::Text(text), ColumnData::Texts { words, .. }) if comparison == Comparison::Equal => {
            words.code(text).map_or(BoundRange::None, BoundRange::Code)
        }
        (Bound::Integer(n), _) if is_integer => integers(comparison, *n, *n),
        (Bound::Real(n), _) if is_integer && !n.is_nan() => {
            // Out of range they are the ends of it, which is no less than the condition.
            integers(comparison, n.floor() as i64, n.ceil() as i64)
        }
        _ => BoundRange::All,
    }
}

/// `below`, `above`: the integers at or around the value.
fn integers(comparison: Comparison, below: i64, above: i64) -> BoundRange {
    match comparison {
        Comparison::Equal => BoundRange::Integers(below.min(above), above),
        Comparison::Above | Comparison::AtLeast => BoundRange::Integers(below, i64::MAX),
        Comparison::Below | Comparison::AtMost => BoundRange::Integers(i64::MIN, above),
    }
}

impl LoadedTable {
    /// Narrows a span to the rows between two values, if the column is sorted.
    fn narrow(&self, column: usize, (first, last): (i64, i64), span: &mut Range<usize>) -> bool {
        let row = |n: i64| usize::try_from(n.max(0)).unwrap_or(usize::MAX).min(self.table.rows);
        let (from, to) = match self.table.columns.get(column) {
            Some(ColumnData::RowNumber) if last < 0 => (0, 0),
            Some(ColumnData::RowNumber) => (row(first), row(last.saturating_add(1))),
            Some(ColumnData::Integers { values, .. }) if self.sorted == Some(column) => {
                (values.partition_point(|v| *v < first), values.partition_point(|v| *v <= last))
            }
            Some(ColumnData::Small(values)) if self.sorted == Some(column) => (
                values.partition_point(|v| i64::from(*v) < first),
                values.partition_point(|v| i64::from(*v) <= last),
            ),
            _ => return false,
        };
        let (from, to) = (from.max(span.start), to.min(span.end));
        *span = from..to.max(from);
        true
    }
}

#[cfg(test)]
mod tests {
    use kymo_table::WordList;

    use super::*;

    /// Rows `(ts, cpu, name)`.
    fn table() -> Arc<LoadedTable> {
        let mut ts = ColumnData::integers();
        let mut cpu = ColumnData::Small(Vec::new());
        let mut words = WordList::default();
        let mut codes = Vec::new();
        for row in 0..100u32 {
            ts.push_integer(Some(i64::from(row) * 10));
            cpu.push_small((row % 10 != 9).then_some(row % 4));
            codes.push(words.intern(["a", "b", "c"][row as usize % 3]));
        }
        let names = ColumnData::Texts { codes, words: Arc::new(words) };
        let table = ColumnTable { columns: vec![ts, cpu, names, ColumnData::RowNumber], rows: 100 };
        Arc::new(LoadedTable::new(table, Some(0)))
    }

    fn rows(loaded: &Arc<LoadedTable>, plan: &ScanPlan, bounds: &[Bound]) -> Vec<usize> {
        let plan = ScanPlan::from_text(&plan.to_text());
        let mut scan = Scan::new(loaded.clone(), &plan, bounds);
        let mut rows = Vec::new();
        while !scan.is_over {
            rows.push(scan.row);
            scan.advance();
        }
        rows
    }

    #[test]
    fn conditions_choose_the_rows_that_a_loop_chooses() {
        let loaded = table();
        let plan = |tests: &[(usize, Comparison)]| ScanPlan {
            tests: tests.to_vec(),
            ..ScanPlan::default()
        };
        let all: Vec<usize> = (0..100).collect();
        let of = |keep: &dyn Fn(usize) -> bool| {
            all.iter().copied().filter(|r| keep(*r)).collect::<Vec<_>>()
        };
        use Comparison::{Above, AtLeast, AtMost, Below, Equal};
        // Each twice and more: from the third time on there is an index.
        for _ in 0..3 {
            let found = rows(&loaded, &plan(&[(2, Equal)]), &[Bound::Text("b".into())]);
            assert_eq!(found, of(&|r| r % 3 == 1));
            let found = rows(
                &loaded,
                &plan(&[(1, Equal), (2, Equal)]),
                &[Bound::Integer(1), Bound::Text("b".into())],
            );
            assert_eq!(found, of(&|r| r % 4 == 1 && r % 3 == 1 && r % 10 != 9));
        }
        let found = rows(
            &loaded,
            &plan(&[(0, AtLeast), (0, Below)]),
            &[Bound::Integer(100), Bound::Real(205.5)],
        );
        assert_eq!(found, (10..21).collect::<Vec<_>>());
        assert_eq!(rows(&loaded, &plan(&[(3, Equal)]), &[Bound::Integer(7)]), [7]);
        assert_eq!(rows(&loaded, &plan(&[(3, Above)]), &[Bound::Integer(97)]), [97, 98, 99]);
        assert_eq!(rows(&loaded, &plan(&[(1, AtMost)]), &[Bound::Integer(-1)]), [0usize; 0]);
        assert_eq!(rows(&loaded, &plan(&[(1, Equal)]), &[Bound::Null]), [0usize; 0]);
        assert_eq!(rows(&loaded, &plan(&[(1, Equal)]), &[Bound::Integer(1 << 40)]), [0usize; 0]);
        // What cannot be compared here is left to SQLite.
        assert_eq!(rows(&loaded, &plan(&[(1, Equal)]), &[Bound::Text("1".into())]), all);
        assert_eq!(
            rows(&loaded, &plan(&[(0, AtLeast)]), &[Bound::Real(f64::INFINITY)]),
            [0usize; 0]
        );
    }

    #[test]
    fn rows_of_a_group_come_together() {
        let loaded = table();
        let plan =
            ScanPlan { groups: vec![2, 1], tests: vec![(0, Comparison::AtLeast)], order: None };
        let found = rows(&loaded, &plan, &[Bound::Integer(300)]);
        assert_eq!(found.len(), 70);
        let key = |row: &usize| (loaded.table.value(*row, 2), loaded.table.value(*row, 1));
        let mut seen = Vec::new();
        for row in &found {
            let key = key(row);
            if seen.last() != Some(&key) {
                assert!(!seen.contains(&key), "{key:?} comes twice");
                seen.push(key);
            }
        }
        assert_eq!(seen.len(), 15);
        let by_time = ScanPlan { groups: vec![0], ..ScanPlan::default() };
        assert_eq!(rows(&loaded, &by_time, &[]), (0..100).collect::<Vec<_>>());
    }
}
