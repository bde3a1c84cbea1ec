//! [`Stacks`](crate::stacks::Stacks) in the formats of other programs.

pub mod folded;
pub mod pprof;
mod proto;
