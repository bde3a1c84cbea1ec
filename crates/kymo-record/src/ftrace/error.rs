//! Errors of recording a trace.

use std::io;
use std::path::PathBuf;

use kymo_files::tracedat::write::WriteError;
use kymo_kernel::errno;
use kymo_kernel::ftrace::FtraceError;
use kymo_kernel::process::SpawnError;
use kymo_kernel::target::TargetError;
use kymo_kernel::tracefs::TracefsError;

use super::stream::SendError;
use crate::error::RecordError;

/// A recording through the ftrace ring failed; what had been written is named
/// where there is any.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TraceError {
    #[error(transparent)]
    Ftrace(#[from] FtraceError),
    #[error("{flag}: {error}")]
    Flag { flag: &'static str, error: FtraceError },
    #[error(transparent)]
    Tracefs(#[from] TracefsError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Output(#[from] RecordError),
    #[error(transparent)]
    Format(#[from] WriteError),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error("{error}; {missing}")]
    Sent { error: Box<SendError>, missing: String },
    #[error(
        "cannot write {}: {error} ({kept} bytes of events were written before and can be read)",
        path.display()
    )]
    Write { path: PathBuf, error: io::Error, kept: u64 },
    #[error(transparent)]
    Programs(#[from] crate::ust::UstError),
    #[error("cannot read the ring: {0}")]
    Ring(io::Error),
    #[error("{what}: {error}")]
    System { what: &'static str, error: io::Error },
    #[error("{0}")]
    Session(String),
    #[error("{0}")]
    Condition(String),
    #[error(transparent)]
    Text(#[from] super::condition::ConditionError),
    #[error("cannot write {}: {error}", path.display())]
    State { path: PathBuf, error: io::Error },
    #[error("{} is not a regular file: pages of several CPUs go to places of their own in it", .0.display())]
    NotAFile(PathBuf),
}

impl TraceError {
    /// Something in tracefs is not there (any more).
    pub(crate) fn is_missing(&self) -> bool {
        let gone = [errno::ENOENT, errno::ENODEV];
        match self {
            TraceError::Ftrace(e) => matches!(e.errno(), Some(errno) if gone.contains(&errno)),
            _ => false,
        }
    }
}
