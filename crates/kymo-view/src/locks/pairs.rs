//! Stacks of who waits for a lock beside those of who ends the wait.

use std::cmp::Reverse;
use std::io::{self, Write};

use kymo_table::{Table, TableRow};

use super::ScaledTime;
use crate::offcpu::{waits, write_beside};

/// Writes the waits with the largest totals; `name` returns the subject of a row.
pub(super) fn write_pairs(
    out: &mut dyn Write,
    rows: Table<'_>,
    name: impl Fn(TableRow<'_>) -> String,
    most: usize,
) -> io::Result<()> {
    let cells = rows.rows().flat_map(|row| row.table("stacks").rows().map(move |c| (row, c)));
    let mut cells: Vec<_> = cells.filter(|(_, c)| !c.texts("stack").is_empty()).collect();
    cells.sort_by_key(|(_, cell)| Reverse(cell.number("total_ns")));
    for (n, (row, cell)) in cells.into_iter().take(most).enumerate() {
        if n == 0 {
            writeln!(out, "\n Waiters and wakers (innermost function first)\n")?;
        }
        writeln!(
            out,
            "  {}: {} in {}, at most {}",
            name(row),
            ScaledTime(cell.number("total_ns")).to_string().trim_end(),
            waits(cell.number("count")),
            ScaledTime(cell.number("max_ns")).to_string().trim_end(),
        )?;
        let (by, waker) = match cell.table("waker").rows().next() {
            Some(waker) => (format!("woken by {}, in", waker.text("comm")), waker.texts("stack")),
            None => ("(unknown waker)".to_owned(), Vec::new()),
        };
        write_beside(out, &cell.texts("stack"), (&by, &waker))?;
        writeln!(out)?;
    }
    Ok(())
}
