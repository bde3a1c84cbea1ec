//! Errors of a server.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a file did not come.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The server does not have it.
    #[error("not found")]
    NotFound,
    /// An address cannot be used.
    #[error("{url:?} is no http or https address: {why}")]
    Url {
        /// The address.
        url: String,
        /// Reason.
        why: String,
    },
    /// The host's name has no address.
    #[error("cannot find the host {host}: {error}")]
    Resolve {
        /// The host.
        host: String,
        /// Error of the system.
        error: io::Error,
    },
    /// The server cannot be reached.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// No secure connection.
    #[error("no secure connection: {0}")]
    Tls(String),
    /// The connection broke.
    #[error("the connection broke after {got} bytes: {error}")]
    Broken {
        /// Bytes of the file that had come.
        got: u64,
        /// Error of the system.
        error: io::Error,
    },
    /// It took too long.
    #[error("no answer within {} s", after.as_secs_f64())]
    Silent {
        /// Time waited.
        after: Duration,
    },
    /// It is too slow.
    #[error("too slow: {got} bytes of the file in {} s", after.as_secs_f64())]
    Slow {
        /// Bytes that came.
        got: u64,
        /// In which time.
        after: Duration,
    },
    /// The connection ended before the file did.
    #[error("the file was cut: {got}{} bytes came", expected.map(|n| format!(" of {n}")).unwrap_or_default())]
    Cut {
        /// Bytes that came.
        got: u64,
        /// Bytes that were announced, if any.
        expected: Option<u64>,
    },
    /// It is larger than allowed.
    #[error("the file has {size} bytes, at most {limit} are taken (DEBUGINFOD_MAXSIZE)")]
    TooLarge {
        /// Bytes announced or come.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The answer is no success.
    #[error("the server answered {status}")]
    Status {
        /// Status of HTTP.
        status: u16,
    },
    /// It is not HTTP.
    #[error("the server's answer makes no sense: {0}")]
    Malformed(String),
    /// The server sends us around.
    #[error("too many redirections")]
    Redirected,
    /// The response is not the requested file.
    #[error("what came was refused: {0}")]
    Refused(String),
    /// The cache cannot be written.
    #[error("{}: {error}", path.display())]
    Cache {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
}

impl FetchError {
    /// Whether it is the server's fault, so that it is not worth asking again.
    pub(crate) fn condemns(&self) -> bool {
        !matches!(
            self,
            FetchError::NotFound
                | FetchError::TooLarge { .. }
                | FetchError::Refused(_)
                | FetchError::Cache { .. }
                | FetchError::Status { status: 0..500 }
        )
    }
}
