//! `kymo kmem pagealloc`: events of the page allocator by process, in the columns of
//! `trace-pagealloc-postprocess.pl`; then what stays, by call chain, order and mobility.

use std::io::{self, Write};

use kymo_model::format_width;
use kymo_table::{Answer, Cell, Table, TableRow, TextColumn, TextLayout};

use super::pages::write_by_order;
use crate::Ledger;
use crate::table_style::{shortened, write_trimmed};
use crate::units::{Grouped, Size, write_more};

/// Counters of the kernel on a screen.
const SCREEN_COUNTERS: usize = 4;
/// Columns of a chain on a screen.
const SCREEN_CHAIN: usize = 58;

/// Events by process as they are shown.
pub struct PageProcessView<'a> {
    /// The answer of `kymo kmem pagealloc`.
    pub answer: &'a Answer,
    /// With the name of the parent.
    pub prepend_parent: bool,
    /// Rows of processes at most.
    pub most: usize,
    /// Call chains at most; 0: none.
    pub most_chains: usize,
    /// A screen has the main columns and no table by order.
    pub is_screen: bool,
    /// The recording as arguments of a command, `-i FILE`; empty: events that cannot be read again.
    pub recording: String,
}

impl PageProcessView<'_> {
    fn name(&self, row: TableRow<'_>) -> String {
        let numbered = |comm: &str, tid: &str| match row.cell(tid).number() {
            Some(tid) => format!("{}-{tid}", row.text(comm)),
            None => row.text(comm),
        };
        let name = numbered("comm", "tid");
        if !self.prepend_parent {
            name
        } else if row.has("parent") {
            format!("{} :: {name}", numbered("parent", "parent_tid"))
        } else {
            format!("? :: {name}")
        }
    }

    /// Writes the answer, the tables and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        self.write_answer(out)?;
        if self.is_screen {
            self.write_main_columns(out)?;
        } else {
            self.write_processes(out)?;
        }
        let mut chains = self.answer.table("chains").rows();
        if self.most_chains > 0 && chains.any(|row| !row.texts("stack").is_empty()) {
            self.write_chains(out)?;
        }
        if !self.is_screen {
            write_by_order(out, self.answer.table("by_order"), true)?;
        }
        if let Cell::Map(vmstat) = self.answer.facts().cell("vmstat") {
            writeln!(out, "\n/proc/vmstat in the same time, system-wide:")?;
            let most = if self.is_screen { SCREEN_COUNTERS } else { usize::MAX };
            for (name, delta) in vmstat.iter().take(most) {
                let delta = if let Cell::Int(delta) = delta { *delta } else { 0 };
                writeln!(out, "{:>14}  {name}", format!("{delta:+}"))?;
            }
            write_more(out, vmstat.len(), most)?;
        }
        if !self.recording.is_empty() {
            let file = &self.recording;
            writeln!(out, "\n Where to look next")?;
            writeln!(out, "  callers:  kymo kmem stat {file} --page --caller --live")?;
            if self.is_screen {
                writeln!(out, "  orders:   kymo kmem stat {file} --page --live")?;
            }
            if !self.prepend_parent {
                writeln!(out, "  parents:  kymo kmem pagealloc {file} --prepend-parent")?;
            }
        }
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    fn write_answer(&self, out: &mut dyn Write) -> io::Result<()> {
        let (facts, rows) = (self.answer.facts(), self.answer.table("processes").rows());
        write!(
            out,
            "\n {} allocations of {} by {} processes; {} is alive at the end.",
            Grouped(facts.number("allocations")),
            Size(facts.number("allocated_bytes")),
            Grouped(rows.len() as u64),
            Size(facts.number("live_bytes"))
        )?;
        let most = rows.rev().max_by_key(|row| row.number("allocated"));
        if let Some(row) = most.filter(|row| row.number("allocated") > 0) {
            write!(
                out,
                "\n Most: {}, {} in {} allocations, of which {} stays.",
                self.name(row),
                Size(row.number("allocated_bytes")),
                Grouped(row.number("allocated")),
                Size(row.number("live_bytes"))
            )?;
        }
        writeln!(out)
    }

    /// Rows with the columns that have room on a screen.
    fn write_main_columns(&self, out: &mut dyn Write) -> io::Result<()> {
        // An unknown number is a dash, not 0.
        let number = |title: &'static str, width, name: &'static str| {
            TextColumn::right(title, width, move |row| {
                row.cell(name).number().map_or("-".to_owned(), |n| n.to_string())
            })
        };
        let kib = |title: &'static str, name: &'static str| {
            TextColumn::right(title, 10, move |row| (row.number(name) / 1024).to_string())
        };
        let layout = TextLayout {
            indent: "  ",
            gap: " ",
            end: "",
            columns: vec![
                TextColumn::left("Process", 30, |row| self.name(row)),
                kib("Alloc KiB", "allocated_bytes"),
                kib("Live KiB", "live_bytes"),
                number("Allocs", 9, "allocated"),
                number("Frees", 9, "freed"),
                number("Batched", 9, "freed_batched"),
                number("Fallbacks", 9, "fallbacks"),
            ],
        };
        let table = self.answer.table("processes");
        writeln!(out)?;
        layout.write_ruled_head(out)?;
        layout.write_rows(out, table.first(self.most))?;
        write_more(out, table.rows().len(), self.most)
    }

    fn write_processes(&self, out: &mut dyn Write) -> io::Result<()> {
        let table = self.answer.table("processes");
        let rows: Vec<(String, TableRow<'_>)> =
            table.first(self.most).rows().map(|row| (self.name(row), row)).collect();
        let longest = rows.iter().map(|(name, _)| name.chars().count()).max();
        let width = format_width(longest.unwrap_or(0).max("Process".len()) + 2);
        writeln!(out)?;
        let mut head = |cells: [&str; 15]| {
            let [name, a, b, c, d, e, f, g, h, i, j, k, l, m, n] = cells;
            writeln!(
                out,
                "{name:<width$} {a:>8} {b:>10}   {c:>8} {d:>8}   {e:>8} {f:>8} {g:>8}   {h:>8} \
                 {i:>8} {j:>8} {k:>8} {l:>8}   {m:>10} {n:>10}"
            )
        };
        head([
            "Process", "Pages", "Pages", "Pages", "Pages", "PCPU", "PCPU", "PCPU", "Fragment",
            "Fragment", "MigType", "Fragment", "Fragment", "KB", "KB",
        ])?;
        head([
            "details", "allocd", "allocd", "freed", "freed", "pages", "drains", "refills",
            "Fallback", "Causing", "Changed", "Severe", "Moderate", "allocd", "alive",
        ])?;
        head([
            "",
            "",
            "under lock",
            "direct",
            "pagevec",
            "drain",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
        ])?;
        let columns = [
            "allocated",
            "allocated_under_lock",
            "freed",
            "freed_batched",
            "pcpu_drained",
            "pcpu_drains",
            "pcpu_refills",
            "fallbacks",
            "fragmenting",
            "migrate_type_changed",
            "fragmenting_severe",
            "fragmenting_moderate",
        ];
        for (name, row) in &rows {
            // Of a number that is not known a dash is better than 0.
            let cell = |column| row.cell(column).number().map_or("-".to_owned(), |n| n.to_string());
            let [a, b, c, d, e, f, g, h, i, j, k, l] = columns.map(cell);
            writeln!(
                out,
                "{name:<width$} {a:>8} {b:>10}   {c:>8} {d:>8}   {e:>8} {f:>8} {g:>8}   {h:>8} {i:>8} \
                 {j:>8} {k:>8} {l:>8}   {:>10} {:>10}",
                row.number("allocated_bytes") / 1024,
                row.number("live_bytes") / 1024,
            )?;
        }
        write_more(out, table.rows().len(), self.most)
    }

    fn write_chains(&self, out: &mut dyn Write) -> io::Result<()> {
        let table = self.answer.table("chains");
        if self.is_screen {
            return self.write_main_chains(out, table);
        }
        writeln!(out, "\nBy call chain, most live bytes first:")?;
        writeln!(out, "{:>10} {:>10} {:>12}   Callers", "KB alive", "KB allocd", "Allocations")?;
        for row in table.first(self.most_chains).rows() {
            writeln!(
                out,
                "{:>10} {:>10} {:>12}   {}",
                row.number("live_bytes") / 1024,
                row.number("allocated_bytes") / 1024,
                row.number("allocations"),
                chain(row),
            )?;
        }
        self.write_more_chains(out)
    }

    fn write_more_chains(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.answer.table("chains").rows().len().saturating_sub(self.most_chains) {
            0 => Ok(()),
            more => writeln!(out, "  ... and {more} more (--limit)"),
        }
    }

    fn write_main_chains(&self, out: &mut dyn Write, table: Table<'_>) -> io::Result<()> {
        let kib = |title: &'static str, name: &'static str| {
            TextColumn::right(title, 10, move |row| (row.number(name) / 1024).to_string())
        };
        let layout = TextLayout {
            indent: "  ",
            gap: " ",
            end: "",
            columns: vec![
                kib("Alloc KiB", "allocated_bytes"),
                kib("Live KiB", "live_bytes"),
                TextColumn::number("Allocs", 9, "allocations"),
                TextColumn::left("  Callers", SCREEN_CHAIN, |row| {
                    format!("  {}", shortened(&chain(row), SCREEN_CHAIN))
                }),
            ],
        };
        writeln!(out, "\n  Call chains, most live memory first")?;
        write_trimmed(out, &layout, table.first(self.most_chains))?;
        self.write_more_chains(out)
    }
}

/// Functions of a chain, the innermost first.
fn chain(row: TableRow<'_>) -> String {
    let frames = row.texts("stack");
    if frames.is_empty() { "[unknown]".to_owned() } else { frames.join(" <- ") }
}
