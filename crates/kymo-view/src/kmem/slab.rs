//! `kymo kmem stat --slab`: objects by caller and by address.

use std::io::{self, Write};

use kymo_table::{Answer, Table, TableRow, TextColumn, TextLayout};

use super::{rule, site_text};
use crate::TableStyle;
use crate::table_style::WIDE;
use crate::units::{Grouped, Size, write_more};

/// The slab allocator as it is shown.
pub struct SlabView<'a> {
    /// The answer of `kymo kmem stat`.
    pub answer: &'a Answer,
    /// A table of callers.
    pub by_caller: bool,
    /// A table of addresses.
    pub by_ptr: bool,
    /// Rows at most.
    pub most: usize,
    /// Layout of the tables.
    pub style: TableStyle,
    /// Columns of the screen, if there is one; it has no room for the summary below a table.
    pub columns: Option<usize>,
    /// Addresses instead of functions.
    pub raw_ip: bool,
    /// ` -i FILE` of the recording; empty for events that cannot be read again.
    pub input: &'a str,
}

impl SlabView<'_> {
    /// Writes the answer, the tables that are asked for, and the summary, if the answer has the
    /// slab allocator.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(facts) = self.answer.table("slab").rows().next() else { return Ok(()) };
        self.write_answer(out, facts)?;
        if self.by_caller {
            self.write_table(out, self.answer.table("slab_callers"), true)?;
        }
        if self.by_ptr {
            self.write_table(out, self.answer.table("slab_addresses"), false)?;
        }
        if self.columns.is_some() && (self.by_caller || self.by_ptr) {
            return Ok(());
        }
        write_summary(out, facts)
    }

    fn write_answer(&self, out: &mut dyn Write, facts: TableRow<'_>) -> io::Result<()> {
        writeln!(
            out,
            "\n Slab: {} allocations took {}; {} in {} objects are alive at the end.",
            Grouped(facts.number("allocations")),
            Size(facts.number("allocated_bytes")),
            Size(facts.number("live_bytes")),
            Grouped(facts.number("live"))
        )?;
        if let Some(row) = facts.table("most_live").rows().next() {
            writeln!(
                out,
                " Most live memory: {} in {} objects of {}.",
                Size(row.number("live_bytes")),
                Grouped(row.number("live")),
                site_text(row, self.raw_ip)
            )?;
        }
        if !self.by_caller && !self.input.is_empty() {
            writeln!(out, " By caller: kymo kmem stat{} --slab --caller -s live", self.input)?;
        }
        Ok(())
    }

    fn write_table(&self, out: &mut dyn Write, rows: Table<'_>, callers: bool) -> io::Result<()> {
        match self.style {
            TableStyle::Kymo => self.write_kymo_table(out, rows, callers)?,
            TableStyle::Perf => self.write_perf_table(out, rows, callers)?,
        }
        if rows.any("live_uncertain") {
            writeln!(out, "  * events were lost: some of them may have been freed")?;
        }
        Ok(())
    }

    fn write_kymo_table(
        &self,
        out: &mut dyn Write,
        rows: Table<'_>,
        callers: bool,
    ) -> io::Result<()> {
        let size = |title: &'static str, name: &'static str| {
            TextColumn::right(title, 10, move |row| Size(row.number(name)).to_string())
        };
        let mut columns = vec![
            TextColumn::left(if callers { "Caller" } else { "Address" }, 34, |row| {
                if callers { site_text(row, self.raw_ip) } else { row.text("ptr") }
            }),
            TextColumn::number("Allocs", 8, "hits"),
            size("Allocated", "allocated_bytes"),
        ];
        if self.columns.is_none_or(|columns| columns >= WIDE) {
            columns.push(size("Requested", "requested_bytes"));
        }
        columns.push(TextColumn::right("Wasted", 8, |row| {
            format!("{:.2}%", row.float("fragmentation_percent"))
        }));
        columns.push(TextColumn::number("Ping-pong", 9, "pingpong"));
        columns.push(TextColumn::right("Live", 10, |row| {
            let mark = if row.number("live_uncertain") > 0 { "*" } else { "" };
            format!("{}{mark}", Size(row.number("live_bytes")))
        }));
        if callers {
            columns.push(TextColumn::number("Objects", 8, "live"));
        }
        let layout = TextLayout { indent: "  ", gap: " ", end: "", columns };
        writeln!(out)?;
        layout.write_ruled_head(out)?;
        layout.write_rows(out, rows.first(self.most))?;
        write_more(out, rows.rows().len(), self.most)
    }

    fn write_perf_table(
        &self,
        out: &mut dyn Write,
        rows: Table<'_>,
        callers: bool,
    ) -> io::Result<()> {
        let rule = rule(124);
        let title = if callers { "Callsite" } else { "Alloc Ptr" };
        writeln!(out, "\n{rule}")?;
        writeln!(
            out,
            " {title:<34} | Total_alloc/Per | Total_req/Per   | Hit      | Ping-pong | Frag    | \
             Live bytes/Number"
        )?;
        writeln!(out, "{rule}")?;
        for row in rows.first(self.most).rows() {
            let name = if callers { site_text(row, self.raw_ip) } else { row.text("ptr") };
            let [allocated, requested, hits, live_bytes] =
                ["allocated_bytes", "requested_bytes", "hits", "live_bytes"].map(|n| row.number(n));
            let live = if callers { row.number("live") } else { u64::from(live_bytes > 0) };
            let per = |bytes: u64| bytes.checked_div(hits).unwrap_or(0);
            writeln!(
                out,
                " {name:<34} | {allocated:>9}/{:<5} | {requested:>9}/{:<5} | {hits:>8} | {:>9} | \
                 {:>6.3}% | {live_bytes:>10}/{live}{}",
                per(allocated),
                per(requested),
                row.number("pingpong"),
                row.float("fragmentation_percent"),
                if row.number("live_uncertain") > 0 { "*" } else { "" },
            )?;
        }
        if rows.rows().len() > self.most {
            writeln!(
                out,
                " {:<34} | ...             | ...             | ...      | ...       | ...     | ...",
                "..."
            )?;
        }
        writeln!(out, "{rule}")
    }
}

fn write_summary(out: &mut dyn Write, facts: TableRow<'_>) -> io::Result<()> {
    let [requested, allocated, freed] =
        ["requested_bytes", "allocated_bytes", "freed_bytes"].map(|name| facts.number(name));
    writeln!(out, "\nSUMMARY (SLAB allocator)\n========================")?;
    writeln!(out, "Total bytes requested: {requested}")?;
    writeln!(out, "Total bytes allocated: {allocated}")?;
    writeln!(out, "Total bytes freed:     {freed}")?;
    let uncertain = facts.number("uncertain_frees");
    if uncertain > 0 {
        let frees = Grouped(uncertain);
        writeln!(out, "  without those of {frees} frees: events were lost before them")?;
    }
    if allocated > freed {
        writeln!(out, "Net total bytes allocated: {}", allocated - freed)?;
    }
    let wasted = allocated.saturating_sub(requested);
    writeln!(out, "Total bytes wasted on internal fragmentation: {wasted}")?;
    let share =
        if allocated == 0 { 0.0 } else { 100.0 - 100.0 * requested as f64 / allocated as f64 };
    writeln!(out, "Internal fragmentation: {share:.6}%")?;
    if facts.has("cross_node") {
        let [cross, all] = ["cross_node", "allocations"].map(|name| facts.number(name));
        writeln!(out, "Cross CPU allocations: {cross}/{all}")
    } else {
        writeln!(out, "Cross CPU allocations: nodes are not in the recording")
    }
}
