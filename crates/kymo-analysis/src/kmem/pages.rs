//! Pages: allocations by caller and by page, by order and mobility, and what stays.

use rustc_hash::FxHashMap;

use super::page_blocks::{NOT_CHOSEN, PageBlock, PageBlocks};
use crate::call_sites::SiteId;

/// Rows of callers, and of pages.
const MOST_ROWS: usize = 450_000;

/// Mobilities by their numbers, in kernels since 4.4.
pub const MIGRATE_TYPES: [&str; 6] =
    ["unmovable", "movable", "reclaimable", "highatomic", "cma", "isolate"];

/// Columns of the table by order: mobilities, and one for others.
const TYPES: usize = 7;
/// Its lines, one for each order.
const ORDER_COUNT: usize = super::decode::MOST_ORDER as usize + 1;

/// A number of blocks, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageSum {
    /// Blocks.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

impl PageSum {
    #[inline]
    pub(super) fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    #[inline]
    pub(super) fn sub(&mut self, bytes: u64) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// The rest, where something is taken away.
    pub fn without(self, other: PageSum) -> PageSum {
        PageSum {
            count: self.count.saturating_sub(other.count),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// Key of a row of allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CallerKey {
    site: SiteId,
    gfp: u64,
    order: u8,
    migrate_type: u8,
}

/// Allocations of one caller, order, mobility and one set of flags.
#[derive(Clone, Copy, Debug)]
pub struct PageCallerRow {
    /// Address that the allocator was called from.
    pub site: SiteId,
    /// Flags of the request.
    pub gfp: u64,
    /// Power of two of the number of pages.
    pub order: u8,
    /// Mobility.
    pub migrate_type: u8,
    /// Allocations.
    pub allocs: PageSum,
    /// Allocations that were not freed, as perf counts: whose first page was not freed.
    pub kept: PageSum,
    /// Bytes alive at the end.
    pub live_bytes: u64,
    /// Live bytes that may have been freed when events were lost.
    pub live_uncertain: u64,
}

/// Allocations of one page.
#[derive(Clone, Copy, Debug)]
pub struct PageAllocRow {
    /// Its number.
    pub page: u64,
    /// Row of the caller of the last allocation.
    caller: u32,
    /// Allocations.
    pub allocs: PageSum,
    /// Whether it is allocated at the end.
    pub is_live: bool,
    /// Whether it may have been freed when events were lost.
    pub is_uncertain: bool,
    /// Losses met before the last allocation.
    losses: u16,
}

/// Counts of the page allocator.
#[derive(Debug)]
pub struct PageTable {
    /// Bytes of a page.
    pub page_size: u64,
    /// Requests, those that failed among them.
    pub requests: PageSum,
    /// Frees.
    pub frees: PageSum,
    /// Frees of blocks whose allocation is known by its first page.
    pub matched: PageSum,
    /// Frees of a part of a block that is known.
    pub parts: PageSum,
    /// Frees of pages that may have been allocated again when events were lost: of which block
    /// they are is not known.
    pub uncertain: PageSum,
    /// Other frees.
    pub unmatched: PageSum,
    /// Requests that failed.
    pub failed: PageSum,
    /// Blocks that were allocated again: their free is not in the recording.
    pub reused: PageSum,
    /// Alive at the end, in bytes.
    pub live_bytes: u64,
    /// Live bytes that may have been freed when events were lost.
    pub live_uncertain: u64,
    /// Rows that there was no room for.
    pub crowded: u64,
    by_order: Box<[[PageSum; TYPES]; ORDER_COUNT]>,
    live_by_order: Box<[[u64; TYPES]; ORDER_COUNT]>,
    uncertain_by_order: Box<[[u64; TYPES]; ORDER_COUNT]>,
    caller_ids: FxHashMap<CallerKey, u32>,
    callers: Vec<PageCallerRow>,
    pages: Option<FxHashMap<u64, PageAllocRow>>,
    blocks: PageBlocks,
    splits: bool,
    /// Number of the last allocation.
    last: u32,
}

/// An allocation, as it is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageAllocation {
    pub(super) page: Option<u64>,
    pub(super) order: u8,
    pub(super) gfp: u64,
    pub(super) migrate_type: u8,
    /// Row of its call chain.
    pub(super) chain: u32,
    /// Row of the process.
    pub(super) process: u32,
}

/// A free, with the allocation that it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreedBlock {
    pub(super) chain: u32,
    pub(super) process: u32,
    pub(super) bytes: u64,
}

impl PageTable {
    /// An empty table; `by_page`: with a row for each page.
    pub(super) fn new(page_size: u64, by_page: bool) -> PageTable {
        PageTable {
            page_size,
            requests: PageSum::default(),
            frees: PageSum::default(),
            matched: PageSum::default(),
            parts: PageSum::default(),
            uncertain: PageSum::default(),
            unmatched: PageSum::default(),
            failed: PageSum::default(),
            reused: PageSum::default(),
            live_bytes: 0,
            live_uncertain: 0,
            crowded: 0,
            by_order: Box::new([[PageSum::default(); TYPES]; ORDER_COUNT]),
            live_by_order: Box::new([[0; TYPES]; ORDER_COUNT]),
            uncertain_by_order: Box::new([[0; TYPES]; ORDER_COUNT]),
            caller_ids: FxHashMap::default(),
            callers: Vec::new(),
            pages: by_page.then(FxHashMap::default),
            blocks: PageBlocks::default(),
            splits: false,
            last: 0,
        }
    }

    #[inline]
    fn bytes(&self, order: u8) -> u64 {
        self.page_size << order
    }

    fn caller_row(&mut self, key: CallerKey) -> u32 {
        if let Some(id) = self.caller_ids.get(&key) {
            return *id;
        }
        let mut key = key;
        if self.callers.len() >= MOST_ROWS {
            // Flags and addresses of those beyond the limit are not reported.
            self.crowded += 1;
            (key.site, key.gfp) = (SiteId(0), 0);
            if let Some(id) = self.caller_ids.get(&key) {
                return *id;
            }
        }
        let CallerKey { site, gfp, order, migrate_type } = key;
        let none = PageSum::default();
        let id = self.callers.len() as u32;
        self.callers.push(PageCallerRow {
            site,
            gfp,
            order,
            migrate_type,
            allocs: none,
            kept: none,
            live_bytes: 0,
            live_uncertain: 0,
        });
        self.caller_ids.insert(key, id);
        id
    }

    /// Counts an allocation. `has_pfn`: pages are numbered. Gives what was alive in its
    /// place, freed unseen.
    #[inline]
    pub(super) fn allocate(
        &mut self,
        a: &PageAllocation,
        site: SiteId,
        losses: u16,
        chosen: bool,
        has_pfn: bool,
    ) -> Option<FreedBlock> {
        self.splits |= has_pfn;
        let bytes = self.bytes(a.order);
        self.last = self.last.wrapping_add(1);
        if chosen {
            self.requests.add(bytes);
        }
        let Some(page) = a.page else {
            if chosen {
                self.failed.add(bytes);
            }
            return None;
        };
        let mut row = 0;
        if chosen {
            let (gfp, order, migrate_type) = (a.gfp, a.order, a.migrate_type);
            row = self.caller_row(CallerKey { site, gfp, order, migrate_type });
            let is_full = self.blocks.is_full();
            if let Some(row) = self.callers.get_mut(row as usize) {
                row.allocs.add(bytes);
                row.kept.add(bytes);
                row.live_bytes += if is_full { 0 } else { bytes };
            }
            if let Some(cell) = cell(&mut self.by_order[..], a.order, a.migrate_type) {
                cell.add(bytes);
            }
            self.count_page(page, row, bytes, losses);
        }
        let losses = if chosen { losses.min(NOT_CHOSEN - 1) } else { NOT_CHOSEN };
        let block = PageBlock {
            row,
            chain: a.chain,
            process: a.process,
            number: self.last,
            order: a.order,
            is_head: true,
            losses,
        };
        let before = self.blocks.insert(page, block).filter(|b| b.losses != NOT_CHOSEN)?;
        let bytes = self.bytes(before.order);
        self.reused.add(bytes);
        if let Some(row) = self.callers.get_mut(before.row as usize) {
            row.live_bytes = row.live_bytes.saturating_sub(bytes);
        }
        Some(FreedBlock { chain: before.chain, process: before.process, bytes })
    }

    /// Number of the last allocation.
    pub(super) fn last_number(&self) -> u32 {
        self.last
    }

    /// Gives an allocation, whose stack has come, to its caller; `from` is the caller that it was
    /// counted with. Returns whether it is alive.
    pub(super) fn settle(
        &mut self,
        a: &PageAllocation,
        number: u32,
        (from, to): (SiteId, SiteId),
    ) -> bool {
        let key =
            |site| CallerKey { site, gfp: a.gfp, order: a.order, migrate_type: a.migrate_type };
        let (Some(page), bytes) = (a.page, self.bytes(a.order)) else { return false };
        let (old, new) = (self.caller_row(key(from)), self.caller_row(key(to)));
        let block = self.blocks.of_allocation(page, number);
        let lives = block.as_ref().is_some_and(|b| b.order == a.order);
        if let Some(block) = block {
            (block.row, block.chain) = (new, a.chain);
        }
        if let Some(row) = self.callers.get_mut(old as usize) {
            row.allocs.sub(bytes);
            if lives {
                row.kept.sub(bytes);
                row.live_bytes = row.live_bytes.saturating_sub(bytes);
            }
        }
        if let Some(row) = self.callers.get_mut(new as usize) {
            row.allocs.add(bytes);
            if lives {
                row.kept.add(bytes);
                row.live_bytes += bytes;
            }
        }
        if let Some(row) = self.pages.as_mut().and_then(|pages| pages.get_mut(&page)) {
            row.caller = if row.caller == old { new } else { row.caller };
        }
        lives
    }

    fn count_page(&mut self, page: u64, caller: u32, bytes: u64, losses: u16) {
        let Some(pages) = &mut self.pages else { return };
        if pages.len() >= MOST_ROWS && !pages.contains_key(&page) {
            self.crowded += 1;
            return;
        }
        let new = PageAllocRow {
            page,
            caller,
            allocs: PageSum::default(),
            is_live: true,
            is_uncertain: false,
            losses,
        };
        let row = pages.entry(page).or_insert(new);
        row.allocs.add(bytes);
        (row.caller, row.is_live, row.losses) = (caller, true, losses);
    }

    /// Counts a free; gives the allocation that it ends, or a part of which. `losses` is the
    /// number of losses met so far.
    #[inline]
    pub(super) fn free(
        &mut self,
        page: u64,
        order: u8,
        losses: u16,
        chosen: bool,
    ) -> Option<FreedBlock> {
        let bytes = self.bytes(order);
        let Some(block) = self.blocks.remove(page, order, self.splits) else {
            if chosen {
                self.frees.add(bytes);
                self.unmatched.add(bytes);
            }
            return None;
        };
        if block.losses == NOT_CHOSEN {
            return None;
        }
        self.frees.add(bytes);
        let full = self.bytes(block.order);
        match (block.losses < losses, block.is_head) {
            (true, _) => self.uncertain.add(bytes),
            (false, true) => self.matched.add(bytes),
            (false, false) => self.parts.add(bytes),
        }
        if let Some(row) = self.callers.get_mut(block.row as usize) {
            // A block that is freed in parts is freed with its first page, as for perf.
            if block.is_head {
                row.kept.sub(self.page_size << row.order);
            }
            row.live_bytes = row.live_bytes.saturating_sub(bytes.min(full));
        }
        if let Some(row) = self.pages.as_mut().and_then(|pages| pages.get_mut(&page)) {
            row.is_live = false;
        }
        Some(FreedBlock { chain: block.chain, process: block.process, bytes: bytes.min(full) })
    }

    /// Sums up what is alive; `losses` is the number of losses met, `doubt` receives blocks that
    /// may have been freed when events were lost.
    pub(super) fn finish(&mut self, losses: u16, doubt: &mut dyn FnMut(FreedBlock)) {
        for block in self.blocks.drain().filter(|b| b.losses != NOT_CHOSEN) {
            let bytes = self.page_size << block.order;
            self.live_bytes += bytes;
            let uncertain = if block.losses < losses { bytes } else { 0 };
            self.live_uncertain += uncertain;
            if uncertain > 0 {
                doubt(FreedBlock { chain: block.chain, process: block.process, bytes });
            }
            let Some(row) = self.callers.get_mut(block.row as usize) else { continue };
            row.live_uncertain += uncertain;
            if let Some(cell) = cell(&mut self.live_by_order[..], row.order, row.migrate_type) {
                *cell += bytes;
            }
            let doubted = &mut self.uncertain_by_order[..];
            if let Some(cell) = cell(doubted, row.order, row.migrate_type) {
                *cell += uncertain;
            }
        }
        self.crowded += self.blocks.crowded;
        for row in self.pages.iter_mut().flat_map(|pages| pages.values_mut()) {
            row.is_uncertain = row.is_live && row.losses < losses;
        }
    }

    /// Allocations of an order and a mobility; the last column is of those that have no name.
    pub fn of_order(&self, order: u8, migrate_type: usize) -> PageSum {
        let line = self.by_order.get(usize::from(order));
        line.and_then(|line| line.get(migrate_type)).copied().unwrap_or_default()
    }

    /// Bytes of them that are alive at the end.
    pub fn live_of_order(&self, order: u8, migrate_type: usize) -> u64 {
        let line = self.live_by_order.get(usize::from(order));
        line.and_then(|line| line.get(migrate_type)).copied().unwrap_or_default()
    }

    /// Live bytes of an order and mobility that may have been freed when events were lost.
    pub fn uncertain_of_order(&self, order: u8, migrate_type: usize) -> u64 {
        let line = self.uncertain_by_order.get(usize::from(order));
        line.and_then(|line| line.get(migrate_type)).copied().unwrap_or_default()
    }

    /// Orders of which there are allocations, up to the largest, at least 0 to 10.
    pub fn order_range(&self) -> std::ops::RangeInclusive<u8> {
        let used = |order: &u8| (0..TYPES).any(|t| self.of_order(*order, t).count > 0);
        let largest = (0..ORDER_COUNT as u8).rev().find(used).unwrap_or(0);
        0..=largest.max(10)
    }

    /// Rows of callers.
    pub fn callers(&self) -> impl Iterator<Item = &PageCallerRow> {
        self.callers.iter().filter(|row| row.allocs.count > 0)
    }

    /// Rows of pages with those of their last callers, if they were counted.
    pub fn pages(&self) -> impl Iterator<Item = (&PageAllocRow, &PageCallerRow)> {
        let rows = self.pages.iter().flat_map(|pages| pages.values());
        rows.filter_map(|row| Some((row, self.callers.get(row.caller as usize)?)))
    }
}

fn cell<T>(table: &mut [[T; TYPES]], order: u8, migrate_type: u8) -> Option<&mut T> {
    let column = usize::from(migrate_type).min(TYPES - 1);
    table.get_mut(usize::from(order))?.get_mut(column)
}
