//! The one door to the machine: perf events, tracefs, sysfs, /proc.
//!
//! Every system call and every file under `/sys` and `/proc` that kymo touches
//! goes through here, so that the crates above stay free of `unsafe` and can be
//! tested against folders that only look like a machine.

pub mod cpus;
pub mod events;
pub mod ftrace;
pub mod kallsyms;
pub mod kprobes;
pub mod mapped;
pub mod memory;
pub mod perf_event;
pub mod pmu;
pub mod probe_events;
pub mod probe_guard;
pub mod probe_notes;
pub mod proc_maps;
pub mod process;
pub mod ring;
pub mod shared;
pub mod target;
pub mod tracefs;
pub mod untouched;
pub mod vmstat;
