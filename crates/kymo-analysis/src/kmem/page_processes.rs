//! Events of the page allocator by the process they happen in, and the batches they make: what
//! Mel Gorman's `trace-pagealloc-postprocess.pl` counts.

use kymo_events::RecordedEvent;
use rustc_hash::FxHashMap;

use super::decode::KmemEvent;

/// Threads with rows of their own.
const MOST_ROWS: usize = 1 << 17;
/// Fallbacks to blocks of this order or a smaller one fragment memory severely.
const SEVERE_ORDER: i64 = 3;
/// Bytes of a task's name.
const COMM: usize = 16;

/// Events of a thread under one name.
#[derive(Clone, Debug, Default)]
pub struct ProcessRow {
    /// Name.
    pub comm: Vec<u8>,
    /// Thread; `None` in a row of several.
    pub tid: Option<u32>,
    /// Name and thread of its parent, where the recording has them.
    pub parent: Option<(Vec<u8>, u32)>,
    /// Pages allocated (`mm_page_alloc`).
    pub allocated: u64,
    /// Taken with the zone's lock held (`mm_page_alloc_zone_locked`).
    pub zone_locked: u64,
    /// Freed one by one (`mm_page_free`).
    pub freed: u64,
    /// Freed together with others (`mm_page_free_batched`).
    pub freed_batched: u64,
    /// Pages that went back to their zone (`mm_page_pcpu_drain`).
    pub drained: u64,
    /// Batches of these.
    pub drains: u64,
    /// Batches of pages taken under the lock: refills of the lists of CPUs.
    pub refills: u64,
    /// Fallbacks to another mobility (`mm_page_alloc_extfrag`).
    pub fallbacks: u64,
    /// Fallbacks that fragment a pageblock.
    pub fragmenting: u64,
    /// Fragmenting fallbacks by blocks of order 3 or smaller.
    pub severe: u64,
    /// The others.
    pub moderate: u64,
    /// Fallbacks with which the pageblock changed its mobility.
    pub changed: u64,
    /// Bytes of the pages allocated.
    pub allocated_bytes: u64,
    /// Bytes of these that are alive at the end.
    pub live_bytes: u64,
    /// Live bytes that may have been freed when events were lost.
    pub live_uncertain: u64,
    in_drain: bool,
    in_refill: bool,
}

impl ProcessRow {
    fn end_batches(&mut self, event: &KmemEvent) {
        if self.in_drain && *event != KmemEvent::PcpuDrain {
            (self.drains, self.in_drain) = (self.drains + 1, false);
        }
        if self.in_refill && *event != KmemEvent::ZoneLocked {
            (self.refills, self.in_refill) = (self.refills + 1, false);
        }
    }

    fn count(&mut self, event: &KmemEvent) {
        match *event {
            KmemEvent::PageAlloc { .. } => self.allocated += 1,
            KmemEvent::PageFree { .. } => self.freed += 1,
            KmemEvent::PageFreeBatched => self.freed_batched += 1,
            KmemEvent::PcpuDrain => (self.drained, self.in_drain) = (self.drained + 1, true),
            KmemEvent::ZoneLocked => {
                (self.zone_locked, self.in_refill) = (self.zone_locked + 1, true);
            }
            KmemEvent::ExtFrag { fallback_order, fragmenting, change_ownership } => {
                self.fallbacks += 1;
                if fragmenting == Some(true) {
                    self.fragmenting += 1;
                    let is_severe = fallback_order <= SEVERE_ORDER;
                    *(if is_severe { &mut self.severe } else { &mut self.moderate }) += 1;
                }
                self.changed += u64::from(change_ownership);
            }
            KmemEvent::SlabAlloc { .. } | KmemEvent::SlabFree { .. } => {}
        }
    }

    /// Adds the numbers of another row.
    pub fn merge(&mut self, other: &ProcessRow) {
        self.allocated += other.allocated;
        self.zone_locked += other.zone_locked;
        self.freed += other.freed;
        self.freed_batched += other.freed_batched;
        self.drained += other.drained;
        self.drains += other.drains;
        self.refills += other.refills;
        self.fallbacks += other.fallbacks;
        self.fragmenting += other.fragmenting;
        self.severe += other.severe;
        self.moderate += other.moderate;
        self.changed += other.changed;
        self.allocated_bytes += other.allocated_bytes;
        self.live_bytes += other.live_bytes;
        self.live_uncertain += other.live_uncertain;
    }
}

type ProcessKey = (u32, [u8; COMM]);

/// Rows by thread and name.
#[derive(Debug, Default)]
pub struct PageProcesses {
    rows: Vec<ProcessRow>,
    ids: FxHashMap<ProcessKey, u32>,
    last: Option<(ProcessKey, u32)>,
    /// Parents by child, and names they had.
    parents: FxHashMap<u32, (Vec<u8>, u32)>,
    /// Events in one row together for lack of room.
    pub crowded: u64,
    /// Fallbacks of which it is not known whether they fragment.
    pub unknown_fragmenting: u64,
}

impl PageProcesses {
    /// A thread was born.
    pub(super) fn fork(&mut self, child: u32, parent: (Vec<u8>, u32)) {
        if self.parents.len() < MOST_ROWS || self.parents.contains_key(&child) {
            self.parents.insert(child, parent);
        }
    }

    /// The row of an event's task.
    #[inline]
    pub(super) fn find(&mut self, event: &RecordedEvent<'_>) -> u32 {
        let task = event.task();
        let mut comm = [0; COMM];
        let name = task.comm().get(..COMM).unwrap_or(task.comm());
        comm[..name.len()].copy_from_slice(name);
        let key = (task.tid.unwrap_or(u32::MAX), comm);
        let id = match self.last {
            Some((last, id)) if last == key => id,
            _ => self.find_key(key, event),
        };
        self.last = Some((key, id));
        id
    }

    /// Counts an event.
    #[inline]
    pub(super) fn count(&mut self, id: u32, kmem: &KmemEvent) {
        if let KmemEvent::ExtFrag { fragmenting: None, .. } = kmem {
            self.unknown_fragmenting += 1;
        }
        if let Some(row) = self.rows.get_mut(id as usize) {
            row.count(kmem);
            row.end_batches(kmem);
        }
    }

    fn find_key(&mut self, key: ProcessKey, event: &RecordedEvent<'_>) -> u32 {
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        let new = match self.rows.len() {
            MOST_ROWS.. => {
                self.crowded += 1;
                return MOST_ROWS as u32 - 1;
            }
            // The last row is of all that are left.
            n if n + 1 == MOST_ROWS => {
                ProcessRow { comm: b"[others]".to_vec(), ..ProcessRow::default() }
            }
            _ => ProcessRow {
                comm: event.task().comm().to_vec(),
                tid: event.task().tid,
                parent: event.task().tid.and_then(|tid| self.parents.get(&tid).cloned()),
                ..ProcessRow::default()
            },
        };
        let id = self.rows.len() as u32;
        self.rows.push(new);
        self.ids.insert(key, id);
        id
    }

    #[inline]
    pub(super) fn allocated(&mut self, id: u32, bytes: u64) {
        if let Some(row) = self.rows.get_mut(id as usize) {
            row.allocated_bytes = row.allocated_bytes.saturating_add(bytes);
            row.live_bytes = row.live_bytes.saturating_add(bytes);
        }
    }

    #[inline]
    pub(super) fn ended(&mut self, id: u32, bytes: u64) {
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

    /// Ends the batches that the recording ends in, and names parents.
    pub(super) fn finish(&mut self) {
        for row in &mut self.rows {
            row.drains += u64::from(std::mem::take(&mut row.in_drain));
            row.refills += u64::from(std::mem::take(&mut row.in_refill));
            // The event of the fork may come after the first of the child.
            if let (None, Some(tid)) = (&row.parent, row.tid) {
                row.parent = self.parents.get(&tid).cloned();
            }
        }
    }

    /// The rows, in the order in which they came.
    pub fn rows(&self) -> &[ProcessRow] {
        &self.rows
    }
}
