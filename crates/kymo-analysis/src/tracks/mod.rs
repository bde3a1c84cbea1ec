//! Recordings as tracks over time for who draws them: CPUs with who runs on them, tasks with
//! their states and system calls, wake-ups, events, and spans in which events were lost.
//!
//! ```text
//! RecordedEvent ─ OffCpuReader ──► TaskInterval ─┐
//!               ─ SyscallDecoder ► entry, exit ──┼► SpanTrack ─ pyramid ► levels of bins
//!               ─ KworkDecoder ──► entry, exit ──┘
//! ```
//!
//! Intervals of tasks are those that `kymo offcpu` counts, so that sums are the same.
//! Everything is kept packed, as it is drawn later: memory is some bytes for each event.

mod counters;
mod cpu_work;
mod density;
mod event_list;
mod overview;
mod packed;
mod program_spans;
mod pyramid;
mod read;
mod span_track;
mod switch_list;
mod task_list;

pub use counters::{CounterOwner, CounterTrack, counted_fields};
pub use cpu_work::CpuWork;
pub use density::{ReadSoFar, TrackProgress};
pub use event_list::{EVENTS_PER_CHUNK, EventChunk, EventList, ListedEvent};
pub use overview::OverviewBin;
pub use packed::{Columns, DeflateEffort, DeflatedBytes, push_number};
pub use program_spans::{SpanRole, ThreadSpans};
pub use pyramid::{PyramidLevel, build_pyramids};
pub use read::{TraceTracks, TrackConfig, TrackCounts, TrackWakeup, WakeupList, read_tracks};
pub use span_track::{SPANS_PER_CHUNK, SpanChunk, SpanTrack, TrackSpan};
pub use switch_list::{ListedChange, ListedSwitch, SwitchList};
pub use task_list::TrackTask;

/// A task runs; the CPU is in the number above the flags.
pub const RUNNING: u32 = 0;
/// A task waits for a CPU; the number of the cause (`OffCpuCause`) is above the flags of waits.
pub const RUNNABLE: u32 = 1;
/// A task sleeps (`S`).
pub const SLEEPING: u32 = 2;
/// A task waits, and cannot be interrupted (`D`).
pub const UNINTERRUPTIBLE: u32 = 3;
/// A task waits in another state (`T`, `t`, `I`, `P`), or in one that was not seen.
pub const OTHER_WAIT: u32 = 4;
/// Bits of a span's number that are the state.
pub const STATE_BITS: u32 = 3;
/// Flag beside the state: it continues when the recording ends.
pub const OPEN: u32 = 1 << STATE_BITS;
/// Flag beside the state: events were lost in the span, or a switch is missing.
pub const UNCERTAIN: u32 = 2 << STATE_BITS;
/// Bits of a span's number that are state and flags.
pub const DETAIL_SHIFT: u32 = STATE_BITS + 2;

/// The state of a span of a task.
pub fn span_state(code: u32) -> u32 {
    code & ((1 << STATE_BITS) - 1)
}
