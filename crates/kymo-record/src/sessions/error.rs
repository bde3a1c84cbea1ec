//! Errors of session operations.

use crate::ftrace::TraceError;
use crate::ust::UstError;

/// Error of a session operation.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Its part in the kernel.
    #[error(transparent)]
    Kernel(#[from] TraceError),
    /// Its part in programs.
    #[error(transparent)]
    Programs(#[from] UstError),
    /// There is none, or it cannot do that.
    #[error("{0}")]
    Session(String),
}

impl SessionError {
    /// It is not there any more.
    pub(crate) fn is_missing(&self) -> bool {
        match self {
            SessionError::Kernel(e) => e.is_missing(),
            SessionError::Programs(UstError::Shared(e)) => e.is_missing(),
            _ => false,
        }
    }
}
