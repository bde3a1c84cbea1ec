//! Lines in the kernel's own syntax, taken as they are: `p:GRP/EVENT PLACE
//! ARG…`, `r…`, `-:GRP/EVENT`. The kernel checks their arguments; the outline
//! is checked here, so that a slip is shown at its spot.

use super::args::check_raw;
use super::error::ParseError;
use super::name::is_symbol;

/// A line for `kprobe_events` or `uprobe_events`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawLine {
    /// The whole line.
    pub line: String,
    /// `p`, `r` or `-`.
    pub kind: char,
    /// Group, if given.
    pub group: Option<String>,
    /// Event, if given.
    pub event: Option<String>,
    /// Where; empty for `-`.
    pub place: String,
}

/// Whether the text is in the kernel's syntax and not a description: it begins
/// with `p`, `r` (and digits) or `-`, then `:NAME` or a blank.
pub fn looks_raw(text: &str) -> bool {
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

impl RawLine {
    /// Checks the outline of a line.
    pub fn parse(line: &str) -> Result<RawLine, ParseError> {
        let err = |at: usize, len: usize, what: &str| ParseError::new(line, at, len, what);
        let mut words = words(line);
        let Some((at, head)) = words.next() else { return Err(err(0, 0, "nothing to define")) };
        let kind = head.chars().next().unwrap_or(' ');
        let name = head.find(':').map(|i| (at + i + 1, &head[i + 1..]));
        let (mut group, mut event) = (None, None);
        if let Some((at, name)) = name {
            let (g, e) = match name.split_once(['/', '.']) {
                Some((g, e)) => (Some(g), e),
                None => (None, name),
            };
            for part in g.into_iter().chain((!e.is_empty()).then_some(e)) {
                if !is_symbol(part) {
                    return Err(err(
                        at,
                        name.len(),
                        "names of groups and events have letters, digits and _ only",
                    ));
                }
            }
            group = g.map(str::to_owned);
            event = (!e.is_empty()).then(|| e.to_owned());
        }
        if kind == '-' {
            if event.is_none() && group.is_none() {
                return Err(
                    err(at, head.len(), "- needs the event to remove").hint("-:GROUP/EVENT")
                );
            }
            return Ok(RawLine {
                line: line.trim().into(),
                kind,
                group,
                event,
                place: String::new(),
            });
        }
        let Some((_, place)) = words.next() else {
            return Err(
                err(line.len(), 0, "the place is missing").hint("SYMBOL[+OFFSET] or PATH:OFFSET")
            );
        };
        for (at, word) in words {
            let (from, value) = match word.split_once('=') {
                Some((name, value)) => (at + name.len() + 1, value),
                None => (at, word),
            };
            let value = value.split_once(':').map_or(value, |(v, _)| v);
            check_raw(line, from, value)?;
        }
        Ok(RawLine { line: line.trim().into(), kind, group, event, place: place.into() })
    }

    /// Whether the place is in a file: `PATH:OFFSET`.
    pub fn in_file(&self) -> bool {
        self.place.starts_with('/') && self.place.contains(':')
    }
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
            "p:grp/ev vfs_read+8 a=%di +0x3c(%di):u32",
            "r:ev vfs_read $retval",
            "r16:grp/ev vfs_read ret=$retval:s32",
            "p vfs_read",
            "-:grp/ev",
            "-:ev",
        ] {
            assert!(looks_raw(line), "{line}");
            RawLine::parse(line).unwrap_or_else(|e| panic!("{e}"));
        }
        for description in ["p:6 count", "r", "p", "p%return", "vfs_read file", "r:name", "pq x"] {
            assert!(!looks_raw(description), "{description}");
        }
        let raw = RawLine::parse("p:g/e /bin/sh:0x10 %ax").unwrap();
        assert_eq!(
            (raw.group.as_deref(), raw.event.as_deref(), raw.in_file()),
            (Some("g"), Some("e"), true)
        );
        for wrong in ["p:g/e", "-", "-:", "p:g-h/e x", "p x +8(%di", "p x +z(%di)", "p x y=%"] {
            assert!(RawLine::parse(wrong).is_err(), "{wrong}");
        }
    }
}
