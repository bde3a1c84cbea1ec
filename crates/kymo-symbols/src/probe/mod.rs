//! Probes: which files a description is about, where their debugging
//! information is, and what the kernel is to be told. Descriptions and
//! definitions are words of `kymo_debuginfo::probe`; files are opened here.

mod companions;
mod definitions;
mod files;
mod index;
mod kallsyms;
mod markers;
mod plan;
mod rooted;
mod safety;
mod sources;

pub use companions::BesideBinary;
pub use definitions::{KeptProbe, KeptProbes};
pub use files::{Kind, OpenError, ProbeFiles};
pub use kallsyms::{kallsyms_functions, plan_by_kallsyms};
pub use plan::{Facts, LineAt, Plan, PlanError, Settings};
pub use safety::{Hazard, Site};
pub use sources::SourceFolders;
