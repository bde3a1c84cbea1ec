//! JSON: members of an answer by the names of its columns.

use std::io::{self, Write};

use serde_json::{Map, Value};

use crate::{Answer, Cell, Column, ColumnSet, ColumnType};

impl Answer {
    /// Writes the answer as one object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{:#}", self.to_json())
    }

    /// The answer as a value.
    pub fn to_json(&self) -> Value {
        object(&self.columns, &self.cells)
    }
}

impl Cell {
    /// The cell of a column as a value.
    pub fn to_json(&self, of: &ColumnType) -> Value {
        value(of, self)
    }
}

impl<'a, R: 'a, C: 'a> ColumnSet<'a, R, C> {
    /// Writes a row as an object on a line.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json_line(&self, out: &mut dyn Write, row: &R, context: &C) -> io::Result<()> {
        writeln!(out, "{}", object(&self.columns, &self.cells(row, context)))
    }
}

fn object(columns: &[Column], cells: &[Cell]) -> Value {
    let mut members = Map::new();
    for (column, cell) in columns.iter().zip(cells) {
        if column.is_detail || (column.optional && *cell == Cell::Null) {
            continue;
        }
        insert(&mut members, &column.name, value(&column.of, cell));
    }
    Value::Object(members)
}

/// Inserts a member; `GROUP.NAME` goes into the object of its group.
fn insert(members: &mut Map<String, Value>, name: &str, value: Value) {
    match name.split_once('.') {
        None => _ = members.insert(name.to_owned(), value),
        Some((group, name)) => {
            let of = members.entry(group).or_insert_with(|| Value::Object(Map::new()));
            if let Some(of) = of.as_object_mut() {
                insert(of, name, value);
            }
        }
    }
}

fn value(of: &ColumnType, cell: &Cell) -> Value {
    match (cell, of) {
        (Cell::Null, _) => Value::Null,
        (Cell::Bool(yes), _) => (*yes).into(),
        (Cell::Int(n), _) => (*n).into(),
        (Cell::Unsigned(n), _) => (*n).into(),
        (Cell::Float(n), _) => (*n).into(),
        (Cell::Text(text), _) => String::from_utf8_lossy(text).into(),
        (Cell::List(all), ColumnType::List(of)) => all.iter().map(|cell| value(of, cell)).collect(),
        (Cell::Map(all), ColumnType::Map(of)) => {
            all.iter().map(|(name, cell)| (name.clone(), value(of, cell))).collect()
        }
        (Cell::Rows(rows), ColumnType::Table(columns)) => {
            rows.iter().map(|cells| object(columns, cells)).collect()
        }
        (Cell::Rows(rows), ColumnType::Record(columns)) => {
            rows.first().map_or(Value::Null, |cells| object(columns, cells))
        }
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{Answer, ColumnSet, Name};

    #[test]
    fn groups_are_objects_and_unknown_values_are_null() {
        let times =
            ColumnSet::new()
                .sum("count", "", |n: &u64, ()| *n)
                .measure("max_ns", "", |n, ()| (*n > 0).then_some(*n));
        let row = ColumnSet::new()
            .key("comm", "", |n: &u64, ()| Name(format!("t{n}\u{1b}").into_bytes()))
            .measure("pid", "", |n, ()| (*n > 1).then_some(*n))
            .left_out()
            .group("delay", "", times, |n, ()| n);
        let columns = ColumnSet::new()
            .table("rows", "", row, |all: &Vec<u64>, (), each| all.iter().for_each(each))
            .record("none", "", ColumnSet::<u64>::new(), |_, (), _| {})
            .measure("errors", "", |_, ()| vec![("ENOENT".to_owned(), 3u64)])
            .measure("address", "", |_, ()| u64::MAX);
        let answer = Answer::of("x", columns, &vec![0, 7], &());
        let expected = json!({
            "rows": [
                {"comm": "t0\u{1b}", "delay": {"count": 0, "max_ns": null}},
                {"comm": "t7\u{1b}", "pid": 7, "delay": {"count": 7, "max_ns": 7}},
            ],
            "none": null,
            "errors": {"ENOENT": 3},
            "address": u64::MAX,
        });
        assert_eq!(answer.to_json(), expected);
    }
}
