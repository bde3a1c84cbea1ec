//! Events that say which file a block request is for: bios, their way to other devices, and what
//! file systems and the page cache tell of inodes.

use kymo_events::{FieldReader, FieldType, LayoutMemo, RecordedClass, RecordedEvent};

use super::decode::{BlockDevice, BlockOp};

/// Bit of LTTng's flags for metadata.
const LTTNG_META: i64 = 1 << 6;

/// An inode, as an event names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeKey {
    /// Device of its file system.
    pub device: BlockDevice,
    /// Its number there.
    pub inode: u64,
}

/// Sectors of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SectorSpan {
    /// The device.
    pub(super) device: BlockDevice,
    /// First sector of 512 bytes.
    pub(super) sector: u64,
    /// Number of sectors.
    pub(super) sectors: u64,
}

impl SectorSpan {
    pub(super) fn end(&self) -> u64 {
        self.sector.saturating_add(self.sectors)
    }
}

/// Decoded event of a file system or of the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileEvent {
    /// A bio is submitted.
    Bio { span: SectorSpan, op: BlockOp, is_meta: bool },
    /// A bio is sent to other sectors, or to those of the disk that has the partition.
    Remap { to: SectorSpan, device: BlockDevice, sector: u64 },
    /// ext4 begins to write pages of an inode back, in this task.
    WritepagesBegin(InodeKey),
    /// It ends.
    WritepagesEnd,
    /// iomap maps bytes of an inode to bytes of a device.
    Mapping { file: InodeKey, device: BlockDevice, address: u64, length: u64 },
    /// Pages are added to the page cache.
    PagesAdded { file: InodeKey, index: u64, pages: u64 },
    /// A page becomes dirty.
    PageDirty { inode: u64 },
    /// jbd2 begins a commit, in this task.
    CommitBegin,
    /// From here it writes the journal only.
    CommitLogging,
    /// The commit ends.
    CommitEnd,
    /// The task writes back metadata to make room in the journal.
    Checkpoint,
    /// The task begins to reclaim memory.
    ReclaimBegin,
    /// It ends.
    ReclaimEnd,
    /// An inode is freed: its number may become that of a new one.
    InodeFreed(InodeKey),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileEventKind {
    Bio,
    Remap,
    WritepagesBegin,
    WritepagesEnd,
    Mapping,
    PagesAdded,
    PageDirty,
    CommitBegin,
    CommitLogging,
    CommitEnd,
    Checkpoint,
    ReclaimBegin,
    ReclaimEnd,
    InodeFreed,
}

/// Events that tell when the page cache's pages are not read, and when a task writes what is not
/// the file's: without them nothing is certain.
pub(super) const GUARD_EVENTS: [&str; 2] =
    ["writeback:writeback_dirty_folio", "vmscan:mm_vmscan_direct_reclaim_begin"];

const KINDS: [(&str, FileEventKind); 19] = [
    ("block:block_bio_queue", FileEventKind::Bio),
    ("block:block_bio_remap", FileEventKind::Remap),
    ("ext4:ext4_writepages", FileEventKind::WritepagesBegin),
    ("ext4:ext4_writepages_result", FileEventKind::WritepagesEnd),
    ("iomap:iomap_iter_dstmap", FileEventKind::Mapping),
    ("filemap:mm_filemap_add_to_page_cache", FileEventKind::PagesAdded),
    ("writeback:writeback_dirty_folio", FileEventKind::PageDirty),
    ("jbd2:jbd2_start_commit", FileEventKind::CommitBegin),
    ("jbd2:jbd2_commit_logging", FileEventKind::CommitLogging),
    ("jbd2:jbd2_end_commit", FileEventKind::CommitEnd),
    ("jbd2:jbd2_checkpoint", FileEventKind::Checkpoint),
    ("vmscan:mm_vmscan_direct_reclaim_begin", FileEventKind::ReclaimBegin),
    ("vmscan:mm_vmscan_direct_reclaim_end", FileEventKind::ReclaimEnd),
    ("vmscan:mm_vmscan_memcg_reclaim_begin", FileEventKind::ReclaimBegin),
    ("vmscan:mm_vmscan_memcg_reclaim_end", FileEventKind::ReclaimEnd),
    ("vmscan:mm_vmscan_node_reclaim_begin", FileEventKind::ReclaimBegin),
    ("vmscan:mm_vmscan_node_reclaim_end", FileEventKind::ReclaimEnd),
    ("ext4:ext4_free_inode", FileEventKind::InodeFreed),
    // What kernels before 5.16 call it.
    ("writeback:writeback_dirty_page", FileEventKind::PageDirty),
];

/// Fields by the order in which the kind has them.
#[derive(Clone, Debug)]
struct FilePlan {
    kind: FileEventKind,
    fields: Vec<FieldReader>,
    /// Number of pages as a power of two; older kernels add pages one by one.
    order: Option<FieldReader>,
    rwbs: Option<(FieldReader, bool)>,
}

impl FilePlan {
    fn of(class: &RecordedClass) -> Option<FilePlan> {
        let (_, kind) = *KINDS.iter().find(|(name, _)| class.is_named(name))?;
        let names: &[&str] = match kind {
            FileEventKind::Bio => &["dev", "sector", "nr_sector"],
            FileEventKind::Remap => &["dev", "sector", "nr_sector", "old_dev", "old_sector"],
            FileEventKind::WritepagesBegin | FileEventKind::InodeFreed => &["dev", "ino"],
            FileEventKind::Mapping => &["dev", "ino", "bdev", "addr", "length"],
            FileEventKind::PagesAdded => &["s_dev", "i_ino", "index"],
            FileEventKind::PageDirty => &["ino"],
            _ => &[],
        };
        let reader = |name: &&str| class.field(name).map(|id| class.reader(id));
        let fields = names.iter().map(reader).collect::<Option<Vec<FieldReader>>>()?;
        let rwbs = match kind {
            FileEventKind::Bio => {
                let id = class.field("rwbs")?;
                let is_text = class.field_desc(id)?.field_type == FieldType::Text;
                Some((class.reader(id), is_text))
            }
            _ => None,
        };
        Some(FilePlan { kind, fields, order: reader(&"order"), rwbs })
    }

    fn decode(&self, event: &RecordedEvent<'_>) -> Option<FileEvent> {
        let fields = event.fields();
        let number = |at: usize| {
            let reader = self.fields.get(at)?;
            fields.read_integer(reader).map(|n| n as u64)
        };
        let device = |at: usize| number(at).map(|n| BlockDevice(n as u32));
        let inode = || Some(InodeKey { device: device(0)?, inode: number(1)? });
        let span = || {
            let sectors = number(2)? & 0xffff_ffff;
            Some(SectorSpan { device: device(0)?, sector: number(1)?, sectors })
        };
        Some(match self.kind {
            FileEventKind::Bio => {
                let (reader, is_text) = self.rwbs.as_ref()?;
                let (op, is_meta) = if *is_text {
                    let rwbs = fields.read_text(reader);
                    (BlockOp::of_text(&rwbs), rwbs.contains(&b'M'))
                } else {
                    let flags = fields.read_integer(reader)?;
                    (BlockOp::of_flags(flags), flags & LTTNG_META != 0)
                };
                FileEvent::Bio { span: span()?, op, is_meta }
            }
            FileEventKind::Remap => {
                FileEvent::Remap { to: span()?, device: device(3)?, sector: number(4)? }
            }
            FileEventKind::WritepagesBegin => FileEvent::WritepagesBegin(inode()?),
            FileEventKind::WritepagesEnd => FileEvent::WritepagesEnd,
            FileEventKind::Mapping => FileEvent::Mapping {
                file: inode()?,
                device: device(2)?,
                address: number(3)?,
                length: number(4)?,
            },
            FileEventKind::PagesAdded => {
                let order = self.order.as_ref().and_then(|f| fields.read_integer(f)).unwrap_or(0);
                let pages =
                    1u64.checked_shl(u32::try_from(order).ok()?).filter(|n| *n < 1 << 32)?;
                FileEvent::PagesAdded { file: inode()?, index: number(2)?, pages }
            }
            FileEventKind::PageDirty => FileEvent::PageDirty { inode: number(0)? },
            FileEventKind::CommitBegin => FileEvent::CommitBegin,
            FileEventKind::CommitLogging => FileEvent::CommitLogging,
            FileEventKind::CommitEnd => FileEvent::CommitEnd,
            FileEventKind::Checkpoint => FileEvent::Checkpoint,
            FileEventKind::ReclaimBegin => FileEvent::ReclaimBegin,
            FileEventKind::ReclaimEnd => FileEvent::ReclaimEnd,
            FileEventKind::InodeFreed => FileEvent::InodeFreed(inode()?),
        })
    }
}

/// Whether these classes have all events that show which pages are not read.
pub(super) fn has_guards(classes: &[RecordedClass]) -> bool {
    GUARD_EVENTS.iter().all(|name| {
        let wanted = KINDS.iter().find(|(n, _)| n == name).map(|(_, kind)| *kind);
        let kind = |c: &RecordedClass| FilePlan::of(c).map(|plan| plan.kind);
        classes.iter().any(|class| kind(class).is_some_and(|k| Some(k) == wanted))
    })
}

/// Decodes events, class by class.
#[derive(Debug, Default)]
pub(super) struct FileDecoder {
    plans: LayoutMemo<Option<FilePlan>>,
    /// Whether there are events of bios.
    pub(super) has_bios: bool,
    /// Events that lack a field, or end before it.
    pub(super) malformed: u64,
}

impl FileDecoder {
    /// Decodes the event, if it is about files.
    #[inline]
    pub(super) fn decode(&mut self, event: &RecordedEvent<'_>) -> Option<FileEvent> {
        let has_bios = &mut self.has_bios;
        let plan = self.plans.get_or_make(event.class, |class| {
            let plan = FilePlan::of(class);
            *has_bios |= plan.as_ref().is_some_and(|p| p.kind == FileEventKind::Bio);
            plan
        });
        let plan = plan?.as_ref()?;
        let decoded = plan.decode(event);
        self.malformed += u64::from(decoded.is_none());
        decoded
    }
}
