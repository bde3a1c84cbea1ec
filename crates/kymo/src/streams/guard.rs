//! Writer that escapes control characters of the text that passes it.

use std::fmt;
use std::io::{self, Write};

use kymo_model::{is_unprintable, write_character, write_stray_byte};

/// Longest escape sequence of colors that is let through, in bytes.
const LONGEST_SEQUENCE: usize = 32;

/// Passes text on; control characters but newlines and tabs are escaped. With colors, sequences
/// that set colors (SGR) pass, too.
pub(crate) struct TextGuard<W: Write> {
    inner: W,
    has_colors: bool,
    /// Start of a character or sequence whose rest comes with the next bytes.
    held: Vec<u8>,
    escaped: Vec<u8>,
}

/// First character of a text, if it is there in full.
enum Token {
    /// Bytes that pass as they are.
    Pass(usize),
    Escape(char),
    Stray(u8),
    Incomplete,
}

impl<W: Write> TextGuard<W> {
    pub(crate) fn new(inner: W, has_colors: bool) -> TextGuard<W> {
        TextGuard { inner, has_colors, held: Vec::new(), escaped: Vec::new() }
    }

    /// Passes `text` on, and holds what may go on with the next bytes.
    fn pass(&mut self, mut text: &[u8]) -> io::Result<()> {
        // Without a branch for each byte, so that many are checked together.
        if !text.iter().fold(false, |any, b| any | is_suspect(*b)) {
            return self.inner.write_all(text);
        }
        while let Some(at) = text.iter().position(|b| is_suspect(*b)) {
            let (plain, rest) = text.split_at(at);
            self.escaped.extend_from_slice(plain);
            match token(rest, self.has_colors) {
                Token::Pass(len) => {
                    self.escaped.extend_from_slice(rest.get(..len).unwrap_or(rest));
                    text = rest.get(len..).unwrap_or_default();
                }
                Token::Escape(c) => {
                    write_character(c, &mut self.escaped);
                    text = rest.get(c.len_utf8()..).unwrap_or_default();
                }
                Token::Stray(byte) => {
                    write_stray_byte(byte, &mut self.escaped);
                    text = rest.get(1..).unwrap_or_default();
                }
                Token::Incomplete => {
                    self.held = rest.to_vec();
                    text = &[];
                }
            }
        }
        if self.escaped.is_empty() {
            return self.inner.write_all(text);
        }
        self.escaped.extend_from_slice(text);
        let done = self.inner.write_all(&self.escaped);
        self.escaped.clear();
        done
    }

    /// Writes what was held as it is: nothing follows.
    fn end(&mut self) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        let mut out = Vec::new();
        for byte in held {
            if byte.is_ascii() {
                write_character(char::from(byte), &mut out)
            } else {
                write_stray_byte(byte, &mut out)
            }
        }
        if out.is_empty() { Ok(()) } else { self.inner.write_all(&out) }
    }
}

/// Whether a byte needs a look: it is a control, or not ASCII.
#[inline]
fn is_suspect(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\n' && byte != b'\t') || byte >= 0x7f
}

fn token(text: &[u8], has_colors: bool) -> Token {
    let Some(first) = text.first() else { return Token::Incomplete };
    if *first == 0x1b && has_colors {
        return match color_sequence(text) {
            Ok(0) => Token::Escape('\x1b'),
            Ok(len) => Token::Pass(len),
            Err(Unfinished) => Token::Incomplete,
        };
    }
    if first.is_ascii() {
        return Token::Escape(char::from(*first));
    }
    let Some(chunk) = text.get(..text.len().min(4)).and_then(|t| t.utf8_chunks().next()) else {
        return Token::Stray(*first);
    };
    match chunk.valid().chars().next() {
        Some(c) if is_unprintable(c) => Token::Escape(c),
        Some(c) => Token::Pass(c.len_utf8()),
        // The start of a character at the end of the text may go on.
        None if chunk.invalid().len() == text.len() && is_start(text) => Token::Incomplete,
        None => Token::Stray(*first),
    }
}

/// Whether bytes are the start of a character of UTF-8 whose rest is missing.
fn is_start(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_err_and(|e| e.error_len().is_none())
}

struct Unfinished;

/// Length of the SGR sequence that a text starts with; 0 if it is another sequence.
fn color_sequence(text: &[u8]) -> Result<usize, Unfinished> {
    match text.get(1) {
        None => return Err(Unfinished),
        Some(b'[') => {}
        Some(_) => return Ok(0),
    }
    let parameters = text.get(2..).unwrap_or_default();
    let end = parameters.iter().position(|b| !b.is_ascii_digit() && *b != b';' && *b != b':');
    match end.and_then(|end| Some((end, parameters.get(end)?))) {
        Some((end, b'm')) if end + 3 <= LONGEST_SEQUENCE => Ok(end + 3),
        Some(_) => Ok(0),
        None if text.len() < LONGEST_SEQUENCE => Err(Unfinished),
        None => Ok(0),
    }
}

impl<W: Write> Write for TextGuard<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.held.is_empty() {
            self.pass(text)?;
        } else {
            let mut joined = std::mem::take(&mut self.held);
            joined.extend_from_slice(text);
            self.pass(&joined)?;
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<W: Write> Drop for TextGuard<W> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl<W: Write> fmt::Debug for TextGuard<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextGuard").field("has_colors", &self.has_colors).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that comes out of a guard which gets `text` in pieces of `size` bytes.
    fn guarded(text: &[u8], size: usize, has_colors: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mut guard = TextGuard::new(&mut out, has_colors);
        text.chunks(size).for_each(|piece| guard.write_all(piece).unwrap());
        drop(guard);
        out
    }

    #[test]
    fn colors_pass_and_other_controls_do_not() {
        let text = "\x1b[1;31mred\x1b[0m\té\n\x1b]0;title\x07 \x1b[2J\u{9b}3m\u{202e}\r\x08\x1b"
            .as_bytes();
        let colored: &[u8] = "\x1b[1;31mred\x1b[0m\té\n\\u001b]0;title\\u0007 \\u001b[2J\
                              \\u009b3m\\u202e\\r\\u0008\\u001b"
            .as_bytes();
        let plain = String::from_utf8_lossy(colored).replace('\x1b', "\\u001b");
        for size in [1, 2, 3, 5, 7, 64, 4096] {
            assert_eq!(guarded(text, size, true), colored, "{size}");
            assert_eq!(guarded(text, size, false), plain.as_bytes(), "{size}");
        }
    }

    #[test]
    fn text_is_not_changed() {
        let text = "sched:sched_switch ünïcødé 日本語 🦀 \\x1b\n\tnext\n".as_bytes();
        for size in 1..=text.len() {
            assert_eq!(guarded(text, size, true), text, "{size}");
        }
        // Bytes that are not UTF-8, whole or cut.
        assert_eq!(guarded(b"a\xff\xe9b\x9b\xc3", 1, false), b"a\xff\xe9b\\x9b\xc3");
    }

    #[test]
    fn random_bytes_never_become_controls() {
        let mut state = 7_u64;
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..24)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    [0x1b, b'[', b'3', b'm', 0x9b, 0xc2, 0xe2, 0x80, 0xae, b']', 7, 0xf0]
                        [(state >> 33) as usize % 12]
                })
                .collect();
            let whole = guarded(&bytes, 24, true);
            for size in [1, 3, 5] {
                assert_eq!(guarded(&bytes, size, true), whole, "{bytes:?}");
            }
            let text = String::from_utf8_lossy(&whole).into_owned();
            let mut rest = text.as_str();
            while let Some(at) = rest.find(is_unprintable) {
                rest = &rest[at..];
                let len = color_sequence(rest.as_bytes()).unwrap_or(0);
                assert!(len > 0, "{bytes:?}: {text:?}");
                rest = &rest[len..];
            }
        }
    }
}
