//! Text for people of any table: aligned, with units, long names shortened, sums below.

use std::io::{self, Write};

use kymo_model::format_width;

use crate::units::{Grouped, Seconds, Size, Span, TimeUnits, shown};
use crate::{Answer, Cell, Column, ColumnType, Role, Table, Unit};

/// Characters of a cell at most: what is longer is shortened.
const MOST: usize = 48;

/// Characters of the bar of 100 %.
const BAR: f64 = 20.0;

impl Answer {
    /// Writes a table as text, and the number of rows that `--limit` left out.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_plain(&self, out: &mut dyn Write, table: &str, dropped: usize) -> io::Result<()> {
        let answer = self.without_details(table);
        let table = answer.table(table);
        let mut lines: Vec<Vec<String>> = vec![titles(table)];
        lines.extend(table.rows.iter().map(|row| {
            table.columns.iter().zip(row).map(|(column, cell)| text(column, cell)).collect()
        }));
        let has_sums = table.rows.len() > 1 && table.columns.iter().any(is_sum);
        if has_sums {
            lines.push(sums(table));
        }
        let widths: Vec<usize> = (0..table.columns.len())
            .map(|n| {
                lines.iter().filter_map(|l| Some(l.get(n)?.chars().count())).max().unwrap_or(0)
            })
            .collect();
        for (n, line) in lines.iter().enumerate() {
            if has_sums && n + 1 == lines.len() {
                let rule: Vec<String> = widths.iter().map(|w| "-".repeat(*w)).collect();
                writeln!(out, "  {}", rule.join("  "))?;
            }
            let mut text = String::new();
            for ((cell, column), width) in line.iter().zip(table.columns).zip(&widths) {
                let width = format_width(*width);
                text += &if is_right(column) {
                    format!("  {cell:>width$}")
                } else {
                    format!("  {cell:<width$}")
                };
            }
            writeln!(out, "{}", text.trim_end())?;
        }
        if dropped > 0 {
            writeln!(out, "  ... and {dropped} more")?;
        }
        Ok(())
    }
}

fn titles(table: Table<'_>) -> Vec<String> {
    let title = |c: &Column| {
        let name = c.name.replace(['.', '_'], " ");
        let unit = name.strip_suffix(" ns").or_else(|| name.strip_suffix(" percent"));
        unit.map_or(name.clone(), str::to_owned)
    };
    table.columns.iter().map(title).collect()
}

fn sums(table: Table<'_>) -> Vec<String> {
    let sum = |column: &Column| {
        if is_sum(column) {
            text(column, &Cell::Int(table.total(&column.name).min(i64::MAX as u64) as i64))
        } else {
            String::new()
        }
    };
    table.columns.iter().map(sum).collect()
}

fn is_sum(column: &Column) -> bool {
    column.role == Role::Sum && column.of == ColumnType::Integer
}

fn is_right(column: &Column) -> bool {
    matches!(column.of, ColumnType::Integer | ColumnType::Number) && column.role != Role::Share
}

/// Text of a cell.
fn text(column: &Column, cell: &Cell) -> String {
    let number = cell.number().filter(|_| column.role != Role::Key);
    match (column.unit, number) {
        (Unit::Duration, Some(n)) => return Span(n).to_string(),
        (Unit::Time, Some(n)) => return Seconds(n, TimeUnits::default()).to_string(),
        (Unit::Bytes, Some(n)) => return Size(n).to_string(),
        (Unit::None, Some(n)) => return Grouped(n).to_string(),
        _ => {}
    }
    match (cell, column.unit) {
        (Cell::Float(n), Unit::Percent) if column.role == Role::Share => {
            let bar = "|".repeat((n.clamp(0.0, 100.0) / 100.0 * BAR).round() as usize);
            format!("{n:>6.2}% {bar}")
        }
        (Cell::Float(n), Unit::Percent) => format!("{n:.2}%"),
        _ => shortened(&words(cell)),
    }
}

/// Text of a cell without its unit.
pub(crate) fn words(cell: &Cell) -> String {
    let list = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join(";");
    match cell {
        Cell::Null => String::new(),
        Cell::Bool(yes) => yes.to_string(),
        Cell::Int(n) => n.to_string(),
        Cell::Unsigned(n) => n.to_string(),
        Cell::Float(n) => n.to_string(),
        Cell::Text(text) => shown(text),
        Cell::List(all) => list(&mut all.iter().map(words)),
        Cell::Map(all) => {
            list(&mut all.iter().map(|(n, v)| format!("{}={}", shown(n.as_bytes()), words(v))))
        }
        Cell::Rows(rows) => format!("{} rows", rows.len()),
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() > MOST {
        text.chars().take(MOST - 1).chain(['…']).collect()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Answer, ColumnSet};

    #[test]
    fn tables_have_units_and_sums() {
        let row = ColumnSet::new()
            .key("comm", "", |r: &(&str, u64), ()| r.0)
            .key("tid", "", |r, ()| r.1)
            .sum("total_ns", "", |r, ()| r.1 * 1000)
            .share("busy_percent", "", |r, ()| r.1 as f64 / 20.0);
        let columns = ColumnSet::new().table("rows", "", row, |r: &[(&str, u64); 2], (), each| {
            r.iter().for_each(each);
        });
        let answer = Answer::of("x", columns, &[("make", 1500), ("\x1b[2J", 500)], &());
        let mut out = Vec::new();
        answer.write_plain(&mut out, "rows", 3).unwrap();
        let expected = "  comm   tid     total  busy
  make  1500    1.5 ms   75.00% |||||||||||||||
  ?[2J   500  500.0 us   25.00% |||||
  ----  ----  --------  -----------------------
                2.0 ms
  ... and 3 more
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
