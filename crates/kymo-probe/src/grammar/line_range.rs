//! Ranges of source lines: `FUNC[@SRC][:A[+N|-B]]` or `SRC[:A[+N|-B]]`.

use super::error::GrammarError;

/// A parsed range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineRange {
    /// Function, if lines count from it.
    pub function: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// First line; 0 when not given.
    pub start: u32,
    /// Last line, if given.
    pub end: Option<u32>,
}

impl LineRange {
    /// Parses `text`.
    pub fn parse(text: &str) -> Result<LineRange, GrammarError> {
        let err = |at, len, what: &str| GrammarError::new(text, at, len, what);
        let (head, mut range) = match colon(text) {
            Some(at) => (&text[..at], Numbers { text, at: at + 1 }),
            None => (text, Numbers { text, at: text.len() }),
        };
        let mut lines = LineRange { function: None, file: None, start: 0, end: None };
        if head.len() < text.len() {
            lines.start = range.number("the start line")?;
            let sign = range.peek();
            if let Some(sign @ (b'+' | b'-')) = sign {
                range.at += 1;
                let at = range.at;
                let n = range.number(if sign == b'+' {
                    "the number of lines"
                } else {
                    "the end line"
                })?;
                let end = if sign == b'+' {
                    lines.start.saturating_add(n).checked_sub(1)
                } else {
                    Some(n)
                };
                match end.filter(|e| *e >= lines.start) {
                    Some(end) => lines.end = Some(end),
                    None => {
                        return Err(err(
                            at,
                            range.at - at,
                            "the end line is before the start line",
                        ));
                    }
                }
            }
            if range.at < text.len() {
                return Err(err(
                    range.at,
                    text.len() - range.at,
                    "not expected after a range of lines",
                ));
            }
        }
        let (function, file) = match head.split_once('@') {
            Some((function, file)) => (Some(function), Some(file)),
            None if head.contains('/') || (head.contains('.') && !head.contains("::")) => {
                (None, Some(head))
            }
            None => (Some(head), None),
        };
        if function == Some("") || file == Some("") || head.is_empty() {
            return Err(err(0, head.len(), "the range has no function or file"));
        }
        lines.function = function.map(str::to_owned);
        lines.file = file.map(str::to_owned);
        Ok(lines)
    }
}

/// The first colon that is not half of `::` and not inside of `<…>`.
fn colon(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut depth = 0i32;
    let mut i = 0;
    while let Some(b) = bytes.get(i) {
        match b {
            b'<' => depth += 1,
            b'>' => depth -= 1,
            b':' if bytes.get(i + 1) == Some(&b':') => i += 1,
            b':' if depth <= 0 => return Some(i),
            _ => {}
        }
        i += 1;
    }
    None
}

struct Numbers<'a> {
    text: &'a str,
    at: usize,
}

impl Numbers<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn number(&mut self, what: &str) -> Result<u32, GrammarError> {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        let digits = &self.text[start..self.at];
        digits.parse().map_err(|_| {
            let (len, why) = if digits.is_empty() {
                (self.text[start..].len(), "must be a number")
            } else {
                (digits.len(), "is too large")
            };
            GrammarError::new(self.text, start, len, format!("{what} {why}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::LineRange;

    #[test]
    fn ranges() {
        let range = |text: &str| {
            let r = LineRange::parse(text).unwrap();
            (r.function.unwrap_or_default(), r.file.unwrap_or_default(), r.start, r.end)
        };
        let own = |f: &str, s: &str, a, b| (f.to_owned(), s.to_owned(), a, b);
        assert_eq!(range("schedule"), own("schedule", "", 0, None));
        assert_eq!(range("vfs_read:0+7"), own("vfs_read", "", 0, Some(6)));
        assert_eq!(range("f@a.c:10-12"), own("f", "a.c", 10, Some(12)));
        assert_eq!(range("kernel/sched.c:5"), own("", "kernel/sched.c", 5, None));
        assert_eq!(range("mycrate::f:3+2"), own("mycrate::f", "", 3, Some(4)));
        assert_eq!(range("<a::T as B>::f"), own("<a::T as B>::f", "", 0, None));
        for wrong in ["", "f:", "f:x", "f:3-1", "f:1+0", "f:1x", "f:99999999999", "@a.c", "f@"] {
            assert!(LineRange::parse(wrong).is_err(), "{wrong}");
        }
    }
}
