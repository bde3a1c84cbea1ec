//! Times of requests by device and operation, and by process; who waited for them.

use std::cmp::Reverse;

use kymo_events::{EventSource, SourceError};
use rustc_hash::FxHashMap;

use super::decode::{BlockDevice, BlockOp};
use super::machine::BlockRequest;
use super::owners::BlockOwner;
use super::read::{BlockConfig, BlockRead, read_block_io};
use crate::tasks::DelayStats;

/// Rows of processes, of devices, of files, and of tasks that waited.
const MAX_ROWS: usize = 1 << 16;

/// Requests of one kind.
#[derive(Clone, Debug, Default)]
pub struct BlockStats {
    /// Number of requests that were done.
    pub count: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Times before the driver had them.
    pub queue: DelayStats,
    /// Times that driver and device took.
    pub device: DelayStats,
    /// Both together.
    pub total: DelayStats,
    /// Number of requeues by drivers.
    pub requeues: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests in which events were lost; they are in no time.
    pub uncertain: u64,
}

impl BlockStats {
    fn add(&mut self, request: &BlockRequest) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(request.bytes);
        self.requeues += u64::from(request.requeues);
        self.errors += u64::from(request.error != 0);
        if request.is_uncertain {
            self.uncertain += 1;
            return;
        }
        self.queue.add(request.queue_time(), request.start);
        self.device.add(request.device_time(), request.issued);
        self.total.add(request.total_time(), request.start);
    }

    fn merge(&mut self, other: &BlockStats) {
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.requeues += other.requeues;
        self.errors += other.errors;
        self.uncertain += other.uncertain;
        self.queue.merge(&other.queue);
        self.device.merge(&other.device);
        self.total.merge(&other.total);
    }
}

/// Requests of a device.
#[derive(Clone, Debug)]
pub struct BlockRow {
    /// The device.
    pub device: BlockDevice,
    /// Operation of the requests.
    pub op: BlockOp,
    /// The requests.
    pub stats: BlockStats,
}

/// Requests of a thread to a device.
#[derive(Clone, Debug, Default)]
pub struct BlockProcess {
    /// Its name.
    pub comm: Vec<u8>,
    /// Its thread; `None`: all that there was no room for.
    pub tid: Option<u32>,
    /// Its process, where known.
    pub pid: Option<u32>,
    /// The device.
    pub device: Option<BlockDevice>,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// The requests.
    pub stats: BlockStats,
}

/// Requests for a file to a device.
#[derive(Clone, Debug)]
pub struct BlockFileRow {
    /// Owner of the requests' data.
    pub owner: BlockOwner,
    /// The device.
    pub device: BlockDevice,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// The requests.
    pub stats: BlockStats,
    /// Number of merged files; 1 until rows are merged.
    pub files: u64,
}

impl BlockFileRow {
    /// Takes in the requests of a file that had the same inode.
    pub fn merge(&mut self, other: &BlockFileRow) {
        self.read = self.read.saturating_add(other.read);
        self.written = self.written.saturating_add(other.written);
        self.stats.merge(&other.stats);
        self.files += other.files;
    }
}

/// All requests to a device.
#[derive(Clone, Debug)]
pub struct BlockDeviceRow {
    /// The device.
    pub device: BlockDevice,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// The requests.
    pub stats: BlockStats,
}

/// Requests, with what was moved which way.
#[derive(Clone, Debug, Default)]
struct MovedBytes {
    read: u64,
    written: u64,
    stats: BlockStats,
}

impl MovedBytes {
    fn add(&mut self, request: &BlockRequest) {
        match request.op {
            BlockOp::Read => self.read = self.read.saturating_add(request.bytes),
            BlockOp::Write => self.written = self.written.saturating_add(request.bytes),
            _ => {}
        }
        self.stats.add(request);
    }
}

/// A task that waited for requests.
#[derive(Clone, Debug, Default)]
pub struct BlockWaiter {
    /// Its name.
    pub comm: Vec<u8>,
    /// Its thread.
    pub tid: Option<u32>,
    /// Its process, where known.
    pub pid: Option<u32>,
    /// The device.
    pub device: Option<BlockDevice>,
    /// Waits that completions ended.
    pub waits: DelayStats,
}

/// Requests, and who waited.
#[derive(Debug)]
pub struct BlockTable {
    /// By device and operation, those that took longest together first.
    pub rows: Vec<BlockRow>,
    /// By thread and device, likewise.
    pub processes: Vec<BlockProcess>,
    /// By file and device, likewise.
    pub files: Vec<BlockFileRow>,
    /// By device, likewise.
    pub devices: Vec<BlockDeviceRow>,
    /// Tasks that waited, the longest together first.
    pub waiters: Vec<BlockWaiter>,
    /// The slowest request.
    pub slowest: Option<BlockRequest>,
    /// Requests and waits of more than have rows of their own.
    pub crowded: u64,
    /// Block requests that were read.
    pub read: BlockRead,
}

impl BlockTable {
    /// Counts the requests of recordings.
    ///
    /// # Errors
    /// If reading fails.
    pub fn count(source: &EventSource, config: &BlockConfig) -> Result<BlockTable, SourceError> {
        let mut rows: FxHashMap<(BlockDevice, BlockOp), BlockStats> = FxHashMap::default();
        let mut processes: FxHashMap<(Option<u32>, BlockDevice), BlockProcess> =
            FxHashMap::default();
        let mut waiters: FxHashMap<(Option<u32>, BlockDevice), BlockWaiter> = FxHashMap::default();
        let mut files: FxHashMap<(BlockOwner, BlockDevice), MovedBytes> = FxHashMap::default();
        let mut devices: FxHashMap<BlockDevice, MovedBytes> = FxHashMap::default();
        let mut slowest: Option<BlockRequest> = None;
        let (mut crowded, mut crowded_waits) = (0, 0);
        let mut count = |request: &BlockRequest, _: u32| {
            let key = (request.device, request.op);
            if rows.len() < MAX_ROWS || rows.contains_key(&key) {
                rows.entry(key).or_default().add(request);
            } else {
                crowded += 1;
            }
            let key = (request.task.tid, request.device);
            if processes.len() < MAX_ROWS || processes.contains_key(&key) {
                let process = processes.entry(key).or_default();
                (process.tid, process.pid) = (request.task.tid, request.task.pid);
                process.device = Some(request.device);
                if process.comm != request.task.comm() {
                    process.comm = request.task.comm().to_vec();
                }
                match request.op {
                    BlockOp::Read => process.read = process.read.saturating_add(request.bytes),
                    BlockOp::Write => {
                        process.written = process.written.saturating_add(request.bytes);
                    }
                    _ => {}
                }
                process.stats.add(request);
            } else {
                crowded += 1;
            }
            let key = (request.owner, request.device);
            if files.len() < MAX_ROWS || files.contains_key(&key) {
                files.entry(key).or_default().add(request);
            } else {
                crowded += 1;
            }
            if devices.len() < MAX_ROWS || devices.contains_key(&request.device) {
                devices.entry(request.device).or_default().add(request);
            } else {
                crowded += 1;
            }
            let is_slower = slowest.as_ref().is_none_or(|s| request.total_time() > s.total_time());
            if is_slower && !request.is_uncertain {
                slowest = Some(request.clone());
            }
            true
        };
        let read = read_block_io(source, config, &mut count, &mut |wait| {
            let key = (wait.task.tid, wait.device);
            if waiters.len() < MAX_ROWS || waiters.contains_key(&key) {
                let waiter = waiters.entry(key).or_default();
                (waiter.tid, waiter.pid) = (wait.task.tid, wait.task.pid);
                waiter.device = Some(wait.device);
                waiter.comm = wait.task.comm().to_vec();
                waiter.waits.add(wait.to - wait.from, wait.from);
            } else {
                crowded_waits += 1;
            }
        })?;
        let rows = rows.into_iter().map(|((device, op), stats)| BlockRow { device, op, stats });
        let mut rows: Vec<BlockRow> = rows.collect();
        rows.sort_by_key(|r| (Reverse(r.stats.total.total), r.device, r.op));
        let mut processes: Vec<BlockProcess> = processes.into_values().collect();
        processes.sort_by_key(|p| (Reverse(p.stats.total.total), p.tid, p.device));
        let files = files.into_iter().map(|((owner, device), moved)| {
            let MovedBytes { read, written, stats } = moved;
            BlockFileRow { owner, device, read, written, stats, files: 1 }
        });
        let mut files: Vec<BlockFileRow> = files.collect();
        files.sort_by_key(|f| (Reverse(f.stats.total.total), f.owner, f.device));
        let devices = devices.into_iter().map(|(device, moved)| {
            let MovedBytes { read, written, stats } = moved;
            BlockDeviceRow { device, read, written, stats }
        });
        let mut devices: Vec<BlockDeviceRow> = devices.collect();
        devices.sort_by_key(|d| (Reverse(d.stats.total.total), d.device));
        let mut waiters: Vec<BlockWaiter> = waiters.into_values().collect();
        waiters.sort_by_key(|w| (Reverse(w.waits.total), w.tid, w.device));
        let crowded = crowded + crowded_waits;
        Ok(BlockTable { rows, processes, files, devices, waiters, slowest, crowded, read })
    }
}
