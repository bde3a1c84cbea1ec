//! Flags that several commands share.

pub(crate) mod contents;
pub(crate) mod event_filters;
pub(crate) mod events;
pub(crate) mod probes;
pub(crate) mod samples;
pub(crate) mod switch;
pub(crate) mod symbols;
pub(crate) mod tables;
pub(crate) mod targets;
pub(crate) mod values;
