//! Selection of program events: patterns, levels, a filter, and room for the events, as typed.

use std::fmt;

use kymo_model::format_width;
use kymo_ust::{EventRule, FilterError};

use super::slots::UnfitEvent;

/// Room for each CPU of a program, in bytes, if nothing else is asked for.
pub const RING_ROOM: u64 = 4 << 20;
/// Sub-buffers of that.
const SUB_BUFFERS: u32 = 8;

/// The levels by their names, as syslog and LTTng number them.
const LEVELS: [&str; 15] = [
    "emerg",
    "alert",
    "crit",
    "err",
    "warning",
    "notice",
    "info",
    "debug-system",
    "debug-program",
    "debug-process",
    "debug-module",
    "debug-unit",
    "debug-function",
    "debug-line",
    "debug",
];

/// The level that lets all pass.
pub const MAX_LEVEL: u8 = LEVELS.len() as u8 - 1;

/// The name of a level.
pub fn level_name(level: u8) -> &'static str {
    LEVELS.get(usize::from(level)).unwrap_or(&"debug")
}

/// Reads a level: its name or its number.
///
/// # Errors
/// If there is none; the error names those there are.
pub fn parse_level(text: &str) -> Result<u8, String> {
    let lower = text.to_ascii_lowercase().replace('_', "-");
    let named = LEVELS.iter().position(|l| *l == lower).map(|n| n as u8);
    let number = lower.parse().ok().filter(|n| usize::from(*n) < LEVELS.len());
    named.or(number).ok_or_else(|| format!("levels are {}", LEVELS.join(", ")))
}

/// Rules that cannot be read.
#[derive(Debug)]
pub enum ProgramRuleError {
    /// A pattern without a letter.
    EmptyPattern,
    /// A filter that is none.
    Filter {
        /// The filter.
        text: String,
        /// Its fault.
        error: FilterError,
    },
    /// A filter that fits none of the events that there are.
    Unfit {
        /// The filter.
        text: String,
        /// The first event that it does not fit.
        unfit: UnfitEvent,
    },
}

/// The text with a caret below one of its places.
fn write_caret(f: &mut fmt::Formatter<'_>, text: &str, at: usize) -> fmt::Result {
    let blanks = format_width(text.get(..at).map_or(0, |t| t.chars().count()));
    write!(f, "\n  {text}\n  {:blanks$}^", "")
}

impl fmt::Display for ProgramRuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramRuleError::EmptyPattern => f.write_str("an empty pattern of events"),
            ProgramRuleError::Filter { text, error } => {
                write!(f, "--filter: {error}")?;
                match error {
                    FilterError::Syntax { at, .. } => write_caret(f, text, *at),
                    _ => Ok(()),
                }
            }
            ProgramRuleError::Unfit { text, unfit } => {
                write!(f, "--filter: {unfit}")?;
                match word_position(text, &unfit.mismatch.field) {
                    Some(at) => write_caret(f, text, at),
                    None => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for ProgramRuleError {}

/// Offset of a name in a filter, as a separate word.
fn word_position(text: &str, name: &str) -> Option<usize> {
    let is_word = |c: char| c == '_' || c.is_alphanumeric();
    let mut all = text.match_indices(name).filter(|(_, found)| !found.is_empty());
    let alone = |at: usize| {
        let (before, behind) = (text.get(..at), text.get(at + name.len()..));
        !before.is_some_and(|t| t.ends_with(is_word))
            && !behind.is_some_and(|t| t.starts_with(is_word))
    };
    all.find(|(at, _)| alone(*at)).map(|(at, _)| at)
}

/// Reads patterns with one filter for all of them.
///
/// # Errors
/// If a pattern is empty or the filter cannot be read.
pub fn parse_rules(
    patterns: &[String],
    level: Option<u8>,
    filter: Option<&str>,
) -> Result<Vec<EventRule>, ProgramRuleError> {
    let filter = match filter {
        None => Vec::new(),
        Some(text) => kymo_ust::compile(text)
            .map_err(|error| ProgramRuleError::Filter { text: text.to_owned(), error })?,
    };
    let rule = |pattern: &String| {
        let pattern = pattern.trim();
        if pattern.is_empty() {
            return Err(ProgramRuleError::EmptyPattern);
        }
        let pattern = if pattern.contains(':') || pattern == "*" {
            pattern.to_owned()
        } else {
            format!("{pattern}:*")
        };
        let max_level = level.unwrap_or(MAX_LEVEL);
        Ok(EventRule { pattern, max_level, exclude: false, filter: filter.clone() })
    };
    patterns.iter().map(rule).collect()
}

/// Size and number of sub-buffers for so much room on each CPU.
pub fn sub_buffers(room: Option<u64>) -> (u32, u32) {
    let size = (room.unwrap_or(RING_ROOM) / u64::from(SUB_BUFFERS)).max(1).next_power_of_two();
    (size.clamp(4096, 64 << 20) as u32, SUB_BUFFERS)
}
