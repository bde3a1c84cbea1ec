//! Errors in descriptions, with their position: the message puts a caret under the spot, because a
//! description is typed by hand and quoted for the shell.

use std::fmt;

use kymo_model::format_width;

/// A description, a line range or a definition that does not follow the grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrammarError {
    /// The text as given.
    pub text: String,
    /// Byte at which the wrong part begins.
    pub at: usize,
    /// Bytes of the wrong part; 0 when something is missing there.
    pub len: usize,
    /// Error text.
    pub what: String,
    /// Correct form, if known.
    pub hint: Option<String>,
}

impl GrammarError {
    /// An error about `text[at..at + len]`.
    pub fn new(text: &str, at: usize, len: usize, what: impl Into<String>) -> GrammarError {
        let mut at = at.min(text.len());
        let mut end = at.saturating_add(len).min(text.len());
        // Whole characters, wherever the bytes were counted.
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        while !text.is_char_boundary(end) {
            end += 1;
        }
        GrammarError { text: text.to_owned(), at, len: end - at, what: what.into(), hint: None }
    }

    /// Adds advice to the error.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> GrammarError {
        self.hint = Some(hint.into());
        self
    }
}

/// Characters that would move the caret are shown as one column each.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl fmt::Display for GrammarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.text.get(..self.at).unwrap_or(&self.text).chars().count();
        let end = self.at.saturating_add(self.len);
        let width = self.text.get(self.at..end).map_or(1, |s| s.chars().count()).max(1);
        write!(f, "{}\n  {}\n  ", self.what, plain(&self.text))?;
        let (before, width) = (format_width(before), format_width(width));
        write!(f, "{:before$}{:^<width$}", "", "")?;
        match &self.hint {
            Some(hint) => write!(f, " {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for GrammarError {}

#[cfg(test)]
mod tests {
    use super::GrammarError;

    #[test]
    fn the_caret_is_under_the_spot() {
        let e = GrammarError::new("vfs_read:x6 ä", 9, 2, "line is not a number").hint("as in :6");
        assert_eq!(e.to_string(), "line is not a number\n  vfs_read:x6 ä\n           ^^ as in :6");
        assert!(GrammarError::new("ab", 99, 7, "x").to_string().ends_with('^'));
    }
}
