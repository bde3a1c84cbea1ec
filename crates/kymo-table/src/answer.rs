//! Answers: a record of facts and tables, with its columns.

use crate::units::shown;
use crate::{Cell, Column, Columns, SortKeys, Type};

/// Answer of an analysis: one record, whose members are facts and tables.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Name in the schema: `kwork_report`.
    pub name: &'static str,
    pub(crate) columns: Vec<Column>,
    pub(crate) cells: Vec<Cell>,
}

/// Rows with their columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Table<'a> {
    /// The columns.
    pub columns: &'a [Column],
    /// Cells by row, in the order of the columns.
    pub rows: &'a [Vec<Cell>],
}

/// Row with its columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    pub(crate) columns: &'a [Column],
    pub(crate) cells: &'a [Cell],
}

impl Answer {
    /// Computes the cells.
    pub fn of<'a, R: 'a, C: 'a>(
        name: &'static str,
        columns: Columns<'a, R, C>,
        answer: &R,
        context: &C,
    ) -> Answer {
        let cells = columns.cells(answer, context);
        Answer { name, columns: columns.columns, cells }
    }

    /// Facts of the answer.
    pub fn facts(&self) -> Row<'_> {
        Row { columns: &self.columns, cells: &self.cells }
    }

    /// Drops details, which are shown where they are chosen.
    pub(crate) fn without_details(&self, table: &str) -> Answer {
        let mut answer = self.clone();
        let columns = self.table(table).columns.iter().filter(|c| !c.is_detail);
        let names: Vec<String> = columns.map(|c| c.name.to_string()).collect();
        let _ = answer.choose(table, &names);
        answer
    }

    /// A table by name; empty where the answer has none.
    pub fn table(&self, name: &str) -> Table<'_> {
        self.facts().table(name)
    }

    /// Names of the tables that the answer has.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        let members = self.columns.iter().zip(&self.cells);
        let tables = members
            .filter(|(column, cell)| matches!((&column.of, cell), (Type::Table(_), Cell::Rows(_))));
        tables.map(|(column, _)| column.name.as_ref())
    }

    fn table_mut(&mut self, name: &str) -> Option<(&mut Vec<Column>, &mut Vec<Vec<Cell>>)> {
        let at = self.columns.iter().position(|c| c.name == name)?;
        match (&mut self.columns.get_mut(at)?.of, self.cells.get_mut(at)?) {
            (Type::Table(columns), Cell::Rows(rows)) => Some((columns, rows)),
            _ => None,
        }
    }

    /// Sorts a table, or the tables `WITHIN` of the rows of `TABLE.WITHIN`; rows that the keys do
    /// not distinguish keep their order.
    pub fn sort(&mut self, table: &str, keys: &SortKeys) {
        let (table, within) = table.split_once('.').map_or((table, None), |(t, w)| (t, Some(w)));
        let Some((columns, rows)) = self.table_mut(table) else { return };
        let Some(within) = within else { return keys.sort(rows) };
        let at = columns.iter().position(|column| column.name == within);
        let tables = rows.iter_mut().filter_map(|row| row.get_mut(at?));
        tables.for_each(|cell| {
            if let Cell::Rows(rows) = cell {
                keys.sort(rows);
            }
        });
    }

    /// Keeps the first rows of a table. Returns the number of those that were dropped.
    pub fn limit(&mut self, table: &str, most: usize) -> usize {
        let Some((_, rows)) = self.table_mut(table) else { return 0 };
        let dropped = rows.len().saturating_sub(most);
        rows.truncate(most);
        dropped
    }

    /// Keeps the named columns of a table, in this order; a group is named for its members.
    ///
    /// # Errors
    /// If a column does not exist.
    pub fn choose(&mut self, table: &str, names: &[String]) -> Result<(), String> {
        let Some((columns, rows)) = self.table_mut(table) else { return Ok(()) };
        check_columns(columns, names)?;
        let mut chosen = Vec::new();
        for name in names {
            let named = columns.iter().enumerate().filter(|(_, column)| column.is_named(name));
            chosen.extend(named.map(|(at, _)| at));
        }
        for row in rows.iter_mut() {
            *row = chosen.iter().map(|n| row.get(*n).cloned().unwrap_or_default()).collect();
        }
        let chosen = chosen.iter().filter_map(|n| columns.get(*n).cloned());
        *columns = chosen.map(|c| Column { is_detail: false, ..c }).collect();
        Ok(())
    }
}

/// Checks names of `--columns`.
///
/// # Errors
/// If a column does not exist.
pub fn check_columns(columns: &[Column], names: &[String]) -> Result<(), String> {
    match names.iter().find(|name| !columns.iter().any(|column| column.is_named(name))) {
        None => Ok(()),
        Some(name) => {
            let all: Vec<&str> = columns.iter().map(|c| c.name.as_ref()).collect();
            Err(format!("there is no column {name:?}; there are {}", all.join(", ")))
        }
    }
}

impl<'a> Table<'a> {
    /// The rows.
    pub fn rows(self) -> impl DoubleEndedIterator<Item = Row<'a>> + ExactSizeIterator {
        self.rows.iter().map(move |cells| Row { columns: self.columns, cells })
    }

    /// The first rows.
    #[must_use]
    pub fn first(self, most: usize) -> Table<'a> {
        Table { rows: self.rows.get(..most).unwrap_or(self.rows), ..self }
    }

    /// Whether a row has a number above 0 in this column.
    pub fn any(self, name: &str) -> bool {
        self.rows().any(|row| row.number(name) > 0)
    }

    /// Sum of a column.
    pub fn total(self, name: &str) -> u64 {
        self.rows().fold(0, |sum: u64, row| sum.saturating_add(row.number(name)))
    }
}

impl<'a> Row<'a> {
    /// Cell by the name of its column; null where there is none.
    pub fn cell(self, name: &str) -> &'a Cell {
        let at = self.columns.iter().position(|column| column.name == name);
        debug_assert!(at.is_some(), "no column {name}");
        at.and_then(|at| self.cells.get(at)).unwrap_or(&Cell::Null)
    }

    /// Integer of a cell; 0 where it is not known.
    pub fn number(self, name: &str) -> u64 {
        self.cell(name).number().unwrap_or(0)
    }

    /// Number of a cell; 0 where it is not known.
    pub fn float(self, name: &str) -> f64 {
        self.cell(name).float().unwrap_or(0.0)
    }

    /// Text of a cell, fit for a line.
    pub fn text(self, name: &str) -> String {
        self.cell(name).bytes().map(shown).unwrap_or_default()
    }

    /// Texts of a list, fit for a line.
    pub fn texts(self, name: &str) -> Vec<String> {
        match self.cell(name) {
            Cell::List(all) => all.iter().filter_map(Cell::bytes).map(shown).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether a cell has a value.
    pub fn has(self, name: &str) -> bool {
        *self.cell(name) != Cell::Null
    }

    /// `*` where events were lost in some of what the row counts.
    pub fn mark(self) -> &'static str {
        if self.number("uncertain") > 0 { "*" } else { "" }
    }

    /// Table, or record, of a cell.
    pub fn table(self, name: &str) -> Table<'a> {
        let at = self.columns.iter().position(|column| column.name == name);
        let member = at.and_then(|at| Some((&self.columns.get(at)?.of, self.cells.get(at)?)));
        match member {
            Some((Type::Table(columns) | Type::Record(columns), Cell::Rows(rows))) => {
                Table { columns, rows }
            }
            _ => Table { columns: &[], rows: &[] },
        }
    }
}
