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
    /// What is wrong with it.
    pub reason: Reason,
    /// Names that are much like it.
    pub near: Vec<String>,
}

/// What is wrong.
#[derive(Debug)]
pub enum Reason {
    /// No event has that name.
    UnknownEvent,
    /// No tracepoint, PMU event or counter fits that pattern.
    NothingMatches,
    /// Whether there is such a tracepoint cannot be told.
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
            [] if unknown => write!(f, "; `kymo list` shows what there is"),
            [] => Ok(()),
            [one] => write!(f, "; did you mean {one}?"),
            [many @ .., last] => write!(f, "; did you mean {} or {last}?", many.join(", ")),
        }
    }
}

/// The names most like `wanted`: those that take the fewest edits, no more
/// than a third of its length; then those that contain it.
pub(super) fn near<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    const MOST: usize = 3;
    let limit = (wanted.len() / 3).clamp(1, 6);
    let lower = wanted.to_ascii_lowercase();
    let mut found: Vec<(usize, &str)> = names
        .filter_map(|name| {
            let candidate = name.to_ascii_lowercase();
            let d = distance(lower.as_bytes(), candidate.as_bytes(), limit);
            match d {
                Some(d) => Some((d, name)),
                None if wanted.len() >= 4 && candidate.contains(&lower) => {
                    Some((limit + candidate.len() - lower.len(), name))
                }
                None => None,
            }
        })
        .collect();
    found.sort_unstable();
    found.dedup_by(|a, b| a.1 == b.1);
    // A name one edit away makes those three edits away noise.
    let best = found.first().map_or(0, |f| f.0);
    found.into_iter().take(MOST).filter(|f| f.0 <= best + 1).map(|f| f.1.to_owned()).collect()
}

/// Edits (insert, delete, replace, swap of neighbours) from `a` to `b`, or
/// `None` if more than `limit`.
fn distance(a: &[u8], b: &[u8], limit: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > limit || a.len() > 256 || b.len() > 256 {
        return None;
    }
    let width = b.len() + 1;
    let (mut before, mut last) = (vec![0; width], (0..width).collect::<Vec<usize>>());
    for (i, &x) in a.iter().enumerate() {
        let mut now = vec![i + 1; width];
        for (j, &y) in b.iter().enumerate() {
            let mut d = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(now[j] + 1);
            if i > 0 && j > 0 && x == b[j - 1] && a[i - 1] == y {
                d = d.min(before[j - 1] + 1);
            }
            now[j + 1] = d;
        }
        if now.iter().min().is_some_and(|d| *d > limit) {
            return None;
        }
        before = std::mem::replace(&mut last, now);
    }
    last.last().copied().filter(|d| *d <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names() {
        let names = ["cycles", "cpu-cycles", "cpu-clock", "bus-cycles", "sched:sched_switch"];
        let of = |w| near(w, names.into_iter());
        assert_eq!(of("cyclse"), ["cycles"]);
        assert_eq!(of("sched:sched_swithc"), ["sched:sched_switch"]);
        assert_eq!(of("cpu-clok"), ["cpu-clock"]);
        assert_eq!(of("sched_switch"), ["sched:sched_switch"]);
        assert!(of("xyz").is_empty());
    }
}
