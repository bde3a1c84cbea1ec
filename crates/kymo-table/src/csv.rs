//! CSV: a header line, then a line for each row.

use std::io::{self, Write};

use kymo_model::UntrustedText;

use crate::plain::words;
use crate::{Answer, Cell};

impl Answer {
    /// Writes a table. Fields are quoted where they must be, and what a spreadsheet would take for
    /// a formula begins with an apostrophe.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_csv(&self, out: &mut dyn Write, table: &str, separator: &str) -> io::Result<()> {
        let answer = self.without_details(table);
        let table = answer.table(table);
        let names: Vec<&str> = table.columns.iter().map(|c| c.name.as_ref()).collect();
        writeln!(out, "{}", names.join(separator))?;
        for row in table.rows {
            let fields: Vec<String> = row.iter().map(|cell| field(cell, separator)).collect();
            writeln!(out, "{}", fields.join(separator))?;
        }
        Ok(())
    }
}

pub(crate) fn field(cell: &Cell, separator: &str) -> String {
    match cell {
        // Numbers may begin with a minus sign.
        Cell::Int(_) | Cell::Float(_) => words(cell),
        Cell::Text(text) => UntrustedText::new(text).to_csv_field(separator).into_owned(),
        _ => UntrustedText::new(&words(cell)).to_csv_field(separator).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Answer, ColumnSet};

    #[test]
    fn fields_are_no_formulas() {
        let row = ColumnSet::new()
            .key("comm", "", |r: &(&str, i64), ()| r.0)
            .measure("delta", "", |r, ()| r.1)
            .measure("stack", "", |r, ()| vec![r.0, "main"]);
        let columns = ColumnSet::new().table("rows", "", row, |r: &[(&str, i64); 2], (), each| {
            r.iter().for_each(each);
        });
        let answer = Answer::of("x", columns, &[("=1+1", -5), ("a,\"b\"\n", 7)], &());
        let mut out = Vec::new();
        answer.write_csv(&mut out, "rows", ",").unwrap();
        let expected =
            "comm,delta,stack\n'=1+1,-5,'=1+1;main\n\"a,\"\"b\"\"\\n\",7,\"a,\"\"b\"\"?;main\"\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
