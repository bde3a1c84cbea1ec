//! The words between traced programs and the tool (`docs/formats/ust.md`): the control
//! file of a program, its event records, its counters, channel configurations, and filters. Bytes in,
//! values out; nothing is opened or mapped here. Rings are in `kymo-ring`.
//!
//! What a program needs while it runs (matching, linking and running a filter) allocates
//! nothing: it may happen in a signal handler.
#![forbid(unsafe_code)]

mod bytes;
mod channel_config;
mod control;
mod counter_totals;
mod counters;
mod decompile;
mod error;
mod event;
mod field;
mod filter;
mod filter_check;
mod filter_compile;
mod glob;

pub use channel_config::{
    ChannelConfig, ChannelConfigView, EventRule, MAX_CHANNEL_CONFIG, Pids, RuleView, is_for,
};
pub use control::{
    CONTROL_HEADER, CONTROL_MAGIC, Control, MAX_EVENTS, SLOT, SLOT_PATH, SLOTS, SLOTS_AT, Slot,
    SlotAnswer, SlotState, enable_at, slot_at,
};
pub use counter_totals::{CountedUnder, CounterRow, CounterTotals};
pub use counters::{
    COUNTER_ANCESTORS, COUNTER_AREA, COUNTER_RECORD, COUNTERS_HEADER, COUNTERS_MAGIC, CountedKey,
    CounterKind, CounterRecord, CounterValue, CountersHeader, HISTOGRAM_BUCKETS,
    HISTOGRAM_EXTREMES, HistogramCounts, KEY_BYTES, KEY_ENTRY, MAX_COUNTER_AREAS, MAX_COUNTERS,
    bucket_of, bucket_range, to_ordered,
};
pub use decompile::decompile;
pub use error::{FilterError, UstFormatError};
pub use event::{EventFlags, EventRecord, EventWords, FieldRecord, FieldWords};
pub use field::{FieldTag, Shape};
pub use filter::{Fields, Filter, InRange};
pub use filter_check::{FilterMismatch, MismatchReason};
pub use filter_compile::compile;
pub use glob::matches;
