//! Text in a layout that is fixed: titles, widths, what stands between columns.

use std::io::{self, Write};

use kymo_model::format_width;

use crate::{Table, TableRow};

/// Columns of text.
pub struct TextLayout<'a> {
    /// Before the first column.
    pub indent: &'a str,
    /// Between columns.
    pub gap: &'a str,
    /// After the last column.
    pub end: &'a str,
    /// The columns.
    pub columns: Vec<TextColumn<'a>>,
}

/// Column of text.
pub struct TextColumn<'a> {
    title: String,
    unit: &'a str,
    before: &'a str,
    width: usize,
    is_right: bool,
    is_title_right: bool,
    cell: Box<dyn Fn(TableRow<'_>) -> String + 'a>,
}

impl<'a> TextColumn<'a> {
    /// Text, flush left.
    pub fn left(
        title: impl Into<String>,
        width: usize,
        cell: impl Fn(TableRow<'_>) -> String + 'a,
    ) -> TextColumn<'a> {
        let (title, cell) = (title.into(), Box::new(cell));
        TextColumn {
            title,
            unit: "",
            before: "",
            width,
            is_right: false,
            is_title_right: false,
            cell,
        }
    }

    /// Numbers, flush right.
    pub fn right(
        title: impl Into<String>,
        width: usize,
        cell: impl Fn(TableRow<'_>) -> String + 'a,
    ) -> TextColumn<'a> {
        TextColumn { is_right: true, is_title_right: true, ..TextColumn::left(title, width, cell) }
    }

    /// Numbers as they are, flush right.
    pub fn number(title: impl Into<String>, width: usize, name: &'a str) -> TextColumn<'a> {
        TextColumn::right(title, width, move |row| row.number(name).to_string())
    }

    /// Sets the text before the column, in place of the usual separator.
    #[must_use]
    pub fn after(mut self, before: &'a str) -> TextColumn<'a> {
        self.before = before;
        self
    }

    /// Sets a unit, shown in a line below the titles.
    #[must_use]
    pub fn with_unit(mut self, unit: &'a str) -> TextColumn<'a> {
        self.unit = unit;
        self
    }

    /// Sets the title flush left, as perf has it.
    #[must_use]
    pub fn titled_left(mut self) -> TextColumn<'a> {
        self.is_title_right = false;
        self
    }
}

fn write_cell(out: &mut dyn Write, text: &str, width: usize, right: bool) -> io::Result<()> {
    let width = format_width(width);
    if right { write!(out, "{text:>width$}") } else { write!(out, "{text:<width$}") }
}

impl TextLayout<'_> {
    fn write_line(
        &self,
        out: &mut dyn Write,
        mut cell: impl FnMut(&mut dyn Write, &TextColumn<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut before = self.indent;
        for column in &self.columns {
            out.write_all(before.as_bytes())?;
            out.write_all(column.before.as_bytes())?;
            cell(out, column)?;
            before = self.gap;
        }
        writeln!(out, "{}", self.end)
    }

    /// Writes the titles.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_head(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_line(out, |out, c| write_cell(out, &c.title, c.width, c.is_title_right))
    }

    /// Writes the units.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_units(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_line(out, |out, c| write_cell(out, c.unit, c.width, c.is_title_right))
    }

    /// Writes a line of rules below the titles; a column without a width has none.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_rules(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_line(out, |out, c| out.write_all("-".repeat(c.width).as_bytes()))
    }

    /// Writes one rule below all titles.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_rule(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |column: &TextColumn<'_>| column.before.len() + column.width;
        let columns: usize = self.columns.iter().map(width).sum();
        let gaps = self.gap.len() * self.columns.len().saturating_sub(1);
        writeln!(out, "{}{}", self.indent, "-".repeat(columns + gaps))
    }

    /// Writes the titles and a rule below them.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_ruled_head(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_head(out)?;
        self.write_rule(out)
    }

    /// Writes a row.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_row(&self, out: &mut dyn Write, row: TableRow<'_>) -> io::Result<()> {
        self.write_line(out, |out, c| write_cell(out, &(c.cell)(row), c.width, c.is_right))
    }

    /// Writes rows.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_rows(&self, out: &mut dyn Write, table: Table<'_>) -> io::Result<()> {
        table.rows().try_for_each(|row| self.write_row(out, row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, ColumnSet};

    #[test]
    fn columns_line_up() {
        let row =
            ColumnSet::new().key("comm", "", |r: &(&str, u64), ()| r.0).sum("n", "", |r, ()| r.1);
        let columns = ColumnSet::new().table("rows", "", row, |r: &[(&str, u64); 2], (), each| {
            r.iter().for_each(each);
        });
        let answer = Answer::of("x", columns, &[("a\nb", 5), ("long name", 123)], &());
        let layout = TextLayout {
            indent: " ",
            gap: " | ",
            end: " |",
            columns: vec![
                TextColumn::left("Name", 6, |r| r.text("comm")),
                TextColumn::number("N", 4, "n"),
            ],
        };
        let mut out = Vec::new();
        layout.write_head(&mut out).unwrap();
        layout.write_rows(&mut out, answer.table("rows")).unwrap();
        let expected = " Name   |    N |\n a?b    |    5 |\n long name |  123 |\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
