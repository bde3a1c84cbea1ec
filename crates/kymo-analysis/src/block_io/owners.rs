//! Owners of block requests. A bio's owner is known from what its task does when it submits it; a
//! request's from the bios that cover its sectors. What is not certain has no owner: the rules are
//! in docs/internals/block-io.md.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use super::decode::{BlockDevice, BlockOp};
use super::file_decode::{FileEvent, InodeKey, SectorSpan};
use crate::losses::LossWindows;

/// Tasks that are followed.
const MOST_TASKS: usize = 1 << 16;
/// Bios whose request has not been issued.
const MOST_BIOS: usize = 1 << 17;
/// Inodes that were freed.
const MOST_FREED: usize = 1 << 18;
/// Mappings of a task that are remembered.
const MOST_MAPPINGS: usize = 4;
/// Bytes of a page, or fewer: of larger pages less is known.
const PAGE: u64 = 4096;

/// A file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockFile {
    /// Its inode.
    pub key: InodeKey,
    /// Number of files before it with the same inode number in the recording.
    pub incarnation: u32,
}

/// Owner of a request's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockOwner {
    /// Data of a file.
    File(BlockFile),
    /// The journal of a file system.
    Journal,
    /// Blocks that a file system marked as metadata.
    Metadata,
    /// Pages of the block device itself: metadata, or a process reads the device.
    Device,
    /// Bios of several of these in one request.
    Several,
    /// A flush or a discard.
    Command,
    /// Not known.
    #[default]
    Unknown,
}

impl BlockOwner {
    /// The word for what is no file.
    pub fn name(self) -> &'static str {
        match self {
            BlockOwner::File(_) => "file",
            BlockOwner::Journal => "journal",
            BlockOwner::Metadata => "metadata",
            BlockOwner::Device => "device",
            BlockOwner::Several => "several",
            BlockOwner::Command => "command",
            BlockOwner::Unknown => "unknown",
        }
    }

    /// The file.
    pub fn file(self) -> Option<BlockFile> {
        match self {
            BlockOwner::File(file) => Some(file),
            _ => None,
        }
    }

    fn joined(self, other: BlockOwner) -> BlockOwner {
        match (self, other) {
            (a, b) if a == b => a,
            (BlockOwner::Unknown, _) | (_, BlockOwner::Unknown) => BlockOwner::Unknown,
            _ => BlockOwner::Several,
        }
    }
}

/// Bytes of a device that are bytes of a file, until they are read or written.
#[derive(Clone, Copy, Debug)]
struct DeviceMapping {
    file: BlockFile,
    device: BlockDevice,
    begin: u64,
    end: u64,
}

/// Pages that a task added to the page cache and did not read yet.
#[derive(Clone, Copy, Debug)]
struct PendingPages {
    file: InodeKey,
    next: u64,
    bytes: u64,
    since: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CommitPhase {
    #[default]
    None,
    /// Data are written, and records of revoked blocks.
    Data,
    /// The journal is written, and nothing else.
    Logging,
}

#[derive(Clone, Copy, Debug)]
struct RemappedBio {
    to: SectorSpan,
    from: BlockDevice,
    from_sector: u64,
    /// The owner was known where it comes from.
    is_known: bool,
}

/// File operations of a task that are in progress.
#[derive(Debug, Default)]
struct TaskContext {
    /// The inode that ext4 writes back, and since when.
    writepages: Option<(InodeKey, u64)>,
    mappings: VecDeque<DeviceMapping>,
    pages: Option<PendingPages>,
    device_pages: Option<PendingPages>,
    commit: (CommitPhase, u64),
    /// It reclaims memory: what it writes meanwhile may be anybody's.
    reclaim: bool,
    remap: Option<RemappedBio>,
}

impl TaskContext {
    /// The file whose mapping holds these bytes, which are taken out of it with those before.
    fn take_mapped(&mut self, device: BlockDevice, begin: u64, bytes: u64) -> Option<BlockFile> {
        let end = begin.checked_add(bytes)?;
        let fits = |m: &DeviceMapping| m.device == device && m.begin <= begin && end <= m.end;
        let at = self.mappings.iter().rposition(fits)?;
        let mapping = self.mappings.get_mut(at)?;
        let file = mapping.file;
        mapping.begin = end;
        if mapping.begin >= mapping.end {
            self.mappings.remove(at);
        }
        Some(file)
    }
}

#[derive(Clone, Copy, Debug)]
struct BioRange {
    end: u64,
    op: BlockOp,
    owner: BlockOwner,
    serial: u64,
}

/// The owners of bios that wait for their request.
#[derive(Debug, Default)]
pub struct OwnerTracker {
    tasks: FxHashMap<u32, TaskContext>,
    bios: FxHashMap<BlockDevice, BTreeMap<u64, BioRange>>,
    /// Bios by age.
    order: VecDeque<(BlockDevice, u64, u64)>,
    bio_count: usize,
    serial: u64,
    freed: FxHashMap<InodeKey, u32>,
    losses: LossWindows,
    /// Whether events are there without which the page cache and ext4 are not certain.
    has_guards: bool,
    /// Tasks, bios and inodes that there was no room for.
    pub crowded: u64,
}

impl OwnerTracker {
    pub(super) fn new(losses: LossWindows, has_guards: bool) -> OwnerTracker {
        OwnerTracker { losses, has_guards, ..OwnerTracker::default() }
    }

    /// Whether a file's number still is its own at the end, as far as events tell.
    pub fn is_last(&self, file: BlockFile) -> bool {
        self.incarnation(file.key) == file.incarnation
    }

    /// Whether it is not known of all inodes whether they were freed.
    pub fn has_forgotten_freed(&self) -> bool {
        self.freed.len() >= MOST_FREED
    }

    fn incarnation(&self, key: InodeKey) -> u32 {
        self.freed.get(&key).copied().unwrap_or(0)
    }

    fn file(&self, key: InodeKey) -> BlockOwner {
        BlockOwner::File(BlockFile { key, incarnation: self.incarnation(key) })
    }

    /// Events were lost: what tasks do is not known.
    pub(super) fn forget_tasks(&mut self) {
        self.tasks.clear();
    }

    /// Takes an event of a task.
    pub(super) fn apply(&mut self, event: FileEvent, tid: Option<u32>, time: u64) {
        if let FileEvent::InodeFreed(key) = event {
            if self.freed.len() < MOST_FREED || self.freed.contains_key(&key) {
                *self.freed.entry(key).or_default() += 1;
            } else {
                self.crowded += 1;
            }
            return;
        }
        // The idle tasks share a number.
        let Some(tid) = tid.filter(|tid| *tid != 0) else {
            if let FileEvent::Bio { span, op, .. } = event {
                self.insert(span, op, BlockOwner::Unknown);
            }
            return;
        };
        match event {
            FileEvent::Bio { span, op, is_meta } => self.submit(tid, time, span, op, is_meta),
            FileEvent::Remap { to, device, sector } => self.remap(tid, to, device, sector),
            _ => self.note(tid, event, time),
        }
    }

    fn context(&mut self, tid: u32) -> &mut TaskContext {
        if self.tasks.len() >= MOST_TASKS && !self.tasks.contains_key(&tid) {
            self.crowded += self.tasks.len() as u64;
            self.tasks.clear();
        }
        self.tasks.entry(tid).or_default()
    }

    fn note(&mut self, tid: u32, event: FileEvent, time: u64) {
        // Most tasks dirty pages only, of which nothing is to be remembered.
        if matches!(event, FileEvent::PageDirty { .. }) && !self.tasks.contains_key(&tid) {
            return;
        }
        let incarnation = match event {
            FileEvent::Mapping { file, .. } => self.incarnation(file),
            _ => 0,
        };
        let task = self.context(tid);
        match event {
            FileEvent::WritepagesBegin(key) => task.writepages = Some((key, time)),
            // From a checkpoint on others' blocks may be among what it writes.
            FileEvent::WritepagesEnd | FileEvent::Checkpoint => task.writepages = None,
            FileEvent::Mapping { file, device, address, length } => {
                let Some(end) = address.checked_add(length) else { return };
                let file = BlockFile { key: file, incarnation };
                if let Some(last) = task.mappings.back_mut()
                    && last.file == file
                    && last.device == device
                    && last.end == address
                {
                    last.end = end;
                    return;
                }
                if task.mappings.len() >= MOST_MAPPINGS {
                    task.mappings.pop_front();
                }
                task.mappings.push_back(DeviceMapping { file, device, begin: address, end });
            }
            FileEvent::PagesAdded { file, index, pages } => {
                // Pages of block devices are those of a file system without a device.
                let slot = match file.device.numbers().0 {
                    0 => &mut task.device_pages,
                    _ => {
                        task.device_pages = None;
                        &mut task.pages
                    }
                };
                let bytes = pages.saturating_mul(PAGE);
                let next = index.saturating_add(pages);
                *slot = Some(match *slot {
                    Some(p) if p.file == file && p.next == index => {
                        PendingPages { next, bytes: p.bytes.saturating_add(bytes), ..p }
                    }
                    _ => PendingPages { file, next, bytes, since: time },
                });
            }
            FileEvent::PageDirty { inode } => {
                // It writes through the page cache: blocks may be given to files that no mapping
                // covers.
                task.mappings.clear();
                task.pages = task.pages.filter(|p| p.file.inode != inode);
                task.device_pages = task.device_pages.filter(|p| p.file.inode != inode);
            }
            FileEvent::CommitBegin => task.commit = (CommitPhase::Data, time),
            FileEvent::CommitLogging => task.commit = (CommitPhase::Logging, time),
            FileEvent::CommitEnd => task.commit = (CommitPhase::None, time),
            FileEvent::ReclaimBegin => task.reclaim = true,
            FileEvent::ReclaimEnd => task.reclaim = false,
            FileEvent::Bio { .. } | FileEvent::Remap { .. } | FileEvent::InodeFreed(_) => {}
        }
    }

    fn remap(&mut self, tid: u32, to: SectorSpan, device: BlockDevice, sector: u64) {
        let from = SectorSpan { device, sector, sectors: to.sectors };
        let known = self.covering(from);
        let last = self.tasks.get(&tid).and_then(|task| task.remap);
        // A partition's sectors become those of its disk after another mapping.
        let chained =
            last.filter(|l| l.is_known && l.to == SectorSpan { device: to.device, ..from });
        let known = match (chained, known) {
            (Some(last), _) => self.take_exact(last.to),
            (None, known) => known,
        };
        if let Some((owner, op)) = known {
            self.insert(to, op, owner);
        }
        let remap =
            RemappedBio { to, from: device, from_sector: sector, is_known: known.is_some() };
        self.context(tid).remap = Some(remap);
    }

    fn submit(&mut self, tid: u32, time: u64, span: SectorSpan, op: BlockOp, is_meta: bool) {
        let remap = self.context(tid).remap.take().filter(|r| r.to == span);
        if span.sectors == 0 || remap.is_some_and(|r| r.is_known) {
            return;
        }
        let owner = self.owner_of_bio(tid, time, span, remap, op, is_meta);
        self.insert(span, op, owner);
    }

    fn owner_of_bio(
        &mut self,
        tid: u32,
        time: u64,
        span: SectorSpan,
        remap: Option<RemappedBio>,
        op: BlockOp,
        is_meta: bool,
    ) -> BlockOwner {
        // File systems know their own device, which may be a part of the disk.
        let (device, sector) =
            remap.map_or((span.device, span.sector), |r| (r.from, r.from_sector));
        let (losses, freed) = (&self.losses, &self.freed);
        let has_guards = self.has_guards;
        let Some(task) = self.tasks.get_mut(&tid) else { return BlockOwner::Unknown };
        if task.reclaim {
            return BlockOwner::Unknown;
        }
        let is_whole = |since: u64| !losses.touches(since.min(time), time);
        let bytes = span.sectors << 9;
        let mapped = task.take_mapped(device, sector.saturating_mul(512), bytes);
        let mapped = mapped.filter(|f| freed.get(&f.key).copied().unwrap_or(0) == f.incarnation);
        let file = match op {
            BlockOp::Write => {
                let (phase, since) = task.commit;
                let is_journal = match phase {
                    CommitPhase::None => false,
                    CommitPhase::Data => is_meta,
                    CommitPhase::Logging => true,
                };
                if is_journal {
                    let is_certain = has_guards && is_whole(since);
                    return if is_certain { BlockOwner::Journal } else { BlockOwner::Unknown };
                }
                if is_meta {
                    return BlockOwner::Metadata;
                }
                // Pages that are written back are not those of a mapping before.
                match task.writepages {
                    Some((file, since)) => {
                        Some(file).filter(|f| has_guards && f.device == device && is_whole(since))
                    }
                    None => mapped.map(|f| f.key),
                }
            }
            BlockOp::Read => {
                if is_meta {
                    task.device_pages = None;
                    return BlockOwner::Metadata;
                }
                // Blocks smaller than a page may be read without a page that is added.
                let fits = |p: &PendingPages| {
                    has_guards
                        && bytes <= p.bytes
                        && bytes.is_multiple_of(PAGE)
                        && is_whole(p.since)
                };
                let consumed = |p: PendingPages| {
                    let left = PendingPages { bytes: p.bytes.saturating_sub(bytes), ..p };
                    Some(left).filter(|p| p.bytes > 0)
                };
                if let Some(file) = mapped {
                    let pages = task.pages;
                    task.pages = pages.and_then(consumed);
                    // Pages of one file, and a mapping of the other: one of them is old.
                    let is_doubted = pages.is_some_and(|p| p.file != file.key);
                    return if is_doubted { BlockOwner::Unknown } else { BlockOwner::File(file) };
                }
                let own = u64::from(device.0);
                if let Some(pages) = task.device_pages {
                    // The last pages are the device's: the next read is of these, or not known.
                    task.device_pages = None;
                    return if pages.file.inode == own && fits(&pages) {
                        task.device_pages = consumed(pages);
                        BlockOwner::Device
                    } else {
                        BlockOwner::Unknown
                    };
                }
                let pages = task.pages.filter(|p| p.file.device == device && fits(p));
                task.pages = pages.and_then(consumed);
                pages.map(|p| p.file)
            }
            _ => return BlockOwner::Command,
        };
        file.map_or(BlockOwner::Unknown, |key| self.file(key))
    }

    /// The owner of sectors that one bio covers.
    fn covering(&self, span: SectorSpan) -> Option<(BlockOwner, BlockOp)> {
        let of_device = self.bios.get(&span.device)?;
        let (_, range) = of_device.range(..=span.sector).next_back()?;
        (span.sectors > 0 && range.end >= span.end()).then_some((range.owner, range.op))
    }

    fn take_exact(&mut self, span: SectorSpan) -> Option<(BlockOwner, BlockOp)> {
        let of_device = self.bios.get_mut(&span.device)?;
        let range = of_device.get(&span.sector).filter(|r| r.end == span.end())?;
        let found = (range.owner, range.op);
        of_device.remove(&span.sector);
        self.bio_count -= 1;
        Some(found)
    }

    /// Takes the parts of bios out that these sectors cover; gives what they are for, if they
    /// cover all of it.
    fn cut(&mut self, span: SectorSpan, op: BlockOp) -> Option<BlockOwner> {
        let of_device = self.bios.get_mut(&span.device)?;
        let (begin, end) = (span.sector, span.end());
        let before = of_device.range(..begin).next_back().filter(|(_, r)| r.end > begin);
        let before = before.map(|(start, _)| *start);
        let starts = before.into_iter().chain(of_device.range(begin..end).map(|(start, _)| *start));
        let starts: Vec<u64> = starts.collect();
        let (mut owner, mut at, mut is_covered) = (None::<BlockOwner>, begin, true);
        for start in starts {
            let Some(range) = of_device.remove(&start) else { continue };
            self.bio_count -= 1;
            if start < begin {
                of_device.insert(start, BioRange { end: begin, ..range });
                self.bio_count += 1;
            }
            if range.end > end {
                of_device.insert(end, range);
                self.order.push_back((span.device, end, range.serial));
                self.bio_count += 1;
            }
            is_covered &= start.max(begin) == at && range.op == op;
            at = range.end.min(end);
            owner = Some(owner.map_or(range.owner, |o| o.joined(range.owner)));
        }
        owner.filter(|_| is_covered && at == end)
    }

    fn insert(&mut self, span: SectorSpan, op: BlockOp, owner: BlockOwner) {
        if span.sectors == 0 || span.end() == u64::MAX {
            return;
        }
        // What was there was issued unseen, or never is: devices that pass bios on have no
        // requests.
        let _ = self.cut(span, op);
        self.serial += 1;
        let range = BioRange { end: span.end(), op, owner, serial: self.serial };
        self.bios.entry(span.device).or_default().insert(span.sector, range);
        self.order.push_back((span.device, span.sector, self.serial));
        self.bio_count += 1;
        while self.bio_count > MOST_BIOS || self.order.len() > 2 * MOST_BIOS {
            let Some((device, start, serial)) = self.order.pop_front() else { return };
            let Some(of_device) = self.bios.get_mut(&device) else { continue };
            if of_device.get(&start).is_some_and(|r| r.serial == serial) {
                of_device.remove(&start);
                self.bio_count -= 1;
            }
            if of_device.is_empty() {
                self.bios.remove(&device);
            }
        }
    }

    /// Removes and returns the owner of a request that goes to the driver now.
    pub(super) fn take(
        &mut self,
        device: BlockDevice,
        sector: u64,
        sectors: u64,
        op: BlockOp,
    ) -> BlockOwner {
        if matches!(op, BlockOp::Flush | BlockOp::Discard) {
            return BlockOwner::Command;
        }
        self.cut(SectorSpan { device, sector, sectors }, op).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: BlockDevice = BlockDevice(254 << 20);
    const PART: BlockDevice = BlockDevice(254 << 20 | 1);
    const A: InodeKey = InodeKey { device: DISK, inode: 12 };
    const B: InodeKey = InodeKey { device: DISK, inode: 13 };

    fn span(device: BlockDevice, sector: u64, sectors: u64) -> SectorSpan {
        SectorSpan { device, sector, sectors }
    }

    fn bio(sector: u64, sectors: u64, op: BlockOp) -> FileEvent {
        FileEvent::Bio { span: span(DISK, sector, sectors), op, is_meta: false }
    }

    fn meta(sector: u64, sectors: u64, op: BlockOp) -> FileEvent {
        FileEvent::Bio { span: span(DISK, sector, sectors), op, is_meta: true }
    }

    fn file(key: InodeKey) -> BlockOwner {
        BlockOwner::File(BlockFile { key, incarnation: 0 })
    }

    fn tracker(events: &[FileEvent]) -> OwnerTracker {
        let mut tracker = OwnerTracker::new(LossWindows::default(), true);
        for (time, event) in events.iter().enumerate() {
            tracker.apply(*event, Some(7), time as u64);
        }
        tracker
    }

    fn added(file: InodeKey, index: u64, pages: u64) -> FileEvent {
        FileEvent::PagesAdded { file, index, pages }
    }

    use BlockOp::{Read, Write};

    #[test]
    fn writes_are_of_the_inode_that_is_written_back() {
        let mut t = tracker(&[
            FileEvent::WritepagesBegin(A),
            bio(0, 8, Write),
            bio(8, 8, Write),
            meta(16, 8, Write),
            bio(24, 8, Read),
            FileEvent::WritepagesEnd,
            bio(32, 8, Write),
            FileEvent::WritepagesBegin(B),
            bio(40, 8, Write),
            FileEvent::ReclaimBegin,
            bio(48, 8, Write),
            FileEvent::ReclaimEnd,
            bio(56, 8, Write),
            FileEvent::Checkpoint,
            bio(64, 8, Write),
        ]);
        // Of one bio two requests, and of two bios one.
        assert_eq!(t.take(DISK, 0, 4, Write), file(A));
        assert_eq!(t.take(DISK, 4, 12, Write), file(A));
        assert_eq!(t.take(DISK, 0, 4, Write), BlockOwner::Unknown);
        assert_eq!(t.take(DISK, 16, 8, Write), BlockOwner::Metadata);
        assert_eq!(t.take(DISK, 24, 16, Write), BlockOwner::Unknown);
        assert_eq!(t.take(DISK, 40, 8, Write), file(B));
        assert_eq!(t.take(DISK, 48, 8, Write), BlockOwner::Unknown);
        assert_eq!(t.take(DISK, 56, 8, Write), file(B));
        assert_eq!(t.take(DISK, 64, 8, Write), BlockOwner::Unknown);
        assert_eq!((t.bio_count, t.take(DISK, 0, 0, BlockOp::Flush)), (0, BlockOwner::Command));
        // Of both files; of one and nobody's.
        let begin = FileEvent::WritepagesBegin;
        let all = [begin(A), bio(0, 8, Write), begin(B), bio(8, 8, Write)];
        let mut t = tracker(&all);
        assert_eq!(t.take(DISK, 0, 16, Write), BlockOwner::Several);
        let mut t = tracker(&all);
        assert_eq!(t.take(DISK, 0, 17, Write), BlockOwner::Unknown);
        // Without the events that tell of reclaim.
        let mut t = OwnerTracker::new(LossWindows::default(), false);
        all.iter().for_each(|e| t.apply(*e, Some(7), 1));
        assert_eq!(t.take(DISK, 0, 8, Write), BlockOwner::Unknown);
        // Events were lost since the inode was begun.
        let mut t = OwnerTracker::new(LossWindows::new(vec![(1, 1)]), true);
        all.iter().zip([0, 2, 3, 4]).for_each(|(e, time)| t.apply(*e, Some(7), time));
        assert_eq!(t.take(DISK, 0, 8, Write), BlockOwner::Unknown);
        assert_eq!(t.take(DISK, 8, 8, Write), file(B));
    }

    #[test]
    fn reads_are_of_the_pages_that_were_added() {
        let own = InodeKey { device: BlockDevice(3), inode: u64::from(DISK.0) };
        let mut t = tracker(&[
            added(A, 0, 4),
            added(A, 4, 4),
            added(own, 99, 1),
            bio(800, 8, Read),
            bio(0, 32, Read),
            bio(32, 32, Read),
            bio(64, 8, Read),
            added(B, 0, 1),
            FileEvent::PageDirty { inode: 13 },
            bio(80, 8, Read),
            added(B, 7, 1),
            bio(90, 2, Read),
            bio(200, 16, Read),
            added(B, 9, 1),
            meta(110, 8, Read),
            bio(120, 8, Read),
        ]);
        assert_eq!(t.take(DISK, 800, 8, Read), BlockOwner::Device);
        assert_eq!(t.take(DISK, 0, 64, Read), file(A));
        for (sector, sectors) in [(64, 8), (80, 8), (90, 2), (200, 16)] {
            assert_eq!(t.take(DISK, sector, sectors, Read), BlockOwner::Unknown, "{sector}");
        }
        assert_eq!(t.take(DISK, 110, 8, Read), BlockOwner::Metadata);
        assert_eq!(t.take(DISK, 120, 8, Read), file(B));
    }

    #[test]
    fn mappings_name_bytes_of_the_partition() {
        let a = InodeKey { device: PART, inode: 12 };
        let map = FileEvent::Mapping { file: a, device: PART, address: 4096, length: 8192 };
        let remap = FileEvent::Remap { to: span(DISK, 2056, 16), device: PART, sector: 8 };
        let mut t = tracker(&[map, remap, bio(2056, 16, Write), bio(8, 8, Write)]);
        assert_eq!(t.take(DISK, 2056, 16, Write), file(a));
        assert_eq!(t.take(DISK, 8, 8, Write), BlockOwner::Unknown);
        // A number that goes to a new file.
        let freed = FileEvent::InodeFreed(a);
        let mut t = tracker(&[map, freed, remap, bio(2056, 16, Write)]);
        assert_eq!(t.take(DISK, 2056, 16, Write), BlockOwner::Unknown);
        let mut t = tracker(&[freed, map, remap, bio(2056, 16, Write)]);
        let new = BlockFile { key: a, incarnation: 1 };
        assert_eq!(t.take(DISK, 2056, 16, Write), BlockOwner::File(new));
        assert!(t.is_last(new) && !t.is_last(BlockFile { incarnation: 0, ..new }));
    }

    #[test]
    fn mappings_are_good_for_what_is_read_or_written_next() {
        let map = FileEvent::Mapping { file: A, device: DISK, address: 4096, length: 8192 };
        let all = [map, bio(8, 8, Write), bio(8, 8, Write), bio(16, 8, Write), bio(16, 8, Write)];
        let written =
            |events: &[FileEvent], sector: u64| tracker(events).take(DISK, sector, 8, Write);
        let unknown = BlockOwner::Unknown;
        assert_eq!([2, 3].map(|n| written(&all[..n], 8)), [file(A), unknown]);
        assert_eq!([4, 5].map(|n| written(&all[..n], 16)), [file(A), unknown]);
        // The blocks may belong to another file by now.
        let dirty = FileEvent::PageDirty { inode: 13 };
        assert_eq!(written(&[map, dirty, bio(8, 8, Write)], 8), unknown);
        let begin = FileEvent::WritepagesBegin(B);
        assert_eq!(written(&[map, begin, bio(8, 8, Write)], 8), file(B));
        let mut t = tracker(&[map, added(B, 0, 1), bio(8, 8, Read)]);
        assert_eq!(t.take(DISK, 8, 8, Read), unknown);
        let mut t = tracker(&[map, added(A, 0, 1), bio(8, 8, Read)]);
        assert_eq!(t.take(DISK, 8, 8, Read), file(A));
    }

    #[test]
    fn devices_pass_bios_on_to_parts_of_disks() {
        const STACKED: BlockDevice = BlockDevice(253 << 20);
        let a = InodeKey { device: STACKED, inode: 12 };
        let stacked = span(STACKED, 0, 32);
        // Cut in two, each of which is mapped into a partition.
        let parts = [0, 16].map(|at| {
            [
                FileEvent::Remap { to: span(DISK, 100 + at, 16), device: STACKED, sector: at },
                FileEvent::Remap { to: span(DISK, 2148 + at, 16), device: PART, sector: 100 + at },
                bio(2148 + at, 16, Write),
            ]
        });
        let begin = [
            FileEvent::WritepagesBegin(a),
            FileEvent::Bio { span: stacked, op: Write, is_meta: false },
            FileEvent::WritepagesBegin(B),
        ];
        let mut t = tracker(&[&begin[..], &parts.concat()].concat());
        assert_eq!(t.take(DISK, 2148, 32, Write), file(a));
        assert_eq!(t.take(DISK, 100, 16, Write), BlockOwner::Unknown);
    }

    #[test]
    fn commits_write_the_journal() {
        let mut t = tracker(&[
            FileEvent::CommitBegin,
            FileEvent::WritepagesBegin(A),
            bio(0, 8, Write),
            FileEvent::WritepagesEnd,
            meta(8, 8, Write),
            bio(16, 8, Write),
            FileEvent::CommitLogging,
            bio(24, 8, Write),
            FileEvent::CommitEnd,
            bio(32, 8, Write),
        ]);
        let owners = [0, 8, 16, 24, 32].map(|at| t.take(DISK, at, 8, Write));
        let journal = BlockOwner::Journal;
        let unknown = BlockOwner::Unknown;
        assert_eq!(owners, [file(A), journal, unknown, journal, unknown]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut t = OwnerTracker::default();
        for n in 0..3 * MOST_BIOS as u64 {
            t.apply(bio(n * 8, 8, Write), Some(n as u32), n);
            t.apply(added(A, n, 1), Some(n as u32), n);
        }
        assert!(t.bio_count <= MOST_BIOS && t.order.len() <= 2 * MOST_BIOS);
        assert!(t.tasks.len() <= MOST_TASKS && t.crowded > 0);
        t.apply(bio(u64::MAX - 4, u64::MAX, Write), Some(1), 0);
        t.apply(
            FileEvent::Remap { to: span(DISK, u64::MAX, 9), device: DISK, sector: 0 },
            Some(1),
            0,
        );
        assert_eq!(t.take(DISK, u64::MAX, u64::MAX, Write), BlockOwner::Unknown);
    }
}
