//! Rows of a query as arrays of Arrow.

use std::io;
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, Int64Builder, LargeStringBuilder};
use arrow_array::{ArrayRef, NullArray};
use kymo_sqlite::ResultSink;
use kymo_table::{Cell, text_of};

/// Values of a column, of the type of the first that is not null.
enum Values {
    Nulls(usize),
    Integers(Int64Builder),
    Reals(Float64Builder),
    Texts(LargeStringBuilder),
}

/// The rows of the last statement.
#[derive(Default)]
pub(crate) struct Results {
    names: Vec<String>,
    values: Vec<Values>,
    rows: usize,
}

impl Results {
    /// Names and arrays of the columns, and the number of rows.
    pub(crate) fn finish(self) -> (Vec<(String, ArrayRef)>, usize) {
        let arrays = self.values.into_iter().map(|values| -> ArrayRef {
            match values {
                Values::Nulls(rows) => Arc::new(NullArray::new(rows)),
                Values::Integers(mut values) => Arc::new(values.finish()),
                Values::Reals(mut values) => Arc::new(values.finish()),
                Values::Texts(mut values) => Arc::new(values.finish()),
            }
        });
        (self.names.into_iter().zip(arrays).collect(), self.rows)
    }
}

impl Values {
    fn push(&mut self, cell: &Cell) -> Result<(), &'static str> {
        if let Values::Nulls(rows) = self {
            let rows = *rows;
            match cell {
                Cell::Null => {}
                Cell::Int(_) | Cell::Bool(_) => {
                    let mut values = Int64Builder::new();
                    values.append_nulls(rows);
                    *self = Values::Integers(values);
                }
                Cell::Float(_) => {
                    let mut values = Float64Builder::new();
                    values.append_nulls(rows);
                    *self = Values::Reals(values);
                }
                _ => {
                    let mut values = LargeStringBuilder::new();
                    (0..rows).for_each(|_| values.append_null());
                    *self = Values::Texts(values);
                }
            }
        }
        match (self, cell) {
            (Values::Nulls(rows), _) => *rows += 1,
            (Values::Integers(values), Cell::Null) => values.append_null(),
            (Values::Integers(values), Cell::Int(n)) => values.append_value(*n),
            (Values::Integers(values), Cell::Bool(b)) => values.append_value(i64::from(*b)),
            (Values::Reals(values), Cell::Null) => values.append_null(),
            (Values::Reals(values), Cell::Float(n)) => values.append_value(*n),
            // Exact up to 2^53, as in SQL.
            (Values::Reals(values), Cell::Int(n)) => values.append_value(*n as f64),
            (Values::Texts(values), Cell::Null) => values.append_null(),
            (Values::Texts(values), Cell::Text(bytes)) => values.append_value(text_of(bytes)),
            (Values::Integers(_), Cell::Float(_)) => return Err("integers and real numbers"),
            (Values::Integers(_), _) => return Err("integers and text"),
            (Values::Reals(_), _) => return Err("real numbers and text"),
            (Values::Texts(_), _) => return Err("text and numbers"),
        }
        Ok(())
    }
}

impl ResultSink for Results {
    fn begin(&mut self, columns: &[String]) -> io::Result<()> {
        self.names = columns.to_vec();
        self.values = columns.iter().map(|_| Values::Nulls(0)).collect();
        self.rows = 0;
        Ok(())
    }

    fn row(&mut self, cells: Vec<Cell>) -> io::Result<()> {
        for ((name, values), cell) in self.names.iter().zip(&mut self.values).zip(&cells) {
            values.push(cell).map_err(|kinds| {
                let message = format!("column {name} has {kinds}; CAST it to one type");
                io::Error::new(io::ErrorKind::InvalidData, message)
            })?;
        }
        self.rows += 1;
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}
