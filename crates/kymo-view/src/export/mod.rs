//! [`Stacks`](crate::stacks::Stacks) in the formats of other programs.

pub mod chrome;
pub mod firefox;
pub mod flame;
pub mod folded;
mod instants;
mod json;
pub mod perfetto;
pub mod pprof;
mod proto;
pub mod speedscope;
