//! Declarations of columns, with the expressions that compute their cells.

use std::borrow::Cow;

use crate::cell::Cell;
use crate::cell_value::CellValue;
use crate::column::{Column, ColumnType, Role, Unit};

type Getter<'a, R, C> = Box<dyn Fn(&R, &C) -> Cell + 'a>;

/// Columns of rows of type `R`; `C` is what computing a cell takes besides the row.
pub struct ColumnSet<'a, R, C = ()> {
    pub(crate) columns: Vec<Column>,
    getters: Vec<Getter<'a, R, C>>,
}

impl<'a, R: 'a, C: 'a> ColumnSet<'a, R, C> {
    /// No columns.
    #[expect(clippy::new_without_default, reason = "nothing is made by default")]
    pub fn new() -> ColumnSet<'a, R, C> {
        // Lines of a stream make theirs anew.
        ColumnSet { columns: Vec::with_capacity(24), getters: Vec::with_capacity(24) }
    }

    fn add(
        mut self,
        (name, role): (&'static str, Role),
        (of, nullable): (ColumnType, bool),
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
            column.of = ColumnType::Word(words);
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
        part: ColumnSet<'a, S, C>,
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
        part: ColumnSet<'a, S, C>,
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
        rows: ColumnSet<'a, S, C>,
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
        rows: ColumnSet<'a, S, C>,
        each: impl Fn(&R, &C, &mut dyn FnMut(&S)) -> bool + 'a,
    ) -> Self {
        let of = ColumnType::Table(rows.columns.clone());
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
        rows: ColumnSet<'a, S, C>,
        each: impl Fn(&R, &C, &mut dyn FnMut(&S)) + 'a,
    ) -> Self {
        let of = ColumnType::Record(rows.columns.clone());
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
        ColumnSet { columns, getters }
    }

    /// Cells of a row.
    pub fn cells(&self, row: &R, context: &C) -> Vec<Cell> {
        self.getters.iter().map(|get| get(row, context)).collect()
    }
}
