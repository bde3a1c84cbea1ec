//! Matching of names (`*`, `?`, `[a-z]`, `[!a-z]`, `\x`) and of source lines,
//! where blanks do not count. Linear in memory, and at worst the product of
//! both lengths in time.

/// Whether the text has a character that makes it a pattern.
pub fn is_glob(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Whether `text` as a whole matches `pattern`.
pub fn glob_match(pattern: &str, text: &str) -> bool {
    matches(pattern.as_bytes(), text.as_bytes())
}

/// Whether a source line matches, with blanks left out of both.
pub fn lazy_match(pattern: &str, line: &str) -> bool {
    let squeeze = |s: &str| -> Vec<u8> {
        s.bytes().filter(|b| !b.is_ascii_whitespace()).collect::<Vec<u8>>()
    };
    matches(&squeeze(pattern), &squeeze(line))
}

/// One element of the pattern: whether it takes `byte`, and how long it is.
fn element(pattern: &[u8], byte: u8) -> (bool, usize) {
    match pattern {
        [b'?', ..] => (true, 1),
        [b'\\', c, ..] => (*c == byte, 2),
        [b'[', rest @ ..] => class(rest, byte).map_or((byte == b'[', 1), |(hit, n)| (hit, n + 1)),
        [c, ..] => (*c == byte, 1),
        [] => (false, 0),
    }
}

/// A class behind its `[`: whether it has `byte`, and its length up to and with
/// the `]`. `None` if it is never closed.
fn class(body: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = body.first() == Some(&b'!');
    let mut at = usize::from(negated);
    let mut hit = false;
    let first = at;
    loop {
        let c = *body.get(at)?;
        if c == b']' && at > first {
            return Some((hit != negated, at + 1));
        }
        match (body.get(at + 1), body.get(at + 2)) {
            (Some(b'-'), Some(&end)) if end != b']' => {
                hit |= (c..=end).contains(&byte);
                at += 3;
            }
            _ => {
                hit |= c == byte;
                at += 1;
            }
        }
    }
}

fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on when the part behind the last star did not match.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let rest = pattern.get(p..).unwrap_or_default();
        if rest.first() == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        match text.get(t) {
            None if rest.is_empty() => return true,
            None => return false,
            Some(&byte) => {
                let (hit, len) = element(rest, byte);
                if hit {
                    p += len;
                    t += 1;
                } else if let Some((after_star, from)) = retry {
                    p = after_star;
                    t = from + 1;
                    retry = Some((after_star, t));
                } else {
                    return false;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        let yes = [
            ("vfs_*", "vfs_read"),
            ("*read*", "vfs_readv"),
            ("vfs_r?ad", "vfs_read"),
            ("[a-c]x[!0-9]", "bxy"),
            ("[]]", "]"),
            ("a\\*b", "a*b"),
            ("", ""),
            ("*", ""),
            ("[unclosed", "[unclosed"),
        ];
        for (p, t) in yes {
            assert!(glob_match(p, t), "{p} {t}");
        }
        for (p, t) in
            [("vfs", "vfs_read"), ("[!a]", "a"), ("a\\*b", "axb"), ("?", ""), ("x*y", "xz")]
        {
            assert!(!glob_match(p, t), "{p} {t}");
        }
        let long = "a".repeat(4000);
        assert!(!glob_match(&"*a".repeat(40).replace("aa", "ab"), &(long + "c")));
    }

    #[test]
    fn blanks_do_not_count_in_lazy_patterns() {
        for line in ["a=b", "\ta = b;", "a == b"] {
            assert!(lazy_match("a=*", line), "{line}");
        }
        assert!(lazy_match("cpu = smp*", "  cpu=smp_processor_id();"));
        assert!(!lazy_match("a=*", "if (a=b)"));
    }
}
