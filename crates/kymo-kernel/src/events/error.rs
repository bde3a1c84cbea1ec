//! Why an event text is refused: what is wrong, where it stands, what may have
//! been meant.

use crate::tracefs::TracefsError;

/// An event text that names nothing, or is not well formed.
#[derive(Debug)]
pub struct ParseError {
    /// The whole argument of `-e`.
    pub text: String,
    /// Byte offset of the wrong part in it.
    pub at: usize,
    /// The wrong part.
    pub part: String,
    /// Reason.
    pub reason: Reason,
    /// Names that are much like it.
    pub near: Vec<String>,
}

/// Reason of a syntax error.
#[derive(Debug)]
pub enum Reason {
    /// No event has that name.
    UnknownEvent,
    /// No tracepoint, PMU event or counter fits that pattern.
    NothingMatches,
    /// The existence of the tracepoint cannot be checked.
    Tracefs(Box<TracefsError>),
    /// No PMU has that name.
    UnknownPmu,
    /// A PMU has no such term.
    UnknownTerm {
        /// The PMU, or nothing for terms of ordinary events.
        pmu: Option<String>,
    },
    /// Anything else, in words.
    Malformed(String),
}

impl std::error::Error for ParseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The text of a tracefs error is part of this one's.
        None
    }
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let part = &self.part;
        match &self.reason {
            Reason::UnknownEvent => write!(f, "unknown event '{part}'")?,
            Reason::NothingMatches => write!(f, "no event matches '{part}'")?,
            Reason::Tracefs(_) => write!(f, "cannot look up tracepoint '{part}'")?,
            Reason::UnknownPmu => write!(f, "unknown PMU '{part}'")?,
            Reason::UnknownTerm { pmu: Some(pmu) } => {
                write!(f, "PMU {pmu} has no term or event '{part}'")?;
            }
            Reason::UnknownTerm { pmu: None } => write!(f, "unknown term '{part}'")?,
            Reason::Malformed(why) if part.is_empty() => write!(f, "{why}")?,
            Reason::Malformed(why) => write!(f, "'{part}': {why}")?,
        }
        // Where it stands says nothing when it is the whole text.
        if self.text != self.part {
            let column = self.text.get(..self.at).map_or(self.at, |s| s.chars().count()) + 1;
            write!(f, " at character {column} of '{}'", self.text)?;
        }
        if let Reason::Tracefs(e) = &self.reason {
            write!(f, ": {e}")?;
        }
        let unknown = matches!(
            self.reason,
            Reason::UnknownEvent | Reason::NothingMatches | Reason::UnknownPmu
        );
        match self.near.as_slice() {
            [] if unknown => write!(f, "; `kymo list` shows the supported events"),
            [] => Ok(()),
            [one] => write!(f, "; did you mean {one}?"),
            [many @ .., last] => write!(f, "; did you mean {} or {last}?", many.join(", ")),
        }
    }
}
