//! Text and names of members in JSON.

use crate::line_writer::LineWriter;
use crate::spec::hex;

/// Member name of a field, with what stands before it and the colon: `,"id":`.
#[derive(Debug)]
pub(crate) struct MemberName {
    short: Option<([u8; 32], usize)>,
    text: Vec<u8>,
}

impl MemberName {
    pub(crate) fn new(number: usize, name: &str) -> MemberName {
        let mut text = if number == 0 { b"{".to_vec() } else { b",".to_vec() };
        json_string(&mut text, name.as_bytes());
        text.push(b':');
        let mut short = [0; 32];
        let fits = short.get_mut(..text.len()).map(|place| place.copy_from_slice(&text));
        MemberName { short: fits.map(|()| (short, text.len())), text }
    }

    #[inline]
    pub(crate) fn write(&self, line: &mut LineWriter<'_>) {
        match &self.short {
            Some((name, len)) => line.write_prefix(name, *len),
            None => line.text(&self.text),
        }
    }
}

/// Whether text needs no other bytes in a JSON string: it is ASCII without what ends a
/// string, escapes or controls.
#[inline]
fn is_plain(text: &[u8]) -> bool {
    // Without a branch for each byte, so that many are looked at together.
    let odd = |b: u8| !(0x20..0x80).contains(&b) | (b == b'"') | (b == b'\\');
    !text.iter().fold(false, |any, b| any | odd(*b))
}

/// Appends `bytes` as a JSON string.
pub fn json_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    if is_plain(bytes) {
        out.extend_from_slice(bytes)
    } else {
        escape(out, bytes)
    }
    out.push(b'"');
}

fn escape(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for b in chunk.valid().bytes() {
            match b {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', b]),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\t' => out.extend_from_slice(b"\\t"),
                b'\r' => out.extend_from_slice(b"\\r"),
                0..0x20 => {
                    out.extend_from_slice(b"\\u");
                    hex(out, u64::from(b), 4);
                }
                _ => out.push(b),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_where_json_asks_for_it() {
        let of = |text: &[u8]| {
            let mut out = Vec::new();
            json_string(&mut out, text);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(of(b"kworker/0:1 ~"), "\"kworker/0:1 ~\"");
        assert_eq!(of(b"a\"b\\c\n\x01"), "\"a\\\"b\\\\c\\n\\u0001\"");
        assert_eq!(of("\u{e4}\u{7f}".as_bytes()), "\"\u{e4}\u{7f}\"");
        assert_eq!(of(b"x\xffy"), "\"x\u{fffd}y\"");
        for b in 0..=255u8 {
            let (mut plain, mut escaped) = (Vec::new(), vec![b'"']);
            json_string(&mut plain, &[b'x', b]);
            escape(&mut escaped, &[b'x', b]);
            escaped.push(b'"');
            assert_eq!(plain, escaped, "{b}");
        }
    }
}
