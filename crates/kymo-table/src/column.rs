//! Declarations of columns, with the expressions that compute their cells.

use std::borrow::Cow;

use crate::{Cell, CellValue};

/// Type of a column's values.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// 64-bit integer.
    Integer,
    /// Real number.
    Number,
    /// Yes or no.
    Boolean,
    /// Text from outside.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Values of one type.
    List(Box<Type>),
    /// Values by name.
    Map(Box<Type>),
    /// Rows.
    Table(Vec<Column>),
    /// At most one row.
    Record(Vec<Column>),
}

/// Unit of a column's values. A column's name ends in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// None: a count, a number of something, a word.
    None,
    /// Duration in nanoseconds.
    Duration,
    /// Point in time, in nanoseconds of the recording's clock.
    Time,
    /// Bytes.
    Bytes,
    /// Percent.
    Percent,
}

impl Unit {
    fn of_name(name: &str) -> Unit {
        const TIMES: [&str; 9] =
            ["start", "end", "first", "last", "time", "from", "to", "raised", "completed"];
        let last = name.rsplit('.').next().unwrap_or(name);
        let is_time = |stem: &str| TIMES.iter().any(|t| stem.rsplit('_').next() == Some(*t));
        match last.strip_suffix("_ns") {
            Some(stem) if is_time(stem) => Unit::Time,
            Some(_) => Unit::Duration,
            None if last == "bytes" || last.ends_with("_bytes") => Unit::Bytes,
            None if last.ends_with("_percent") => Unit::Percent,
            None => Unit::None,
        }
    }
}

/// Part that a column plays in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Identifies the row.
    Key,
    /// Adds up over rows.
    Sum,
    /// Measured, and does not add up: a maximum, a quantile, a time.
    Measure,
    /// Share of a whole.
    Share,
}

/// Column of a table, or member of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Name in JSON, CSV and options; `GROUP.NAME` for a member of a group.
    pub name: Cow<'static, str>,
    /// Type of its values.
    pub of: Type,
    /// Unit, by the name.
    pub unit: Unit,
    /// Part in the table.
    pub role: Role,
    /// Whether values may be null.
    pub nullable: bool,
    /// Whether JSON leaves the member out where it is null.
    pub optional: bool,
    /// Whether only `--columns` shows it.
    pub is_detail: bool,
    /// Documentation.
    pub documentation: &'static str,
    /// Documentation of its group.
    pub group: Option<&'static str>,
}

impl Column {
    /// Whether the column has this name, or is in the group of this name.
    pub fn is_named(&self, name: &str) -> bool {
        match self.name.strip_prefix(name.trim()) {
            Some("") => true,
            Some(rest) => rest.starts_with('.') && !self.is_detail,
            None => false,
        }
    }
}

type Getter<'a, R, C> = Box<dyn Fn(&R, &C) -> Cell + 'a>;

/// Columns of rows of type `R`; `C` is what computing a cell takes besides the row.
pub struct Columns<'a, R, C = ()> {
    pub(crate) columns: Vec<Column>,
    getters: Vec<Getter<'a, R, C>>,
}

impl<R, C> Default for Columns<'_, R, C> {
    fn default() -> Self {
        Columns { columns: Vec::new(), getters: Vec::new() }
    }
}

impl<'a, R: 'a, C: 'a> Columns<'a, R, C> {
    /// No columns.
    pub fn new() -> Columns<'a, R, C> {
        Columns::default()
    }

    fn add(
        mut self,
        (name, role): (&'static str, Role),
        (of, nullable): (Type, bool),
        documentation: &'static str,
        getter: Getter<'a, R, C>,
    ) -> Self {
        let (name, unit) = (Cow::Borrowed(name), Unit::of_name(name));
        self.columns.push(Column {
            name,
            of,
            unit,
            role,
            nullable,
            optional: false,
            is_detail: false,
            documentation,
            group: None,
        });
        self.getters.push(getter);
        self
    }

    fn value<T: CellValue>(
        self,
        name: (&'static str, Role),
        documentation: &'static str,
        get: impl Fn(&R, &C) -> T + 'a,
    ) -> Self {
        let of = (T::column_type(), T::NULLABLE);
        self.add(name, of, documentation, Box::new(move |r, c| get(r, c).into_cell()))
    }

    /// A column that identifies rows.
    pub fn key<T: CellValue>(
        self,
        name: &'static str,
        documentation: &'static str,
        get: impl Fn(&R, &C) -> T + 'a,
    ) -> Self {
        self.value((name, Role::Key), documentation, get)
    }

    /// A column whose values add up.
    pub fn sum<T: CellValue>(
        self,
        name: &'static str,
        documentation: &'static str,
        get: impl Fn(&R, &C) -> T + 'a,
    ) -> Self {
        self.value((name, Role::Sum), documentation, get)
    }

    /// A column whose values do not add up.
    pub fn measure<T: CellValue>(
        self,
        name: &'static str,
        documentation: &'static str,
        get: impl Fn(&R, &C) -> T + 'a,
    ) -> Self {
        self.value((name, Role::Measure), documentation, get)
    }

    /// A column of shares of a whole, in percent.
    pub fn share<T: CellValue>(
        self,
        name: &'static str,
        documentation: &'static str,
        get: impl Fn(&R, &C) -> T + 'a,
    ) -> Self {
        self.value((name, Role::Share), documentation, get)
    }

    /// A column that is shown where it is chosen.
    #[must_use]
    pub fn detail<T: CellValue>(
        self,
        name: &'static str,
        documentation: &'static str,
        get: impl Fn(&R, &C) -> T + 'a,
    ) -> Self {
        let mut columns = self.value((name, Role::Measure), documentation, get);
        columns.columns.iter_mut().rev().take(1).for_each(|column| column.is_detail = true);
        columns
    }

    /// Shows details as other columns are.
    #[must_use]
    pub fn with_details(mut self) -> Self {
        self.columns.iter_mut().for_each(|column| column.is_detail = false);
        self
    }

    /// Restricts the last column to these words.
    #[must_use]
    pub fn of(mut self, words: &'static [&'static str]) -> Self {
        if let Some(column) = self.columns.last_mut() {
            column.of = Type::Word(words);
        }
        self
    }

    /// Leaves the last column out of JSON where it is null.
    #[must_use]
    pub fn left_out(mut self) -> Self {
        if let Some(column) = self.columns.last_mut() {
            column.optional = true;
        }
        self
    }

    /// The columns of a part of the row, named `GROUP.NAME`.
    #[must_use]
    pub fn group<S: 'a>(
        mut self,
        name: &'static str,
        documentation: &'static str,
        part: Columns<'a, S, C>,
        get: impl for<'x> Fn(&'x R, &'x C) -> &'x S + Clone + 'a,
    ) -> Self {
        for (mut column, getter) in part.columns.into_iter().zip(part.getters) {
            column.name = format!("{name}.{}", column.name).into();
            column.group = Some(documentation);
            self.columns.push(column);
            let get = get.clone();
            self.getters.push(Box::new(move |r, c| getter(get(r, c), c)));
        }
        self
    }

    /// The columns of a part of the row, under their own names.
    #[must_use]
    pub fn inline<S: 'a>(
        mut self,
        part: Columns<'a, S, C>,
        get: impl for<'x> Fn(&'x R, &'x C) -> &'x S + Clone + 'a,
    ) -> Self {
        for (column, getter) in part.columns.into_iter().zip(part.getters) {
            self.columns.push(column);
            let get = get.clone();
            self.getters.push(Box::new(move |r, c| getter(get(r, c), c)));
        }
        self
    }

    /// A table within the row. `each` gets its rows one by one; `None` is a table that the answer
    /// lacks.
    #[must_use]
    pub fn table<S: 'a>(
        self,
        name: &'static str,
        documentation: &'static str,
        rows: Columns<'a, S, C>,
        each: impl Fn(&R, &C, &mut dyn FnMut(&S)) + 'a,
    ) -> Self {
        self.optional_table(name, documentation, rows, move |r, c, row| {
            each(r, c, row);
            true
        })
        .always()
    }

    /// A table that may be null: where `each` returns false.
    #[must_use]
    pub fn optional_table<S: 'a>(
        self,
        name: &'static str,
        documentation: &'static str,
        rows: Columns<'a, S, C>,
        each: impl Fn(&R, &C, &mut dyn FnMut(&S)) -> bool + 'a,
    ) -> Self {
        let of = Type::Table(rows.columns.clone());
        let get = move |r: &R, c: &C| {
            let mut cells = Vec::new();
            let known = each(r, c, &mut |row| cells.push(rows.cells(row, c)));
            if known { Cell::Rows(cells) } else { Cell::Null }
        };
        self.add((name, Role::Measure), (of, true), documentation, Box::new(get))
    }

    /// A record within the row, or null: where `each` gets no row.
    #[must_use]
    pub fn record<S: 'a>(
        self,
        name: &'static str,
        documentation: &'static str,
        rows: Columns<'a, S, C>,
        each: impl Fn(&R, &C, &mut dyn FnMut(&S)) + 'a,
    ) -> Self {
        let of = Type::Record(rows.columns.clone());
        let get = move |r: &R, c: &C| {
            let mut cells = Vec::new();
            each(r, c, &mut |row| cells.push(rows.cells(row, c)));
            if cells.is_empty() { Cell::Null } else { Cell::Rows(cells) }
        };
        self.add((name, Role::Measure), (of, true), documentation, Box::new(get))
    }

    fn always(mut self) -> Self {
        if let Some(column) = self.columns.last_mut() {
            column.nullable = false;
        }
        self
    }

    /// Drops columns by name: those that have no value in a total.
    #[must_use]
    pub fn without(mut self, names: &[&str]) -> Self {
        let mut kept = self.columns.iter().map(|c| !names.contains(&c.name.as_ref()));
        let mut kept_getters = self.columns.iter().map(|c| !names.contains(&c.name.as_ref()));
        let mut getters = std::mem::take(&mut self.getters);
        getters.retain(|_| kept_getters.next().unwrap_or(true));
        let columns: Vec<Column> =
            self.columns.iter().filter(|_| kept.next().unwrap_or(true)).cloned().collect();
        Columns { columns, getters }
    }

    /// Cells of a row.
    pub fn cells(&self, row: &R, context: &C) -> Vec<Cell> {
        self.getters.iter().map(|get| get(row, context)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_from_names() {
        let units = ["total_ns", "delay.max_start_ns", "read_bytes", "usage_percent", "count"]
            .map(Unit::of_name);
        let expected = [Unit::Duration, Unit::Time, Unit::Bytes, Unit::Percent, Unit::None];
        assert_eq!(units, expected);
        assert_eq!(Unit::of_name("blocked_ns"), Unit::Duration);
    }
}
