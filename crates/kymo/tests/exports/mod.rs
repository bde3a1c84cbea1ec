//! Readers of the exported formats, written from their public descriptions, not
//! from the writers.

pub(crate) mod firefox;
pub(crate) mod pprof;
pub(crate) mod speedscope;
