//! Text from outside: names and values that a traced program, a recording or a file chose.

use std::borrow::Cow;

/// Text whose author is not kymo. It has no `Display`: what prints it escapes control
/// characters, so that a name neither reaches the terminal's parser nor begins a line.
///
/// Escapes are those of JSON strings (`\n`, `\t`, `\r`, `\u001b`), and `\x9b` for a byte that is
/// not UTF-8. A backslash stays as it is: names with backslashes read as perf prints them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UntrustedText<'a>(&'a [u8]);

impl<'a> UntrustedText<'a> {
    /// Text that is not trusted.
    #[inline]
    pub fn new(text: &'a (impl AsRef<[u8]> + ?Sized)) -> UntrustedText<'a> {
        UntrustedText(text.as_ref())
    }

    /// Whether the text has only printable ASCII characters.
    #[inline]
    pub fn is_printable_ascii(self) -> bool {
        // Without a branch for each byte, so that many are checked together.
        !self.0.iter().fold(false, |any, b| any | !(0x20..0x7f).contains(b))
    }

    /// Appends the text, escaped. Bytes that are not UTF-8 and are no controls stay.
    #[inline]
    pub fn write_escaped(self, out: &mut Vec<u8>) {
        if self.is_printable_ascii() { out.extend_from_slice(self.0) } else { self.write_each(out) }
    }

    fn write_each(self, out: &mut Vec<u8>) {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                write_character(c, out);
            }
            for byte in chunk.invalid() {
                write_stray_byte(*byte, out);
            }
        }
    }

    /// The text escaped, as bytes.
    pub fn escaped(self) -> Cow<'a, [u8]> {
        if self.is_printable_ascii() {
            return Cow::Borrowed(self.0);
        }
        let mut out = Vec::with_capacity(self.0.len() + 8);
        self.write_each(&mut out);
        Cow::Owned(out)
    }

    /// The text escaped, as UTF-8; bytes that are not UTF-8 become U+FFFD.
    pub fn to_text(self) -> Cow<'a, str> {
        match self.escaped() {
            Cow::Borrowed(plain) => String::from_utf8_lossy(plain),
            Cow::Owned(bytes) => Cow::Owned(
                String::from_utf8(bytes)
                    .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
            ),
        }
    }

    /// A field of a CSV line: escaped, quoted where it holds the separator or a quote, and with
    /// an apostrophe before what a spreadsheet takes for a formula.
    pub fn to_csv_field(self, separator: &str) -> Cow<'a, str> {
        let text = self.to_text();
        let is_formula = text.starts_with(['=', '+', '-', '@']);
        // Quotes are no characters of a name in perf's format with `,` or `;`: what needs none
        // stays as it is.
        let is_quoted = (!separator.is_empty() && text.contains(separator)) || text.contains('"');
        match (is_formula, is_quoted) {
            (false, false) => text,
            (_, false) => Cow::Owned(format!("'{text}")),
            (is_formula, true) => {
                let mark = if is_formula { "'" } else { "" };
                Cow::Owned(format!("\"{mark}{}\"", text.replace('"', "\"\"")))
            }
        }
    }
}

/// Whether a character is not text: it moves the cursor, changes the terminal's state, ends a
/// line, or changes the direction in which others are shown.
#[inline]
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Appends a character, escaped if it is not text.
pub fn write_character(c: char, out: &mut Vec<u8>) {
    match c {
        '\n' => out.extend_from_slice(b"\\n"),
        '\t' => out.extend_from_slice(b"\\t"),
        '\r' => out.extend_from_slice(b"\\r"),
        c if is_unprintable(c) => {
            out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes());
        }
        c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Appends a byte that is not part of a UTF-8 character, escaped if an 8-bit terminal takes it
/// for a control.
pub fn write_stray_byte(byte: u8, out: &mut Vec<u8>) {
    match byte {
        0x80..=0x9f => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        _ => out.push(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[u8]) -> Vec<u8> {
        UntrustedText::new(text).escaped().into_owned()
    }

    #[test]
    fn controls_are_escaped_and_text_is_not() {
        assert_eq!(of(b"kworker/0:1-ev\\x2d"), b"kworker/0:1-ev\\x2d");
        assert_eq!(of(b"x\ny: forged"), b"x\\ny: forged");
        assert_eq!(of(b"\x1b]0;t\x07\x7f\t\r"), b"\\u001b]0;t\\u0007\\u007f\\t\\r");
        assert_eq!(of("é\u{9b}31m\u{202e}".as_bytes()), "é\\u009b31m\\u202e".as_bytes());
        // Stray bytes: one is a control of 8-bit terminals, one is not.
        assert_eq!(of(b"a\x9bb\xffc"), b"a\\x9bb\xffc");
        assert_eq!(UntrustedText::new("a\u{2028}b").to_text(), "a\\u2028b");
        assert_eq!(UntrustedText::new(b"a\xffb\n".as_slice()).to_text(), "a\u{fffd}b\\n");
    }

    #[test]
    fn every_byte_is_safe_alone_and_behind_any_other() {
        for first in 0..=255u8 {
            for second in 0..=255u8 {
                let text = of(&[first, second]);
                let text = String::from_utf8_lossy(&text);
                assert!(!text.chars().any(is_unprintable), "{first} {second}: {text:?}");
            }
        }
    }

    #[test]
    fn csv_fields_are_no_formulas_and_keep_their_column() {
        let of = |text: &str| UntrustedText::new(text).to_csv_field(",").into_owned();
        assert_eq!(of("sched:sched_switch"), "sched:sched_switch");
        assert_eq!(of("=cmd()"), "'=cmd()");
        assert_eq!(of("@x,y"), "\"'@x,y\"");
        assert_eq!(of("a,b\"c"), "\"a,b\"\"c\"");
        assert_eq!(of("a\nb"), "a\\nb");
    }
}
