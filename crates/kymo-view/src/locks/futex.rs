//! `kymo lock contention --futex`: waits of programs for futexes, with the stacks of who waits and
//! of who wakes.

use std::io::{self, Write};

use kymo_table::{Answer, TableRow, TextColumn, TextLayout};

use super::ScaledTime;
use super::pairs::write_pairs;
use crate::Ledger;
use crate::offcpu::waits;
use crate::screen_lines::most_of_it;
use crate::units::write_more;

/// The answer as it is shown.
pub struct FutexView<'a> {
    /// The answer.
    pub answer: &'a Answer,
    /// Rows at most.
    pub most: usize,
    /// Stacks beside those of wakers at most.
    pub pairs: usize,
}

impl FutexView<'_> {
    /// Writes the answer, the table, the stacks and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        let rows = self.answer.table("futexes");
        match rows.rows().next().filter(|row| row.number("count") > 0) {
            None => writeln!(out, "\n No wait for a futex was recorded.\n")?,
            Some(most) => writeln!(
                out,
                "\n {} for futexes took {}; {} {} for {}.\n",
                waits(rows.total("count")),
                ScaledTime(rows.total("total_ns")).to_string().trim_end(),
                most_of_it(most.number("total_ns"), rows.total("total_ns")),
                ScaledTime(most.number("total_ns")).to_string().trim_end(),
                name(most),
            )?,
        }
        let time = |title, name: &'static str| {
            TextColumn::right(title, 12, move |r| ScaledTime(r.number(name)).to_string())
        };
        let layout = TextLayout {
            indent: "",
            gap: " ",
            end: "",
            columns: vec![
                TextColumn::number("contended", 10, "count"),
                time("total wait", "total_ns"),
                time("max wait", "max_ns"),
                time("avg wait", "average_ns"),
                TextColumn::number("timeouts", 9, "timeouts"),
                TextColumn::right("pid", 10, |r| {
                    if r.has("pid") { r.number("pid").to_string() } else { "-".to_owned() }
                }),
                TextColumn::left("address", 18, address).after("  "),
                TextColumn::left("comm   variable", 0, |r| {
                    let mark = if r.number("uncertain") > 0 { " *" } else { "" };
                    let variable = if r.has("variable") {
                        format!("   {}", r.text("variable"))
                    } else {
                        String::new()
                    };
                    format!("{}{mark}{variable}", r.text("comm"))
                }),
            ],
        };
        layout.write_head(out)?;
        writeln!(out)?;
        layout.write_rows(out, rows.first(self.most))?;
        write_more(out, rows.rows.len(), self.most)?;
        write_pairs(out, rows.first(self.most), name, self.pairs)?;
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }
}

/// Address of the futex; 0 of those that there was no room for.
fn address(row: TableRow<'_>) -> String {
    if row.has("address") { row.text("address") } else { "0x0".to_owned() }
}

/// The variable, or the address, and whose it is.
fn name(row: TableRow<'_>) -> String {
    let of = if row.has("variable") { row.text("variable") } else { address(row) };
    format!("{of} of {}", row.text("comm"))
}
