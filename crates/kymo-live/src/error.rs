//! Errors of a subscription.

use std::error::Error;
use std::fmt;

/// Why events cannot be had: there are no such events, a filter does not parse, or the kernel
/// refuses. The text says which, and what would help.
#[derive(Debug)]
pub struct LiveError {
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl LiveError {
    pub(crate) fn new(text: impl Into<String>) -> LiveError {
        LiveError { text: text.into(), source: None }
    }

    pub(crate) fn of(error: impl Error + Send + Sync + 'static) -> LiveError {
        LiveError { text: error.to_string(), source: Some(Box::new(error)) }
    }
}

impl fmt::Display for LiveError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl Error for LiveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The text is the error's own: what lies below it is the cause.
        self.source.as_ref().and_then(|error| error.source())
    }
}
