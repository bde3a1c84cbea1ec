//! Tasks and CPUs over time: who runs, who waits for a CPU and why, who sleeps, woken by whom;
//! out of scheduler events of any recording.
//!
//! ```text
//! RecordedEvent ─ SchedDecoder ─► SchedEvent ─ TaskMachine ─► Transition ─► table, lines, map
//! ```
//!
//! Words are perf's: *run time* is time on a CPU, *wait time* is time between two runs, and
//! *scheduling delay* the part of it in which the task could have run.

mod answers;
mod decode;
mod latency;
mod lines;
mod machine;
mod notes;
mod read;
mod runtime;
mod slices;
mod switch_state;
mod task;
mod thread_map;
mod wait;

pub(crate) use answers::schemas;
pub use decode::{
    EXIT_EVENT, SCHED_EVENTS, SchedDecoder, SchedEvent, TaskRef, WakeupContext, WakeupKind,
};
pub(crate) use latency::delay_columns;
pub use latency::{DelayStats, LatencyConfig, LatencyRow, LatencyTable, LongestDelay};
pub use lines::{MapLine, OtherLine, RuntimeSummary, SwitchLine};
pub use machine::{RunWithoutEnd, SchedCounts, SwitchIn, SwitchOut, TaskMachine, Transition};
pub use notes::sched_notes;
pub use read::{SchedRead, SchedReader, SchedSelection, SchedSink, SchedStep, read_sched};
pub use runtime::{IdleTime, RunSummary, RuntimeRow, RuntimeTable};
pub use slices::{SpanState, StateSpan, ended_spans, open_spans, span_without_end};
pub use switch_state::SwitchOutState;
pub use task::{SchedTask, TaskId, TaskState, TaskTable, Wakeup};
pub use wait::{Wait, WaitCause};
