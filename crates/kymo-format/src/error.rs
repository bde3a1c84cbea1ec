//! Errors of parsing the text of a `format` file.

/// A `format` text that cannot be used at all. A print format that cannot be
/// understood is no such error: the event is then rendered field by field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A line every format has is not there.
    #[error("format text has no {0:?} line")]
    Missing(&'static str),
    /// A line is not of the form the kernel writes.
    #[error("format line {line}: {what}: {text:?}")]
    BadLine {
        /// Line number, from 1.
        line: usize,
        /// Description of the error.
        what: &'static str,
        /// The line, cut short.
        text: String,
    },
    /// The text is larger than any kernel's.
    #[error("format text has {bytes} bytes, at most {limit} are read")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}
