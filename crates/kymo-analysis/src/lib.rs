//! Merging, task and mapping state, call graphs, histograms.
#![forbid(unsafe_code)]

mod addresses;
pub mod chain;
pub mod chain_tree;
mod counting;
mod frames;
pub mod histogram;
mod mapped;
pub mod oncpu;
pub mod profile;
mod samples;
pub mod seen;
pub mod state;
mod tally;
pub mod unwind;
