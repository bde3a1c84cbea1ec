//! Allocations of pages by call chain, and the function that called the allocator.

use kymo_events::RecordedEvent;
use rustc_hash::{FxHashMap, FxHashSet};

use super::pages::PageSum;
use crate::call_sites::{CallSites, SiteId};

/// Most chains that are distinguished.
const MOST_CHAINS: usize = 1 << 16;
/// Functions of a chain that count; perf looks at 16.
const MOST_FRAMES: usize = 32;

/// Allocations by one call chain.
#[derive(Clone, Debug, Default)]
pub struct ChainRow {
    /// Addresses in the kernel, innermost first, without the functions of the allocator.
    pub frames: Box<[SiteId]>,
    /// Allocations.
    pub allocs: PageSum,
    /// Bytes that are alive at the end.
    pub live_bytes: u64,
    /// Live bytes that may have been freed when events were lost.
    pub live_uncertain: u64,
}

/// Call chains that were met; the first row is of allocations without one, and of those that
/// there was no room for.
#[derive(Debug)]
pub struct PageChains {
    rows: Vec<ChainRow>,
    ids: FxHashMap<Box<[SiteId]>, u32>,
    /// Addresses that are within functions of the allocator.
    allocator: FxHashSet<SiteId>,
    known: FxHashSet<SiteId>,
    frames: Vec<SiteId>,
    /// Chains that there was no room for.
    pub crowded: u64,
}

impl Default for PageChains {
    fn default() -> PageChains {
        PageChains {
            rows: vec![ChainRow::default()],
            ids: FxHashMap::default(),
            allocator: FxHashSet::default(),
            known: FxHashSet::default(),
            frames: Vec::new(),
            crowded: 0,
        }
    }
}

/// Whether a function hands pages on that it takes from the page allocator: `alloc_pages`,
/// `__folio_alloc_noprof`, `vma_alloc_folio`, `get_free_pages` and the like. Then its caller
/// counts.
fn is_allocator(function: &str) -> bool {
    const PREFIXES: [&str; 13] = [
        "alloc_page",
        "alloc_frozen_page",
        "alloc_slab_page",
        "folio_alloc",
        "vma_alloc",
        "get_free_page",
        "get_zeroed_page",
        "get_page_from_freelist",
        "filemap_alloc_folio",
        "alloc_contig",
        // What records the event.
        "trace_event_raw_event_",
        "traceiter_",
        "perf_trace_",
    ];
    let bare = function.trim_start_matches('_');
    PREFIXES.iter().any(|p| bare.starts_with(p))
}

impl PageChains {
    /// The row of a call chain, and the address that the allocator was called from.
    pub(super) fn find(
        &mut self,
        addresses: &[u64],
        event: &RecordedEvent<'_>,
        sites: &mut CallSites,
    ) -> (u32, SiteId) {
        self.frames.clear();
        for address in addresses.iter().take(MOST_FRAMES) {
            let site = sites.find(*address, event);
            if self.known.insert(site) && sites.function(site).is_some_and(is_allocator) {
                self.allocator.insert(site);
            }
            // Its functions call each other: those at the inner end count.
            if !self.frames.is_empty() || !self.allocator.contains(&site) {
                self.frames.push(site);
            }
        }
        let Some(caller) = self.frames.first().copied() else {
            return (0, SiteId(0));
        };
        if let Some(id) = self.ids.get(self.frames.as_slice()) {
            return (*id, caller);
        }
        if self.rows.len() >= MOST_CHAINS {
            self.crowded += 1;
            return (0, caller);
        }
        let frames: Box<[SiteId]> = self.frames.as_slice().into();
        let id = self.rows.len() as u32;
        self.rows.push(ChainRow { frames: frames.clone(), ..ChainRow::default() });
        self.ids.insert(frames, id);
        (id, caller)
    }

    /// Gives what was counted without a chain to one that has come.
    pub(super) fn settle(&mut self, id: u32, bytes: u64, lives: bool) {
        if let Some(row) = self.rows.first_mut() {
            row.allocs.sub(bytes);
            row.live_bytes = row.live_bytes.saturating_sub(if lives { bytes } else { 0 });
        }
        if let Some(row) = self.rows.get_mut(id as usize) {
            row.allocs.add(bytes);
            row.live_bytes += if lives { bytes } else { 0 };
        }
    }

    /// Number of allocations without a call chain.
    pub fn without(&self) -> u64 {
        self.rows.first().map_or(0, |row| row.allocs.count).saturating_sub(self.crowded)
    }

    #[inline]
    pub(super) fn add(&mut self, id: u32, bytes: u64) {
        if let Some(row) = self.rows.get_mut(id as usize) {
            row.allocs.add(bytes);
            row.live_bytes = row.live_bytes.saturating_add(bytes);
        }
    }

    #[inline]
    pub(super) fn free(&mut self, id: u32, bytes: u64) {
        if let Some(row) = self.rows.get_mut(id as usize) {
            row.live_bytes = row.live_bytes.saturating_sub(bytes);
        }
    }

    /// Bytes that are alive may have been freed when events were lost.
    pub(super) fn doubt(&mut self, id: u32, bytes: u64) {
        if let Some(row) = self.rows.get_mut(id as usize) {
            row.live_uncertain += bytes;
        }
    }

    /// All of which there are allocations.
    pub fn rows(&self) -> impl Iterator<Item = &ChainRow> {
        self.rows.iter().filter(|row| row.allocs.count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_allocator_are_known_by_their_names() {
        let of =
            ["__alloc_pages_noprof", "alloc_pages_mpol", "__folio_alloc_noprof", "get_free_pages"];
        assert!(of.into_iter().all(is_allocator));
        assert!(
            !["do_anonymous_page", "pte_alloc_one", "allocate_slab"].into_iter().any(is_allocator)
        );
    }
}
