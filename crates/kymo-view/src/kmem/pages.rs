//! `kymo kmem stat --page`: pages by caller and one by one, by order and mobility.

use std::collections::BTreeMap;
use std::io::{self, Write};

use kymo_analysis::kmem::MIGRATE_TYPES;
use kymo_table::{Answer, Table, TableRow, TextColumn, TextLayout};

use super::{rule, site_text};
use crate::TableStyle;
use crate::table_style::{WIDE, shortened, write_trimmed};
use crate::units::{Grouped, Size, write_more};

/// The page allocator as it is shown.
pub struct PageView<'a> {
    /// The answer of `kymo kmem stat`.
    pub answer: &'a Answer,
    /// A table of callers.
    pub by_caller: bool,
    /// A table of pages.
    pub by_page: bool,
    /// Only what is alive at the end.
    pub live_only: bool,
    /// Rows at most.
    pub most: usize,
    /// Layout of the tables of callers and pages.
    pub style: TableStyle,
    /// Columns of the screen, if there is one; it has no room for the summary below a table, and
    /// for the table by order below the slab allocator.
    pub columns: Option<usize>,
    /// Addresses instead of functions.
    pub raw_ip: bool,
    /// ` -i FILE` of the recording; empty for events that cannot be read again.
    pub input: &'a str,
}

/// Flags of a request in short: `HIGHUSER_MOVABLE|ZERO`.
fn short_flags(text: &str) -> String {
    let short = |name: &str| name.trim_start_matches("__").trim_start_matches("GFP_").to_owned();
    text.split('|').map(short).collect::<Vec<_>>().join("|")
}

impl PageView<'_> {
    /// Writes the answer, the tables that are asked for, and the summary, if the answer has the
    /// page allocator.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(facts) = self.answer.table("pages").rows().next() else { return Ok(()) };
        self.write_answer(out, facts)?;
        if self.by_caller {
            self.write_table(out, self.answer.table("page_callers"), false)?;
        }
        if self.by_page {
            self.write_table(out, self.answer.table("page_addresses"), true)?;
        }
        let is_screen = self.columns.is_some();
        if is_screen && (self.by_caller || self.by_page) {
            return Ok(());
        }
        write_summary(out, facts)?;
        if is_screen && self.answer.table("slab").rows().len() > 0 {
            return Ok(());
        }
        write_by_order(out, self.answer.table("by_order"), self.live_only)
    }

    fn write_answer(&self, out: &mut dyn Write, facts: TableRow<'_>) -> io::Result<()> {
        writeln!(
            out,
            "\n Pages: {} allocations of {}; {} of it is alive at the end.",
            Grouped(facts.number("requests.count")),
            Size(facts.number("requests.bytes")),
            Size(facts.number("live_bytes"))
        )?;
        if let Some(row) = facts.table("most_live").rows().next() {
            writeln!(
                out,
                " Most live memory: {} of order {}, {}, called from {}.",
                Size(row.number("live_bytes")),
                row.number("order"),
                row.text("migrate_type"),
                site_text(row, self.raw_ip)
            )?;
        }
        if self.input.is_empty() {
            return Ok(());
        }
        if !self.by_caller {
            writeln!(out, " By caller: kymo kmem stat{} --page --caller --live", self.input)?;
        }
        writeln!(out, " By process and call chain: kymo kmem pagealloc{}", self.input)
    }

    fn write_table(&self, out: &mut dyn Write, rows: Table<'_>, by_page: bool) -> io::Result<()> {
        match self.style {
            TableStyle::Kymo => self.write_kymo_table(out, rows, by_page),
            TableStyle::Perf => self.write_perf_table(out, rows, by_page),
        }
    }

    fn write_kymo_table(
        &self,
        out: &mut dyn Write,
        rows: Table<'_>,
        by_page: bool,
    ) -> io::Result<()> {
        let is_narrow = self.columns.is_some_and(|columns| columns < WIDE);
        let (size_title, bytes, hits_title, hits) = if self.live_only {
            ("Live", "live_bytes", "Kept", "kept")
        } else {
            ("Allocated", "allocated_bytes", "Allocs", "hits")
        };
        let mut columns = Vec::new();
        if by_page {
            let has_pfns = rows.rows().next().is_none_or(|row| row.has("pfn"));
            columns.push(if has_pfns {
                TextColumn::number("PFN", 16, "pfn")
            } else {
                TextColumn::right("Page", 16, |row| format!("{:016x}", row.number("page")))
            });
        }
        columns.extend([
            TextColumn::right(size_title, 10, move |row| Size(row.number(bytes)).to_string()),
            TextColumn::number(hits_title, 8, hits),
            TextColumn::number("Order", 5, "order"),
            TextColumn::left("Mobility", 11, |row| row.text("migrate_type")),
            TextColumn::left("Caller", 32, |row| site_text(row, self.raw_ip)),
        ]);
        // A narrow screen has no room for the flags beside a page.
        if !is_narrow || !by_page {
            let width = if is_narrow { 24 } else { 60 };
            columns.push(TextColumn::left("GFP flags", width, move |row| {
                shortened(&short_flags(&row.text("gfp_flags")), width)
            }));
        }
        let layout = TextLayout { indent: "  ", gap: " ", end: "", columns };
        writeln!(out)?;
        write_trimmed(out, &layout, rows.first(self.most))?;
        write_more(out, rows.rows().len(), self.most)
    }

    fn write_perf_table(
        &self,
        out: &mut dyn Write,
        rows: Table<'_>,
        by_page: bool,
    ) -> io::Result<()> {
        let shown: Vec<(TableRow<'_>, String)> = rows
            .first(self.most)
            .rows()
            .map(|row| (row, short_flags(&row.text("gfp_flags"))))
            .collect();
        let longest = shown.iter().map(|(_, flags)| flags.len()).max().unwrap_or(0);
        let flags_width = longest.clamp("GFP flags".len(), 60);
        let rule = rule(105);
        let (what, bytes, hits) = if self.live_only {
            ("Live", "live_bytes", "kept")
        } else {
            ("Total", "allocated_bytes", "hits")
        };
        let has_pfns = by_page && shown.first().is_none_or(|(row, _)| row.has("pfn"));
        let kind = if has_pfns { "PFN" } else { "Page" };
        let page_title = if by_page { format!(" {kind:<16} |") } else { String::new() };
        writeln!(out, "\n{rule}")?;
        writeln!(
            out,
            "{page_title} {what:>5} alloc (KB) | Hits      | Order | Mig.type    | {:<flags_width$} | \
             Callsite",
            "GFP flags"
        )?;
        writeln!(out, "{rule}")?;
        for (row, flags) in &shown {
            let page = match (by_page, has_pfns) {
                (false, _) => String::new(),
                (true, true) => format!(" {:>16} |", row.number("pfn")),
                (true, false) => format!(" {:016x} |", row.number("page")),
            };
            writeln!(
                out,
                "{page} {:>16} | {:>9} | {:>5} | {:<11} | {flags:<flags_width$} | {}",
                row.number(bytes) / 1024,
                row.number(hits),
                row.number("order"),
                row.text("migrate_type"),
                site_text(*row, self.raw_ip),
            )?;
        }
        if rows.rows().len() > self.most {
            let page = if by_page { format!(" {:<16} |", "...") } else { String::new() };
            writeln!(
                out,
                "{page} {:<16} | {:<9} | {:<5} | {:<11} | {:<flags_width$} | ...",
                "...", "...", "...", "...", "..."
            )?;
        }
        writeln!(out, "{rule}")
    }
}

fn write_summary(out: &mut dyn Write, facts: TableRow<'_>) -> io::Result<()> {
    let sum = |name: &str| {
        [facts.number(&format!("{name}.count")), facts.number(&format!("{name}.bytes"))]
    };
    let [requests, matched, parts, unmatched] =
        [sum("requests"), sum("matched_frees"), sum("partial_frees"), sum("unmatched_frees")];
    let alloc_only = [0, 1].map(|n| requests[n].saturating_sub(matched[n]));
    // For perf a part of a block is a free without an allocation.
    let free_only = [0, 1].map(|n| unmatched[n].saturating_add(parts[n]));
    let uncertain = sum("uncertain_frees");
    let lines = [
        ("Total allocation requests", Some(requests)),
        ("Total free requests", Some(sum("frees"))),
        ("", None),
        ("Total alloc+freed requests", Some(matched)),
        ("Total alloc-only requests", Some(alloc_only)),
        ("Total free-only requests", Some(free_only)),
        ("  of these, parts of blocks", Some(parts)),
        ("Total frees after a loss", Some(uncertain).filter(|sum| sum[0] > 0)),
        ("", None),
        ("Total allocation failures", Some(sum("failed"))),
    ];
    writeln!(out, "\nSUMMARY (page allocator)\n========================")?;
    for (name, sum) in lines {
        match sum {
            Some([count, bytes]) => {
                writeln!(out, "{name:<30}: {count:>16}   [ {:>16} KB ]", bytes / 1024)?;
            }
            None if name.is_empty() => writeln!(out)?,
            None => {}
        }
    }
    Ok(())
}

/// Writes the table by order and mobility.
pub(super) fn write_by_order(
    out: &mut dyn Write,
    table: Table<'_>,
    live_only: bool,
) -> io::Result<()> {
    let mut numbers: BTreeMap<(u64, String), u64> = BTreeMap::new();
    for row in table.rows() {
        let number =
            if live_only { row.number("live_bytes") / 1024 } else { row.number("allocations") };
        numbers.insert((row.number("order"), row.text("migrate_type")), number);
    }
    // Three that there always are.
    let used = |name: &str| numbers.keys().any(|(_, mobility)| mobility == name);
    let shown: Vec<&str> = MIGRATE_TYPES
        .into_iter()
        .chain(["unknown"])
        .enumerate()
        .filter(|(n, name)| *n < 3 || used(name))
        .map(|(_, name)| name)
        .collect();
    let largest = numbers.keys().map(|(order, _)| *order).max().unwrap_or(0).max(10);
    writeln!(out, "\n{}", if live_only { "Live KB by order:" } else { "Allocations by order:" })?;
    write!(out, "{:>5}", "Order")?;
    shown.iter().try_for_each(|name| write!(out, "  {name:>12}"))?;
    write!(out, "\n-----")?;
    shown.iter().try_for_each(|_| write!(out, "  {}", rule(12)))?;
    writeln!(out)?;
    for order in 0..=largest {
        write!(out, "{order:>5}")?;
        for name in &shown {
            match numbers.get(&(order, (*name).to_owned())).copied().unwrap_or(0) {
                0 => write!(out, "  {:>12}", ".")?,
                number => write!(out, "  {number:>12}")?,
            }
        }
        writeln!(out)?;
    }
    Ok(())
}
