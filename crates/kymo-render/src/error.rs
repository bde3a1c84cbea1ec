//! Why events cannot be rendered.

use std::io;

/// Why fields that were asked for cannot be printed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldSpecError(pub(crate) String);

/// Why rendering ended early.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// Fields were asked for that an event does not have.
    #[error(transparent)]
    Fields(#[from] FieldSpecError),
    /// The output could not be written.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    /// A thread panicked.
    #[error("a thread failed")]
    ThreadFailed,
}
