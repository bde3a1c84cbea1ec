//! What can go wrong with traced programs.

use std::io;
use std::path::PathBuf;

use kymo_kernel::shared::SharedError;

/// What can go wrong with traced programs.
#[derive(Debug, thiserror::Error)]
pub enum UstError {
    /// A file of theirs cannot be opened, read or written.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// A control file or order is not what it should be.
    #[error("{path}: {error}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: kymo_ust::FormatError,
    },
    /// A ring is not what it should be.
    #[error("{path}: {error}")]
    Ring {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: kymo_ring::LayoutError,
    },
    /// The order cannot be said.
    #[error("{0}")]
    Order(kymo_ust::FormatError),
    /// A name that cannot be a session's.
    #[error("{0:?} cannot be the name of a session: letters, digits, '-', '_' and '.', at most 40")]
    Name(String),
    /// A channel of that name is there.
    #[error("{path} is there already")]
    Exists {
        /// The order.
        path: PathBuf,
    },
    /// All slots of a program are taken.
    #[error("process {pid} records for eight channels already, more it cannot")]
    NoSlot {
        /// The program.
        pid: u32,
    },
    /// The trace cannot be written.
    #[error("cannot write {path}: {error}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}
