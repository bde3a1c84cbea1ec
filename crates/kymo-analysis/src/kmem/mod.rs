//! Memory of the kernel: what was allocated by whom and is not freed, out of events of the slab
//! and the page allocator of any recording.
//!
//! ```text
//! RecordedEvent ─ KmemDecoder ─► KmemEvent ─┬─ SlabTable
//!                                           ├─ PageTable
//!                                           └─ PageProcesses
//! ```
//!
//! Which allocations count is chosen by their time, CPU and task; frees count with the
//! allocation they end.

mod answers;
mod decode;
mod live_objects;
mod notes;
mod page_blocks;
mod page_chains;
mod page_processes;
mod pages;
mod read;
mod slab;
mod stack_wait;

pub(crate) use answers::schemas;
pub use answers::{KmemTables, PageallocTables};
pub use decode::{KmemDecoder, KmemEvent, PAGE_EVENTS, PAGE_STEP_EVENTS, SLAB_EVENTS};
pub use notes::{page_notes, process_notes, slab_notes};
pub use page_chains::{ChainRow, PageChains};
pub use page_processes::{PageProcesses, ProcessRow};
pub use pages::{MIGRATE_TYPES, PageAllocRow, PageCallerRow, PageSum, PageTable};
pub use read::{KmemConfig, KmemRead, read_kmem};
pub use slab::{SlabAllocRow, SlabCallerRow, SlabTable};
