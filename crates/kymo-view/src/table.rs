//! Columns of text as perf lays them out: a header line behind `#`, a line of
//! dots, rows indented by two.

use std::io::{self, Write};

use kymo_model::format_width;

use crate::units::visible;

/// A column.
#[derive(Clone, Debug)]
pub struct PerfColumn {
    /// Heading.
    pub title: String,
    /// Numbers stand to the right.
    pub right: bool,
    /// The last column of perf's symbols is not filled up with blanks.
    pub ragged: bool,
}

/// Rows of cells under columns.
#[derive(Clone, Debug, Default)]
pub struct PerfTable {
    /// The columns.
    pub columns: Vec<PerfColumn>,
    /// Widths; at least those of the titles once [`fit`](PerfTable::fit) was called.
    pub widths: Vec<usize>,
}

impl PerfTable {
    /// A table with columns as wide as their titles.
    pub fn new(columns: Vec<PerfColumn>) -> PerfTable {
        let widths = columns.iter().map(|c| c.title.chars().count()).collect();
        PerfTable { columns, widths }
    }

    /// Makes the columns wide enough for a row with these numbers of characters.
    pub fn fit(&mut self, cells: impl IntoIterator<Item = usize>) {
        for (width, cell) in self.widths.iter_mut().zip(cells) {
            *width = (*width).max(cell);
        }
    }

    /// Writes the heading; with a separator there are no dots.
    pub fn write_head(&self, out: &mut dyn Write, separator: Option<&str>) -> io::Result<()> {
        write!(out, "# ")?;
        for (i, (column, width)) in self.columns.iter().zip(&self.widths).enumerate() {
            let gap = if i == 0 { "" } else { separator.unwrap_or("  ") };
            let width = format_width(*width);
            if column.right {
                write!(out, "{gap}{:>width$}", column.title)?
            } else {
                write!(out, "{gap}{:<width$}", column.title)?
            }
        }
        writeln!(out)?;
        if separator.is_some() {
            return Ok(());
        }
        let dots: Vec<String> = self.widths.iter().map(|w| ".".repeat(*w)).collect();
        writeln!(out, "# {}\n#", dots.join("  "))
    }

    /// Writes a row. `paint` may wrap a cell in colour.
    pub fn write_row(
        &self,
        out: &mut dyn Write,
        cells: &[String],
        separator: Option<&str>,
        paint: &dyn Fn(usize, &str) -> Option<anstyle::Style>,
    ) -> io::Result<()> {
        if separator.is_none() {
            write!(out, "  ")?;
        }
        for (i, cell) in cells.iter().enumerate() {
            let cell = &*visible(cell);
            let width = self.widths.get(i).copied().unwrap_or(0);
            let column = self.columns.get(i);
            let gap = if i == 0 { "" } else { separator.unwrap_or("  ") };
            let right = column.is_some_and(|c| c.right);
            let ragged = column.is_some_and(|c| c.ragged) && i + 1 == cells.len();
            let style = paint(i, cell);
            out.write_all(gap.as_bytes())?;
            if let Some(style) = style {
                write!(out, "{style}")?;
            }
            let missing = if ragged { 0 } else { width.saturating_sub(cell.chars().count()) };
            if right {
                blanks(out, missing)?;
            }
            out.write_all(cell.as_bytes())?;
            if !right {
                blanks(out, missing)?;
            }
            if let Some(style) = style {
                write!(out, "{style:#}")?;
            }
        }
        writeln!(out)
    }
}

fn blanks(out: &mut dyn Write, mut count: usize) -> io::Result<()> {
    const BLANKS: &[u8] = &[b' '; 64];
    while count > 0 {
        let some = BLANKS.get(..count).unwrap_or(BLANKS);
        out.write_all(some)?;
        count -= some.len();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let column = |title: &str, right| PerfColumn { title: title.into(), right, ragged: !right };
        let mut table = PerfTable::new(vec![column("Overhead", true), column("Symbol", false)]);
        let cells = ["82.25%".to_string(), "[.] leaf".to_string()];
        table.fit(cells.iter().map(|c| c.chars().count()));
        let mut out = Vec::new();
        table.write_head(&mut out, None).unwrap();
        table.write_row(&mut out, &cells, None, &|_, _| None).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "# Overhead  Symbol  \n# ........  ........\n#\n    82.25%  [.] leaf\n");
    }
}
