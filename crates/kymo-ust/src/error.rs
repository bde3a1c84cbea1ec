//! Errors of decoding the words.

use std::fmt;

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UstFormatError {
    /// They end too early.
    Short {
        /// Name of the structure that was read.
        what: &'static str,
        /// Bytes there.
        found: usize,
    },
    /// The magic number is missing.
    Magic {
        /// Name of the structure.
        what: &'static str,
    },
    /// A version this code does not know.
    Version {
        /// The version.
        found: u32,
    },
    /// A field holds what it cannot.
    Field {
        /// Its name in the specification.
        name: &'static str,
        /// Value of the field.
        value: u64,
    },
}

impl fmt::Display for UstFormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { what, found } => write!(f, "{what} ends after {found} bytes"),
            Self::Magic { what } => write!(f, "{what} has no magic number"),
            Self::Version { found } => write!(f, "version {found} is unknown"),
            Self::Field { name, value } => write!(f, "{name} cannot be {value}"),
        }
    }
}

impl std::error::Error for UstFormatError {}

/// Why text is not a filter, or a filter does not fit an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterError {
    /// Something else was expected there.
    Syntax {
        /// Offset in the text.
        at: usize,
        /// Valid input at this position.
        expected: &'static str,
    },
    /// The filter is longer than programs accept.
    TooLong {
        /// Bytes of its code.
        bytes: usize,
    },
    /// The event has no such field, or none that can be compared.
    NoField {
        /// Offset in the code of the operation that needs it.
        at: usize,
    },
    /// The code is damaged.
    Code {
        /// Offset in the code.
        at: usize,
    },
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { at, expected } => write!(f, "at offset {at}: expected {expected}"),
            Self::TooLong { bytes } => write!(f, "the filter has {bytes} bytes of code, too many"),
            Self::NoField { at } => {
                write!(
                    f,
                    "no such field that can be compared, asked for at offset {at} of the code"
                )
            }
            Self::Code { at } => write!(f, "the code is damaged at offset {at}"),
        }
    }
}

impl std::error::Error for FilterError {}
