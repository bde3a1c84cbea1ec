//! Counting samples: profiles, call trees, histograms; and the state of tasks and CPUs over
//! time (`tasks`), memory of the kernel (`kmem`), its
//! interrupts and work items (`kwork`), system calls
//! (`syscalls`), block requests (`block_io`), boots (`boot`); all of it as tracks for who
//! draws them (`tracks`); and of samples while they come (`live_profile`).
#![forbid(unsafe_code)]

pub mod activity;
mod addresses;
pub mod binary_filter;
pub mod block_io;
pub mod boot;
pub mod bundle;
pub mod call_sites;
pub mod chain_tree;
pub mod code_listing;
mod counting;
pub mod critical_path;
pub mod durations;
pub mod event_groups;
mod event_table;
mod frames;
pub mod function_cost;
pub mod histogram;
pub mod kmem;
pub mod kwork;
pub mod live_profile;
pub mod locks;
pub mod losses;
pub mod offcpu;
pub mod oncpu;
pub mod payload_labels;
pub mod payload_weights;

pub mod profile;
pub mod record_overview;
pub mod referenced_addresses;
pub mod report_config;
mod running_threads;
pub mod sample_reads;
mod samples;
pub mod syscalls;
pub mod task_activity;
pub mod tasks;
pub mod timechart;
pub mod tracks;

/// Definitions of all answers that are tables.
pub fn answer_schemas() -> Vec<kymo_table::AnswerSchema> {
    let mut all = Vec::new();
    all.extend(block_io::schemas());
    all.extend(boot::schemas());
    all.extend(kmem::schemas());
    all.extend(kwork::schemas());
    all.extend(locks::schemas());
    all.extend(offcpu::schemas());
    all.extend(critical_path::schemas());
    all.extend(syscalls::schemas());
    all.extend(tasks::schemas());
    all
}

/// A share in percent; nothing of nothing is nothing.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
pub use event_table::{EventEntry, EventKey, EventTable, EventTableConfig, KeyError};
