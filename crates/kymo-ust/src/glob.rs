//! Patterns of event names: `*` any text, `?` one byte.

/// Whether `pattern` describes all of `text`. Takes at most `pattern × text` steps.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where the last star stands, and what of the text it has swallowed.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, swallowed)) = star else { return false };
                star = Some((at, swallowed + 1));
                p = at + 1;
                t = swallowed + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        let yes = [("*", ""), ("a*", "a"), ("a*c", "abbc"), ("a?c", "abc"), ("*a*b*", "xaxbx")];
        let no = [("", "a"), ("a", ""), ("a?", "a"), ("a*c", "abcd"), ("?", ""), ("ab", "abc")];
        for (pattern, text) in yes {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in no {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }
}
