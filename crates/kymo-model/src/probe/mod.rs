//! Probe definitions as typed values: kind, group, event, target and fetch arguments,
//! with `Display` in the kernel's syntax (`kprobe_events`, `uprobe_events`) and a parser
//! of the kernel's own listing. Pure words, so that both `kymo-probe`, which makes
//! definitions, and `kymo-kernel`, which hands them to the kernel, see the same type.

mod bootconfig;
mod definition;
mod fetch;
mod parse;

pub use bootconfig::{BootConfigError, bootconfig_lines};
pub use definition::{ProbeDefinition, ProbeKind, ProbeTarget};
pub use fetch::{Dereference, FetchArg, FetchBase, FetchExpr, FetchType, IntegerFormat};
