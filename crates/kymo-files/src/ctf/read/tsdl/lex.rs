//! TSDL into words, numbers, texts and marks. Comments are passed over; the last
//! one before a word is kept, since it may say what an event means.

/// A word, number, text or mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    /// A number and whether it fits: larger ones are cut to 64 bits.
    Number(u64),
    Text(String),
    /// One of `{ } [ ] ( ) < > ; , . = : := * ...` and the rest of the language's.
    Mark(&'static str),
    End,
}

/// A mistake in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) at: usize,
    pub(super) what: String,
}

impl Wrong {
    pub(super) fn new(at: usize, what: impl Into<String>) -> Wrong {
        Wrong { at, what: what.into() }
    }
}

const MARKS: [&str; 19] = [
    "...", ":=", "->", "{", "}", "[", "]", "(", ")", "<", ">", ";", ",", ".", "=", ":", "*", "-",
    "+",
];

/// Hands out tokens.
pub(super) struct Lexer<'t> {
    text: &'t [u8],
    at: usize,
    /// The text of the comment right before the last token.
    comment: Option<(usize, usize)>,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t [u8]) -> Lexer<'t> {
        Lexer { text, at: 0, comment: None }
    }

    fn rest(&self) -> &'t [u8] {
        self.text.get(self.at..).unwrap_or(&[])
    }

    /// The comment before the last token, without its marks.
    pub(super) fn comment(&self) -> Option<String> {
        let (from, to) = self.comment?;
        let text = String::from_utf8_lossy(self.text.get(from..to)?);
        let lines = text.lines().map(|l| l.trim().trim_start_matches('*').trim());
        let lines: Vec<&str> = lines.skip_while(|l| l.is_empty()).collect();
        let text = lines.join("\n").trim_end().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// Passes over blanks and comments.
    fn blanks(&mut self) -> Result<(), Wrong> {
        self.comment = None;
        loop {
            let rest = self.rest();
            match rest {
                [b, ..] if b.is_ascii_whitespace() => self.at += 1,
                [b'/', b'*', inner @ ..] => {
                    let end = inner.windows(2).position(|w| w == b"*/");
                    let Some(end) = end else {
                        return Err(Wrong::new(self.at, "a comment does not end"));
                    };
                    self.comment = Some((self.at + 2, self.at + 2 + end));
                    self.at += end + 4;
                }
                [b'/', b'/', ..] => {
                    let end = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                    self.at += end;
                }
                _ => return Ok(()),
            }
        }
    }

    /// The next token and where it begins.
    pub(super) fn next(&mut self) -> Result<(usize, Token), Wrong> {
        self.blanks()?;
        let (at, rest) = (self.at, self.rest());
        let Some(first) = rest.first() else { return Ok((at, Token::End)) };
        if first.is_ascii_alphabetic() || *first == b'_' {
            let len = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
            let word = String::from_utf8_lossy(rest.get(..len).unwrap_or(&[])).into_owned();
            // A wide literal.
            if word == "L" && rest.get(1) == Some(&b'"') {
                self.at += 1;
                return self.text(at);
            }
            self.at += len;
            return Ok((at, Token::Word(word)));
        }
        if first.is_ascii_digit() {
            return self.number(at, rest);
        }
        if *first == b'"' || *first == b'\'' {
            return self.text(at);
        }
        match MARKS.iter().find(|m| rest.starts_with(m.as_bytes())) {
            Some(mark) => {
                self.at += mark.len();
                Ok((at, Token::Mark(mark)))
            }
            None => Err(Wrong::new(at, format!("`{}` means nothing", first.escape_ascii()))),
        }
    }

    fn number(&mut self, at: usize, rest: &[u8]) -> Result<(usize, Token), Wrong> {
        let len = rest.iter().take_while(|b| b.is_ascii_alphanumeric()).count();
        let word = String::from_utf8_lossy(rest.get(..len).unwrap_or(&[]));
        self.at += len;
        let hex = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
        let binary = word.strip_prefix("0b").or_else(|| word.strip_prefix("0B"));
        let (digits, radix) = match (hex, binary) {
            (Some(digits), _) => (digits, 16),
            (_, Some(digits)) => (digits, 2),
            _ if word.len() > 1 && word.starts_with('0') => (&word[..], 8),
            _ => (&word[..], 10),
        };
        // What follows a decimal number: its type in C.
        let digits = digits.trim_end_matches(['u', 'U', 'l', 'L']);
        u64::from_str_radix(digits, radix)
            .map(|n| (at, Token::Number(n)))
            .map_err(|_| Wrong::new(at, format!("`{word}` is not a 64-bit number")))
    }

    fn text(&mut self, at: usize) -> Result<(usize, Token), Wrong> {
        let open = || Wrong::new(at, "a text does not end");
        let quote = *self.rest().first().ok_or_else(open)?;
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            match self.rest() {
                [] | [b'\n', ..] | [b'\\'] => return Err(open()),
                [b, ..] if *b == quote => {
                    self.at += 1;
                    break;
                }
                [b'\\', escape @ ..] => {
                    let (len, value) = escaped(escape);
                    self.at += 1 + len;
                    bytes.extend_from_slice(&value);
                }
                [b, ..] => {
                    self.at += 1;
                    bytes.push(*b);
                }
            }
        }
        Ok((at, Token::Text(String::from_utf8_lossy(&bytes).into_owned())))
    }
}

/// The bytes that an escape behind a backslash takes, and what it stands for.
fn escaped(rest: &[u8]) -> (usize, Vec<u8>) {
    let digits = |from: usize, most: usize, radix: u32| -> (usize, u32) {
        let mut value = 0u32;
        let mut n = 0;
        for b in rest.iter().skip(from).take(most) {
            let Some(d) = char::from(*b).to_digit(radix) else { break };
            value = value.wrapping_mul(radix).wrapping_add(d);
            n += 1;
        }
        (from + n, value)
    };
    let character = |(len, value): (usize, u32)| {
        let c = char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER);
        (len, c.to_string().into_bytes())
    };
    let one = |b: u8| (1, vec![b]);
    match rest.first() {
        Some(b'n') => one(b'\n'),
        Some(b't') => one(b'\t'),
        Some(b'r') => one(b'\r'),
        Some(b'a') => one(7),
        Some(b'b') => one(8),
        Some(b'f') => one(12),
        Some(b'v') => one(11),
        Some(b'x') => {
            let (len, value) = digits(1, 2, 16);
            (len, vec![value as u8])
        }
        Some(b'0'..=b'7') => {
            let (len, value) = digits(0, 3, 8);
            (len, vec![value as u8])
        }
        Some(b'u') => character(digits(1, 4, 16)),
        Some(b'U') => character(digits(1, 8, 16)),
        Some(b) => one(*b),
        None => (0, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<Token> {
        let mut lexer = Lexer::new(text.as_bytes());
        let mut tokens = Vec::new();
        loop {
            match lexer.next().unwrap().1 {
                Token::End => return tokens,
                token => tokens.push(token),
            }
        }
    }

    #[test]
    fn words_numbers_texts_and_marks() {
        use Token::{Mark, Number, Text, Word};
        assert_eq!(
            all("a_1 := 0x1F 017 0b11 12ULL \"q\\\"\\x41\\101\\n\" /* c */ ... . // rest\n->"),
            [
                Word("a_1".into()),
                Mark(":="),
                Number(31),
                Number(15),
                Number(3),
                Number(12),
                Text("q\"AA\n".into()),
                Mark("..."),
                Mark("."),
                Mark("->"),
            ]
        );
        for bad in ["\"open", "/* open", "12z", "0x", "99999999999999999999", "@"] {
            let mut lexer = Lexer::new(bad.as_bytes());
            assert!(lexer.next().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_comment_before_a_token_is_kept() {
        let mut lexer = Lexer::new(b"a /* far */ b /**\n * what it\n * means\n */ event");
        lexer.next().unwrap();
        assert_eq!(lexer.comment(), None);
        lexer.next().unwrap();
        assert_eq!(lexer.comment().unwrap(), "far");
        lexer.next().unwrap();
        assert_eq!(lexer.comment().unwrap(), "what it\nmeans");
    }
}
