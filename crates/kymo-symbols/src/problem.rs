//! Why symbols could not be had: problems that the ledger of a result states.

use kymo_model::BuildId;

/// Why a bundle is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {why}")]
pub struct BundleError {
    /// The bundle.
    pub path: String,
    /// Reason.
    pub why: String,
}

/// Why symbols of a binary could not be had; for the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The file now has another build-id than the one recorded.
    Changed {
        /// The file.
        path: String,
        /// Its build-id.
        found: Option<BuildId>,
        /// The one recorded.
        recorded: BuildId,
    },
    /// A file that should have had the symbols of a binary was not taken.
    Refused {
        /// The file.
        path: String,
        /// The binary.
        of: String,
        /// Reason.
        why: String,
    },
    /// The file is no usable ELF file.
    Unusable {
        /// The file.
        path: String,
        /// Reason.
        why: String,
    },
    /// `/proc/kallsyms` shows zeros.
    KernelHidden {
        /// `kernel.kptr_restrict`, when it can be read.
        kptr_restrict: Option<String>,
        /// `kernel.perf_event_paranoid`, when it can be read.
        paranoid: Option<String>,
    },
    /// The recording was made on another kernel than the running one.
    OtherKernel {
        /// The recorded kernel's release, when it is stated.
        recorded: Option<String>,
        /// The running kernel's.
        running: Option<String>,
    },
    /// Nothing in the recording identifies the kernel it was made on.
    UnknownKernel,
    /// The kernel's symbols could not be read at all.
    NoKernelSymbols,
    /// Debugging information could not be read, or not all of it.
    DebugInfo {
        /// The file.
        path: String,
        /// Reason.
        why: String,
    },
    /// A file of the cache could not be used or written.
    Cache {
        /// Which one, and what is wrong with it.
        why: String,
    },
    /// Binaries were taken by their paths alone from this machine, and the
    /// recording is of another one.
    OtherMachine {
        /// Machine of the recording.
        recorded: String,
        /// This machine.
        here: String,
    },
    /// A bundle could not be used, or a part of it.
    Bundle(BundleError),
}
