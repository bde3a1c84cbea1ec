//! Requests from the event that makes them to their completion. The kernel's events do not name
//! requests: those of one device with one first sector are distinguished by their order.

use kymo_events::{RecordedEvent, TaskInfo};
use rustc_hash::FxHashMap;

use super::decode::{BlockDevice, BlockEvent, BlockOp, BlockPhase};
use super::owners::{BlockOwner, OwnerTracker};
use crate::losses::LossWindows;

/// Requests that are open at a time.
const MOST_OPEN: usize = 1 << 17;

/// Requests with one first sector that are open at a time: passthrough commands have none.
const MOST_ALIKE: usize = 1024;

/// For how long a scheduler of the kernel may hold a request back, in nanoseconds: the
/// `write_expire` of mq-deadline (the kernel's Documentation/block/deadline-iosched.rst).
const LONGEST_QUEUED: u64 = 5_000_000_000;

/// A request that is done.
#[derive(Clone, Debug)]
pub struct BlockRequest {
    /// Its device.
    pub device: BlockDevice,
    /// Its first sector.
    pub sector: u64,
    /// Bytes.
    pub bytes: u64,
    /// Operation.
    pub op: BlockOp,
    /// Its first event.
    pub start: u64,
    /// Time at which it was first queued; `None`: it went straight to the driver.
    pub inserted: Option<u64>,
    /// Time at which it went to the driver, the last time.
    pub issued: u64,
    /// Time of completion.
    pub completed: u64,
    /// Number of requeues by the driver.
    pub requeues: u32,
    /// Error, or 0.
    pub error: i32,
    /// The task of its first event.
    pub task: TaskInfo,
    /// Owner of the request's data.
    pub owner: BlockOwner,
    /// Whether events were lost meanwhile, or its completion may be that of a request alike.
    pub is_uncertain: bool,
}

impl BlockRequest {
    /// Nanoseconds before the driver had it.
    pub fn queue_time(&self) -> u64 {
        self.issued.saturating_sub(self.start)
    }

    /// Nanoseconds that driver and device took.
    pub fn device_time(&self) -> u64 {
        self.completed.saturating_sub(self.issued)
    }

    /// Nanoseconds together.
    pub fn total_time(&self) -> u64 {
        self.completed.saturating_sub(self.start)
    }
}

#[derive(Clone, Debug)]
struct OpenRequest {
    start: u64,
    inserted: Option<u64>,
    issued: Option<u64>,
    first_sector: u64,
    /// Sectors that are not done.
    left: u64,
    bytes: u64,
    op: BlockOp,
    requeues: u32,
    error: i32,
    task: TaskInfo,
    owner: BlockOwner,
}

/// Requests seen, and events that do not match each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Events of requests.
    pub events: u64,
    /// Requests that were done.
    pub completed: u64,
    /// Requests that became part of others.
    pub merged: u64,
    /// Requests that were not done when the recording ended.
    pub open_at_end: u64,
    /// Completions of requests that were not seen before.
    pub completions_only: u64,
    /// Requests in which events were lost.
    pub touching_loss: u64,
    /// Requests that were with the device while others to the same sectors were: which of them a
    /// completion was of is not certain.
    pub alike: u64,
    /// Events without time.
    pub unplaced: u64,
    /// Requests that there was no room for.
    pub crowded: u64,
}

/// The requests that are open.
#[derive(Debug, Default)]
pub struct BlockMachine {
    open: FxHashMap<(BlockDevice, u64), Vec<OpenRequest>>,
    open_count: usize,
    losses: LossWindows,
    /// The owners of bios.
    pub owners: OwnerTracker,
    /// Requests seen, and events that do not match each other.
    pub counts: BlockCounts,
    /// Whether there are events of queues.
    pub has_inserts: bool,
}

impl BlockMachine {
    /// A machine that knows in which spans events were lost.
    pub fn new(losses: LossWindows, owners: OwnerTracker) -> BlockMachine {
        BlockMachine { losses, owners, ..BlockMachine::default() }
    }

    /// Takes an event; gives the request that is done with it.
    pub fn apply(&mut self, block: &BlockEvent, event: &RecordedEvent<'_>) -> Option<BlockRequest> {
        self.counts.events += 1;
        let Some(time) = event.time else {
            self.counts.unplaced += 1;
            return None;
        };
        let key = (block.device, block.sector);
        match block.phase {
            // An empty bio becomes a flush, which is a request of its own.
            BlockPhase::Get if block.sectors == 0 => {}
            BlockPhase::Get => self.push(key, block, time),
            BlockPhase::Insert => {
                self.has_inserts = true;
                let waits = |r: &&mut OpenRequest| r.inserted.is_none() && r.issued.is_none();
                if self.find(key, waits).is_none() {
                    self.push(key, block, time);
                }
                if let Some(request) = self.find(key, waits) {
                    request.inserted = Some(time);
                }
            }
            BlockPhase::Issue => {
                let waits = |r: &&mut OpenRequest| r.issued.is_none();
                if self.find(key, waits).is_none() {
                    self.push(key, block, time);
                }
                let owner = self.owners.take(key.0, key.1, block.sectors, block.op);
                if let Some(request) = self.find(key, waits) {
                    request.issued = Some(time);
                    // Its bios were seen to go to the driver before it gave them back.
                    if request.requeues == 0 || request.left != block.sectors {
                        request.owner = owner;
                    }
                    // Bios may have been merged into it since.
                    request.left = block.sectors;
                    request.bytes = block.bytes.unwrap_or(block.sectors << 9);
                    request.op = block.op;
                }
            }
            BlockPhase::Requeue => {
                if let Some(request) = self.find(key, |r| r.issued.is_some()) {
                    request.issued = None;
                    request.inserted = request.inserted.or(Some(time));
                    request.requeues += 1;
                }
            }
            BlockPhase::Merge => {
                if self.take(key, |r| r.issued.is_none()).is_some() {
                    self.counts.merged += 1;
                }
            }
            BlockPhase::Complete => return self.complete(key, block, time),
        }
        None
    }

    fn find(
        &mut self,
        key: (BlockDevice, u64),
        fits: impl Fn(&&mut OpenRequest) -> bool,
    ) -> Option<&mut OpenRequest> {
        self.open.get_mut(&key)?.iter_mut().find(fits)
    }

    fn take(
        &mut self,
        key: (BlockDevice, u64),
        fits: impl Fn(&OpenRequest) -> bool,
    ) -> Option<OpenRequest> {
        let alike = self.open.get_mut(&key)?;
        let at = alike.iter().position(fits)?;
        let request = alike.remove(at);
        if alike.is_empty() {
            self.open.remove(&key);
        }
        self.open_count -= 1;
        Some(request)
    }

    /// Forgets requests to the same sectors since whose begin events were lost: their end may be
    /// among these, and the next end is that of the next request.
    fn forget_doubtful(&mut self, key: (BlockDevice, u64), time: u64) {
        if self.losses.is_empty() {
            return;
        }
        let (losses, Some(alike)) = (&self.losses, self.open.get_mut(&key)) else { return };
        let before = alike.len();
        alike.retain(|r| !losses.touches(r.start.min(time), time));
        let forgotten = before - alike.len();
        if alike.is_empty() {
            self.open.remove(&key);
        }
        self.open_count -= forgotten;
        self.counts.touching_loss += forgotten as u64;
    }

    /// Forgets all but the last of the requests alike, if there are several; gives how many there
    /// were then. Kernels leave out completions on CPUs that were idle: the request before may have
    /// been done long ago.
    fn forget_alike(
        &mut self,
        key: (BlockDevice, u64),
        is_alike: impl Fn(&OpenRequest) -> bool,
    ) -> u64 {
        let Some(open) = self.open.get_mut(&key) else { return 0 };
        let count = open.iter().filter(|r| is_alike(r)).count();
        if count < 2 {
            return 0;
        }
        let mut left = count;
        open.retain(|r| {
            left -= usize::from(is_alike(r));
            left == 0 || !is_alike(r)
        });
        self.open_count -= count - 1;
        count as u64
    }

    fn push(&mut self, key: (BlockDevice, u64), block: &BlockEvent, time: u64) {
        self.forget_doubtful(key, time);
        let alike = self.open.get(&key).map_or(0, Vec::len);
        if self.open_count >= MOST_OPEN || alike >= MOST_ALIKE {
            self.counts.crowded += 1;
            return;
        }
        self.open_count += 1;
        self.open.entry(key).or_default().push(OpenRequest {
            start: time,
            inserted: None,
            issued: None,
            first_sector: block.sector,
            left: block.sectors,
            bytes: block.bytes.unwrap_or(block.sectors << 9),
            op: block.op,
            requeues: 0,
            error: 0,
            task: block.task,
            owner: BlockOwner::Unknown,
        });
    }

    fn complete(
        &mut self,
        key: (BlockDevice, u64),
        block: &BlockEvent,
        time: u64,
    ) -> Option<BlockRequest> {
        // Flushes have no sectors, nor have passthrough commands before they are done. What needs a
        // flush ends without sectors, too, which is not the end of the flush.
        let same = |r: &OpenRequest| {
            let is_empty = block.sectors == 0;
            r.issued.is_some()
                && (r.left == 0) == is_empty
                && (!is_empty || (r.op == BlockOp::Flush) == (block.op == BlockOp::Flush))
        };
        let alike = self.forget_alike(key, |r| same(r) && r.op == block.op);
        let request = match self.take(key, same) {
            None if block.sectors > 0 => self.take(key, |r| r.issued.is_some()),
            request => request,
        };
        // What needs a flush ends twice, the second time with nothing left.
        if request.is_none() && block.sectors == 0 && block.op != BlockOp::Flush {
            return None;
        }
        let Some(mut request) = request else {
            self.counts.completions_only += 1;
            return None;
        };
        if block.error != 0 {
            request.error = block.error;
        }
        if block.sectors > 0 && block.sectors < request.left {
            // A part of it: the rest begins behind.
            request.left -= block.sectors;
            let rest = (key.0, key.1.wrapping_add(block.sectors));
            self.open_count += 1;
            self.open.entry(rest).or_default().push(request);
            return None;
        }
        self.counts.completed += 1;
        let issued = request.issued.unwrap_or(time);
        // One that went straight to the driver may have been queued before, by another task.
        let is_direct = request.inserted.is_none() && request.start == issued;
        let queued = if is_direct { LONGEST_QUEUED } else { 0 };
        let touches_loss =
            self.losses.touches(request.start.min(time).saturating_sub(queued), time);
        self.counts.touching_loss += u64::from(touches_loss);
        self.counts.alike += alike;
        Some(BlockRequest {
            device: key.0,
            sector: request.first_sector,
            bytes: request.bytes,
            op: request.op,
            start: request.start,
            inserted: request.inserted,
            issued,
            completed: time,
            requeues: request.requeues,
            error: request.error,
            task: request.task,
            owner: request.owner,
            is_uncertain: touches_loss || alike > 0,
        })
    }

    /// Whether it knows of losses.
    pub fn has_losses(&self) -> bool {
        !self.losses.is_empty()
    }

    /// Counts what is open at the end.
    pub fn finish(&mut self) {
        self.counts.open_at_end = self.open_count as u64;
    }
}
