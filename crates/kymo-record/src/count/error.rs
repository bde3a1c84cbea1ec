//! Errors of counting.

use std::io;

use kymo_kernel::events::ParseError;
use kymo_kernel::perf_event::OpenError;
use kymo_kernel::process::SpawnError;
use kymo_kernel::target::TargetError;

use crate::error::RecordError;

/// A count failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CountError {
    #[error("cannot count {event}")]
    Open { event: String, source: OpenError },
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Event(#[from] ParseError),
    #[error(transparent)]
    Events(RecordError),
    #[error("cannot read {event}")]
    Read { event: String, source: io::Error },
    #[error("{what}")]
    System { what: &'static str, source: io::Error },
}

impl From<RecordError> for CountError {
    fn from(error: RecordError) -> CountError {
        match error {
            RecordError::Open { event, source } => CountError::Open { event, source },
            RecordError::Target(error) => CountError::Target(error),
            other => CountError::Events(other),
        }
    }
}

/// Returns a constructor of errors about `what`.
pub(super) fn system(what: &'static str) -> impl Fn(io::Error) -> CountError {
    move |source| CountError::System { what, source }
}
