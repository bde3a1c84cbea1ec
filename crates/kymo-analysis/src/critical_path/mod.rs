//! Critical path of a task, or of a span of a program's events, backwards through wake-ups to the
//! work that was done meanwhile.
//!
//! ```text
//! SchedEvent ─ TaskMachine ─► RunHistory (runs with their waits and wakers)
//! task, from..to ─ walk backwards ─► PathSegment … ─ stacks of their ends ─► kinds, culprits
//! ```
//!
//! Where the task runs or waits for a CPU, that is the path. Where it is blocked, the path of
//! the blocked time is what its waker did in that time, and so on; what an interrupt ends is
//! the path itself: time, a disk, the network. So the segments of a path cover its time
//! without gaps, and none counts twice.

mod answers;
mod collect;
mod history;
mod notes;
mod path;
mod span;
mod stacks;
mod wake_source;
mod walk;
mod work_items;

pub(crate) use answers::schemas;
pub use collect::{PathConfig, PathTarget, find_paths};
pub use notes::path_notes;
pub use path::{
    CriticalPath, PathCulprit, PathKind, PathLine, PathSegment, PathTable, PathTask, PathTaskId,
    SpanStats,
};
pub use span::{SpanError, SpanExpr};
pub use wake_source::WakeSource;
pub use work_items::WORK_EVENTS;
