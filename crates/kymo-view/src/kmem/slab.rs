//! `kymo kmem stat --slab`: objects by caller and by address.

use std::cmp::Ordering;
use std::io::{self, Write};

use kymo_analysis::call_sites::SiteId;
use kymo_analysis::kmem::{KmemRead, SlabAllocRow, SlabCallerRow, SlabTable};
use serde_json::{Value, json};

use super::{KmemKey, rule, site_text};
use crate::units::{Grouped, Size};

/// The slab allocator as it is shown.
pub struct SlabView<'a> {
    /// What was counted.
    pub read: &'a KmemRead,
    /// A row for each caller.
    pub by_caller: bool,
    /// A row for each address.
    pub by_ptr: bool,
    /// What rows are sorted by.
    pub sort: Vec<KmemKey>,
    /// Only rows with objects that are alive.
    pub live_only: bool,
    /// Rows at most.
    pub lines: Option<usize>,
    /// Addresses instead of functions.
    pub raw_ip: bool,
    /// ` -i FILE` of the recording; empty for events that nobody can read again.
    pub input: String,
}

/// Share in percent of what was taken and not asked for.
fn fragmentation(requested: u64, allocated: u64) -> f64 {
    if allocated == 0 { 0.0 } else { 100.0 - 100.0 * requested as f64 / allocated as f64 }
}

/// What rows of both tables have.
#[derive(Clone, Copy)]
struct SlabRow {
    ptr: u64,
    site: SiteId,
    allocated: u64,
    requested: u64,
    hits: u64,
    pingpong: u64,
    live: u64,
    live_bytes: u64,
    live_uncertain: u64,
}

impl SlabRow {
    fn of_caller((site, row): (SiteId, &SlabCallerRow)) -> SlabRow {
        SlabRow {
            ptr: 0,
            site,
            allocated: row.allocated,
            requested: row.requested,
            hits: row.hits,
            pingpong: row.pingpong,
            live: row.live,
            live_bytes: row.live_bytes,
            live_uncertain: row.live_uncertain,
        }
    }

    fn of_ptr(row: &SlabAllocRow) -> SlabRow {
        SlabRow {
            ptr: row.ptr,
            site: row.site,
            allocated: row.allocated,
            requested: row.requested,
            hits: u64::from(row.hits),
            pingpong: u64::from(row.pingpong),
            live: u64::from(row.live_bytes > 0),
            live_bytes: row.live_bytes,
            live_uncertain: u64::from(row.is_uncertain),
        }
    }
}

impl SlabView<'_> {
    fn table(&self) -> &SlabTable {
        &self.read.slab
    }

    fn address(&self, site: SiteId) -> u64 {
        self.read.sites.get(site).map_or(0, |s| s.address)
    }

    fn compare(&self, a: &SlabRow, b: &SlabRow) -> Ordering {
        let frag = |row: &SlabRow| fragmentation(row.requested, row.allocated);
        let by_key = |key: &KmemKey| match key {
            KmemKey::Ptr => b.ptr.cmp(&a.ptr),
            KmemKey::Callsite => self.address(b.site).cmp(&self.address(a.site)),
            KmemKey::Hit => b.hits.cmp(&a.hits),
            KmemKey::Bytes => b.allocated.cmp(&a.allocated),
            KmemKey::Frag => frag(b).total_cmp(&frag(a)),
            KmemKey::Pingpong => b.pingpong.cmp(&a.pingpong),
            KmemKey::Live => b.live_bytes.cmp(&a.live_bytes),
            KmemKey::Page | KmemKey::Order | KmemKey::Migtype | KmemKey::Gfp => Ordering::Equal,
        };
        let keys = self.sort.iter().map(by_key).find(|o| o.is_ne());
        let last = || (a.ptr, self.address(a.site)).cmp(&(b.ptr, self.address(b.site)));
        keys.unwrap_or_else(last)
    }

    fn rows(&self, rows: impl Iterator<Item = SlabRow>) -> Vec<SlabRow> {
        let mut rows: Vec<SlabRow> =
            rows.filter(|row| !self.live_only || row.live_bytes > 0).collect();
        rows.sort_by(|a, b| self.compare(a, b));
        rows
    }

    fn callers(&self) -> Vec<SlabRow> {
        self.rows(self.table().callers().map(SlabRow::of_caller))
    }

    fn addresses(&self) -> Vec<SlabRow> {
        self.rows(self.table().addresses().map(SlabRow::of_ptr))
    }

    /// Writes the answer, the tables that are asked for, and the summary.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_answer(out)?;
        if self.by_caller {
            self.write_table(out, &self.callers(), true)?;
        }
        if self.by_ptr {
            self.write_table(out, &self.addresses(), false)?;
        }
        self.write_summary(out)
    }

    fn write_answer(&self, out: &mut dyn Write) -> io::Result<()> {
        let t = self.table();
        writeln!(
            out,
            "\n Slab: {} allocations took {}; {} in {} objects are alive at the end.",
            Grouped(t.allocs),
            Size(t.allocated),
            Size(t.live_bytes),
            Grouped(t.live)
        )?;
        let most = t.callers().max_by_key(|(_, row)| row.live_bytes);
        if let Some((site, row)) = most.filter(|(_, row)| row.live_bytes > 0) {
            writeln!(
                out,
                " Most of what stays: {} in {} objects of {}.",
                Size(row.live_bytes),
                Grouped(row.live),
                site_text(&self.read.sites, site, self.raw_ip)
            )?;
        }
        if !self.by_caller && !self.input.is_empty() {
            writeln!(out, " By caller: kymo kmem stat{} --slab --caller -s live", self.input)?;
        }
        Ok(())
    }

    fn write_table(
        &self,
        out: &mut dyn Write,
        rows: &[SlabRow],
        is_caller: bool,
    ) -> io::Result<()> {
        let rule = rule(124);
        let title = if is_caller { "Callsite" } else { "Alloc Ptr" };
        writeln!(out, "\n{rule}")?;
        writeln!(
            out,
            " {title:<34} | Total_alloc/Per | Total_req/Per   | Hit      | Ping-pong | Frag    | \
             Live bytes/Number"
        )?;
        writeln!(out, "{rule}")?;
        let most = self.lines.unwrap_or(usize::MAX);
        for row in rows.iter().take(most) {
            let name = match is_caller {
                true => site_text(&self.read.sites, row.site, self.raw_ip),
                false => format!("{:#x}", row.ptr),
            };
            let per = |bytes: u64| bytes.checked_div(row.hits).unwrap_or(0);
            let mark = if row.live_uncertain > 0 { "*" } else { "" };
            writeln!(
                out,
                " {name:<34} | {:>9}/{:<5} | {:>9}/{:<5} | {:>8} | {:>9} | {:>6.3}% | {:>10}/{}{mark}",
                row.allocated,
                per(row.allocated),
                row.requested,
                per(row.requested),
                row.hits,
                row.pingpong,
                fragmentation(row.requested, row.allocated),
                row.live_bytes,
                row.live,
            )?;
        }
        if rows.len() > most {
            writeln!(
                out,
                " {:<34} | ...             | ...             | ...      | ...       | ...     | ...",
                "..."
            )?;
        }
        writeln!(out, "{rule}")?;
        if rows.iter().any(|row| row.live_uncertain > 0) {
            writeln!(out, " * events were lost: some of them may have been freed")?;
        }
        Ok(())
    }

    fn write_summary(&self, out: &mut dyn Write) -> io::Result<()> {
        let t = self.table();
        writeln!(out, "\nSUMMARY (SLAB allocator)\n========================")?;
        writeln!(out, "Total bytes requested: {}", t.requested)?;
        writeln!(out, "Total bytes allocated: {}", t.allocated)?;
        writeln!(out, "Total bytes freed:     {}", t.freed)?;
        if t.uncertain_frees > 0 {
            let frees = Grouped(t.uncertain_frees);
            writeln!(out, "  without those of {frees} frees: events were lost before them")?;
        }
        if t.allocated > t.freed {
            writeln!(out, "Net total bytes allocated: {}", t.allocated - t.freed)?;
        }
        let wasted = t.allocated.saturating_sub(t.requested);
        writeln!(out, "Total bytes wasted on internal fragmentation: {wasted}")?;
        let fragmentation = fragmentation(t.requested, t.allocated);
        writeln!(out, "Internal fragmentation: {fragmentation:.6}%")?;
        match t.knows_nodes {
            true => writeln!(out, "Cross CPU allocations: {}/{}", t.cross_node, t.allocs),
            false => writeln!(out, "Cross CPU allocations: nodes are not in the recording"),
        }
    }

    /// All numbers.
    pub fn to_json(&self) -> Value {
        let t = self.table();
        let most = self.lines.unwrap_or(usize::MAX);
        let caller = |row: &SlabRow| {
            let site = self.read.sites.get(row.site);
            let symbol = site.and_then(|s| s.symbol.as_ref());
            json!({
                "callsite": site.filter(|s| s.address > 0).map(|s| format!("{:#x}", s.address)),
                "function": symbol.map(|(name, _)| name),
                "offset": symbol.map(|(_, offset)| offset),
                "allocated_bytes": row.allocated,
                "requested_bytes": row.requested,
                "hits": row.hits,
                "pingpong": row.pingpong,
                "live": row.live,
                "live_bytes": row.live_bytes,
                "live_uncertain": row.live_uncertain,
            })
        };
        let address = |row: &SlabRow| {
            let mut value = caller(row);
            if let Some(members) = value.as_object_mut() {
                members.insert("ptr".to_owned(), json!(format!("{:#x}", row.ptr)));
                members.remove("live");
            }
            value
        };
        let callers = self.by_caller.then(|| self.callers());
        let addresses = self.by_ptr.then(|| self.addresses());
        let callers =
            callers.map(|rows| rows.iter().take(most).map(caller).collect::<Vec<Value>>());
        let addresses =
            addresses.map(|rows| rows.iter().take(most).map(address).collect::<Vec<Value>>());
        json!({
            "allocations": t.allocs,
            "requested_bytes": t.requested,
            "allocated_bytes": t.allocated,
            "frees": t.frees,
            "freed_bytes": t.freed,
            "live": t.live,
            "live_bytes": t.live_bytes,
            "live_uncertain": t.live_uncertain,
            "uncertain_frees": t.uncertain_frees,
            "unmatched_frees": t.unmatched_frees,
            "null_frees": t.null_frees,
            "failed": t.failed,
            "reused": t.reused,
            "reused_bytes": t.reused_bytes,
            "cross_node": t.knows_nodes.then_some(t.cross_node),
            "callers": callers,
            "addresses": addresses,
        })
    }
}
