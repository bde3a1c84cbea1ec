//! Flags that several commands share.

pub(crate) mod events;
pub(crate) mod samples;
pub(crate) mod symbols;
