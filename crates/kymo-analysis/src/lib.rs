//! Counting samples: profiles, call trees, histograms.
#![forbid(unsafe_code)]

mod addresses;
pub mod chain_tree;
mod counting;
mod frames;
pub mod histogram;
pub mod oncpu;
pub mod profile;
mod samples;
pub mod seen;
