//! Rows of any columns, written as they come: text, CSV, JSON lines.

use std::io::{self, Write};

use serde_json::{Map, Value};

use crate::csv::field;
use crate::plain::words;
use crate::{Cell, ColumnType};

/// Rows by which the widths of columns of text are chosen.
const MEASURED: usize = 1000;

/// Format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// Aligned text.
    Text,
    /// Comma-separated values below a line of names.
    Csv,
    /// Print one JSON object per row, each on one line.
    Json,
}

/// Writes rows of any columns.
pub struct RowWriter<W> {
    out: W,
    format: RowFormat,
    names: Vec<String>,
    /// Rows that wait until the widths of columns are known.
    waiting: Vec<Vec<Cell>>,
    widths: Vec<(usize, bool)>,
    tables: usize,
}

impl<W: Write> RowWriter<W> {
    /// A writer of tables.
    pub fn new(out: W, format: RowFormat) -> RowWriter<W> {
        let (names, waiting, widths) = (Vec::new(), Vec::new(), Vec::new());
        RowWriter { out, format, names, waiting, widths, tables: 0 }
    }

    /// Begins a table.
    ///
    /// # Errors
    /// If writing fails.
    pub fn begin(&mut self, names: &[String]) -> io::Result<()> {
        if self.tables > 0 && self.format != RowFormat::Json {
            writeln!(self.out)?;
        }
        self.tables += 1;
        self.names.clear();
        for name in names {
            // Members of an object have different names.
            let mut unique = name.clone();
            let mut number = 1;
            while self.format == RowFormat::Json && self.names.contains(&unique) {
                unique = format!("{name}:{number}");
                number += 1;
            }
            self.names.push(unique);
        }
        self.widths.clear();
        if self.format == RowFormat::Csv {
            let fields = self.names.iter().map(|n| field(&Cell::Text(n.as_bytes().into()), ","));
            let fields: Vec<String> = fields.collect();
            writeln!(self.out, "{}", fields.join(","))?;
        }
        Ok(())
    }

    /// Writes a row.
    ///
    /// # Errors
    /// If writing fails.
    pub fn row(&mut self, cells: Vec<Cell>) -> io::Result<()> {
        match self.format {
            RowFormat::Json => {
                let members = self.names.iter().zip(&cells);
                let members =
                    members.map(|(name, cell)| (name.clone(), cell.to_json(&ColumnType::Text)));
                writeln!(self.out, "{}", Value::Object(members.collect::<Map<_, _>>()))
            }
            RowFormat::Csv => {
                let fields: Vec<String> = cells.iter().map(|cell| field(cell, ",")).collect();
                writeln!(self.out, "{}", fields.join(","))
            }
            RowFormat::Text if self.widths.is_empty() => {
                self.waiting.push(cells);
                if self.waiting.len() >= MEASURED { self.measure() } else { Ok(()) }
            }
            RowFormat::Text => {
                let texts: Vec<String> = cells.iter().map(text).collect();
                self.line(&texts)
            }
        }
    }

    /// Ends a table.
    ///
    /// # Errors
    /// If writing fails.
    pub fn end(&mut self) -> io::Result<()> {
        if self.format == RowFormat::Text && self.widths.is_empty() {
            self.measure()?;
        }
        Ok(())
    }

    /// The output, with all that was written.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn measure(&mut self) -> io::Result<()> {
        let rows = std::mem::take(&mut self.waiting);
        let is_number = |cell: &Cell| matches!(cell, Cell::Int(_) | Cell::Float(_) | Cell::Null);
        let texts: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(text).collect()).collect();
        let names: Vec<String> =
            self.names.iter().map(|name| text(&Cell::Text(name.as_bytes().into()))).collect();
        self.widths = names
            .iter()
            .enumerate()
            .map(|(at, name)| {
                let widest = texts.iter().filter_map(|row| Some(row.get(at)?.chars().count()));
                let width = widest.max().unwrap_or(0).max(name.chars().count());
                let are_numbers = rows.iter().all(|row| row.get(at).is_some_and(is_number));
                (width, are_numbers && !rows.is_empty())
            })
            .collect();
        self.line(&names)?;
        let rule: Vec<String> = self.widths.iter().map(|(width, _)| "-".repeat(*width)).collect();
        self.line(&rule)?;
        texts.iter().try_for_each(|row| self.line(row))
    }

    fn line(&mut self, texts: &[String]) -> io::Result<()> {
        let mut line = String::new();
        for (text, (width, is_right)) in texts.iter().zip(&self.widths) {
            let width = kymo_model::format_width(*width);
            line +=
                &if *is_right { format!("  {text:>width$}") } else { format!("  {text:<width$}") };
        }
        let line = line.strip_prefix("  ").unwrap_or(&line);
        writeln!(self.out, "{}", line.trim_end())
    }
}

fn text(cell: &Cell) -> String {
    match cell {
        Cell::Null => "NULL".to_owned(),
        _ => words(cell),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: RowFormat) -> String {
        let mut writer = RowWriter::new(Vec::new(), format);
        let names = ["name".to_owned(), "n".to_owned(), "n".to_owned()];
        writer.begin(&names).unwrap();
        let text = |bytes: &[u8]| Cell::Text(bytes.into());
        writer.row(vec![text(b"=1\x1b[2J\0"), Cell::Int(7), Cell::Null]).unwrap();
        writer.row(vec![text(b"a,\xff"), Cell::Int(-100), Cell::Float(1.5)]).unwrap();
        writer.end().unwrap();
        String::from_utf8(writer.finish().unwrap()).unwrap()
    }

    #[test]
    fn hostile_text_is_escaped_in_all_formats() {
        let text = written(RowFormat::Text);
        assert!(!text.contains('\x1b') && !text.contains('\0'), "{text:?}");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("name") && lines[2].ends_with("7  NULL"), "{text}");
        let csv = written(RowFormat::Csv);
        assert!(!csv.contains('\x1b') && csv.contains("\n'=1"), "{csv}");
        assert!(csv.ends_with(",-100,1.5\n"), "{csv}");
        let json = written(RowFormat::Json);
        let rows: Vec<Value> = json.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(rows[0]["name"], "=1\u{1b}[2J\0");
        assert_eq!((&rows[1]["n"], &rows[1]["n:1"]), (&Value::from(-100), &Value::from(1.5)));
        assert!(!json.contains('\x1b'));
    }
}
