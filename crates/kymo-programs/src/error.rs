//! Errors of programs.

use kymo_bpf::{ProgramPosition, SourceMessage};
use kymo_kernel::bpf::BpfError;

/// Error of a program.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is wrong, in these places.
    #[error("the program has {} errors", .0.len())]
    Compile(Vec<SourceMessage>),
    /// The kernel refused a map, BTF or the ring.
    #[error(transparent)]
    Kernel(#[from] BpfError),
    /// The kernel refused to load the instructions of a probe.
    #[error("{point}: {text}")]
    Refused {
        /// Attach point.
        point: String,
        /// Place that the verifier stopped at, as far as it is known.
        position: ProgramPosition,
        /// Its words.
        text: String,
        /// Its log.
        log: String,
    },
    /// A probe cannot be attached.
    #[error("{point}: {reason}")]
    Attach {
        /// Attach point.
        point: String,
        /// Position of the probe in the program.
        position: ProgramPosition,
        /// Reason.
        reason: String,
    },
    /// None of the probes could be attached.
    #[error("No probes to attach")]
    NothingAttached,
    /// The program has only probes of a mode that is not the one of the run.
    #[error("No probes attached; use {0}.")]
    OnlyTests(&'static str),
    /// A file of packets cannot be written.
    #[error("cannot write {path}: {error}")]
    PacketFile {
        /// Its path.
        path: String,
        /// Position of the path in the program.
        position: ProgramPosition,
        /// Cause.
        error: std::io::Error,
    },
    /// Output cannot be written.
    #[error("cannot write the output")]
    Output(#[from] std::io::Error),
}
