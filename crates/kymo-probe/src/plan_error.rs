//! Errors of planning probes from descriptions.

use std::io;

use kymo_kernel::probe_events::ProbeError;
use kymo_kernel::tracefs::TracefsError;

use crate::grammar::GrammarError;
use crate::naming::NamingError;
use crate::resolve::ResolveError;

/// Error of planning probes from descriptions.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PlanError {
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error(transparent)]
    Naming(#[from] NamingError),
    #[error(transparent)]
    Probes(#[from] ProbeError),
    #[error(transparent)]
    Tracefs(#[from] TracefsError),
    #[error("{0}")]
    NoFiles(String),
    #[error("cannot read /proc/kallsyms: {0}")]
    Kallsyms(io::Error),
    #[error("{point} needs debugging information: {missing}")]
    NeedsDebuginfo { point: String, missing: String },
    #[error("{point}: {what}; {advice} (kymo probe --force adds it anyway)")]
    Hazard { point: String, what: String, advice: String },
}
