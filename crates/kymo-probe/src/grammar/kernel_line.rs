//! Lines in the kernel's own syntax: `p:GRP/EVENT TARGET ARG…`, `r…`, `-:GRP/EVENT`. The
//! kernel checks their arguments; the outline is checked here, so that a slip is shown at
//! its spot.

use kymo_model::probe::ProbeDefinition;

use super::arguments::check_raw;
use super::error::GrammarError;
use super::symbol::is_symbol;

/// A line for `kprobe_events` or `uprobe_events`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelLine {
    /// Adds a probe point.
    Add(ProbeDefinition),
    /// Removes an event, or all of a group.
    Remove {
        /// The group, if given.
        group: Option<String>,
        /// The event, if given.
        event: Option<String>,
    },
}

/// Whether the text is in the kernel's syntax and not a description: it begins
/// with `p`, `r` (and digits) or `-`, then `:NAME` or a blank.
pub fn is_kernel_line(text: &str) -> bool {
    let text = text.trim_start();
    if text.starts_with("-:") {
        return true;
    }
    let Some(rest) = text.strip_prefix(['p', 'r']) else { return false };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let rest = if text.starts_with('r') { &rest[digits..] } else { rest };
    let mut bytes = rest.bytes();
    match bytes.next() {
        Some(b' ' | b'\t') => true,
        Some(b':') => {
            // `p:6 count` is line 6 of a function p; `p:name place` is raw.
            bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
                && rest.trim_end().contains([' ', '\t'])
        }
        _ => false,
    }
}

impl KernelLine {
    /// Reads a line.
    pub fn parse(line: &str) -> Result<KernelLine, GrammarError> {
        let err = |at: usize, len: usize, what: &str| GrammarError::new(line, at, len, what);
        let mut words = words(line);
        let Some((at, head)) = words.next() else { return Err(err(0, 0, "nothing to define")) };
        let (group, event) = check_name(line, at, head)?;
        if head.starts_with('-') {
            return match (&group, &event) {
                (None, None) => {
                    Err(err(at, head.len(), "- needs the event to remove").hint("-:GROUP/EVENT"))
                }
                _ => Ok(KernelLine::Remove { group, event }),
            };
        }
        if words.next().is_none() {
            return Err(err(line.len(), 0, "the probe point is missing").hint(
                "SYMBOL[+OFFSET] or \
                                    PATH:OFFSET",
            ));
        }
        for (at, word) in words {
            let (from, value) = match word.split_once('=') {
                Some((name, value)) => (at + name.len() + 1, value),
                None => (at, word),
            };
            let value = value.split_once(':').map_or(value, |(v, _)| v);
            check_raw(line, from, value)?;
        }
        match ProbeDefinition::parse(line) {
            Some(definition) => Ok(KernelLine::Add(definition)),
            None => Err(err(at, head.len(), "not the start of a definition")
                .hint("p[:GROUP/EVENT], r[N][:GROUP/EVENT], -:GROUP/EVENT")),
        }
    }
}

/// Group and event behind the colon of the first word.
fn check_name(
    line: &str,
    at: usize,
    head: &str,
) -> Result<(Option<String>, Option<String>), GrammarError> {
    let Some((letters, name)) = head.split_once(':') else { return Ok((None, None)) };
    let (group, event) = match name.split_once(['/', '.']) {
        Some((group, event)) => (Some(group), event),
        None => (None, name),
    };
    let event = (!event.is_empty()).then_some(event);
    if !group.into_iter().chain(event).all(is_symbol) {
        return Err(GrammarError::new(
            line,
            at + letters.len() + 1,
            name.len(),
            "names of groups and events consist of letters, digits and _",
        ));
    }
    Ok((group.map(str::to_owned), event.map(str::to_owned)))
}

/// Words and where they begin.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    line.split_ascii_whitespace().map(move |w| (w.as_ptr() as usize - line.as_ptr() as usize, w))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines() {
        for line in [
            "p:grp/ev vfs_read+8 a=%di +60(%di):u32",
            "r:kprobes/ev vfs_read $retval",
            "r16:grp/ev vfs_read ret=$retval:s32",
            "p vfs_read",
        ] {
            assert!(is_kernel_line(line), "{line}");
            match KernelLine::parse(line) {
                Ok(KernelLine::Add(definition)) => assert_eq!(definition.to_string(), line),
                other => panic!("{line}: {other:?}"),
            }
        }
        for (line, group, event) in [
            ("-:grp/ev", Some("grp"), Some("ev")),
            ("-:ev", None, Some("ev")),
            ("-:grp/", Some("grp"), None),
        ] {
            assert!(is_kernel_line(line), "{line}");
            let (group, event) = (group.map(str::to_owned), event.map(str::to_owned));
            assert_eq!(KernelLine::parse(line), Ok(KernelLine::Remove { group, event }));
        }
        for description in ["p:6 count", "r", "p", "p%return", "vfs_read file", "r:name", "pq x"] {
            assert!(!is_kernel_line(description), "{description}");
        }
        for wrong in
            ["p:g/e", "-", "-:", "p:g-h/e x", "p x +8(%di", "p x +z(%di)", "p x y=%", "rx:g/e x"]
        {
            assert!(KernelLine::parse(wrong).is_err(), "{wrong}");
        }
    }
}
