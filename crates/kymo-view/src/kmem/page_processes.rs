//! `kymo kmem pagealloc`: events of the page allocator by process, in the columns of
//! `trace-pagealloc-postprocess.pl`; then what stays, by call chain, order and mobility.

use std::collections::BTreeMap;
use std::io::{self, Write};

use kymo_analysis::kmem::{ChainRow, KmemRead, ProcessRow};
use kymo_model::format_width;
use serde_json::{Value, json};

use super::{PageView, site_text};
use crate::Ledger;
use crate::units::{Grouped, Size, shown};

/// A counter of `/proc/vmstat`, by how much it changed while the events happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmstatDelta {
    /// Its name.
    pub name: String,
    /// The difference.
    pub delta: i64,
}

/// Events by process as they are shown.
pub struct PageProcessView<'a> {
    /// What was counted.
    pub read: &'a KmemRead,
    /// Rows of processes of one name in one.
    pub ignore_pid: bool,
    /// With the name of the parent.
    pub prepend_parent: bool,
    /// Rows of each table at most.
    pub lines: Option<usize>,
    /// Functions of a call chain at most; 0: no call chains.
    pub max_stack: usize,
    /// What the kernel counted meanwhile, where that is known.
    pub vmstat: Option<Vec<VmstatDelta>>,
    /// The recording as arguments of a command, `-i FILE`; empty: events that nobody can read again.
    pub recording: String,
}

/// Functions of a call chain, outwards.
struct ChainText<'a> {
    row: &'a ChainRow,
    frames: Vec<String>,
}

impl PageProcessView<'_> {
    fn name(&self, row: &ProcessRow) -> String {
        let numbered = |comm: &[u8], tid: Option<u32>| match tid {
            Some(tid) => format!("{}-{tid}", shown(comm)),
            None => shown(comm),
        };
        let tid = if self.ignore_pid { None } else { row.tid };
        let name = numbered(&row.comm, tid);
        match (self.prepend_parent, &row.parent) {
            (false, _) => name,
            (true, Some((comm, tid))) => format!("{} :: {name}", numbered(comm, Some(*tid))),
            (true, None) => format!("? :: {name}"),
        }
    }

    /// Rows with their names, most allocations first.
    fn rows(&self) -> Vec<(String, ProcessRow)> {
        let mut rows: BTreeMap<String, ProcessRow> = BTreeMap::new();
        for row in self.read.processes.rows() {
            let name = self.name(row);
            match rows.get_mut(&name) {
                Some(sum) => {
                    sum.merge(row);
                    sum.tid = None;
                }
                None => _ = rows.insert(name, row.clone()),
            }
        }
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_by_key(|(_, r)| std::cmp::Reverse((r.allocated, r.freed + r.freed_batched)));
        rows
    }

    fn chains(&self) -> Vec<ChainText<'_>> {
        let mut rows: Vec<&ChainRow> = self.read.chains.rows().collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.live_bytes, row.allocs.bytes)));
        let text = |row| ChainText { row, frames: self.frames(row) };
        rows.into_iter().map(text).collect()
    }

    fn frames(&self, row: &ChainRow) -> Vec<String> {
        let frames = row.frames.iter().take(self.max_stack);
        let name = |id| match self.read.sites.function(id) {
            Some(name) => name.to_owned(),
            None => site_text(&self.read.sites, id, true),
        };
        frames.map(|id| name(*id)).collect()
    }

    fn page_view(&self) -> PageView<'_> {
        PageView {
            read: self.read,
            by_caller: false,
            by_page: false,
            sort: Vec::new(),
            live_only: true,
            lines: None,
            raw_ip: false,
            input: String::new(),
        }
    }

    /// Writes the answer, the tables and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        let rows = self.rows();
        self.write_answer(out, &rows)?;
        self.write_processes(out, &rows)?;
        if self.max_stack > 0 && self.read.chains.rows().any(|row| !row.frames.is_empty()) {
            self.write_chains(out)?;
        }
        self.page_view().write_by_order(out)?;
        if let Some(vmstat) = &self.vmstat {
            self.write_vmstat(out, vmstat)?;
        }
        if !self.recording.is_empty() {
            let file = &self.recording;
            writeln!(out, "\n Where to look next")?;
            writeln!(out, "  who calls:       kymo kmem stat {file} --page --caller --live")?;
            if !self.prepend_parent {
                writeln!(out, "  whose children:  kymo kmem pagealloc {file} --prepend-parent")?;
            }
        }
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    fn write_answer(&self, out: &mut dyn Write, rows: &[(String, ProcessRow)]) -> io::Result<()> {
        let pages = &self.read.pages;
        write!(
            out,
            "\n {} allocations of {} by {} processes; {} is alive at the end.",
            Grouped(pages.requests.count),
            Size(pages.requests.bytes),
            Grouped(rows.len() as u64),
            Size(pages.live_bytes)
        )?;
        if let Some((name, row)) = rows.first().filter(|(_, row)| row.allocated > 0) {
            write!(
                out,
                "\n Most: {name}, {} in {}",
                Size(row.allocated_bytes),
                Grouped(row.allocated)
            )?;
            write!(out, " allocations, of which {} stays.", Size(row.live_bytes))?;
        }
        writeln!(out)
    }

    fn write_processes(
        &self,
        out: &mut dyn Write,
        rows: &[(String, ProcessRow)],
    ) -> io::Result<()> {
        let most = self.lines.unwrap_or(usize::MAX);
        let longest = rows.iter().take(most).map(|(name, _)| name.chars().count()).max();
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
        // Whether they fragment is not known of all fallbacks: no number is better than 0.
        let known = self.read.processes.unknown_fragmenting == 0;
        let cell = |n: u64| if known { n.to_string() } else { "-".to_owned() };
        for (name, r) in rows.iter().take(most) {
            writeln!(
                out,
                "{name:<width$} {:>8} {:>10}   {:>8} {:>8}   {:>8} {:>8} {:>8}   {:>8} {:>8} {:>8} \
                 {:>8} {:>8}   {:>10} {:>10}",
                r.allocated,
                r.zone_locked,
                r.freed,
                r.freed_batched,
                r.drained,
                r.drains,
                r.refills,
                r.fallbacks,
                cell(r.fragmenting),
                r.changed,
                cell(r.severe),
                cell(r.moderate),
                r.allocated_bytes / 1024,
                r.live_bytes / 1024,
            )?;
        }
        if rows.len() > most {
            writeln!(out, "... and {} more", rows.len() - most)?;
        }
        Ok(())
    }

    fn write_chains(&self, out: &mut dyn Write) -> io::Result<()> {
        let most = self.lines.unwrap_or(10);
        let chains = self.chains();
        writeln!(out, "\nBy call chain, what stays first:")?;
        writeln!(out, "{:>10} {:>10} {:>12}   Callers", "KB alive", "KB allocd", "Allocations")?;
        for chain in chains.iter().take(most) {
            let text = match chain.frames.is_empty() {
                true => "[unknown]".to_owned(),
                false => chain.frames.join(" <- "),
            };
            writeln!(
                out,
                "{:>10} {:>10} {:>12}   {text}",
                chain.row.live_bytes / 1024,
                chain.row.allocs.bytes / 1024,
                chain.row.allocs.count,
            )?;
        }
        if chains.len() > most {
            writeln!(out, "... and {} more", chains.len() - most)?;
        }
        Ok(())
    }

    fn write_vmstat(&self, out: &mut dyn Write, vmstat: &[VmstatDelta]) -> io::Result<()> {
        writeln!(out, "\n/proc/vmstat meanwhile, of the machine:")?;
        vmstat
            .iter()
            .try_for_each(|v| writeln!(out, "{:>14}  {}", format!("{:+}", v.delta), v.name))
    }

    /// Writes all of it as one object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let most = self.lines.unwrap_or(usize::MAX);
        let pages = &self.read.pages;
        let rows = self.rows();
        let known = self.read.processes.unknown_fragmenting == 0;
        let process = |(_, r): &(String, ProcessRow)| {
            json!({
                "comm": String::from_utf8_lossy(&r.comm),
                "tid": r.tid.filter(|_| !self.ignore_pid),
                "parent": r.parent.as_ref().map(|(comm, _)| String::from_utf8_lossy(comm)),
                "parent_tid": r.parent.as_ref().map(|(_, tid)| tid),
                "allocated": r.allocated,
                "allocated_under_lock": r.zone_locked,
                "freed": r.freed,
                "freed_batched": r.freed_batched,
                "pcpu_drained": r.drained,
                "pcpu_drains": r.drains,
                "pcpu_refills": r.refills,
                "fallbacks": r.fallbacks,
                "fragmenting": known.then_some(r.fragmenting),
                "migrate_type_changed": r.changed,
                "fragmenting_severe": known.then_some(r.severe),
                "fragmenting_moderate": known.then_some(r.moderate),
                "allocated_bytes": r.allocated_bytes,
                "live_bytes": r.live_bytes,
                "live_uncertain_bytes": r.live_uncertain,
            })
        };
        let chain = |chain: &ChainText<'_>| {
            json!({
                "stack": chain.frames,
                "allocations": chain.row.allocs.count,
                "allocated_bytes": chain.row.allocs.bytes,
                "live_bytes": chain.row.live_bytes,
                "live_uncertain_bytes": chain.row.live_uncertain,
            })
        };
        let vmstat = self.vmstat.as_ref().map(|all| {
            all.iter().map(|v| (v.name.clone(), json!(v.delta))).collect::<serde_json::Map<_, _>>()
        });
        let page = json!({
            "processes": rows.iter().take(most).map(process).collect::<Vec<Value>>(),
            "chains": self.chains().iter().take(most).map(chain).collect::<Vec<Value>>(),
            "by_order": self.page_view().order_rows(),
            "allocations": pages.requests.count,
            "allocated_bytes": pages.requests.bytes,
            "live_bytes": pages.live_bytes,
            "live_uncertain_bytes": pages.live_uncertain,
            "vmstat": vmstat,
            "first_ns": self.read.span.map(|s| s.0),
            "last_ns": self.read.span.map(|s| s.1),
        });
        writeln!(out, "{page:#}")
    }
}
