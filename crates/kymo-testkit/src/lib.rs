//! Helpers shared by tests of several crates: the check whether this machine has what the test
//! needs, programs with a known shape to run, the peers to compare with, and snapshots of tracefs
//! before and after.
//!
//! A test that needs something starts with
//!
//! ```no_run
//! use kymo_testkit::{Need, require};
//! if !require(&[Need::Root, Need::Tracefs]) {
//!     return;
//! }
//! ```
#![forbid(unsafe_code)]

mod cgroup;
mod guest;
mod json_schema;
mod kernel_debug;
mod ledger;
mod lttng;
mod need;
mod no_idle_cpus;
mod peer;
mod perf_data_rules;
mod perf_tests;
mod run;
mod tracepoints;
mod tracing_state;
mod workload;

pub use cgroup::{QuotaCgroup, TestCgroup};
pub use guest::{LEFT_FOR_THE_GUEST, guest, load_module, unload_module};
pub use json_schema::JsonSchema;
pub use kernel_debug::{KernelDebug, kernel_debug, kernel_source};
pub use ledger::{ledger_of, page_with_ledger};
pub use lttng::{Lttng, LttngSession};
pub use need::{Need, require};
pub use no_idle_cpus::NoIdleCpus;
pub use peer::{Peer, newest_peers, peer};
pub use perf_data_rules::{CheckedPerfData, check_perf_data};
pub use perf_tests::{PerfProgram, PerfTestOutcome, PerfTests};
pub use run::{Outcome, UNPRIVILEGED_UID, Unprivileged, lines_with, perf, run, run_command};
pub use tracepoints::tracepoint_library;
pub use tracing_state::TracingState;
pub use workload::Workload;

/// A directory that a task of xtask made in cargo's target directory. Where
/// `CARGO_BUILD_BUILD_DIR` puts what cargo builds, the test program is not below it.
pub(crate) fn in_target(name: &str) -> Option<std::path::PathBuf> {
    // The test program is at `<target>/…/deps/NAME`.
    let program = std::env::current_exe().ok()?;
    let workspace = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let mut places = program.ancestors().chain([workspace.as_path()]).map(|at| at.join(name));
    places.find(|place| place.is_dir())
}
