//! Choice between kymo's and perf's layout of a table that both print.

use std::io::{self, Write};

use kymo_table::{Table, TextLayout};

/// Layout of a table that perf prints, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableStyle {
    /// Columns separated by blanks, with units in the titles.
    Kymo,
    /// Columns of perf, for scripts that read them.
    Perf,
}

/// Columns of the narrowest screen that has room for all columns of a table in kymo's layout.
pub(crate) const WIDE: usize = 134;

/// Writes titles, a rule and rows without the blanks that fill the last column.
pub(crate) fn write_trimmed(
    out: &mut dyn Write,
    layout: &TextLayout<'_>,
    table: Table<'_>,
) -> io::Result<()> {
    let mut text = Vec::new();
    layout.write_ruled_head(&mut text)?;
    layout.write_rows(&mut text, table)?;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        out.write_all(line.trim_ascii_end())?;
        writeln!(out)?;
    }
    Ok(())
}

/// The start of a text that is longer than a column.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}
