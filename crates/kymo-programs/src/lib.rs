//! Programs in the kernel: a text of bpftrace's language is compiled, its maps created, its
//! instructions loaded and attached, its records acted on, its maps printed as bpftrace
//! prints them.
//!
//! | step | file |
//! |---|---|
//! | answers for the compiler | `facts/` |
//! | maps and programs into the kernel | `load.rs` |
//! | probes to events | `attach.rs` |
//! | the run, from BEGIN to END | `running.rs`; records `actions.rs` |
//! | bytes → values | `value.rs`, `series.rs`, `address_names.rs` |
//! | values → text, JSON | `output/` |
//! | the same in user space, on events that are handed over | `interpreted.rs` |
//! | maps, in the kernel or here | `maps.rs` |
//! | packets of `skboutput()` → pcap | `packets.rs` |
//! | what was lost | `losses.rs` |
//! | what it costs | before: `preflight.rs`; while it runs: `budget.rs` |
//! | `-l` | `list.rs` |
//! | memory of system calls | `call_texts.rs` |
#![forbid(unsafe_code)]

mod actions;
mod address_names;
mod attach;
mod budget;
mod bytes;
mod call_span;
mod call_texts;
mod child_watch;
mod error;
mod facts;
mod interpreted;
mod list;
mod load;
mod losses;
mod mapping_watch;
mod maps;
mod output;
mod packets;
mod preflight;
mod running;
mod runtime_errors;
mod self_tests;
mod series;
mod value;
mod watchpoints;

pub use actions::{MapListener, ProgramSinks};
pub use call_span::end_of_call;
pub use call_texts::{CallEntry, CallTexts, ReadTasks};
pub use error::ProgramError;
pub use facts::{FunctionList, MachineFacts, ProbeFilter};
pub use interpreted::{EventPoint, InterpretedProgram, bpf_refusal};
pub use list::{list_points, list_program};
pub use output::{OutputForm, PrintedMap};
pub use preflight::{ProbeCost, measure_costs};
pub use running::{
    ProgramMode, ProgramOptions, ProgramSummary, RunState, RunningProgram, compile_program,
    verify_program,
};
pub use runtime_errors::WarningLevel;
pub use value::{HistogramBucket, ProgramValue};
