//! Rust sources as rules see them: code without comments and literals, words of it, and
//! prose without code. A scanner of characters, not a parser.

/// Source text split by what its characters are. Both have the source's lines; what belongs to
/// the other is blank.
#[derive(Clone, Debug, Default)]
pub(crate) struct SplitSource {
    /// Code; literals are empty, comments are gone.
    pub(super) code: String,
    /// Comments and the contents of string literals.
    pub(super) prose: String,
}

/// Splits a source file into code and prose.
pub(super) fn split(text: &str) -> SplitSource {
    let chars: Vec<char> = text.chars().collect();
    let mut out = Splitter { code: String::new(), prose: String::new() };
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        let begin = at;
        match (c, next) {
            ('/', Some('/')) => {
                at = find(&chars, at, |c| c == '\n');
                out.prose(&chars[begin..at]);
            }
            ('/', Some('*')) => {
                at = end_of_block_comment(&chars, at);
                out.prose(&chars[begin..at]);
            }
            ('"', _) => {
                at = end_of_string(&chars, at + 1);
                out.prose(&chars[begin..at]);
            }
            ('r', Some('"' | '#')) if !follows_word(&chars, at) => {
                match end_of_raw_string(&chars, at + 1) {
                    Some(end) => {
                        at = end;
                        out.prose(&chars[begin..at]);
                    }
                    None => {
                        at += 1;
                        out.code(&chars[begin..at]);
                    }
                }
            }
            ('\'', _) => {
                at = end_of_char(&chars, at);
                out.code(&chars[begin..at.min(begin + 1)]);
                out.prose(&chars[begin + 1..at]);
            }
            _ => {
                at += 1;
                out.code(&chars[begin..at]);
            }
        }
    }
    SplitSource { code: out.code, prose: out.prose }
}

struct Splitter {
    code: String,
    prose: String,
}

impl Splitter {
    fn code(&mut self, chars: &[char]) {
        self.code.extend(chars);
        self.prose.extend(chars.iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
    }

    fn prose(&mut self, chars: &[char]) {
        self.prose.extend(chars);
        self.code.extend(chars.iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
    }
}

fn find(chars: &[char], from: usize, is: impl Fn(char) -> bool) -> usize {
    chars[from..].iter().position(|c| is(*c)).map_or(chars.len(), |n| from + n)
}

fn follows_word(chars: &[char], at: usize) -> bool {
    // `b` of `br"…"` is a word of its own.
    at > 0 && is_word(chars[at - 1]) && chars[at - 1] != 'b'
}

fn end_of_block_comment(chars: &[char], begin: usize) -> usize {
    let (mut at, mut depth) = (begin, 0);
    while at < chars.len() {
        match chars.get(at..at + 2) {
            Some(['/', '*']) => (at, depth) = (at + 2, depth + 1),
            Some(['*', '/']) => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at.min(chars.len())
}

fn end_of_string(chars: &[char], mut at: usize) -> usize {
    while let Some(c) = chars.get(at) {
        match c {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// `at` is behind the `r`; none if it is a raw identifier.
fn end_of_raw_string(chars: &[char], at: usize) -> Option<usize> {
    let quote = find(chars, at, |c| c != '#');
    if chars.get(quote) != Some(&'"') {
        return None;
    }
    let hashes = quote - at;
    let mut from = quote + 1;
    loop {
        let end = find(chars, from, |c| c == '"');
        let tail = chars.get(end + 1..end + 1 + hashes);
        if end >= chars.len() || tail.is_some_and(|tail| tail.iter().all(|c| *c == '#')) {
            return Some((end + 1 + hashes).min(chars.len()));
        }
        from = end + 1;
    }
}

/// End of `'x'` or `'
///
/// '`; a lifetime ends after its quote.
fn end_of_char(chars: &[char], begin: usize) -> usize {
    if chars.get(begin + 1) == Some(&'\\') {
        return (find(chars, (begin + 3).min(chars.len()), |c| c == '\'') + 1).min(chars.len());
    }
    if chars.get(begin + 2) == Some(&'\'') { begin + 3 } else { begin + 1 }
}

/// Whether a character belongs to an identifier.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The identifiers and numbers of a text, in order.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_word(c)).filter(|word| !word.is_empty())
}

/// The code before the tests at the end of a file.
pub(super) fn without_tests(code: &str) -> &str {
    let mut from = 0;
    while let Some(at) = code[from..].find("#[cfg(test)]").map(|n| n + from) {
        let behind = code[at + "#[cfg(test)]".len()..].trim_start();
        // `mod tests;` lies in a file of its own.
        if behind.starts_with("mod ")
            && behind.split(['{', ';']).next().map(str::len) != behind.find(';')
        {
            return &code[..at];
        }
        from = at + 1;
    }
    code
}

#[cfg(test)]
mod tests {
    use super::{split, without_tests, words};

    #[test]
    fn code_and_prose_are_distinguished() {
        let check = |text: &str, code: &[&str], prose: &[&str]| {
            let both = split(text);
            assert_eq!(words(&both.code).collect::<Vec<_>>(), code, "code of {text}");
            assert_eq!(words(&both.prose).collect::<Vec<_>>(), prose, "prose of {text}");
            assert_eq!(both.code.lines().count(), text.lines().count(), "lines of {text}");
        };
        check("let a = b; // c d\ne", &["let", "a", "b", "e"], &["c", "d"]);
        check("f(\"x \\\" y\", z)", &["f", "z"], &["x", "y"]);
        check("/* a /* b */ c */ d", &["d"], &["a", "b", "c"]);
        check("r#\"x \" y\"# + br\"z\" + r#type", &["b", "r", "type"], &["r", "x", "y", "r", "z"]);
        check(
            "fn f<'a>(x: &'a str) { 'c'; '\\''; '\"'; g }",
            &["fn", "f", "a", "x", "a", "str", "g"],
            &["c"],
        );
    }

    #[test]
    fn tests_at_the_end_are_cut() {
        assert_eq!(
            without_tests("fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }"),
            "fn a() {}\n"
        );
        let outside = "#[cfg(test)]\nmod tests;\nfn a() {}";
        assert_eq!(without_tests(outside), outside);
    }
}
