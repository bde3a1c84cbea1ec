//! The one door to the machine: perf events, tracefs, sysfs, /proc.
//!
//! Every system call and every file under `/sys` and `/proc` that kymo touches
//! goes through here, so that the crates above stay free of `unsafe` and can be
//! tested against directories that only look like a machine; `cargo xtask tidy` holds
//! the exceptions.
//!
//! - what the system is: [`system`], [`kernel_log`], [`cpus`], [`clock`], [`pmu`], [`vmstat`]
//! - processes: [`process`], [`ptrace`], [`calendar`], [`target`], [`proc_maps`], [`memory`]
//! - the kernel's code: [`kallsyms`], [`kcore`], [`vdso`]
//! - the terminal: [`terminal`], [`terminal_output`]
//! - files: [`regular_file`], [`output_file`], [`mapped`], [`shared`], [`file_space`],
//!   [`descriptors`]
//! - events: [`events`], [`perf_event`], [`tracefs`], [`ftrace`]
//! - programs in the kernel: [`bpf`]
//! - programs to be recorded: [`workloads`]
//! - probes: [`kprobes`], [`probe_events`], [`probe_guard`], [`probe_notes`]

pub mod blocked;
pub mod bpf;
pub mod calendar;
pub mod clock;
pub mod cpu_quota;
pub mod cpus;
pub mod descriptors;
pub mod errno;
pub mod events;
pub mod file_space;
pub mod ftrace;
pub mod kallsyms;
pub mod kcore;
pub mod kernel_log;
pub mod kprobes;
mod lockdown;
pub mod mapped;
pub mod memory;
pub mod opaque_mapping;
pub mod output_file;
pub mod perf_event;
pub mod perf_ring;
pub mod pmu;
pub mod probe_events;
pub mod probe_guard;
pub mod probe_notes;
pub mod proc_maps;
pub mod process;
pub mod ptrace;
pub mod regular_file;
pub mod sandbox;
pub mod schedstat;
pub mod shared;
pub mod system;
mod system_root;
pub mod target;
pub mod task_ends;
pub mod terminal;
pub mod terminal_output;
pub mod tracefs;
pub mod vdso;
pub mod vmstat;
pub mod workloads;
