//! Answers about memory of the kernel as tables.

use std::collections::BTreeMap;

use kymo_table::{Answer, AnswerSchema, ColumnSet, Name};

use super::{
    ChainRow, KmemRead, MIGRATE_TYPES, PageCallerRow, PageSum, PageTable, ProcessRow, SlabTable,
};
use crate::call_sites::{CallSite, SiteId};

/// Mobilities by number, and the word for others.
const MOBILITIES: &[&str] =
    &["unmovable", "movable", "reclaimable", "highatomic", "cma", "isolate", "unknown"];

/// Name of a mobility.
fn mobility(number: usize) -> &'static str {
    MIGRATE_TYPES.get(number).copied().unwrap_or("unknown")
}

/// Tables of `kymo kmem stat` that are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KmemTables {
    /// The slab allocator.
    pub slab: bool,
    /// The page allocator.
    pub pages: bool,
    /// A row for each caller.
    pub callers: bool,
    /// A row for each object and page.
    pub addresses: bool,
    /// Only what is allocated at the end.
    pub live_only: bool,
}

/// Data that cells of `kymo kmem stat` need besides the row.
struct StatContext<'a> {
    read: &'a KmemRead,
    tables: KmemTables,
}

impl StatContext<'_> {
    fn site(&self, id: SiteId) -> Option<&CallSite> {
        self.read.sites.get(id).filter(|site| site.address > 0)
    }
}

fn site_columns<'a>() -> ColumnSet<'a, SiteId, StatContext<'a>> {
    let symbol = |id: &SiteId, c: &StatContext<'_>| c.site(*id)?.symbol.clone();
    ColumnSet::new()
        .key(
            "callsite",
            "address of the caller; null: not attributed (table limit reached)",
            |id, c: &StatContext<'_>| c.site(*id).map(|site| format!("{:#x}", site.address)),
        )
        .key("function", "function at that address", move |id, c| Some(symbol(id, c)?.0))
        .key("offset", "offset from its start, in bytes", move |id, c| Some(symbol(id, c)?.1))
        .detail("callsite_address", "the address as a number", |id, c| {
            c.site(*id).map(|site| site.address)
        })
}

/// Share in percent of what was taken and not asked for.
fn fragmentation(requested: u64, allocated: u64) -> f64 {
    if allocated == 0 { 0.0 } else { 100.0 - 100.0 * requested as f64 / allocated as f64 }
}

/// Objects of a caller, or at an address.
#[derive(Clone, Copy, Debug)]
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

fn slab_callers(slab: &SlabTable) -> Vec<SlabRow> {
    let row = |(site, row): (SiteId, &super::SlabCallerRow)| SlabRow {
        ptr: 0,
        site,
        allocated: row.allocated,
        requested: row.requested,
        hits: row.hits,
        pingpong: row.pingpong,
        live: row.live,
        live_bytes: row.live_bytes,
        live_uncertain: row.live_uncertain,
    };
    slab.callers().map(row).collect()
}

fn slab_addresses(slab: &SlabTable) -> Vec<SlabRow> {
    let row = |row: &super::SlabAllocRow| SlabRow {
        ptr: row.ptr,
        site: row.site,
        allocated: row.allocated,
        requested: row.requested,
        hits: u64::from(row.hits),
        pingpong: u64::from(row.pingpong),
        live: u64::from(row.live_bytes > 0),
        live_bytes: row.live_bytes,
        live_uncertain: u64::from(row.is_uncertain),
    };
    slab.addresses().map(row).collect()
}

fn slab_columns<'a>() -> ColumnSet<'a, SlabRow, StatContext<'a>> {
    let sums = ColumnSet::new()
        .sum("requested_bytes", "bytes requested", |r: &SlabRow, _: &StatContext<'_>| r.requested)
        .sum("allocated_bytes", "bytes allocated", |r, _| r.allocated)
        .sum("hits", "allocations", |r, _| r.hits)
        .sum("pingpong", "objects freed on another CPU", |r, _| r.pingpong)
        .measure(
            "fragmentation_percent",
            "share of allocated bytes that were not requested",
            |r, _| fragmentation(r.requested, r.allocated),
        )
        .sum("live", "live objects at the end", |r, _| r.live)
        .sum("live_bytes", "their bytes", |r, _| r.live_bytes)
        .sum(
            "live_uncertain",
            "number of these that may have been freed when events were lost",
            |r, _| r.live_uncertain,
        );
    ColumnSet::new().inline(site_columns(), |r: &SlabRow, _| &r.site).inline(sums, |r, _| r)
}

/// Pages of a caller, or one block of them.
#[derive(Clone, Copy, Debug)]
struct PageRow {
    page: u64,
    caller: PageCallerRow,
    allocs: PageSum,
    live_bytes: u64,
    live_uncertain: u64,
}

fn page_callers(pages: &PageTable) -> Vec<PageRow> {
    let row = |caller: &PageCallerRow| PageRow {
        page: 0,
        caller: *caller,
        allocs: caller.allocs,
        live_bytes: caller.live_bytes,
        live_uncertain: caller.live_uncertain,
    };
    pages.callers().map(row).collect()
}

fn page_addresses(pages: &PageTable) -> Vec<PageRow> {
    let row = |(row, caller): (&super::PageAllocRow, &PageCallerRow)| {
        let bytes = pages.page_size << caller.order;
        let live_bytes = if row.is_live { bytes } else { 0 };
        let kept = PageSum { count: u64::from(row.is_live), bytes: live_bytes };
        let caller = PageCallerRow { kept, ..*caller };
        let live_uncertain = if row.is_uncertain { live_bytes } else { 0 };
        PageRow { page: row.page, caller, allocs: row.allocs, live_bytes, live_uncertain }
    };
    pages.pages().map(row).collect()
}

fn page_columns<'a>() -> ColumnSet<'a, PageRow, StatContext<'a>> {
    let rest = ColumnSet::new()
        .key("order", "allocation order: 2^order pages", |r: &PageRow, _| r.caller.order)
        .key("migrate_type", "mobility", |r, _: &StatContext<'_>| {
            mobility(usize::from(r.caller.migrate_type))
        })
        .of(MOBILITIES)
        .detail("migrate_number", "the kernel's number of the mobility", |r, _| {
            r.caller.migrate_type
        })
        .key("gfp", "flags of the request", |r, _| r.caller.gfp)
        .key("gfp_flags", "names of the flags, from the kernel's print format", |r, c| {
            c.read.gfp_names.text(r.caller.gfp)
        })
        .sum("hits", "allocations", |r, _| r.allocs.count)
        .sum("allocated_bytes", "their bytes", |r, _| r.allocs.bytes)
        .sum("kept", "allocations whose first page was not freed", |r, _| r.caller.kept.count)
        .inline(live_columns(|r: &PageRow| [r.live_bytes, r.live_uncertain]), |r, _| r);
    ColumnSet::new().inline(site_columns(), |r: &PageRow, _| &r.caller.site).inline(rest, |r, _| r)
}

/// Bytes alive at the end, and how many of them may have been freed.
fn live_columns<'a, R: 'a, C: 'a>(live: fn(&R) -> [u64; 2]) -> ColumnSet<'a, R, C> {
    ColumnSet::new().sum("live_bytes", "live bytes at the end", move |r: &R, _: &C| live(r)[0]).sum(
        "live_uncertain_bytes",
        "of these, bytes that may have been freed when events were lost",
        move |r, _| live(r)[1],
    )
}

fn sum_columns<'a, C: 'a>() -> ColumnSet<'a, PageSum, C> {
    ColumnSet::new().sum("count", "number", |s: &PageSum, _: &C| s.count).sum(
        "bytes",
        "bytes",
        |s, _| s.bytes,
    )
}

/// Allocations of an order and a mobility.
struct OrderRow {
    order: u8,
    migrate_type: usize,
    sum: PageSum,
    live_bytes: u64,
    live_uncertain: u64,
}

fn order_rows(pages: &PageTable) -> Vec<OrderRow> {
    let cells =
        pages.order_range().flat_map(|order| (0..MOBILITIES.len()).map(move |n| (order, n)));
    let row = |(order, n)| OrderRow {
        order,
        migrate_type: n,
        sum: pages.of_order(order, n),
        live_bytes: pages.live_of_order(order, n),
        live_uncertain: pages.uncertain_of_order(order, n),
    };
    cells.map(row).filter(|row| row.sum.count > 0).collect()
}

fn order_columns<'a, C: 'a>() -> ColumnSet<'a, OrderRow, C> {
    ColumnSet::new()
        .key("order", "allocation order: 2^order pages", |r: &OrderRow, _: &C| r.order)
        .key("migrate_type", "mobility", |r, _| mobility(r.migrate_type))
        .of(MOBILITIES)
        .sum("allocations", "number", |r, _| r.sum.count)
        .sum("allocated_bytes", "their bytes", |r, _| r.sum.bytes)
        .inline(live_columns(|r: &OrderRow| [r.live_bytes, r.live_uncertain]), |r, _| r)
}

const BY_ORDER: &str = "the page allocator by order and mobility";

fn slab_facts<'a>() -> ColumnSet<'a, SlabTable, StatContext<'a>> {
    ColumnSet::new()
        .sum("allocations", "number", |t: &SlabTable, _: &StatContext<'_>| t.allocs)
        .sum("requested_bytes", "bytes requested", |t, _| t.requested)
        .sum("allocated_bytes", "bytes allocated", |t, _| t.allocated)
        .sum("frees", "frees of these", |t, _| t.frees)
        .sum("freed_bytes", "their bytes", |t, _| t.freed)
        .sum("live", "live objects at the end", |t, _| t.live)
        .sum("live_bytes", "their bytes", |t, _| t.live_bytes)
        .sum(
            "live_uncertain",
            "number of these that may have been freed when events were lost",
            |t, _| t.live_uncertain,
        )
        .sum(
            "uncertain_frees",
            "frees of addresses that may have been reallocated when events were lost; not counted \
             elsewhere",
            |t, _| t.uncertain_frees,
        )
        .sum(
            "unmatched_frees",
            "frees of objects whose allocation is not in the recording",
            |t, _| t.unmatched_frees,
        )
        .sum("null_frees", "frees of null pointers", |t, _| t.null_frees)
        .sum("failed", "allocations that failed; they have no bytes", |t, _| t.failed)
        .sum(
            "reused",
            "objects whose address was allocated again without a free in between; not live",
            |t, _| t.reused,
        )
        .sum("reused_bytes", "their bytes", |t, _| t.reused_bytes)
        .sum(
            "cross_node",
            "allocations from a NUMA node other than the CPU's; null: the recording lacks the \
             nodes of CPUs",
            |t, _| t.knows_nodes.then_some(t.cross_node),
        )
        .record("most_live", "caller with the most live bytes", slab_columns(), |t, _, each| {
            let most = slab_callers(t).into_iter().max_by_key(|row| row.live_bytes);
            most.iter().filter(|row| row.live_bytes > 0).for_each(each);
        })
}

fn page_facts<'a>() -> ColumnSet<'a, PageTable, StatContext<'a>> {
    let sums = sum_columns::<StatContext<'a>>;
    ColumnSet::new()
        .group("requests", "allocations", sums(), |t: &PageTable, _| &t.requests)
        .group("failed", "of these, those that failed", sums(), |t, _| &t.failed)
        .group("frees", "all frees", sums(), |t, _| &t.frees)
        .group("matched_frees", "frees that start at the start of an allocation", sums(), |t, _| {
            &t.matched
        })
        .group("partial_frees", "frees of another part of an allocation", sums(), |t, _| &t.parts)
        .group(
            "uncertain_frees",
            "frees of pages that may have been reallocated when events were lost",
            sums(),
            |t, _| &t.uncertain,
        )
        .group("unmatched_frees", "other frees", sums(), |t, _| &t.unmatched)
        .group("reused", "blocks allocated again without a free in between", sums(), |t, _| {
            &t.reused
        })
        .inline(live_columns(|t: &PageTable| [t.live_bytes, t.live_uncertain]), |t, _| t)
        .record(
            "most_live",
            "caller, order, mobility and flags with the most live bytes",
            page_columns(),
            |t, _, each| {
                let most = page_callers(t).into_iter().max_by_key(|row| row.live_bytes);
                most.iter().filter(|row| row.live_bytes > 0).for_each(each);
            },
        )
}

fn stat_columns<'a>() -> ColumnSet<'a, KmemRead, StatContext<'a>> {
    let ptr = ColumnSet::new()
        .key("ptr", "address of the object", |r: &SlabRow, _: &StatContext<'_>| {
            format!("{:#x}", r.ptr)
        })
        .detail("ptr_address", "the address as a number", |r, _| r.ptr);
    let addresses = ptr.inline(slab_columns().without(&["live"]), |r, _| r);
    let page = ColumnSet::new()
        .key("pfn", "number of the first page", |r: &PageRow, c: &StatContext<'_>| {
            c.read.has_pfns.then_some(r.page)
        })
        .left_out()
        .key("page", "its `struct page`, in recordings of old kernels without `pfn`", |r, c| {
            (!c.read.has_pfns).then_some(r.page)
        })
        .left_out()
        .detail("page_number", "`pfn` or `page`", |r, _| r.page);
    let page_rows = page.inline(page_columns(), |r, _| r);
    let slab_rows =
        |mut rows: Vec<SlabRow>, c: &StatContext<'_>, each: &mut dyn FnMut(&SlabRow)| {
            rows.retain(|row| !c.tables.live_only || row.live_bytes > 0);
            let address = |row: &SlabRow| c.site(row.site).map_or(0, |site| site.address);
            rows.sort_by_key(|row| (row.ptr, address(row)));
            rows.iter().for_each(each);
            true
        };
    let all_pages =
        |mut rows: Vec<PageRow>, c: &StatContext<'_>, each: &mut dyn FnMut(&PageRow)| {
            rows.retain(|row| !c.tables.live_only || row.live_bytes > 0);
            let address = |row: &PageRow| c.site(row.caller.site).map_or(0, |site| site.address);
            rows.sort_by_key(|row| (row.page, address(row), row.caller.order, row.caller.gfp));
            rows.iter().for_each(each);
            true
        };
    ColumnSet::new()
        .record("slab", "the slab allocator", slab_facts(), |r: &KmemRead, c, each| {
            if c.tables.slab {
                each(&r.slab);
            }
        })
        .record("pages", "the page allocator", page_facts(), |r, c, each| {
            if c.tables.pages {
                each(&r.pages);
            }
        })
        .optional_table(
            "slab_callers",
            "with `--caller`: objects by caller",
            slab_columns(),
            move |r, c, each| {
                c.tables.slab && c.tables.callers && slab_rows(slab_callers(&r.slab), c, each)
            },
        )
        .optional_table(
            "slab_addresses",
            "with `--alloc`: objects by address, with the caller of the last allocation",
            addresses,
            move |r, c, each| {
                c.tables.slab && c.tables.addresses && slab_rows(slab_addresses(&r.slab), c, each)
            },
        )
        .optional_table(
            "page_callers",
            "with `--caller`: pages by caller, order, mobility and flags",
            page_columns(),
            move |r, c, each| {
                c.tables.pages && c.tables.callers && all_pages(page_callers(&r.pages), c, each)
            },
        )
        .optional_table(
            "page_addresses",
            "with `--alloc`: individual pages",
            page_rows,
            move |r, c, each| {
                c.tables.pages && c.tables.addresses && all_pages(page_addresses(&r.pages), c, each)
            },
        )
        .optional_table("by_order", BY_ORDER, order_columns(), |r, c, each| {
            order_rows(&r.pages).iter().for_each(each);
            c.tables.pages
        })
        .inline(span_columns(), |r, _| r)
}

fn span_columns<'a, C: 'a>() -> ColumnSet<'a, KmemRead, C> {
    ColumnSet::new()
        .measure("first_ns", "time of the first event", |r: &KmemRead, _: &C| r.span.map(|s| s.0))
        .measure("last_ns", "time of the last event", |r, _| r.span.map(|s| s.1))
}

impl KmemRead {
    /// The answer of `kymo kmem stat`: rows of callers and addresses by address.
    pub fn stat_answer(&self, tables: KmemTables) -> Answer {
        Answer::of("kmem_stat", stat_columns(), self, &StatContext { read: self, tables })
    }

    /// The answer of `kymo kmem pagealloc`: rows of processes with most allocations first, and
    /// of call chains with those of which most stays.
    pub fn pagealloc_answer(&self, shown: PageallocTables) -> Answer {
        let context = PageallocContext { read: self, shown };
        Answer::of("kmem_pagealloc", pagealloc_columns(), self, &context)
    }
}

/// Options of the tables of `kymo kmem pagealloc`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageallocTables {
    /// Processes of one name in one row.
    pub ignore_pid: bool,
    /// Processes of different parents in rows of their own.
    pub by_parent: bool,
    /// Maximum number of functions per call chain.
    pub max_stack: usize,
    /// Counters of `/proc/vmstat` by how much they changed meanwhile, where that is known.
    pub vmstat: Option<Vec<(String, i64)>>,
}

/// Data that cells of `kymo kmem pagealloc` need besides the row.
struct PageallocContext<'a> {
    read: &'a KmemRead,
    shown: PageallocTables,
}

impl PageallocContext<'_> {
    /// Rows of what is shown as one process, most allocations first.
    fn processes(&self) -> Vec<ProcessRow> {
        let mut rows: BTreeMap<_, ProcessRow> = BTreeMap::new();
        for row in self.read.processes.rows() {
            let tid = |tid: Option<u32>| tid.filter(|_| !self.shown.ignore_pid);
            let parent = row.parent.as_ref().filter(|_| self.shown.by_parent);
            let parent = parent.map(|(comm, id)| (comm.clone(), tid(Some(*id))));
            let key = (row.comm.clone(), tid(row.tid), parent);
            match rows.get_mut(&key) {
                Some(sum) => {
                    sum.merge(row);
                    sum.parent = sum.parent.take().filter(|p| Some(p) == row.parent.as_ref());
                }
                None => _ = rows.insert(key, row.clone()),
            }
        }
        let mut rows: Vec<ProcessRow> = rows.into_values().collect();
        rows.sort_by_key(|r| std::cmp::Reverse((r.allocated, r.freed + r.freed_batched)));
        rows
    }

    /// Functions of a call chain, innermost first; addresses of those without a name.
    fn stack(&self, row: &ChainRow) -> Vec<String> {
        let name = |id: &SiteId| match self.read.sites.get(*id) {
            Some(site) if site.address > 0 => match &site.symbol {
                Some((name, _)) => name.clone(),
                None => format!("{:#x}", site.address),
            },
            _ => "[unknown]".to_owned(),
        };
        row.frames.iter().take(self.shown.max_stack).map(name).collect()
    }

    /// A number that is known only where recordings say which fallbacks fragment.
    fn if_known(&self, number: u64) -> Option<u64> {
        (self.read.processes.unknown_fragmenting == 0).then_some(number)
    }
}

fn process_columns<'a>() -> ColumnSet<'a, ProcessRow, PageallocContext<'a>> {
    let parent = |r: &ProcessRow| r.parent.clone();
    ColumnSet::new()
        .key("comm", "name of the process", |r: &ProcessRow, _: &PageallocContext<'_>| {
            Name(r.comm.clone())
        })
        .key("tid", "its thread; null in a row for several", |r, c| {
            r.tid.filter(|_| !c.shown.ignore_pid)
        })
        .key("parent", "name of the parent, if its fork is in the recording", move |r, _| {
            parent(r).map(|(comm, _)| Name(comm))
        })
        .key("parent_tid", "its thread", move |r, _| parent(r).map(|(_, tid)| tid))
        .sum("allocated", "allocations", |r, _| r.allocated)
        .sum("allocated_under_lock", "pages allocated under the zone lock", |r, _| r.zone_locked)
        .sum("freed", "pages freed individually", |r, _| r.freed)
        .sum("freed_batched", "pages freed in batches", |r, _| r.freed_batched)
        .sum("pcpu_drained", "pages drained from per-CPU lists", |r, _| r.drained)
        .sum("pcpu_drains", "batches of these", |r, _| r.drains)
        .sum("pcpu_refills", "number of refills of per-CPU lists", |r, _| r.refills)
        .sum("fallbacks", "allocations from blocks of another mobility", |r, _| r.fallbacks)
        .sum(
            "fragmenting",
            "number of these that fragment a pageblock; null: not recorded (LTTng)",
            |r, c| c.if_known(r.fragmenting),
        )
        .sum("migrate_type_changed", "fallbacks that changed a block's mobility", |r, _| r.changed)
        .sum("fragmenting_severe", "severe ones; null: not recorded", |r, c| c.if_known(r.severe))
        .sum("fragmenting_moderate", "moderate ones; null: not recorded", |r, c| {
            c.if_known(r.moderate)
        })
        .sum("allocated_bytes", "bytes allocated", |r, _| r.allocated_bytes)
        .inline(live_columns(|r: &ProcessRow| [r.live_bytes, r.live_uncertain]), |r, _| r)
}

fn chain_columns<'a>() -> ColumnSet<'a, ChainRow, PageallocContext<'a>> {
    ColumnSet::new()
        .key(
            "stack",
            "functions, innermost first, at most `--max-stack`; empty without a call chain",
            |r: &ChainRow, c: &PageallocContext<'_>| c.stack(r),
        )
        .sum("allocations", "number", |r, _| r.allocs.count)
        .sum("allocated_bytes", "their bytes", |r, _| r.allocs.bytes)
        .inline(live_columns(|r: &ChainRow| [r.live_bytes, r.live_uncertain]), |r, _| r)
}

fn pagealloc_columns<'a>() -> ColumnSet<'a, KmemRead, PageallocContext<'a>> {
    let facts = ColumnSet::new()
        .sum("allocations", "number", |p: &PageTable, _: &PageallocContext<'_>| p.requests.count)
        .sum("allocated_bytes", "their bytes", |p, _| p.requests.bytes)
        .inline(live_columns(|p: &PageTable| [p.live_bytes, p.live_uncertain]), |p, _| p);
    ColumnSet::new()
        .table(
            "processes",
            "the page allocator by process, most allocations first",
            process_columns(),
            |_: &KmemRead, c: &PageallocContext<'_>, each| c.processes().iter().for_each(each),
        )
        .table(
            "chains",
            "allocations by call chain, most live bytes first",
            chain_columns(),
            |r, _, each| {
                let mut rows: Vec<&ChainRow> = r.chains.rows().collect();
                rows.sort_by_key(|row| std::cmp::Reverse((row.live_bytes, row.allocs.bytes)));
                rows.into_iter().for_each(each);
            },
        )
        .table("by_order", BY_ORDER, order_columns(), |r, _, each| {
            order_rows(&r.pages).iter().for_each(each);
        })
        .inline(facts, |r, _| &r.pages)
        .measure("vmstat", "changes of the counters in `/proc/vmstat`, if known", |_, c| {
            c.shown.vmstat.clone()
        })
        .inline(span_columns(), |r, _| r)
}

/// Definitions of these answers.
pub(crate) fn schemas() -> [AnswerSchema; 2] {
    [
        AnswerSchema::of(
            "kmem_stat",
            "kymo kmem stat --json",
            "Numbers refer to the selected allocations; frees count with their allocation.",
            stat_columns(),
        ),
        AnswerSchema::of("kmem_pagealloc", "kymo kmem pagealloc --json", "", pagealloc_columns()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mobilities_are_those_of_the_tables_and_one_for_others() {
        let (last, known) = MOBILITIES.split_last().unwrap();
        assert_eq!((known, *last), (&MIGRATE_TYPES[..], "unknown"));
    }
}
