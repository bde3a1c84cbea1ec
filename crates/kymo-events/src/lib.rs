//! The event layer: recordings of any format, or live sources, as one stream of typed
//! events in time order. Nothing above it knows a file format.
//!
//! [`perf_data`], [`trace_dat`] and [`ctf`] turn the records of one format into events;
//! [`state`] is what the sideband says of tasks and mappings, [`chain`] and [`unwind`]
//! make call chains of samples, [`payload`] renders tracepoints by their print formats.
#![forbid(unsafe_code)]

pub mod chain;
pub mod ctf;
mod event_filter;
mod mapped;
pub mod payload;
pub mod perf_data;
pub mod running_kernel;
pub mod state;
mod tally;
pub mod trace_dat;
pub mod unwind;

pub use event_filter::{EventConditions, EventFilter, EventFilterError, EventHead, parse_times};
pub use mapped::map;
