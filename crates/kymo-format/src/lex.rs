//! Words of the C expressions in print formats.

/// One token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tok<'a> {
    /// A name or keyword.
    Ident(&'a str),
    /// A number: its value, whether `U`, and how many `L`.
    Number { value: u64, unsigned: bool, long: u8, decimal: bool },
    /// A string literal, without quotes, escapes still in it.
    Str(&'a str),
    /// A character constant.
    Char(u8),
    /// An operator or bracket.
    Punct(&'static str),
    /// A byte that starts nothing.
    Unknown,
    /// The end.
    End,
}

/// Longest first, so that the first match is the token.
const PUNCT: [&str; 35] = [
    "<<=", ">>=", "...", "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "++", "--", "(",
    ")", "[", "]", "{", "}", ",", "?", ":", ";", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!",
    "<",
];
const PUNCT_TAIL: [&str; 3] = [">", "=", "."];

/// Splits `text` into tokens; at most `limit` of them.
pub(crate) fn tokens(text: &str, limit: usize) -> Vec<Tok<'_>> {
    let mut out = Vec::new();
    let mut rest = text;
    while out.len() < limit {
        rest = rest.trim_start();
        if rest.is_empty() {
            break;
        }
        let (tok, len) = next(rest);
        out.push(tok);
        rest = rest.get(len..).unwrap_or("");
    }
    out.push(Tok::End);
    out
}

fn next(s: &str) -> (Tok<'_>, usize) {
    let first = s.as_bytes().first().copied().unwrap_or(0);
    if first.is_ascii_alphabetic() || first == b'_' {
        let n = s.bytes().position(|b| !(b.is_ascii_alphanumeric() || b == b'_'));
        let n = n.unwrap_or(s.len());
        return (Tok::Ident(s.get(..n).unwrap_or("")), n);
    }
    if first.is_ascii_digit() {
        return number(s);
    }
    if first == b'"' || first == b'\'' {
        return quoted(s, first);
    }
    for p in PUNCT.iter().chain(&PUNCT_TAIL) {
        if s.starts_with(p) {
            return (Tok::Punct(p), p.len());
        }
    }
    (Tok::Unknown, s.chars().next().map_or(1, char::len_utf8))
}

fn number(s: &str) -> (Tok<'_>, usize) {
    let n = s.bytes().position(|b| !b.is_ascii_alphanumeric()).unwrap_or(s.len());
    let word = s.get(..n).unwrap_or("");
    let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
    let suffix = word.get(digits.len()..).unwrap_or("");
    let (radix, body) = if let Some(h) = digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        (16, h)
    } else if let Some(b) = digits.strip_prefix("0b") {
        (2, b)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, digits)
    } else {
        (10, digits)
    };
    let Ok(value) = u64::from_str_radix(body, radix) else { return (Tok::Unknown, n) };
    let unsigned = suffix.contains(['u', 'U']);
    let long = suffix.bytes().filter(|b| matches!(b, b'l' | b'L')).count().min(2) as u8;
    (Tok::Number { value, unsigned, long, decimal: radix == 10 }, n)
}

fn quoted(s: &str, quote: u8) -> (Tok<'_>, usize) {
    let mut escaped = false;
    for (i, b) in s.bytes().enumerate().skip(1) {
        if escaped {
            escaped = false;
        } else if b == b'\\' {
            escaped = true;
        } else if b == quote {
            let inner = s.get(1..i).unwrap_or("");
            let tok = if quote == b'"' {
                Tok::Str(inner)
            } else {
                Tok::Char(unescape(inner).first().copied().unwrap_or(0))
            };
            return (tok, i + 1);
        }
    }
    (Tok::Unknown, s.len())
}

/// Resolves the escapes of a C literal.
pub(crate) fn unescape(s: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(s.len());
    let mut it = s.bytes().peekable();
    while let Some(b) = it.next() {
        if b != b'\\' {
            out.push(b);
            continue;
        }
        match it.next() {
            Some(b'n') => out.push(b'\n'),
            Some(b't') => out.push(b'\t'),
            Some(b'r') => out.push(b'\r'),
            Some(b'a') => out.push(7),
            Some(b'b') => out.push(8),
            Some(b'f') => out.push(12),
            Some(b'v') => out.push(11),
            Some(b'e') => out.push(27),
            Some(b'x') => {
                let mut v = 0u8;
                while let Some(d) = it.peek().and_then(|b| (*b as char).to_digit(16)) {
                    v = v.wrapping_mul(16).wrapping_add(d as u8);
                    it.next();
                }
                out.push(v);
            }
            Some(d @ b'0'..=b'7') => {
                let mut v = d - b'0';
                for _ in 0..2 {
                    let Some(n) = it.peek().filter(|b| (b'0'..=b'7').contains(*b)) else { break };
                    v = v.wrapping_mul(8).wrapping_add(*n - b'0');
                    it.next();
                }
                out.push(v);
            }
            Some(other) => out.push(other),
            None => out.push(b'\\'),
        }
    }
    out
}
