//! The kernel's error log: what it found wrong in a filter, a trigger or a
//! probe, and where. The file keeps the last eight complaints of a trace directory.

use std::fmt;

/// One complaint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Reporting part of the kernel, as in `event filter parse error`.
    pub who: String,
    /// Error text.
    pub what: String,
    /// The text that was given.
    pub command: String,
    /// The byte of it that the kernel points at.
    pub at: usize,
}

/// The command with a caret under it, as the kernel's file lays it out.
impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.command.get(..self.at).unwrap_or(&self.command);
        let column = kymo_model::format_width(before.chars().count());
        write!(f, "  {}\n  {:column$}^ {}", self.command, "", self.what)
    }
}

/// The complaints in a log, oldest first. Lines of another shape are passed over.
pub(super) fn parse(log: &str) -> Vec<Complaint> {
    let mut all: Vec<Complaint> = Vec::new();
    let mut open: Option<Complaint> = None;
    for line in log.lines() {
        if let Some(rest) = line.strip_prefix('[')
            && let Some((_, text)) = rest.split_once("] ")
        {
            all.extend(open.take());
            let (who, what) = text.split_once(": error: ").unwrap_or(("", text));
            open = Some(Complaint {
                who: who.to_owned(),
                what: what.trim().to_owned(),
                command: String::new(),
                at: 0,
            });
        } else if let (Some(c), Some(command)) = (&mut open, line.strip_prefix("  Command: ")) {
            c.command = command.to_owned();
        } else if let Some(c) = &mut open
            && line.trim() == "^"
        {
            let column = line.len() - line.trim_start().len();
            c.at = column.saturating_sub("  Command: ".len()).min(c.command.len());
            all.extend(open.take());
        }
    }
    all.extend(open);
    all
}

/// The newest complaint about `value`. The log may hold older ones of others,
/// so one that speaks of another text is not taken.
pub(super) fn about(log: &str, value: &str) -> Option<Complaint> {
    let value = value.trim();
    let newest = parse(log).pop()?;
    let command = newest.command.trim();
    let same = !command.is_empty() && (value.contains(command) || command.contains(value));
    same.then_some(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
[11587.557361] event filter parse error: error: Field not found
  Command: foo == 1
               ^
[11588.1] hist:sched:sched_switch: error: Couldn't find field
  Command: hist:keys=pidx
                     ^
";

    #[test]
    fn the_caret_stands_where_the_kernel_put_it() {
        let all = parse(LOG);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].who, "event filter parse error");
        assert_eq!(all[0].to_string(), "  foo == 1\n      ^ Field not found");
        assert_eq!(all[1].to_string(), "  hist:keys=pidx\n            ^ Couldn't find field");
    }

    #[test]
    fn errors_of_other_texts_are_ignored() {
        assert_eq!(about(LOG, "foo == 1"), None);
        assert_eq!(about(LOG, "hist:keys=pidx\n").map(|c| c.at), Some(10));
        assert_eq!(about("", "x"), None);
        assert_eq!(about("[1.0] x\n   ^\n", "x"), None);
    }
}
