//! Keys out of the bytes that a terminal sends.

use kymo_view::top::TopKey;

/// Decodes pressed keys. An unknown sequence is no key; a text in UTF-8 is its characters.
pub(super) fn keys(mut bytes: &[u8]) -> Vec<TopKey> {
    let mut keys = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        bytes = match first {
            0x1b => escape(rest, &mut keys),
            b'\r' | b'\n' => {
                keys.push(TopKey::Enter);
                rest
            }
            0x7f | 0x08 => {
                keys.push(TopKey::Backspace);
                rest
            }
            0..0x20 => rest,
            _ => character(bytes, &mut keys),
        };
    }
    keys
}

fn escape<'a>(rest: &'a [u8], keys: &mut Vec<TopKey>) -> &'a [u8] {
    let Some((b'[' | b'O', sequence)) = rest.split_first() else {
        keys.push(TopKey::Escape);
        return rest;
    };
    let end = sequence.iter().position(|b| (0x40..0x7f).contains(b)).unwrap_or(sequence.len());
    let (parameters, rest) = sequence.split_at(end);
    let Some((last, rest)) = rest.split_first() else { return rest };
    let key = match (last, parameters) {
        (b'A', _) => TopKey::Up,
        (b'B', _) => TopKey::Down,
        (b'C', _) => TopKey::Right,
        (b'D', _) => TopKey::Left,
        (b'H', _) | (b'~', b"1" | b"7") => TopKey::Home,
        (b'F', _) | (b'~', b"4" | b"8") => TopKey::End,
        (b'~', b"5") => TopKey::PageUp,
        (b'~', b"6") => TopKey::PageDown,
        _ => return rest,
    };
    keys.push(key);
    rest
}

fn character<'a>(bytes: &'a [u8], keys: &mut Vec<TopKey>) -> &'a [u8] {
    let length = match bytes.first() {
        Some(0xc0..0xe0) => 2,
        Some(0xe0..0xf0) => 3,
        Some(0xf0..) => 4,
        _ => 1,
    };
    let (text, rest) = bytes.split_at(length.min(bytes.len()));
    keys.extend(std::str::from_utf8(text).ok().and_then(|t| t.chars().next()).map(TopKey::Char));
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_keys() {
        let all = keys(b"a\x1b[A\x1b[5~\x1bOF\x1b[200;3x\r\x7f\xc3\xa4\xff\x1b");
        let expected = [
            TopKey::Char('a'),
            TopKey::Up,
            TopKey::PageUp,
            TopKey::End,
            TopKey::Enter,
            TopKey::Backspace,
            TopKey::Char('ä'),
            TopKey::Escape,
        ];
        // A byte that begins nothing may take what follows it along, but never more.
        assert_eq!(all[..7], expected[..7]);
        assert!(keys(b"\x1b[").is_empty() && keys(b"\xc3").is_empty());
    }
}
