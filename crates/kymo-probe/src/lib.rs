//! Probes: descriptions that a person types → probe points and variables in a binary →
//! typed definitions that the kernel takes.
//!
//! | step | file |
//! |---|---|
//! | grammar of descriptions, carets under mistakes | `grammar/` |
//! | description → definitions | `resolve.rs`; without debugging information `resolve_by_kallsyms.rs`; of USDT probes `usdt.rs` |
//! | description → probe points by DWARF | `point_finder.rs` |
//! | argument → fetch argument | `fetch_arg.rs`, `value_steps.rs`; of USDT probes `usdt_args.rs` |
//! | variables with their places and types, for programs in the kernel | `located.rs` |
//! | `--line`, `--vars` | `source_lines.rs`, `variables.rs` |
//! | names of events and groups | `naming.rs` |
//! | is it safe to arm a point | `safety.rs` |
//! | which binary is meant; descriptions → changes | `target.rs`, `plan.rs`; the kernel's refusals `refused.rs` |
//! | caches | `index_cache.rs`, `probe_cache.rs` |
//! | cost of a hit, measured | `bench/` |
//!
//! Definitions as words are `kymo_model::probe`; facts of ELF and DWARF are
//! `kymo-debuginfo`'s; files are found by `kymo-symbols`; only `kymo-kernel` changes the
//! kernel's probes.
#![forbid(unsafe_code)]

mod address_line;
pub mod bench;
mod fetch_arg;
mod finder_options;
pub mod grammar;
mod index_cache;
mod located;
pub mod naming;
mod plan;
mod plan_error;
mod point_finder;
mod probe_cache;
mod refused;
mod registers;
mod resolve;
mod resolve_by_kallsyms;
mod safety;
mod source_lines;
mod target;
mod usdt;
mod usdt_args;
mod value_steps;
mod variables;

pub use address_line::AddressLine;
pub use finder_options::{DataNaming, FinderOptions, SymbolLookup};
pub use located::{LocatedPoint, LocatedVariable};
pub use plan::{PlanOptions, PlannedProbes, event_names, plan_probes};
pub use plan_error::PlanError;
pub use point_finder::{PointError, PointFinder, ProbePoint, SourceReader};
pub use probe_cache::{CachedProbe, CachedProbes};
pub use refused::{ExplainedRefusal, explain_refusal};
pub use resolve::{ProbedBinary, ResolveError, ResolveOptions, ResolvedProbe};
pub use resolve_by_kallsyms::{kallsyms_functions, resolve_by_kallsyms};
pub use safety::{PointSafety, ProbeHazard};
pub use source_lines::{SourceLines, source_lines};
pub use target::{ProbeResolver, ProbedTarget};
pub use usdt::usdt_probe_lines;
pub use usdt_args::usdt_fetch_arg;
pub use variables::{PointVariables, SourceVariable};
