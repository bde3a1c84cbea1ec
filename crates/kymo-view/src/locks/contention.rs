//! `kymo lock contention`: waits for locks of the kernel by caller, lock or task.

use std::collections::BTreeMap;
use std::io::{self, Write};

use kymo_table::{Answer, Table, TableRow, TextColumn, TextLayout};

use super::ScaledTime;
use super::columns::LockField;
use super::pairs::write_pairs;
use crate::Ledger;
use crate::screen_lines::most_of_it;
use crate::units::write_more;

/// The answer as it is shown.
pub struct ContentionView<'a> {
    /// The answer.
    pub answer: &'a Answer,
    /// Columns of numbers.
    pub fields: &'a [LockField],
    /// Rows at most.
    pub most: usize,
    /// Stacks below their rows.
    pub stacks: bool,
    /// Stacks beside those of wakers at most.
    pub pairs: usize,
    /// Separator of CSV.
    pub separator: Option<&'a str>,
    /// The recording as arguments of a command, `-i FILE`; empty: events that cannot be read again.
    pub recording: String,
}

impl ContentionView<'_> {
    /// Writes the answer, the table and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        let (rows, group) = (self.answer.table("locks"), self.answer.facts().text("group"));
        if let Some(separator) = self.separator {
            return self.write_csv(out, separator, &group, ledger);
        }
        write_answer(out, rows, name)?;
        let mut columns: Vec<_> = self.fields.iter().map(|field| field.text()).collect();
        // Two blanks more before the column with the subject of the row.
        let (title, width) = match &*group {
            "caller" => ("type", 10),
            "task" => ("pid", 10),
            _ => ("address", 16),
        };
        columns.push(
            TextColumn::right(title, width, |r| match &*group {
                "caller" => r.text("type"),
                "task" => r.number("tid").to_string(),
                _ => format!("{:0>16}", r.text("address").trim_start_matches("0x")),
            })
            .after("  "),
        );
        let title = match &*group {
            "caller" => "caller",
            "task" => "comm",
            _ => "symbol",
        };
        columns.push(
            TextColumn::left(title, 0, |r| {
                let mark = if r.number("uncertain") > 0 { " *" } else { "" };
                match &*group {
                    "caller" => format!("{}{mark}", r.text("caller")),
                    "task" => format!("{}{mark}", r.text("comm")),
                    _ => format!("{} ({}){mark}", r.text("symbol"), r.text("type")),
                }
            })
            .after("  "),
        );
        let layout = TextLayout { indent: "", gap: " ", end: "", columns };
        if !rows.rows.is_empty() {
            layout.write_head(out)?;
            writeln!(out)?;
        }
        for row in rows.first(self.most).rows() {
            layout.write_row(out, row)?;
            let frames = row.table("stack");
            for frame in frames.rows().filter(|_| self.stacks) {
                let name = match (frame.text("sym"), frame.number("symoff")) {
                    (name, 0) => name,
                    (name, offset) => format!("{name}+{offset:#x}"),
                };
                writeln!(out, "\t\t\t{}  {name}", frame.text("ip"))?;
            }
        }
        write_more(out, rows.rows.len(), self.most)?;
        if rows.any("uncertain") {
            writeln!(out, "\n * events were lost in some of its waits, which are in no time")?;
        }
        write_pairs(out, rows.first(self.most), name, self.pairs)?;
        if group == "caller" && !rows.rows.is_empty() {
            self.write_next(out)?;
        }
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    /// The commands that split the rows of callers further.
    fn write_next(&self, out: &mut dyn Write) -> io::Result<()> {
        let (input, after) = if self.recording.is_empty() {
            (String::new(), " -- COMMAND")
        } else {
            (format!(" {}", self.recording), "")
        };
        writeln!(out, "\n Where to look next")?;
        for (what, flags) in [("by lock:", "-l"), ("by task:", "-t"), ("stacks:", "-v")] {
            writeln!(out, "  {what:<9} kymo lock contention{input} {flags}{after}")?;
        }
        Ok(())
    }

    /// Writes rows as perf's `-x` does; the ledger stands in comments.
    fn write_csv(
        &self,
        out: &mut dyn Write,
        separator: &str,
        group: &str,
        ledger: &Ledger,
    ) -> io::Result<()> {
        let last: &[&str] = match group {
            "caller" => &["type", "caller"],
            "task" => &["pid", "comm"],
            _ => &["address", "symbol", "type"],
        };
        let titles: Vec<&str> =
            self.fields.iter().map(|c| c.title()).chain(last.iter().copied()).collect();
        let between = format!("{separator} ");
        writeln!(out, "# output: {}", titles.join(&between))?;
        for row in self.answer.table("locks").first(self.most).rows() {
            let numbers = self.fields.iter().map(|field| field.value(row).to_string());
            let words = last.iter().map(|title| match *title {
                "pid" => row.number("tid").to_string(),
                "address" => row.text("address").trim_start_matches("0x").to_owned(),
                name => row.csv(name, separator),
            });
            writeln!(out, "{}", numbers.chain(words).collect::<Vec<_>>().join(&between))?;
        }
        if !ledger.is_empty() {
            write!(out, "{}", ledger.to_text("# "))?;
        }
        Ok(())
    }
}

/// Name of a row.
fn name(row: TableRow<'_>) -> String {
    if row.has("caller") {
        return format!("{} ({})", row.text("caller"), row.text("type"));
    }
    if row.has("tid") {
        return format!("{}:{}", row.text("comm"), row.number("tid"));
    }
    let symbol = if row.has("symbol") { row.text("symbol") + ", " } else { String::new() };
    let address = row.text("address");
    format!("the lock {} ({symbol}{})", address.trim_start_matches("0x"), row.text("type"))
}

/// The sentence with the answer; `name` returns the subject of a row.
pub(super) fn write_answer(
    out: &mut dyn Write,
    rows: Table<'_>,
    name: impl Fn(TableRow<'_>) -> String,
) -> io::Result<()> {
    // Several rows may have one name: callers differ by the stacks above them, too.
    let mut named: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows.rows().filter(|row| row.has("max_ns")) {
        let sum = named.entry(name(row)).or_default();
        *sum = sum.saturating_add(row.number("total_ns"));
    }
    let Some((most, most_total)) = named.into_iter().max_by_key(|(_, sum)| *sum) else {
        return writeln!(out, "\n No wait for a lock of the kernel was recorded.\n");
    };
    let count = rows.total("ended");
    let waits = if count == 1 { "wait" } else { "waits" };
    writeln!(
        out,
        "\n {count} {waits} for locks of the kernel took {}; {} {} by {most}.\n",
        ScaledTime(rows.total("total_ns")).to_string().trim_end(),
        most_of_it(most_total, rows.total("total_ns")),
        ScaledTime(most_total).to_string().trim_end(),
    )
}
