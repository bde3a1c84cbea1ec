//! Errors of traced programs.

use std::io;
use std::path::PathBuf;

use kymo_kernel::shared::SharedError;

use super::rules::ProgramRuleError;

/// Error of a traced program.
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
        /// Defect of the file.
        error: kymo_ust::UstFormatError,
    },
    /// A ring is not what it should be.
    #[error("{path}: {error}")]
    Ring {
        /// The file.
        path: PathBuf,
        /// Defect of the ring.
        error: kymo_ring::LayoutError,
    },
    /// A ring has lost its file, or a part of it.
    #[error("its ring was cut short by another process")]
    Cut,
    /// The configuration cannot be said.
    #[error("{0}")]
    ChannelConfig(kymo_ust::UstFormatError),
    /// Events are asked for that cannot be.
    #[error(transparent)]
    Rule(#[from] ProgramRuleError),
    /// A name that cannot be a session's.
    #[error("{0:?} cannot be a session's name: letters, digits, `-`, `_` and `.`, at most 40")]
    Name(String),
    /// A name that cannot be a channel's.
    #[error("{0:?} cannot be a channel's name: letters, digits, `-` and `_`, at most 40")]
    Channel(String),
    /// There is no session, or there is one, or it cannot do that.
    #[error("{0}")]
    Session(String),
    /// A channel of that name is there.
    #[error("{path} already exists")]
    Exists {
        /// The configuration.
        path: PathBuf,
    },
    /// All slots of a program are taken.
    #[error(
        "process {pid} records for eight channels already, more it cannot: destroy a session, or use fewer channels"
    )]
    NoSlot {
        /// The program.
        pid: u32,
    },
    /// Events were given up for newer ones.
    #[error(
        "{bytes} bytes of events of process {pid} were removed before they were taken: the session was changed more often than a program can keep rings; take a snapshot now and then"
    )]
    GivenUp {
        /// The program.
        pid: u32,
        /// Bytes of events.
        bytes: u64,
    },
    /// A program's events cannot be read.
    #[error("events of a program cannot be read: {0}")]
    Events(String),
    /// There is no thread to read rings.
    #[error("a thread for the rings of programs: {0}")]
    Thread(io::Error),
    /// A directory cannot be looked at.
    #[error("{path}: {error}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Cause.
        error: io::Error,
    },
    /// A trace is to go where something is already.
    #[error("{path} is not empty; a trace of programs is a directory of its own")]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// The trace cannot be written.
    #[error("cannot write {path}: {error}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Cause.
        error: io::Error,
    },
}

/// Notes on ignored input with the reason, without duplicates, up to a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes(Vec<String>);

/// Most notes that are kept.
const MAX_NOTES: usize = 16;

impl Notes {
    /// Adds one.
    pub fn push(&mut self, text: String) {
        if self.0.len() < MAX_NOTES && !self.0.contains(&text) {
            self.0.push(text);
        }
    }

    /// Adds an error, which is no reason to stop; hands out what came instead of it.
    pub(super) fn of<T>(&mut self, result: Result<T, UstError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            // A program that ended meanwhile.
            Err(UstError::Shared(e)) if e.is_missing() => None,
            Err(e) => {
                self.push(e.to_string());
                None
            }
        }
    }

    /// Adds those of another.
    pub fn extend(&mut self, other: Notes) {
        other.0.into_iter().for_each(|text| self.push(text));
    }

    /// All of them.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }
}
