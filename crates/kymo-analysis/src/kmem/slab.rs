//! Objects of the slab allocator: who allocated them, how much is wasted, what stays.

use kymo_events::RecordedEvent;
use rustc_hash::FxHashMap;

use super::live_objects::{LiveObject, LiveObjects};
use crate::call_sites::{CallSites, SiteId};

/// Objects that are alive at a time and known.
const MOST_LIVE: usize = 900_000;
/// Addresses of objects with rows of their own.
const MOST_ALLOC_ROWS: usize = 450_000;
/// Steps of a batch.
const STEPS: usize = 32;

/// Row of an allocation that the selection leaves out: it is kept so that its free finds it.
const NOT_CHOSEN: u16 = u16::MAX;

/// Allocations at one place of code.
#[derive(Clone, Debug, Default)]
pub struct SlabCallerRow {
    /// Bytes taken.
    pub allocated: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Number of allocations.
    pub hits: u64,
    /// Objects that were freed on another CPU.
    pub pingpong: u64,
    /// Objects alive at the end.
    pub live: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Live objects that may have been freed when events were lost.
    pub live_uncertain: u64,
}

/// Allocations at one address.
#[derive(Clone, Copy, Debug)]
pub struct SlabAllocRow {
    /// The address.
    pub ptr: u64,
    /// Bytes taken.
    pub allocated: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Place of code of the last allocation.
    pub site: SiteId,
    /// Number of allocations.
    pub hits: u32,
    /// Objects that were freed on another CPU.
    pub pingpong: u32,
    /// Bytes alive at the end.
    pub live_bytes: u64,
    /// Whether they may have been freed when events were lost.
    pub is_uncertain: bool,
    /// Losses met before the last allocation.
    losses: u16,
}

/// Counts of the slab allocator.
#[derive(Debug, Default)]
pub struct SlabTable {
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes taken.
    pub allocated: u64,
    /// Bytes of objects that were freed.
    pub freed: u64,
    /// Number of allocations.
    pub allocs: u64,
    /// Number of frees of objects whose allocation is known.
    pub frees: u64,
    /// Frees at addresses that may have been allocated again when events were lost: of which
    /// object they are is not known. They are in no other number.
    pub uncertain_frees: u64,
    /// Frees of objects whose allocation is not in the recording.
    pub unmatched_frees: u64,
    /// Frees of nothing: `kfree(NULL)`.
    pub null_frees: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Objects whose address was allocated again: their free is not in the recording.
    pub reused: u64,
    /// Bytes of these.
    pub reused_bytes: u64,
    /// Allocations from another NUMA node than that of the CPU.
    pub cross_node: u64,
    /// Whether nodes are known: those of CPUs, and which was asked for.
    pub knows_nodes: bool,
    /// Objects alive that there was no room for.
    pub crowded: u64,
    /// Objects alive at the end.
    pub live: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Live objects that may have been freed when events were lost.
    pub live_uncertain: u64,
    /// Objects without rows of their own.
    pub alloc_rows_crowded: u64,
    callers: Vec<SlabCallerRow>,
    allocs_by_ptr: Option<FxHashMap<u64, SlabAllocRow>>,
    objects: LiveObjects,
    steps: Vec<Step>,
}

/// An object begins or ends.
#[derive(Clone, Copy, Debug)]
struct Step {
    ptr: u64,
    /// Sizes of an allocation; `None` for a free.
    allocated: Option<AllocatedBytes>,
    cpu: u16,
    /// Losses met so far.
    losses: u16,
    chosen: bool,
}

#[derive(Clone, Copy, Debug)]
struct AllocatedBytes {
    site: SiteId,
    requested: u64,
    allocated: u64,
}

/// An allocation, as it is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlabAllocation {
    pub(super) site: u64,
    pub(super) ptr: u64,
    pub(super) requested: u64,
    pub(super) allocated: u64,
    /// Whether it is of another node than its CPU, where that is known.
    pub(super) is_cross: Option<bool>,
}

impl SlabTable {
    /// An empty table; `by_ptr`: with a row for each address.
    pub(super) fn new(by_ptr: bool) -> SlabTable {
        SlabTable { allocs_by_ptr: by_ptr.then(FxHashMap::default), ..SlabTable::default() }
    }

    #[inline]
    fn caller(&mut self, site: SiteId) -> &mut SlabCallerRow {
        let index = site.0 as usize;
        if self.callers.len() <= index {
            self.callers.resize_with(index + 1, SlabCallerRow::default);
        }
        // It was made above.
        &mut self.callers[index]
    }

    /// Counts an allocation; `losses` is the number of losses met so far.
    #[inline]
    pub(super) fn allocate(
        &mut self,
        a: &SlabAllocation,
        (cpu, losses): (u32, u16),
        chosen: bool,
        sites: &mut CallSites,
        event: &RecordedEvent<'_>,
    ) {
        if a.ptr == 0 {
            self.failed += u64::from(chosen);
            return;
        }
        let mut site = SiteId(0);
        if chosen {
            site = sites.find(a.site, event);
            self.allocs += 1;
            self.requested = self.requested.saturating_add(a.requested);
            self.allocated = self.allocated.saturating_add(a.allocated);
            self.knows_nodes |= a.is_cross.is_some();
            self.cross_node += u64::from(a.is_cross == Some(true));
            let row = self.caller(site);
            row.hits += 1;
            row.requested = row.requested.saturating_add(a.requested);
            row.allocated = row.allocated.saturating_add(a.allocated);
        }
        let SlabAllocation { ptr, requested, allocated, .. } = *a;
        let allocated = Some(AllocatedBytes { site, requested, allocated });
        self.step(Step { ptr, allocated, cpu: cpu as u16, losses, chosen });
    }

    #[inline]
    fn step(&mut self, step: Step) {
        self.steps.push(step);
        if self.steps.len() == STEPS {
            self.take_steps();
        }
    }

    fn take_steps(&mut self) {
        let steps = std::mem::take(&mut self.steps);
        let touched = steps.iter().fold(0, |sum, step| sum ^ self.objects.touch(step.ptr));
        std::hint::black_box(touched);
        for step in &steps {
            match step.allocated {
                Some(bytes) => self.begin_object(step, bytes),
                None => self.end_object(step),
            }
        }
        self.steps = steps;
        self.steps.clear();
    }

    #[inline]
    fn begin_object(&mut self, step: &Step, bytes: AllocatedBytes) {
        let Step { ptr, cpu, losses, chosen, .. } = *step;
        let AllocatedBytes { site, allocated, .. } = bytes;
        let losses = if chosen { losses.min(NOT_CHOSEN - 1) } else { NOT_CHOSEN };
        let object = LiveObject { site, cpu, losses, bytes: allocated };
        if self.objects.len() >= MOST_LIVE && !self.objects.contains(ptr) {
            self.crowded += u64::from(chosen);
            return;
        }
        if let Some(before) = self.objects.insert(ptr, object)
            && before.losses != NOT_CHOSEN
        {
            self.reused += 1;
            self.reused_bytes = self.reused_bytes.saturating_add(before.bytes);
            self.end(&before);
        }
        if chosen {
            let row = self.caller(site);
            row.live += 1;
            row.live_bytes = row.live_bytes.saturating_add(allocated);
            self.count_ptr(ptr, bytes, losses);
        }
    }

    #[inline]
    fn count_ptr(&mut self, ptr: u64, bytes: AllocatedBytes, losses: u16) {
        let AllocatedBytes { site, requested, allocated } = bytes;
        let Some(rows) = &mut self.allocs_by_ptr else { return };
        if rows.len() >= MOST_ALLOC_ROWS && !rows.contains_key(&ptr) {
            self.alloc_rows_crowded += 1;
            return;
        }
        let row = rows.entry(ptr).or_insert(SlabAllocRow {
            ptr,
            allocated: 0,
            requested: 0,
            site,
            hits: 0,
            pingpong: 0,
            live_bytes: 0,
            is_uncertain: false,
            losses,
        });
        row.allocated = row.allocated.saturating_add(allocated);
        row.requested = row.requested.saturating_add(requested);
        row.hits = row.hits.saturating_add(1);
        (row.site, row.live_bytes, row.losses) = (site, allocated, losses);
    }

    /// An object is alive no more.
    #[inline]
    fn end(&mut self, object: &LiveObject) {
        let row = self.caller(object.site);
        row.live = row.live.saturating_sub(1);
        row.live_bytes = row.live_bytes.saturating_sub(object.bytes);
    }

    /// Counts a free; `losses` is the number of losses met so far.
    #[inline]
    pub(super) fn free(&mut self, ptr: u64, (cpu, losses): (u32, u16), chosen: bool) {
        if ptr == 0 {
            self.null_frees += u64::from(chosen);
            return;
        }
        self.step(Step { ptr, allocated: None, cpu: cpu as u16, losses, chosen });
    }

    #[inline]
    fn end_object(&mut self, step: &Step) {
        let Step { ptr, cpu, losses, chosen, .. } = *step;
        let Some(object) = self.objects.remove(ptr) else {
            self.unmatched_frees += u64::from(chosen);
            return;
        };
        if object.losses == NOT_CHOSEN {
            return;
        }
        self.end(&object);
        let row = self.allocs_by_ptr.as_mut().and_then(|rows| rows.get_mut(&ptr));
        if object.losses < losses {
            self.uncertain_frees += 1;
            row.into_iter().for_each(|row| row.live_bytes = 0);
            return;
        }
        self.frees += 1;
        self.freed = self.freed.saturating_add(object.bytes);
        let is_pingpong = object.cpu != cpu;
        if is_pingpong {
            self.caller(object.site).pingpong += 1;
        }
        if let Some(row) = self.allocs_by_ptr.as_mut().and_then(|rows| rows.get_mut(&ptr)) {
            row.live_bytes = 0;
            row.pingpong += u32::from(is_pingpong);
        }
    }

    /// Sums up what is alive; `losses` is the number of losses met.
    pub(super) fn finish(&mut self, losses: u16) {
        self.take_steps();
        for row in self.allocs_by_ptr.iter_mut().flat_map(|rows| rows.values_mut()) {
            row.is_uncertain = row.live_bytes > 0 && row.losses < losses;
        }
        let objects = std::mem::take(&mut self.objects);
        for object in objects.objects().filter(|o| o.losses != NOT_CHOSEN) {
            self.live += 1;
            self.live_bytes = self.live_bytes.saturating_add(object.bytes);
            if object.losses < losses {
                self.live_uncertain += 1;
                self.caller(object.site).live_uncertain += 1;
            }
        }
    }

    /// Rows of places of code that allocated.
    pub fn callers(&self) -> impl Iterator<Item = (SiteId, &SlabCallerRow)> {
        let ids = (0..).map(SiteId);
        ids.zip(&self.callers).filter(|(_, row)| row.hits > 0)
    }

    /// Rows of addresses, if they were counted.
    pub fn addresses(&self) -> impl Iterator<Item = &SlabAllocRow> {
        self.allocs_by_ptr.iter().flat_map(|rows| rows.values())
    }
}
