//! Requests to block devices: how long they were queued, how long the device took, for whom, and
//! who waited for them; out of events of any recording.
//!
//! ```text
//! RecordedEvent ─ BlockDecoder ─► BlockEvent ─ BlockMachine ─► BlockRequest ─► tables, lines
//!               ─ FileDecoder ──► OwnerTracker ── file ──┘
//!               ─ SchedDecoder ─► TaskMachine ─► waits that a completion ended
//! ```

mod answers;
mod decode;
mod file_decode;
mod machine;
mod names;
mod notes;
mod owners;
mod read;
mod table;

pub(crate) use answers::schemas;
pub use answers::{BlockGrouping, BlockLine};
pub use decode::{BlockDecoder, BlockDevice, BlockEvent, BlockOp, BlockPhase};
pub use file_decode::InodeKey;
pub use machine::{BlockCounts, BlockMachine, BlockRequest};
pub use names::{BlockNames, DeviceNames, FileName, FileNames};
pub use notes::block_notes;
pub use owners::{BlockFile, BlockOwner, OwnerTracker};
pub use read::{BlockConfig, BlockRead, BlockWait, read_block_io};
pub use table::{
    BlockDeviceRow, BlockFileRow, BlockProcess, BlockRow, BlockStats, BlockTable, BlockWaiter,
};

/// Events that it cannot do without.
pub const BLOCK_EVENTS: [&str; 2] = ["block:block_rq_issue", "block:block_rq_complete"];

/// Events that tell more: queues, merges, who waited.
pub const BLOCK_MORE_EVENTS: [&str; 7] = [
    "block:block_rq_insert",
    "block:block_rq_requeue",
    "block:block_rq_merge",
    "block:block_getrq",
    "sched:sched_switch",
    "sched:sched_waking",
    "sched:sched_wakeup_new",
];

/// Events that tell which file a request is for.
pub const BLOCK_FILE_EVENTS: [&str; 19] = [
    "block:block_bio_queue",
    "block:block_bio_remap",
    "ext4:ext4_writepages",
    "ext4:ext4_writepages_result",
    "ext4:ext4_free_inode",
    "iomap:iomap_iter_dstmap",
    "filemap:mm_filemap_add_to_page_cache",
    "writeback:writeback_dirty_folio",
    "writeback:writeback_dirty_page",
    "jbd2:jbd2_start_commit",
    "jbd2:jbd2_commit_logging",
    "jbd2:jbd2_end_commit",
    "jbd2:jbd2_checkpoint",
    "vmscan:mm_vmscan_direct_reclaim_begin",
    "vmscan:mm_vmscan_direct_reclaim_end",
    "vmscan:mm_vmscan_memcg_reclaim_begin",
    "vmscan:mm_vmscan_memcg_reclaim_end",
    "vmscan:mm_vmscan_node_reclaim_begin",
    "vmscan:mm_vmscan_node_reclaim_end",
];
