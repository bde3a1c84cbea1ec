//! The event layer: recordings of any format, or live sources, as one stream of typed
//! events in time order. Nothing above it knows a file format.
//!
//! [`perf_data`], [`trace_dat`] and [`ctf`] turn the records of one format into events;
//! [`live`] does the same with rings that are read while they are written;
//! [`state`] is what the sideband says of tasks and mappings, [`chain`] and [`unwind`]
//! make call chains of samples, [`payload`] renders tracepoints by their print formats.
#![forbid(unsafe_code)]

mod address;
mod cgroup_pattern;
pub mod chain;
mod chain_frames;
mod clock_unit;
pub mod ctf;
mod event;
mod event_fields;
mod event_switch;
mod field_type;
mod filter;
mod layout_memo;
pub mod live;
pub mod losses;
mod mapped;
pub mod name_map;
pub mod payload;
pub mod perf_data;
pub mod running_kernel;
mod schema;
mod selection;
mod selection_census;
mod source;
pub mod state;
pub mod state_history;
mod task_info;
mod task_tree;
pub mod trace_dat;
pub mod unwind;
mod unwind_tally;
mod value;
pub mod worker_pool;

pub use kymo_kernel::blocked::BlockedThread;

pub use address::{BinaryAddress, CodeAddress};
pub use chain_frames::{AddressState, ChainFacts, ChainFrame, ChainResolver};
pub use clock_unit::ClockUnit;
pub use event::{EventStack, KernelPayload, ProgramPayload, RecordedEvent, TaskComm, TaskInfo};
pub use event_fields::{EventFields, FieldReader};
pub use event_switch::{EventSwitch, SwitchState};
pub use field_type::{FieldRole, FieldType};
pub use filter::{BoundFilter, FilterExpr, FilterExprError};
pub use layout_memo::LayoutMemo;
pub use mapped::map;
pub use schema::{
    ClassOrigin, CtfClass, FieldDesc, FieldId, FieldPart, FunctionEvent, LayoutId, RecordedClass,
};
pub use selection::{EventHead, EventSelection, SelectionError, parse_times};
pub use selection_census::RecordedExtent;
pub use source::{
    ClassCounts, CommandWatch, EventConsumer, EventDigester, EventPass, EventSource, PerfItem,
    ReadOptions, ReadSummary, RecordedCommand, SampleSelector, SourceError, SourcePiece,
    TeedBatches, clock_name, is_ctf_damaged, is_damaged, is_trace_dat_damaged, note_blocked,
    note_unfinished, notes_on_ctf, notes_on_perf_data, notes_on_timeline, notes_on_trace_dat,
    notes_on_trace_data,
};
pub use task_tree::TaskTree;
pub use value::FieldValue;
