//! `kymo kmem stat --page`: pages by caller and one by one, by order and mobility.

use std::cmp::Ordering;
use std::io::{self, Write};

use kymo_analysis::kmem::{
    KmemRead, MIGRATE_TYPES, PageAllocRow, PageCallerRow, PageSum, PageTable,
};
use serde_json::{Value, json};

use super::{KmemKey, rule, site_text};
use crate::units::{Grouped, Size};

/// The page allocator as it is shown.
pub struct PageView<'a> {
    /// What was counted.
    pub read: &'a KmemRead,
    /// A row for each caller.
    pub by_caller: bool,
    /// A row for each page.
    pub by_page: bool,
    /// What rows are sorted by.
    pub sort: Vec<KmemKey>,
    /// Only what is alive at the end.
    pub live_only: bool,
    /// Rows at most.
    pub lines: Option<usize>,
    /// Addresses instead of functions.
    pub raw_ip: bool,
    /// ` -i FILE` of the recording; empty for events that nobody can read again.
    pub input: String,
}

/// Name of a mobility.
pub(super) fn migrate_type(number: u8) -> &'static str {
    MIGRATE_TYPES.get(usize::from(number)).copied().unwrap_or("unknown")
}

/// What rows of both tables have.
#[derive(Clone, Copy)]
struct PageRow {
    page: u64,
    caller: PageCallerRow,
    allocs: PageSum,
    live_bytes: u64,
    live_uncertain: u64,
}

impl PageView<'_> {
    fn table(&self) -> &PageTable {
        &self.read.pages
    }

    fn bytes(&self, row: &PageRow) -> u64 {
        if self.live_only { row.live_bytes } else { row.allocs.bytes }
    }

    fn hits(&self, row: &PageRow) -> u64 {
        if self.live_only { row.caller.kept.count } else { row.allocs.count }
    }

    fn compare(&self, a: &PageRow, b: &PageRow) -> Ordering {
        let address = |row: &PageRow| self.read.sites.get(row.caller.site).map_or(0, |s| s.address);
        let by_key = |key: &KmemKey| match key {
            KmemKey::Page => b.page.cmp(&a.page),
            KmemKey::Callsite => address(b).cmp(&address(a)),
            KmemKey::Hit => self.hits(b).cmp(&self.hits(a)),
            KmemKey::Bytes => self.bytes(b).cmp(&self.bytes(a)),
            KmemKey::Live => b.live_bytes.cmp(&a.live_bytes),
            KmemKey::Order => b.caller.order.cmp(&a.caller.order),
            KmemKey::Migtype => b.caller.migrate_type.cmp(&a.caller.migrate_type),
            KmemKey::Gfp => b.caller.gfp.cmp(&a.caller.gfp),
            KmemKey::Ptr | KmemKey::Frag | KmemKey::Pingpong => Ordering::Equal,
        };
        let keys = self.sort.iter().map(by_key).find(|o| o.is_ne());
        let last = |r: &PageRow| (r.page, address(r), r.caller.order, r.caller.gfp);
        keys.unwrap_or_else(|| last(a).cmp(&last(b)))
    }

    fn sorted(&self, mut rows: Vec<PageRow>) -> Vec<PageRow> {
        rows.retain(|row| !self.live_only || row.live_bytes > 0);
        rows.sort_by(|a, b| self.compare(a, b));
        rows
    }

    fn callers(&self) -> Vec<PageRow> {
        let row = |caller: &PageCallerRow| PageRow {
            page: 0,
            caller: *caller,
            allocs: caller.allocs,
            live_bytes: caller.live_bytes,
            live_uncertain: caller.live_uncertain,
        };
        self.sorted(self.table().callers().map(row).collect())
    }

    fn pages(&self) -> Vec<PageRow> {
        let row = |(row, caller): (&PageAllocRow, &PageCallerRow)| {
            let bytes = self.table().page_size << caller.order;
            let live_bytes = if row.is_live { bytes } else { 0 };
            let kept = PageSum { count: u64::from(row.is_live), bytes: live_bytes };
            let caller = PageCallerRow { kept, ..*caller };
            let live_uncertain = if row.is_uncertain { live_bytes } else { 0 };
            PageRow { page: row.page, caller, allocs: row.allocs, live_bytes, live_uncertain }
        };
        self.sorted(self.table().pages().map(row).collect())
    }

    /// Flags of a request in short: `HIGHUSER_MOVABLE|ZERO`.
    fn flags(&self, gfp: u64) -> String {
        let text = self.read.gfp_names.text(gfp);
        let short =
            |name: &str| name.trim_start_matches("__").trim_start_matches("GFP_").to_owned();
        text.split('|').map(short).collect::<Vec<_>>().join("|")
    }

    /// Writes the answer, the tables that are asked for, and the summary.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_answer(out)?;
        if self.by_caller {
            self.write_table(out, &self.callers(), false)?;
        }
        if self.by_page {
            self.write_table(out, &self.pages(), true)?;
        }
        self.write_summary(out)?;
        self.write_by_order(out)
    }

    fn write_answer(&self, out: &mut dyn Write) -> io::Result<()> {
        let t = self.table();
        writeln!(
            out,
            "\n Pages: {} allocations of {}; {} of it is alive at the end.",
            Grouped(t.requests.count),
            Size(t.requests.bytes),
            Size(t.live_bytes)
        )?;
        let most = t.callers().max_by_key(|row| row.live_bytes);
        if let Some(row) = most.filter(|row| row.live_bytes > 0) {
            writeln!(
                out,
                " Most of what stays: {} of order {}, {}, called from {}.",
                Size(row.live_bytes),
                row.order,
                migrate_type(row.migrate_type),
                site_text(&self.read.sites, row.site, self.raw_ip)
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

    fn write_table(&self, out: &mut dyn Write, rows: &[PageRow], by_page: bool) -> io::Result<()> {
        let most = self.lines.unwrap_or(usize::MAX);
        let shown: Vec<(&PageRow, String)> =
            rows.iter().take(most).map(|row| (row, self.flags(row.caller.gfp))).collect();
        let longest = shown.iter().map(|(_, flags)| flags.len()).max().unwrap_or(0);
        let flags_width = longest.clamp("GFP flags".len(), 60);
        let rule = rule(105);
        let what = if self.live_only { "Live" } else { "Total" };
        let kind = if self.read.has_pfns { "PFN" } else { "Page" };
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
            let page = match (by_page, self.read.has_pfns) {
                (false, _) => String::new(),
                (true, true) => format!(" {:>16} |", row.page),
                (true, false) => format!(" {:016x} |", row.page),
            };
            writeln!(
                out,
                "{page} {:>16} | {:>9} | {:>5} | {:<11} | {flags:<flags_width$} | {}",
                self.bytes(row) / 1024,
                self.hits(row),
                row.caller.order,
                migrate_type(row.caller.migrate_type),
                site_text(&self.read.sites, row.caller.site, self.raw_ip),
            )?;
        }
        if rows.len() > most {
            let page = if by_page { format!(" {:<16} |", "...") } else { String::new() };
            writeln!(
                out,
                "{page} {:<16} | {:<9} | {:<5} | {:<11} | {:<flags_width$} | ...",
                "...", "...", "...", "...", "..."
            )?;
        }
        writeln!(out, "{rule}")
    }

    fn write_summary(&self, out: &mut dyn Write) -> io::Result<()> {
        let t = self.table();
        writeln!(out, "\nSUMMARY (page allocator)\n========================")?;
        let mut line = |name: &str, sum: PageSum| {
            writeln!(out, "{name:<30}: {:>16}   [ {:>16} KB ]", sum.count, sum.bytes / 1024)
        };
        // For perf a part of a block is a free without an allocation.
        let mut free_only = t.unmatched;
        free_only.count += t.parts.count;
        free_only.bytes += t.parts.bytes;
        line("Total allocation requests", t.requests)?;
        line("Total free requests", t.frees)?;
        writeln!(out)?;
        let mut line = |name: &str, sum: PageSum| {
            writeln!(out, "{name:<30}: {:>16}   [ {:>16} KB ]", sum.count, sum.bytes / 1024)
        };
        line("Total alloc+freed requests", t.matched)?;
        line("Total alloc-only requests", t.requests.without(t.matched))?;
        line("Total free-only requests", free_only)?;
        line("  of these, parts of blocks", t.parts)?;
        if t.uncertain.count > 0 {
            line("Total frees after a loss", t.uncertain)?;
        }
        writeln!(out)?;
        let sum = t.failed;
        let name = "Total allocation failures";
        writeln!(out, "{name:<30}: {:>16}   [ {:>16} KB ]", sum.count, sum.bytes / 1024)
    }

    /// Writes the table by order and mobility.
    pub(super) fn write_by_order(&self, out: &mut dyn Write) -> io::Result<()> {
        let t = self.table();
        let columns = MIGRATE_TYPES.len() + 1;
        let title = |n: usize| MIGRATE_TYPES.get(n).copied().unwrap_or("unknown");
        let used = |n: &usize| t.order_range().any(|order| t.of_order(order, *n).count > 0);
        // Three that there always are.
        let shown: Vec<usize> = (0..columns).filter(|n| *n < 3 || used(n)).collect();
        let what = if self.live_only { "Live KB by order:" } else { "Allocations by order:" };
        writeln!(out, "\n{what}")?;
        write!(out, "{:>5}", "Order")?;
        shown.iter().try_for_each(|n| write!(out, "  {:>12}", title(*n)))?;
        write!(out, "\n-----")?;
        shown.iter().try_for_each(|_| write!(out, "  {}", rule(12)))?;
        writeln!(out)?;
        for order in t.order_range() {
            write!(out, "{order:>5}")?;
            for n in &shown {
                let number = match self.live_only {
                    true => t.live_of_order(order, *n) / 1024,
                    false => t.of_order(order, *n).count,
                };
                match number {
                    0 => write!(out, "  {:>12}", ".")?,
                    number => write!(out, "  {number:>12}")?,
                }
            }
            writeln!(out)?;
        }
        Ok(())
    }

    /// Numbers by order and mobility.
    pub(super) fn order_rows(&self) -> Vec<Value> {
        let t = self.table();
        let mut rows = Vec::new();
        for order in t.order_range() {
            for n in 0..=MIGRATE_TYPES.len() {
                let (sum, live) = (t.of_order(order, n), t.live_of_order(order, n));
                if sum.count > 0 {
                    rows.push(json!({
                        "order": order,
                        "migrate_type": MIGRATE_TYPES.get(n).copied().unwrap_or("unknown"),
                        "allocations": sum.count,
                        "allocated_bytes": sum.bytes,
                        "live_bytes": live,
                        "live_uncertain_bytes": t.uncertain_of_order(order, n),
                    }));
                }
            }
        }
        rows
    }

    fn row_json(&self, row: &PageRow, by_page: bool) -> Value {
        let site = self.read.sites.get(row.caller.site).filter(|s| s.address > 0);
        let symbol = site.and_then(|s| s.symbol.as_ref());
        let mut value = json!({
            "callsite": site.map(|s| format!("{:#x}", s.address)),
            "function": symbol.map(|(name, _)| name),
            "offset": symbol.map(|(_, offset)| offset),
            "order": row.caller.order,
            "migrate_type": migrate_type(row.caller.migrate_type),
            "gfp": row.caller.gfp,
            "gfp_flags": self.read.gfp_names.text(row.caller.gfp),
            "hits": row.allocs.count,
            "allocated_bytes": row.allocs.bytes,
            "kept": row.caller.kept.count,
            "live_bytes": row.live_bytes,
            "live_uncertain_bytes": row.live_uncertain,
        });
        if let (true, Some(members)) = (by_page, value.as_object_mut()) {
            let name = if self.read.has_pfns { "pfn" } else { "page" };
            members.insert(name.to_owned(), json!(row.page));
        }
        value
    }

    /// All numbers.
    pub fn to_json(&self) -> Value {
        let t = self.table();
        let most = self.lines.unwrap_or(usize::MAX);
        let sum = |s: PageSum| json!({"count": s.count, "bytes": s.bytes});
        let rows = |rows: Vec<PageRow>, by_page| {
            rows.iter().take(most).map(|r| self.row_json(r, by_page)).collect::<Vec<Value>>()
        };
        json!({
            "requests": sum(t.requests),
            "frees": sum(t.frees),
            "matched_frees": sum(t.matched),
            "partial_frees": sum(t.parts),
            "uncertain_frees": sum(t.uncertain),
            "unmatched_frees": sum(t.unmatched),
            "failed": sum(t.failed),
            "reused": sum(t.reused),
            "live_bytes": t.live_bytes,
            "live_uncertain_bytes": t.live_uncertain,
            "by_order": self.order_rows(),
            "callers": self.by_caller.then(|| rows(self.callers(), false)),
            "pages": self.by_page.then(|| rows(self.pages(), true)),
        })
    }
}
